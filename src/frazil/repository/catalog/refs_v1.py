"""The branches and tags of spec version 1. Each has a small file, which is read when it is needed.

    refs/branch.main/ref.json          {"snapshot":"1CECHNKREP0F1RSTCMT0"}
    refs/tag.v1.0/ref.json             the same content; written once
    refs/tag.v1.0/ref.json.deleted     an empty file: the tag was deleted, and its name is never used again

*White space.* Two refs to the same snapshot have the same JSON. So after a lost answer, a writer could not
tell whether it has written the file. JSON allows white space at its end. Frazil writes random bits there, as
blanks and tabs.

*Names* cannot contain ``/``. Except on S3, the reference percent-encodes some characters in the names of
objects, and lists them without decoding. Frazil encodes them in the same way, and decodes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import unquote

from frazil.errors import ErrorKind, FormatError, InvalidInputError, RefNotFoundError, StorageError
from frazil.format.ids import id_from_text, id_to_text
from frazil.format.keys import REFS
from frazil.storage.base import Storage, Version
from frazil.threads import Purpose, map_bounded

_FILE: Final = "ref.json"
_DELETED: Final = "ref.json.deleted"
_ENCODED: Final = re.compile(rb"[\x00-\x1f\x7f-\xff\\{}^%`\]\[\">~<#|*?]")


class RefKind(Enum):
    """The kind of a ref, as the word before the name in its path."""

    BRANCH = "branch"
    TAG = "tag"


def ref_folder(storage: Storage, kind: RefKind, name: str) -> str:
    """Return the folder of a ref. Raises ``InvalidInputError`` (``invalid-ref-name``) for a ``/``."""
    if "/" in name:
        raise InvalidInputError(
            f"invalid ref name `{name}`: in a repository of spec version 1, the name of a branch or tag "
            "cannot contain `/`. Use another name, or upgrade the repository",
            ErrorKind.INVALID_REF_NAME,
        )
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"the name of a branch or tag must be text that UTF-8 can encode, without lone surrogates, got "
            f"{name!r:.80}",
            ErrorKind.INVALID_REF_NAME,
        ) from None
    if storage.encodes_names():
        name = _ENCODED.sub(lambda match: b"%%%02X" % match[0][0], data).decode()
    return f"{REFS}/{kind.value}.{name}"


def ref_key(storage: Storage, kind: RefKind, name: str) -> str:
    """Return the key of the file of a ref."""
    return f"{ref_folder(storage, kind, name)}/{_FILE}"


def tombstone_key(storage: Storage, tag: str) -> str:
    """Return the key of the file that marks a tag as deleted."""
    return f"{ref_folder(storage, RefKind.TAG, tag)}/{_DELETED}"


def encode_ref(snapshot: bytes, mark: bytes) -> bytes:
    r"""Return the file of a ref. ``mark`` has random bytes, by which the writer recognises the file."""
    bits = "".join(f"{byte:08b}" for byte in mark)
    return (
        f'{{"snapshot":"{id_to_text(snapshot)}"}}'.encode()
        + bits.replace("0", " ").replace("1", "\t").encode()
    )


def decode_ref(data: bytes, key: str) -> bytes:
    """Return the id of the snapshot in the file of a ref. Raises ``FormatError``, which names ``key``."""
    try:
        return id_from_text(json.loads(data)["snapshot"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f'{key}: the content must be {{"snapshot": "<id>"}}, got {data[:80]!r}', ErrorKind.DESERIALIZATION
        ) from error


@dataclass(frozen=True, slots=True)
class Ref:
    """The file of a ref, with its version and bytes."""

    snapshot: bytes
    version: Version
    data: bytes


def read_ref(storage: Storage, kind: RefKind, name: str) -> Ref | None:
    """Return a ref, or None if there is no file. It ignores tombstones, and returns deleted tags too."""
    key = ref_key(storage, kind, name)
    try:
        raw, version = storage.get_versioned(key)
    except StorageError as error:
        if error.kind == ErrorKind.OBJECT_NOT_FOUND:
            return None
        raise
    data = bytes(raw)
    return Ref(decode_ref(data, key), version, data)


def list_refs(storage: Storage) -> tuple[dict[RefKind, set[str]], set[str]]:
    """Return the names of all refs except deleted tags, and the names of the deleted tags."""
    names: dict[RefKind, set[str]] = {kind: set() for kind in RefKind}
    deleted: set[str] = set()
    for info in storage.list(REFS):
        folder, _, file = info.key.removeprefix(f"{REFS}/").rpartition("/")
        word, dot, name = folder.partition(".")
        if word not in _KINDS or not dot or "/" in folder:
            continue
        name = unquote(name, errors="replace") if storage.encodes_names() else name
        if file == _FILE:
            names[_KINDS[word]].add(name)
        elif file == _DELETED and word == RefKind.TAG.value:
            deleted.add(name)
    names[RefKind.TAG] -= deleted
    return names, deleted


_KINDS: Final = {kind.value: kind for kind in RefKind}


class Refs(Mapping[str, bytes]):
    """The snapshot ids of refs by name. Each ref is read once, when it is needed.

    A caller that has listed the names probably needs all refs. In that case, threads fetch all of them.
    """

    def __init__(self, storage: Storage, kind: RefKind) -> None:
        self._storage = storage
        self._kind = kind
        self._cached: dict[str, Ref | None] = {}
        self._names: list[str] | None = None

    def ref(self, name: str) -> Ref:
        """Return a ref with the version of its file. Raises ``RefNotFoundError`` if there is none."""
        if name not in self._cached:
            others = [other for other in self._names or () if other not in self._cached]
            if name in others and len(others) > 1:
                refs = map_bounded(Purpose.CATALOG_READS, self._read, others)
                self._cached.update(zip(others, refs, strict=True))
            else:
                self._cached[name] = self._read(name)
        ref = self._cached[name]
        if ref is None:
            raise RefNotFoundError(f"there is no branch or tag `{name}`", ErrorKind.REF_NOT_FOUND)
        return ref

    def _read(self, name: str) -> Ref | None:
        ref = read_ref(self._storage, self._kind, name)
        if ref is not None and self._kind is RefKind.TAG:
            return None if self._storage.head(tombstone_key(self._storage, name)) else ref
        return ref

    def __getitem__(self, name: str) -> bytes:
        return self.ref(name).snapshot

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            self._names = sorted(list_refs(self._storage)[0][self._kind])
        return iter(self._names)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def edited(self, name: str, snapshot: bytes | None) -> Mapping[str, bytes]:
        """Return only the changed ref, which is all that an update needs. This reads no files."""
        return {} if snapshot is None else {name: snapshot}


@dataclass(frozen=True, slots=True)
class AllRefs:
    """All refs by name. A deleted tag has its last snapshot, or None if it is not known."""

    branches: dict[str, bytes]
    tags: dict[str, bytes]
    deleted_tags: dict[str, bytes | None]

    @property
    def tips(self) -> list[bytes]:
        """The snapshot ids of all branches and tags."""
        return [*self.branches.values(), *self.tags.values()]


def read_all_refs(storage: Storage) -> AllRefs:
    """Return all refs. This needs one listing and one request for each ref, in parallel."""
    names, deleted = list_refs(storage)
    wanted = [(kind, name) for kind in RefKind for name in sorted(names[kind])]
    wanted += [(RefKind.TAG, name) for name in sorted(deleted)]
    refs = map_bounded(Purpose.CATALOG_READS, lambda each: read_ref(storage, *each), wanted)
    out = AllRefs({}, {}, dict.fromkeys(deleted))
    for (kind, name), ref in zip(wanted, refs, strict=True):
        if ref is None:
            continue  # deleted since the listing, or a tag that only has a tombstone
        if kind is RefKind.BRANCH:
            out.branches[name] = ref.snapshot
        elif name in deleted:
            out.deleted_tags[name] = ref.snapshot
        else:
            out.tags[name] = ref.snapshot
    return out


class DeletedTags(Set[str]):
    """The names of deleted tags, which are never used again."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._storage.head(tombstone_key(self._storage, name)) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(list_refs(self._storage)[1]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, names):  # type: ignore[no-untyped-def]  # of collections.abc, for | and -
        return frozenset(names)


def with_ref(refs: Mapping[str, bytes], name: str, snapshot: bytes | None) -> Mapping[str, bytes]:
    """Return ``refs`` after one of them has moved to ``snapshot``, or was deleted (None)."""
    if isinstance(refs, Refs):
        return refs.edited(name, snapshot)
    others = {other: id_ for other, id_ in refs.items() if other != name}
    return others if snapshot is None else others | {name: snapshot}

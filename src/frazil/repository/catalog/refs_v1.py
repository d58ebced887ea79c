"""Branches and tags of spec version 1: a small file each, read when it is asked for.

    refs/branch.main/ref.json          {"snapshot":"1CECHNKREP0F1RSTCMT0"}
    refs/tag.v1.0/ref.json             the same; written once
    refs/tag.v1.0/ref.json.deleted     an empty file: the tag is gone, and its name is never used again

*White space.* Two refs to one snapshot are the same bytes, so nobody could tell whose write it was that he
finds after a lost answer. JSON allows white space at its end: what Frazil writes carries a random number
there, in blanks and tabs.

*Names* may not contain ``/``. Everywhere but on S3 the reference percent-encodes some characters in the names
of objects, and lists them undecoded; there they are encoded in the same way, and decoded.
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
    """The word before the name in a ref's path."""

    BRANCH = "branch"
    TAG = "tag"


def ref_folder(storage: Storage, kind: RefKind, name: str) -> str:
    """Where the files of a ref are. ``InvalidInputError`` (``invalid-ref-name``) for a name with ``/``."""
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
            f"invalid ref name {name!r:.80}: expected text that UTF-8 can encode, without lone surrogates",
            ErrorKind.INVALID_REF_NAME,
        ) from None
    if storage.encodes_names():
        name = _ENCODED.sub(lambda match: b"%%%02X" % match[0][0], data).decode()
    return f"{REFS}/{kind.value}.{name}"


def ref_key(storage: Storage, kind: RefKind, name: str) -> str:
    return f"{ref_folder(storage, kind, name)}/{_FILE}"


def tombstone_key(storage: Storage, tag: str) -> str:
    return f"{ref_folder(storage, RefKind.TAG, tag)}/{_DELETED}"


def encode_ref(snapshot: bytes, mark: bytes) -> bytes:
    """Return the file of a ref; ``mark`` is a random number that makes it ours.

    >>> encode_ref(bytes(12), b"\\x05").split(b"}")
    [b'{"snapshot":"00000000000000000000"', b'     \\t \\t']
    """
    bits = "".join(f"{byte:08b}" for byte in mark)
    return (
        f'{{"snapshot":"{id_to_text(snapshot)}"}}'.encode()
        + bits.replace("0", " ").replace("1", "\t").encode()
    )


def decode_ref(data: bytes, key: str) -> bytes:
    """Return the id of the snapshot; ``FormatError`` naming ``key``."""
    try:
        return id_from_text(json.loads(data)["snapshot"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f'{key}: expected {{"snapshot": "<id>"}}, found {data[:80]!r}', ErrorKind.DESERIALIZATION
        ) from error


@dataclass(frozen=True, slots=True)
class Ref:
    """A ref's file as it was read."""

    snapshot: bytes
    version: Version
    data: bytes


def read_ref(storage: Storage, kind: RefKind, name: str) -> Ref | None:
    """None if there is none. A deleted tag is still there: its tombstone is not looked at."""
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
    """Return names of all refs, deleted tags not among them; and of the deleted tags."""
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
    """Name -> snapshot id, each read once, when it is asked for.

    Who has listed the names and asks for one will ask for all: then they are fetched side by side.
    """

    def __init__(self, storage: Storage, kind: RefKind) -> None:
        self._storage = storage
        self._kind = kind
        self._cached: dict[str, Ref | None] = {}
        self._names: list[str] | None = None

    def ref(self, name: str) -> Ref:
        """With the version that was read; ``RefNotFoundError``."""
        if name not in self._cached:
            others = [other for other in self._names or () if other not in self._cached]
            if name in others and len(others) > 1:
                refs = map_bounded(Purpose.CATALOG_READS, self._read, others)
                self._cached.update(zip(others, refs, strict=True))
            else:
                self._cached[name] = self._read(name)
        ref = self._cached[name]
        if ref is None:
            raise RefNotFoundError(f"no branch or tag `{name}`", ErrorKind.REF_NOT_FOUND)
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
        """What changes is all that an update has to know: just that, and nothing is read for it."""
        return {} if snapshot is None else {name: snapshot}


@dataclass(frozen=True, slots=True)
class AllRefs:
    """All of them, by name. Of a deleted tag may be known where it was."""

    branches: dict[str, bytes]
    tags: dict[str, bytes]
    deleted_tags: dict[str, bytes | None]

    @property
    def tips(self) -> list[bytes]:
        """Where branches and tags are."""
        return [*self.branches.values(), *self.tags.values()]


def read_all_refs(storage: Storage) -> AllRefs:
    """Return one request to list them, and one for each, side by side."""
    names, deleted = list_refs(storage)
    wanted = [(kind, name) for kind in RefKind for name in sorted(names[kind])]
    wanted += [(RefKind.TAG, name) for name in sorted(deleted)]
    refs = map_bounded(Purpose.CATALOG_READS, lambda each: read_ref(storage, *each), wanted)
    out = AllRefs({}, {}, dict.fromkeys(deleted))
    for (kind, name), ref in zip(wanted, refs, strict=True):
        if ref is None:
            continue  # deleted since it was listed, or nothing but a tombstone
        if kind is RefKind.BRANCH:
            out.branches[name] = ref.snapshot
        elif name in deleted:
            out.deleted_tags[name] = ref.snapshot
        else:
            out.tags[name] = ref.snapshot
    return out


class DeletedTags(Set[str]):
    """Names that are never used again."""

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
    """``refs`` with one that points elsewhere, or with one less."""
    if isinstance(refs, Refs):
        return refs.edited(name, snapshot)
    others = {other: id_ for other, id_ in refs.items() if other != name}
    return others if snapshot is None else others | {name: snapshot}

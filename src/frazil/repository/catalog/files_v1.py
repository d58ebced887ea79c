"""The refs and snapshots of spec version 1. Each is a small file, which is read when it is needed.

A ref is ``refs/branch.NAME/ref.json`` or ``refs/tag.NAME/ref.json``: a JSON with the snapshot, and then
blanks and tabs, which are random bits, by which a writer recognises its file after a lost answer. The empty
file ``ref.json.deleted`` says that a tag was deleted. Except on S3, the names of objects are percent-encoded.

A walk from parent to parent looks ahead: it lists the snapshots, and fetches in parallel the youngest files
that are older than its current snapshot, each time twice as many. Only an expiration changes a snapshot file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from threading import RLock
from typing import Final
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from frazil.errors import (
    ErrorKind,
    FormatError,
    IcechunkError,
    InvalidInputError,
    RefNotFoundError,
    SnapshotNotFoundError,
    StorageError,
)
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    REFS,
    SNAPSHOTS,
    id_from_text,
    id_keys,
    id_list,
    id_matrix,
    id_to_text,
    ids_from_text,
    is_id_text,
)
from frazil.format.snapshot import SnapshotEntry
from frazil.repository.catalog.assets import SNAPSHOT_ENTRY, Assets
from frazil.repository.paths import utf8
from frazil.storage.base import Storage, Version
from frazil.storage.checks import skip_missing
from frazil.threads import Purpose, map_bounded

_FILE: Final = "ref.json"
_DELETED: Final = "ref.json.deleted"
#: A file with this key exists where the file system does not distinguish upper and lower case.
_UPPER_MAIN: Final = f"{REFS}/branch.main/{_FILE}".upper()
_ENCODED: Final = re.compile(rb"[\x00-\x1f\x7f-\xff\\{}^%`\]\[\">~<#|*?]")


class RefKind(Enum):
    """The kind of a ref, as the word before the name in its path."""

    BRANCH = "branch"
    TAG = "tag"


def ref_key(storage: Storage, kind: RefKind, name: str, file: str = _FILE) -> str:
    """Return the key of a file of a ref. Raises ``InvalidInputError`` (``invalid-ref-name``) for a ``/``."""
    if "/" in name:
        raise InvalidInputError(
            f"invalid ref name `{name}`: in a repository of spec version 1, the name of a branch or tag "
            "cannot contain `/`. Use another name, or upgrade the repository",
            ErrorKind.INVALID_REF_NAME,
        )
    data = utf8("the name of a branch or tag", name, ErrorKind.INVALID_REF_NAME)
    if storage.encodes_names():
        name = _ENCODED.sub(lambda match: b"%%%02X" % match[0][0], data).decode()
    return f"{REFS}/{kind.value}.{name}/{file}"


def tombstone_key(storage: Storage, tag: str) -> str:
    """Return the key of the file that marks a tag as deleted."""
    return ref_key(storage, RefKind.TAG, tag, _DELETED)


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
        raise FormatError(f'{key}: the content must be {{"snapshot": "<id>"}}, got {data[:80]!r}') from error


@dataclass(frozen=True, slots=True)
class Ref:
    """The file of a ref, with its version."""

    snapshot: bytes
    version: Version


def read_ref(storage: Storage, kind: RefKind, name: str) -> Ref | None:
    """Return a ref, or None if there is no file. It ignores tombstones, and returns deleted tags too."""
    key = ref_key(storage, kind, name)
    with skip_missing():
        data, version = storage.get_versioned(key)
        return Ref(decode_ref(bytes(data), key), version)
    return None


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


class V1Refs(Mapping[str, bytes]):
    """The snapshot ids of refs by name. Each ref is read once, when it is needed.

    A file system may not distinguish upper and lower case, and then opens the file of another name. There,
    the names in the listing decide.
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
            raise RefNotFoundError(f"there is no branch or tag `{name}`")
        return ref

    @cached_property
    def _folds_case(self) -> bool:
        return self._storage.is_local and self._storage.head(_UPPER_MAIN) is not None

    def other_case(self, name: str) -> str | None:
        """Return another name whose file this name would have on this file system."""
        folded = name.casefold()
        names = (each for each in self if each != name and each.casefold() == folded)
        return next(names, None) if self._folds_case else None

    def _read(self, name: str) -> Ref | None:
        if self._folds_case and name not in [*self]:
            return None
        ref, is_tag = read_ref(self._storage, self._kind, name), self._kind is RefKind.TAG
        is_deleted = ref and is_tag and self._storage.head(tombstone_key(self._storage, name))
        return None if is_deleted else ref

    def __getitem__(self, name: str) -> bytes:
        return self.ref(name).snapshot

    def __iter__(self) -> Iterator[str]:
        if self._names is None:
            self._names = sorted(list_refs(self._storage)[0][self._kind])
        return iter(self._names)

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
    pairs = [(kind, name) for kind in RefKind for name in sorted(names[kind])]
    pairs += [(RefKind.TAG, name) for name in sorted(deleted)]
    refs = map_bounded(Purpose.CATALOG_READS, lambda each: read_ref(storage, *each), pairs)
    out = AllRefs({}, {}, dict.fromkeys(deleted))
    for (kind, name), ref in zip(pairs, refs, strict=True):
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


#: A walk makes this number of steps before it looks ahead.
_STEPS: Final = 8
#: The number of threads that read snapshots.
_READERS: Final = 32
#: The largest number of files that are fetched at once.
_AHEAD: Final = 4096


def listed_snapshots(storage: Storage) -> list[bytes]:
    """Return the ids of all snapshots that have a file, oldest first."""
    listed = sorted(storage.list(SNAPSHOTS), key=lambda info: info.modified)
    names = (info.key.removeprefix(f"{SNAPSHOTS}/") for info in listed)
    return [id_from_text(name) for name in names if is_id_text(name)]


#: The snapshot in each file, or the error of its read.
SnapshotResults = dict[bytes, SnapshotEntry | IcechunkError]


def read_all_snapshots(storage: Storage, readers: int = _READERS) -> SnapshotResults:
    """Return all snapshots that have a file, also those without a ref. Threads read them in parallel."""

    def read(id_: bytes) -> SnapshotEntry | IcechunkError:
        try:
            return SNAPSHOT_ENTRY.read(storage, id_)
        except IcechunkError as error:
            return error

    ids = listed_snapshots(storage)
    return dict(zip(ids, map_bounded(Purpose.CATALOG_READS, read, ids, readers), strict=True))


def reached_snapshots(
    storage: Storage, results: SnapshotResults, tips: Iterable[bytes]
) -> dict[bytes, SnapshotEntry]:
    """Return the tips and all their ancestors."""
    out: dict[bytes, SnapshotEntry] = {}
    for tip in tips:
        id_: bytes | None = tip
        while id_ is not None and id_ not in out:
            entry = results.get(id_) or SNAPSHOT_ENTRY.read(storage, id_)
            if isinstance(entry, IcechunkError):
                raise entry
            out[id_] = entry
            id_ = entry.parent
    return out


class SnapshotsV1:
    """The snapshots of spec version 1, as ``format.snapshot.Snapshots``. Threads may share it.

    A walk raises ``SnapshotNotFoundError`` if an ancestor has no file.
    """

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._lock = RLock()
        self._rows: dict[bytes, int] = {}
        self._entries: list[SnapshotEntry] = []
        self._ahead: list[bytes] | None = None
        self._batch = 2 * _STEPS

    def __len__(self) -> int:
        """Return the number of snapshots that were found until now."""
        return len(self._entries)

    # Single snapshots

    def find_snapshot(self, id_: bytes) -> int:
        """Return the row of a snapshot, or -1 if it has no file. Reads the file if it is not cached."""
        row = self._rows.get(id_, -1)
        if row < 0:
            with skip_missing():
                read = self._assets.snapshot(id_)
                row = self._add(
                    SnapshotEntry(id_, read.parent_id, read.flushed_at, read.message, read.metadata)
                )
        return row

    def find_snapshots(self, ids: U8) -> I64:
        """Return the rows of snapshots, -1 for a snapshot without a file."""
        return np.fromiter(map(self.find_snapshot, id_list(ids)), np.int64, len(ids))

    def between(self, first: bytes, last: bytes) -> U8:
        """Return the ids between two ids, of all snapshots that have a file. This needs one listing."""
        names = [info.key.removeprefix(f"{SNAPSHOTS}/") for info in self._assets.storage.list(SNAPSHOTS)]
        ids, _ = ids_from_text(names)
        keys = id_keys(ids)
        low, high = np.frombuffer(first + last, keys.dtype)
        matches: U8 = ids[(keys >= low) & (keys <= high)]
        return matches

    def _add(self, entry: SnapshotEntry) -> int:
        with self._lock:
            row = self._rows.setdefault(entry.id, len(self._entries))
            if row == len(self._entries):
                self._entries.append(entry)
            return row

    def entry(self, row: int) -> SnapshotEntry:
        """Return the snapshot in a row."""
        return self._entries[row]

    def entries(self, rows: I64) -> Iterable[SnapshotEntry]:
        """Return the snapshots in some rows."""
        return map(self._entries.__getitem__, rows.tolist())

    def messages(self, rows: I64) -> list[str]:
        """Return the messages of the snapshots in some rows."""
        return [entry.message for entry in self.entries(rows)]

    def mentioning(self, rows: I64, name: str, text: str = "") -> I64:
        """Return the rows whose metadata have an item ``name``. ``text`` is ignored."""
        return rows[np.fromiter((name in entry.metadata for entry in self.entries(rows)), bool, len(rows))]

    def id_of(self, row: int) -> bytes:
        """Return the id of the snapshot in a row."""
        return self._entries[row].id

    # All snapshots that were found

    def ids(self) -> U8:
        """Return the ids of all rows, shape (n, 12)."""
        return id_matrix([entry.id for entry in self._entries])

    def flushed_at(self) -> NDArray[np.uint64]:
        """Return the commit times of all rows, in microseconds since 1970."""
        return np.array([entry.flushed_at for entry in self._entries], np.uint64)

    def parents(self) -> NDArray[np.int32]:
        """Return the rows of the parents, -1 for a root. This walks to the roots of all rows."""
        row = 0
        while row < len(self._entries):
            entry = self._entries[row]
            if entry.parent is not None:
                self._step_from(row, entry.parent, ahead=True)
            row += 1
        rows = self._rows
        return np.array(
            [-1 if entry.parent is None else rows[entry.parent] for entry in self._entries], np.int32
        )

    # Walks

    def parts(self, row: int) -> Iterator[I64]:
        """Yield the rows from this snapshot to the root, in parts."""
        if row < 0:
            raise SnapshotNotFoundError(
                "the snapshot has no history: it was expired or dropped. Start again from a branch or tag"
            )
        rows: set[int] = set()
        part: list[int] = []
        size = _STEPS
        while row not in rows:
            rows.add(row)
            part.append(row)
            parent = self._entries[row].parent
            if parent is None:
                yield np.array(part, np.int64)
                return
            if len(part) == size:
                yield np.array(part, np.int64)
                part, size = [], 2 * size
            row = self._step_from(row, parent, ahead=len(rows) >= _STEPS)
        raise FormatError(f"the ancestors of snapshot {id_to_text(self.id_of(row))} form a cycle")

    def chain(self, row: int) -> I64:
        """Return the rows from this snapshot to the root."""
        return np.concatenate(list(self.parts(row)))

    def _step_from(self, row: int, parent: bytes, *, ahead: bool) -> int:
        """Call ``_step`` for the parent of a row, or for the parent that an expiration has given it."""
        try:
            return self._step(parent, ahead=ahead)
        except StorageError as error:
            if error.kind != ErrorKind.OBJECT_NOT_FOUND:
                raise
            entry = self._read_if_exists(self.id_of(row))
            now = None if entry is None else entry.parent
            if now is None or now == parent:
                raise SnapshotNotFoundError(
                    f"snapshot `{id_to_text(parent)}`, the parent of `{id_to_text(self.id_of(row))}`, has no "
                    "file: both were expired and collected, or the file is lost. Start again from a branch "
                    "or tag"
                ) from error
            self.reparent(self.id_of(row), now)
            return self._step(now, ahead=ahead)

    def _step(self, id_: bytes, *, ahead: bool = True) -> int:
        row = self._rows.get(id_)
        if row is not None:
            return row
        row = self._add(SNAPSHOT_ENTRY.read(self._assets.storage, id_))
        ids: list[bytes] = []
        if ahead:  # fetch the next files in the order of time
            with self._lock:
                if self._ahead is None:
                    self._ahead = listed_snapshots(self._assets.storage)
                while self._ahead and len(ids) < self._batch:
                    if (other := self._ahead.pop()) not in self._rows:
                        ids.append(other)
                self._batch = min(2 * self._batch, _AHEAD)
        for entry in map_bounded(Purpose.CATALOG_READS, self._read_if_exists, ids, _READERS):
            if entry is not None:
                self._add(entry)
        return row

    def _read_if_exists(self, id_: bytes) -> SnapshotEntry | None:
        with skip_missing():  # collected since the listing
            return SNAPSHOT_ENTRY.read(self._assets.storage, id_)
        return None

    # Changes

    def reparent(self, id_: bytes, parent: bytes) -> None:
        """Change the parent of a snapshot, after its file was written again."""
        with self._lock:
            row = self.find_snapshot(id_)
            self._entries[row] = replace(self._entries[row], parent=parent)

    def added(self, entry: SnapshotEntry) -> SnapshotsV1:
        """Return this object, because a new snapshot is read from its file."""
        return self

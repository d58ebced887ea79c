"""Upgrades of repositories from spec version 1 to 2, and the adoption of Zarr stores as versions.

No chunk changes. The steps of an upgrade, which also leaves snapshots, manifests and logs as they are:

1. Read the refs, the configuration and all snapshot files, and build the repo info with a reconstructed log.
2. Create ``repo``, if absent, with the status read-only. From now on all readers see version 2.
3. Read the refs again. If a writer has changed them, build the repo info again and replace the file.
4. Set the status to online.
5. Delete the files of version 1. ``main`` is the first: without it, the other files do not make a repository.

Another call completes an interrupted one. A Frazil writer of version 1 looks for ``repo`` after its write
(``catalog_v1``). Writers of the reference do not, so no process may write during the upgrade.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import checked
from frazil.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    OutcomeUnknownError,
    RefNotFoundError,
    SessionStateError,
    StorageError,
)
from frazil.format.ids import CONFIG, REFS, REPO, id_to_text
from frazil.format.repo_info import (
    Availability,
    OpsEntry,
    OpsLog,
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    Status,
    UpdateKind,
    decode_repo_info,
    encode_repo_info,
)
from frazil.handle.repository import Repository
from frazil.repository.catalog.catalog_v1 import V1_MAIN, read_config_v1
from frazil.repository.catalog.files_v1 import AllRefs, reached_snapshots, read_all_refs, read_all_snapshots
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.clock import now_us
from frazil.repository.session.session import Session
from frazil.repository.settings.config_document import to_document
from frazil.storage.base import Condition, IfAbsent, IfVersion, ObjectInfo, Storage, Stored
from frazil.storage.checks import skip_missing
from frazil.threads import Purpose, map_bounded

#: How many microseconds after its snapshot a ref counts as created, or as deleted.
_CREATED, _DELETED = 1_000, 2_000


def history_of(snapshots: Mapping[bytes, SnapshotEntry], root: bytes, refs: AllRefs) -> list[OpsEntry]:
    """Return operations that can have led to these refs, oldest first, all at different times.

    A snapshot counts as a commit to the first branch that contains it, a ref as created one millisecond after
    its snapshot, and a tag as deleted one millisecond later. A lost snapshot counts as the first one.
    """
    events: list[OpsEntry] = [OpsEntry(UpdateKind.REPO_INITIALIZED, snapshots[root].flushed_at)]
    committed = {root}
    others = sorted(set(refs.branches) - {MAIN})
    for name in (MAIN, *others):
        id_: bytes | None = refs.branches[name]
        while id_ is not None and id_ not in committed:
            committed.add(id_)
            time = snapshots[id_].flushed_at
            events.append(OpsEntry(UpdateKind.NEW_COMMIT, time, name=name, new_snapshot=id_))
            id_ = snapshots[id_].parent
    created: list[tuple[bytes | None, OpsEntry]] = []
    branches = {name: refs.branches[name] for name in others}
    for kind, made in (
        (UpdateKind.BRANCH_CREATED, branches),
        (UpdateKind.TAG_CREATED, refs.tags),
        (UpdateKind.TAG_CREATED, refs.deleted_tags),
    ):
        created += [(made[name], OpsEntry(kind, _CREATED, name=name)) for name in sorted(made)]
    deleted = [
        (at, OpsEntry(UpdateKind.TAG_DELETED, _DELETED, name=name, previous_snapshot=at or root))
        for name, at in sorted(refs.deleted_tags.items())
    ]
    for group in (created, deleted):
        count: dict[bytes, int] = {}
        for at, entry in group:
            where = at if at in snapshots else root
            assert where is not None
            number = count.get(where, 0)
            count[where] = number + 1
            time = snapshots[where].flushed_at + entry.updated_at + number
            events.append(replace(entry, updated_at=time))
    events.sort(key=lambda entry: entry.updated_at)
    # Each at least one microsecond after the previous one.
    times = accumulate((entry.updated_at for entry in events), lambda last, time: max(time, last + 1))
    return [replace(entry, updated_at=time) for entry, time in zip(events, times, strict=True)]


_PREFETCH: Final = 64
_TRIES: Final = 8
#: The reason of the status until the refs of version 1 are read a second time.
_INCOMPLETE: Final = "its upgrade to spec version 2 is not complete. Call upgrade_icechunk_repository again"


@checked
def upgrade_icechunk_repository(
    repo: Repository,
    *,
    dry_run: bool,
    delete_unused_v1_files: bool = True,
    prefetch_concurrency: int | None = None,
) -> Repository:
    """Upgrade a repository from spec version 1 to 2.

    No other process should write to the repository at the same time. An interrupted upgrade leaves a
    repository that can be read, but not changed. Another call completes it. The old handle, and other
    handles of version 1, raise errors after the upgrade.

    Args:
        repo: A handle on the repository.
        dry_run: Whether to do everything except writing and deleting.
        delete_unused_v1_files: Whether to delete the refs and the configuration file of spec version 1.
        prefetch_concurrency: How many snapshot files to read at once. Default: 64.

    Returns:
        A handle on the upgraded repository. With ``dry_run``, another handle on the unchanged repository.

    Raises:
        SessionStateError: ``invalid-repository-migration`` if the repository has spec version 2, and no files
            are left to delete.
        ConflictError: ``branch-update-conflict`` if somebody committed to version 1 after others wrote to the
            upgraded repository. ``update-attempts-exhausted`` if the refs change in each of 8 attempts.
        RefNotFoundError: ``ref-not-found`` if the branch ``main`` does not exist.
        InvalidInputError: ``invalid-argument`` if ``prefetch_concurrency`` is less than 1.

    Examples:
        >>> repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=1)
        >>> upgraded = frazil.upgrade_icechunk_repository(repo, dry_run=False)
        >>> upgraded.spec_version, [update.kind for update in upgraded.ops_log()][0]
        (SpecVersion.v2 (current), frazil.ops.UpdateType.RepoMigrated(from_version=1, to_version=2))
    """
    if prefetch_concurrency is not None and prefetch_concurrency < 1:
        raise InvalidInputError(f"prefetch_concurrency must be at least 1, got {prefetch_concurrency}")
    storage = repo.storage
    is_version_2 = repo._context.spec_version == 2
    existing = _existing_repo_info(storage) if is_version_2 else None
    is_incomplete = existing is not None and existing[0].status.reason == _INCOMPLETE
    if is_version_2 and not is_incomplete and not (delete_unused_v1_files and _files_of_version_1(storage)):
        raise SessionStateError(
            "the repository already has spec version 2", ErrorKind.INVALID_REPOSITORY_MIGRATION
        )
    level = repo._context.settings.compression_level
    readers = prefetch_concurrency or _PREFETCH
    if dry_run:
        if not is_version_2:
            encode_repo_info(_build_repo_info(storage, readers, *_read_state(storage)), level=level)
        return repo.reopen()
    _write_repo_info(storage, level, readers)
    if delete_unused_v1_files:
        storage.delete([V1_MAIN])
        storage.delete(_files_of_version_1(storage))
    return repo._at_version(2)


def _files_of_version_1(storage: Storage) -> list[str]:
    """Return the keys of the refs and the configuration file of spec version 1."""
    keys = [info.key for info in storage.list(REFS)]
    return keys if storage.head(CONFIG) is None else [*keys, CONFIG]


# Reading


def _read_state(storage: Storage) -> tuple[AllRefs, dict[str, Any] | None]:
    """Return the refs and the configuration of a repository of spec version 1."""
    refs, config = read_all_refs(storage), read_config_v1(storage)[0]
    return refs, None if config is None else to_document(config)


# Building


def _build_repo_info(
    storage: Storage, readers: int, refs: AllRefs, config: dict[str, Any] | None
) -> RepoInfo:
    if MAIN not in refs.branches:
        raise RefNotFoundError(
            f"{storage.label()} has no branch `{MAIN}`, which every repository must have. Create it with a "
            "program for spec version 1, then upgrade"
        )
    snapshots = reached_snapshots(storage, read_all_snapshots(storage, readers), refs.tips)
    root = refs.branches[MAIN]
    while (parent := snapshots[root].parent) is not None:
        root = parent
    events = history_of(snapshots, root, refs)
    newest = events[-1].updated_at if events else 0
    migrated = OpsEntry(UpdateKind.REPO_MIGRATED, max(now_us(), newest + 1), versions=(1, 2))
    return RepoInfo(
        spec_version=2,
        branches=refs.branches,
        tags=refs.tags,
        deleted_tags=frozenset(refs.deleted_tags),
        snapshots=SnapshotTable.of(list(snapshots.values())),
        status=Status(Availability.ONLINE, snapshots[root].flushed_at),
        metadata={},
        ops=OpsLog.of([migrated, *reversed(events)]),
        config=config,
    )


# Writing


def _write_repo_info(storage: Storage, level: int, readers: int) -> None:
    """Do steps 1 to 4. An earlier call may have done some of them."""
    failure: StorageError | None = None
    for _ in range(_TRIES):
        next_step = _next_step(storage, readers)
        if next_step is None:
            storage.flush_folders([""])  # another call wrote `repo`, and may have ended before its flush
            return
        info, condition = next_step
        try:
            answer = storage.put(REPO, encode_repo_info(info, level=level), condition)
        except OutcomeUnknownError:
            raise
        except StorageError as error:
            # The next attempt reads whether the write took effect.
            failure = error
            continue
        failure = None
        if isinstance(answer, Stored) and info.status.availability is Availability.ONLINE:
            return
    if failure is not None:
        raise failure
    raise ConflictError(
        message=f"other writers changed the refs in all of {_TRIES} attempts to upgrade the repository. "
        "Stop the writers, and upgrade it again",
        kind=ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
    )


def _next_step(storage: Storage, readers: int) -> tuple[RepoInfo, Condition] | None:
    """Return the repo info to write next, and the condition; None if no step is left."""
    existing, state = _existing_repo_info(storage), None
    if existing is not None:
        info, condition = existing
        is_incomplete = info.status.reason == _INCOMPLETE
        is_current = storage.head(V1_MAIN) is None
        if not is_current:
            state = refs, config = _read_state(storage)
            upgraded = (dict(info.branches), dict(info.tags), set(info.deleted_tags), info.config)
            is_current = upgraded == (refs.branches, refs.tags, set(refs.deleted_tags), config)
        if is_current:
            return (_with_status(info, Availability.ONLINE), condition) if is_incomplete else None
        if info.ops.entry(0).kind is not UpdateKind.REPO_MIGRATED:
            # Others have written to the upgraded repository, and the refs of version 1 are out of date.
            for name, id_ in (*refs.branches.items(), *refs.tags.items()):
                if info.snapshots.find_snapshot(id_) < 0:
                    raise ConflictError(
                        message=f"`{name}` of spec version 1 is on snapshot {id_to_text(id_)}, which the "
                        "upgraded repository does not have. Nothing was deleted. Copy `refs/` elsewhere to "
                        "inspect the snapshot there, and delete `refs/` here when it is not needed",
                        kind=ErrorKind.BRANCH_UPDATE_CONFLICT,
                    )
            return None
    built = _build_repo_info(storage, readers, *(state or _read_state(storage)))
    unfinished = _with_status(built, Availability.READ_ONLY, _INCOMPLETE)
    return unfinished, IfAbsent() if existing is None else existing[1]


def _with_status(info: RepoInfo, availability: Availability, reason: str | None = None) -> RepoInfo:
    return replace(info, status=replace(info.status, availability=availability, reason=reason))


def _existing_repo_info(storage: Storage) -> tuple[RepoInfo, IfVersion] | None:
    """Return the repo info that an earlier call, or another process, has written; None without one."""
    with skip_missing():
        data, version = storage.get_versioned(REPO)
        return decode_repo_info(data, REPO), IfVersion(version)
    return None


# Adoption

#: Every adopted chunk gets a virtual reference with the time of the newest object: younger ones are refused.
_DOCUMENT: Final = "zarr.json"
_OLDER: Final = (".zarray", ".zgroup")
_SEPARATORS: Final = {"default": "/", "v2": "."}


@dataclass(frozen=True, slots=True)
class Adoption:
    """What was adopted: the number of groups, arrays and chunks, and the bytes of the chunks."""

    groups: int
    arrays: int
    chunks: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class _Listing:
    """The objects of a store, by key in ascending order, and the newest of their times."""

    keys: list[str]
    objects: Mapping[str, ObjectInfo]
    newest: datetime | None

    @staticmethod
    def of(storage: Storage) -> _Listing:
        """List a storage."""
        objects = {each.key: each for each in storage.list("")}
        newest = max((each.modified for each in objects.values()), default=None)
        if newest is not None and newest.microsecond:  # references have whole seconds
            newest = newest.replace(microsecond=0) + timedelta(seconds=1)
        return _Listing(sorted(objects), objects, newest)

    def below(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix."""
        return self.keys[bisect_left(self.keys, prefix) : bisect_left(self.keys, prefix + "\U0010ffff")]


@dataclass(frozen=True, slots=True, eq=False)
class ZarrStore:
    """The objects of a Zarr store, and its documents by the paths of their nodes."""

    listing: _Listing
    documents: dict[str, dict[str, Any]]


def read_zarr_store(source: Storage) -> ZarrStore:
    """List a Zarr store of version 3, and read its documents."""
    listing = _Listing.of(source)
    keys = [key for key in listing.keys if key.rpartition("/")[2] == _DOCUMENT]
    if not keys:
        older = next((key for key in listing.keys if key.rpartition("/")[2] in _OLDER), None)
        text = "no zarr.json" if older is None else f"{older} of version 2, which an ingest reads"
        raise InvalidInputError(
            f"the store to adopt must be a Zarr store of version 3, got {text} in {source.label()}"
        )
    stored = map_bounded(Purpose.CATALOG_READS, lambda key: bytes(source.get(key)), keys)
    pairs = sorted(("/" + key.rpartition("/")[0], raw) for key, raw in zip(keys, stored, strict=True))
    return ZarrStore(listing, {path: json.loads(raw) for path, raw in pairs})


def repository_document(document: Mapping[str, Any]) -> bytes:
    """Return the document of a node of a Zarr store as a repository has it.

    Chunks of a repository have default keys.
    """
    own = {name: value for name, value in document.items() if name != "consolidated_metadata"}
    if document["node_type"] == "array":
        own["chunk_key_encoding"] = {"name": "default"}
    return json.dumps(own).encode()


def adopt(session: Session, store: ZarrStore, location: str) -> Adoption:
    """Create the nodes of a Zarr store in a session, with virtual references to its chunks."""
    chunks = size = arrays = 0
    for path, document in store.documents.items():
        is_array = document["node_type"] == "array"
        session.workspace.set_node(path, repository_document(document))
        if is_array:
            lengths = _set_references(session, path, document, store.listing, location)
            arrays, chunks, size = arrays + 1, chunks + len(lengths), size + int(lengths.sum())
    return Adoption(len(store.documents) - arrays, arrays, chunks, size)


def _set_references(
    session: Session, path: str, document: Mapping[str, Any], listing: _Listing, location: str
) -> NDArray[np.uint64]:
    """Set a reference for each chunk object of an array, and return their sizes."""
    grid = document["chunk_grid"]
    if grid["name"] != "regular":
        raise InvalidInputError(
            f"an adopted array must have a regular chunk grid, got {grid['name']!r} of `{path}`",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    steps = grid["configuration"]["chunk_shape"]
    shape = tuple(-(-size // step) for size, step in zip(document["shape"], steps, strict=True))
    keys, index = chunk_objects(path, document, listing, len(shape))
    inside = (index < np.array(shape, np.int64)).all(axis=1)  # an array may have shrunk
    lengths = np.array([listing.objects[key].size for key in keys], np.uint64)
    rows = np.flatnonzero(inside & (lengths > 0))
    if not len(rows):
        return lengths[rows]
    first = index[rows].min(axis=0)
    box = tuple((index[rows].max(axis=0) - first + 1).tolist())
    at = np.ravel_multi_index(tuple((index[rows] - first).T), box) if box else np.zeros(1, np.int64)
    base = location.rstrip("/") + "/"
    urls = [base + (quote(key) if base.startswith("file:") else key) for key in map(keys.__getitem__, rows)]
    cells = np.full(math.prod(box), "", object)
    cells[at] = urls
    sizes = np.ones(len(cells), np.uint64)
    sizes[at] = lengths[rows]
    session.store.set_virtual_refs_arr(
        path,
        box,
        cells.tolist(),
        np.zeros(len(cells), np.uint64),
        sizes,
        validate_containers=False,
        arr_offset=tuple(first.tolist()),
        checksum=listing.newest,
    )
    return lengths[rows]


def chunk_objects(
    path: str, document: Mapping[str, Any], listing: _Listing, ndim: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the keys of the chunks of an array, and their indices, int64 of shape (n, ndim)."""
    encoding = document.get("chunk_key_encoding", {"name": "default"})
    name = encoding["name"]
    if name not in _SEPARATORS:
        raise InvalidInputError(
            f"an adopted array must have the chunk keys `default` or `v2`, got {name!r} of `{path}`",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    separator = encoding.get("configuration", {}).get("separator", _SEPARATORS[name])
    start = f"{path.strip('/')}/".lstrip("/")
    if not ndim:
        key = start + ("c" if name == "default" else "0")
        keys = [key] if key in listing.objects else []
        return keys, np.zeros((len(keys), 0), np.int64)
    start += f"c{separator}" if name == "default" else ""
    number = "(?:0|[1-9][0-9]*)"
    pattern = re.compile(re.escape(start) + re.escape(separator).join([number] * ndim))
    keys = list(filter(pattern.fullmatch, listing.below(start)))
    texts = separator.join(key[len(start) :] for key in keys).split(separator) if keys else []
    return keys, np.array(texts, np.int64).reshape(len(keys), ndim)

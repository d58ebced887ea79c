"""Upgrading a repository from spec version 1 to 2. Snapshots, manifests, logs and chunks do not change.

1. Read the refs, the configuration and all snapshot files, and build the repo info with a reconstructed log.
2. Create ``repo``, if absent, with the status read-only. From now on all readers see version 2.
3. Read the refs again. If a writer has changed them, build the repo info again and replace the file.
4. Set the status to online.
5. Delete the files of version 1. ``main`` is the first: without it, the other files do not make a repository.

Another call completes an interrupted one. A Frazil writer of version 1 looks for ``repo`` after its write
(``catalog_v1``). Writers of the reference do not, so no process may write during the upgrade.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, Final

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
from frazil.repository.settings.config_document import to_document
from frazil.storage.base import Condition, IfAbsent, IfVersion, Storage, Stored
from frazil.storage.checks import skip_missing

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

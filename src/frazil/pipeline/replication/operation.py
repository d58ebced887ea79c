"""Copies and clones of repositories in another storage.

Objects of a repository never change, except the repo info, which refers to all others. So a copy consists of
the repo info as it was at the start, and of other objects that existed then, which tasks copy in any order.
The repo info is written last: until then the target is not a repository.

A lease keeps garbage collections from deleting objects during the copy. Other implementations ignore leases.
So before the repo info is written, all objects that it needs are checked in the target: metadata files are
read, chunk files have to be long enough. Damaged objects are copied again, each object once.

A second call updates a copy, and continues a copy that was interrupted. It copies objects that the target
lacks or has with another size. Objects of the same size are compared, unless an earlier copy has completed
since they were stored: then a mark in the target (`checked_mark`) tells that they were compared. A chunk file
with checksums is compared with these, and the source is not read. A chunk file of the source that differs
from its own checksums is not copied, and the copy is not published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.display import counted
from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.ids import id_list
from frazil.format.keys import CHUNKS, MANIFESTS, REPO, SNAPSHOTS, TRANSACTIONS
from frazil.format.repo_info import RepoInfo, encode_repo_info
from frazil.format.snapshot import ManifestFiles
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.maintenance_tasks import chunk_file_ids, pieces, pieces_run, walk_manifests
from frazil.jobs.progress import Progress
from frazil.jobs.versions import takes_versions
from frazil.maintenance.file_batches import manifest_batches, snapshot_batches
from frazil.maintenance.listing import among, distinct
from frazil.maintenance.verification import plan
from frazil.maintenance.walk_columns import each_once
from frazil.pipeline.replication.checked_mark import checked_before, put_checked_mark
from frazil.pipeline.replication.copy_report import Copied
from frazil.pipeline.replication.flat_snapshots import FlatSnapshot, flat_snapshots
from frazil.pipeline.replication.object_copies import (
    Objects,
    all_objects,
    copy_by_tasks,
    difference,
    objects_with_keys,
)
from frazil.pipeline.replication.part import (
    RepositoryPart,
    info_of_newest,
    info_with_history,
    transaction_ids,
)
from frazil.pipeline.replication.target_state import repo_info_condition, require_empty, with_origin
from frazil.remedies import call
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.clock import now_us
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import IfAbsent, IfVersion, Refused, Storage

#: The duration of a lease, and the time after which it is renewed, in microseconds.
_LEASE: Final = 24 * 3600 * 1_000_000
_RENEWED: Final = 3600 * 1_000_000
#: The level of compression of new snapshots. It is fixed, so that a later copy writes the same bytes.
_LEVEL: Final = 3


@takes_versions
def copy_repository(
    source: Repository,
    target: Storage,
    *,
    part: RepositoryPart | None = None,
    compare: bool = False,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> Copied:
    """Copy a repository, or a part of it, to a storage that is empty or holds an earlier copy.

    The copy has the branches, tags and history that the source has at the start of the call, even if other
    writers commit or collect garbage during the copy. Snapshots have the same ids, except in a part with
    ``newest_only``. Virtual chunks still refer to files elsewhere, see `materialize`. A copy of the whole
    repository has its garbage too: collect it before.

    A lease in the source protects its files from garbage collection during the copy. A copy that was killed
    leaves the lease, which ends after a day. A read-only source gets no lease.

    The call copies objects that the target lacks or has with another size. It compares the bytes of objects
    that were stored in the target since the last complete copy, and copies them again if they differ.
    Metadata files are read in the target, and copied again if they are damaged.

    Args:
        source: The repository.
        target: The storage of the copy.
        part: The branches, tags and arrays of the copy. Default: the whole repository as it is.
        compare: Whether the bytes of all objects that both storages have are compared, and not only of those
            that were stored in the target since the last complete copy.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        progress: A `Progress`, which shows how many objects and bytes are copied. The default, None, shows
            nothing.
        dry_run: Whether to copy nothing, and to return the numbers of objects and bytes that the target lacks
            or has with another size.

    Returns:
        The number of objects and bytes that were copied, as `Copied`.

    Raises:
        FormatError: The source has spec version 1 (``unsupported-operation-for-version``; upgrade it), or has
            missing or damaged files, which ``Repository.upkeep.verify`` lists.
        ConflictError: The target has commits or tags that the source does not have, is another repository, or
            changes during the call (``repo-info-updated``). The repo info of the target stays unchanged then.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import copy_repository
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> backup = frazil.in_memory_storage()
        >>> copied = copy_repository(repo, backup, engine="inline")
        >>> frazil.Repository.open(backup).lookup_branch("main") == repo.lookup_branch("main")
        True
    """
    _require_version_2(source)
    part = part or RepositoryPart()
    if dry_run:
        copy = _RepositoryCopy(source, target, engine_of(engine), lambda: None, None)
        return copy.look(part, is_clone=False)
    with _leased(source.storage, f"copy to {target.label()}") as renew:
        copy = _RepositoryCopy(source, target, engine_of(engine), renew, progress)
        return copy.run(part, is_clone=False, compare=compare)


@takes_versions
def clone_repository(
    source: Repository,
    target: Storage,
    *,
    part: RepositoryPart | None = None,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> Copied:
    """Make a new repository with the history of another one, whose origin it records.

    The clone is independent: it has its own ops log, and further commits. Its metadata have the entry
    ``frazil.origin``, with the label of the source's storage, the time, and the snapshot of each branch and
    tag. `copy_repository` makes copies that later calls bring up to date.

    A second call continues a clone that was interrupted.

    Args:
        source: The repository.
        target: The storage of the clone. It must not contain a repository.
        part: The branches, tags and arrays of the clone. Default: all, with the whole history.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        progress: A `Progress`, which shows how many objects and bytes are copied. The default, None, shows
            nothing.
        dry_run: Whether to copy nothing, and to return the numbers of objects and bytes that the target lacks
            or has with another size.

    Returns:
        The number of objects and bytes that were copied, as `Copied`.

    Raises:
        FormatError: The source has spec version 1 (``unsupported-operation-for-version``; upgrade it), or has
            missing or damaged files.
        InvalidInputError: The target contains a repository (``parent-directory-not-clean``).
        ConflictError: Another writer creates a repository in the target during the call
            (``repo-info-updated``).

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import RepositoryPart, clone_repository
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> storage = frazil.in_memory_storage()
        >>> part = RepositoryPart(branches=("main",), newest_only=True)
        >>> copied = clone_repository(repo, storage, part=part, engine="inline")
        >>> sorted(frazil.Repository.open(storage).get_metadata()["frazil.origin"])
        ['at', 'refs', 'storage']
    """
    _require_version_2(source)
    require_empty(target)
    part = part or RepositoryPart()
    if dry_run:
        copy = _RepositoryCopy(source, target, engine_of(engine), lambda: None, None)
        return copy.look(part, is_clone=True)
    with _leased(source.storage, f"copy to {target.label()}") as renew:
        copy = _RepositoryCopy(source, target, engine_of(engine), renew, progress)
        return copy.run(part, is_clone=True, compare=False)


def _require_version_2(source: Repository) -> None:
    if source.spec_version < 2:
        raise FormatError(
            "source must be a repository of spec version 2, got version 1. Upgrade it first",
            ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """The repo info of the target, its bytes, the objects that it needs, and new files of its snapshots."""

    info: RepoInfo
    repo_object: bytes
    objects: Objects
    flat: tuple[FlatSnapshot, ...] = ()


@dataclass(slots=True)
class _RepositoryCopy:
    """One copy, with the number of objects and bytes so far. ``renew`` renews the lease in the source."""

    source: Repository
    target: Storage
    engine: Engine
    renew: Callable[[], None]
    progress: Progress | None
    objects: int = 0
    bytes: int = 0
    damaged: tuple[str, ...] = ()

    def look(self, part: RepositoryPart, *, is_clone: bool) -> Copied:
        """Count the objects that the target lacks or has with another size."""
        copy, _ = self._plan(part, is_clone=is_clone)
        absent = difference(copy.objects, self.target, checked_before(self.target, part)).absent
        return Copied(len(absent), absent.total_bytes(), len(copy.objects) - len(absent))

    def run(self, part: RepositoryPart, *, is_clone: bool, compare: bool) -> Copied:
        """Copy the objects, check them in the target, and write the repo info."""
        target = self.target
        copy, condition = self._plan(part, is_clone=is_clone)
        since = 0 if compare else checked_before(target, part)
        changed = difference(copy.objects, target, since)
        self._copy(changed.absent, compare=False)
        self._copy(changed.doubtful, compare=True)
        self._require_undamaged()
        for flat in copy.flat:
            for key, data in flat.files(_LEVEL):
                target.put(key, data)
        self._repair_target(copy)
        self._publish(copy, condition)
        with suppress(StorageError):  # without the mark, the next copy compares more objects
            put_checked_mark(target, part)
        return Copied(self.objects, self.bytes, len(copy.objects) - self.objects)

    def _plan(self, part: RepositoryPart, *, is_clone: bool) -> tuple[_Plan, IfAbsent | IfVersion]:
        """Return the plan, and the condition for the write of the repo info."""
        origin = self.source.storage
        info, _, repo_object = read_repo_info(origin)
        condition = IfAbsent() if is_clone else repo_info_condition(info, self.target, part)
        if is_clone or not part.is_whole:
            return self._part(info, part, is_clone=is_clone), condition
        return _Plan(info, repo_object, all_objects(origin)), condition

    def _part(self, info: RepoInfo, part: RepositoryPart, *, is_clone: bool) -> _Plan:
        """Return the plan of a part, or of a clone."""
        context = context_of(self.source)
        flat: tuple[FlatSnapshot, ...] = ()
        if part.newest_only:
            flat = tuple(flat_snapshots(context, info, part))
            new_info = info_of_newest(info, part, {each.source: each.entry for each in flat}, now_us())
            files = each_once([ManifestFiles.empty(), *(each.snapshot.manifests for each in flat)])
        else:
            new_info = info_with_history(info, part, now_us())
            items: list[Any] = [(batch, []) for batch in snapshot_batches(id_list(new_info.table.ids()))]
            parts = pieces(context, self.engine, walk_manifests, items)
            files = each_once([ManifestFiles.empty(), *(part.files for part in parts)])
        if is_clone:
            new_info = with_origin(new_info, info, self.source.storage.label(), part)
        chunks = distinct(list(pieces(context, self.engine, chunk_file_ids, manifest_batches(files))))
        needed = {
            CHUNKS: chunks,
            MANIFESTS: files.ids,
            TRANSACTIONS: transaction_ids(new_info),
            SNAPSHOTS: new_info.table.ids(),
        }
        objects = all_objects(self.source.storage)
        chosen = tuple(each.select_files(among(each.ids, needed[each.folder])) for each in objects.files)
        return _Plan(new_info, encode_repo_info(new_info), Objects(chosen), flat)

    def _copy(self, objects: Objects, *, compare: bool) -> None:
        """Copy objects by tasks, and count them."""
        for outcome in copy_by_tasks(self.source.storage, self.target, objects, self.engine, compare=compare):
            self.objects, self.bytes = self.objects + outcome.objects, self.bytes + outcome.bytes
            self.damaged += outcome.damaged
            self.renew()
            if self.progress is not None:
                self.progress.advance(chunks=outcome.objects, bytes=outcome.bytes)

    def _require_undamaged(self) -> None:
        """Raise ``FormatError`` if chunk files of the source differ from their own checksums."""
        if self.damaged:
            raise FormatError(
                f"the source {self.source.storage.label()} must have undamaged chunk files, got "
                f"{counted(len(self.damaged), 'file')} with bytes that differ from their checksums, such as "
                f"{self.damaged[0]}. The copy is not published"
            ).with_remedy("Run `{}`, and repair the source", call("verify"))

    def _repair_target(self, copy: _Plan) -> None:
        """Copy objects again that are missing or damaged in the target, each once.

        Damaged metadata hide damage of the files that they refer to, so several rounds may be needed. Raises
        ``FormatError`` if an object is still damaged after a second copy.
        """
        on_target = replace(context_of(self.source), storage=self.target)
        run = pieces_run(on_target, self.engine)
        repaired: set[str] = set()
        while findings := plan.stored_findings(on_target, copy.info, run):
            self.renew()
            keys = {each.key for each in findings} - repaired
            damaged = objects_with_keys(copy.objects, keys)
            if not len(damaged):
                raise FormatError(
                    f"The copy in {self.target.label()} is not complete, and is not published: {findings[0]} "
                    f"({len(findings)} findings). Check the source with `verify`, or copy again if garbage "
                    "was collected during the copy"
                )
            repaired |= keys
            self._copy(damaged, compare=True)

    def _publish(self, copy: _Plan, condition: IfAbsent | IfVersion) -> None:
        """Write the repo info, if nobody else has written it."""
        target = self.target
        is_refused = isinstance(target.put(REPO, copy.repo_object, condition), Refused)
        if is_refused and bytes(target.get(REPO)) != copy.repo_object:
            raise ConflictError(
                message=f"Another writer changed the repository in {target.label()} during the copy. "
                "Copy again",
                kind=ErrorKind.REPO_INFO_UPDATED,
            )


@contextmanager
def _leased(storage: Storage, name: str) -> Iterator[Callable[[], None]]:
    """Take a lease in a storage, and yield a function that renews the lease once an hour has passed."""
    renewed_at = now_us()
    lease: Lease | None = None
    if not storage.is_read_only:
        with suppress(StorageError):  # without a lease, the check in the target finds missing objects
            lease = Lease.take(storage, 0, renewed_at + _LEASE, purpose="copy", name=name)

    def renew() -> None:
        nonlocal renewed_at
        if lease is not None and now_us() > renewed_at + _RENEWED:
            renewed_at = now_us()
            Lease.take(storage, 0, renewed_at + _LEASE, lease.key, "copy", name=name)

    try:
        yield renew
    finally:
        if lease is not None:
            lease.give_back(storage)

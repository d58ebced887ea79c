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

The modification time of the mark is the information, and its content names the part that was copied. The
clock of the storage sets this time, as for all other objects. So an object that is older than the mark was
there when the copy was complete, and did not change since. Other implementations ignore the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from frazil.display import Shown, counted
from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.ids import CHUNKS, MANIFESTS, REPO, SNAPSHOTS, TRANSACTIONS, id_from_text, id_to_text
from frazil.format.repo_info import RepoInfo, encode_repo_info
from frazil.jobs.engine import Engine, EngineName, engine_of
from frazil.jobs.job import takes_versions
from frazil.jobs.progress import Progress, Summary, with_size
from frazil.maintenance.verification.plan import stored_findings
from frazil.pipeline.replication.object_copies import (
    Objects,
    all_objects,
    copy_by_tasks,
    difference,
    objects_with_keys,
)
from frazil.pipeline.replication.part import (
    SOURCE,
    FlatSnapshot,
    RepositoryPart,
    first_entry,
    flat_id,
    flat_snapshots,
    info_of_newest,
    info_with_history,
    refs_of,
    transaction_ids,
)
from frazil.remedies import call
from frazil.repository.catalog.ancestry import origin_of
from frazil.repository.catalog.collection_guard import Lease
from frazil.repository.catalog.repo_update import read_repo_info
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.repository.handle.opening import not_empty, require_prefix
from frazil.repository.handle.repository import Repository, context_of
from frazil.storage.base import IfAbsent, IfVersion, Refused, Storage
from frazil.survey.columns import among, distinct, each_once
from frazil.survey.survey import Survey


@dataclass(frozen=True, slots=True, repr=False)
class Copied(Summary):
    """The result of a copy, a clone or an export.

    Attributes:
        objects: The number of objects that were copied.
        bytes: Their size.
        existing: The number of objects that the target had already.
    """

    objects: int
    bytes: int
    existing: int

    shown_as: ClassVar[str] = "pipeline.Copied"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "copied", with_size(self.objects, "object", self.bytes)
        yield "existing", counted(self.existing, "object")


CHECKED: Final = "copies/checked"
#: Storages report modification times in seconds, in microseconds.
_ROUNDING: Final = 2_000_000


def put_checked_mark(storage: Storage, part: RepositoryPart) -> None:
    """Put the mark."""
    storage.put(CHECKED, _content(part))


def checked_before(storage: Storage, part: RepositoryPart) -> int:
    """Return the time before which all objects of a copy were compared with the source."""
    info = storage.head(CHECKED)
    if info is None or bytes(storage.get(CHECKED)) != _content(part):
        return 0
    return max(0, from_datetime(info.modified) - _ROUNDING)


def _content(part: RepositoryPart) -> bytes:
    return repr(part).encode(errors="replace")


#: The key in the metadata of a repository that is a clone.
ORIGIN: Final = "frazil.origin"


def repo_info_condition(info: RepoInfo, target: Storage, part: RepositoryPart) -> IfAbsent | IfVersion:
    """Return the condition for writing the repo info to the target."""
    if target.head(REPO) is None:
        require_prefix(target)
        return IfAbsent()
    earlier, version, _ = read_repo_info(target)
    if first_entry(earlier).flushed_at != first_entry(info).flushed_at:
        raise _foreign(target, "another repository, which was created at another time")
    own = [
        f"commits on its branch {name!r}, which the source does not have"
        for name, tip in earlier.branches.items()
        if not _is_copied(info, earlier, tip, part)
    ]
    tags = info.tags.keys() | info.deleted_tags
    own += [f"its tag {name!r}, which the source does not have" for name in earlier.tags if name not in tags]
    if own:
        raise _foreign(target, own[0])
    if ORIGIN in earlier.metadata and ORIGIN not in info.metadata:
        raise _foreign(target, "a clone, which has its own history")
    return IfVersion(version)


def _is_copied(info: RepoInfo, earlier: RepoInfo, tip: bytes, part: RepositoryPart) -> bool:
    """Return whether the tip of a branch of the target is a snapshot of the source, or was made of one."""
    if info.snapshots.find_snapshot(tip) >= 0:
        return True
    text = origin_of(earlier.snapshots.entry(earlier.snapshots.find_snapshot(tip))).get(SOURCE)
    return isinstance(text, str) and flat_id(id_from_text(text), part) == tip


def _foreign(target: Storage, has: str) -> ConflictError:
    return ConflictError(
        message=f"target must be empty or hold an earlier copy of the repository, got {target.label()} "
        f"with {has}. Copy to another storage",
        kind=ErrorKind.REPO_INFO_UPDATED,
    )


def require_empty(target: Storage) -> None:
    """Raise an error if a storage contains a repository, or is a bucket without a prefix."""
    require_prefix(target)
    if target.head(REPO) is not None:
        raise not_empty(target, REPO, is_repository=True)


def with_origin(info: RepoInfo, source: RepoInfo, label: str, part: RepositoryPart) -> RepoInfo:
    """Return the repo info of a clone with the origin in its metadata."""
    branches, tags = refs_of(source, part)
    refs = {
        "branches": {name: id_to_text(id_) for name, id_ in branches.items()},
        "tags": {name: id_to_text(id_) for name, id_ in tags.items()},
    }
    origin = {"storage": label, "at": to_datetime(now_us()).isoformat(), "refs": refs}
    return replace(info, metadata={**info.metadata, ORIGIN: origin})


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
        survey = Survey(context, self.engine, is_incremental=False)
        flat: tuple[FlatSnapshot, ...] = ()
        if part.newest_only:
            flat = tuple(flat_snapshots(context, info, part))
            new_info = info_of_newest(info, part, {each.source: each.entry for each in flat}, now_us())
            files = each_once([each.snapshot.manifests for each in flat])
        else:
            new_info = info_with_history(info, part, now_us())
            files = each_once([part.files for part in survey.read_versions(new_info.table.ids())])
        if is_clone:
            new_info = with_origin(new_info, info, self.source.storage.label(), part)
        chunks = distinct([uses.ids for _, uses in survey.file_uses(files)])
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
        repaired: set[str] = set()
        while findings := stored_findings(on_target, copy.info, self.engine):
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

"""Copies and clones of repositories in another storage.

Objects never change, except the repo info, which is written last, after all objects that it needs are checked
in the target. A lease keeps garbage collections from deleting objects meanwhile. A mark in the target tells
since when its objects are compared with the source. Objects are columns: ten million take a few hundred
megabytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Buffer, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, dataclass, replace
from itertools import compress, pairwise
from operator import add
from typing import ClassVar, Final

import numpy as np

from frazil.argument_docs import with_argument_docs
from frazil.display import Shown, counted
from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.chunk_trailer import check_file
from frazil.format.columns import I64, U8
from frazil.format.ids import (
    CHUNKS,
    MANIFESTS,
    OBJECT_ID_BYTES,
    OVERWRITTEN,
    REPO,
    SNAPSHOTS,
    STATISTICS,
    TRANSACTIONS,
    backup_key,
    id_from_text,
    id_keys,
    id_list,
    id_to_text,
    ids_from_text,
    ids_to_text,
)
from frazil.format.repo_info import RepoInfo, encode_repo_info
from frazil.format.snapshot import ManifestFiles
from frazil.handle.opening import not_empty, require_prefix
from frazil.handle.repository import Repository, context_of
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine, EngineName, engine_of, task_bytes
from frazil.jobs.job import takes_versions, without_folders
from frazil.jobs.progress import Progress, Summary, with_size
from frazil.jobs.task_failures import dumps
from frazil.maintenance.verification.plan import stored_findings
from frazil.pipeline.replication.part import (
    SOURCE,
    FlatSnapshot,
    RepositoryPart,
    first_entry,
    flat_id,
    flat_snapshots,
    info_of_part,
    refs_of,
)
from frazil.remedies import call
from frazil.repository.catalog.ancestry import own_values
from frazil.repository.catalog.collection_guard import COPY, Lease
from frazil.repository.catalog.repo_update import read_repo_info
from frazil.repository.clock import from_datetime, now_us, to_datetime
from frazil.storage.base import IfAbsent, IfVersion, Refused, Storage, storage_label
from frazil.survey.columns import ObjectListing, among, distinct, list_objects
from frazil.survey.survey import Survey
from frazil.threads import Purpose, thread_pool

#: The folders whose files are named by ids. Later folders have files that refer to files of earlier ones.
FOLDERS: Final = (CHUNKS, MANIFESTS, STATISTICS, TRANSACTIONS, SNAPSHOTS)
#: The bytes of one task.
BYTES_PER_TASK: Final = 256_000_000
#: Copying an object takes as much time as copying this number of bytes.
BYTES_PER_OBJECT: Final = 100_000
#: The bytes that a task holds.
AT_ONCE: Final = 32_000_000


@dataclass(frozen=True, slots=True, eq=False)
class CopyObjects:
    """The objects of a copy: files named by ids as columns, and the backups of the repo info by their keys.

    ``files`` has one table for each of ``FOLDERS``. ``sizes`` has the sizes of the backups in bytes.
    """

    files: tuple[ObjectListing, ...]
    keys: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.files)) + len(self.keys)

    def items(self, engine: Engine) -> Iterator[tuple[str, U8 | tuple[str, ...], I64]]:
        """Yield the work of each task: a folder, the ids or keys, and the sizes in bytes."""
        sizes = np.array(self.sizes, np.int64)
        total = len(self) * BYTES_PER_OBJECT + sum(int(each.sizes.sum()) for each in self.files)
        task = task_bytes(total + int(sizes.sum()), BYTES_PER_TASK, engine)
        for each in self.files:
            for start, stop in pairwise(groups(each.sizes + BYTES_PER_OBJECT, task).tolist()):
                yield each.folder, each.ids[start:stop], each.sizes[start:stop]
        for start, stop in pairwise(groups(sizes + BYTES_PER_OBJECT, task).tolist()):
            yield "", self.keys[start:stop], sizes[start:stop]


def all_objects(storage: Storage, info: RepoInfo, earlier: Collection[str]) -> CopyObjects:
    """Return the objects of a repository, except the repo info, leases and staged files.

    Of the backups, only those that are ``earlier`` than the repo info, or that it names: by a later one, the
    copy would have lost updates.
    """
    files = tuple(list_objects(storage, folder) for folder in FOLDERS)
    named = map(backup_key, filter(None, [*info.ops.backups.texts(), info.repo_before_updates]))
    wanted = {*earlier, *named}
    backups = [each for each in storage.list(OVERWRITTEN) if each.key in wanted]
    return CopyObjects(files, tuple(each.key for each in backups), tuple(each.size for each in backups))


def difference(objects: CopyObjects, target: Storage, checked_before: int) -> tuple[CopyObjects, CopyObjects]:
    """Return the objects that a target lacks or has with another size, and equally large ones to compare."""
    absent, doubtful = [], []
    for each in objects.files:
        present = list_objects(target, each.folder)
        rows = np.minimum(id_keys(present.ids).searchsorted(id_keys(each.ids)), max(len(present) - 1, 0))
        same = np.zeros(len(each), bool)
        late = np.zeros(len(each), bool)
        if len(present):
            same = (id_keys(present.ids)[rows] == id_keys(each.ids)) & (present.sizes[rows] == each.sizes)
            late = present.modified[rows] >= checked_before
        absent.append(each.select_files(~same))
        doubtful.append(each.select_files(same & late))
    sizes = {each.key: each.size for each in target.list(OVERWRITTEN)} if objects.keys else {}
    is_same = [sizes.get(key) == size for key, size in zip(objects.keys, objects.sizes, strict=True)]
    return _some(objects, absent, [not each for each in is_same]), _some(objects, doubtful, is_same)


def _some(objects: CopyObjects, files: Sequence[ObjectListing], chosen: Sequence[bool]) -> CopyObjects:
    return CopyObjects(
        tuple(files), tuple(compress(objects.keys, chosen)), tuple(compress(objects.sizes, chosen))
    )


def copy_objects(shared: bytes, item: bytes) -> bytes:
    """Copy objects from one storage to another, with ``compare`` only those that differ: the task.

    An object that is gone from the source is left out. The check of the target finds it if it is needed. A
    chunk file that differs from its own checksums is left out too.
    """
    source, target, compare = pickle.loads(shared)
    folder, names, sizes = pickle.loads(item)
    keys = [f"{folder}/{name}" for name in ids_to_text(names)] if folder else list(names)
    ids = id_list(names) if folder == CHUNKS else [b""] * len(keys)
    damaged: list[str] = []

    def read_object(key: str, id_: bytes) -> tuple[str, Buffer] | None:
        stored = read_stored(target, key) if compare else None
        if stored is not None and id_ and _is_right(id_, stored):
            return None
        data = read_stored(source, key)
        if data is None or (stored is not None and memoryview(stored) == memoryview(data)):
            return None
        if id_ and _is_right(id_, data) is False:
            damaged.append(key)
            return None
        return key, data

    def copy_object(key: str, id_: bytes) -> int | None:
        pair = read_object(key, id_)
        if pair is None:
            return None
        target.put(*pair)
        return memoryview(pair[1]).nbytes

    copied: list[int] = []
    with thread_pool(Purpose.FILE_COPIES) as threads:
        if not target.is_local:
            copied += (size for size in threads.map(copy_object, keys, ids) if size is not None)
        else:
            for start, stop in pairwise(groups(sizes, AT_ONCE).tolist()):
                part = threads.map(read_object, keys[start:stop], ids[start:stop])
                pairs = [pair for pair in part if pair is not None]
                target.put_many(pairs)
                copied += (memoryview(data).nbytes for _, data in pairs)
    return pickle.dumps((len(copied), sum(copied), damaged))


def read_stored(storage: Storage, key: str) -> Buffer | None:
    """Return the bytes of an object, or None if there is none."""
    try:
        return storage.get(key)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return None


def _is_right(id_: bytes, data: Buffer) -> bool | None:
    """Return whether a chunk file agrees with its own checksums. None if it has none."""
    try:
        check = check_file(id_, data)
    except FormatError:
        return False
    return None if check.trailer is None else check.ok


@dataclass(frozen=True, slots=True, repr=False)
class CopySummary(Summary):
    """The result of a copy, a clone or an export.

    Attributes:
        objects: The number of objects that were copied.
        bytes: Their size.
        existing: The number of objects that the target had already.
    """

    objects: int
    bytes: int
    existing: int

    shown_as: ClassVar[str] = "pipeline.CopySummary"

    def __add__(self, other: CopySummary) -> CopySummary:
        return CopySummary(*map(add, astuple(self), astuple(other)))

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "copied", with_size(self.objects, "object", self.bytes)
        yield "existing", counted(self.existing, "object")


CHECKED: Final = "copies/checked"
#: Storages report modification times in seconds, in microseconds.
_ROUNDING: Final = 2_000_000


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

    def is_flat(tip: bytes) -> bool:  # made of a snapshot of the source
        entry = earlier.snapshots.entry(earlier.snapshots.find_snapshot(tip))
        text = own_values(entry.metadata).get(SOURCE)
        return isinstance(text, str) and flat_id(id_from_text(text), part) == tip

    own = [
        f"commits on its branch {name!r}, which the source does not have"
        for name, tip in earlier.branches.items()
        if info.snapshots.find_snapshot(tip) < 0 and not is_flat(tip)
    ]
    tags = info.tags.keys() | info.deleted_tags
    own += [f"its tag {name!r}, which the source does not have" for name in earlier.tags if name not in tags]
    if own:
        raise _foreign(target, own[0])
    if ORIGIN in earlier.metadata and ORIGIN not in info.metadata:
        raise _foreign(target, "a clone, which has its own history")
    return IfVersion(version)


def _foreign(target: Storage, has: str) -> ConflictError:
    return ConflictError(
        message=f"target must be empty or hold an earlier copy of the repository, got {target.label()} "
        f"with {has}. Copy to another storage",
        kind=ErrorKind.REPO_INFO_UPDATED,
    )


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
) -> CopySummary:
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
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``, ``"spark"`` or
            ``"sail"``. The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        progress: A `Progress`, which shows how many objects and bytes are copied. The default, None, shows
            nothing.
        dry_run: Whether to copy nothing, and to return the numbers of objects and bytes that the target lacks
            or has with another size.

    Returns:
        The number of objects and bytes that were copied, as `CopySummary`.

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
    return _run(source, target, part, engine, progress, is_clone=False, compare=compare, dry_run=dry_run)


@takes_versions
@with_argument_docs(copy_repository)
def clone_repository(
    source: Repository,
    target: Storage,
    *,
    part: RepositoryPart | None = None,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> CopySummary:
    """Make a new repository with the history of another one, whose origin it records.

    The clone is independent: it has its own ops log, and further commits. Its metadata have the entry
    ``frazil.origin``, with the label of the source's storage, the time, and the snapshot of each branch and
    tag. `copy_repository` makes copies that later calls bring up to date.

    A second call continues a clone that was interrupted.

    Args:
        target: The storage of the clone. It must not contain a repository.
        part: The branches, tags and arrays of the clone. Default: all, with the whole history.

    Returns:
        The number of objects and bytes that were copied, as `CopySummary`.

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
    return _run(source, target, part, engine, progress, is_clone=True, compare=False, dry_run=dry_run)


def _run(
    source: Repository,
    target: Storage,
    part: RepositoryPart | None,
    engine: Engine | EngineName | None,
    progress: Progress | None,
    *,
    is_clone: bool,
    compare: bool,
    dry_run: bool,
) -> CopySummary:
    if source.spec_version < 2:
        raise FormatError(
            "source must be a repository of spec version 2, got version 1. Upgrade it first",
            ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
        )
    if is_clone:
        require_prefix(target)
        if target.head(REPO) is not None:
            raise not_empty(target, REPO, is_repository=True)
    part, target = part or RepositoryPart(), target.origin()
    name = f"copy to {target.label()}"
    with nullcontext(lambda: None) if dry_run else _leased(source.storage, name) as renew:
        copy = _RepositoryCopy(source, target, engine_of(engine), renew, progress)
        return copy.run(part, is_clone=is_clone, compare=compare, dry_run=dry_run)


@dataclass(frozen=True, slots=True, eq=False)
class _CopyPlan:
    """The repo info of the target, its bytes, the objects that it needs, and new files of its snapshots."""

    info: RepoInfo
    repo_object: bytes
    objects: CopyObjects
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

    def run(self, part: RepositoryPart, *, is_clone: bool, compare: bool, dry_run: bool) -> CopySummary:
        """Copy the objects, check them in the target, and write the repo info.

        With ``dry_run`` only count the objects that the target lacks or has with another size.
        """
        target, origin = self.target, self.source.storage
        earlier = [each.key for each in origin.list(OVERWRITTEN)] if part.is_whole and not is_clone else []
        info, _, repo_object = read_repo_info(origin)
        condition = IfAbsent() if is_clone else repo_info_condition(info, target, part)
        if is_clone or not part.is_whole:
            copy = self._part(info, part, is_clone=is_clone)
        else:
            copy = _CopyPlan(info, repo_object, all_objects(origin, info, earlier))
        since = 0 if compare else checked_before(target, part)
        absent, doubtful = difference(copy.objects, target, since)
        if dry_run:
            size = sum(int(each.sizes.sum()) for each in absent.files) + sum(absent.sizes)
            return CopySummary(len(absent), size, len(copy.objects) - len(absent))
        self._copy(absent, compare=False)
        self._copy(doubtful, compare=True)
        if self.damaged:
            raise FormatError(
                f"the source {self.source.storage.label()} must have undamaged chunk files, got "
                f"{counted(len(self.damaged), 'file')} with bytes that differ from their checksums, such as "
                f"{self.damaged[0]}. The copy is not published"
            ).with_remedy("Run `{}`, and repair the source", call("verify"))
        for flat in copy.flat:
            for key, data in flat.files(_LEVEL):
                target.put(key, data)
        self._repair_target(copy)
        target.flush_folders((*FOLDERS, OVERWRITTEN))  # an earlier copy may have been killed before its flush
        # Write the repo info, if no other writer has written it.
        is_refused = isinstance(target.put(REPO, copy.repo_object, condition), Refused)
        if is_refused and bytes(target.get(REPO)) != copy.repo_object:
            raise ConflictError(
                message=f"Another writer changed the repository in {target.label()} during the copy. "
                "Copy again",
                kind=ErrorKind.REPO_INFO_UPDATED,
            )
        with suppress(StorageError):  # without the mark, the next copy compares more objects
            target.put(CHECKED, _content(part))
        return CopySummary(self.objects, self.bytes, len(copy.objects) - self.objects)

    def _part(self, info: RepoInfo, part: RepositoryPart, *, is_clone: bool) -> _CopyPlan:
        """Return the plan of a part, or of a clone."""
        context = context_of(self.source)
        survey = Survey(context, self.engine, is_incremental=False)
        flat: tuple[FlatSnapshot, ...] = ()
        if part.newest_only:
            flat = tuple(flat_snapshots(context, info, part))
        new_info = info_of_part(info, part, flat, now_us())
        if part.newest_only:
            files = ManifestFiles.union([each.snapshot.manifests for each in flat])
        else:
            files = ManifestFiles.union([part.files for part in survey.read_versions(new_info.table.ids())])
        if is_clone:  # record its origin
            refs = {
                kind: {name: id_to_text(id_) for name, id_ in each.items()}
                for kind, each in zip(("branches", "tags"), refs_of(info, part), strict=True)
            }
            label, at = storage_label(self.source.storage), to_datetime(now_us()).isoformat()
            origin = {"storage": without_folders(label), "at": at, "refs": refs}
            new_info = replace(new_info, metadata={**new_info.metadata, ORIGIN: origin})
        pruned = np.ascontiguousarray(new_info.table.pruned().compact().values)
        pruned_ids = pruned.view(np.uint8).reshape(-1, OBJECT_ID_BYTES)
        chunks = distinct([uses.ids for _, uses in survey.file_uses(files)])
        needed = {
            CHUNKS: chunks,
            MANIFESTS: files.ids,
            STATISTICS: files.ids,
            TRANSACTIONS: np.concatenate([new_info.table.ids(), pruned_ids]),
            SNAPSHOTS: new_info.table.ids(),
        }
        every = (list_objects(self.source.storage, folder) for folder in FOLDERS)
        chosen = tuple(each.select_files(among(each.ids, needed[each.folder])) for each in every)
        return _CopyPlan(new_info, encode_repo_info(new_info), CopyObjects(chosen), flat)

    def _copy(self, objects: CopyObjects, *, compare: bool) -> None:
        """Copy objects by tasks, and count them."""
        shared = dumps((self.source.storage.origin(), self.target, compare))
        tasks = [dumps(item) for item in objects.items(self.engine)]
        for count, size, damaged in map(pickle.loads, self.engine.run(copy_objects, tasks, shared)):
            self.objects, self.bytes = self.objects + count, self.bytes + size
            self.damaged += tuple(damaged)
            self.renew()
            if self.progress is not None:
                self.progress.advance(chunks=count, bytes=size)

    def _repair_target(self, copy: _CopyPlan) -> None:
        """Copy objects again that are missing or damaged in the target, each once.

        Damaged metadata hide damage of the files that they refer to, so several rounds may be needed. Raises
        ``FormatError`` if an object is still damaged after a second copy.
        """
        on_target = replace(context_of(self.source), storage=self.target)
        repaired: set[str] = set()
        while findings := stored_findings(on_target, copy.info, self.engine):
            self.renew()
            keys = {each.key for each in findings} - repaired
            files = []
            for each in copy.objects.files:
                texts = [key.partition("/")[2] for key in keys if key.startswith(f"{each.folder}/")]
                ids = ids_from_text(texts)[0] if texts else each.ids[:0]
                files.append(each.select_files(among(each.ids, ids)))
            damaged = _some(copy.objects, files, [key in keys for key in copy.objects.keys])
            if not len(damaged):
                raise FormatError(
                    f"The copy in {self.target.label()} is not complete, and is not published: {findings[0]} "
                    f"({len(findings)} findings). Check the source with `verify`, or copy again if garbage "
                    "was collected during the copy"
                )
            repaired |= keys
            self._copy(damaged, compare=True)


@contextmanager
def _leased(storage: Storage, name: str) -> Iterator[Callable[[], None]]:
    """Take a lease in a storage, and yield a function that renews the lease once an hour has passed."""
    renewed_at = now_us()
    lease: Lease | None = None
    if not storage.is_read_only:
        with suppress(StorageError):  # without a lease, the check in the target finds missing objects
            lease = Lease.take(storage, 0, renewed_at + _LEASE, purpose=COPY, name=name)

    def renew() -> None:
        nonlocal renewed_at
        if lease is not None and now_us() > renewed_at + _RENEWED:
            renewed_at = now_us()
            Lease.take(storage, 0, renewed_at + _LEASE, lease.key, COPY, name=name)

    try:
        yield renew
    finally:
        if lease is not None:
            lease.give_back(storage)

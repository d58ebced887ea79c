"""Copies of repositories, with all of their history, in another storage.

Objects of a repository never change, except the repo info, which refers to all others. So a copy consists of
the repo info as it was at the start, and all other objects that existed then, which tasks copy in any order.
The repo info is written last: until then the target is not a repository.

A lease keeps garbage collections from deleting objects during the copy. Other implementations ignore leases.
So before the repo info is written, all objects that it needs are checked in the target: metadata files are
read, chunk files have to be long enough. Damaged objects are copied again, each object once.

Objects of the same size in the target are not copied again. So a second call updates a copy, and continues a
copy that was interrupted.
"""

from __future__ import annotations

import pickle
from collections.abc import Buffer, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from frazil.display import Shown, counted
from frazil.errors import ConflictError, ErrorKind, FormatError, StorageError
from frazil.format.keys import CHUNKS, MANIFESTS, OVERWRITTEN, REPO, SNAPSHOTS, TRANSACTIONS
from frazil.format.repo_info import RepoInfo
from frazil.jobs.blocks import groups
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.maintenance_tasks import pieces_run
from frazil.jobs.pickles import dumps
from frazil.jobs.progress import Progress
from frazil.jobs.summary import Summary, with_size
from frazil.jobs.versions import takes_versions
from frazil.maintenance.verification import plan
from frazil.repository.catalog.leases import Lease
from frazil.repository.catalog.repo_info_file import read_repo_info
from frazil.repository.clock import now_us
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.storage.base import IfAbsent, IfVersion, ObjectInfo, Refused, Storage
from frazil.threads import Purpose, thread_pool

#: The folders that are copied.
_FOLDERS: Final = (CHUNKS, MANIFESTS, TRANSACTIONS, SNAPSHOTS, OVERWRITTEN)
_BYTES_PER_TASK: Final = 256_000_000
#: Copying an object takes as much time as copying this number of bytes.
_BYTES_PER_OBJECT: Final = 100_000
_AT_ONCE: Final = 32_000_000
#: The duration of a lease, and the time after which it is renewed, in microseconds.
_LEASE: Final = 24 * 3600 * 1_000_000
_RENEWED: Final = 3600 * 1_000_000


@dataclass(frozen=True, slots=True, repr=False)
class Copied(Summary):
    """The result of `copy_repository`.

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


@takes_versions
def copy_repository(
    source: Repository,
    target: Storage,
    *,
    compare: bool = False,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
) -> Copied:
    """Copy a repository to a storage that is empty, or holds an earlier copy of it.

    The copy has the branches, tags and history that the source has at the start of the call, also if other
    writers commit or collect garbage during the copy. Snapshots have the same ids. Virtual chunks still refer
    to files elsewhere, see `materialize`. Garbage is copied too: collect it before.

    A lease in the source protects its files from garbage collection during the copy. A copy that was killed
    leaves the lease, which ends after a day. A read-only source gets no lease.

    Objects of the same size in the target are not copied again. Metadata files are read in the target, and
    copied again if they are damaged.

    Args:
        source: The repository.
        target: The storage of the copy.
        compare: Whether all other objects that both storages have are read too, and copied again if they
            differ.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where pyspark is installed, else processes of this machine (`default_engine`).
        progress: A `Progress`, which shows how many objects and bytes are copied. The default, None, shows
            nothing.

    Returns:
        The number of objects and bytes that were copied, as `Copied`.

    Raises:
        FormatError: The source has spec version 1 (``unsupported-operation-for-version``; upgrade it), or has
            missing or damaged files, which ``Repository.verify`` lists.
        ConflictError: The target has commits or tags that the source does not have, or changes during the
            call (``repo-info-updated``). The repo info of the target stays unchanged then.

    Examples:
        >>> import frazil
        >>> from frazil.pipeline import copy_repository
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> backup = frazil.in_memory_storage()
        >>> copied = copy_repository(repo, backup, engine="inline")
        >>> frazil.Repository.open(backup).lookup_branch("main") == repo.lookup_branch("main")
        True
    """
    if source.spec_version < 2:
        raise FormatError(
            "source must be a repository of spec version 2, got version 1. Upgrade it first",
            ErrorKind.UNSUPPORTED_OPERATION_FOR_VERSION,
        )
    with _leased(source.storage) as renew:
        return _RepositoryCopy(source, target, engine_of(engine), renew, progress).run(compare=compare)


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

    def run(self, *, compare: bool) -> Copied:
        """Copy the objects, check them in the target, and write the repo info."""
        origin, target = self.source.storage, self.target
        info, _, repo_object = read_repo_info(origin)
        condition = _repo_info_condition(info, target)
        objects = [each for prefix in _FOLDERS for each in origin.list(prefix)]
        sizes = {each.key: each.size for prefix in _FOLDERS for each in target.list(prefix)}
        changed = [each for each in objects if compare or sizes.get(each.key) != each.size]
        for count, size in self._copy_objects(changed, compare=compare):
            if self.progress is not None:
                self.progress.advance(chunks=count, bytes=size)
        self._repair_target(info, objects)
        is_refused = isinstance(target.put(REPO, repo_object, condition), Refused)
        if is_refused and bytes(target.get(REPO)) != repo_object:
            raise ConflictError(
                message=f"Another writer changed the repository in {target.label()} during the copy. "
                "Copy again",
                kind=ErrorKind.REPO_INFO_UPDATED,
            )
        return Copied(self.objects, self.bytes, len(objects) - self.objects)

    def _copy_objects(self, objects: Sequence[ObjectInfo], *, compare: bool) -> Iterator[tuple[int, int]]:
        """Copy objects by tasks. Yields how many objects and bytes each task has copied."""
        origin = self.source.storage
        for count, size in _copy_by_tasks(origin, self.target, objects, self.engine, compare=compare):
            self.objects, self.bytes = self.objects + count, self.bytes + size
            self.renew()
            yield count, size

    def _repair_target(self, info: RepoInfo, objects: Sequence[ObjectInfo]) -> None:
        """Copy objects again that are missing or damaged in the target, each once.

        Damaged metadata hide damage of the files that they refer to, so several rounds may be needed. Raises
        ``FormatError`` if an object is still damaged after a second copy.
        """
        on_target = replace(context_of(self.source), storage=self.target)
        run = pieces_run(on_target, self.engine)
        repaired: set[str] = set()
        while findings := plan.stored_findings(on_target, info, run):
            self.renew()
            keys = {each.key for each in findings} - repaired
            damaged = [each for each in objects if each.key in keys]
            if not damaged:
                raise FormatError(
                    f"The copy in {self.target.label()} is not complete, and is not published: {findings[0]} "
                    f"({len(findings)} findings). Check the source with `verify`, or copy again if garbage "
                    "was collected during the copy"
                )
            repaired |= keys
            for _ in self._copy_objects(damaged, compare=True):
                pass


def _repo_info_condition(info: RepoInfo, target: Storage) -> IfAbsent | IfVersion:
    """Return the condition for writing the repo info to the target.

    Raises ``ConflictError`` if the target has commits or tags that the source does not have.
    """
    if target.head(REPO) is None:
        return IfAbsent()
    earlier, version, _ = read_repo_info(target)
    tags = info.tags.keys() | info.deleted_tags
    own = [
        f"commits on its branch {name!r}"
        for name, tip in earlier.branches.items()
        if info.snapshots.find_snapshot(tip) < 0
    ]
    own += [f"its tag {name!r}" for name in earlier.tags if name not in tags]
    if own:
        raise ConflictError(
            message=f"target must be empty or hold an earlier copy of the repository, got {target.label()} "
            f"with {own[0]}, which the source does not have. Copy to another storage",
            kind=ErrorKind.REPO_INFO_UPDATED,
        )
    return IfVersion(version)


@contextmanager
def _leased(storage: Storage) -> Iterator[Callable[[], None]]:
    """Take a lease in a storage, and yield a function that renews the lease once an hour has passed."""
    renewed_at = now_us()
    lease: Lease | None = None
    if not storage.is_read_only:
        with suppress(StorageError):  # without a lease, the check in the target finds missing objects
            lease = Lease.take(storage, 0, renewed_at + _LEASE, purpose="copy")

    def renew() -> None:
        nonlocal renewed_at
        if lease is not None and now_us() > renewed_at + _RENEWED:
            renewed_at = now_us()
            Lease.take(storage, 0, renewed_at + _LEASE, lease.key, "copy")

    try:
        yield renew
    finally:
        if lease is not None:
            lease.give_back(storage)


def _copy_by_tasks(
    source: Storage, target: Storage, objects: Sequence[ObjectInfo], engine: Engine, *, compare: bool
) -> Iterator[tuple[int, int]]:
    """Copy objects by tasks. Yields how many objects and bytes each task has copied."""
    sizes = np.fromiter((each.size for each in objects), np.int64, len(objects))
    keys = [each.key for each in objects]
    items = [
        dumps((keys[start:stop], sizes[start:stop]))
        for start, stop in pairwise(groups(sizes + _BYTES_PER_OBJECT, _BYTES_PER_TASK).tolist())
    ]
    shared = dumps((source, target, compare))
    for result in engine.run(copy_objects, items, shared):
        yield pickle.loads(result)


def copy_objects(shared: bytes, item: bytes) -> bytes:
    """Copy objects from one storage to another, with ``compare`` only those that differ: the task."""
    source, target, compare = pickle.loads(shared)
    keys, sizes = pickle.loads(item)

    def read_object(key: str) -> tuple[str, Buffer] | None:
        data = source.get(key)
        return None if compare and _is_same(target, key, data) else (key, data)

    def copy_object(key: str) -> int | None:
        pair = read_object(key)
        if pair is None:
            return None
        target.put(*pair)
        return memoryview(pair[1]).nbytes

    copied: list[int] = []
    with thread_pool(Purpose.FILE_COPIES) as threads:
        if not target.is_local:
            copied += (size for size in threads.map(copy_object, keys) if size is not None)
        else:
            for start, stop in pairwise(groups(sizes, _AT_ONCE).tolist()):
                pairs = [pair for pair in threads.map(read_object, keys[start:stop]) if pair is not None]
                target.put_many(pairs)
                copied += (memoryview(data).nbytes for _, data in pairs)
    return pickle.dumps((len(copied), sum(copied)))


def _is_same(storage: Storage, key: str, data: Buffer) -> bool:
    try:
        return memoryview(storage.get(key)) == memoryview(data)
    except StorageError as error:
        if error.kind != ErrorKind.OBJECT_NOT_FOUND:
            raise
        return False

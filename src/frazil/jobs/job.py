"""Jobs as values: the versions that they read, the target, the work, the options of a run, and its result.

Operations (`frazil.pipeline.rechunk`, ``ingest``, ...) are functions that make a `Job`. `frazil.jobs.job_run`
runs a job, and commits its result once. A `TypedDict` is the one declaration of the options of an operation.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypedDict

import numpy as np

from frazil.argument_docs import Decorator, with_keywords
from frazil.arguments import check_fields, checked, require_progress, wrong_type
from frazil.changes.manifests import UNSPLIT_REFS
from frazil.display import Shown, counted, suggest
from frazil.handle.repository import Repository
from frazil.jobs.blocks import MaxMem
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.progress import Progress, Summary, brief, listed, size
from frazil.jobs.task_results import Outcome
from frazil.repository.session.session import ForkSession, Session
from frazil.storage.base import storage_label


@dataclass(frozen=True, slots=True, repr=False)
class Version(Summary):
    """One snapshot of a repository.

    Attributes:
        repo: The repository.
        snapshot_id: The id of the snapshot.
        branch: The branch on which the snapshot was found; None for a snapshot by tag or id.

    >>> import frazil
    >>> from frazil.pipeline import Version
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> version = Version.of(repo)
    >>> version.branch, version.place() == f"{repo.lookup_branch('main')} on main"
    ('main', True)
    >>> version.session().read_only, version.input(["/"]).paths
    (True, ('/',))
    """

    repo: Repository
    snapshot_id: str
    branch: str | None = None

    shown_as: ClassVar[str] = "pipeline.Version"

    @staticmethod
    def of(
        source: Source, *, branch: str | None = None, tag: str | None = None, snapshot_id: str | None = None
    ) -> Version:
        """Return the version of a branch, a tag or a snapshot.

        Args:
            source: A `Repository`, or a `Version`, which is returned without changes.
            branch: The branch whose tip is the version. Default: ``main``.
            tag: The tag whose snapshot is the version, instead of a branch.
            snapshot_id: The id of the snapshot, instead of a branch or tag.

        Returns:
            The version.

        Raises:
            TypeError: If ``source`` is neither a repository nor a version.
            RefNotFoundError: If there is no such branch or tag.
        """
        if isinstance(source, Version):
            return source
        if not isinstance(source, Repository):
            raise wrong_type("source", source, "Repository", "Version")
        if branch is None and tag is None and snapshot_id is None:
            branch = "main"
        session = source.readonly_session(branch, tag=tag, snapshot_id=snapshot_id)
        return Version(source, session.snapshot_id, branch)

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "snapshot", self.place()
        yield "repository", brief(storage_label(self.repo.storage))

    def place(self) -> str:
        """Return the snapshot and the branch as text.

        Returns:
            The id of the snapshot, and ``on BRANCH`` if the version has a branch.
        """
        return self.snapshot_id if self.branch is None else brief(f"{self.snapshot_id} on {self.branch}")

    def session(self) -> Session:
        """Return a read-only session on the snapshot.

        Returns:
            The session.
        """
        return self.repo.readonly_session(snapshot_id=self.snapshot_id)

    def input(self, paths: Sequence[str] = ("/",)) -> Input:
        """Return nodes of the version as an input of a job.

        Args:
            paths: The paths of the nodes. All nodes below them are part of the input. Default: the root.

        Returns:
            The input, with a digest of the nodes.
        """
        return Input(
            storage_label(self.repo.storage),
            self.branch,
            self.snapshot_id,
            tuple(paths),
            digest(self.session(), paths),
        )


type Source = Repository | Version

#: The beginning of the address of a local folder.
LOCAL: Final = "local filesystem, path "
_PLACES: Final = frozenset({"source", "to", "repo", "target", "session"})


def takes_versions[**P, R](function: Callable[P, R]) -> Callable[P, R]:
    """Return an operation that first checks the types of its source and target, or raises ``TypeError``."""
    return checked(function, _PLACES)


@dataclass(frozen=True, slots=True)
class Target:
    """The place where a job writes.

    Args:
        repo: The repository.
        branch: The branch that the job commits to. It must exist. Default: ``main``.
        group: The path of the group below which the job writes. Default: the root group.

    Raises:
        TypeError: If an argument has the wrong type.
    """

    repo: Repository
    branch: str = "main"
    group: str = "/"

    def __post_init__(self) -> None:
        check_fields(self)

    def path(self, name: str) -> str:
        """Return the absolute path of a node below the group.

        Args:
            name: The path of the node, relative to the group.

        Returns:
            The absolute path.

        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> Target(repo, group="/clean").path("air/t2m"), Target(repo).path("/air/t2m")
        ('/clean/air/t2m', '/air/t2m')
        """
        return "/" + "/".join(filter(None, [self.group.strip("/"), name.strip("/")]))


@dataclass(frozen=True, slots=True)
class Input:
    """Nodes that a job has read, as the metadata of its commit record them.

    Attributes:
        repository: The address of the repository, without secrets.
        branch: The branch of the version; None for a version by tag or id.
        snapshot: The id of the snapshot.
        paths: The paths of the nodes. All nodes below them are part of the input.
        digest: A hash of the nodes. It changes if a commit changes one of them.

    >>> from frazil.pipeline import Input
    >>> Input("in-memory", "main", "1CECHNKREP0F1RSTCMT0", ("/air",), "00").as_json()["paths"]
    ['/air']
    """

    repository: str
    branch: str | None
    snapshot: str
    paths: tuple[str, ...]
    digest: str

    def as_json(self) -> dict[str, Any]:
        """Return the input as a dict of values that JSON can hold.

        Returns:
            The fields by name.
        """
        return {**asdict(self), "paths": list(self.paths)}


def digest(session: Session, paths: Sequence[str]) -> str:
    """Return a hash of nodes and all nodes below them. Other data or metadata have another hash."""
    nodes = session.workspace.snapshot.nodes
    hashed, numbers = hashlib.sha256(), np.arange(len(nodes))
    for path in sorted({"/" + path.strip("/") for path in paths}):
        row, below = nodes.find_node(path), nodes.below(path)
        rows = np.r_[[row] if row >= 0 else [], numbers[below]].astype(np.int64)
        some = nodes.select_nodes(rows)
        hashed.update(path.encode() + some.ids.tobytes())
        for column in (some.paths, some.user_data, some.manifests, some.extents):
            hashed.update(column.lengths.tobytes() + column.compact().values.tobytes())
    return hashed.hexdigest()[:32]


def without_folders(address: str) -> str:
    """Return an address for the metadata of commits: of a local folder its name, and a hash of its path."""
    # Readers of a repository need not know the folders of the machine that wrote it.
    path = address.removeprefix(LOCAL)
    if path == address:
        return address
    name = path.rstrip("/").rpartition("/")[2]
    return f"local filesystem, {name} ({hashlib.sha256(path.encode()).hexdigest()[:8]})"


class RunOptions(TypedDict, total=False):
    """The options of every operation. All of them are optional.

    Attributes:
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``, ``"spark"`` or
            ``"sail"``. The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        job_id: The id of the job. A call with the id of an earlier job continues that job if it was
            interrupted, and returns its result if it was committed. The default, None, is a hash of the
            operation, its arguments, its inputs and its target.
        message: The message of the commit. The default, None, is a message that names the operation.
        progress: A `Progress`, which shows how many tasks are done. The default, None, shows nothing.
    """

    engine: Engine | EngineName | None
    job_id: str | None
    message: str | None
    progress: Progress | None


class BoundedRunOptions(RunOptions, total=False):
    """The run options of operations whose tasks hold blocks of arrays in memory.

    Attributes:
        max_mem: The most memory for the values that one task holds, in bytes: a number, or a text such as
            ``"1GB"``. The default, None, is 256 MB, or more where one chunk needs more.
    """

    max_mem: MaxMem


def with_options(options: type, defaults: type | Mapping[str, Any] = MappingProxyType({})) -> Decorator:
    """Return a decorator that lists the options of ``**options: Unpack[options]`` in the signature.

    ``defaults`` are the defaults that are not None, or a dataclass with a field for each option. In the
    docstring, the descriptions of the options replace the entry ``**options:``. The decorated function raises
    ``TypeError`` for an unknown option.
    """
    if isinstance(defaults, type):
        values = {each.name: ... if each.default is MISSING else each.default for each in fields(defaults)}
    else:
        values = dict(defaults)

    def decorate[**P, R](function: Callable[P, R], /) -> Callable[P, R]:
        listed = with_keywords(options, **values)(function)
        accepted = inspect.signature(listed).parameters

        @functools.wraps(listed)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - accepted:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}"
                    f"{suggest(name, sorted(accepted))}"
                )
            require_progress(kwargs.get("progress"), "expect", "advance")
            return function(*args, **kwargs)

        return call

    return decorate


@dataclass(frozen=True, slots=True)
class Tasks:
    """The work of one round.

    Args:
        items: The items of work, one for each task. They can be pickled. Two items must not write the same
            chunk.
        shared: A value that all tasks get. Default: None.
        reads: The paths of nodes that the plan depends on. Like inputs, they are checked before each commit.
            Default: none.

    >>> from frazil.pipeline import Tasks
    >>> Tasks([0, 1, 2], shared="t").items
    [0, 1, 2]
    """

    items: Sequence[Any]
    shared: Any = None
    reads: tuple[str, ...] = ()


#: With more references, the executors write the manifests: then an array has several manifests to distribute.
#: The driver merges and commits two million references in two seconds with half a gigabyte, about the cost of
#: the start of a second stage. Ten million references would cost five times as much.
MANIFESTS_ON_EXECUTORS_ABOVE: Final = UNSPLIT_REFS

#: ``(fork, shared, item) -> Outcome``: a function that runs on an executor, perhaps more than once.
type Work = Callable[[ForkSession, Any, Any], Outcome]


@dataclass(frozen=True, slots=True)
class Phase:
    """One more round of a job. Its session and its forks see all changes of the earlier rounds.

    Args:
        prepare: A function that gets the session and the values of the previous round, and returns the
            `Tasks`. It may delete nodes that only the previous round needed.
        work: The function that executors call for each item.
    """

    prepare: Callable[[Session, list[Any]], Tasks]
    work: Work


@dataclass(frozen=True, slots=True)
class Job:
    """A plan on the driver, work on executors, and one commit. `run_job` runs it.

    Args:
        name: The name of the operation, for the record in the commit and for messages.
        target: The `Target` of the result.
        prepare: A function that gets the session of the job, creates the metadata of the result, and returns
            the `Tasks`. A second run of the job calls it again.
        work: The function ``(fork, shared, item) -> Outcome`` that executors call for each item. Executors
            must be able to import it. It may be called more than once for an item.
        finish: A function that gets the session and the values of the last round, before the commit. None:
            no such step.
        parameters: The parameters of the operation, as values that JSON can hold. They are part of the id.
        inputs: The versions that the job reads. If they are on the branch of the target, they are checked
            before each commit.
        writes: The paths that the job creates or changes. Default: the root, which means any path.
        message: The message of the commit. None: the name of the job.
        metadata: More metadata of the commit.
        id: The id of the job. None: derived from the name, parameters, inputs and target.
        phases: More rounds after ``work``. Each start of the job iterates over them.
        manifests_on_executors_above: With more references in a round, the executors write the manifests
            (`frazil.jobs.task_rounds`).
        track_reads: Whether all nodes and chunks that are read through the session of the job and its forks
            are also checked before each commit. Default: False.

    >>> import frazil, zarr
    >>> from frazil.pipeline import Job, Outcome, Target, Tasks, run_job
    >>> def prepare(session):
    ...     _ = zarr.create_array(session.store, name="n", shape=(4,), chunks=(2,), dtype="i4")
    ...     return Tasks([0, 2])
    >>> def work(fork, shared, item):
    ...     zarr.open_array(fork.store, path="n")[item : item + 2] = item
    ...     return Outcome(rows=2, chunks=1)
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> result = run_job(Job("count", Target(repo), prepare, work), "inline")
    >>> zarr.open_array(result.version.session().store, path="n")[:].tolist()
    [0, 0, 2, 2]
    """

    name: str
    target: Target
    prepare: Callable[[Session], Tasks]
    work: Work
    finish: Callable[[Session, list[Any]], None] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    writes: tuple[str, ...] = ("/",)
    message: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    phases: Iterable[Phase] = ()
    manifests_on_executors_above: int = MANIFESTS_ON_EXECUTORS_ABOVE
    track_reads: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Metrics(Summary):
    """The work and the cost of a job.

    Attributes:
        tasks: The number of tasks.
        retries: The number of failed attempts of tasks that succeeded later.
        resumed: The number of tasks whose results an earlier run had staged.
        rows: The number of rows that tasks report, such as steps of a dimension.
        chunks: The number of chunks that tasks wrote.
        bytes_read: The bytes of values that tasks read, before compression.
        bytes_written: The bytes of values that tasks and the driver wrote, before compression.
        requests: The number of requests to storages by tasks, and by the driver before the commit.
        stored_bytes_read: The bytes that these requests read from storages.
        stored_bytes_written: The bytes that these requests wrote to storages.
        returned: The bytes that tasks sent back to the driver.
        seconds: The time from the start of the job to its commit.
        task_seconds: The sum of the times of all tasks.
        longest_task_seconds: The time of the longest task.

    >>> from frazil.pipeline import Metrics
    >>> metrics = Metrics(tasks=4, chunks=12, bytes_written=96_000_000, seconds=1.5)
    >>> metrics.work(), metrics.writes()
    ('4 tasks in 1.5 s', '12 chunks, 96.0 MB')
    """

    tasks: int = 0
    retries: int = 0
    resumed: int = 0
    rows: int = 0
    chunks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    stored_bytes_read: int = 0
    stored_bytes_written: int = 0
    returned: int = 0
    seconds: float = 0.0
    task_seconds: float = 0.0
    longest_task_seconds: float = 0.0

    shown_as: ClassVar[str] = "pipeline.Metrics"

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        stored = f"{size(self.stored_bytes_read)} read, {size(self.stored_bytes_written)} written"
        return (
            ("tasks", self.work()),
            ("values read", size(self.bytes_read)),
            ("values written", self.writes()),
            ("storage", f"{counted(self.requests, 'request')}, {stored}"),
            ("returned", size(self.returned)),
            ("task seconds", f"{self.task_seconds:.1f}, the longest {self.longest_task_seconds:.1f}"),
        )

    def work(self) -> str:
        """Return the tasks and the time as text.

        Returns:
            One line, such as ``"4 tasks in 1.5 s"``, with retries and resumed tasks if there are any.
        """
        more = [f"{self.retries:,} retried" if self.retries else ""]
        more += [f"{self.resumed:,} of an earlier run" if self.resumed else ""]
        return listed([f"{counted(self.tasks, 'task')} in {self.seconds:.1f} s", *more])

    def writes(self) -> str:
        """Return the written rows, chunks and bytes as text.

        Returns:
            One line, such as ``"12 chunks, 96.0 MB"``; ``"nothing"`` if the tasks wrote nothing.
        """
        numbers = ((self.rows, "row"), (self.chunks, "chunk"))
        parts = [counted(number, noun) for number, noun in numbers if number]
        return listed([*parts, size(self.bytes_written) if self.bytes_written else ""])


@dataclass(frozen=True, slots=True, repr=False)
class JobResult(Summary):
    """The result of a job.

    Attributes:
        id: The id of the job.
        version: The version with the result of the job.
        metrics: The work and the cost of this run.
        done_before: Whether an earlier run or another driver had committed the job, or it changes nothing.
        values: The values that the tasks of the last round returned.
    """

    id: str
    version: Version
    metrics: Metrics
    done_before: bool = False
    values: tuple[Any, ...] = ()

    shown_as: ClassVar[str] = "pipeline.JobResult"

    @property
    def snapshot_id(self) -> str:
        """The id of the snapshot with the result."""
        return self.version.snapshot_id

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "id", brief(self.id)
        yield "snapshot", self.version.place()
        if self.done_before:
            yield "done before", "the result was already in the repository"
        else:
            yield "work", self.metrics.work()
            if self.metrics.rows or self.metrics.chunks or self.metrics.bytes_written:
                yield "wrote", self.metrics.writes()  # if ``finish`` wrote everything, tasks report nothing

    def _details(self) -> Iterable[tuple[str, Shown]]:
        yield "version", self.version
        yield "metrics", self.metrics
        if any(value is not None for value in self.values):
            yield "values", f"{counted(len(self.values), 'value')}: {brief(self.values)}"

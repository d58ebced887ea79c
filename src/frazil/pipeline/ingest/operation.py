"""``ingest``: look at the files, plan, copy or refer, commit once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, get_args

from frazil.display import Shown
from frazil.errors import ErrorKind, InvalidInputError, RebaseFailedError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.job import Job, Tasks, run_job
from frazil.jobs.job_result import JobResult
from frazil.jobs.progress import Progress
from frazil.jobs.versions import Target, takes_versions
from frazil.pipeline.ingest import ledger as recorded
from frazil.pipeline.ingest.arrays import require_sizes
from frazil.pipeline.ingest.axis import MODES, Mode
from frazil.pipeline.ingest.dimension import NO_GROWTH, Growth, dimension, scalar_instead
from frazil.pipeline.ingest.existing import Present, dims_of
from frazil.pipeline.ingest.inspection import Looked, Options, look
from frazil.pipeline.ingest.notes import notes
from frazil.pipeline.ingest.options import OnChange, OnProblem, Request, files_input
from frazil.pipeline.ingest.pattern import Expanded, Files, expand
from frazil.pipeline.ingest.plan import all_there, plan_ingest
from frazil.pipeline.ingest.problems import require_tolerable
from frazil.pipeline.ingest.reconcile import Combined, combine
from frazil.pipeline.ingest.report import Report
from frazil.pipeline.ingest.step_order import holes
from frazil.pipeline.ingest.tasks import work
from frazil.readers.registry import require_format
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.access import environment_access

#: How often an ingest is planned when others commit to its arrays meanwhile.
_TRIES: Final = 4
#: Under this key of a commit's metadata is what was ingested.
INGEST: Final = "frazil_ingest"


@dataclass(frozen=True, slots=True, repr=False)
class IngestResult(JobResult):
    """What became of an ingest: the result of its job, and what was found in the files."""

    report: Report | None = None

    shown_as: ClassVar[str] = "pipeline.IngestResult"

    @property
    def quarantined(self) -> tuple[str, ...]:
        """The files that were left out."""
        return () if self.report is None else self.report.bad

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield from JobResult._rows(self)
        if self.report is not None:
            yield from self.report.outline()

    def _details(self) -> Iterable[tuple[str, Shown]]:
        yield from JobResult._details(self)
        if self.report is not None:
            yield from self.report.details()


def inspect_files(
    source: Files,
    *,
    concat_dim: str | None = None,
    variables: Collection[str] | None = None,
    virtual: bool = False,
    allow: Collection[str] = (),
    unpack: bool = False,
    format: str | None = None,
    source_group: str = "/",
    storage_options: Mapping[str, Any] | None = None,
    reader_options: Mapping[str, Any] | None = None,
    engine: Engine | EngineName | None = None,
    progress: Progress | None = None,
) -> Report:
    """Look at files, and say what `ingest` would find; nothing is written.

    The arguments are those of `ingest`.
    """
    tolerated = require_tolerable(_names(allow))
    files = expand(source, storage_options)
    options = Options(format, source_group, storage_options, dict(reader_options or {}))
    require_format(format)
    looker = _Looker(files, options, engine_of(engine), virtual, variables, {}, progress)
    dim, looked = looker.look(concat_dim, NO_GROWTH)
    return _report(looked, combine(looked, files, dim, unpack=unpack, allow=tolerated), tolerated)


@dataclass(frozen=True, slots=True)
class _Looker:
    """How files are looked at, once or twice."""

    files: Expanded
    options: Options
    engine: Engine
    virtual: bool
    variables: Collection[str] | None
    known: Mapping[str, str]
    progress: Progress | None = None

    def look(self, concat_dim: str | None, growth: Growth) -> tuple[str | None, Looked]:
        """The dimension (None if files have none; scalars may be one), and what is in the files."""
        dim = concat_dim or dimension(self.files, self.options, growth)
        looked = self._along(dim)
        if dim is not None and dim not in (concat_dim, self.files.concat_dim, growth.concat_dim):
            scalar = scalar_instead(looked, dim)
            if scalar is not None:
                return scalar, self._along(scalar)
        return dim, looked

    def _along(self, dim: str | None) -> Looked:
        return look(
            self.files,
            dim,
            self.options,
            self.engine,
            virtual=self.virtual,
            variables=self.variables,
            known=self.known,
            progress=self.progress,
        )


def _report(looked: Looked, combined: Combined, allow: frozenset[str], unchanged: int = 0) -> Report:
    one_file = all(len(family.files) == 1 for family in combined.families)
    gaps = [
        replace(each, fatal="hole" not in allow)
        for each in holes(combined.axis, combined.units, combined.calendar, one_file=one_file)
    ]
    return Report(
        looked, combined, (*looked.problems, *combined.problems, *gaps, *notes(looked, combined)), unchanged
    )


@takes_versions
def ingest(
    source: Files,
    to: Target | Repository,
    *,
    concat_dim: str | None = None,
    mode: Mode = "create",
    variables: Collection[str] | None = None,
    chunks: Mapping[str, int] | None = None,
    encoding: Mapping[str, Mapping[str, Any]] | None = None,
    virtual: bool = False,
    containers: Sequence[VirtualChunkContainer] = (),
    on_problem: OnProblem = "fail",
    on_change: OnChange = "fail",
    allow: Collection[str] = (),
    unpack: bool = False,
    format: str | None = None,
    source_group: str = "/",
    storage_options: Mapping[str, Any] | None = None,
    reader_options: Mapping[str, Any] | None = None,
    engine: Engine | EngineName | None = None,
    job_id: str | None = None,
    message: str | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Write many files into one dataset, in one commit: `xarray.open_zarr` of it is `xarray.open_mfdataset`
    of them.

    ``source`` is a glob, a list of files or globs, or a `FilePattern`. Files follow each other along
    ``concat_dim`` (found out if not given: that of the group, the dimension that is unlimited or a time, or
    the scalar coordinate that differs from file to file) in the order of its labels; files with other
    variables are merged. One file alone stays as it is: name ``concat_dim`` if others will follow it.
    ``source_group`` is the group in the files, that of ``to``
    the one in the repository.

    ``mode`` says what may be there already: ``"create"`` nothing; ``"append"`` labels before those of the
    files; ``"insert"`` all labels of the files; ``"upsert"`` some of them, others follow; ``"backfill"``
    anything, labels go where they belong. All but "create" and "insert" create what is not there. Values of
    labels that are there are replaced.

    ``chunks`` are sizes by dimension (-1: all of it), ``encoding`` arguments of ``zarr.create_array`` by
    variable (``chunks``, ``shards``, ``compressors``, ``filters``, ``serializer``) for new arrays. With
    ``virtual`` data stay in the files and get references, with their codecs; coordinates are copied. The
    repository needs a virtual chunk container for the files: ``containers`` are added to its configuration,
    and the handle of ``to`` may read them from then on.

    ``on_problem``: ``"fail"`` raises before anything is written, ``"skip"`` leaves files with problems out,
    ``"quarantine"`` remembers them as well, until they change. ``allow`` are kinds of problems that are
    tolerated, with all files: ``"hole"``, ``"overlap"`` and ``"duplicate"`` (the later file has the label),
    ``"unordered"`` (steps stay in the order of their file), ``"values"`` (those of the first file are
    kept). ``on_change`` says what becomes of files that were ingested before and have other
    contents now. Files that have not changed are not read again. ``unpack`` stores the values of packed data,
    where each file may have its own scale and offset.

    If others commit to the same arrays meanwhile, the ingest is planned and done again on top of that.

    Raises ``InvalidInputError`` (``bad-source`` for problems in files), ``AlreadyExistsError``, and what
    `run_job` raises.
    """
    for name, given, choices in (
        ("mode", (mode,), MODES),
        ("on_problem", (on_problem,), get_args(OnProblem.__value__)),
        ("on_change", (on_change,), get_args(OnChange.__value__)),
    ):
        if unknown := sorted(map(str, set(given).difference(choices))):
            raise InvalidInputError(
                f"{name}: expected one of {', '.join(choices)}, found {unknown[0]!r}", ErrorKind.INVALID_KEY
            )
    tolerated = require_tolerable(_names(allow))
    require_sizes(chunks or {}, encoding or {})
    variables = None if variables is None else _names(variables)
    target = to if isinstance(to, Target) else Target(to)
    files = expand(source, storage_options)
    options = Options(format, source_group, storage_options, dict(reader_options or {}))
    require_format(format)
    engine = engine_of(engine)
    wanted = None if variables is None else frozenset(variables)
    looker = _Looker(files, options, engine, virtual, variables, _fingerprints(target, wanted))
    dim, looked = looker.look(concat_dim, _growth(target, mode))
    handle = target.repo
    if containers:
        target = replace(target, repo=with_containers(target.repo, containers))
    request = Request(
        target, files, looked, dim, wanted, mode, dict(chunks or {}), dict(encoding or {}), virtual,
        on_problem, on_change, tolerated, unpack, options,
    )  # fmt: skip
    metadata: dict[str, Any] = {}
    reports: list[Report] = []

    def prepare(session: Session) -> Tasks:
        tasks, report, said = plan_ingest(session, request)
        reports[:] = [report]
        metadata[INGEST] = said
        return tasks

    job = Job(
        "ingest",
        target,
        prepare,
        work,
        parameters=request.parameters(),
        inputs=(files_input(looked),),
        writes=(target.group,),
        message=message or f"ingest {len(files.urls)} file{'' if len(files.urls) == 1 else 's'}",
        metadata=metadata,
        id=job_id,
    )
    for left in reversed(range(_TRIES)):
        try:
            result = run_job(job, engine, progress=progress)
            break
        # Others wrote to these arrays, or to the labels that say where data go: planned anew, on top of that.
        except RebaseFailedError:
            if not left:
                raise
    if not reports:
        combined = combine(looked, files, dim, unpack=unpack, allow=tolerated)
        reports.append(_report(looked, combined, tolerated, len(files.urls)))
    if containers:
        # the handle of the caller reads what the caller has given the containers for
        handle.reconfigure(target.repo.config, target.repo.virtual_chunk_access)
    told = {each.name: getattr(result, each.name) for each in fields(JobResult)}
    return IngestResult(**told, report=reports[0])


def _names(given: Collection[str]) -> Collection[str]:
    """One name is meant as such, not its letters."""
    return (given,) if isinstance(given, str) else given


def _growth(target: Target, mode: Mode) -> Growth:
    """What the group says of the dimension in which files follow each other."""
    if mode == "create":
        return NO_GROWTH
    session = target.repo.readonly_session(target.branch)
    there = Present(session, target.group)
    if not there.arrays:
        return Growth(from_nothing=mode != "insert")
    dims = frozenset(name for name, each in there.arrays.items() if dims_of(each) == (name,))
    return Growth(recorded.load_attrs(session, target.group).get("concat_dim"), dims)


def _fingerprints(target: Target, variables: frozenset[str] | None) -> dict[str, str]:
    """What is known of files already; nothing if other variables were taken from them."""
    session = target.repo.readonly_session(target.branch)
    if not all_there(variables, recorded.load_attrs(session, target.group)):
        return {}
    record = recorded.load(session, target.group)
    digests = record.fingerprint.tobytes().hex()
    return {url: digests[32 * i : 32 * i + 32] for i, url in enumerate(record.url.tolist())}


def with_containers(repo: Repository, containers: Sequence[VirtualChunkContainer]) -> Repository:
    """The repository with these containers in its saved configuration, authorised for this process.

    Whoever gives a container names its server, so the credentials of the environment may go there, unless
    the repository was opened with others for this prefix.
    """
    config = repo.config
    saved = config.virtual_chunk_containers or {}
    fresh = [each for each in containers if saved.get(each.url_prefix) != each]
    for each in containers:
        config.set_virtual_chunk_container(each)
    granted = {each.url_prefix: environment_access(each.url_prefix) for each in containers}
    repo = repo.reopen(config, authorize_virtual_chunk_access={**granted, **repo.virtual_chunk_access})
    if fresh:
        repo.save_config()
    return repo

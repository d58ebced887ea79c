"""``ingest`` and ``inspect_files``: the steps of an ingest, from the call to the commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Unpack

from frazil.display import Shown
from frazil.errors import RebaseFailedError
from frazil.jobs.engine import Engine
from frazil.jobs.engines import engine_of
from frazil.jobs.job import Job, Tasks
from frazil.jobs.job_result import JobResult
from frazil.jobs.job_run import run_job
from frazil.jobs.progress import Progress
from frazil.jobs.run_options import Run, with_options
from frazil.jobs.versions import Target, takes_versions
from frazil.pipeline.ingest.axis import Mode
from frazil.pipeline.ingest.containers import with_containers
from frazil.pipeline.ingest.dimension import NO_GROWTH, Growth
from frazil.pipeline.ingest.existing import ExistingGroup, dims_of
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.ledger import LedgerVersion
from frazil.pipeline.ingest.options import IngestOptions, IngestRequest, InspectionOptions, Settings
from frazil.pipeline.ingest.pattern import Files
from frazil.pipeline.ingest.plan import Plan, plan_ingest
from frazil.pipeline.ingest.report import Report
from frazil.pipeline.ingest.source_inspection import inspect_request, inspection_report, new_group_growth
from frazil.pipeline.ingest.tasks import run_item
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session

#: How often an ingest is planned when others commit to its arrays meanwhile.
_TRIES: Final = 4
#: Under this key of a commit's metadata is what was ingested.
INGEST: Final = "frazil_ingest"


@dataclass(frozen=True, slots=True, repr=False)
class IngestResult(JobResult):
    """The result of the job of an ingest, and the report on the files."""

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


@with_options(InspectionOptions, Settings)
def inspect_files(
    source: Files,
    *,
    concat_dim: str | None = None,
    variables: Collection[str] | None = None,
    virtual: bool = False,
    **options: Unpack[InspectionOptions],
) -> Report:
    """Inspect files, and report what `ingest` would find; nothing is written.

    The arguments are those of `ingest`.
    """
    settings = Settings(concat_dim=concat_dim, variables=variables, virtual=virtual, **options)
    request = IngestRequest.of(source, settings)
    inspection = inspect_request(request, engine_of(settings.engine), NO_GROWTH, progress=settings.progress)
    return inspection_report(request, inspection)


@takes_versions
@with_options(IngestOptions, Settings)
def ingest(
    source: Files,
    to: Target | Repository,
    *,
    concat_dim: str | None = None,
    mode: Mode = "create",
    variables: Collection[str] | None = None,
    virtual: bool = False,
    **options: Unpack[IngestOptions],
) -> IngestResult:
    """Write many files into one dataset, in one commit: `xarray.open_zarr` of it is `xarray.open_mfdataset`
    of them.

    ``source`` is a glob, a list of files or globs, or a `FilePattern`. Files follow each other along
    ``concat_dim``, in the order of its labels; files with other variables are merged. If ``concat_dim`` is
    None, it is the dimension of the group, or the dimension of the files that is unlimited or a time, or the
    scalar coordinate that differs from file to file. One file alone stays as it is: name ``concat_dim`` if
    other files will follow it. ``source_group`` is the group in the files, the group of ``to`` the one in the
    repository. ``variables`` are the data variables to take, all of them if None.

    ``mode`` says which labels the group may have before: ``"create"`` no array of the files at all;
    ``"append"`` only labels before those of the files; ``"insert"`` all labels of the files; ``"upsert"``
    some of them, and the others follow; ``"backfill"`` any labels, and new labels go where they belong. All
    modes but "insert" create arrays that the group does not have. The values of labels that the group has
    are replaced.

    ``chunks`` are sizes by dimension (-1: all of it), ``encoding`` arguments of ``zarr.create_array`` by
    variable (``chunks``, ``shards``, ``compressors``, ``filters``, ``serializer``) for new arrays. With
    ``virtual`` data stay in the files: arrays get references to them, with their codecs; coordinates are
    copied. The repository needs a virtual chunk container for the files: ``containers`` are added to its
    configuration, and the handle of ``to`` may read them from then on.

    ``on_problem``: ``"fail"`` raises before anything is written, ``"skip"`` leaves out files with problems,
    ``"quarantine"`` also remembers them until they change. ``allow`` are kinds of problems that are
    tolerated: ``"hole"``, ``"overlap"`` and ``"duplicate"`` (the later file has the label),
    ``"unordered"`` (steps stay in the order of their file), ``"values"`` (those of the first file stay).
    ``on_change`` is for files that were ingested before and have other contents now: ``"fail"``,
    ``"ignore"`` or ``"rewrite"``. Files that have not changed are not read again. ``unpack`` stores the
    values of packed data, where each file may have its own scale and offset.

    If others commit to the same arrays meanwhile, the ingest is planned and done again on top of their
    commit.

    Raises ``InvalidInputError`` (``bad-source`` for problems in files), ``AlreadyExistsError``, and what
    `run_job` raises.
    """
    settings = Settings(concat_dim, mode, variables, virtual, **options)
    request = IngestRequest.of(source, settings)
    return run_ingest(request, to if isinstance(to, Target) else Target(to), settings.run)


def run_ingest(
    request: IngestRequest, target: Target, run: Run, inspection: Inspection | None = None
) -> IngestResult:
    """`ingest` of a request. The files are inspected, unless the caller gives their ``inspection``."""
    engine = engine_of(run.engine)
    ledger_version, growth = _group_state(target, request.mode)
    if inspection is None:
        ledger = ledger_version.ledger
        fingerprints = ledger.fingerprints() if ledger.covers(request.variables) else {}
        inspection = inspect_request(request, engine, growth, fingerprints, run.progress)
    caller_repo = target.repo
    if request.containers:
        target = replace(target, repo=with_containers(caller_repo, request.containers))
    planner = _Planner(request, inspection, target.group, ledger_version)
    result = _run_with_retries(planner.job(target, run), engine, run.progress)
    if request.containers:
        # the handle of the caller reads what the caller has given the containers for
        caller_repo.reconfigure(target.repo.config, target.repo.virtual_chunk_access)
    if planner.plan is None:  # the job was done before: nothing was planned
        report = inspection_report(request, inspection, len(inspection.urls))
    else:
        report = planner.plan.report
    values = {each.name: getattr(result, each.name) for each in fields(JobResult)}
    return IngestResult(**values, report=report)


def _run_with_retries(job: Job, engine: Engine, progress: Progress | None) -> JobResult:
    """Run the job; it is planned again if others have written to the same arrays meanwhile."""
    for remaining in reversed(range(_TRIES)):
        try:
            return run_job(job, engine, progress=progress)
        # Others wrote to these arrays, or to the labels that say where data go.
        except RebaseFailedError:
            if not remaining:
                raise
    raise AssertionError("the last try returns or raises")


class _Planner:
    """Plans the job of an ingest. A job that meets a conflict is planned again; ``plan`` is the latest."""

    def __init__(
        self, request: IngestRequest, inspection: Inspection, group: str, ledger_version: LedgerVersion
    ) -> None:
        self.request = request
        self.inspection = inspection
        self.group = group
        self.ledger_version = ledger_version
        self.plan: Plan | None = None
        #: The metadata of the commit: empty until the job is planned.
        self.metadata: dict[str, Any] = {}

    def prepare(self, session: Session) -> Tasks:
        self.plan = plan_ingest(session, self.request, self.inspection, self.group, self.ledger_version)
        self.metadata[INGEST] = self.plan.metadata
        return self.plan.tasks

    def job(self, target: Target, run: Run) -> Job:
        count = len(self.inspection.urls)
        return Job(
            "ingest",
            target,
            self.prepare,
            run_item,
            parameters=self.request.parameters(self.inspection.dim),
            inputs=(self.inspection.as_input(),),
            writes=(target.group,),
            message=run.message or f"ingest {count} file{'' if count == 1 else 's'}",
            metadata=self.metadata,
            id=run.job_id,
        )


def _group_state(target: Target, mode: Mode) -> tuple[LedgerVersion, Growth]:
    """The ledger of the group, and the dimension in which the group grows."""
    session = target.repo.readonly_session(target.branch)
    ledger_version = LedgerVersion.load(session, target.group)
    if mode == "create":
        return ledger_version, NO_GROWTH
    existing = ExistingGroup(session, target.group)
    if not existing.arrays:
        return ledger_version, new_group_growth(mode)
    dims = frozenset(name for name, each in existing.arrays.items() if dims_of(each) == (name,))
    return ledger_version, Growth(ledger_version.ledger.concat_dim, dims)

"""``ingest`` and ``inspect_files``: the steps of an ingest, from the call to the commit.

The dimension, if the caller does not name it, is the dimension of the group, if the first file has it or a
scalar of its name; or the one dimension of the first file that is unlimited or a time; or else the scalar
whose value differs from file to file (see `Dataset`). A single file has no such dimension.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Unpack

import numpy as np
from numpy.typing import NDArray

from frazil.cf_times import is_time
from frazil.display import Shown, counted
from frazil.errors import IcechunkError, InvalidInputError, RebaseFailedError
from frazil.handle.repository import Repository
from frazil.jobs.engine import Engine, engine_of
from frazil.jobs.job import Input, Job, JobResult, Target, Tasks, takes_versions, with_options
from frazil.jobs.job_run import run_job
from frazil.pipeline.derivation.refresh import RefreshChain
from frazil.pipeline.ingest.dataset import Dataset, scalar_instead, scalar_time
from frazil.pipeline.ingest.existing import (
    ExistingGroup,
    GroupChange,
    Ledger,
    dims_of,
    known_files,
    load_ledger,
    match_ledger,
    save_ledger,
)
from frazil.pipeline.ingest.inspection import Inspection, InspectionSpec, KnownFiles, inspect_all
from frazil.pipeline.ingest.options import (
    CHANGES,
    Files,
    IngestOptions,
    IngestRequest,
    InspectionOptions,
    Mode,
    Problem,
    refusal,
)
from frazil.pipeline.ingest.plan import plan_axis, plan_tasks
from frazil.pipeline.ingest.report import ChosenChunks, Report, joined_report, notes
from frazil.pipeline.ingest.tasks import joined_tasks, run_item, without_container
from frazil.remedies import argument
from frazil.repository.session.session import Session
from frazil.repository.settings.config import VirtualChunkContainer
from frazil.storage.access import environment_access
from frazil.storage.urls import parse_url

#: The number of files that are tried until one can be read.
_TRIED: Final = 100
#: The number of bad files that the metadata of the commit name. The ledger of the group has all of them.
_NAMED: Final = 100
#: The number of times that an ingest is planned if other sessions commit to its arrays meanwhile.
_TRIES: Final = 4
#: The key of the record of an ingest in the metadata of its commit.
INGEST: Final = "frazil_ingest"


@dataclass(frozen=True, slots=True)
class GroupDimensions:
    """The dimension in which a group grew, and the names of all its dimensions with labels.

    ``from_nothing``: the group has no arrays yet, and more files may follow a first single file.
    """

    concat_dim: str | None = None
    dims: frozenset[str] = frozenset()
    from_nothing: bool = False


def dimension(request: IngestRequest, growth: GroupDimensions) -> str | None:
    """Return the dimension that the first readable file has; None if that file does not decide it."""
    files = request.files
    if files.concat_dim is not None:
        return files.concat_dim
    for url in files.urls[:_TRIED]:
        try:
            with request.access.open(url) as reader:
                schema = reader.schema()
                break
        except IcechunkError:
            continue
    else:
        return None
    scalars = {name for name, each in schema.variables.items() if not each.dims}
    if growth.concat_dim is not None and growth.concat_dim in scalars | schema.dims.keys():
        return growth.concat_dim
    times = [name for name in schema.coords if is_time(schema.variables[name].attrs.get("units"))]
    for names in (sorted(growth.dims & scalars), sorted(schema.unlimited), times):
        if len(names) == 1:
            return names[0]
    if len(files.urls) > 1 and (schema.unlimited or times):
        several = sorted({*schema.unlimited, *times})
        raise InvalidInputError(
            f"files can follow each other in several dimensions, {', '.join(several)}, as in {schema.url}"
        ).with_remedy("Choose one with {}", argument(concat_dim=several[0]))
    return scalar_time(schema.variables) if growth.from_nothing and len(files.urls) == 1 else None


def inspect_request(
    request: IngestRequest, engine: Engine, growth: GroupDimensions, known: KnownFiles | None = None
) -> Inspection:
    """Inspect the files along the dimension in which they follow each other.

    If their labels are equal, they may follow each other in a scalar, and are inspected again along it. Files
    that are ``known`` and have not changed are not opened.
    """
    dim = request.concat_dim or request.files.concat_dim
    if dim is None and known is not None and known.unchanged.all():
        dim = growth.concat_dim
    dim = dim or dimension(request, growth)
    widens = "dtype" in request.allow
    names, groups = request.variables, request.groups or {}
    spec = InspectionSpec(request.access, dim, request.virtual, names, widens, request.grow, groups)
    inspection = inspect_all(request.files, spec, engine, known=known, progress=request.progress)
    if dim is None or dim in (request.concat_dim, request.files.concat_dim, growth.concat_dim):
        return inspection
    scalar = scalar_instead(inspection, dim)
    if scalar is None:
        return inspection
    spec = replace(spec, dim=scalar)
    return inspect_all(request.files, spec, engine, known=known, progress=request.progress)


def inspect_for_new_group(request: IngestRequest) -> Inspection:
    """Inspect files for a group that does not exist yet, and raise the errors that its ingest would raise."""
    inspection = inspect_request(request, engine_of(request.engine), _growth_from_nothing(request.mode))
    if problems := inspection_report(request, inspection).fatal():
        raise refusal(problems, len(inspection.urls))
    if request.virtual and not request.containers:
        raise without_container(parse_url(inspection.urls[0]).chunk_location, inspection.urls[0])
    return inspection


def inspection_report(request: IngestRequest, inspection: Inspection, unchanged: int = 0) -> Report:
    """Return the report on files that are compared with each other, but not with a group."""
    reports: dict[str, Report] = {}
    for path in ("", *(request.groups or {})):
        files = inspection.in_group(path)
        dataset = Dataset.reconcile(inspection, unpack=request.unpack, only=files, allow=request.allow)
        gaps = dataset.holes(dataset.steps.axis)
        problems = dataset.problems + gaps + notes(dataset, files)
        reports[path] = Report(dataset, tuple(problems if path else [*inspection.problems, *problems]))
    return replace(joined_report(reports), unchanged=unchanged)


def _growth_from_nothing(mode: Mode) -> GroupDimensions:
    return GroupDimensions(from_nothing=mode not in ("create", "insert"))


def with_containers(
    repo: Repository, containers: Sequence[VirtualChunkContainer], *, save: bool = True
) -> Repository:
    """Return the repository with these containers in its saved configuration, authorized for this process.

    Without ``save``, only the handle has them.
    """
    config = repo.config
    saved = config.virtual_chunk_containers or {}
    has_new = any(saved.get(each.url_prefix) != each for each in containers)
    for each in containers:
        config.set_virtual_chunk_container(each)
    # The caller names the server of each container, so it may get the credentials of the environment, unless
    # the repository was opened with other credentials for this prefix.
    granted = {each.url_prefix: environment_access(each.url_prefix) for each in containers}
    repo = repo.reopen(config, authorize_virtual_chunk_access={**granted, **repo.virtual_chunk_access})
    if has_new and save:
        repo.save_config()
    return repo


@dataclass(frozen=True, slots=True, repr=False)
class IngestResult(JobResult):
    """The result of `ingest`: the result of its job, and the report on the files.

    Attributes:
        report: The `Report` on the files, with all problems and notes.
    """

    report: Report | None = None

    shown_as: ClassVar[str] = "pipeline.IngestResult"

    @property
    def quarantined(self) -> tuple[str, ...]:
        """The URLs of the files that the ingest left out because of problems."""
        return () if self.report is None else self.report.bad

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield from JobResult._rows(self)
        if self.report is not None:
            yield from self.report.outline()

    def _details(self) -> Iterable[tuple[str, Shown]]:
        yield from JobResult._details(self)
        if self.report is not None:
            yield from self.report.details()


@with_options(InspectionOptions, IngestRequest)
def inspect_files(
    source: Files,
    *,
    concat_dim: str | None = None,
    variables: Collection[str] | None = None,
    virtual: bool = False,
    **options: Unpack[InspectionOptions],
) -> Report:
    """Inspect files, and report their contents and their problems. Nothing is written.

    The report compares the files with each other, not with a group of a repository.

    Args:
        source: The files: a glob, a path or URL, a list of these, or a `FilePattern`.
        concat_dim: The dimension in which files follow each other. None: found as `ingest` finds it.
        variables: The names of the data variables to inspect. None: all.
        virtual: Whether to check the files for an ingest of references.
        format: The format of all files, such as ``"hdf5"`` or ``"grib"``. None: detected for each file.
        source_group: The path of the group in the files. Default: the root group ``"/"``.
        storage_options: Options of the storage of the files, such as ``region`` or ``anonymous``.
        reader_options: Options of the reader of the format, such as ``filter_by_keys`` for GRIB.
        compound: For HDF5 variables of compound types: ``"skip"`` (default) or ``"fields"``; see `ingest`.
        rename: New names of variables and dimensions, by their names in the files; see `ingest`.
        dates: New coordinates from the names of files, or from attributes; see `ingest`.
        convert: The units of variables; see `ingest`.
        preprocess: A function of the dataset of a file, or of the file; see `ingest`.
        grow: Dimensions with labels that files have in any order and in part; see `ingest`.
        groups: Rules for other groups: files are compared with those of their group; see `ingest`.
        allow: Kinds of problems that are tolerated; see `ingest`. Default: none.
        unpack: Whether the ingest would store unpacked values: then files may have different packing.
        engine: The engine of the tasks: an `Engine`, or "inline", "threads", "processes", "spark", "sail".
            None: `default_engine()`.
        progress: A `Progress` that shows the inspection.

    Returns:
        The `Report`: ``problems`` lists all problems, ``table()`` has one row for each file.

    Raises:
        InvalidInputError: ``key-not-found`` if no file matches, ``invalid-argument`` if several dimensions
            are possible or no file has one of ``variables``, ``unknown-choice`` for a value of ``allow``
            that cannot be tolerated. Problems of files are in the report and are not raised.
        MissingExtraError: If the library that reads the format of a file is not installed.

    Examples:
        >>> import xarray
        >>> from frazil.pipeline import inspect_files
        >>> for day in (0, 1):
        ...     data = xarray.Dataset({"t": ("time", [280.0 + day])}, {"time": [day]})
        ...     data.to_netcdf(f"day_{day}.nc", engine="h5netcdf", unlimited_dims=["time"])
        >>> report = inspect_files("day_*.nc", engine="inline")
        >>> report.concat_dim, report.problems, report.table()["last"].to_pylist()
        ('time', (), ['0', '1'])
    """
    request = IngestRequest(source, concat_dim, variables=variables, virtual=virtual, **options)
    return inspection_report(request, inspect_request(request, engine_of(request.engine), GroupDimensions()))


@takes_versions
@with_options(IngestOptions, IngestRequest)
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
    """Write many files into one dataset, in one commit.

    `xarray.open_zarr` of the dataset returns the same as `xarray.open_mfdataset` of the files. Files with the
    same data variables follow each other along ``concat_dim``, in the order of its labels. Files with other
    data variables are merged. All files are inspected before anything is written. Files that the group
    already contains are not read again if they have not changed.

    If another session commits to the same arrays meanwhile, the ingest is planned and run again on top of
    that commit, at most three times.

    Args:
        source: The files: a glob, a path or URL, a list of these, or a `FilePattern`.
        to: The `Target` (repository, branch and group), or a `Repository`: its branch ``main`` and its
            root group.
        concat_dim: The dimension in which files follow each other. None: the dimension of the group, or the
            dimension of the files that is unlimited or a time, or the scalar coordinate that differs from
            file to file. A single file gets no new dimension: name ``concat_dim`` if other files will follow.
        mode: Which labels of the files the group may already have. ``"create"`` (default): the group has
            none of the arrays. ``"append"``: all labels of the files are new, and after those of the group.
            ``"insert"``: the group has all labels. ``"upsert"``: the group has some labels, and the others
            are after those of the group. ``"backfill"``: any labels; new labels go to their place in the
            order. The values of labels that the group has are replaced. All modes except ``"insert"``
            create missing arrays.
        variables: The names of the data variables to ingest. None: all.
        virtual: If True, data stay in the files. Arrays get references to the bytes in the files, with their
            codecs. Coordinates are copied. Texts that references cannot reach, as in HDF5, are copied too,
            if they have at most 1 MiB in a file and not the concat dimension. The repository needs a virtual
            chunk container for the files.
        format: The format of all files, such as ``"hdf5"`` or ``"grib"``. None: detected for each file.
        source_group: The path of the group in the files. Default: the root group ``"/"``. The group in the
            repository is that of ``to``.
        storage_options: Options of the storage of the files, such as ``region`` or ``anonymous``.
        reader_options: Options of the reader of the format, such as ``filter_by_keys`` for GRIB.
        compound: What becomes of HDF5 variables of compound types. ``"skip"`` (default) leaves them out with
            a note. ``"fields"`` makes an array of each field: the field ``speed`` of ``wind`` becomes
            ``wind_speed``, with the attributes of ``wind``.
        rename: New names of variables and dimensions, by their names in the files: ``{"T2": "t2m"}``. A name
            that a file does not have is ignored, so files with old and with new names are one dataset.
            Attributes such as ``coordinates`` get the new names, too. All other arguments use the new names.
        dates: Times that files do not have, by the name of the coordinate. The value is a pattern of names of
            files with codes of ``strptime``, ``*`` and ``?``, or ``"attribute:NAME"`` with an optional
            format. The first time is a dimension of all data.
        convert: The units of variables, by name, in the forms of UDUNITS. Files with other units are
            converted to them. Packed numbers stay, and get another scale and offset.
        preprocess: A function that gets the `xarray.Dataset` of a file, and returns another one; or a
            function of two paths, which reads the first file, and writes the second one.
        engine: The engine of the tasks: an `Engine`, or "inline", "threads", "processes", "spark", "sail".
            None: `default_engine()`.
        job_id: The id of the job. A second call with the same id continues an interrupted ingest, or
            returns the result of a committed one. None: derived from the files and the options.
        message: The message of the commit. None: ``"ingest N files"``.
        progress: A `Progress` that shows the inspection and the tasks.
        chunks: Chunk sizes of new arrays by dimension, in elements; -1 is the whole dimension. None: chunks
            of 1 to 64 MiB that end where files end. ``report.chunks`` has the chosen chunks.
        encoding: Arguments of ``zarr.create_array`` for new arrays, by variable: ``chunks``, ``shards``,
            ``compressors``, ``filters``, ``serializer``.
        containers: Virtual chunk containers for the files. They are added to the configuration of the
            repository, and the handle of ``to`` may read them from then on.
        on_problem: ``"fail"`` (default) raises before anything is written. ``"skip"`` leaves out files with
            problems. ``"quarantine"`` leaves them out and does not open them again until they change.
        on_change: For files that were ingested before, and have other contents now. ``"fail"`` (default)
            treats each one as a problem, ``"ignore"`` keeps the stored values, ``"rewrite"`` replaces them.
        allow: Kinds of problems that are tolerated: ``"hole"`` (the gap stays), ``"overlap"`` and
            ``"duplicate"`` (the step of the later file is taken), ``"unordered"`` (steps keep the order of
            their file), ``"values"`` (the values of the first file, or of the repository, stay),
            ``"variables"`` (a variable is missing where files do not have it), ``"dtype"`` (the array gets
            the smallest dtype that holds the values of all files). Default: none.
        grow: Dimensions with labels, such as stations, that files have in any order and in part. New labels
            come after the labels of the group.
        groups: Rules by the absolute paths of other groups: ``{"/coarse": {"lat": 90}}``. A file that fulfils
            all conditions of a rule goes into its group, and not into that of ``to``. The keys of a condition
            are ``calendar``, a dimension (its length), ``file`` (a pattern of its name), or an attribute of
            the file. The first rule that a file fulfils counts.
        unpack: If True, stores the values of packed data instead of packed numbers. Then each file may have
            its own scale and offset.
        refresh: If True, the commit also has the derived arrays of the branch, computed from the new data
            (`frazil.pipeline.refresh`). A derived array that somebody has changed is an error.

    Returns:
        The `IngestResult`: ``version`` is the new version, ``report`` the report on the files,
        ``quarantined`` the files that were left out.

    Raises:
        InvalidInputError: ``bad-source`` for problems in files, ``unknown-choice`` for a value that an option
            does not have, ``key-not-found`` if no file matches, ``invalid-chunk-index`` for labels that the
            mode does not allow, ``invalid-array-metadata`` for files that do not fit the arrays of the group,
            ``no-container-for-virtual-chunk`` if ``virtual`` is True and no container has the files,
            ``invalid-argument`` for other options.
        AlreadyExistsError: If ``mode`` is ``"create"`` and the group has one of the arrays.
        MissingExtraError: If the library that reads the format of a file is not installed.
        TaskFailedError: If a task fails in all its attempts, or a file changes during the ingest.
        RebaseFailedError: If other sessions committed to the same arrays during all four attempts.

    Examples:
        >>> import frazil, xarray
        >>> from frazil.pipeline import ingest
        >>> for day in (0, 1):
        ...     data = xarray.Dataset({"t": ("time", [280.0 + day])}, {"time": [day]})
        ...     data.to_netcdf(f"day_{day}.nc", engine="h5netcdf", unlimited_dims=["time"])
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> result = ingest("day_*.nc", repo, engine="inline")
        >>> xarray.open_zarr(result.version.session().store, consolidated=False).t.values.tolist()
        [280.0, 281.0]
    """
    request = IngestRequest(source, concat_dim, mode, variables, virtual, **options)
    return run_ingest(request, to if isinstance(to, Target) else Target(to))


def load_ledgers(
    request: IngestRequest, session: Session, group: str, *, again: bool = False
) -> dict[str, Ledger]:
    """Return the ledgers of the group of a request, which is the first one, and of the groups of its rules.

    ``again``: the ledgers say that none of the files is ingested.
    """
    paths = dict.fromkeys((group, *(request.groups or {})))
    ledgers = {path: load_ledger(session, path) for path in paths}
    urls = request.files.urls if again else ()
    return {path: each.without(urls) for path, each in ledgers.items()} if again else ledgers


def inspect_for_group(
    request: IngestRequest, session: Session, group: str, *, again: bool = False
) -> tuple[Inspection, dict[str, Ledger]]:
    """Inspect the files of a request for a group of a session, and return its ledgers, too.

    ``again`` opens files that the group contains, too: see `load_ledgers`.
    """
    ledgers = load_ledgers(request, session, group, again=again)
    existing = None if request.mode == "create" else ExistingGroup(session, group)
    growth = _growth_from_nothing(request.mode)
    if existing is not None and existing.arrays:
        labelled = (name for name, each in existing.arrays.items() if dims_of(each) == (name,))
        growth = GroupDimensions(ledgers[group].concat_dim, frozenset(labelled))
    known = known_files(request, ledgers.values())
    return inspect_request(request, engine_of(request.engine), growth, known), ledgers


def run_ingest(
    request: IngestRequest, target: Target, inspection: Inspection | None = None, *, again: bool = False
) -> IngestResult:
    """Run `ingest` for a request, and inspect its files unless the caller passes their ``inspection``.

    ``again`` reads files that the group contains, too.
    """
    engine = engine_of(request.engine)
    session = target.repo.readonly_session(target.branch)
    if inspection is None:
        inspection, ledgers = inspect_for_group(request, session, target.group, again=again)
    else:
        ledgers = load_ledgers(request, session, target.group, again=again)
    files, caller_repo = inspection, target.repo
    if request.containers:
        target = replace(target, repo=with_containers(caller_repo, request.containers))
    reports: list[Report] = []
    metadata: dict[str, Any] = {}

    def prepare(job_session: Session) -> Tasks:
        is_same = job_session.snapshot_id == session.snapshot_id and not job_session.has_uncommitted_changes
        before = ledgers if is_same else load_ledgers(request, job_session, target.group, again=again)
        tasks, report, metadata[INGEST] = plan_groups(job_session, request, files, before)
        reports.append(report)
        return tasks

    count = len(files.urls)
    chain = RefreshChain.of(target, request.engine) if request.refresh else None
    job = Job(
        "ingest",
        target,
        prepare,
        run_item,
        parameters=request.parameters(files.dim),
        inputs=(Input("files", None, "", (f"{count} files", *files.files.names([0])), files.digest),),
        writes=tuple(ledgers),
        message=request.message or f"ingest {count} file{'' if count == 1 else 's'}",
        metadata=metadata,
        id=request.job_id,
        finish=None if chain is None else chain.finish,
        phases=() if chain is None else chain,
    )
    for remaining in reversed(range(_TRIES)):
        try:
            result = run_job(job, engine, progress=request.progress)
            break
        # Another session wrote to these arrays, or to the labels that decide the positions of data.
        except RebaseFailedError:
            if not remaining:
                raise
    if request.containers:
        # The caller's own handle has to read the references too.
        caller_repo.reconfigure(target.repo.config, target.repo.virtual_chunk_access)
    # Without a report, an earlier run committed the job: no plan was made.
    report = reports[-1] if reports else inspection_report(request, files, count)
    return IngestResult(
        **{each.name: getattr(result, each.name) for each in fields(JobResult)}, report=report
    )


def _files_of_groups(
    request: IngestRequest, inspection: Inspection, ledgers: Mapping[str, Ledger]
) -> dict[str, NDArray[np.bool_]]:
    """Return a mask of the files of each group. Files that are not opened are in the group that has them."""
    masks: dict[str, NDArray[np.bool_]] = {}
    rest, unopened = np.ones(len(inspection.urls), np.bool_), inspection.layout < 0
    for path in request.groups or {}:
        masks[path] = inspection.in_group(path) | (unopened & (ledgers[path].rows_of(inspection.urls) >= 0))
        masks[path] &= rest
        rest &= ~masks[path]
    first = next(iter(ledgers))
    return masks | {first: rest | masks.get(first, False)}


def match_files(
    request: IngestRequest, inspection: Inspection, ledgers: Mapping[str, Ledger], session: Session
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of the unchanged and of the changed files of all groups: see `match_ledger`."""
    among = _files_of_groups(request, inspection, ledgers)
    masks = [
        match_ledger(request, inspection, ledger, ExistingGroup(session, path), among[path])
        for path, ledger in ledgers.items()
    ]
    unchanged, changed, _ = (np.any(columns, axis=0) for columns in zip(*masks, strict=True))
    return unchanged, changed


def plan_groups(
    session: Session, request: IngestRequest, inspection: Inspection, ledgers: Mapping[str, Ledger]
) -> tuple[Tasks, Report, dict[str, Any]]:
    """Return the tasks, the report and the metadata of `plan_ingest` for all groups of a request."""
    among = _files_of_groups(request, inspection, ledgers)
    plans = {
        path: plan_ingest(session, request, inspection, path, ledger, among[path])
        for path, ledger in ledgers.items()
    }
    (_, _, metadata), *others = plans.values()
    if others:
        metadata["groups"] = {path: each for path, (_, _, each) in list(plans.items())[1:]}
    report = joined_report({path: report for path, (_, report, _) in plans.items()})
    return joined_tasks([tasks for tasks, _, _ in plans.values()]), report, metadata


def plan_ingest(
    session: Session,
    request: IngestRequest,
    inspection: Inspection,
    group: str,
    ledger: Ledger,
    among: NDArray[np.bool_] | None = None,
) -> tuple[Tasks, Report, dict[str, Any]]:
    """Return the tasks of an ingest into a group, the report on its files, and the metadata of its commit.

    ``among`` is a mask of the files of the group, None for all. Compares the files with each other and with
    the group, creates and resizes arrays, writes the labels and the ledger, and divides the remaining work
    into items.
    """
    existing = ExistingGroup(session, group)
    among = np.ones(len(inspection.urls), np.bool_) if among is None else among
    unchanged, changed, touched = match_ledger(request, inspection, ledger, existing, among)
    dataset = Dataset.reconcile(
        inspection,
        unpack=request.unpack,
        only=among & ~unchanged & ((request.on_change == "rewrite") | ~changed),
        allow=request.allow,
        stored=existing.stored_variables(),
    )
    change = GroupChange(request, dataset, existing)
    change.axis, gaps = plan_axis(change, changed)
    relevant = set(inspection.chosen_urls(among & ~unchanged))
    why = "was ingested with " + (
        "another `preprocess`" if ledger.has_other_function(request) else "other contents"
    )
    problems = [each for each in inspection.problems if each.url in relevant] + dataset.problems
    for mask, text in (
        (changed & ~touched, why),
        (touched, "has the size and both ends of an ingested file, but another modification time"),
    ):
        fatal = request.on_change == "fail"
        if request.on_change != "rewrite":
            problems += [Problem("changed", text, url, fatal) for url in inspection.chosen_urls(mask)]
    accepted, axis = dataset.members, change.axis
    if axis is not None and (changed & accepted).any():
        left = ledger.labels_left(inspection, accepted, axis.length - len(axis.old))
        text = (
            f"{counted(left, 'label')} of {dataset.dim} that changed files had before stay, with their values"
        )
        problems += [Problem("stale", text, fatal=False)] * bool(left)
    report = Report(dataset, (*problems, *gaps, *notes(dataset, among)), int(unchanged.sum()))
    rejected = among & ~accepted & ~unchanged & ~changed
    if request.on_problem == "fail":
        left_out = (Problem("target", "would be left out", url) for url in inspection.chosen_urls(rejected))
        if fatal_problems := report.fatal() or tuple(left_out):  # a commit never leaves out a file silently
            raise refusal(fatal_problems, len(inspection.urls))
    policy = "quarantined" if request.on_problem == "quarantine" else "skipped"
    names = list(inspection.files.names(np.flatnonzero(rejected)[:_NAMED].tolist()))
    metadata: dict[str, Any] = {
        "mode": request.mode,
        "files": int(accepted.sum()),
        "unchanged": report.unchanged,
        "bytes": int(inspection.size[accepted].sum()),
        "digest": inspection.digest,
        policy: {"files": int(rejected.sum()), "names": names},
    }
    tasks = Tasks([])
    if dataset.families:
        tasks = plan_tasks(change)
        targets = [each.target for each in tasks.shared.arrays]
        chunks = (
            ChosenChunks(each.path, each.chunks, each.chunk_bytes, each.chunk_reason)
            for each in targets
            if each.chunk_reason and each.shape  # only new arrays of data have a reason
        )
        wider = tuple(
            Problem("dtype", f"`{each.target.path}` gets {each.target.dtype}, in all chunks", fatal=False)
            for each in tasks.shared.arrays
            if each.stored is not None
        )
        report = replace(report, chunks=tuple(chunks), problems=(*report.problems, *wider))
    if changes := [each.message for each in report.problems if each.kind in CHANGES and not each.fatal]:
        metadata["changes"] = changes[:_NAMED]
    recorded = accepted | (rejected & (request.on_problem == "quarantine"))
    if recorded.any():
        save_ledger(session, group, ledger, ledger.after(request, dataset, recorded, rejected, unchanged))
    return tasks, report, metadata

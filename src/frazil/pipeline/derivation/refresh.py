"""The states of derived arrays, and the refresh of those that are behind their sources, in one commit."""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, Unpack, get_args

import numpy as np

from frazil import host
from frazil.arguments import require_choice
from frazil.display import Shown, counted
from frazil.errors import IcechunkError, InvalidInputError, RebaseFailedError, SessionStateError
from frazil.format.ids import NODE_ID_BYTES, id_from_text, id_keys, id_matrix
from frazil.handle.repository import Repository
from frazil.jobs.engine import Engine, EngineName, engine_of
from frazil.jobs.job import (
    MANIFESTS_ON_EXECUTORS_ABOVE,
    BoundedRunOptions,
    Job,
    JobResult,
    Metrics,
    Phase,
    Source,
    Target,
    Tasks,
    Version,
    takes_versions,
    with_options,
)
from frazil.jobs.job_run import run_with_options
from frazil.jobs.progress import Summary, brief, size
from frazil.jobs.task_rounds import Rounds
from frazil.maintenance.plan import UpkeepPlan
from frazil.pipeline.derivation.definition import Definition, fields_from_json, is_node_id
from frazil.pipeline.derivation.digest_table import ChunkHashes
from frazil.pipeline.derivation.operation import (
    ArrayOperation,
    BlockPlan,
    BlockRun,
    ResultState,
    ResultTarget,
    SourceView,
    owner_of,
)
from frazil.pipeline.reductions import anomalies, functions
from frazil.pipeline.transform import block_functions, coarsening, programs, rechunking, regridding, selection
from frazil.pipeline.transform.arrays import TABLES, ArrayInfo, array_info, coordinate_paths, names_of
from frazil.pipeline.transform.block_job import compute_blocks
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session, scratch_session

#: The modules whose operations a definition may name.
OPERATION_MODULES: Final = (
    *(anomalies, functions),
    *(block_functions, coarsening, programs, rechunking, regridding, selection),
)
_LAYOUT: Final = ("chunk_grid", "codecs")
_ATTEMPTS: Final = 3
_log = logging.getLogger(__name__)

type Mode = Literal["auto", "strict", "full"]
type Edits = Literal["refuse", "overwrite"]


class DerivedState(StrEnum):
    """The state of a derived array.

    Examples:
        >>> DerivedState.CURRENT == "current"
        True
    """

    #: The array is what the operation makes of the present sources.
    CURRENT = "current"
    #: The sources have changed.
    BEHIND = "behind"
    #: Somebody has changed the array since it was computed.
    EDITED = "edited"
    #: The array cannot be computed from its definition.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, repr=False)
class DerivedArray(Summary):
    """A derived array, and what a refresh would compute of it.

    Attributes:
        path: The path of the array.
        operation: The name of the operation.
        sources: The paths of the arrays that the operation reads.
        snapshot: The id of the snapshot that was read last.
        state: The state.
        chunks: The number of chunks that a refresh computes.
        of_chunks: The number of chunks of the array.
        bytes_read: The stored bytes of the chunks of sources that a refresh reads for them.
        reason: Why the array is broken, or why a refresh computes all of it; empty otherwise.
    """

    path: str
    operation: str
    sources: tuple[str, ...]
    snapshot: str
    state: DerivedState
    chunks: int = 0
    of_chunks: int = 0
    bytes_read: int = 0
    reason: str = ""

    shown_as: ClassVar[str] = "pipeline.DerivedArray"

    def row(self) -> str:
        """Return the state and the work as text.

        Returns:
            One line, such as ``"behind, 1 of 731 chunks, reads 64.8 kB"``.

        Examples:
            >>> from frazil.pipeline import DerivedArray, DerivedState
            >>> DerivedArray("/half/t", "coarsen", ("/t",), "", DerivedState.BEHIND, 1, 731, 64_800).row()
            'behind, 1 of 731 chunks, reads 64.8 kB'
        """
        work = f", {self.chunks:,} of {counted(self.of_chunks, 'chunk')}, reads {size(self.bytes_read)}"
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.state}{work if self.chunks else ''}{reason}"


@dataclass(frozen=True, slots=True, repr=False)
class DerivedArrays(Summary):
    """The derived arrays of a version, in the order in which a refresh computes them.

    Attributes:
        arrays: The arrays.

    Examples:
        >>> import frazil
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> frazil.pipeline.derived(repo).is_current
        True
    """

    arrays: tuple[DerivedArray, ...]

    shown_as: ClassVar[str] = "pipeline.DerivedArrays"

    @property
    def is_current(self) -> bool:
        """Whether all arrays are current."""
        return all(each.state == DerivedState.CURRENT for each in self.arrays)

    def of(self, path: str) -> DerivedArray:
        """Return the array at a path.

        Args:
            path: The path of the array.

        Returns:
            The array.

        Raises:
            InvalidInputError: The array is not derived.

        Examples:
            >>> from frazil.pipeline import DerivedArray, DerivedArrays, DerivedState
            >>> row = DerivedArray("/half/t", "coarsen", ("/t",), "", DerivedState.CURRENT)
            >>> DerivedArrays((row,)).of("half/t").state
            <DerivedState.CURRENT: 'current'>
        """
        for each in self.arrays:
            if each.path == absolute(path):
                return each
        raise InvalidInputError(f"`{absolute(path)}` must be a derived array, got one without a definition")

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "arrays", counted(len(self.arrays), "derived array")
        yield from ((each.path, brief(f"{each.operation}: {each.row()}")) for each in self.arrays)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """The results of one call of an operation: the path below the target -> the present path.

    ``states`` are the paths of states, and those of their tables.
    """

    definition: Definition
    outputs: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What distinguishes the call from others: the first path of its results."""
        return min(self.outputs.values())

    def place_of(self, path: str) -> str:
        """Return the path below the target of a result, from its path in the first run."""
        return path.removeprefix(self.definition.target.rstrip("/"))

    @property
    def group(self) -> str | None:
        """The group that has all results below it, as the target had; None if they were moved apart."""
        groups = {
            path.removesuffix(place) if path.endswith(place) else None for place, path in self.outputs.items()
        }
        first = next(iter(groups))
        return None if len(groups) != 1 or first is None else first or "/"


@functools.lru_cache(256)
def _table_entry(document: bytes) -> tuple[str, Definition, str] | None:
    """Return the place, the definition and its id from the ``zarr.json`` of a table; None for others."""
    attributes = json.loads(document).get("attributes") or {}
    definition = Definition.parse(attributes)
    return None if definition is None else (str(attributes.get("place")), definition, definition.id)


def all_calls(session: Session) -> tuple[list[_Call], list[str]]:
    """Return the calls with results, and the paths of tables and states without a result."""
    nodes = session.workspace.node_table()
    all_paths, calls, orphans = nodes.paths_list(), dict[tuple[str, str, int], _Call](), list[str]()
    turns = Counter[tuple[str, str, str]]()
    rows = np.arange(len(nodes))[nodes.below(TABLES)]
    names = [all_paths[row].rpartition("/")[2] for row in rows.tolist()]
    ids = id_matrix([id_from_text(name, NODE_ID_BYTES) for name in names if is_node_id(name)], NODE_ID_BYTES)
    owners = np.flatnonzero(np.isin(id_keys(nodes.ids), id_keys(ids))).tolist()
    by_id = {bytes(nodes.ids[row]): all_paths[row] for row in owners}
    tables = list[tuple[str, str, str, Definition, str]]()
    for row in rows[nodes.is_array[rows]].tolist():
        table, entry = all_paths[row], _table_entry(nodes.user_data.bytes(row))
        node = table.rpartition("/")[2]
        path = by_id.get(id_from_text(node, NODE_ID_BYTES)) if is_node_id(node) else None
        if entry is not None and path is not None:
            tables.append((path, table, *entry))
        elif entry is not None:
            orphans.append(table)
    # Results of one call are in one group, unless they were moved apart.
    for path, table, place, definition, id_ in sorted(tables, key=lambda each: each[0].removesuffix(each[2])):
        is_result = owner_of(path) is None
        # The same call may run again after its results were moved.
        turn = turns[id_, definition.target, place] if is_result else 0
        turns[id_, definition.target, place] += is_result
        call = calls.setdefault((id_, definition.target, turn), _Call(definition))
        if is_result:
            call.outputs[place] = path
        else:
            call.states[path] = table
    for call in calls.values():
        for path, table in call.states.items():
            if call.place_of(owner_of(path) or "") not in call.outputs:
                orphans += [path, table]
    return [call for call in calls.values() if call.outputs], orphans


def definitions(session: Session) -> list[tuple[Definition, tuple[str, ...]]]:
    """Return the definitions of the derived arrays of a session, each with the present paths of results."""
    return [(call.definition, tuple(call.outputs.values())) for call in all_calls(session)[0]]


def _calls(session: Session, paths: Sequence[str] | None) -> list[_Call]:
    """Return the calls with results at ``paths``, and those that these depend on, sources first."""
    calls, _ = all_calls(session)
    makers = {path: call for call in calls for path in call.outputs.values()}
    ordered: dict[int, _Call] = {}

    def add(call: _Call, above: tuple[_Call, ...] = ()) -> None:
        if id(call) in ordered or call in above:
            return
        for source in call.definition.sources:
            maker = makers.get(source.path_in(session) or "")
            if maker is not None:
                add(maker, (*above, call))
        ordered[id(call)] = call

    for path in paths or ():
        session.workspace.require_node(absolute(path))
    prefixes = None if paths is None else {absolute(path).rstrip("/") for path in paths}
    for path in sorted(makers):
        if prefixes is None or any(f"{path}/".startswith(f"{each}/") for each in prefixes):
            add(makers[path])
    return list(ordered.values())


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh does: where, of which arrays, and how."""

    target: Target
    paths: tuple[str, ...] | None
    mode: Mode
    edits: Edits
    options: BoundedRunOptions

    def run_of(self, session: Session, call: _Call, hashes: ChunkHashes | None = None) -> BlockRun:
        """Return the run of a call on the present sources. With ``hashes`` it only plans.

        Raises ``IcechunkError`` if the definition does not fit any more.
        """
        definition = call.definition
        kind = ArrayOperation.kinds.get(definition.operation)
        if kind is None:
            raise InvalidInputError(
                f"the operation must be one that this version of Frazil has, got {definition.operation!r}"
            )
        arguments = fields_from_json(definition.arguments)
        now, first_paths = dict[str, str](), dict[str, str]()
        for source in definition.sources:
            path = source.path_in(session)
            if path is None:
                raise InvalidInputError(f"the source `{source.path}` must exist, got no array at this path")
            now[source.path], first_paths[path] = path, source.first_path
        try:
            operation = kind(**arguments)
        except TypeError as error:
            raise InvalidInputError(f"the arguments must be those of `{kind.name}`: {error}") from error
        paths = tuple(now.get(absolute(path), path) for path in operation.paths)
        operation = replace(operation, paths=paths)
        group = call.group or definition.target
        place = self.target.repo, self.target.branch, group
        to = ResultTarget(*place, call.outputs, first_paths, definition.target)
        version = Version(to.repo, session.snapshot_id, to.branch)
        view = SourceView(version, session, is_refresh=True, first_paths=first_paths)
        plan = _existing(call, operation.plan(view, to, self.options), session)
        run = BlockRun(operation, plan, view, to, self.options.get("engine"))
        run.places = {path: place for place, path in call.outputs.items()}
        run.is_full = self.mode == "full"
        if hashes is not None:
            run.is_dry, run.hashes = True, {id(session): hashes}
        return run


def _existing(call: _Call, plan: BlockPlan, session: Session) -> BlockPlan:
    """Return a plan with the results that still exist, in the layout of the first run."""
    outputs, coordinates = plan.outputs, coordinate_paths(plan.inputs)
    results = {*call.outputs.values(), *(each.path for each in outputs.temporary)}

    def exists(path: str) -> bool:
        owner = owner_of(path)
        return path in results if owner is None else call.place_of(owner) in call.outputs

    def stays(path: str, *, is_coordinate: bool) -> bool:
        if not is_coordinate:
            return path in results
        return call.group is not None or session.workspace.is_array(path)

    computed = []
    for each in outputs.computed:
        # The first run may have taken over the chunks of a coordinate, which is no result then.
        is_label = each.old.path in coordinates and stays(each.new[0].path, is_coordinate=True)
        if is_label or all(exists(new.path) for new in each.new):
            new = tuple(_laid_out(session, one) for one in each.new)
            if any(one.grid != new[0].grid for one in new):  # some have another data type now
                new = each.new
            block = tuple(-(-n // step) * step for n, step in zip(each.block, new[0].grid, strict=True))
            computed.append(replace(each, new=new, block=block, unit=()))
    transferred = [
        each
        for each in outputs.transferred
        if stays(each.new.path, is_coordinate=each.old.path in coordinates)
    ]
    drivers = [each for each in outputs.coordinates if stays(each.new.path, is_coordinate=True)]
    outputs = replace(outputs, computed=computed, transferred=transferred, coordinates=drivers)
    return replace(plan, outputs=outputs)


def _laid_out(session: Session, array: ArrayInfo) -> ArrayInfo:
    """Return an array with the layout of the first run. A chunk may be as long as the array was then."""
    existing = array_info(session, array.path) if session.workspace.is_array(array.path) else array
    if existing.ndim != array.ndim or existing.document["data_type"] != array.document["data_type"]:
        return array
    if owner_of(array.path) is not None and existing.grid[:3] != array.grid[:3]:
        return array
    layout = {name: existing.document[name] for name in _LAYOUT}
    return ArrayInfo(array.path, {**array.document, **layout})


def _survey(version: Version, refresh: Refresh) -> tuple[tuple[DerivedArray, ...], dict[str, BlockRun]]:
    """Return the states of derived arrays, and the dry runs of their calls."""
    session = scratch_session(version.session())
    return preview(session, refresh, ChunkHashes(session))


def preview(
    session: Session, refresh: Refresh, hashes: ChunkHashes
) -> tuple[tuple[DerivedArray, ...], dict[str, BlockRun]]:
    """Return the states of the derived arrays of a session that nobody commits, and the dry runs of calls.

    ``hashes`` are those of the chunks of the session, also of chunks that do not exist yet.
    """
    rows, runs = list[DerivedArray](), dict[str, BlockRun]()
    for call in _calls(session, refresh.paths):
        definition = call.definition
        sources = tuple(source.path for source in definition.sources)
        snapshot = definition.sources[0].snapshot if definition.sources else ""
        results: dict[str, ResultState] = {}
        reason = "its operation has no such result any more"
        try:
            run = refresh.run_of(session, call, hashes)
            run.prepare(session)
            for number in range(1, run.rounds + 1):
                run.prepare_round(number, session, [])
            results, runs[call.key] = {each.path: each for each in run.results()}, run
        except (IcechunkError, ImportError) as error:
            reason = brief(str(error))
        for path in sorted(call.outputs.values()):
            row = DerivedArray(path, definition.operation, sources, snapshot, DerivedState.BROKEN)
            result = results.get(path)
            if result is None:
                # Coordinates of the results that it reads may have values only after their refresh.
                makers = {each.path for each in rows if each.state == DerivedState.BEHIND}
                is_behind = not makers.isdisjoint(each.path_in(session) for each in definition.sources)
                state = DerivedState.BEHIND if is_behind else DerivedState.BROKEN
                rows.append(replace(row, state=state, reason=reason))
                continue
            state = DerivedState.EDITED if result.is_edited else DerivedState.CURRENT
            if state == DerivedState.CURRENT and result.is_behind:
                state = DerivedState.BEHIND
            work = result.chunks, result.of_chunks, result.bytes_read, result.reason
            rows.append(DerivedArray(path, definition.operation, sources, snapshot, state, *work))
    return tuple(rows), runs


@takes_versions
def derived(source: Source, paths: Sequence[str] | None = None, *, branch: str = "main") -> DerivedArrays:
    """Return the derived arrays of a version: which are current, and what a refresh would compute.

    It reads references and metadata, and no chunks of the arrays.

    Args:
        source: A `Version`, or a `Repository` for the tip of ``branch``.
        paths: The paths of derived arrays, or of groups for all below them. The arrays that they are made
            from are included. The default, None, is all derived arrays.
        branch: The name of the branch. It is ignored if ``source`` is a version.

    Returns:
        The `DerivedArrays`.

    Raises:
        RefNotFoundError: The branch does not exist.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Target, coarsen, derived
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(
        ...         store, name="data/t", data=np.arange(4.0), dimension_names=["x"]
        ...     )
        >>> _ = coarsen(repo, ["data/t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
        >>> derived(repo).of("half/data/t").state
        <DerivedState.CURRENT: 'current'>
    """
    version = source if isinstance(source, Version) else Version.of(source, branch=branch)
    target = Target(version.repo, version.branch or branch)
    refresh = Refresh(target, None if paths is None else names_of(paths), "auto", "refuse", {})
    return DerivedArrays(_survey(version, refresh)[0])


@with_options(BoundedRunOptions)
@takes_versions
def refresh(
    repo: Repository,
    paths: Sequence[str] | None = None,
    *,
    branch: str = "main",
    mode: Mode = "auto",
    edits: Edits = "refuse",
    **options: Unpack[BoundedRunOptions],
) -> UpkeepPlan[DerivedArrays, JobResult]:
    """Plan the update of derived arrays that are behind their sources, all in one commit.

    The plan prints what would be computed, and `UpkeepPlan.apply` computes it. Only chunks of results whose
    inputs have changed are computed. A result that depends on another derived array is computed after it. The
    results are those of the operations from nothing.

    Args:
        repo: The repository.
        paths: The paths of derived arrays, or of groups for all below them. The arrays that they are made
            from are included. The default, None, is all derived arrays.
        branch: The branch that has the arrays.
        mode: ``"auto"`` computes what has changed; ``"strict"`` raises an error for an array that is behind
            and of which all chunks would be computed; ``"full"`` computes all chunks of all arrays.
        edits: What happens to results that somebody has changed: ``"refuse"`` raises an error,
            ``"overwrite"`` computes the changed chunks again.

    Returns:
        The plan: its ``report`` has the `DerivedArrays`, and ``apply()`` returns the `JobResult`.

    Raises:
        SessionStateError: ``not-allowed`` from ``apply()``: an array was edited, or with ``"strict"`` all of
            an array would be computed.
        RebaseFailedError: From ``apply()``: other sessions changed the same arrays again and again.
        RefNotFoundError: The branch does not exist.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Target, coarsen, derived, refresh
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(
        ...         store, name="data/t", data=np.arange(8.0), chunks=(2,), dimension_names=["x"]
        ...     )
        >>> _ = coarsen(repo, ["data/t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
        >>> with repo.transaction("main", message="a correction") as store:
        ...     zarr.open_array(store, path="data/t")[:2] = 5
        >>> plan = refresh(repo, engine="inline")
        >>> plan.report.of("half/data/t").chunks
        1
        >>> result = plan.apply()
        >>> zarr.open_array(result.version.session().store, path="half/data/t", mode="r")[:].tolist()
        [5.0, 2.5, 4.5, 6.5]
    """
    require_choice("mode", mode, get_args(Mode.__value__))
    require_choice("edits", edits, get_args(Edits.__value__))
    chosen = None if paths is None else names_of(paths)
    task = Refresh(Target(repo, branch), chosen, mode, edits, options)

    def preview() -> DerivedArrays:
        return DerivedArrays(_survey(Version.of(repo, branch=branch), task)[0])

    return UpkeepPlan("refresh", preview, functools.partial(_apply, task))


def refresh_session(
    session: Session,
    paths: Sequence[str] | None = None,
    *,
    edits: Edits = "refuse",
    engine: Engine | EngineName | None = None,
) -> Metrics:
    """Refresh derived arrays in a session that has new data: one commit of the caller has both.

    A derived array that cannot be computed stays behind, and a warning is logged. After an error, the session
    has a part of the results: discard its changes.

    Args:
        session: A writable session. The caller commits it.
        paths: The paths of derived arrays, or of groups for all below them, as in `refresh`.
        edits: What happens to results that somebody has changed, as in `refresh`.
        engine: The engine of the tasks: an `Engine`, or "inline", "threads", "processes", "spark", "sail".
            The default, None, is ``default_engine()``.

    Returns:
        The `Metrics` of the tasks.

    Raises:
        SessionStateError: ``not-allowed``: an array was edited, or the session is not writable.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Target, coarsen, derived, refresh_session
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="a row") as store:
        ...     row = zarr.create_array(
        ...         store, name="data/t", data=np.arange(8.0), chunks=(2,), dimension_names=["x"]
        ...     )
        >>> _ = coarsen(repo, ["data/t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
        >>> with repo.transaction("main", message="a correction") as store:
        ...     zarr.open_array(store, path="data/t")[:2] = 5
        ...     metrics = refresh_session(store.session, engine="inline")
        >>> metrics.chunks, derived(repo).is_current
        (1, True)
    """
    require_choice("edits", edits, get_args(Edits.__value__))
    session.require_writable()
    chosen = None if paths is None else names_of(paths)
    target = Target(Repository(session.workspace.context), session.branch or "")
    chain = RefreshChain(Refresh(target, chosen, "auto", edits, {"engine": engine}))
    started = host.monotonic_seconds()
    rounds = Rounds(session, None, engine_of(engine), None, MANIFESTS_ON_EXECUTORS_ABOVE)
    for phase in chain:
        rounds.run(phase.prepare, phase.work, [])
    rounds.on_driver(chain.finish, session, [])
    return rounds.metrics(host.monotonic_seconds() - started)


def _apply(task: Refresh) -> JobResult:
    """Refresh the arrays, again if other sessions change the same arrays."""
    for attempt in range(_ATTEMPTS):
        version = Version.of(task.target.repo, branch=task.target.branch)
        rows, runs = _survey(version, task)
        _require_allowed(rows, task)
        ends = {DerivedState.BROKEN} if task.mode == "full" else {DerivedState.BROKEN, DerivedState.CURRENT}
        changed = {row.path for row in rows if row.state not in ends}
        for run in runs.values():  # a dry run does not have the values of results before it
            changed |= {*run.places} if not changed.isdisjoint(run.view.first_paths) else set()
        writes = tuple(row.path for row in rows if row.path in changed and row.state != DerivedState.BROKEN)
        chain = RefreshChain(task, frozenset(writes), version.snapshot_id, runs)
        job = Job(
            "refresh",
            task.target,
            lambda session: Tasks([]),
            compute_blocks,
            chain.finish,
            {"snapshot": version.snapshot_id, "mode": task.mode, "edits": task.edits},
            (),
            writes or ("/",),
            phases=chain,
        )
        try:
            return run_with_options(job, task.options)
        except RebaseFailedError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("no end")


def _require_own(edited: Sequence[str]) -> None:
    """Raise ``SessionStateError`` for results that somebody has changed."""
    if edited:
        raise SessionStateError(
            f"a refresh must not replace changes of others, got `{edited[0]}`, which was changed after its "
            "computation. Pass edits='overwrite' (`frazil refresh --overwrite-edits`) to compute the changed "
            "chunks again, or `paths` without it"
        )


def _require_allowed(rows: Sequence[DerivedArray], task: Refresh) -> None:
    if task.edits == "refuse":
        _require_own([row.path for row in rows if row.state == DerivedState.EDITED])
    full = [row for row in rows if row.state == DerivedState.BEHIND and row.reason]
    if full and task.mode == "strict":
        raise SessionStateError(
            f"with mode='strict', a refresh must compute a part of each array, got `{full[0].path}`: "
            f"{full[0].reason}. Pass mode='auto'"
        )


@dataclass(slots=True, eq=False)
class RefreshChain:
    """The phases of a refresh: the rounds of one call after the other, on the results of those before.

    ``only`` are the results that change; None: all that can be computed. ``dry_runs`` are those of the calls
    on the version ``snapshot``.
    """

    task: Refresh
    only: frozenset[str] | None = None
    snapshot: str = ""
    dry_runs: Mapping[str, BlockRun] = field(default_factory=dict)
    calls: list[_Call] = field(default_factory=list)
    run: BlockRun | None = None

    @staticmethod
    def of(target: Target, engine: Engine | EngineName | None) -> RefreshChain:
        """Return the phases that follow those of another job, in the commit of that job."""
        return RefreshChain(Refresh(target, None, "auto", "refuse", {"engine": engine}))

    def __iter__(self) -> Iterator[Phase]:
        """Yield the phases. The number of rounds of a call is known when its first round is prepared."""
        self.calls, self.run = [], None
        yield Phase(self._find, compute_blocks)
        for call in self.calls:
            yield Phase(functools.partial(self._prepare, call), compute_blocks)
            rounds = 0 if self.run is None else self.run.rounds
            for number in range(1, rounds + 1):
                yield Phase(functools.partial(self._prepare_round, number), compute_blocks)

    def _find(self, session: Session, values: list[Any]) -> Tasks:
        calls = _calls(session, self.task.paths)
        only = self.only
        self.calls = [each for each in calls if only is None or not only.isdisjoint(each.outputs.values())]
        return Tasks([])

    def _prepare(self, call: _Call, session: Session, values: list[Any]) -> Tasks:
        self._finish_call(session, values)
        dry_run = self.dry_runs.get(call.key) if session.snapshot_id == self.snapshot else None
        try:
            # A call that reads results of other calls has other digests now.
            if dry_run is None or not (self.only or frozenset()).isdisjoint(dry_run.view.first_paths):
                run = self.task.run_of(session, call)
            else:
                run = dry_run.repeated(session)
        except IcechunkError as error:
            if self.only is not None:
                raise
            _log.warning("%s stays behind: %s", ", ".join(call.outputs.values()), error)
            return Tasks([])
        tasks = run.prepare(session)
        if self.task.edits == "refuse":
            _require_own([each.path for each in run.results() if each.is_edited])
        self.run = run
        return tasks

    def _prepare_round(self, number: int, session: Session, values: list[Any]) -> Tasks:
        assert self.run is not None
        return self.run.prepare_round(number, session, values)

    def _finish_call(self, session: Session, values: list[Any]) -> None:
        if self.run is not None:
            self.run.finish(session, values)
            self.run = None

    def finish(self, session: Session, values: list[Any]) -> None:
        """Finish the last call, and delete the tables of results that do not exist any more."""
        self._finish_call(session, values)
        for path in all_calls(session)[1]:
            session.workspace.delete_node(path)

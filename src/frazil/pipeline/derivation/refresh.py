"""The states of derived arrays, and the refresh of those that are behind their sources, in one commit."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, Unpack, get_args

import numpy as np

from frazil.arguments import require_choice
from frazil.display import Shown, counted
from frazil.errors import IcechunkError, InvalidInputError, RebaseFailedError, SessionStateError
from frazil.format.ids import NODE_ID_BYTES, id_from_text
from frazil.handle.repository import Repository
from frazil.jobs.job import (
    BoundedRunOptions,
    Job,
    JobResult,
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
from frazil.maintenance.plan import UpkeepPlan
from frazil.pipeline.derivation.definition import Definition, decoded_fields, is_node_id
from frazil.pipeline.derivation.operation import (
    BlockPlan,
    BlockRun,
    ChunkHashes,
    Operation,
    Reading,
    ResultState,
    owner_of,
    table_path,
)
from frazil.pipeline.reductions import anomalies, functions
from frazil.pipeline.transform import block_functions, coarsening, rechunking, regridding, selection
from frazil.pipeline.transform.arrays import TABLES, ArrayInfo, array_info, coordinate_paths, names_of
from frazil.pipeline.transform.block_job import ComputedArrays, TransferredArray, compute_blocks
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session

#: The modules whose operations a definition may name.
_OPERATIONS: Final = (
    *(anomalies, functions),
    *(block_functions, coarsening, rechunking, regridding, selection),
)
_LAYOUT: Final = ("chunk_grid", "codecs")
_ATTEMPTS: Final = 3

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
            One line, such as ``"behind, 1 of 731 chunks, 64.8 kB"``.
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
    """The results of one call of an operation: the path below the target -> the present path."""

    definition: Definition
    outputs: dict[str, str] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)

    @property
    def group(self) -> str | None:
        """The group that has all results below it, as the target had; None if they were moved apart."""
        groups = {
            path.removesuffix(place) if path.endswith(place) else None for place, path in self.outputs.items()
        }
        (*found,) = groups
        return None if len(found) != 1 or found[0] is None else found[0] or "/"


def _all_calls(session: Session) -> tuple[list[_Call], list[str]]:
    """Return the calls with results, and the paths of tables and states whose result is gone."""
    nodes = session.workspace.node_table()
    by_id = dict(zip(map(bytes, nodes.ids), nodes.paths_list(), strict=True))
    all_paths, calls, gone = nodes.paths_list(), dict[tuple[str, str], _Call](), list[str]()
    rows = np.arange(len(nodes))[nodes.below(TABLES)]
    for row in rows[nodes.is_array[rows]].tolist():
        attributes = array_info(session, all_paths[row]).attributes
        definition, node = Definition.parse(attributes), attributes.get("node")
        path = by_id.get(id_from_text(str(node), NODE_ID_BYTES)) if is_node_id(node) else None
        if definition is not None and path is not None:
            call = calls.setdefault((definition.id, definition.target), _Call(definition))
            if owner_of(path) is None:
                call.outputs[str(attributes.get("place"))] = path
            else:
                call.states.append(path)
        elif definition is not None:
            gone.append(all_paths[row])
    for call in calls.values():
        target = call.definition.target.rstrip("/")
        for path in call.states:
            if str(owner_of(path)).removeprefix(target) not in call.outputs:
                gone += [path, table_path(path)]
    return [call for call in calls.values() if call.outputs], gone


def _calls(session: Session, paths: Sequence[str] | None) -> list[_Call]:
    """Return the calls with results at ``paths``, and those that these depend on, sources first."""
    calls, _ = _all_calls(session)
    makers = {path: call for call in calls for path in call.outputs.values()}
    ordered: dict[int, _Call] = {}

    def add(call: _Call, above: tuple[_Call, ...] = ()) -> None:
        if id(call) in ordered or call in above:
            return
        for source in call.definition.sources:
            maker = makers.get(source.found_in(session) or "")
            if maker is not None:
                add(maker, (*above, call))
        ordered[id(call)] = call

    wanted = None if paths is None else {absolute(path).rstrip("/") for path in paths}
    for path in sorted(makers):
        if wanted is None or any(f"{path}/".startswith(f"{each}/") for each in wanted):
            add(makers[path])
    return list(ordered.values())


@dataclass(frozen=True, slots=True)
class _Refresh:
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
        kind = Operation.known.get(definition.operation)
        if kind is None:
            raise InvalidInputError(
                f"the operation must be one that this version of Frazil has, got {definition.operation!r}"
            )
        arguments = decoded_fields(definition.arguments)
        before: dict[str, str] = {}
        for source in definition.sources:
            path = source.found_in(session)
            if path is None:
                raise InvalidInputError(f"the source `{source.path}` must exist, got no array at this path")
            before[path] = source.path
        now = {old: path for path, old in before.items()}
        try:
            operation = kind(**arguments)
        except TypeError as error:
            raise InvalidInputError(f"the arguments must be those of `{kind.name}`: {error}") from error
        paths = tuple(now.get(absolute(path), path) for path in operation.paths)
        operation = replace(operation, paths=paths)
        to = Target(self.target.repo, self.target.branch, call.group or definition.target)
        version = Version(to.repo, session.snapshot_id, to.branch)
        reading = Reading(version, session, is_refresh=True)
        plan, places = _present(call, operation.plan(reading, to, self.options), to, before, session)
        run = BlockRun(operation, plan, reading, to, self.options.get("engine"), places=places)
        run.is_full = self.mode == "full"
        if hashes is not None:
            run.is_dry, run.hashes = True, {id(session): hashes}
        return run


def _present(
    call: _Call, plan: BlockPlan, to: Target, before: Mapping[str, str], session: Session
) -> tuple[BlockPlan, dict[str, str]]:
    """Return a plan with the results that still exist, at their present paths, and their places.

    ``before`` are the paths of the sources in the definition, by their present paths.
    """
    outputs, coordinates = plan.outputs, coordinate_paths(plan.inputs)
    temporary = {each.path for each in outputs.temporary}
    places: dict[str, str] = {}

    def present(array: ArrayInfo) -> ArrayInfo | None:
        if array.path in temporary:
            return array
        if owner_of(array.path) is not None:
            stored = _with_layout(session, array, array.path)
            return stored if stored.grid[:3] == array.grid[:3] else array
        place = earlier = array.path.removeprefix(to.path("").rstrip("/"))
        for new, old in before.items():
            if place.endswith(new):
                earlier = place.removesuffix(new) + old
        path = call.outputs.get(earlier)
        if path is None:
            return None
        places[path] = place
        return _with_layout(session, array, path)

    computed, transferred = list[ComputedArrays](), list[TransferredArray]()
    moved: dict[str, str] = {}
    for each in outputs.computed:
        new = tuple(one for one in map(present, each.new) if one is not None)
        if len(new) == len(each.new):
            moved |= {one.path: other.path for one, other in zip(each.new, new, strict=True)}
            block = tuple(-(-n // step) * step for n, step in zip(each.block, new[0].grid, strict=True))
            computed.append(replace(each, new=new, block=block))
    # States go with their results.
    computed = [each for each in computed if owner_of(each.new[0].path) in (None, *moved)]
    is_whole = call.group is not None

    def stays(path: str) -> bool:
        return is_whole or session.workspace.is_array(path)

    for part in outputs.transferred:
        if part.old.path in coordinates:
            transferred += [part] if stays(part.new.path) else []
        elif (result := present(part.new)) is not None:
            layout = {name: part.new.document[name] for name in _LAYOUT}
            info = ArrayInfo(result.path, {**result.document, **layout})
            transferred.append(TransferredArray(part.old, info, replace(part.transfer, path=info.path)))
    drivers = [each for each in outputs.coordinates if stays(each.new.path)]
    kept = replace(outputs, computed=computed, transferred=transferred, coordinates=drivers)
    return replace(plan, outputs=kept), places


def _with_layout(session: Session, array: ArrayInfo, path: str) -> ArrayInfo:
    """Return an array at a path, with the layout of an array that exists there.

    The layout of the first run stays: a chunk may have been as long as a shorter array.
    """
    document = dict(array.document)
    existing = array_info(session, path) if session.workspace.is_array(path) else array
    if existing.ndim == array.ndim and existing.document["data_type"] == document["data_type"]:
        document |= {name: existing.document[name] for name in _LAYOUT}
    return ArrayInfo(path, document)


def _survey(session: Session, refresh: _Refresh) -> tuple[DerivedArray, ...]:
    """Return the states of derived arrays. It changes metadata in the session, which is never committed."""
    hashes = ChunkHashes(session)
    rows: list[DerivedArray] = []
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
            results = {each.path: each for each in run.results()}
        except (IcechunkError, ImportError) as error:
            reason = brief(str(error))
        for path in call.outputs.values():
            row = DerivedArray(path, definition.operation, sources, snapshot, DerivedState.BROKEN)
            found = results.get(path)
            if found is None:
                rows.append(replace(row, reason=reason))
                continue
            state = DerivedState.EDITED if found.is_edited else DerivedState.CURRENT
            if state == DerivedState.CURRENT and found.is_behind:
                state = DerivedState.BEHIND
            work = found.chunks, found.of_chunks, found.bytes_read, found.reason
            rows.append(DerivedArray(path, definition.operation, sources, snapshot, state, *work))
    return tuple(rows)


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
        ...     row = zarr.create_array(store, name="t", data=np.arange(4.0), dimension_names=["x"])
        >>> _ = coarsen(repo, ["t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
        >>> derived(repo).of("half/t").state
        <DerivedState.CURRENT: 'current'>
    """
    version = source if isinstance(source, Version) else Version.of(source, branch=branch)
    target = Target(version.repo, version.branch or branch)
    refresh = _Refresh(target, None if paths is None else names_of(paths), "auto", "refuse", {})
    return DerivedArrays(_survey(version.session(), refresh))


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
        ...         store, name="t", data=np.arange(8.0), chunks=(2,), dimension_names=["x"]
        ...     )
        >>> _ = coarsen(repo, ["t"], {"x": 2}, to=Target(repo, group="half"), engine="inline")
        >>> with repo.transaction("main", message="a correction") as store:
        ...     zarr.open_array(store, path="t")[:2] = 5
        >>> plan = refresh(repo, engine="inline")
        >>> plan.report.of("half/t").chunks
        1
        >>> result = plan.apply()
        >>> zarr.open_array(result.version.session().store, path="half/t", mode="r")[:].tolist()
        [5.0, 2.5, 4.5, 6.5]
    """
    require_choice("mode", mode, get_args(Mode.__value__))
    require_choice("edits", edits, get_args(Edits.__value__))
    chosen = None if paths is None else names_of(paths)
    task = _Refresh(Target(repo, branch), chosen, mode, edits, options)

    def preview() -> DerivedArrays:
        return DerivedArrays(_survey(Version.of(repo, branch=branch).session(), task))

    return UpkeepPlan("refresh", preview, functools.partial(_apply, task))


def _apply(task: _Refresh) -> JobResult:
    """Refresh the arrays, again if other sessions change the same arrays."""
    for attempt in range(_ATTEMPTS):
        version = Version.of(task.target.repo, branch=task.target.branch)
        rows = _survey(version.session(), task)
        _require_allowed(rows, task)
        ends = {DerivedState.BROKEN} if task.mode == "full" else {DerivedState.BROKEN, DerivedState.CURRENT}
        writes = tuple(row.path for row in rows if row.state not in ends)
        chain = _Chain(task, set(writes))
        job = Job(
            "refresh",
            task.target,
            chain.start,
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


def _require_allowed(rows: Sequence[DerivedArray], task: _Refresh) -> None:
    edited = [row.path for row in rows if row.state == DerivedState.EDITED]
    if edited and task.edits == "refuse":
        raise SessionStateError(
            f"a refresh must not replace changes of others, got `{edited[0]}`, which was changed after it was "
            "computed. Pass edits='overwrite' to compute the changed chunks again, or delete its table "
            f"`{table_path(edited[0])}` to keep it as it is"
        )
    full = [row for row in rows if row.state == DerivedState.BEHIND and row.reason]
    if full and task.mode == "strict":
        raise SessionStateError(
            f"with mode='strict', a refresh must compute a part of each array, got `{full[0].path}`: "
            f"{full[0].reason}. Pass mode='auto'"
        )


@dataclass(slots=True, eq=False)
class _Chain:
    """The phases of a refresh: the rounds of one call after the other, on the results of those before.

    ``paths`` are the results that change.
    """

    task: _Refresh
    paths: set[str]
    calls: list[_Call] = field(default_factory=list)
    run: BlockRun | None = None

    def start(self, session: Session) -> Tasks:
        """Find the calls, and delete tables and states whose result is gone."""
        self.run = None
        _, gone = _all_calls(session)
        for path in gone:
            session.workspace.delete_node(path)
        self.calls = [
            call
            for call in _calls(session, self.task.paths)
            if not self.paths.isdisjoint(call.outputs.values())
        ]
        return Tasks([])

    def __iter__(self) -> Iterator[Phase]:
        """Yield the phases. The number of rounds of a call is known when its first round is prepared."""
        for call in self.calls:
            yield Phase(functools.partial(self._prepare, call), compute_blocks)
            rounds = 0 if self.run is None else self.run.rounds
            for number in range(1, rounds + 1):
                yield Phase(functools.partial(self._prepare_round, number), compute_blocks)

    def _prepare(self, call: _Call, session: Session, values: list[Any]) -> Tasks:
        self.finish(session, values)
        self.run = self.task.run_of(session, call)
        return self.run.prepare(session)

    def _prepare_round(self, number: int, session: Session, values: list[Any]) -> Tasks:
        assert self.run is not None
        return self.run.prepare_round(number, session, values)

    def finish(self, session: Session, values: list[Any]) -> None:
        """Finish the call whose rounds have run."""
        if self.run is not None:
            self.run.finish(session, values)
            self.run = None

"""Operations as values, and their run: from nothing, or only for the chunks of results that have changed."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from frazil import cf
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.chunk_table import ChunkTable, within
from frazil.jobs.blocks import I64, cells
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import (
    BoundedRunOptions,
    Input,
    Job,
    JobResult,
    Phase,
    RunOptions,
    Source,
    Target,
    Tasks,
    Version,
    digest,
)
from frazil.jobs.job_run import require_free, run_with_options
from frazil.pipeline.derivation.definition import Definition, fields_to_json, source_arrays
from frazil.pipeline.derivation.digest_table import (
    LAST,
    Basis,
    ChunkHashes,
    DigestTable,
    ManifestOrder,
    chunk_index,
    hash_grid,
    own_hashes,
    write_table,
)
from frazil.pipeline.derivation.relations import (
    ROWS,
    U64,
    Intervals,
    Read,
    StoredChunks,
    chunk_digests,
    extend_hash,
    json_hash,
    reference_hashes,
)
from frazil.pipeline.transform.arrays import (
    STATES,
    ArrayInfo,
    Json,
    array_info,
    arrays_below,
    coordinate_paths,
    open_array,
)
from frazil.pipeline.transform.block_job import (
    BlockItem,
    ChunkTransfer,
    ComputedArrays,
    DriverArray,
    OutputArrays,
    block_items,
    compute_blocks,
    create_array,
    create_groups,
    fetch_items,
    refuse_relabelling,
    same_repository,
    share_chunks,
    target_or_source,
    transfer_table,
)
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session

#: The most chunks of an array that a table has. Larger arrays have none: they are always computed in full.
MOST_CHUNKS: Final = 1 << 25
_PACKING: Final = cf.PACKED | {"valid_min", "valid_max", "valid_range"}


@dataclass(frozen=True, slots=True)
class SourceView:
    """What an operation reads: a version, and a session with its arrays, which may have more changes.

    ``is_refresh``: the operation may compute only some chunks of its results. ``first_paths`` are the paths
    of the arrays in the first run, by their present paths.
    """

    version: Version
    session: Session
    is_refresh: bool = False
    first_paths: Mapping[str, str] = field(default_factory=dict)

    def related(self, path: str, group: str) -> str:
        """Return the path of an array in another group, which had the name of ``path`` in the first run."""
        first = absolute(f"{group}/{self.first_paths.get(path, path).strip('/')}")
        return next((now for now, before in self.first_paths.items() if before == first), first)


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """What a call of an operation makes of ``inputs``: ``outputs``, with ``parameters`` for the record.

    ``in_place``: it replaces its inputs. With ``fetches_virtual``, virtual chunks that are transferred become
    native ones. ``others`` are inputs of the job besides.
    """

    inputs: Sequence[ArrayInfo]
    outputs: OutputArrays
    parameters: Json
    in_place: bool = False
    fetches_virtual: bool = False
    others: tuple[Input, ...] = ()


@dataclass(frozen=True, slots=True)
class ArrayOperation:
    """An operation with its arguments. Its fields are what the definition of the results records."""

    name: ClassVar[str]
    #: The operations by name.
    kinds: ClassVar[dict[str, type[ArrayOperation]]] = {}
    paths: tuple[str, ...]

    def __init_subclass__(cls) -> None:
        """Add an operation to those that a definition may name."""
        ArrayOperation.kinds[cls.name] = cls

    @property
    def job_name(self) -> str:
        """The name of the function that users call."""
        return self.name

    def plan(self, view: SourceView, to: Target, options: BoundedRunOptions) -> BlockPlan:
        """Return what the operation makes of the arrays of a session."""
        raise NotImplementedError

    def run(self, source: Source, to: Target | None, options: BoundedRunOptions) -> JobResult:
        """Compute all results as one job. A `DeclaredTarget` gets the operation instead."""
        if isinstance(to, DeclaredTarget):
            raise DeclaredOperation(self, options)
        version = Version.of(source)
        target, view = target_or_source(version, to), SourceView(version, version.session())
        plan = self.plan(view, target, options)
        outputs = plan.outputs
        new = outputs.arrays
        if not new and not plan.in_place:
            raise InvalidInputError("paths must name at least one array, got none")
        reads = () if plan.in_place else (each.path for each in plan.inputs)
        require_free(version, target, reads, [each.path for each in new])
        inputs = sorted({each.path for each in (*plan.inputs, *(each.old for each in outputs.transferred))})
        step = BlockRun(self, plan, view, target, options.get("engine"))
        rounds = range(1, step.rounds + 1)
        job = Job(
            self.job_name,
            target,
            step.prepare,
            compute_blocks,
            step.finish,
            plan.parameters,
            (version.input(inputs), *plan.others),
            tuple(each.path for each in new) or tuple(inputs),
            phases=tuple(
                Phase(functools.partial(step.prepare_round, each), compute_blocks) for each in rounds
            ),
        )
        return run_with_options(job, cast("RunOptions", options))


@dataclass(frozen=True, slots=True)
class DeclaredTarget(Target):
    """A target of a call that only makes the operation: see `frazil.pipeline.derivation.declaration`."""


class DeclaredOperation(Exception):
    """The operation of a call with a `DeclaredTarget`, and the options of its run."""

    def __init__(self, operation: ArrayOperation, options: BoundedRunOptions) -> None:
        super().__init__(operation.name)
        self.operation = operation
        self.options = options


@dataclass(frozen=True, slots=True)
class ResultTarget(Target):
    """The target of a refresh: the paths of results are those that the results have now.

    ``outputs`` are the present paths by the paths below the target of the first run, ``first_group``.
    ``first_paths`` are the paths of the sources in the first run, by their present paths.
    """

    outputs: Mapping[str, str] = field(default_factory=dict)
    first_paths: Mapping[str, str] = field(default_factory=dict)
    first_group: str = "/"

    def path(self, name: str) -> str:
        """Return the present path of a result, from the path below the target."""
        place = f"/{name.strip('/')}"
        named = [path for path in self.first_paths if place.endswith(path)]
        if named:
            place = place.removesuffix(named[0]) + self.first_paths[named[0]]
        return self.outputs.get(place) or Target(self.repo, self.branch, self.group).path(place)


def states_path(to: Target, path: str) -> str:
    """Return the group of the states of a result, by the path of the result in the first run."""
    if isinstance(to, ResultTarget):
        places = {present: place for place, present in to.outputs.items()}
        path = Target(to.repo, to.branch, to.first_group).path(places.get(path, path))
    return f"{STATES}{path}"


def owner_of(path: str) -> str | None:
    """Return the path in the first run of the result that states belong to; None for other arrays."""
    return path.removeprefix(STATES).rpartition("/")[0] if path.startswith(f"{STATES}/") else None


def _metadata(array: ArrayInfo, *, is_input: bool) -> Json:
    """Return the metadata of an array that have an influence on values: not its shape."""
    names = ("data_type", "fill_value", "codecs", "chunk_grid")
    document = {name: array.document.get(name) for name in names}
    if is_input:
        document["dims"] = array.dims
        document["packing"] = {name: value for name, value in array.attributes.items() if name in _PACKING}
    return document


# A run


@dataclass(frozen=True, slots=True, eq=False)
class ChunkSelection:
    """The chunks of a computed array that a run computes, and the digests of all its chunks.

    ``moves`` are chunks that another chunk of the stored result has: their coordinates, and those of the
    chunk before, shape (2, n, dimensions). ``key`` is a hash of what all chunks depend on.
    ``reason`` says why all chunks are computed. ``edited`` are the paths of results that others have changed.
    """

    mask: NDArray[np.bool_]
    digests: U64 | None
    moves: I64
    key: str = ""
    reason: str = ""
    edited: frozenset[str] = frozenset()
    bytes_read: int = 0
    first: int = 0
    basis: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultState:
    """What a run finds of one result, before it computes."""

    path: str
    is_behind: bool
    is_edited: bool
    chunks: int
    of_chunks: int
    bytes_read: int
    reason: str


@dataclass(eq=False)
class BlockRun:
    """One run of an operation: what the driver does before, between and after its rounds of tasks.

    With ``view.is_refresh`` it computes only what has changed since the run before; with ``is_full`` all
    the same. ``is_dry``: it only finds what it would compute, and writes no values. By present path,
    ``places`` has the paths of results below the target in the first run.
    ``dry_selections`` are those of a dry run on the same sources: those of the first round are valid.
    """

    operation: ArrayOperation
    plan: BlockPlan
    view: SourceView
    target: Target
    engine: Engine | EngineName | None
    is_full: bool = False
    is_dry: bool = False
    places: Mapping[str, str] = field(default_factory=dict)
    hashes: dict[int, ChunkHashes] = field(default_factory=dict)
    dry_selections: Mapping[int, ChunkSelection] = field(default_factory=dict)
    selections: dict[int, ChunkSelection] = field(default_factory=dict)
    transferred: dict[str, U64] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    edited: set[str] = field(default_factory=set)
    #: The tables of the results before the run, by path.
    tables: dict[str, DigestTable | None] = field(default_factory=dict)
    #: The chunks that a shorter result has no more: it may have them at other places.
    outside: dict[str, ChunkTable] = field(default_factory=dict)

    @functools.cached_property
    def definition(self) -> Definition:
        """The definition of the results."""
        session, arguments = self.view.session, fields_to_json(self.operation)
        names = self.operation.paths
        if not all(map(session.workspace.is_array, map(absolute, names))):  # not the arrays of the future
            arguments["paths"] = [each.path for each in arrays_below(session, names)]
        outputs = self.plan.outputs
        results = {each.path for each in outputs.arrays}
        read = [*(each.old for each in outputs.transferred), *(each.old for each in outputs.coordinates)]
        paths = [each.path for each in (*self.plan.inputs, *read) if each.path not in results]
        sources = source_arrays(session, paths, self.view.first_paths)
        to = self.target  # the states stay where the first run has made them
        group = to.first_group if isinstance(to, ResultTarget) else to.path("")
        return Definition(self.operation.name, arguments, sources, group)

    def repeated(self, session: Session) -> BlockRun:
        """Return the run that does in a session of the same version what this dry run has found."""
        view = replace(self.view, session=session)
        run = BlockRun(self.operation, self.plan, view, self.target, self.engine, self.is_full)
        run.places, run.dry_selections, run.tables = self.places, self.selections, self.tables
        return run

    @property
    def computed(self) -> Sequence[ComputedArrays]:
        """The arrays that tasks compute."""
        return self.plan.outputs.computed

    @property
    def rounds(self) -> int:
        """The number of rounds after the first one."""
        return max((each.round for each in self.computed), default=0)

    def prepare(self, session: Session) -> Tasks:
        """Create the results, or change their metadata, and return the tasks of the first round."""
        plan, source, outputs = self.plan, self.view.session, self.plan.outputs
        if plan.in_place:
            self._require_newest(session)
        elif not self.view.is_refresh:
            refuse_relabelling(session, source, outputs)
        for computed in outputs.computed:
            for new in computed.new:
                self._ensure(session, computed.old, new)
        for transferred in () if plan.in_place else outputs.transferred:
            self._ensure(session, transferred.old, transferred.new)
        for coordinate in outputs.coordinates:
            self._write_coordinate(session, coordinate)
        for path, attributes in outputs.group_attributes.items():
            add_attributes(session, path, attributes)
        items = [*self._transfer(session), *self._items(session, 0)]
        if outputs.program is not None and not self.is_dry:
            masks = {each.new[0].path: self.selections[n].mask for n, each in enumerate(outputs.computed)}
            outputs.program.run(session, source, masks)
        return self._tasks(items, 0, None if source is session else source)

    def prepare_round(self, number: int, session: Session, values: list[Any]) -> Tasks:
        """Return the tasks of a later round, which read results of earlier ones from the target."""
        return self._tasks(self._items(session, number), number)

    def _tasks(self, items: list[Any], number: int, source: Session | None = None) -> Tasks:
        """Return the tasks of a round, with the arrays of this round only."""
        return Tasks(items, (source, tuple(each if each.round == number else None for each in self.computed)))

    def finish(self, session: Session, values: list[Any]) -> None:
        """Delete temporary arrays, and store the tables of the results."""
        for each in self.plan.outputs.temporary:
            session.workspace.delete_node(each.path)
        if not same_repository(self.view.version, self.target):
            return  # a refresh finds sources only in the repository of the results
        has_changed = not self.view.is_refresh or self.is_full
        if not has_changed and not any(each.is_behind for each in self.results()):
            return
        for number, computed in enumerate(self.computed):
            selection = self.selections[number]
            if selection.digests is not None:
                for new in computed.new:
                    own = self._own_hashes(session, new, selection)
                    self._store_table(session, new.path, selection, own)
        for path, digests in self.transferred.items():
            selection = ChunkSelection(np.zeros(0, np.bool_), digests, np.zeros((2, 0, 0), np.int64))
            self._store_table(session, path, selection, own_hashes(session, path, digests.shape[:-1]))

    def _own_hashes(self, session: Session, array: ArrayInfo, selection: ChunkSelection) -> U64:
        """Return the hashes of the references of a result after the run."""
        table, first = self._table(session, array.path), selection.first
        mask = selection.mask[first:] if first else selection.mask
        if table is None or not mask.ndim or 2 * np.count_nonzero(mask) > mask.size:
            return own_hashes(session, array.path, mask.shape, first)
        changed = np.concatenate([np.argwhere(selection.mask), selection.moves[0]]).astype(np.uint32)
        # The selection has compared the hashes of all other chunks with the table.
        out = table.at(mask.shape, first)[..., 2].copy()
        refs = session.workspace.refs_at(array.path, changed)
        changed[:, 0] -= first
        out[tuple(changed.T)] = reference_hashes(refs, lanes=1)[0]
        return out

    def _store_table(self, session: Session, path: str, selection: ChunkSelection, own: U64) -> None:
        assert selection.digests is not None
        place = self.places.get(path) or path.removeprefix(self.target.path("").rstrip("/"))
        attributes = {"path": path, "place": place, "key": selection.key, **self.definition.as_json()}
        if path in selection.basis:
            attributes["basis"] = selection.basis[path]
        words = np.concatenate([selection.digests, own[..., None]], axis=-1)
        write_table(session, path, attributes, words, selection.first, self._table(session, path))

    def _table(self, session: Session, path: str) -> DigestTable | None:
        """Return the table of a result before the run."""
        if path not in self.tables:
            self.tables[path] = DigestTable.read(session, path)
        return self.tables[path]

    def results(self) -> list[ResultState]:
        """Return what the run finds of each result."""
        temporary = {each.path for each in self.plan.outputs.temporary}
        rows, of_states = [], dict[str, list[ChunkSelection]]()
        coordinates = {each.new.path for each in self.plan.outputs.coordinates}
        coordinates |= {each.new.path for each in self.plan.outputs.transferred} - self.transferred.keys()
        has_labels_behind = not self.changed.isdisjoint(coordinates)
        for number, computed in enumerate(self.computed):
            selection = self.selections.get(number)
            if selection is None:  # its round is not prepared yet
                continue
            for path in (new.path for new in computed.new if new.path not in temporary):
                if (owner := owner_of(path)) is not None:
                    of_states.setdefault(owner, []).append(selection)
                    continue
                # Its states read the sources.
                first = states_path(self.target, computed.new[0].path).removeprefix(STATES)
                states = of_states.get(first, [])
                size = selection.bytes_read + sum(each.bytes_read for each in states)
                reason = (states or [selection])[0].reason
                counts = int(selection.mask.sum()), selection.mask.size
                is_edited = path in selection.edited
                is_behind = has_labels_behind or self._is_behind(path)
                rows.append(ResultState(path, is_behind, is_edited, *counts, size, reason))
        for path, digests in self.transferred.items():
            count = digests[..., 0].size
            is_behind = has_labels_behind or self._is_behind(path)
            rows.append(ResultState(path, is_behind, path in self.edited, 0, count, 0, ""))
        return rows

    def _is_behind(self, path: str) -> bool:
        """Return whether a run changes a result, or a coordinate."""
        results = {*self.transferred, *(new.path for each in self.computed for new in each.new)}
        if path in self.changed or not self.changed <= results:
            return True
        for number, each in enumerate(self.computed):
            if any(new.path == path for new in each.new):
                selection = self.selections[number]
                return bool(selection.mask.any() or len(selection.moves[0]))
        return False

    def _require_newest(self, session: Session) -> None:
        source = self.view.session
        for array in self.plan.inputs:
            if digest(source, [array.path]) != digest(session, [array.path]):
                raise InvalidInputError(
                    f"source must have the newest version of `{array.path}` to replace it, got "
                    f"{source.snapshot_id}, and the array changed since. Read the tip of the branch, or pass "
                    "another target as `to`",
                    ErrorKind.NOT_ALLOWED,
                )

    def _existing(self, session: Session, path: str) -> ArrayInfo | None:
        """Return the array of an earlier run at a path."""
        is_array = self.view.is_refresh and session.workspace.is_array(path)
        return array_info(session, path) if is_array else None

    def _ensure(self, session: Session, old: ArrayInfo, new: ArrayInfo) -> None:
        """Create an array, or give an existing one the new metadata if its chunks stay valid."""
        existing = self._existing(session, new.path)
        if existing is None or _metadata(existing, is_input=False) != _metadata(new, is_input=False):
            self.changed.add(new.path)
            create_array(session, self.view.session, old, new)
        elif existing.document != new.document:
            self.changed.add(new.path)
            counts = np.array(cells(new.shape, new.grid), np.uint32)
            if (np.array(cells(existing.shape, existing.grid)) > counts).any():
                table = session.chunk_table(new.path)
                outside = (table.index >= counts).any(axis=1)
                self.outside[new.path] = table.select_chunks(outside)
                # A longer array must not have them again.
                session.workspace.delete_refs(new.path, table.index[outside])
            session.workspace.set_node(new.path, new.encoded())

    def _write_coordinate(self, session: Session, coordinate: DriverArray) -> None:
        new, values = coordinate.new, coordinate.values
        if self.is_dry and coordinate.old.path in self.hashes[id(session)].predicted:
            self.changed.add(new.path)  # its values are known when those of the source are
        existing = array_info(session, new.path) if session.workspace.is_array(new.path) else None
        kinds = [each and (each.shape, each.dims, each.attributes) for each in (existing, new)]
        if kinds[0] == kinds[1]:  # it has the node of an earlier run
            stored = np.asarray(open_array(session, new.path)[...])
            is_float = values.dtype.kind in "fcmM"
            if stored.dtype == values.dtype and np.array_equal(stored, values, equal_nan=is_float):
                return
        self.changed.add(new.path)
        if existing is None or existing.ndim != new.ndim or not self.view.is_refresh:
            create_array(session, self.view.session, coordinate.old, new)
        else:  # definitions that read it find it by the id of its node, also after a move
            session.workspace.delete_refs(new.path, session.chunk_table(new.path).index)
            session.workspace.set_node(new.path, new.encoded())
        if values.size:
            open_array(session, new.path)[...] = values

    def _transfer(self, session: Session) -> list[ChunkTransfer]:
        """Set the references of transferred arrays, and return those whose bytes tasks must fetch."""
        source, plan = self.view.session, self.plan
        transfers = [each.transfer for each in plan.outputs.transferred]
        if not same_repository(self.view.version, self.target):
            return fetch_items(source, transfers, self.engine)
        if plan.fetches_virtual:
            if not plan.in_place:
                share_chunks(session, source, [replace(each, virtual=False) for each in transfers])
            return fetch_items(source, [replace(each, virtual=True) for each in transfers], self.engine)
        coordinates = coordinate_paths(plan.inputs)
        for transferred in plan.outputs.transferred:
            new, table = transferred.new, transfer_table(source, transferred.transfer)
            counts = cells(new.shape, new.grid)
            digests = hash_grid(table.index, reference_hashes(table), counts)
            digest_table = self._table(session, new.path) if self.view.is_refresh else None
            if (
                digest_table is not None
                and (digest_table.at(counts)[..., 2] != own_hashes(session, new.path, counts)).any()
            ):
                self.edited.add(new.path)
            if _replace_refs(session, new.path, table):
                self.changed.add(new.path)
            if transferred.old.path not in coordinates or digest_table is not None:
                self.transferred[new.path] = digests
            if self.is_dry:
                self._predict_transfer(session, transferred.transfer, digests)
        return []

    def _predict_transfer(self, session: Session, transfer: ChunkTransfer, digests: U64) -> None:
        """Set hashes of the chunks that a run would transfer from an array that it computes before."""
        hashes = self.hashes[id(session)]
        if transfer.source not in hashes.predicted:
            return
        chunks, low, high = hashes.of(transfer.source), np.array(transfer.low), np.array(transfer.high)
        inside = ((chunks.index >= low) & (chunks.index < high)).all(axis=1)
        index = (chunks.index[inside] - low).astype(np.uint32)
        later = hash_grid(index, chunks.hashes[:, inside], digests.shape[:-1]).reshape(-1, 2)
        changed = np.flatnonzero((later != digests.reshape(-1, 2)).any(axis=1))
        if len(changed):
            self.changed.add(transfer.path)
            hashes.predicted.add(transfer.path)
            hashes.predict(transfer.path, lambda: (changed, later[changed]))

    def _items(self, session: Session, number: int) -> list[BlockItem]:
        """Return the items of one round: of the chunks that have changed."""
        items: list[BlockItem] = []
        for index, each in enumerate(self.computed):
            if each.round == number:
                selection = None if number else self.dry_selections.get(index)
                selection = self.selections[index] = selection or self._select(session, each)
                if len(selection.moves[0]):
                    _move_chunks(session, each, selection, self.outside)
                if self.plan.outputs.program is None:
                    items += block_items(index, each, selection.mask, self.engine)
                if self.is_dry:
                    self._predict(session, each, selection)
        return sorted(items, key=lambda item: -item.work)  # a long task that starts last makes others wait

    def _predict(self, session: Session, computed: ComputedArrays, selection: ChunkSelection) -> None:
        """Set hashes of the chunks that a run would compute, for the results that read them."""

        def change() -> tuple[I64, U64]:
            changed, digests = np.flatnonzero(selection.mask), selection.digests
            words = np.zeros((len(changed), 2), np.uint64)
            if digests is not None:
                words = digests.reshape(-1, 2)[changed - (selection.mask.size - digests[..., 0].size)]
            return changed, extend_hash(words, 1)

        for new in computed.new:
            self.hashes[id(session)].predict(new.path, change)
            if selection.mask.any():
                self.hashes[id(session)].predicted.add(new.path)

    def _select(self, session: Session, computed: ComputedArrays) -> ChunkSelection:
        """Return which chunks of computed arrays have changed."""
        new, source = computed.new[0], self.view.session
        counts = cells(new.shape, new.grid)
        everything = np.ones(counts, np.bool_)
        nothing = np.zeros((2, 0, len(counts)), np.int64)
        temporary = {each.path for each in self.plan.outputs.temporary}
        if self.plan.in_place or new.path in temporary:
            return ChunkSelection(everything, None, nothing)
        program = self.plan.outputs.program
        paths = [each.path for each in computed.reads] if program is None else program.paths
        if not paths or any(each.grid != new.grid for each in computed.new):
            return ChunkSelection(
                everything, None, nothing, reason="the operation does not say what it reads"
            )
        results = {one.path for each in self.computed if each.round < computed.round for one in each.new}
        origins = {path: session if path in results else source for path in paths}
        arrays = {path: array_info(origin, path) for path, origin in origins.items()}
        most = max(math.prod(cells(each.shape, each.grid)) for each in (*arrays.values(), new))
        if most > MOST_CHUNKS:
            return ChunkSelection(everything, None, nothing, reason=f"an array has {most:,} chunks")
        arguments = {name: each for name, each in fields_to_json(self.operation).items() if name != "paths"}
        key = {
            "operation": self.operation.name,
            "arguments": arguments,
            "inputs": [_metadata(arrays[path], is_input=True) for path in paths],
            "outputs": [_metadata(each, is_input=False) for each in computed.new],
            "more": computed.key,
        }
        hashes = {
            path: self.hashes.setdefault(id(origin), ChunkHashes(origin)) for path, origin in origins.items()
        }
        key_hash = json_hash(key)
        text, reads = key_hash.tobytes().hex(), computed.reads
        is_refresh = self.view.is_refresh
        tables = {each.path: self._table(session, each.path) if is_refresh else None for each in computed.new}
        stored = [table for table in tables.values() if table is not None]
        basis, orders = None, {path: ManifestOrder.of(session, path) for path in tables}
        if program is None:
            inputs = [(arrays[each.path], hashes[each.path].manifests(each.path)) for each in reads]
            basis = Basis.of(new.shape, new.grid, reads, inputs)
        first, known = 0, 0
        if basis is not None and len(stored) == len(tables) and not self.is_full:
            bounds = [
                basis.first_changes(table.basis, order) if table.key == text else (0, 0)
                for table, order in zip(stored, orders.values(), strict=True)
            ]
            first, known = np.min(bounds, axis=0).tolist()
        part = (counts[0] - known, *counts[1:]) if known else counts
        mask, edited, reason = np.zeros(part, np.bool_), set[str](), ""
        for path, table in tables.items() if is_refresh else ():
            if table is None:
                is_new = path in self.changed
                mask = everything
                reason = (
                    "its data type, fill value, codecs or chunks change"
                    if is_new
                    else "its table of digests is missing"
                )
                continue
            is_edited = table.at(part, known)[..., 2] != own_hashes(session, path, part, known)
            if is_edited.any():
                edited.add(path)
            mask = np.asarray(mask | is_edited)
        if first:
            first = min(first, known + _first_row(mask))
        plan = None if program is None else program.chunk_plan(source, new)
        firsts = dict.fromkeys(hashes, LAST if first else 0)  # a program reads all chunks
        for read in reads if first else ():
            firsts[read.path] = min(firsts[read.path], _first_read(read, new, arrays[read.path], first))
        chunks = {path: each.of(path, firsts[path]) for path, each in hashes.items()}
        if plan is None:
            digests = chunk_digests(key_hash, new.shape, new.grid, reads, chunks, first)
        else:
            metadata = {path: _metadata(each, is_input=True) for path, each in arrays.items()}
            digests = plan.digests(key_hash, chunks, metadata)
        if first > known:
            digests = np.concatenate([stored[0].at(part, known)[: first - known, ..., :2], digests])
        for table in stored:
            mask = np.asarray(mask | (table.at(part, known)[..., :2] != digests).any(axis=-1))
        moves = nothing
        if not is_refresh:
            mask = everything
        elif self.is_full:
            mask, reason = everything, "mode is 'full'"
        elif len(stored) == len(tables) and not edited and not known and mask.ndim and mask.any():
            words = stored[0].at(stored[0].shape[:-1])
            if all(np.array_equal(each.at(each.shape[:-1])[..., :2], words[..., :2]) for each in stored):
                moves = _moved_chunks(words, digests, mask)
                mask[tuple(moves[0].T)] = False
        if not reason and any(table.key != text for table in stored):
            reason = "metadata that all of its values depend on have changed"
        size = 0
        if self.is_dry and is_refresh:
            size = (
                _bytes_read(mask[first - known :] if first else mask, new, reads, chunks, first)
                if plan is None
                else plan.bytes_read(mask, chunks)
            )
        if known:
            mask = np.concatenate([np.zeros((known, *counts[1:]), np.bool_), mask])
        bases = dict[str, Json]()
        if basis is not None:
            end = int(moves[0][:, 0].min(initial=_first_row(mask)))
            bases = {path: basis.as_json(order.marks(end)) for path, order in orders.items()}
        return ChunkSelection(mask, digests, moves, text, reason, frozenset(edited), size, known, bases)


def _first_row(mask: NDArray[np.bool_]) -> int:
    """Return the first coordinate of a mask, along its first axis, that has a true element."""
    return int(np.flatnonzero(mask.any(axis=tuple(range(1, mask.ndim)))).min(initial=LAST))


def _first_read(read: Read, new: ArrayInfo, array: ArrayInfo, first: int) -> int:
    """Return a coordinate before which chunks of a result from ``first`` on read no chunk of an input."""
    if not read.axes or read.axes[0][0] != 0:
        return 0
    intervals = Intervals(read.axes[0][1], new.shape[0], new.grid[0], array.shape[0], first)
    spans = intervals.spans(0, intervals.count)
    low = spans.low[spans.high > spans.low]
    return int(low.min()) // array.grid[0] if len(low) else cells(array.shape, array.grid)[0]


def _bytes_read(
    mask: NDArray[np.bool_],
    new: ArrayInfo,
    reads: Sequence[Read],
    chunks: Mapping[str, StoredChunks],
    first: int,
) -> int:
    """Return the stored bytes of the chunks that the chunks of a mask read: of each input once.

    The mask begins at the chunk ``first`` of the first axis.
    """
    total = 0
    for read in reads if mask.any() else ():
        chunk = chunks[read.path]
        related = [axis for axis, _ in read.axes if axis is not None]
        is_read = mask.any(axis=tuple(axis for axis in range(mask.ndim) if axis not in related))
        is_read = is_read.transpose(np.argsort(np.argsort(related)).tolist())
        is_read = is_read.reshape([1 if axis is None else mask.shape[axis] for axis, _ in read.axes])
        for number, (axis, relation) in enumerate(read.axes):
            step, stop = (1, 1) if axis is None else (new.grid[axis], new.shape[axis])
            intervals = Intervals(relation, stop, step, chunk.shape[number], 0 if axis != 0 else first)
            is_read = _chunks_read(is_read, number, intervals, chunk.grid[number])
        inside = within(chunk.index, is_read.shape)
        if is_read.all():
            total += int(chunk.lengths.sum(where=inside))
        else:
            total += int(chunk.lengths[inside][is_read[tuple(chunk.index[inside].T)]].sum())
    return total


def _chunks_read(mask: NDArray[np.bool_], axis: int, intervals: Intervals, step: int) -> NDArray[np.bool_]:
    """Return the mask of chunks of an input along one axis, from the mask of intervals that read spans."""
    rows = np.moveaxis(mask, axis, 0)
    flat, count = rows.reshape(len(rows), -1), -(-intervals.of // step)
    used, columns = np.flatnonzero(flat.any(axis=1)), np.flatnonzero(flat.any(axis=0))
    part = flat[np.ix_(used, columns)]
    # Most intervals have the same columns: they are one kind.
    if part.all():
        first = np.zeros(1, np.int64)
        numbers = np.zeros(len(used), np.int64)
    else:
        bits = np.packbits(part, axis=1)
        _, first, numbers = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    kinds = np.full(len(rows), -1, np.int32)
    kinds[used] = numbers.reshape(-1)
    borders = np.zeros((len(first), count + 1), np.int32)
    for begin in range(0, len(rows), ROWS):
        spans = intervals.spans(begin, begin + ROWS)
        kind = np.repeat(kinds[begin : begin + ROWS], np.diff(spans.offsets))
        is_used = kind >= 0
        np.add.at(borders, (kind[is_used], spans.low[is_used] // step), 1)
        np.add.at(borders, (kind[is_used], -(-spans.high[is_used] // step)), -1)
    is_read = np.cumsum(borders, axis=1, out=borders)[:, :-1] > 0
    out = np.zeros((count, flat.shape[1]), np.bool_)
    out[:, columns] = is_read.T.astype(np.float32) @ part[first].astype(np.float32) > 0
    return np.moveaxis(out.reshape(count, *rows.shape[1:]), 0, axis)


def _moved_chunks(words: U64, digests: U64, mask: NDArray[np.bool_]) -> I64:
    """Return chunks of the mask whose digest a stored chunk has: the coordinates of both."""
    flat, targets = words.reshape(-1, 3), digests[mask]
    values = np.sort(targets[:, 0])
    at = np.minimum(np.searchsorted(values, flat[:, 0]), len(values) - 1)
    rows = np.flatnonzero(values[at] == flat[:, 0])
    if not len(rows):
        return np.zeros((2, 0, mask.ndim), np.int64)
    rows = rows[np.lexsort((flat[rows, 1], flat[rows, 0]))]
    rows = rows[np.minimum(np.searchsorted(flat[rows, 0], targets[:, 0]), len(rows) - 1)]
    same = (flat[rows, :2] == targets).all(axis=1)
    return np.stack([np.argwhere(mask)[same], chunk_index(rows[same], words.shape[:-1])])


def _move_chunks(
    session: Session, computed: ComputedArrays, selection: ChunkSelection, outside: Mapping[str, ChunkTable]
) -> None:
    """Set the references of chunks that were at other places before."""
    targets, before = selection.moves.astype(np.uint32)
    for new in computed.new:
        old = outside.get(new.path)
        rows = np.full(len(before), -1) if old is None else old.find_chunks(before)
        table = session.workspace.refs_at(new.path, before[rows < 0])  # before they are replaced
        session.workspace.set_refs(new.path, replace(table, index=targets[rows < 0]).sorted())
        if old is not None:
            order = np.argsort(rows, kind="stable")[np.count_nonzero(rows < 0) :]
            table = replace(old.select_chunks(rows[order]), index=targets[order])
            session.workspace.set_refs(new.path, table.sorted())


def _replace_refs(session: Session, path: str, table: ChunkTable) -> bool:
    """Give an array the references of a table, and no others. Return whether any reference has changed."""
    old = session.chunk_table(path)
    rows = old.find_chunks(table.index)
    changed = rows < 0
    both = np.flatnonzero(~changed)
    changed[both] = ~table.same(both, old, rows[both])
    if changed.any():
        session.workspace.set_refs(path, table.select_chunks(changed))
    extra = table.find_chunks(old.index) < 0
    if extra.any():
        session.workspace.delete_refs(path, old.index[extra])
    return bool(changed.any() or extra.any())


def add_attributes(session: Session, path: str, attributes: Json) -> None:
    """Add attributes to a group, and create it with those above it if it does not exist."""
    create_groups(session, session, "/", path)
    document = json.loads(session.workspace.require_node(path).user_data)
    both = {**(document.get("attributes") or {}), **attributes}
    if both != document.get("attributes"):
        session.workspace.set_node(path, json.dumps({**document, "attributes": both}).encode())

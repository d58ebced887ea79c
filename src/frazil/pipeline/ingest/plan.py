"""The plan of an ingest, made on the driver: the axis, the growth of the group, its arrays, and the items.

A task writes only whole chunks, and no two tasks write the same chunk. If a chunk needs several files, its
task reads all of them. If a chunk has steps that the repository already has, its task reads those too. Arrays
whose chunks are multiples of each other along the axis share tasks, so a file is opened once for all its
variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil.arguments import misfit
from frazil.arrays.box_writing import fill_box, is_fill, missing_element
from frazil.cf import coding_of, missing_element_of
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.jobs.engine import LEAST_TASK, Engine, EngineName, slots_of, task_bytes
from frazil.jobs.job import Tasks
from frazil.pipeline.ingest.arrays import (
    LARGEST,
    SMALLEST,
    TargetArray,
    choose_steps,
    create,
    open_target,
    read_labels,
    recut_array,
    target_array,
    widen_array,
)
from frazil.pipeline.ingest.existing import GroupChange, dims_of, matched_array, require_lengths
from frazil.pipeline.ingest.families import Conversion, FileFamily, variables_of, with_encoding
from frazil.pipeline.ingest.inspection import (
    ANY,
    MISSING,
    PACKING,
    VirtualChunks,
    files_per_task,
    values_digest,
)
from frazil.pipeline.ingest.options import Problem
from frazil.pipeline.ingest.steps import StepAxis, StepRuns, joined_runs, old_pieces, place_labels, runs, same
from frazil.pipeline.ingest.tasks import ArrayBox, IngestItem, PlannedArray, TaskContext, without_container
from frazil.readers.base_reader import VariableSchema
from frazil.remedies import argument
from frazil.repository.session.session import Session
from frazil.storage.urls import parse_url

#: The most bytes that a task writes, unless one chunk has more.
TASK: Final = 128 << 20
FILES_OF_A_CHUNK: Final = 500
#: An array with chunks this large along the axis gets tasks of its own, for parts of its other dimensions.
LARGE: Final = 256 << 20
_NO_STEPS: Final = np.zeros(0, np.int64)
NO_PIECES: Final = StepRuns(_NO_STEPS, _NO_STEPS, _NO_STEPS, _NO_STEPS)


@dataclass(frozen=True, slots=True)
class ArrayGroup:
    """Arrays (by number) from the same files; without the axis, from one file with one piece."""

    arrays: tuple[int, ...]
    pieces: StepRuns
    virtual: bool = False


# The axis


def plan_axis(change: GroupChange, changed: NDArray[np.bool_]) -> tuple[StepAxis | None, list[Problem]]:
    """Return the axis, None if files do not follow each other, and its gaps. ``changed`` is a mask."""
    request, dataset, existing = change.request, change.dataset, change.existing
    dim, mode, steps = dataset.dim, request.mode, dataset.steps
    names = {name for family in dataset.families for name in family.layout.variables}
    clash = sorted(names & existing.arrays.keys())
    if mode == "create" and clash:
        raise AlreadyExistsError(
            f"mode 'create' needs a group without the arrays of the files, but `/{existing.path}` has "
            f"`{clash[0]}`"
        ).with_remedy(
            "Add new files with {}. Modes 'insert', 'upsert' and 'backfill' also replace values",
            argument(mode="append"),
        )
    change.require_dimension()
    if dim is None or not dataset.families:
        return None, []
    arrays = [existing.arrays[name] for name in existing.arrays_along(dim)]
    length = max((array.shape[dims_of(array).index(dim)] for array in arrays), default=0)
    if steps.labels is None or steps.axis is None:
        if steps.length and length and (mode not in ("create", "append") or dim in existing.arrays):
            raise InvalidInputError(
                f"mode {mode!r} needs labels of {dim} in the files, as `/{existing.path}` has them, but the "
                "files have none"
            )
        places = np.arange(length + steps.length)  # new steps follow the old steps
        return StepAxis(len(places), None, places[:length], places[length:]), []
    if dim in existing.arrays:
        old = read_labels(existing.arrays[dim])
    elif length:
        raise misfit(
            f"`/{existing.path}` must have labels of {dim}, as the files have them, but it has none. Ingest "
            "the files into another group"
        )
    else:
        old = steps.axis[:0]
        mode = "create" if mode != "insert" else mode
    if changed.any() and request.on_change == "rewrite":
        # The group has the labels of changed files. The mode applies to all other labels.
        places = steps.at[np.repeat(changed, steps.counts)]
        fresh = np.ones(steps.length, np.bool_)
        fresh[places[places >= 0]] = False
        if fresh.any():
            place_labels(mode, old, steps.axis[fresh], steps)
        mode = "backfill" if mode == "backfill" else "upsert"
    axis = place_labels(mode, old, steps.axis, steps)
    return axis, dataset.holes(axis.labels, old)


def grow_arrays(
    change: GroupChange, arrays: list[PlannedArray], groups: list[ArrayGroup], axis: StepAxis, dim: str
) -> None:
    """Resize the arrays of the group, move whole chunks, and add arrays and groups whose steps tasks move."""
    existing, count = change.existing, len(arrays)
    number_of = {each.target.path.rpartition("/")[2]: number for number, each in enumerate(arrays)}
    pieces_of = {number: group.pieces for group in groups for number in group.arrays}
    for number, each in enumerate(arrays):
        if each.target.axis is not None and each.target.path.rpartition("/")[2] not in existing.arrays:
            _clear_steps(
                open_target(existing.session.store, each.target.path),
                each.target.axis,
                axis,
                pieces_of.get(number, NO_PIECES),
            )
    has_moves = axis.first_moved < len(axis.old)
    for name in existing.arrays_along(dim):
        array = existing.arrays[name]
        at = dims_of(array).index(dim)
        shape = (*array.shape[:at], axis.length, *array.shape[at + 1 :])
        if shape != array.shape:
            array.resize(shape)
        pieces = pieces_of.get(number_of.get(name, -1), NO_PIECES)
        if name != dim and not has_moves:
            _clear_steps(array, at, axis, pieces)
        if name == dim or not has_moves:
            continue
        if name not in number_of:
            number_of[name] = len(arrays)
            bystander = TargetArray(
                existing.path_of(name), name, dims_of(array), shape, array.dtype, array.chunks, at,
                array.fill_value, dict(array.attrs), array.shards,
            )  # fmt: skip
            arrays.append(PlannedArray(bystander, existed=True))
        number = number_of[name]
        target, step = arrays[number].target, arrays[number].target.step
        old = old_pieces(axis, 0, axis.length)
        # The last chunk of the old and of the new axis may be a part of a chunk.
        ends = (old.at + old.count == axis.length) & (old.start + old.count == len(axis.old))
        if not ((old.at % step) | (old.start % step) | (old.count * ~ends) % step).any():
            _shift_chunks(change.existing.session, target, axis)
            _clear_steps(array, at, axis, pieces)
            arrays[number] = replace(arrays[number], shifted=True)
        elif target.codecs:
            raise InvalidInputError(
                f"mode 'backfill' of a virtual ingest can move only whole chunks of `{target.path}` "
                f"({step} steps), but the new labels are within chunks. Copy this variable",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        elif number >= count:
            groups.append(ArrayGroup((number,), NO_PIECES))


def _clear_steps(array: zarr.Array[Any], at: int, axis: StepAxis, pieces: StepRuns) -> None:
    """Make the steps missing that have no old values, and get no new ones by ``pieces``.

    Steps of files stay: a chunk without a reference in a file has the fill value of the file.
    """
    counts = np.zeros(axis.length + 1, np.int64)
    np.add.at(counts, pieces.at, 1)
    np.add.at(counts, pieces.at + pieces.count, -1)
    counts = np.cumsum(counts[:-1])
    counts[axis.old] = 1
    bare = np.flatnonzero(counts == 0)
    for part in np.split(bare, np.flatnonzero(np.diff(bare) != 1) + 1) if len(bare) else ():
        _clear(array, at, int(part[0]), int(part[-1]) + 1)


def _clear(array: zarr.Array[Any], axis: int, start: int, stop: int) -> None:
    """Make elements missing that no chunk has, if the fill value of the array is not a missing value."""
    missing = missing_element(array)
    if not is_fill(array, missing):
        box = [(start, stop) if at == axis else (0, size) for at, size in enumerate(array.shape)]
        fill_box(array, box, missing)


def _shift_chunks(session: Session, target: TargetArray, axis: StepAxis) -> None:
    """Move references: chunk ``i`` along the axis moves to the new position of its first step."""
    at, step = target.axis or 0, target.step
    workspace = session.workspace
    table = workspace.ref_table(target.path)
    if not len(table):
        return
    index = table.index.copy()
    index[:, at] = (axis.old[::step] // step)[index[:, at]]
    moved = replace(table, index=index).sorted()
    workspace.set_refs(target.path, ChunkTable.merge_tables([ChunkTable.from_absent(table.index), moved]))


def write_grown(change: GroupChange) -> None:
    """Resize the arrays along dimensions that grow, and write their labels and what files have for labels."""
    dataset, existing, store = change.dataset, change.existing, change.existing.session.store
    grown, sizes = dataset.grown, change.request.chunks
    for dim, labels in grown.labels.items():
        for name in existing.arrays_along(dim):
            array = existing.arrays[name]
            at, before = dims_of(array).index(dim), array.shape[dims_of(array).index(dim)]
            if before < len(labels):
                array.resize((*array.shape[:at], len(labels), *array.shape[at + 1 :]))
                _clear(array, at, before, len(labels))
    for name, values in grown.values.items():
        if name not in existing.arrays:
            variable = replace(dataset.variables[name], shape=values.shape)
            encoding = (change.request.encoding or {}).get(name)
            create(store, target_array(variable, existing.path_of(name), dataset.dim, 0, sizes, encoding))
        existing.reopen_array(name)
        array = existing.arrays[name]
        if not same(read_labels(array) if array.ndim == 1 else np.asarray(array[...]), values).all():
            array[...] = values


def write_labels(change: GroupChange, axis: StepAxis) -> None:
    """Write the labels of the dimension, from the first label that is new or moves."""
    dataset, existing, store = change.dataset, change.existing, change.existing.session.store
    dim = dataset.dim
    if dim is None or axis.labels is None or dim not in dataset.variables:
        return
    path = existing.path_of(dim).strip("/")
    if dim not in existing.arrays:
        variable = replace(dataset.variables[dim], dims=(dim,), shape=(-1,))
        create(store, target_array(variable, path, dim, axis.length))
        start = 0
    else:
        start = min(axis.first_moved, len(axis.old))
    array = open_target(store, path)
    if array.shape[0] != axis.length:
        array.resize((axis.length,))
    if start < axis.length:
        array[start:] = np.asarray(axis.labels[start:]).astype(array.dtype)


# The arrays


def plan_tasks(change: GroupChange) -> Tasks:
    """Create and resize arrays, write the labels, and divide the remaining work into items."""
    request, dataset, existing, axis = change.request, change.dataset, change.existing, change.axis
    dim, urls = dataset.dim, dataset.inspection.urls
    change.require_names()
    if not existing.arrays:
        # The group gets the attributes of the first file. Its own attributes stay.
        root = zarr.open_group(existing.session.store, path=existing.path, mode="a", zarr_format=3)
        with request.access.open(urls[min(int(each.files[0]) for each in dataset.families)]) as reader:
            attrs = reader.schema().attrs
        root.attrs.update({name: value for name, value in attrs.items() if name not in root.attrs})
    write_grown(change)
    retained = change.retained_scalars()
    if dim is not None and axis is not None and existing.arrays_along(dim):
        # Arrays that were equal in all earlier files may differ now.
        for family in dataset.families:
            longest = longest_chunk(dataset.inspection.length[family.files])
            for name in family.along & family.layout.individual & existing.arrays.keys():
                existing.add_dimension(name, dim, len(axis.old), longest)
    arrays, groups = plan_arrays(change, retained)
    require_lengths(existing, [each.target for each in arrays], dim)
    sources = [group.pieces.source for group in groups if group.virtual]
    referenced = [urls[i] for i in np.unique(np.concatenate(sources)).tolist()] if sources else []
    locations = [parse_url(url).chunk_location for url in referenced]
    matches = existing.session.workspace.context.virtual.matching(locations) if locations else np.ones(1)
    if not matches.all():
        first = int(np.argmin(matches))
        raise without_container(locations[first], referenced[first])
    if axis is not None and dim is not None:
        _require_missing_values(change, arrays, groups, axis, dim)
        grow_arrays(change, arrays, groups, axis, dim)
        write_labels(change, axis)
    work = list(_items(change, groups, arrays))
    labels = tuple(existing.path_of(name) for name in existing.arrays if existing.arrays_along(name))
    return Tasks(work, TaskContext(tuple(arrays), request.access), reads=labels)


def plan_arrays(change: GroupChange, retained: frozenset[str]) -> tuple[list[PlannedArray], list[ArrayGroup]]:
    """Return the arrays that get values, with their groups. ``retained`` scalars get only the new steps."""
    dataset, axis = change.dataset, change.axis
    owner: dict[str, int] = {}
    for at, family in enumerate(dataset.families):
        for name in family.layout.variables:
            owner.setdefault(name, at)
    if dataset.dim is not None and dataset.steps.labels is not None:
        owner.pop(dataset.dim, None)  # the driver writes the labels
    for name in dataset.grown.values:
        owner.pop(name, None)
    arrays: list[PlannedArray] = []
    groups: list[ArrayGroup] = []
    for at, family in enumerate(dataset.families):
        pieces = None
        if axis is not None and len(dataset.steps.start) > 1:
            parts = dataset.grown.parts(dataset.inspection, family.files)
            placed = map(dataset.steps.placed, parts)
            pieces = joined_runs(
                [runs(source, inside, axis.new[places]) for source, inside, places in placed]
            )
        first = len(arrays)
        arrays += _family_arrays(change, family, [name for name, each in owner.items() if each == at], pieces)
        file = np.array([family.files[0]], np.int64)
        alike: dict[tuple[bool, bool], list[int]] = {}
        for number in range(first, len(arrays)):
            array = arrays[number]
            has_axis = array.target.axis is not None
            joined = None
            if axis is not None and pieces is not None and has_axis:
                joined = _joined_pieces(change, family, array.target.name, axis, retained)
            if joined is not None:
                groups.append(ArrayGroup((number,), joined))
            elif not has_axis or pieces is not None:
                alike.setdefault((not has_axis, array.virtual), []).append(number)
        for (is_fixed, virtual), numbers in sorted(alike.items()):
            nothing = np.zeros(1, np.int64)
            mine = StepRuns(file, nothing, nothing, nothing) if is_fixed or pieces is None else pieces
            groups.append(ArrayGroup(tuple(numbers), mine, virtual))
    return arrays, groups


def _joined_pieces(
    change: GroupChange, family: FileFamily, name: str, axis: StepAxis, retained: frozenset[str]
) -> StepRuns | None:
    """Return the pieces of an array that several families share; None if it is the array of one family."""
    mine, sharing = family.layout.variables[name], []
    for each in change.dataset.families:
        variable = each.layout.variables.get(name)
        if (
            variable is not None
            and (variable.dims, variable.shape) == (mine.dims, mine.shape)
            and (name in each.along) == (name in family.along)
            and (each.layout.is_converted(name) or np.can_cast(variable.dtype, mine.dtype, "same_kind"))
        ):
            sharing.append(each.files)
    if name not in retained and len(sharing) <= 1:
        return None
    source, inside, at = change.dataset.steps.placed(np.concatenate(sharing))
    places, first = np.unique(axis.new[at], return_index=True)
    if name in retained:
        fresh = ~np.isin(places, axis.old)
        places, first = places[fresh], first[fresh]
    return runs(source[first], inside[first], places)


def _family_arrays(
    change: GroupChange, family: FileFamily, names: Sequence[str], pieces: StepRuns | None
) -> Iterator[PlannedArray]:
    """Yield the arrays of variables of a family: first data, whose chunks coordinates follow."""
    request, dataset, existing = change.request, change.dataset, change.existing
    windows = change.windows_of(family)
    length = 0 if change.axis is None else change.axis.length
    others: list[TargetArray] = []
    for name in sorted(names, key=lambda each: family.layout.variables[each].coordinate):
        variable = family.variable(name)
        unpacked = request.unpack and not variable.coordinate and name in dataset.encodings.packed
        if name in dataset.variables:
            variable = with_encoding(variable, dataset.variables[name])
        if unpacked:
            dtypes = []
            for each in variables_of(dataset.inspection, family.files, name):
                if wrong := coding_of(each.attrs, each.dtype).misfit:
                    raise misfit(
                        f"scale_factor and add_offset of `{existing.path_of(name)}` must be numbers, got "
                        f"{wrong}"
                    ).with_remedy("Ingest the stored numbers, without {}", argument(unpack=True))
                empty = np.empty([0] * len(each.dims), each.dtype)
                coded = xr.Variable(each.dims, empty, dict(each.attrs))
                dtypes.append(xr.conventions.decode_cf_variable(name, coded, decode_times=False).dtype)
            coded_by = {*PACKING, *MISSING, "_Unsigned"}
            attrs = {key: each for key, each in variable.attrs.items() if key not in coded_by}
            attrs["_FillValue"] = float("nan")
            variable = replace(variable, attrs=attrs, dtype=np.result_type(*dtypes), fill_value=None)
        array, path = existing.arrays.get(name), existing.path_of(name)
        virtual = _virtual_chunks(change, family, name, pieces)
        encoding = (request.encoding or {}).get(name)
        target = target_array(variable, path, dataset.dim, length, request.chunks, encoding, virtual)
        shared: dict[str, int] = {}
        if array is None and virtual is None and not variable.coordinate:
            chunks = {**_shared_chunks(existing.arrays, target.dims), **(request.chunks or {})}
            alike = target_array(variable, path, dataset.dim, length, chunks, encoding, virtual)
            if alike.chunk_bytes <= LARGEST:
                target, shared = alike, chunks
        if array is not None:
            is_data = "dtype" in request.allow and virtual is None and not variable.coordinate
            target = matched_array(array, target, virtual, windows, widens=is_data)
        elif windows.keys() & set(target.dims):
            raise misfit(
                f"`{target.path}` must exist in the repository, because the files have only a part of it. "
                "Ingest files with all of it first"
            )
        elif virtual is None:
            target = _with_chosen_chunks(change, family, target, variable, others, shared)
        if target.axis is not None:
            others.append(target)
        if target.axis is None:
            _require_all_labels(change, family, target)
        stored = None
        if array is None:
            create(existing.session.store, target)
        elif target.dtype != array.dtype:
            stored = widen_array(existing.session, target)
            existing.reopen_array(name)
        elif target.axis is not None and array.chunks != target.chunks:
            recut_array(existing.session, target.path, target.chunks, target.axis, target.dtype.itemsize)
            existing.reopen_array(name)
        elif target.axis is None:
            # Only data of one file without a concat dimension are replaced.
            if dataset.dim is not None or request.mode in ("create", "append") or variable.coordinate:
                expected = family.values.get(name) if "values" not in request.allow else None
                part = tuple(slice(*windows[dim]) if dim in windows else slice(None) for dim in target.dims)
                if expected is not None and values_digest(np.asarray(array[part])) != expected:
                    raise misfit(
                        f"values of `{target.path}` must be those of the repository, but the files have "
                        "other values"
                    ).with_remedy("{} keeps the values of the repository", argument(allow={"values"}))
                continue
            if target.window is not None:
                raise misfit(
                    f"mode {request.mode!r} needs a file with all of `{target.path}`, but the file has a "
                    "part of it"
                ).with_remedy(
                    "Name the dimension in which files follow each other with {}", argument(concat_dim=...)
                )
        yield PlannedArray(
            target, array is not None, name in family.along, virtual is not None, unpacked, stored=stored
        )


def _require_missing_values(
    change: GroupChange,
    arrays: Sequence[PlannedArray],
    groups: Sequence[ArrayGroup],
    axis: StepAxis,
    dim: str,
) -> None:
    """Check that each array with cells that get no value has an element that decodes as missing."""
    existing, grown, labelled = change.existing, change.dataset.grown, change.dataset.inspection.labelled
    pieces_of = {number: group.pieces for group in groups for number in group.arrays}
    planned = {
        each.target.name: (each.target, pieces_of.get(at, NO_PIECES)) for at, each in enumerate(arrays)
    }
    forms: list[tuple[str, np.dtype[Any], Mapping[str, Any], tuple[str, ...], StepRuns]] = [
        (name, each.dtype, each.attrs, each.dims, pieces) for name, (each, pieces) in planned.items()
    ]
    others = {name: existing.arrays[name] for name in existing.arrays_along(dim) if name not in planned}
    forms += [(name, each.dtype, dict(each.attrs), dims_of(each), NO_PIECES) for name, each in others.items()]
    for name, dtype, attrs, dims, pieces in forms:
        is_number = name != dim and dim in dims and dtype.kind in "biu"
        if not is_number or missing_element_of(attrs, dtype) is not None:
            continue
        grows = [each for each in dims if each in grown.labels]
        # The cells of a step that get a value, counted in the dimensions that grow.
        width = np.ones(len(pieces), np.int64)
        for each in grows:
            codes, number_of = np.unique(labelled[pieces.source], return_inverse=True)
            width *= np.array([len(grown.places[code][each]) for code in codes.tolist()], np.int64)[number_of]
        if name in planned and planned[name][0].window is not None:
            width[:] = 0
        cells = np.zeros(axis.length + 1, np.int64)
        np.add.at(cells, pieces.at, width)
        np.add.at(cells, pieces.at + pieces.count, -width)
        has = np.cumsum(cells[:-1]) >= math.prod(len(grown.labels[each]) for each in grows)
        if name in existing.arrays and all(grown.before[each] == len(grown.labels[each]) for each in grows):
            has[axis.old] = True
        if not has.all():
            raise misfit(
                f"`{existing.path_of(name)}` must have a missing value, because {(~has).sum():,} of its "
                f"{axis.length:,} steps have cells without a value, but numbers of {dtype} without a "
                "_FillValue have none"
            ).with_remedy(
                "Give it a _FillValue with {}, store floats with {} if it is packed, or leave it out with {}",
                argument(preprocess=...),
                argument(unpack=True),
                argument(variables=...),
            )


def _require_all_labels(change: GroupChange, family: FileFamily, target: TargetArray) -> None:
    """Check that the file of an array without the concat dimension has all labels, in their order."""
    grown, code = change.dataset.grown, int(change.dataset.inspection.labelled[family.files[0]])
    for dim in grown.labels.keys() & {*target.dims}:
        if not np.array_equal(grown.places[code][dim], np.arange(len(grown.labels[dim]))):
            raise misfit(
                f"`{target.path}` must have a dimension in which files follow each other, because {dim} grows"
            ).with_remedy("Name it with {}", argument(concat_dim="time"))


def _virtual_chunks(
    change: GroupChange, family: FileFamily, name: str, pieces: StepRuns | None
) -> VirtualChunks | None:
    """Return the chunks of a variable for references; None if the variable is copied.

    Plain chunks are as long as the borders of all files and of the existing array allow. A piece that ends at
    the end of the axis may be part of a chunk, if its file has the whole chunk.
    """
    virtual = (family.layout.virtual or {}).get(name)
    if not isinstance(virtual, VirtualChunks):
        return None
    axis, inspection = change.axis, change.dataset.inspection
    if ANY not in virtual.chunks or axis is None or pieces is None:
        return virtual
    at = virtual.chunks.index(ANY)
    chunked = [(layout.virtual or {}).get(name) for layout in inspection.layouts]
    by_layout = [each.unit if isinstance(each, VirtualChunks) else 0 for each in chunked]
    units = np.array(by_layout, np.int64)[inspection.layout[pieces.source]]
    array = change.existing.arrays.get(name)
    existing = None if array is None or len(array.chunks) <= at else array.chunks
    part = (pieces.at + pieces.count == axis.length) & (units < inspection.length[pieces.source])
    numbers = [pieces.at, pieces.start, pieces.count[~part], units]
    if existing is not None:
        old = old_pieces(axis, 0, axis.length)
        part = (old.start + old.count == len(axis.old)) & (old.at + old.count == axis.length)
        numbers += [old.at, old.start, old.count[~part], np.array([existing[at]])]
    steps = max(int(np.gcd.reduce(np.concatenate(numbers))), 1)
    whole = bool((units == steps).all())  # the chunks of all files have exactly this many steps
    before, behind, ones = virtual.chunks[:at], virtual.chunks[at + 1 :], (1,) * at
    if existing is None:
        row = math.prod(behind) * virtual.dtype.itemsize * (math.prod(before) if whole else 1)
        divisors = np.arange(1, min(steps, max(LARGEST // max(row, 1), 1)) + 1)
        chosen = int(divisors[steps % divisors == 0].max(initial=1))
        chunks = (*(before if whole and chosen == steps else ones), chosen, *behind)
    elif steps == existing[at] and (existing[:at] == ones or (whole and existing[:at] == before)):
        chunks = (*existing[: at + 1], *behind)
    else:
        chunks = (*ones, steps, *behind)
    return replace(virtual, chunks=chunks, unit=0)


def _shared_chunks(arrays: Mapping[str, zarr.Array[Any]], dims: Sequence[str]) -> dict[str, int]:
    """Return the chunk lengths along dimensions in which the data of a group with most dimensions agree."""
    data = [array for name, array in arrays.items() if name not in dims_of(array)]
    lengths = dict[str, int]()
    for dim in dims:
        with_dim = [array for array in data if dim in dims_of(array)]
        most = max((array.ndim for array in with_dim), default=0)
        steps = {array.chunks[dims_of(array).index(dim)] for array in with_dim if array.ndim == most}
        if len(steps) == 1:
            lengths[dim] = steps.pop()
    return lengths


def _with_chosen_chunks(
    change: GroupChange,
    family: FileFamily,
    target: TargetArray,
    variable: VariableSchema,
    data: Sequence[TargetArray],
    shared: Mapping[str, int],
) -> TargetArray:
    """Return a new array with chosen chunks. A coordinate follows the chunks of the arrays ``data``.

    ``shared`` are the chunk lengths of the caller, and of other arrays of the group.
    """
    request, dim, axis = change.request, change.dataset.dim, target.axis
    sizes = request.chunks or {}
    if shared.keys() - sizes.keys() and (dim in shared or axis is None):
        return replace(target, chunk_reason="as in other arrays of the group")
    has_choice = "chunks" in (request.encoding or {}).get(target.name, {}) or dim in sizes
    if has_choice or axis is None:
        has_choice = has_choice or not sizes.keys().isdisjoint(target.dims)
        reason = "as the caller chose" if has_choice else "at most 64 MiB"
        return replace(target, chunk_reason="" if variable.coordinate else reason)
    lengths, reason = change.dataset.inspection.length[family.files], ""
    most = longest_chunk(lengths)
    if variable.coordinate and data:
        # A small array that belongs to data, such as bounds, has as many steps in a chunk as one task writes.
        # In a chunk of the usual size in bytes, one task would have to open all files.
        chunk = max(data, key=lambda each: each.row).step
        span = max(min(TASK // max(sum(each.row for each in data) * chunk, 1), most // chunk), 1)
        length = 0 if change.axis is None else change.axis.length
        steps = chunk * max(1, min(span, -(-max(length, (1 << 20) // max(target.row, 1)) // chunk)))
    elif variable.coordinate:
        steps = min(target.chunks[axis], most)
    else:
        native = variable.chunks
        if native is not None and len(native) == len(target.chunks) and not sizes:
            own = tuple(
                each if at == axis else min(each, max(size, 1))
                for at, (each, size) in enumerate(zip(native, target.shape, strict=True))
            )
            # The chunks of the files, if they fit in size, and if each file has whole chunks.
            fits = SMALLEST <= replace(target, chunks=own).chunk_bytes <= LARGEST
            if fits and not (lengths % max(own[axis], 1)).any():
                return replace(target, chunks=own, chunk_reason="as in the files")
        steps, reason = choose_steps(lengths, target.chunk_bytes // target.chunks[axis])
    chunks = (*target.chunks[:axis], steps, *target.chunks[axis + 1 :])
    return replace(target, chunks=chunks, chunk_reason=reason)


def longest_chunk(lengths: NDArray[np.int64]) -> int:
    """Return the largest number of steps of a chunk: one task has to open all files of a chunk."""
    return max(int(FILES_OF_A_CHUNK * lengths.mean()), 1)


# The items


def _items(
    change: GroupChange, groups: Sequence[ArrayGroup], arrays: Sequence[PlannedArray]
) -> Iterator[IngestItem]:
    """Yield the items of all groups."""
    inspection = change.dataset.inspection
    conversions: dict[int, dict[str, Conversion]] = {}
    for name, by_code in change.dataset.encodings.conversions.items():
        for code, conversion in by_code.items():
            conversions.setdefault(code, {})[name] = conversion
    grown = change.dataset.grown
    # References store times in whole seconds, and the file must not be newer.
    checks = [
        etag or (time and time.replace(microsecond=0) + timedelta(seconds=time.microsecond > 0))
        for etag, time in zip(inspection.etag, inspection.modified, strict=True)
    ]

    def item(boxes: Sequence[ArrayBox], pieces: StepRuns, old: StepRuns, virtual: bool) -> IngestItem:
        """Return an item with the rows of the files of its pieces."""
        files, codes = np.unique(pieces.source, return_inverse=True)
        numbers = files.tolist()
        return IngestItem(
            tuple(boxes),
            replace(pieces, source=codes.astype(np.int64)),
            old,
            tuple(map(inspection.urls.__getitem__, numbers)),
            tuple(map(conversions.get, inspection.encodings[files].tolist())),
            tuple(map(checks.__getitem__, numbers)),
            inspection.fingerprint[files],
            virtual,
            tuple(map(grown.places.__getitem__, inspection.labelled[files].tolist())) if grown.labels else (),
        )

    for group in groups:
        if arrays[group.arrays[0]].target.axis is not None:
            if change.axis is not None:
                urls, engine = inspection.urls, change.request.engine
                for boxes, pieces, old in _axis_boxes(arrays, group, change.axis, urls, engine):
                    yield item(boxes, pieces, old, group.virtual)
            continue
        small: list[ArrayBox] = []
        for number in group.arrays:
            array = arrays[number].target
            whole = ArrayBox(number, (0,) * len(array.shape), array.shape)
            row = int(np.prod(array.shape[1:], dtype=object)) * array.itemsize
            size = row * math.prod(array.shape[:1])
            parts = min(slots_of(change.request.engine), size // LEAST_TASK)  # each opens the file again
            if not array.shape or (size <= LARGE and parts < 2):
                small.append(whole)
                continue
            task = min(TASK, -(-size // max(parts, 1)))
            step = array.grid[0] * max(task // max(row * array.grid[0], 1), 1)
            for at in range(0, array.shape[0], step):
                stop = (min(at + step, array.shape[0]), *array.shape[1:])
                box = ArrayBox(number, (at, *whole.start[1:]), stop)
                yield item([box], group.pieces, NO_PIECES, group.virtual)
        if small:
            yield item(small, group.pieces, NO_PIECES, group.virtual)


def _axis_boxes(
    arrays: Sequence[PlannedArray],
    group: ArrayGroup,
    axis: StepAxis,
    urls: Sequence[str],
    engine: Engine | EngineName | None,
) -> Iterator[tuple[list[ArrayBox], StepRuns, StepRuns]]:
    """Yield the boxes of each item of arrays along the axis, with the steps of files and of the group."""
    pieces = group.pieces
    for target in [arrays[number].target for number in group.arrays] if group.virtual else ():
        step, ends = target.step, pieces.at + pieces.count
        bad = (pieces.at % step != 0) | (pieces.start % step != 0)
        bad |= (pieces.count % step != 0) & (ends != axis.length)
        if bad.any():
            row = int(np.argmax(bad))
            url = urls[int(pieces.source[row])]
            raise InvalidInputError(
                f"a virtual ingest needs files on the borders of chunks of {step} steps of `{target.path}`, "
                f"got {url} at {pieces.at[row]}:{ends[row]} (from its step "
                f"{pieces.start[row]}). Copy this variable",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
    for numbers in _task_groups([(number, arrays[number].target) for number in group.arrays]):
        chosen = [arrays[number] for number in numbers]
        unit = math.lcm(*(each.target.step for each in chosen))
        steps, files = max(int(pieces.count.sum()), 1), len(np.unique(pieces.source))
        row = sum(each.target.row for each in chosen)
        task = TASK if group.virtual else task_bytes(steps * row, TASK, engine)
        by_size = task // max(unit * row, 1)
        by_files = math.ceil(files_per_task(files, engine) / max(unit * files / steps, 1e-9))
        span = unit * max(1, min(by_size, by_files))
        boxes: dict[tuple[int, int], list[ArrayBox]] = {}
        for number, array in zip(numbers, chosen, strict=True):
            stays = array.shifted or not array.existed
            moved = len(axis.old) if stays else axis.first_moved
            moved = moved if array.stored is None else 0
            for start, stop in _changed_spans(pieces, axis, array.target.step, moved, span):
                for part, box in enumerate(_boxes(number, array.target, start, stop, task)):
                    boxes.setdefault((start // span, part), []).append(box)
        for (where, _), mine in sorted(boxes.items()):
            low, high = where * span, min((where + 1) * span, axis.length)
            existed = any(arrays[box.array].existed for box in mine)
            old = old_pieces(axis, low, high) if existed else NO_PIECES
            yield mine, pieces.within(low, high), old


def _changed_spans(
    pieces: StepRuns, axis: StepAxis, step: int, moved: int, span: int
) -> Iterator[tuple[int, int]]:
    """Yield spans of chunks with new or moved steps, cut on the borders of tasks."""
    low, high = pieces.at // step, -(-(pieces.at + pieces.count) // step)
    counts = high - low
    chunks = np.repeat(low - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    if moved < len(axis.old):
        chunks = np.concatenate([chunks, np.arange(moved // step, -(-axis.length // step))])
    chunks = np.unique(chunks)
    if not len(chunks):
        return
    breaks = (np.diff(chunks) != 1) | (np.diff(chunks * step // span) != 0)
    first = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    last = np.append(first[1:], len(chunks)) - 1
    for start, stop in zip(
        (chunks[first] * step).tolist(), ((chunks[last] + 1) * step).tolist(), strict=True
    ):
        yield start, min(stop, axis.length)


def _task_groups(chosen: list[tuple[int, TargetArray]]) -> list[list[int]]:
    """Return the groups of arrays that share tasks: small arrays whose chunks are multiples of each other."""
    groups: list[tuple[int, list[int]]] = []
    large = [number for number, array in chosen if _is_large(array)]
    rest = [(array.step, number) for number, array in chosen if not _is_large(array)]
    for step, number in sorted(rest, reverse=True):
        for at, (unit, numbers) in enumerate(groups):
            both = math.lcm(unit, step)
            if both <= 4 * max(unit, step):
                groups[at] = (both, [*numbers, number])
                break
        else:
            groups.append((step, [number]))
    return [*([number] for number in large), *(sorted(numbers) for _, numbers in groups)]


def _is_large(array: TargetArray) -> bool:
    return array.step * array.row > LARGE and len(array.shape) > 1


def _boxes(number: int, array: TargetArray, start: int, stop: int, task: int) -> Iterator[ArrayBox]:
    """Yield a span of the axis as one box, or as several along another dimension of a large array."""
    low, high = [first for first, _ in array.bounds], [last for _, last in array.bounds]
    axis = array.axis or 0
    low[axis], high[axis] = start, stop
    cut = next((i for i, step in enumerate(array.grid) if i != axis and high[i] - low[i] > step), None)
    if not _is_large(array) or cut is None:
        yield ArrayBox(number, tuple(low), tuple(high))
        return
    chunks = -(-array.shape[cut] // array.grid[cut])
    per_chunk = max(array.grid[axis] * array.row // chunks, 1)
    step = array.grid[cut] * max(task // per_chunk, 1)
    last = high[cut]
    for at in range(low[cut], last, step):
        low[cut], high[cut] = at, min(at + step, last)
        yield ArrayBox(number, tuple(low), tuple(high))

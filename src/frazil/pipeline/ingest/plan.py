"""The plan of an ingest, made on the driver: the new files, the axis, the growth of the group, and the tasks.

ledger_match  finds the files that the ledger contains
dataset       finds the dataset of the other files
axis_plan     finds the positions of their steps
task_plan     plans the arrays, and the items of work
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import compress
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arrays.box_writing import fill_box, is_fill, missing_element
from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from frazil.format.manifest import ChunkTable
from frazil.jobs.job import Tasks
from frazil.pipeline.ingest.array_plan import (
    NO_PIECES,
    ArrayGroup,
    FamilyArrays,
    FileTable,
    FixedArrays,
    Item,
    PlannedArray,
    can_shift,
    fixed_items,
    items,
    longest_chunk,
    plan_arrays,
    require_aligned,
)
from frazil.pipeline.ingest.arrays import TargetArray, create, open_target, read_labels, target_array
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.existing import (
    ExistingGroup,
    GroupChange,
    axis_of,
    dims_of,
    require_dimension,
    require_lengths,
    require_names,
    require_same_scalars,
    retained_scalars,
)
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.ledger import Ledger, LedgerMatch, LedgerVersion, match_ledger, save_ledger
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.problems import Problem, refusal
from frazil.pipeline.ingest.report import Report, chosen_chunks, notes
from frazil.pipeline.ingest.steps import Axis, Pieces, holes, place_labels, runs
from frazil.pipeline.ingest.tasks import TaskContext, without_container
from frazil.remedies import argument
from frazil.repository.session.session import Session
from frazil.storage.urls import parse_url


def plan_axis(change: GroupChange, changed: NDArray[np.bool_]) -> tuple[Axis | None, list[Problem]]:
    """Return the axis and its gaps. The axis is None if files do not follow each other.

    ``changed`` is a mask of the files that were ingested with other contents.
    """
    request, dataset, existing = change.request, change.dataset, change.existing
    dim, mode, steps = dataset.dim, request.mode, dataset.steps
    _require_no_arrays(change)
    require_dimension(change)
    if dim is None or not dataset.families:
        return None, []
    arrays = [existing.arrays[name] for name in existing.arrays_along(dim)]
    length = max((array.shape[axis_of(array, dim)] for array in arrays), default=0)
    if dataset.labels is None or dataset.axis is None:
        if steps.length and length and (mode not in ("create", "append") or dim in existing.arrays):
            raise InvalidInputError(
                f"mode {mode!r} needs labels of {dim} in the files, as `/{existing.path}` has them, but the "
                "files have none",
                ErrorKind.INVALID_ARGUMENT,
            )
        return Axis.after(length, steps.length), []
    if dim in existing.arrays:
        old = read_labels(existing.arrays[dim])
    elif length:
        raise InvalidInputError(
            f"`/{existing.path}` must have labels of {dim}, as the files have them, but it has none. Ingest "
            "the files into another group",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
    else:
        old = dataset.axis[:0]
        mode = "create" if mode != "insert" else mode
    place_on_axis = partial(
        place_labels,
        descending=steps.descending,
        in_order=steps.in_order,
        units=steps.units,
        calendar=steps.calendar,
    )
    if changed.any() and request.on_change == "rewrite":
        # The group has the labels of changed files. The mode applies to all other labels.
        places = steps.at[np.repeat(changed, steps.counts)]
        fresh = np.ones(steps.length, np.bool_)
        fresh[places[places >= 0]] = False
        if fresh.any():
            place_on_axis(mode, old, dataset.axis[fresh])
        mode = "backfill" if mode == "backfill" else "upsert"
    axis = place_on_axis(mode, old, dataset.axis)
    one_file, refused = dataset.one_file_each, dataset.refused
    return axis, holes(axis.labels, steps.units, steps.calendar, old, one_file=one_file, refused=refused)


def _require_no_arrays(change: GroupChange) -> None:
    """Raise an error if the mode is "create" and the group has an array of the files."""
    request, dataset, existing = change.request, change.dataset, change.existing
    names = {name for family in dataset.families for name in family.layout.variables}
    clash = sorted(names & existing.arrays.keys())
    if request.mode == "create" and clash:
        raise AlreadyExistsError(
            f"mode 'create' needs a group without the arrays of the files, but `/{existing.path}` has "
            f"`{clash[0]}`"
        ).with_remedy(
            "Add new files with {}. Modes 'insert', 'upsert' and 'backfill' also replace values",
            argument(mode="append"),
        )


def create_group(change: GroupChange) -> None:
    """Create the group with the attributes of the first file. Existing attributes of the group stay."""
    root = zarr.open_group(change.session.store, path=change.existing.path, mode="a", zarr_format=3)
    first = min(int(each.files[0]) for each in change.dataset.families)
    with change.request.access.open(change.inspection.urls[first]) as reader:
        attrs = reader.schema().attrs
    root.attrs.update({name: value for name, value in attrs.items() if name not in root.attrs})


def add_dimensions(change: GroupChange) -> None:
    """Give existing arrays the dimension, if they were equal in all earlier files and differ now."""
    dataset, existing, axis = change.dataset, change.existing, change.axis
    dim = dataset.dim
    if dim is None or axis is None or not existing.arrays_along(dim):
        return
    for family in dataset.families:
        longest = longest_chunk(dataset.inspection.length[family.files])
        for name in family.along & family.layout.individual & existing.arrays.keys():
            existing.add_dimension(name, dim, len(axis.old), longest)


def grow_arrays(
    change: GroupChange, arrays: Sequence[PlannedArray], axis: Axis, dim: str
) -> tuple[list[PlannedArray], list[int]]:
    """Resize the arrays of the group, and move the chunks that can be moved as a whole.

    Returns all arrays, and the numbers of those that get no values from files, but whose steps tasks move.
    """
    existing = change.existing
    result = list(arrays)
    number_of = {each.target.path.rpartition("/")[2]: number for number, each in enumerate(arrays)}
    has_moves = axis.first_moved < len(axis.old)
    bystanders = []
    for name in existing.arrays_along(dim):
        array = existing.arrays[name]
        at = axis_of(array, dim)
        shape = (*array.shape[:at], axis.length, *array.shape[at + 1 :])
        if shape != array.shape:
            array.resize(shape)
            if name != dim and not has_moves:
                _clear(array, at, len(axis.old), axis.length)
        if name == dim or not has_moves:
            continue
        number = number_of.get(name, len(result))
        if number == len(result):
            result.append(PlannedArray(_bystander(existing, name, at, shape), existed=True))
        target = result[number].target
        if can_shift(target, axis):
            _shift_chunks(change.session, target, axis)
            step = target.grid[at]
            free = np.setdiff1d(np.arange(-(-axis.length // step)), axis.old[::step] // step)
            for part in np.split(free, np.flatnonzero(np.diff(free) != 1) + 1) if len(free) else ():
                _clear(array, at, int(part[0]) * step, min((int(part[-1]) + 1) * step, axis.length))
            result[number] = replace(result[number], shifted=True)
        elif target.codecs:
            raise InvalidInputError(
                f"mode 'backfill' of a virtual ingest can move only whole chunks of `{target.path}` "
                f"({target.grid[at]} steps), but the new labels are within chunks. Copy this variable",
                ErrorKind.INVALID_CHUNK_INDEX,
            )
        elif number >= len(arrays):
            bystanders.append(number)
    return result, bystanders


def _clear(array: zarr.Array[Any], axis: int, start: int, stop: int) -> None:
    """Make elements missing that no chunk has, if the fill value of the array is not a missing value."""
    missing = missing_element(array)
    if not is_fill(array, missing):
        box = [(start, stop) if at == axis else (0, size) for at, size in enumerate(array.shape)]
        fill_box(array, box, missing)


def _bystander(existing: ExistingGroup, name: str, axis: int, shape: tuple[int, ...]) -> TargetArray:
    array = existing.arrays[name]
    return TargetArray(
        existing.path_of(name),
        name,
        dims_of(array),
        shape,
        array.dtype,
        array.chunks,
        axis,
        array.fill_value,
        dict(array.attrs),
        array.shards,
    )


def _shift_chunks(session: Session, target: TargetArray, axis: Axis) -> None:
    """Move references: chunk ``i`` along the axis moves to the new position of its first step."""
    at, step = target.axis or 0, target.grid[target.axis or 0]
    workspace = session.workspace
    table = workspace.ref_table(target.path)
    if not len(table):
        return
    index = table.index.copy()
    index[:, at] = (axis.old[::step] // step)[index[:, at]]
    moved = replace(table, index=index).sorted()
    workspace.set_refs(target.path, ChunkTable.merge_tables([ChunkTable.from_absent(table.index), moved]))


def write_labels(change: GroupChange, axis: Axis) -> None:
    """Write the labels of the dimension, from the first label that is new or moves."""
    dataset, existing, store = change.dataset, change.existing, change.session.store
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


def plan_tasks(change: GroupChange) -> Tasks:
    """Create and resize arrays, write the labels, and divide the remaining work into items."""
    dataset, existing, axis = change.dataset, change.existing, change.axis
    require_names(change)
    if not existing.arrays:
        create_group(change)
    retained = retained_scalars(change)
    require_same_scalars(change)
    add_dimensions(change)
    families = plan_arrays(change)
    arrays = [array for family in families for array in family.arrays]
    groups = _array_groups(change, families, retained)
    require_lengths(existing, [each.target for each in arrays], dataset.dim)
    _require_containers(change, groups)
    bystanders: list[int] = []
    if axis is not None and dataset.dim is not None:
        arrays, bystanders = grow_arrays(change, arrays, axis, dataset.dim)
        write_labels(change, axis)
    work = _items(change, groups, arrays, bystanders)
    return Tasks(work, TaskContext(tuple(arrays), change.request.access), reads=existing.label_paths())


#: Arrays along the axis, and arrays with values of one file.
type _Groups = tuple[list[ArrayGroup], list[FixedArrays]]


def _array_groups(change: GroupChange, families: Sequence[FamilyArrays], retained: frozenset[str]) -> _Groups:
    axis = change.axis
    along: list[ArrayGroup] = []
    fixed: list[FixedArrays] = []
    first = 0
    for each in families:
        numbered = dict(enumerate(each.arrays, first))
        first += len(each.arrays)
        if axis is not None and each.pieces is not None:
            joined = _joined_pieces(change.dataset, each, numbered, axis, retained)
            along += [ArrayGroup((number,), pieces) for number, pieces in joined.items()]
            numbered = {number: array for number, array in numbered.items() if number not in joined}
        for virtual in (False, True):
            chosen = {number: each for number, each in numbered.items() if each.virtual == virtual}
            with_axis = tuple(number for number, each in chosen.items() if each.target.axis is not None)
            without = tuple(number for number, each in chosen.items() if each.target.axis is None)
            if with_axis and each.pieces is not None:
                along.append(ArrayGroup(with_axis, each.pieces, virtual))
            if without:
                fixed.append(FixedArrays(without, int(each.family.files[0]), virtual))
    return along, fixed


def _joined_pieces(
    dataset: Dataset,
    arrays: FamilyArrays,
    numbered: Mapping[int, PlannedArray],
    axis: Axis,
    retained: frozenset[str],
) -> dict[int, Pieces]:
    """Return the pieces of arrays that several families share, by the number of the array.

    The pieces are from the files of all these families. ``retained`` scalars get only the new steps.
    """
    joined = {}
    for number, array in numbered.items():
        if array.target.axis is None:
            continue
        name = array.target.name
        families = list(_sharing_families(dataset.families, arrays.family, name))
        if name in retained or len(families) > 1:
            # Each step is from the first family that has it.
            files = np.concatenate([family.files for family in families])
            source, inside, at = dataset.steps.placed(files)
            places, first = np.unique(axis.new[at], return_index=True)
            if name in retained:
                fresh = ~np.isin(places, axis.old)
                places, first = places[fresh], first[fresh]
            joined[number] = runs(source[first], inside[first], places)
    return joined


def _sharing_families(families: Sequence[Family], family: Family, name: str) -> Iterator[Family]:
    """Yield the families whose variable of this name has the same dimensions as in this family."""
    mine = family.layout.variables[name]
    for each in families:
        variable = each.layout.variables.get(name)
        if (
            variable is not None
            and (variable.dims, variable.shape) == (mine.dims, mine.shape)
            and (name in each.along) == (name in family.along)
            and (each.layout.is_converted(name) or np.can_cast(variable.dtype, mine.dtype, "same_kind"))
        ):
            yield each


def _items(
    change: GroupChange, groups: _Groups, arrays: Sequence[PlannedArray], bystanders: Sequence[int]
) -> list[Item]:
    (along, fixed), axis = groups, change.axis
    table = _file_table(change.dataset)
    result: list[Item] = []
    if axis is not None and change.dataset.dim is not None:
        for group in along:
            for number in group.arrays if group.virtual else ():
                require_aligned(arrays[number].target, group.pieces, axis, change.inspection.urls)
            result += items(arrays, group, axis, table)
        for number in bystanders:  # no values from files, but their steps move
            result += items(arrays, ArrayGroup((number,), NO_PIECES), axis, table)
    return [*result, *itertools.chain.from_iterable(fixed_items(arrays, each, table) for each in fixed)]


def _file_table(dataset: Dataset) -> FileTable:
    inspection = dataset.inspection
    checks = [
        etag or _whole_second(time) for etag, time in zip(inspection.etag, inspection.modified, strict=True)
    ]
    return FileTable(
        inspection.urls, inspection.encodings, dataset.encodings.by_code(), checks, inspection.fingerprint
    )


def _whole_second(time: datetime | None) -> datetime | None:
    """Return the time rounded up to a whole second, as references store it: the file is never newer."""
    return None if time is None else time.replace(microsecond=0) + timedelta(seconds=bool(time.microsecond))


def _require_containers(change: GroupChange, groups: _Groups) -> None:
    """Raise ``InvalidInputError`` for a referenced file without a virtual chunk container."""
    numbers = [group.pieces.source for group in groups[0] if group.virtual]
    numbers += [np.array([fixed.file]) for fixed in groups[1] if fixed.virtual]
    if not numbers:
        return
    urls = [change.inspection.urls[i] for i in np.unique(np.concatenate(numbers)).tolist()]
    locations = [parse_url(url).chunk_location for url in urls]
    matches = change.session.workspace.context.virtual.matching(locations)
    if not matches.all():
        first = int(np.argmin(matches))
        raise without_container(locations[first], urls[first])


#: The number of bad files that the metadata of the commit name. The ledger of the group has all of them.
_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a job, the report on its files, and the metadata of its commit."""

    tasks: Tasks
    report: Report
    metadata: Mapping[str, Any]


def plan_ingest(
    session: Session,
    request: IngestRequest,
    inspection: Inspection,
    group: str,
    ledger_version: LedgerVersion,
) -> Plan:
    """Plan an ingest into a group.

    Compares the files with each other and with the group, creates and resizes arrays, writes the labels and
    the ledger, and divides the remaining work into items.
    """
    ledger = ledger_version.ledger_in(session, group)
    existing = ExistingGroup(session, group)
    match = match_ledger(request, inspection, ledger, existing)
    rewrites = request.on_change == "rewrite"
    dataset = Dataset.reconcile(
        inspection,
        unpack=request.unpack,
        only=~match.unchanged & (rewrites | ~match.changed),
        allow=request.allow,
        stored=existing.stored_variables(),
    )
    change = GroupChange(request, dataset, existing)
    change.axis, gaps = plan_axis(change, match.changed)
    report = _report(request, dataset, match, gaps)
    if request.on_problem == "fail" and (fatal := report.fatal()):
        raise refusal(fatal, len(inspection.urls))
    accepted = dataset.members
    rejected = ~accepted & ~match.unchanged & ~match.changed
    if request.on_problem == "fail" and rejected.any():
        # A commit must never leave out a file silently.
        texts = [Problem("target", "would be left out", url) for url in inspection.chosen_urls(rejected)]
        raise refusal(texts, len(inspection.urls))
    metadata = _metadata(request, report, accepted, rejected)
    tasks = Tasks([])
    if dataset.families:
        tasks = plan_tasks(change)
        report = replace(report, chunks=chosen_chunks(each.target for each in tasks.shared.arrays))
    after = _ledger_after(request, dataset, ledger, rejected)
    if after is not None:
        save_ledger(session, group, ledger, after)
    return Plan(tasks, report, metadata)


def _report(request: IngestRequest, dataset: Dataset, match: LedgerMatch, gaps: Sequence[Problem]) -> Report:
    inspection = dataset.inspection
    unchanged = set(inspection.chosen_urls(match.unchanged))
    problems = [each for each in inspection.problems if each.url not in unchanged]
    problems += dataset.problems
    if request.on_change != "rewrite":
        fatal = request.on_change == "fail"
        for mask, text in (
            (match.changed & ~match.touched, "was ingested with other contents"),
            (match.touched, "has the size and both ends of an ingested file, but another modification time"),
        ):
            problems += [Problem("changed", text, url, fatal) for url in inspection.chosen_urls(mask)]
    problems += [replace(each, fatal="hole" not in request.allow) for each in gaps]
    problems += notes(dataset)
    return Report(dataset, tuple(problems), int(match.unchanged.sum()))


def _metadata(
    request: IngestRequest, report: Report, accepted: NDArray[np.bool_], rejected: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return the record of the files in the metadata of the commit."""
    inspection = report.inspection
    names = list(compress(inspection.files.names(), rejected.tolist()))[:_NAMED]
    policy = "quarantined" if request.on_problem == "quarantine" else "skipped"
    return {
        "mode": request.mode,
        "files": int(accepted.sum()),
        "unchanged": report.unchanged,
        "bytes": int(inspection.size[accepted].sum()),
        "digest": inspection.as_input().digest,
        policy: {"files": int(rejected.sum()), "names": names},
    }


def _ledger_after(
    request: IngestRequest, dataset: Dataset, ledger: Ledger, rejected: NDArray[np.bool_]
) -> Ledger | None:
    """Return the ledger with the files of this ingest; None if there are no files to record."""
    inspection = dataset.inspection
    recorded = dataset.members
    if request.on_problem == "quarantine":
        recorded = recorded | rejected
    if not recorded.any():
        return None
    urls = inspection.chosen_urls(recorded)
    unlimited = {name for family in dataset.families for name in family.layout.unlimited}
    after = ledger.with_variables(urls, request.variables).with_files(
        urls,
        inspection.fingerprint[recorded],
        inspection.contents[recorded],
        inspection.size[recorded],
        rejected[recorded],
    )
    return replace(
        after,
        concat_dim=dataset.dim or ledger.concat_dim,
        unlimited=tuple(sorted(unlimited | {*ledger.unlimited})),
    )

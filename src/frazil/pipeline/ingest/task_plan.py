"""Plans the tasks of an ingest: resizes the arrays of all families, and makes the items that write them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np

from frazil.jobs.job import Tasks
from frazil.pipeline.ingest.array_plan import FamilyArrays, plan_arrays
from frazil.pipeline.ingest.axis import Axis, Pieces, runs
from frazil.pipeline.ingest.chunk_alignment import require_aligned
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.existing import GroupChange
from frazil.pipeline.ingest.existing_checks import require_lengths, require_names
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.group_growth import add_dimensions, create_group, grow_arrays, write_labels
from frazil.pipeline.ingest.items import NO_PIECES, FileTable, Item, fixed_items, items
from frazil.pipeline.ingest.planned_array import ArrayGroup, FixedArrays, PlannedArray
from frazil.pipeline.ingest.references import without_container
from frazil.pipeline.ingest.scalar_checks import require_same_scalars, retained_scalars
from frazil.pipeline.ingest.task_context import TaskContext
from frazil.storage.urls import parse_url


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

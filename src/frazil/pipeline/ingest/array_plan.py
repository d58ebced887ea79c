"""Plans the arrays that tasks write: their chunks and dtypes, and the files with their values.

Missing arrays are created here. Existing arrays of plain bytes get smaller chunks if the borders of the files
need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.array_match import Windows, matched_array
from frazil.pipeline.ingest.arrays import (
    LARGEST,
    SMALLEST,
    TargetArray,
    choose_steps,
    create,
    target_array,
)
from frazil.pipeline.ingest.axis import Pieces, runs
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.encodings import with_encoding
from frazil.pipeline.ingest.existing import GroupChange
from frazil.pipeline.ingest.existing_checks import require_same_values, windows_of
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_layout import ANY, PACKING, VirtualChunks
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.items import longest_chunk, small_chunk
from frazil.pipeline.ingest.plain_chunks import array_chunks, common_steps, recut_array
from frazil.pipeline.ingest.planned_array import PlannedArray
from frazil.readers.reader import VariableSchema
from frazil.remedies import argument


@dataclass(frozen=True, slots=True)
class FamilyArrays:
    """The arrays that get values from the files of one family.

    ``pieces`` are the runs of steps of these files on the axis, None if they have no steps.
    """

    family: Family
    pieces: Pieces | None
    arrays: tuple[PlannedArray, ...]


def plan_arrays(change: GroupChange) -> list[FamilyArrays]:
    """Return the arrays of all families, and create the arrays that the group does not have."""
    return [
        _family_arrays(_FamilyPlan(change, family), names)
        for family, names in zip(change.dataset.families, _own_variables(change.dataset), strict=True)
    ]


def _own_variables(dataset: Dataset) -> list[list[str]]:
    """Return for each family the variables that its files write. The first family writes shared variables."""
    owner: dict[str, int] = {}
    for number, family in enumerate(dataset.families):
        for name in family.layout.variables:
            owner.setdefault(name, number)
    if dataset.dim is not None and dataset.labels is not None:
        owner.pop(dataset.dim, None)  # the driver writes the labels
    return [
        [name for name in family.layout.variables if owner.get(name) == number]
        for number, family in enumerate(dataset.families)
    ]


@dataclass(frozen=True, slots=True)
class _FamilyPlan:
    """The values that decide the arrays of one family."""

    change: GroupChange
    family: Family

    @property
    def longest_chunk(self) -> int:
        """The largest number of steps of a new chunk."""
        return longest_chunk(self.change.inspection.length[self.family.files])

    @property
    def length(self) -> int:
        """The number of steps of the axis; 0 without an axis."""
        return 0 if self.change.axis is None else self.change.axis.length

    def pieces(self) -> Pieces | None:
        """Return the runs of steps of the files on the axis; None if they have no steps."""
        steps = self.change.dataset.steps
        if self.change.axis is None or len(steps.start) <= 1:
            return None
        source, inside, at = steps.placed(self.family.files)
        return runs(source, inside, self.change.axis.new[at])

    def virtual_chunks(self, name: str) -> VirtualChunks | None:
        """Return the chunks of a variable for references; None if the variable is copied."""
        chunks = (self.family.layout.virtual or {}).get(name)
        return chunks if isinstance(chunks, VirtualChunks) else None

    def unpacks(self, name: str) -> bool:
        """Return whether tasks unpack the values of a variable."""
        variable = self.family.variable(name)
        packed = not variable.coordinate and any(each in variable.attrs for each in PACKING)
        return self.change.request.unpack and packed

    def schema(self, name: str) -> VariableSchema:
        """Return a variable with the encoding of its array."""
        variable = self.family.variable(name)
        if name in self.change.dataset.variables:
            variable = with_encoding(variable, self.change.dataset.variables[name])
        return _unpacked(variable) if self.unpacks(name) else variable


def _family_arrays(plan: _FamilyPlan, names: Sequence[str]) -> FamilyArrays:
    pieces = plan.pieces()
    windows = windows_of(plan.change, plan.family)
    arrays = []
    for target, virtual in _targets(plan, [plan.schema(name) for name in names], pieces, windows):
        array = plan.change.existing.arrays.get(target.name)
        if array is None:
            create(plan.change.session.store, target)
        elif target.axis is None and not _is_replaced(plan, target):
            if "values" not in plan.change.request.allow:
                require_same_values(array, plan.family, target, windows)
            continue
        elif target.axis is not None and array.chunks != target.chunks:
            recut_array(plan.change.session, target.path, target.chunks, target.axis, target.dtype.itemsize)
            plan.change.existing.reopen_array(target.name)
        arrays.append(
            PlannedArray(
                target,
                existed=array is not None,
                adds_axis=target.name in plan.family.along,
                virtual=virtual,
                unpacked=plan.unpacks(target.name),
            )
        )
    return FamilyArrays(plan.family, pieces, tuple(arrays))


def _is_replaced(plan: _FamilyPlan, target: TargetArray) -> bool:
    """Return whether an existing array is replaced: data of one file without a concat dimension."""
    if plan.change.dataset.dim is not None or plan.change.request.mode in ("create", "append"):
        return False
    if plan.family.layout.variables[target.name].coordinate:
        return False
    if target.window is not None:
        raise InvalidInputError(
            f"mode {plan.change.request.mode!r} needs a file with all of `{target.path}`, but the file has a "
            "part of it",
            ErrorKind.INVALID_ARRAY_METADATA,
        ).with_remedy("Name the dimension in which files follow each other with {}", argument(concat_dim=...))
    return True


def _targets(
    plan: _FamilyPlan, variables: Sequence[VariableSchema], pieces: Pieces | None, windows: Windows
) -> list[tuple[TargetArray, bool]]:
    """Return the arrays of variables, and whether they get references.

    Arrays of data come first, so that the chunks of coordinates can follow theirs.
    """
    targets: list[tuple[TargetArray, bool]] = []
    for variable in sorted(variables, key=lambda each: each.coordinate):
        array = plan.change.existing.arrays.get(variable.name)
        virtual = _common_chunks(plan, variable.name, pieces, array)
        target = target_array(
            variable,
            plan.change.existing.path_of(variable.name),
            plan.change.dataset.dim,
            plan.length,
            plan.change.request.chunks,
            plan.change.request.encoding.get(variable.name),
            virtual,
        )
        if array is not None:
            target = matched_array(array, target, virtual, windows)
        elif windows.keys() & set(target.dims):
            raise InvalidInputError(
                f"`{target.path}` must exist in the repository, because the files have only a part of it. "
                "Ingest files with all of it first",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        elif virtual is None:
            data = [each for each, _ in targets if each.axis is not None]
            target = _with_chosen_chunks(plan, target, variable, data if variable.coordinate else ())
        targets.append((target, virtual is not None))
    return targets


def _with_chosen_chunks(
    plan: _FamilyPlan, target: TargetArray, variable: VariableSchema, data: Sequence[TargetArray]
) -> TargetArray:
    """Return a new array with its chunks along the axis, unless the caller chose them.

    ``data``: the arrays of data whose chunks a coordinate follows.
    """
    request = plan.change.request
    given = "chunks" in request.encoding.get(target.name, {}) or plan.change.dataset.dim in request.chunks
    if given or target.axis is None:
        given = given or not request.chunks.keys().isdisjoint(target.dims)
        reason = "as the caller chose" if given else "at most 64 MiB"
        return replace(target, chunk_reason="" if variable.coordinate else reason)
    axis = target.axis
    if data:
        widest = max(data, key=lambda each: each.row)
        data_row = sum(each.row for each in data)
        step = widest.grid[widest.axis or 0]
        steps = small_chunk(target.row, data_row, step, plan.length, plan.longest_chunk)
        reason = ""
    elif variable.coordinate:
        steps, reason = min(target.chunks[axis], plan.longest_chunk), ""
    else:
        lengths = plan.change.inspection.length[plan.family.files]
        native = _native_chunks(target, variable, lengths)
        if native is not None and not request.chunks:
            return replace(target, chunks=native, chunk_reason="as in the files")
        steps, reason = choose_steps(lengths, target.chunk_bytes // target.chunks[axis])
    chunks = (*target.chunks[:axis], steps, *target.chunks[axis + 1 :])
    return replace(target, chunks=chunks, chunk_reason=reason)


def _native_chunks(
    target: TargetArray, variable: VariableSchema, lengths: NDArray[np.int64]
) -> tuple[int, ...] | None:
    """Return the chunks of the files, if they fit in size, and if each file has whole chunks."""
    native = variable.chunks
    if native is None or len(native) != len(target.chunks) or target.axis is None:
        return None
    chunks = tuple(
        each if at == target.axis else min(each, max(size, 1))
        for at, (each, size) in enumerate(zip(native, target.shape, strict=True))
    )
    fits = SMALLEST <= replace(target, chunks=chunks).chunk_bytes <= LARGEST
    return chunks if fits and not (lengths % max(chunks[target.axis], 1)).any() else None


def _common_chunks(
    plan: _FamilyPlan, name: str, pieces: Pieces | None, array: zarr.Array[Any] | None
) -> VirtualChunks | None:
    """Return the virtual chunks of a variable. Plain chunks are as long as the borders of files allow."""
    virtual = plan.virtual_chunks(name)
    if virtual is None or ANY not in virtual.chunks or plan.change.axis is None or pieces is None:
        return virtual
    at = virtual.chunks.index(ANY)
    units = _units(plan.change.inspection, name)[plan.change.inspection.layout[pieces.source]]
    lengths = plan.change.inspection.length[pieces.source]
    existing = None if array is None or len(array.chunks) <= at else array.chunks
    steps = common_steps(pieces, plan.change.axis, units, lengths, None if existing is None else existing[at])
    return array_chunks(virtual, at, steps, whole=bool((units == steps).all()), existing=existing)


def _units(inspection: Inspection, name: str) -> NDArray[np.int64]:
    """Return for each layout the unit of steps in which the chunks of a variable can be cut."""
    chunks = [(layout.virtual or {}).get(name) for layout in inspection.layouts]
    return np.array([each.unit if isinstance(each, VirtualChunks) else 0 for each in chunks], np.int64)


def _unpacked(variable: VariableSchema) -> VariableSchema:
    empty = xr.Variable(
        variable.dims, np.empty([0] * len(variable.dims), variable.dtype), dict(variable.attrs)
    )
    decoded = xr.conventions.decode_cf_variable(variable.name, empty, decode_times=False)
    attrs = {**decoded.attrs, "_FillValue": float("nan")}
    return replace(variable, attrs=attrs, dtype=decoded.dtype, fill_value=None)

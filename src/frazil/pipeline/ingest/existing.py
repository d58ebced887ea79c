"""The group of the repository before it changes, and the checks that files fit it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.cf import fill_value
from frazil.cf_times import is_time, is_time_or_duration
from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import (
    NAN_FILL,
    TargetArray,
    choose_chunks,
    create,
    cut_shape,
    open_target,
    read_labels,
)
from frazil.pipeline.ingest.dataset import Dataset, StoredVariables, same, scalar_time
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.inspection import COMPARED, Inspection
from frazil.pipeline.ingest.layouts import PACKING, VirtualChunks, native, values_digest
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.problems import OTHER_GROUP, TABLE
from frazil.pipeline.ingest.steps import Axis, positions
from frazil.readers.file_schema import VariableSchema
from frazil.remedies import Remedy, argument
from frazil.repository.session.session import Session


class ExistingGroup:
    """The arrays of a group by name; no arrays if the group does not exist."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.path = group.strip("/")
        self.arrays: dict[str, zarr.Array[Any]] = {}
        parts = self.path.split("/")
        if self.path and {"", ".", ".."} & {*parts}:
            raise InvalidInputError(
                f"group must be the path of a group, got {group!r}", ErrorKind.INVALID_ARGUMENT
            )
        for at in range(1, len(parts) + 1):
            if session.workspace.is_array(path := f"/{'/'.join(parts[:at])}"):
                raise InvalidInputError(
                    f"`{path}` must be a group of the repository, got an array",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
        if session.workspace.node(f"/{self.path}") is not None:
            for name in self._array_names():
                self.reopen_array(name)

    def _array_names(self) -> list[str]:
        workspace = self.session.workspace
        at = f"/{self.path}".rstrip("/")
        return [name for name in workspace.children(at or "/") if workspace.is_array(f"{at}/{name}")]

    def path_of(self, name: str) -> str:
        """Return the path of an array of the group."""
        return "/" + "/".join(filter(None, [self.path, name.strip("/")]))

    def reopen_array(self, name: str) -> None:
        """Open an array again after its metadata have changed."""
        self.arrays[name] = open_target(self.session.store, self.path_of(name).strip("/"))

    def arrays_along(self, dim: str) -> list[str]:
        """Return the names of the arrays that have a dimension."""
        return [name for name, array in self.arrays.items() if dim in dims_of(array)]

    def stored_variables(self) -> StoredVariables:
        """Return the arrays of the group as variables, and the values of the small ones."""
        variables = {
            name: VariableSchema(name, dims_of(array), array.shape, array.dtype, _attributes(array))
            for name, array in self.arrays.items()
        }
        return StoredVariables(variables, self._small_values)

    def _small_values(self, name: str) -> NDArray[Any] | None:
        array = self.arrays.get(name)
        if array is None or math.prod(array.shape) * max(array.dtype.itemsize, 1) > COMPARED:
            return None
        return np.asarray(array[...])

    def add_dimension(self, name: str, dim: str, length: int, longest: int) -> None:
        """Give an array a new first dimension, and repeat its values for each of ``length`` steps.

        ``longest`` is the largest number of steps of a chunk. An array that has the dimension stays as it is.
        """
        array = self.arrays[name]
        if dim in dims_of(array):
            return
        values = np.asarray(array[...])
        shape = (length, *array.shape)
        chunks = choose_chunks(shape, max(array.dtype.itemsize, 1), 0)
        target = TargetArray(
            self.path_of(name),
            name,
            (dim, *dims_of(array)),
            shape,
            array.dtype,
            (min(chunks[0], longest), *chunks[1:]),
            0,
            array.fill_value,
            dict(array.attrs),
        )
        del zarr.open_group(self.session.store, path=self.path, mode="r+")[name]
        create(self.session.store, target)
        self.reopen_array(name)
        self.arrays[name][...] = np.broadcast_to(values, shape)

    def label_paths(self) -> tuple[str, ...]:
        """Return the paths of the arrays that are labels along a dimension."""
        return tuple(self.path_of(name) for name in self.arrays if self.arrays_along(name))


@dataclass(slots=True)
class GroupChange:
    """The change of a group by one ingest: the call, the files, the group before, and the axis.

    ``axis`` is None until it is planned, and if files do not follow each other.
    """

    request: IngestRequest
    dataset: Dataset
    existing: ExistingGroup
    axis: Axis | None = None

    @property
    def session(self) -> Session:
        """The session of the job."""
        return self.existing.session

    @property
    def inspection(self) -> Inspection:
        """The contents of all files."""
        return self.dataset.inspection


def _attributes(array: zarr.Array[Any]) -> dict[str, Any]:
    """Return the attributes of an array, with a number as ``_FillValue``."""
    attrs, text = dict(array.attrs), array.attrs.get("_FillValue")
    if array.dtype.kind == "f" and isinstance(text, str):
        attrs["_FillValue"] = fill_value(text, array.dtype).item()
    return attrs


def dims_of(array: zarr.Array[Any]) -> tuple[str, ...]:
    """Return the names of the dimensions of an array; an empty tuple if they have no names."""
    return tuple(map(str, array.metadata.dimension_names or ()))  # type: ignore[union-attr]


def axis_of(array: zarr.Array[Any], dim: str) -> int:
    """Return the index of a dimension of an array."""
    return dims_of(array).index(dim)


#: Dimension -> ``(start, stop)``, the part of an existing dimension that files have.
type Windows = Mapping[str, tuple[int, int]]


def matched_array(
    array: zarr.Array[Any], target: TargetArray, virtual: VirtualChunks | None, windows: Windows
) -> TargetArray:
    """Return the target with the dtype, chunks and attributes of the existing array."""
    comparisons = _metadata_comparisons(array, target, windows)
    if virtual is not None:
        comparisons += _storage_comparisons(array, target)
    for comparison in comparisons:
        if comparison.differs:
            raise comparison.refusal(target.path)
    shape = tuple(target.shape[i] if i == target.axis else size for i, size in enumerate(array.shape))
    return replace(
        target,
        shape=shape,
        window=_window(array, target, virtual, windows),
        dtype=array.dtype,
        chunks=array.chunks if virtual is None else target.chunks,
        shards=array.shards,
        fill_value=array.fill_value,
        attrs=dict(array.attrs),
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One property of an array, in the repository and in the files."""

    name: str
    stored: Any
    new: Any
    is_storage: bool = False

    @property
    def differs(self) -> bool:
        """Whether the files differ from the repository."""
        if isinstance(self.stored, np.dtype):
            return bool(self.stored != self.new)
        return repr(self.stored) != repr(self.new)

    def refusal(self, path: str) -> InvalidInputError:
        """Return the error for a property that differs."""
        error = InvalidInputError(
            f"{self.name} of `{path}` must be {self.stored}, as in the repository, got {self.new} in the "
            "files",
            ErrorKind.INVALID_ARRAY_METADATA,
        )
        error.remedy = TABLE["chunks"].remedy if self.is_storage else Remedy(OTHER_GROUP)
        return error


def _metadata_comparisons(array: zarr.Array[Any], target: TargetArray, windows: Windows) -> list[_Comparison]:
    """Compare dimensions, lengths, dtype and the attributes that change the meaning of the numbers."""
    dims, attrs = dims_of(array), dict(array.attrs)
    fixed = [i for i, dim in enumerate(target.dims) if i != target.axis and dim not in windows]
    comparisons = [_Comparison("dimensions", dims, target.dims)]
    if dims == target.dims:
        sizes = [array.shape[i] for i in fixed]
        comparisons.append(_Comparison("shape", sizes, [target.shape[i] for i in fixed]))
    if not (is_time(attrs.get("units")) and is_time(target.attrs.get("units"))):
        comparisons += [
            _Comparison("dtype", native(array.dtype), native(target.dtype)),
            _Comparison("units", attrs.get("units"), target.attrs.get("units")),
        ]
    comparisons += [
        _Comparison(name, attrs.get(name), target.attrs.get(name)) for name in (*PACKING, "calendar")
    ]
    stored_fill, new_fill = (_none_if_nan(each.get("_FillValue")) for each in (attrs, target.attrs))
    return [*comparisons, _Comparison("_FillValue", stored_fill, new_fill)]


def _storage_comparisons(array: zarr.Array[Any], target: TargetArray) -> list[_Comparison]:
    """Compare codecs, chunks and fill value: references need an array that is stored like the files."""
    codecs = tuple(map(_plain, array.metadata.to_dict()["codecs"]))  # type: ignore[arg-type]
    new_codecs = tuple(_plain(json.loads(each)) for each in target.codecs)
    comparisons = [_Comparison("codecs", codecs, new_codecs, is_storage=True)]
    if not _can_recut(array, target):
        comparisons.append(_Comparison("chunks", array.chunks, target.chunks, is_storage=True))
    stored_bytes, new_bytes = (_as_bytes(each.fill_value, each.dtype) for each in (array, target))
    if stored_bytes != new_bytes:  # missing chunks have this value
        fill = _Comparison("fill value", array.fill_value, target.fill_value, is_storage=True)
        comparisons.append(fill)
    return comparisons


def _window(
    array: zarr.Array[Any], target: TargetArray, virtual: VirtualChunks | None, windows: Windows
) -> tuple[tuple[int, int], ...] | None:
    dims = dims_of(array)
    if not windows.keys() & set(dims):
        return None
    if virtual is not None:
        raise InvalidInputError(
            f"a virtual ingest needs files with whole steps of `{target.path}`, but they have parts of "
            "steps. Copy these files",
            ErrorKind.UNIMPLEMENTED,
        )
    return tuple(windows.get(dim, (0, size)) for dim, size in zip(dims, array.shape, strict=True))


def _can_recut(array: zarr.Array[Any], target: TargetArray) -> bool:
    """Return whether the chunks of an array of plain bytes can be cut into the chunks of the target."""
    at = target.axis
    names = [json.loads(each)["name"] for each in target.codecs]
    if (
        at is None
        or names != ["bytes"]
        or array.shards is not None
        or len(array.chunks) != len(target.chunks)
    ):
        return False
    return cut_shape(array.chunks, at, target.chunks[at]) == target.chunks and (
        array.chunks[at] % target.chunks[at] == 0
    )


def _as_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    return np.asarray(value).astype(dtype.newbyteorder("=")).tobytes() if dtype.kind != "T" else b""


def _none_if_nan(fill: Any) -> Any:
    return None if fill == NAN_FILL else fill


def _plain(codec: Any) -> str:
    return repr(sorted(dict(codec).items()))


def require_names(change: GroupChange) -> None:
    """Check that ``chunks`` and ``encoding`` name dimensions and variables of the files or of the group."""
    request, dataset, existing = change.request, change.dataset, change.existing
    schemas = {name: each for family in dataset.families for name, each in family.layout.variables.items()}
    variables = schemas.keys() | existing.arrays.keys()
    dims = {
        dim for family in dataset.families for each in family.layout.variables.values() for dim in each.dims
    }
    for array in existing.arrays.values():
        dims.update(dims_of(array))
    for option, names, choices in (
        ("chunks must name dimensions", request.chunks.keys(), dims),
        ("encoding must name variables", request.encoding.keys(), variables),
    ):
        if unknown := sorted(names - choices):
            raise InvalidInputError(
                f"{option} of the files ({', '.join(sorted(choices))}), got {unknown[0]!r}",
                ErrorKind.INVALID_ARGUMENT,
            )


def require_dimension(change: GroupChange) -> None:
    """Check that no existing array of data would need a new dimension."""
    request, dataset, existing = change.request, change.dataset, change.existing
    for family in dataset.families:
        for name, variable in family.layout.variables.items():
            if name not in existing.arrays or (variable.coordinate and name != dataset.dim):
                continue
            if not _needs_dimension(change, family, name):
                continue
            names = ", ".join(dims_of(existing.arrays[name]))
            best = dataset.dim or scalar_time(family.variables()) or "time"
            raise InvalidInputError(
                f"mode {request.mode!r} needs the dimension {best} of `{existing.path_of(name)}`, in which "
                f"files follow each other, but the array has ({names}): it was ingested from one file alone",
                ErrorKind.INVALID_ARRAY_METADATA,
            ).with_remedy(
                "Ingest that file again into a new group with {}, then other files can follow",
                argument(concat_dim=best),
            )


def _needs_dimension(change: GroupChange, family: Family, name: str) -> bool:
    """Return whether the array of a variable would need a dimension that it does not have."""
    dim, existing = change.dataset.dim, change.existing
    if dim is None:
        return change.request.mode == "append" and name not in family.values
    if dim not in family.layout.variables[name].dims or dim in dims_of(existing.arrays[name]):
        return False
    return family.layout.adds_axis or not existing.arrays_along(dim)


def windows_of(change: GroupChange, family: Family) -> dict[str, tuple[int, int]]:
    """Return for each dimension the part that the files have, if they do not have all of it.

    The labels of the files must be consecutive labels of the group.
    """
    request, dataset, existing = change.request, change.dataset, change.existing
    dims = [dim for dim in family.layout.dims if dim in existing.arrays and dim != dataset.dim]
    if request.mode in ("create", "append") or not dims:
        return {}
    with request.access.open(dataset.inspection.urls[int(family.files[0])]) as reader:
        coords = reader.schema().coords
    windows = {}
    for dim in dims:
        if dim not in coords:
            continue
        labels = read_labels(existing.arrays[dim])
        if np.array_equal(labels, coords[dim]):
            continue
        if "values" in request.allow and len(labels) == len(coords[dim]):
            continue
        rows = positions(labels, coords[dim])
        if not len(rows) or rows[0] < 0 or (np.diff(rows) != 1).any():
            raise InvalidInputError(
                f"labels of {dim} in the files must be consecutive labels of `/{existing.path}`, but they "
                "are not. Ingest the files into another group",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        windows[dim] = (int(rows[0]), int(rows[-1]) + 1)
    return windows


def require_same_values(
    array: zarr.Array[Any], family: Family, target: TargetArray, windows: Windows
) -> None:
    """Check that values without the concat dimension equal those of the group, if they are small enough."""
    expected = family.values.get(target.name)
    if expected is None:
        return
    part = tuple(slice(*windows[dim]) if dim in windows else slice(None) for dim in target.dims)
    if values_digest(np.asarray(array[part])) != expected:
        raise InvalidInputError(
            f"values of `{target.path}` must be those of the repository, but the files have other values",
            ErrorKind.INVALID_ARRAY_METADATA,
        ).with_remedy("{} keeps the values of the repository", argument(allow={"values"}))


def require_lengths(existing: ExistingGroup, targets: Sequence[TargetArray], dim: str | None) -> None:
    """Check that each dimension has one length in all arrays of the group."""
    new = {each.path.strip("/"): (each.path, each.dims, each.shape) for each in targets}
    stored = {
        path: (f"/{path}", dims_of(array), array.shape)
        for array in existing.arrays.values()
        if (path := array.path.strip("/")) not in new
    }
    _require_one_length([*stored.values(), *new.values()], dim)


def _require_one_length(
    sizes: Sequence[tuple[str, tuple[str, ...], tuple[int, ...]]], grows: str | None
) -> None:
    """Check that each dimension, except ``grows``, has one length in all arrays (path, dimensions, shape)."""
    lengths: dict[str, tuple[str, int]] = {}
    for path, dims, shape in sizes:
        for dim, size in zip(dims, shape, strict=True):
            other, expected = lengths.setdefault(dim, (path, size))
            if dim != grows and size != expected:
                raise InvalidInputError(
                    f"{dim} in `{path}` must have {expected} steps, as in `{other}`, got {size}. Ingest the "
                    "files into another group",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
    for path, dims, _ in sizes:
        name = path.rpartition("/")[2]
        if not dims and name in lengths:
            raise InvalidInputError(
                f"`{lengths[name][0]}` must not have the dimension {name}, because `{path}` is a scalar. "
                "Ingest the files into another group",
                ErrorKind.INVALID_ARRAY_METADATA,
            )


def retained_scalars(change: GroupChange) -> frozenset[str]:
    """Return the scalars along the dimension whose stored values stay because of ``allow={"values"}``.

    Files with new variables must not change the scalars of variables that the group has, and that no file of
    this call has.
    """
    dataset, existing = change.dataset, change.existing
    dim, retained = dataset.dim, set()
    if dim is None or change.axis is None or len(dataset.steps.start) <= 1:
        return frozenset()
    in_files = {name for family in dataset.families for name in family.layout.variables}
    if not set(existing.arrays_along(dim)) - in_files - {dim}:
        return frozenset()
    for family in dataset.families:
        if family.layout.data & existing.arrays.keys():
            continue
        for name in sorted(family.along & family.layout.individual & existing.arrays.keys() - {dim}):
            if not _differs(change, family, name, change.axis):
                continue
            if "values" not in change.request.allow:
                raise InvalidInputError(
                    f"values of `{existing.path_of(name)}` must be those of the repository, but files with "
                    "new variables have other values",
                    ErrorKind.INVALID_ARRAY_METADATA,
                ).with_remedy(
                    "Ingest these files into another group, or keep the values of the repository with {}",
                    argument(allow={"values"}),
                )
            retained.add(name)
    return frozenset(retained)


def require_same_scalars(change: GroupChange) -> None:
    """Check that steps that are written again have the level, member, ... that the group has for them.

    Times and durations may differ: a later forecast for a step replaces an earlier forecast.
    """
    dataset, existing, axis = change.dataset, change.existing, change.axis
    if axis is None or len(dataset.steps.start) <= 1 or "values" in change.request.allow:
        return
    for family in dataset.families:
        if not family.layout.data & existing.arrays.keys():
            continue
        for name in sorted(family.layout.individual & existing.arrays.keys() - {dataset.dim}):
            variable = family.variable(name)
            if not variable.coordinate or is_time_or_duration(variable.attrs.get("units")):
                continue
            if _differs(change, family, name, axis):
                raise InvalidInputError(
                    f"mode {change.request.mode!r} writes steps again that have another {name} in the "
                    "repository",
                    ErrorKind.INVALID_ARRAY_METADATA,
                ).with_remedy(
                    "To store both, ingest with {} from the first file on, or into another group. {} "
                    "replaces the values",
                    argument(concat_dim=name),
                    argument(allow={"values"}),
                )


def _differs(change: GroupChange, family: Family, name: str, axis: Axis) -> bool:
    """Return whether a scalar of a family differs from the values of the group at the same steps."""
    dataset, steps = change.dataset, change.dataset.steps
    stored = np.asarray(change.existing.arrays[name][...])
    column = dataset.values_by_file(family.files, name)
    if column is None or stored.ndim > 1 or name not in change.inspection.scalars:
        return False
    rows = steps.rows(family.files)
    values = np.repeat(column, steps.counts[family.files])
    placed = steps.at[rows] >= 0
    places, values = axis.new[steps.at[rows[placed]]], values[placed]
    row_of_place = np.full(axis.length, -1, np.int64)
    row_of_place[axis.old] = np.arange(len(axis.old))
    is_stored = row_of_place[places] >= 0
    expected = np.broadcast_to(stored, len(axis.old)) if not stored.ndim else stored
    return not same(expected[row_of_place[places[is_stored]]], values[is_stored]).all()

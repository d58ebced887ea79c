"""What is in the group already, and whether what comes fits to it; the arrays of what comes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.pipeline.ingest.arrays import (
    NAN_FILL,
    TargetArray,
    choose_chunks,
    create,
    native,
    open_target,
    read_labels,
    target_array,
)
from frazil.pipeline.ingest.axis import Axis, Pieces, positions
from frazil.pipeline.ingest.dimension import scalar_time
from frazil.pipeline.ingest.families import Family
from frazil.pipeline.ingest.file_schemas import ANY, PACKING, Chunked, values_digest
from frazil.pipeline.ingest.inspection import COMPARED, Looked
from frazil.pipeline.ingest.items import (
    most_steps,
    small_chunk,
)
from frazil.pipeline.ingest.options import Request
from frazil.pipeline.ingest.plain_chunks import array_chunks, common_steps, cut_shape
from frazil.pipeline.ingest.problems import TABLE
from frazil.pipeline.ingest.reconcile import Stored
from frazil.pipeline.ingest.time_conversion import is_time
from frazil.readers.reader import VariableSchema
from frazil.repository.session.session import Session


class Present:
    """What is in the group already."""

    def __init__(self, session: Session, group: str) -> None:
        self.session = session
        self.path = group.strip("/")
        parts = self.path.split("/")
        if self.path and {"", ".", ".."} & {*parts}:
            raise InvalidInputError(f"expected the path of a group, found {group!r}", ErrorKind.INVALID_KEY)
        for at in range(1, len(parts) + 1):
            if session.workspace.nodes.is_array(path := f"/{'/'.join(parts[:at])}"):
                raise InvalidInputError(
                    f"expected a group at `{path}` in the repository, found an array",
                    ErrorKind.INVALID_ARRAY_METADATA,
                )
        node = session.workspace.nodes.node(f"/{self.path}")
        self.arrays: dict[str, zarr.Array[Any]] = {}
        if node is not None:
            self.arrays = {name: open_target(session.store, f"{self.path}/{name}") for name in self._names()}

    def _names(self) -> list[str]:
        workspace = self.session.workspace
        at = f"/{self.path}".rstrip("/")
        return [
            name for name in workspace.nodes.children(at or "/") if workspace.nodes.is_array(f"{at}/{name}")
        ]

    def reopen(self, name: str) -> None:
        """Open an array again whose metadata have changed."""
        self.arrays[name] = open_target(self.session.store, f"{self.path}/{name}")

    def with_dim(self, dim: str) -> list[str]:
        return [name for name, each in self.arrays.items() if dim in (each.metadata.dimension_names or ())]  # type: ignore[union-attr]

    def stored(self) -> Stored:
        dims = {name: dims_of(each) for name, each in self.arrays.items()}
        return Stored(self.time_units(), dims, self._values)

    def _values(self, name: str) -> NDArray[Any] | None:
        array = self.arrays.get(name)
        if array is None or math.prod(array.shape) * max(array.dtype.itemsize, 1) > COMPARED:
            return None
        return np.asarray(array[...])

    def with_axis(self, name: str, dim: str, length: int, most: int) -> None:
        """Give an array the dimension: each of ``length`` steps has the values that it had. ``most`` is the
        longest chunk. Nothing to do if it has the dimension.
        """
        array = self.arrays[name]
        if dim in dims_of(array):
            return
        values = np.asarray(array[...])
        shape = (length, *array.shape)
        chunks = choose_chunks(shape, max(array.dtype.itemsize, 1), 0)
        target = TargetArray(
            f"/{self.path}/{name}".replace("//", "/"),
            name,
            (dim, *dims_of(array)),
            shape,
            array.dtype,
            (min(chunks[0], most), *chunks[1:]),
            0,
            array.fill_value,
            dict(array.attrs),
        )
        del zarr.open_group(self.session.store, path=self.path, mode="r+")[name]
        create(self.session.store, target)
        self.arrays[name] = open_target(self.session.store, target.path)
        self.arrays[name][...] = np.broadcast_to(values, shape)

    def labels(self) -> tuple[str, ...]:
        """Paths of the arrays that say what is where along a dimension."""
        at = f"/{self.path}".rstrip("/")
        return tuple(f"{at}/{name}" for name in self.arrays if self.with_dim(name))

    def time_units(self) -> dict[str, str]:
        units = {name: each.attrs.get("units") for name, each in self.arrays.items()}
        return {name: str(each) for name, each in units.items() if is_time(each)}


def dims_of(array: zarr.Array[Any]) -> tuple[str, ...]:
    return tuple(map(str, array.metadata.dimension_names or ()))  # type: ignore[union-attr]


def axis_of(array: zarr.Array[Any], dim: str) -> int:
    return list(array.metadata.dimension_names or ()).index(dim)  # type: ignore[union-attr]


def require_growth(request: Request, families: Sequence[Family], there: Present) -> None:
    """Data that are in the group can be written again, or get more steps, but not a dimension.

    Raises ``InvalidInputError`` (``invalid-array-metadata``) for files that would need it.
    """
    dim = request.dim
    for family in families:
        for name, variable in family.layout.variables.items():
            if name not in there.arrays or (variable.coordinate and name != dim):
                continue
            dims = dims_of(there.arrays[name])
            if dim is None and (request.mode != "append" or name in family.values):
                continue
            if dim is not None and (
                dim not in variable.dims or dim in dims or not _is_stacked(there, family, dim)
            ):
                continue
            path, names = request.target.path(name), ", ".join(dims)
            best = dim or scalar_time(family.variables()) or "time"
            raise InvalidInputError(
                f"mode {request.mode!r}: expected `{path}` with the dimension {best} in which files follow "
                f"each other, found ({names}), as one file alone has it: ingest that file again into a new "
                f"group with concat_dim={best!r} (--concat-dim {best}), then others can follow",
                ErrorKind.INVALID_ARRAY_METADATA,
            )


def _is_stacked(there: Present, family: Family, dim: str) -> bool:
    """Whether nothing of the group has the dimension, or files do not have it."""
    return family.layout.adds_axis or not there.with_dim(dim)


def windows_of(request: Request, family: Family, there: Present) -> dict[str, tuple[int, int]]:
    """Where files have a part of a dimension that is there: their labels, which have to be a run of those."""
    dims = [dim for dim in family.layout.dims if dim in there.arrays and dim != request.dim]
    if request.mode in ("create", "append") or not dims:
        return {}
    with request.options.open(request.looked.urls[int(family.files[0])]) as reader:
        coords = reader.schema().coords
    windows = {}
    for dim in dims:
        if dim not in coords or np.array_equal(labels := read_labels(there.arrays[dim]), coords[dim]):
            continue
        if "values" in request.allow and len(labels) == len(coords[dim]):
            continue
        found = positions(labels, coords[dim])
        if not len(found) or found[0] < 0 or (np.diff(found) != 1).any():
            raise InvalidInputError(
                f"expected labels of {dim} in the files that are a run of those of `/{there.path}`, "
                "found others: a group of its own (--group) can have them",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        windows[dim] = (int(found[0]), int(found[-1]) + 1)
    return windows


def targets_of(
    request: Request,
    family: Family,
    chosen: Sequence[VariableSchema],
    there: Present,
    axis: Axis | None,
    pieces: Pieces | None,
    windows: Mapping[str, tuple[int, int]],
) -> list[tuple[TargetArray, bool]]:
    """The arrays of a family; those of data first, so that small ones can follow their chunks.

    ``pieces`` say where its files go on the axis.
    """
    length = 0 if axis is None else axis.length
    made: list[tuple[TargetArray, bool]] = []
    most = most_steps(request.looked.length[family.files])
    for variable in sorted(chosen, key=lambda each: each.coordinate):
        path = request.target.path(variable.name)
        spec = (family.layout.virtual or {}).get(variable.name)
        virtual = spec if isinstance(spec, Chunked) else None
        if virtual is not None and ANY in virtual.chunks and axis is not None and pieces is not None:
            array = there.arrays.get(variable.name)
            virtual = _cut(virtual, variable.name, request.looked, axis, pieces, array)
        target = target_array(
            variable, path, request.dim, length, request.chunks, request.encoding.get(variable.name), virtual
        )
        existing = there.arrays.get(variable.name)
        if existing is not None:
            target = _like(existing, target, virtual, windows)
        elif windows.keys() & set(target.dims):
            raise InvalidInputError(
                f"expected `{target.path}` in the repository, since files have a part of it only, found none",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        elif (
            virtual is None
            and target.axis is not None
            and "chunks" not in request.encoding.get(variable.name, {})
            and request.dim not in request.chunks
        ):
            target = _with_steps(target, min(target.chunks[target.axis], most))
            data = [each for each, _ in made if each.axis is not None]
            if data and variable.coordinate:
                widest = max(data, key=lambda each: each.row)
                step = widest.grid[widest.axis or 0]
                chunk = small_chunk(target.row, sum(each.row for each in data), step, length, most)
                target = _with_steps(target, chunk)
        made.append((target, virtual is not None))
    return made


def _cut(
    virtual: Chunked,
    name: str,
    looked: Looked,
    axis: Axis,
    pieces: Pieces,
    array: zarr.Array[Any] | None,
) -> Chunked:
    """Chunks of plain bytes, as long as the borders of the files allow."""
    at = virtual.chunks.index(ANY)
    stored = [(each.virtual or {}).get(name) for each in looked.layouts]
    units = np.array([each.unit if isinstance(each, Chunked) else 0 for each in stored], np.int64)
    units, lengths = units[looked.layout[pieces.source]], looked.length[pieces.source]
    existing = None if array is None or len(array.chunks) <= at else array.chunks
    steps = common_steps(pieces, axis, units, lengths, None if existing is None else existing[at])
    return array_chunks(virtual, at, steps, whole=bool((units == steps).all()), existing=existing)


def _with_steps(target: TargetArray, steps: int) -> TargetArray:
    at = target.axis or 0
    return replace(target, chunks=(*target.chunks[:at], steps, *target.chunks[at + 1 :]))


def _like(
    array: zarr.Array[Any],
    target: TargetArray,
    virtual: Chunked | None,
    windows: Mapping[str, tuple[int, int]],
) -> TargetArray:
    """An array that is there, if the variable fits to it; else ``InvalidInputError``."""
    dims = tuple(array.metadata.dimension_names or ())  # type: ignore[union-attr]
    fixed = [i for i, dim in enumerate(target.dims) if i != target.axis and dim not in windows]
    said: list[tuple[str, Any, Any]] = [("dimensions", dims, target.dims)]
    if dims == target.dims:
        said.append(("shape", [array.shape[i] for i in fixed], [target.shape[i] for i in fixed]))
    attrs = dict(array.attrs)
    times = is_time(attrs.get("units")) and is_time(target.attrs.get("units"))
    if not times:
        said += [
            ("dtype", native(array.dtype), native(target.dtype)),
            ("units", attrs.get("units"), target.attrs.get("units")),
        ]
    said += [(name, attrs.get(name), target.attrs.get(name)) for name in (*PACKING, "calendar")]
    here, new = (_none_if_nan(each.get("_FillValue")) for each in (attrs, target.attrs))
    said.append(("_FillValue", here, new))
    if virtual is not None:
        codecs = tuple(map(_plain, array.metadata.to_dict()["codecs"]))  # type: ignore[arg-type]
        said.append(("codecs", codecs, tuple(map(_decoded, target.codecs))))
        if not _is_recut(array, target):
            said.append(("chunks", array.chunks, target.chunks))
        here, new = _as_bytes(array.fill_value, array.dtype), _as_bytes(target.fill_value, target.dtype)
        if here != new:  # chunks that are not in a file are this
            said.append(("fill value", array.fill_value, target.fill_value))
    for what, here, new in said:
        if here != new if isinstance(here, np.dtype) else repr(here) != repr(new):
            stored = what in ("codecs", "chunks", "fill value")
            helps = TABLE["chunks"].remedy if stored else "a group of its own (--group) can have it"
            raise InvalidInputError(
                f"expected {what} {here} of `{target.path}` in the repository, found {new} in the files: "
                f"{helps}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
    window = None
    if windows.keys() & set(dims):
        if virtual is not None:
            raise InvalidInputError(
                f"virtual: expected whole steps of `{target.path}`, found files with a part of them: "
                "copy them",
                ErrorKind.UNIMPLEMENTED,
            )
        window = tuple(windows.get(dim, (0, size)) for dim, size in zip(dims, array.shape, strict=True))
    shape = tuple(target.shape[i] if i == target.axis else size for i, size in enumerate(array.shape))
    return replace(
        target,
        shape=shape,
        window=window,
        dtype=array.dtype,
        chunks=array.chunks if virtual is None else target.chunks,
        shards=array.shards,
        fill_value=array.fill_value,
        attrs=attrs,
    )


def _is_recut(array: zarr.Array[Any], target: TargetArray) -> bool:
    """Whether the chunks of an array of plain bytes can become those of the target."""
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


def require_same(
    array: zarr.Array[Any], family: Family, target: TargetArray, windows: Mapping[str, tuple[int, int]]
) -> None:
    """What does not go on must be what is there, as far as it is compared."""
    expected = family.values.get(target.name)
    if expected is None:
        return
    part = tuple(slice(*windows[dim]) if dim in windows else slice(None) for dim in target.dims)
    if values_digest(np.asarray(array[part])) != expected:
        raise InvalidInputError(
            f"expected the values of `{target.path}` that are in the repository, found others in the files: "
            "allow={'values'} (--allow values) keeps those of the repository",
            ErrorKind.INVALID_ARRAY_METADATA,
        )


def _plain(codec: Any) -> str:
    return repr(sorted(dict(codec).items()))


def _decoded(codec: str) -> str:
    return _plain(json.loads(codec))

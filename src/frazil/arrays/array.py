"""A handle of one array of a session, with numpy's indexing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arguments import checked
from frazil.arrays.box_reading import PointReading, read_box_into, read_in_chunk, read_single_chunks
from frazil.arrays.box_writing import BoxWriting
from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import (
    AxisSlice,
    BoxSelection,
    PointSelection,
    outer_selection,
    points_of,
    selection_of,
)
from frazil.display import Lines
from frazil.errors import InvalidInputError
from frazil.format.snapshot import Node
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.zarr_store.arrays import array_at, count_values

#: The most points that are read together: each needs about 50 bytes of memory.
_MOST_POINTS: Final = 1 << 22
#: The most points that are written together: each needs about 100 bytes of memory.
_MOST_WRITTEN_POINTS: Final = 1 << 21


class Array:
    """An array of a session, for reads of whole selections of its stored elements, as in zarr.

    Packed numbers stay packed, and missing values and times are numbers. xarray decodes them.

    A read is planned for all its chunks at once, and decodes many chunks in one call. It returns the same
    values as zarr. Arrays with codecs or dtypes that have no fast decoder are read by zarr.

    The handle sees the uncommitted changes of its session. It can be pickled if its session can be pickled.

    Args:
        session: The session.
        path: The path of the array.

    Raises:
        NodeNotFoundError: ``node-not-found`` if there is no node at the path.
        InvalidInputError: ``not-an-array`` for a group; ``invalid-path`` for a text that is not a path.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", data=np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> t = frazil.Array(repo.readonly_session("main"), "/t")
        >>> t.shape, t[1, ::2].tolist(), t[[0, 2], [3, 1]].tolist()
        ((3, 4), [4, 6], [3, 9])
    """

    __slots__ = ("_path", "_session")

    @checked
    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = absolute(path)
        session.workspace.note_document(self._path)
        self._node()

    def __reduce__(self) -> tuple[Any, ...]:
        return (Array, (self._session, self._path))

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return (*self._session.__dask_tokenize__(), self._path)

    def __repr__(self) -> str:
        return f"<frazil.Array {self._path}, shape {self.shape}, dtype {self.dtype}>"

    def _repr_html_(self) -> str:
        """Return the array as HTML, for notebooks."""
        return Lines("frazil.Array", repr(self))._repr_html_()

    @property
    def path(self) -> str:
        """The path of the array."""
        return self._path

    @property
    def session(self) -> Session:
        """The session of the array."""
        return self._session

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        node = self._node()
        assert node.array is not None
        return tuple(node.array.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements in memory."""
        encoding = encoding_of(self._node().user_data)
        return np.dtype(self._zarr().dtype) if encoding is None else encoding.dtype

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """The names of the dimensions, or None."""
        node = self._node()
        assert node.array is not None
        return node.array.dimension_names

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the array, as a copy."""
        attributes: dict[str, Any] = json.loads(self._node().user_data).get("attributes", {})
        return attributes

    @property
    def oindex(self) -> OuterIndex:
        """Reads in which each array of an index stands for its own dimension, as in ``numpy.ix_``.

        Examples:
            >>> import frazil, numpy as np, zarr
            >>> repo = frazil.Repository.create(frazil.in_memory_storage())
            >>> session = repo.writable_session("main")
            >>> array = zarr.create_array(session.store, name="t", data=np.arange(12).reshape(3, 4))
            >>> frazil.Array(session, "/t").oindex[[0, 2], [3, 1]].tolist()
            [[3, 1], [11, 9]]
        """
        return OuterIndex(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("an array of a repository cannot become a numpy array without a copy")
        return np.asarray(self[...], dtype)

    def __getitem__(self, index: Any) -> Any:
        """Return the selected elements as a numpy array; a single element as a scalar.

        Args:
            index: An index of numpy: integers, slices, ``...``, ``None``, integer and boolean arrays.

        Raises:
            InvalidIndexError: ``invalid-argument`` for an invalid index. It is an ``IndexError``.
            StorageError: A chunk cannot be read.
            FormatError: A chunk is damaged.
        """
        return self._read(selection_of, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set the selected elements.

        The values broadcast to the shape of the selection. They are converted to the dtype of the array as
        zarr does it. All chunks of an index without arrays are encoded and stored in bulk. A chunk that has
        only the fill value is not stored, unless zarr's option ``array.write_empty_chunks`` is set.

        Args:
            index: An index of numpy, as for reads.
            value: The values: a number, an array, or a list.

        Raises:
            InvalidIndexError: ``invalid-argument`` for an invalid index. It is an ``IndexError``.
            InvalidInputError: ``invalid-argument`` for values of another shape. It is a ``ValueError``.
            ReadOnlyError: The session is read-only (``read-only-store``).
            SessionStateError: The session can only move nodes, or has expired.
            StorageError: The storage fails.
        """
        self._write(selection_of(index, self.shape), value)

    def _write(self, selection: BoxSelection | PointSelection, value: Any) -> None:
        self._session.require_writable()
        encoding = encoding_of(self._node().user_data)
        # Arrays of other dtypes are converted later, part by part.
        is_array = hasattr(value, "shape") and not np.isscalar(value)
        values = np.asarray(value) if is_array else np.asarray(value, self.dtype)
        if isinstance(selection, PointSelection):
            self._write_points(selection, _broadcast(values, selection.shape))
            return
        box = _box_values(values, selection)
        if not box.size:
            return
        writes_fill = bool(zarr.config.get("array.write_empty_chunks"))
        if encoding is not None:
            writing = BoxWriting(self._session.workspace, self._path, encoding, writes_fill=writes_fill)
            if writing.run(selection.slices, box):
                count_values(written=box.size * encoding.dtype.itemsize)
                return
        # zarr converts all values at once, and takes no values of another shape.
        slices = tuple(each.as_slice() for each in selection.slices)
        self._zarr("r+").set_basic_selection(slices, box)

    def _write_points(self, selection: PointSelection, values: NDArray[Any]) -> None:
        """Write points. Of equal points, the last value counts, as in numpy."""
        array = self._zarr("r+")
        coordinates = [np.broadcast_to(each, selection.shape).flat for each in selection.coordinates]
        for begin in range(0, prod(selection.shape), _MOST_WRITTEN_POINTS):
            part = slice(begin, begin + _MOST_WRITTEN_POINTS)
            columns = [each[part] for each in coordinates]
            order = np.lexsort(columns)  # stable: equal points stay in the order of their rows
            ordered = [each[order] for each in columns]
            is_last = np.ones(len(order), np.bool_)
            is_last[:-1] = np.any([each[1:] != each[:-1] for each in ordered], axis=0)
            rows = order[is_last]
            array.set_coordinate_selection(tuple(each[rows] for each in columns), values.flat[part][rows])

    def _read(
        self, select: Callable[[Any, tuple[int, ...]], BoxSelection | PointSelection], index: Any
    ) -> Any:
        node = self._node()
        assert node.array is not None
        selection, encoding = select(index, tuple(node.array.shape)), encoding_of(node.user_data)
        if isinstance(selection, PointSelection):
            return self._read_points(encoding, selection)[selection.view]
        if encoding is None:
            box = np.asarray(self._zarr()[tuple(each.as_slice() for each in selection.slices)])
            return box.reshape([each.count for each in selection.slices])[selection.view]
        return self._read_box(encoding, selection.slices)[selection.view]

    def _read_box(self, encoding: Encoding, slices: tuple[AxisSlice, ...]) -> NDArray[Any]:
        shape = tuple([each.count for each in slices])
        if 0 in shape:
            return np.empty(shape, encoding.dtype)
        workspace = self._session.workspace
        count_values(read=prod(shape) * encoding.dtype.itemsize)
        if encoding.shards is None:
            values = read_in_chunk(workspace, self._path, encoding, slices)
            if values is not None:
                return values
        out = np.empty(shape, encoding.dtype)
        pieces, failures = read_box_into(workspace, self._path, encoding, slices, out)
        array = self._zarr() if len(failures) else None
        for row in failures.tolist():  # with the codecs of zarr, which raise the errors of damaged chunks
            counts = pieces.regions[int(pieces.region[row])].counts
            target = pieces.target[row].tolist()
            spot = tuple(slice(a, a + n) for a, n in zip(target, counts, strict=True))
            source = tuple(
                AxisSlice(each.start + a * each.step, n, each.step).as_slice()
                for each, a, n in zip(slices, target, counts, strict=True)
            )
            assert array is not None
            out[spot] = array[source]
        return out

    def _read_points(self, encoding: Encoding | None, selection: PointSelection) -> NDArray[Any]:
        array = self._zarr() if encoding is None else None
        out = np.empty(selection.shape, self.dtype)
        flat = out.reshape(-1)
        coordinates = [np.broadcast_to(each, selection.shape).flat for each in selection.coordinates]
        for begin in range(0, len(flat), _MOST_POINTS):
            part = slice(begin, begin + _MOST_POINTS)
            columns = tuple(each[part] for each in coordinates)
            if encoding is None:
                assert array is not None
                flat[part] = array.vindex[columns]
                continue
            points = points_of(encoding, columns)
            workspace = self._session.workspace
            failures = PointReading(workspace, self._path, encoding, points, flat[part]).run()
            if len(failures):
                flat[part][failures] = self._zarr().vindex[tuple(each[failures] for each in columns)]
        return out

    def _node(self) -> Node:
        workspace = self._session.workspace
        entry = workspace.array_entry(self._path)
        return workspace.require_array(self._path) if entry is None else entry.node

    def _zarr(self, mode: str = "r") -> zarr.Array[Any]:
        return array_at(self._session, self._path, mode)


def _box_values(values: NDArray[Any], selection: BoxSelection) -> NDArray[Any]:
    """Return the values of a box, with all its dimensions and in ascending order, without a copy."""
    counts = tuple(each.count for each in selection.slices)
    shape = np.broadcast_to(np.zeros((), np.bool_), counts)[selection.view].shape
    box = _broadcast(values, shape)
    axis = 0
    for item in selection.view:
        if item is Ellipsis:
            continue
        # None stands for a dimension of length 1 that the box does not have, and an integer for the opposite.
        inverse: Any = 0 if item is None else item if isinstance(item, slice) else None
        spot: tuple[Any, ...] = (*[slice(None)] * axis, inverse, ...)
        box = box[spot]
        axis += item is not None
    return box


def _broadcast(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    more = values.ndim - len(shape)
    if more > 0 and prod(values.shape[:more]) == 1:
        values = values.reshape(values.shape[more:])
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise InvalidInputError(
            f"values must have a shape that broadcasts to {shape}, got {values.shape}"
        ) from None


class OuterIndex:
    """The value of ``Array.oindex``."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Any:
        """Return the selected elements. See ``Array.oindex``."""
        return self._array._read(outer_selection, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Set the selected elements. See ``Array.oindex``."""
        self._array._write(outer_selection(index, self._array.shape), value)


@checked
def read(session: Session, path: str, selection: Any = ...) -> Any:
    """Return the selected elements of an array.

    The function returns ``frazil.Array(session, path)[selection]``.

    Args:
        session: The session.
        path: The path of the array.
        selection: An index of numpy: integers, slices, ``...``, ``None``, integer and boolean arrays. Use
            ``numpy.s_`` for an index with slices. Default: the whole array.

    Returns:
        A numpy array; a single element as a scalar.

    Raises:
        NodeNotFoundError: ``node-not-found`` if there is no node at the path.
        InvalidInputError: ``not-an-array`` for a group; ``invalid-path`` for a text that is not a path.
        InvalidIndexError: ``invalid-argument`` for an invalid index. It is an ``IndexError``.
        StorageError: A chunk cannot be read.
        FormatError: A chunk is damaged.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="t", data=np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> frazil.read(repo.readonly_session("main"), "/t", np.s_[1:3, :]).tolist()
        [[4, 5, 6, 7], [8, 9, 10, 11]]
    """
    return Array(session, path)[selection]


@checked
def read_many(session: Session, paths: Sequence[str]) -> dict[str, Any]:
    """Return the elements of several arrays.

    Arrays that consist of one chunk are read with few requests: neighbouring chunks in one file become one
    request. So this is the way to read the coordinates of many groups.

    Args:
        session: The session.
        paths: The paths of the arrays.

    Returns:
        A numpy array for each path.

    Raises:
        IcechunkError: The errors of ``read``.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="two arrays") as store:
        ...     arrays = [zarr.create_array(store, name=name, data=np.arange(3)) for name in "ab"]
        >>> frazil.read_many(repo.readonly_session("main"), ["a", "b"])["b"].tolist()
        [0, 1, 2]
    """
    names = {path: absolute(path) for path in paths}
    values = read_single_chunks(session.workspace, list(names.values()))
    return {path: values[name] if name in values else read(session, name) for path, name in names.items()}

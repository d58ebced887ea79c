"""The codec pipeline of arrays in a store of Frazil: all chunks of a selection are one read or one write.

zarr uses it without a call, in each process that has a store. Arrays of other stores have zarr's default
pipeline. A pipeline that the user chooses, with ``zarr.config`` or ``ZARR_CODEC_PIPELINE__PATH``, is used for
all stores.

zarr gives its codec pipeline a list with the selection of each chunk. The selections of a box follow from the
first and the last of them, so the list is not read. For other selections, whole chunks are read in bulk.
Damaged chunks stay with zarr.

zarr reads the metadata of an array once. If another array is created at its path later, its coordinates and
bytes are those of other elements. Reads and writes refuse such a stale array.

>>> import frazil, zarr
>>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
>>> array = zarr.create_array(session.store, name="t", shape=(4,), dtype="i4")
>>> type(array.async_array.codec_pipeline).__name__
'BulkCodecPipeline'
>>> with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
...     type(zarr.open_array(session.store, path="t").async_array.codec_pipeline).__name__
'BatchedCodecPipeline'
"""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, ClassVar, Final, Self, override

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.codec import Codec, CodecPipeline
from zarr.abc.store import Store
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.metadata import ArrayMetadata
from zarr.core.metadata.v3 import ArrayV3Metadata
from zarr.storage import StorePath

from frazil.arguments import misfit
from frazil.arrays.box_reading import read_box_into, read_chunks, read_in_chunk
from frazil.arrays.box_writing import BoxWriting, wants_statistics
from frazil.arrays.encoding import Encoding, encoding_of
from frazil.arrays.selection import AxisSlice, chunks_of_slice
from frazil.cf import MEANING
from frazil.errors import InvalidInputError
from frazil.format.columns import I64
from frazil.threads import thread_errors
from frazil.zarr_names import FusedCodecPipeline, RectilinearChunkGridMetadata, RegularChunkGridMetadata
from frazil.zarr_store.array_metadata import stored_metadata
from frazil.zarr_store.references import SessionStore, parse_key

__all__ = ["BulkCodecPipeline"]


@dataclass(frozen=True, slots=True, eq=False)
class ZarrBox:
    """A box of an array."""

    store: SessionStore
    path: str
    encoding: Encoding
    slices: tuple[AxisSlice, ...]
    shape: tuple[int, ...]
    is_slice: tuple[bool, ...]

    def whole(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a view of values of ``shape`` with all dimensions of the array."""
        return values[(*(slice(None) if each else None for each in self.is_slice), ...)]


@dataclass(frozen=True, slots=True, eq=False)
class StoredArray:
    """The array of a list of chunks of zarr: its ``zarr.json``, and the first and the last chunk."""

    store: SessionStore
    path: str
    document: bytes
    coords: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(slots=True, eq=False)
class OpenedArray:
    """An array that zarr has opened. ``document`` was compared with its ``metadata`` last.

    ``node_id`` is the id of its node, from the first use on. ``removed`` is the number of nodes that the
    session had deleted or replaced before.
    """

    metadata: ArrayV3Metadata
    document: bytes = b""
    node_id: bytes = b""
    removed: int = 0

    def stored(self, batch: Sequence[tuple[Any, ...]]) -> StoredArray | None:
        """Return the array of a list of chunks of zarr, or None if the session has no array at their path."""
        place = batch[0][0]
        if not isinstance(place, StorePath) or not isinstance(place.store, SessionStore):
            return None
        try:
            path, first = parse_key(place.path)
            last_path, last = parse_key(batch[-1][0].path)
        except InvalidInputError:
            return None
        workspace = place.store.session.workspace
        entry = workspace.array_entry(path)
        if entry is None or last_path != path or not isinstance(first, tuple) or not isinstance(last, tuple):
            return None
        count = len(workspace.removed)
        removed = workspace.removed[self.removed : count]
        is_other = self.node_id not in (b"", entry.node.id)
        # zarr opens an array before it deletes the one that it replaces.
        if not self.node_id and any(f"{path}/".startswith(f"{each.rstrip('/')}/") for each in removed):
            attributes = json.loads(entry.node.user_data).get("attributes", {})
            is_other = _meaning(self.metadata.attributes) != _meaning(attributes)
        if is_other:
            raise misfit(
                f"the stored array `{path}` must be the one that zarr opened, but the session has created it "
                "again. Open it again"
            )
        self.node_id, self.removed = entry.node.id, count
        document = entry.node.user_data
        if document is not self.document:
            stored = stored_metadata(document, path)
            different = next(
                (name for name, is_same in _COMPARISONS if not is_same(self.metadata, stored)), ""
            )
            if different:
                raise misfit(
                    f"the stored array `{path}` must have the {different} that it had when zarr opened it, "
                    "but the array was changed or created again. Open it again"
                )
            self.document = document
        return StoredArray(place.store, path, document, (first, last))


def _meaning(attributes: Mapping[str, Any]) -> str:
    return json.dumps({name: attributes[name] for name in sorted(MEANING & attributes.keys())}, default=str)


def opened_array(metadata: Any, store: Any) -> OpenedArray | None:
    """Return an array that zarr opens, or None if it is not an array of Frazil."""
    is_ours = isinstance(store, SessionStore) and isinstance(metadata, ArrayV3Metadata)
    return OpenedArray(metadata, removed=len(store.session.workspace.removed)) if is_ours else None


def _same_fill(ours: ArrayV3Metadata, stored: ArrayV3Metadata) -> bool:
    # The stored form has one NaN, whatever the sign and the payload of the NaN that zarr got.
    one, other = (each.dtype.to_json_scalar(each.fill_value, zarr_format=3) for each in (ours, stored))
    return json.dumps(one) == json.dumps(other)


def _same_codecs(ours: ArrayV3Metadata, stored: ArrayV3Metadata) -> bool:
    one, other = ([each.to_dict() for each in codecs] for codecs in (ours.codecs, stored.codecs))
    return one == other


def _same_grid(ours: ArrayV3Metadata, stored: ArrayV3Metadata) -> bool:
    """Return whether two grids have the same chunks, as far as both go: an array may have grown."""
    grid, other_grid = ours.chunk_grid, stored.chunk_grid
    if grid == other_grid:
        return True
    rectilinear = RectilinearChunkGridMetadata
    if not isinstance(grid, rectilinear) or not isinstance(other_grid, rectilinear):
        return False
    # A length for all chunks is a number, other lengths are tuples.
    return all(
        one == other
        or (isinstance(one, tuple) and isinstance(other, tuple) and all(map(operator.eq, one, other)))
        for one, other in zip(grid.chunk_shapes, other_grid.chunk_shapes, strict=True)
    )


#: What an array has in common with the stored one, if it is not stale: a name, and a comparison.
_COMPARISONS: Final = (
    ("number of dimensions", lambda ours, stored: len(ours.shape) == len(stored.shape)),
    # The byte order is a codec, not a part of the stored dtype.
    ("dtype", lambda ours, stored: ours.dtype.to_json(zarr_format=3) == stored.dtype.to_json(zarr_format=3)),
    ("fill value", _same_fill),
    ("chunk grid", _same_grid),
    ("codecs", _same_codecs),
)


def zarr_box(array: StoredArray | None, batch: Sequence[tuple[Any, ...]]) -> ZarrBox | None:
    """Return the box that a list of chunks of zarr stands for, or None for other lists."""
    _, spec, first, *_ = batch[0]
    encoding = None if array is None or not isinstance(first, tuple) else encoding_of(array.document)
    if encoding is None or not all(isinstance(each, slice | int | np.integer) for each in first):
        return None
    assert array is not None
    coords, last_coords = array.coords
    # Those of shards if there are shards.
    bounds: tuple[int | I64, ...] = encoding.lengths if encoding.shards is None else spec.shape
    slices = tuple(map(_box, first, batch[-1][2], coords, last_coords, bounds))
    is_slice = tuple(isinstance(each, slice) for each in first)
    shape = tuple(each.count for each, is_axis in zip(slices, is_slice, strict=True) if is_axis)
    if 0 in shape:
        return None
    if len(batch) > 1:
        pairs = zip(slices, bounds, strict=True)
        touched = (len(chunks_of_slice(each.start, each.count, each.step, n).number) for each, n in pairs)
        if prod(touched) != len(batch):
            return None
    ends = (each.start + (each.count - 1) * each.step for each in slices)
    if any(end >= length for end, length in zip(ends, encoding.shape, strict=True)):
        return None  # the array has become smaller since zarr opened it
    return ZarrBox(array.store, array.path, encoding, slices, shape, is_slice)


def _box(first: slice | int, last: slice | int, low: int, high: int, bounds: int | I64) -> AxisSlice:
    """Return the selection of one dimension from those in its first and its last chunk."""
    if not isinstance(first, slice) or not isinstance(last, slice):
        return AxisSlice(_begin(low, bounds) + int(first), 1, 1)  # type: ignore[arg-type]
    step = first.step or 1
    start = _begin(low, bounds) + (first.start or 0)
    end = _begin(high, bounds) + last.stop
    return AxisSlice(start, len(range(start, end, step)), step)


def _begin(number: int, bounds: int | I64) -> int:
    return number * bounds if isinstance(bounds, int) else int(bounds[number])


#: Up to this many chunks are read one by one, because that is faster than all at once.
_FEW: Final = 3
#: The size of chunks whose decoding does not hold up an event loop, in bytes.
_QUICK: Final = 1 << 20
#: The estimated size of an element of variable length, in bytes.
_TEXT: Final = 64
#: The size of the whole chunks that are decoded together for an index array, in bytes.
_TOGETHER: Final = 64 << 20


def is_quick(batch: Sequence[tuple[Any, ...]]) -> bool:
    """Whether zarr asks for few small chunks, none of which waits for a network."""
    place, spec = batch[0][:2]
    size = prod(spec.shape) * getattr(spec.dtype, "item_size", _TEXT)
    if len(batch) > _FEW or len(batch) * size > _QUICK:
        return False
    if not isinstance(place, StorePath) or not isinstance(place.store, SessionStore):
        return False
    return place.store.session.workspace.context.is_local


@dataclass(frozen=True, slots=True, eq=False)
class ZarrRead:
    """A read of a list of chunks of zarr into ``out``: a box, or other elements of whole chunks."""

    array: StoredArray
    encoding: Encoding
    batch: Sequence[tuple[Any, ...]]
    out: NDArray[Any]
    box: ZarrBox | None
    drop_axes: tuple[int, ...]

    def run(self) -> bool:
        """Read the elements. Return whether all chunks were read and decoded."""
        box, workspace = self.box, self.array.store.session.workspace
        if box is None:
            return self._read_whole_chunks()
        is_local = workspace.context.is_local
        size = prod(self.batch[0][1].shape) * self.encoding.dtype.itemsize
        if (
            len(self.batch) <= (_FEW if is_local else 1)  # remote chunks are read together
            and size <= _QUICK  # larger ones are decoded into `out`
            and self.encoding.shards is None
            and all(map(self._read_chunk, self.batch))
        ):
            return True
        out = box.whole(self.out)
        _, failures = read_box_into(workspace, box.path, self.encoding, box.slices, out)
        return not len(failures)

    def _read_chunk(self, item: tuple[Any, ...]) -> bool:
        """Read the selected elements of one chunk of a box."""
        place, _, selection, target, *_ = item
        _, coords = parse_key(place.path)
        assert isinstance(coords, tuple)
        slices = tuple(map(_box, selection, selection, coords, coords, self.encoding.lengths))
        values = read_in_chunk(self.array.store.session.workspace, self.array.path, self.encoding, slices)
        if values is not None:
            self.out[target] = values[tuple(slice(None) if isinstance(s, slice) else 0 for s in selection)]
        return values is not None

    def _read_whole_chunks(self) -> bool:
        """Read all chunks, and take the selected elements of each."""
        array, encoding = self.array, self.encoding
        keys = [parse_key(item[0].path)[1] for item in self.batch]
        index = np.array(keys, np.uint32).reshape(len(keys), -1)
        shape = tuple(map(int, encoding.lengths))
        workspace = array.store.session.workspace
        most = max(1, _TOGETHER // max(1, encoding.chunk_bytes(shape)))
        for begin in range(0, len(index), most):
            part = slice(begin, begin + most)
            chunks, failures = read_chunks(workspace, array.path, encoding, index[part], shape)
            if len(failures):
                return False
            # zarr has a selection of its own for each chunk.
            for item, chunk in zip(self.batch[part], chunks, strict=True):
                values = chunk[item[2]]
                self.out[item[3]] = values.squeeze(axis=self.drop_axes) if self.drop_axes else values
        return True


def zarr_read(
    batch: Sequence[tuple[Any, ...]], out: Any, opened: OpenedArray | None, drop_axes: tuple[int, ...] = ()
) -> Callable[[], bool] | None:
    """Return a function that reads a list of chunks of zarr in bulk, or None for other reads."""
    spec, array = batch[0][1], None if opened is None else opened.stored(batch)
    encoding = None if array is None else encoding_of(array.document)
    if array is None or encoding is None or getattr(spec.config, "read_missing_chunks", True) is False:
        return None  # without `read_missing_chunks`, zarr wants to know which chunks are missing
    values = out.as_ndarray_like()
    if not isinstance(values, np.ndarray) or values.dtype != encoding.dtype:
        return None
    box = None if drop_axes else zarr_box(array, batch)
    if box is None:
        is_regular = all(isinstance(each, int) for each in encoding.lengths)
        if len(batch) <= _FEW or encoding.shards is not None or not is_regular:
            return None
    elif values.shape != box.shape or (encoding.shards is not None and _is_small(box, len(batch))):
        return None
    return ZarrRead(array, encoding, batch, values, box, drop_axes).run


def _is_small(box: ZarrBox, shards: int) -> bool:
    """Whether a box has elements of few inner chunks of local shards. zarr reads them one by one."""
    inner = prod(each for each in box.encoding.lengths if isinstance(each, int))
    is_local = box.store.session.workspace.context.is_local
    return is_local and shards <= _FEW and prod(box.shape) <= _FEW * inner


def zarr_write(
    batch: Sequence[tuple[Any, ...]], value: Any, opened: OpenedArray | None
) -> Callable[[], bool] | None:
    """Return a function that writes the box of a list of chunks of zarr, or None for other writes."""
    array = None if opened is None else opened.stored(batch)
    if array is None:
        return None
    has_statistics = wants_statistics(array.store.session.workspace, array.document)
    if len(batch) <= _FEW and not has_statistics:
        return None
    box, values = zarr_box(array, batch), value.as_ndarray_like()
    if box is None or not isinstance(values, np.ndarray) or values.shape not in ((), box.shape):
        return None
    if (box.encoding.shards is not None and not has_statistics) or box.store.read_only:
        return None
    box.store.session.require_writable()
    writes_fill = batch[0][1].config.write_empty_chunks
    writing = BoxWriting(box.store.session.workspace, box.path, box.encoding, writes_fill=writes_fill)
    return partial(writing.run, box.slices, box.whole(np.broadcast_to(values, box.shape)))


@dataclass(frozen=True)
class BulkCodecPipeline(FusedCodecPipeline):
    """zarr's ``FusedCodecPipeline``, with reads and writes of Frazil's arrays in one call.

    It raises ``InvalidInputError`` (``invalid-array-metadata``) for an array whose grid, dtype, fill value or
    codecs have changed since zarr opened it. Writes of few chunks, of index arrays, of shards without
    statistics or of parts of shards, and arrays that Frazil does not encode in bulk stay with
    ``FusedCodecPipeline``.
    """

    opened: OpenedArray | None = field(default=None, compare=False)

    @override
    def __hash__(self) -> int:
        return hash(tuple(map(type, self)))  # not all fields have a hash

    @classmethod
    @override
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        """Return the pipeline of an array. zarr calls this method."""
        opened = opened_array(array_metadata, store)
        if opened is None:
            raise NotImplementedError  # zarr then calls `from_codecs`
        metadata = opened.metadata
        grid = metadata.chunk_grid
        spec = ArraySpec(
            # Codecs do not depend on the shape.
            shape=grid.chunk_shape if isinstance(grid, RegularChunkGridMetadata) else (1,) * metadata.ndim,
            dtype=metadata.data_type,
            fill_value=metadata.fill_value,
            config=ArrayConfig.from_dict({}),
            prototype=default_buffer_prototype(),
        )
        pipeline = cls.from_codecs(metadata.codecs)
        if hasattr(pipeline, "read_sync"):  # zarr before 3.3 has nothing to add
            pipeline = pipeline.evolve_from_array_spec(spec)
        return replace(pipeline, opened=opened)

    @override
    async def read(
        self, batch_info: Iterable[tuple[Any, ...]], out: Any, drop_axes: tuple[int, ...] = ()
    ) -> tuple[Any, ...]:
        """Read the chunks of a selection into ``out``. zarr calls this method."""
        batch = list(batch_info)
        read = zarr_read(batch, out, self.opened, drop_axes) if batch else None
        is_inline = bool(batch) and is_quick(batch)
        # One thread for the whole read: the event loop is free for other callers. A thread costs more than
        # the read of few local chunks.
        with thread_errors():
            if read is not None and (read() if is_inline else await asyncio.to_thread(read)):
                return ({"status": "present"},) * len(batch)
        if is_inline and getattr(self, "sync_transform", None) is not None:
            return self.read_sync(batch, out, drop_axes)
        result: tuple[Any, ...] = await super().read(batch, out, drop_axes)
        return result

    @override
    async def write(
        self, batch_info: Iterable[tuple[Any, ...]], value: Any, drop_axes: tuple[int, ...] = ()
    ) -> None:
        """Write the chunks of a selection. zarr calls this method."""
        batch = list(batch_info)
        write = zarr_write(batch, value, self.opened) if batch and not drop_axes else None
        with thread_errors():
            if write is not None and await asyncio.to_thread(write):
                return
        if batch and getattr(self, "sync_transform", None) is not None and is_quick(batch):
            self.write_sync(batch, value, drop_axes)
        else:
            await super().write(batch, value, drop_axes)


#: The text object of zarr's default. A path that a user sets is another object, even if the texts are equal.
_DEFAULT_PIPELINE: Final[str] = zarr.config.defaults[0]["codec_pipeline"]["path"]


class StorePipeline(CodecPipeline):
    """The class that zarr asks for a pipeline.

    It returns the pipeline of Frazil for a store of Frazil, and the default of zarr for other stores.
    """

    default: ClassVar[type[CodecPipeline]] = BatchedCodecPipeline

    @classmethod
    @override
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Any:
        """Return the pipeline of an array. zarr calls this method."""
        if not isinstance(store, SessionStore):
            raise NotImplementedError  # zarr then calls `from_codecs`
        return BulkCodecPipeline.from_array_metadata_and_store(array_metadata, store)

    @classmethod
    @override
    def from_codecs(cls, codecs: Iterable[Codec]) -> Any:
        """Return zarr's default pipeline. zarr calls this method for other stores, and for inner chunks."""
        return cls.default.from_codecs(codecs)


zarr.registry.register_pipeline(StorePipeline)  # type: ignore[type-abstract]  # zarr only calls class methods


def prefer_bulk_pipeline() -> None:
    """Make zarr use Frazil's pipeline for arrays of Frazil, unless the user has chosen a pipeline."""
    if zarr.config.get("codec_pipeline.path") is _DEFAULT_PIPELINE:
        StorePipeline.default = zarr.registry.get_pipeline_class()
        zarr.config.set({"codec_pipeline.path": f"{StorePipeline.__module__}.{StorePipeline.__qualname__}"})

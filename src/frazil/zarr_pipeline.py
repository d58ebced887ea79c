"""The codec pipeline of arrays in a store of Frazil: all chunks of a selection are one read or one write.

zarr uses it without a call, in each process that has a store. Arrays of other stores have zarr's default
pipeline. A pipeline that the user chooses, with ``zarr.config`` or ``ZARR_CODEC_PIPELINE__PATH``, is used for
all stores.

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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, override

from zarr.abc.store import Store
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import FusedCodecPipeline
from zarr.core.metadata import ArrayMetadata
from zarr.core.metadata.v3 import RegularChunkGridMetadata

from frazil.arrays.zarr_arrays import OpenedArray, is_quick, opened_array, zarr_read, zarr_write

__all__ = ["BulkCodecPipeline"]


@dataclass(frozen=True)
class BulkCodecPipeline(FusedCodecPipeline):
    """zarr's ``FusedCodecPipeline``, with reads and writes of Frazil's arrays in one call.

    It raises ``InvalidInputError`` (``invalid-array-metadata``) for an array whose grid, dtype, fill value or
    codecs have changed since zarr opened it. Writes of few chunks, of index arrays or of shards, and arrays
    that Frazil does not encode in bulk stay with ``FusedCodecPipeline``.
    """

    opened: OpenedArray | None = None

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
        return replace(cls.from_codecs(metadata.codecs).evolve_from_array_spec(spec), opened=opened)

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
        if read is not None and (read() if is_inline else await asyncio.to_thread(read)):
            return ({"status": "present"},) * len(batch)
        if is_inline and self.sync_transform is not None:
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
        if write is not None and await asyncio.to_thread(write):
            return
        if batch and self.sync_transform is not None and is_quick(batch):
            self.write_sync(batch, value, drop_axes)
        else:
            await super().write(batch, value, drop_axes)

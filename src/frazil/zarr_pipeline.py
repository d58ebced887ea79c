"""A codec pipeline for zarr that reads or writes all chunks of a selection in one call.

>>> import frazil.zarr_pipeline, zarr
>>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
>>> with frazil.zarr_pipeline.enable():
...     array = zarr.create_array(session.store, name="t", shape=(4,), dtype="i4")
>>> array[:].tolist()
[0, 0, 0, 0]
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, cast, override

import zarr
from zarr.abc.store import Store
from zarr.core.array import create_codec_pipeline
from zarr.core.codec_pipeline import FusedCodecPipeline
from zarr.core.metadata import ArrayMetadata

from frazil.arrays.zarr_arrays import OpenedArray, opened_array, zarr_read, zarr_write

__all__ = ["BulkCodecPipeline", "enable"]


@dataclass(frozen=True)
class BulkCodecPipeline(FusedCodecPipeline):
    """zarr's ``FusedCodecPipeline``, with reads and writes of boxes of Frazil's arrays in one call.

    It raises ``InvalidInputError`` (``invalid-array-metadata``) for an array whose grid, dtype, fill value or
    codecs have changed since zarr opened it. Other stores, arrays of indices, writes of few chunks or of
    shards, and arrays that Frazil does not encode in bulk stay with ``FusedCodecPipeline``; without
    ``opened``, all do.
    """

    opened: OpenedArray | None = None

    @classmethod
    @override
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store) -> Self:
        """Return the pipeline of an array. zarr calls this method."""
        opened = opened_array(array_metadata, store)
        if opened is None:
            raise NotImplementedError  # zarr then calls `from_codecs`
        return replace(cast("Self", create_codec_pipeline(array_metadata)), opened=opened)

    @override
    async def read(
        self, batch_info: Iterable[tuple[Any, ...]], out: Any, drop_axes: tuple[int, ...] = ()
    ) -> tuple[Any, ...]:
        """Read the chunks of a selection into ``out``. zarr calls this method."""
        batch = list(batch_info)
        read = zarr_read(batch, out, self.opened) if batch else None
        if read is not None and not drop_axes:
            # One thread for the whole read: the event loop is free for other callers. A thread costs more
            # than the read of one local chunk.
            is_complete = read.run() if read.is_fast else await asyncio.to_thread(read.run)
            if is_complete:
                return tuple({"status": "present"} for _ in batch)
        result: tuple[Any, ...] = await super().read(batch, out, drop_axes)
        return result

    @override
    async def write(
        self, batch_info: Iterable[tuple[Any, ...]], value: Any, drop_axes: tuple[int, ...] = ()
    ) -> None:
        """Write the chunks of a selection. zarr calls this method."""
        batch = list(batch_info)
        write = zarr_write(batch, value, self.opened) if batch else None
        if write is None or drop_axes or not await asyncio.to_thread(write):
            await super().write(batch, value, drop_axes)


def enable() -> Any:
    """Make zarr use the pipeline for arrays that are opened from now on.

    Returns:
        A context manager. At its end, zarr uses the pipeline from before for new arrays. Without ``with``,
        the pipeline stays.

    Examples:
        >>> import frazil.zarr_pipeline, zarr
        >>> with frazil.zarr_pipeline.enable():
        ...     zarr.config.get("codec_pipeline.path")
        'frazil.zarr_pipeline.BulkCodecPipeline'
    """
    zarr.registry.register_pipeline(BulkCodecPipeline)
    return zarr.config.set({"codec_pipeline.path": "frazil.zarr_pipeline.BulkCodecPipeline"})

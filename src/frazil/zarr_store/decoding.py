"""The decoder of the chunks of one array, for bytes that a caller has already read.

zarr decodes chunks while it reads from a store. So the decoder gives the bytes to a store in memory, and
reads the chunk as a block of the array. Codecs of shards check all inner chunks in this way. A chunk of one
value is encoded in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Buffer as BytesLike
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.core.buffer import cpu
from zarr.errors import UnknownCodecError
from zarr.storage import MemoryStore, StorePath

from frazil.cf import coding_of
from frazil.extras import missing_codec
from frazil.zarr_store.keys import Coords, chunk_keys

#: zarr quotes the name of an unknown codec.
_QUOTED: Final = re.compile(r"['\"`]([\w.-]+)['\"`]")


@dataclass(slots=True)
class ChunkDecoder:
    """A decoder of the chunks of an array."""

    array: zarr.Array[Any]
    chunks: dict[str, Any] = field(default_factory=dict)

    def error(self, coords: Coords, data: BytesLike) -> str:
        """Return why the chunk at ``coords`` cannot be decoded; an empty text if it can."""
        key = chunk_keys(f"/{self.array.store_path.path}", np.array([coords], np.uint32))[0]
        self.chunks[key] = cpu.Buffer.from_bytes(bytes(data))
        try:
            self.array.get_block_selection(coords) if coords else self.array.get_basic_selection(())
        except Exception as error:  # codecs raise errors of any class
            return f"{type(error).__name__}: {error}".rstrip(" .:")
        finally:
            del self.chunks[key]
        return ""

    def missing_element(self) -> Any:
        """Return the element that readers decode as a missing value, or None if the array has none."""
        return coding_of(self.array.attrs.asdict(), self.array.dtype).missing_element()

    def encoded(self, coords: Coords, element: Any) -> bytes:
        r"""Return a chunk with one element everywhere. No bytes if it is the fill value: zarr stores nothing.

        >>> import frazil, zarr
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(
        ...         store, name="t", shape=(4,), chunks=(2,), dtype="i2", compressors=None
        ...     )
        >>> decoder = chunk_decoder(repo.readonly_session("main").store, "/t")
        >>> decoder.encoded((0,), 7), decoder.encoded((0,), 0)
        (b'\x07\x00\x07\x00', b'')
        """
        try:
            if coords:
                self.array.set_block_selection(coords, element)
            else:
                self.array.set_basic_selection((), element)
            return b"".join(each.to_bytes() for each in self.chunks.values())
        finally:
            self.chunks.clear()


def open_array(store: Store, path: str, mode: Any = "r") -> zarr.Array[Any]:
    """Open an array. Raises ``MissingExtraError`` for a codec whose package is not installed."""
    try:
        return zarr.open_array(store, path=path.strip("/"), mode=mode, zarr_format=3)
    except UnknownCodecError as error:
        for name in _QUOTED.findall(str(error)):
            if (missing := missing_codec(name)) is not None:
                raise missing from error
        raise


def chunk_decoder(store: Store, path: str) -> ChunkDecoder:
    """Return a decoder of the chunks of the array at ``path``."""
    array = open_array(store, path)
    chunks: dict[str, Any] = {}
    place = StorePath(MemoryStore(chunks), array.store_path.path)
    return ChunkDecoder(zarr.Array(zarr.AsyncArray(array.metadata, place)), chunks)

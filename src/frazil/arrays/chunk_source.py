"""The chunks of an array, or the inner chunks of its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from frazil.arrays.array_chunks import ArrayChunks
from frazil.arrays.shards import ShardedChunks

if TYPE_CHECKING:
    from frazil.arrays.encoding import Encoding
    from frazil.repository.session.workspace import Workspace

type ChunkSource = ArrayChunks | ShardedChunks


def chunks_of(workspace: Workspace, path: str, encoding: Encoding) -> ChunkSource:
    """Return the chunks of an array: its shards' inner chunks if it has shards."""
    chunks = ArrayChunks(workspace, path)
    return chunks if encoding.shards is None else ShardedChunks(chunks, encoding.shards)

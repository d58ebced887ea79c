"""Errors of chunks, which name the array, the coordinates, the snapshot, and the location of the bytes.

A storage only knows its objects, and a codec only knows bytes. Their callers know the array, and add it to
the error with these functions.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, StorageError
from frazil.format.ids import id_to_text
from frazil.format.keys import chunk_key
from frazil.format.manifest import InlineRef, NativeRef

if TYPE_CHECKING:
    from frazil.changes.chunk_changes import Coords
    from frazil.format.manifest import ChunkRef


def place_of(ref: ChunkRef) -> str:
    """Return the location of the bytes of a chunk, as text for a message."""
    if isinstance(ref, InlineRef):
        return f"{len(ref.data)} bytes in a manifest"
    where = chunk_key(ref.chunk_id) if isinstance(ref, NativeRef) else ref.location
    return f"{ref.length} bytes from byte {ref.offset} of `{where}`"


def chunk_error[E: IcechunkError](
    snapshot_id: bytes, path: str, coords: Coords, ref: ChunkRef, error: E
) -> E | IcechunkError:
    """Return a copy of a read error whose message names the chunk.

    It is a copy because merged reads share one error object.
    """
    if not isinstance(error, StorageError | FormatError | InvalidInputError):
        return error  # the error is about the session, not about a chunk
    snapshot = id_to_text(snapshot_id)
    named = f"{_named(path, coords)}, {place_of(ref)}, snapshot {snapshot}"
    copied = copy.copy(error)
    copied.problem = f"{error.problem} ({named})"
    copied.args = (copied.message, copied.kind)
    return copied.with_traceback(error.__traceback__)


def undecodable(
    snapshot_id: bytes, path: str, coords: Coords, ref: ChunkRef, error: Exception
) -> FormatError:
    """Return the error for a chunk that the codecs of its array cannot decode. ``error`` is the cause."""
    text = f"{type(error).__name__}: {error}".rstrip(" .:")
    damage = FormatError(
        f"cannot decode {_named(path, coords)}: {text}. Its bytes are damaged, or "
        f"were written with other metadata ({place_of(ref)}, snapshot "
        f"{id_to_text(snapshot_id)})",
        ErrorKind.UNDECODABLE_CHUNK,
    )
    damage.__cause__ = error
    return damage


def _named(path: str, coords: Coords) -> str:
    return f"the chunk {list(coords)} of the array `{path}`"

"""Errors of chunks that name the chunk: its array, its coordinates, the snapshot, and where its bytes are.

A storage knows its objects, and a codec knows bytes. Neither knows the array. The callers of both do, and add
it here.
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
    from frazil.repository.session.workspace import Workspace


def place_of(workspace: Workspace, ref: ChunkRef) -> str:
    """Where the bytes of a chunk are, in words."""
    if isinstance(ref, InlineRef):
        return f"{len(ref.data)} bytes in a manifest"
    where = chunk_key(ref.chunk_id) if isinstance(ref, NativeRef) else ref.location
    return f"{ref.length} bytes from byte {ref.offset} of `{where}`"


def chunk_error[E: IcechunkError](
    workspace: Workspace, path: str, coords: Coords, ref: ChunkRef, error: E
) -> E | IcechunkError:
    """An error of reading a chunk, with the chunk in its text.

    It is another object of the same class and kind: reads that were merged share one error.
    """
    if not isinstance(error, StorageError | FormatError | InvalidInputError):
        return error  # it is about the session, and no chunk
    snapshot = id_to_text(workspace.snapshot_id)
    named = f"{_named(path, coords)}, {place_of(workspace, ref)}, snapshot {snapshot}"
    copied = copy.copy(error)
    copied.message = f"{error.message} ({named})"
    copied.args = (copied.message, copied.kind)
    return copied.with_traceback(error.__traceback__)


def undecodable(
    workspace: Workspace, path: str, coords: Coords, ref: ChunkRef, error: Exception
) -> FormatError:
    """The error for bytes that the codecs of an array refuse, with ``error``."""
    text = f"{type(error).__name__}: {error}".rstrip(" .:")
    damage = FormatError(
        f"cannot decode {_named(path, coords)}: {text}. Its bytes are damaged, or "
        f"were written with other metadata: {place_of(workspace, ref)}, snapshot "
        f"{id_to_text(workspace.snapshot_id)}",
        ErrorKind.UNDECODABLE_CHUNK,
    )
    damage.__cause__ = error
    return damage


def _named(path: str, coords: Coords) -> str:
    return f"the chunk {list(coords)} of the array `{path}`"

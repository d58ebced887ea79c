"""The references of some small manifests, which are read together. Upkeep reads thousands of manifests.

A function of numpy takes as long for ten rows as for a thousand. So the payloads of several manifests are
joined, and their references are read as the columns of one table (``joined_files``).

Specification: *Chunk Manifest Files*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import I64, U8, Ragged
from frazil.format.envelope import FileType, open_envelope
from frazil.format.ids import OBJECT_ID_BYTES, id_list
from frazil.format.joined_files import IRREGULAR, JoinedFiles, JoinedTables
from frazil.format.manifest import ChunkFiles, ChunkKind, ChunkRanges, read_references

_ID = 0
_OFFSET, _LENGTH, _CHUNK_ID = 2, 3, 4
#: The largest payload of a manifest that is read together with others.
_JOINED_BYTES: Final = 1 << 19


def decode_chunk_files_together(files: Sequence[Any]) -> list[ChunkFiles] | None:
    """Read the ids of the chunk files of some small manifests together."""
    return _together(files, _chunk_files)


def decode_chunk_ranges_together(files: Sequence[Any]) -> list[ChunkRanges] | None:
    """Read the ranges of the chunks of some small manifests together."""
    return _together(files, _chunk_ranges)


def _together[T](
    files: Sequence[Any], decode: Callable[[list[bytes], JoinedTables], list[T]]
) -> list[T] | None:
    try:
        payloads = (open_envelope(data, FileType.MANIFEST, _JOINED_BYTES)[1] for data in files)
        roots = JoinedFiles.of(payloads).roots()
        _, refs, _ = read_references(roots)
        return decode(id_list(roots.structs(_ID, OBJECT_ID_BYTES)), refs)
    except IRREGULAR:
        return None


def _chunk_files(manifests: list[bytes], refs: JoinedTables) -> list[ChunkFiles]:
    native = refs if refs.all_have(_CHUNK_ID) else refs.take(refs.present(_CHUNK_ID))
    ids, new = _chunk_ids(native)
    chosen = ids if new.all() else ids[new]
    bounds = _bounds(native.rows.files[new], len(manifests))
    return [ChunkFiles(id_, chosen[rows]) for id_, rows in zip(manifests, bounds, strict=True)]


def _chunk_ranges(manifests: list[bytes], refs: JoinedTables) -> list[ChunkRanges]:
    # Raises an error for chunks that are not native.
    ids, new = _chunk_ids(refs)
    offset, length = (
        refs.scalars(slot, "<u8") if refs.all_have(slot) else _with_zeros(refs, slot)
        for slot in (_OFFSET, _LENGTH)
    )
    kind = np.full(len(refs), ChunkKind.NATIVE, np.uint8)
    source = (np.cumsum(new) - 1).astype(np.uint32)
    chosen = ids if new.all() else ids[new]
    of_refs = _bounds(refs.rows.files, len(manifests))
    of_ids = _bounds(refs.rows.files[new], len(manifests))
    nothing = Ragged.empty()
    return [
        ChunkRanges(
            id_,
            kind[rows],
            source[rows] - np.uint32(files.start),
            offset[rows],
            length[rows],
            chosen[files],
            nothing,
        )
        for id_, rows, files in zip(manifests, of_refs, of_ids, strict=True)
    ]


def _chunk_ids(refs: JoinedTables) -> tuple[U8, NDArray[np.bool_]]:
    """Return the ids of chunk files, and which differ from the id before in the same manifest."""
    ids, files = refs.structs(_CHUNK_ID, OBJECT_ID_BYTES), refs.rows.files
    words = np.ascontiguousarray(ids).view(np.uint32)
    new = np.ones(len(ids), np.bool_)
    np.not_equal(words[1:, 0], words[:-1, 0], out=new[1:])
    if not new.all():
        for column in words.T[1:]:
            new[1:] |= column[1:] != column[:-1]
        new[1:] |= files[1:] != files[:-1]
    return ids, new


def _with_zeros(refs: JoinedTables, slot: int) -> NDArray[Any]:
    """Return a number of each table, with 0 where it is absent."""
    present = refs.present(slot)
    values = np.zeros(len(refs), "<u8")
    if present.any():
        values[present] = refs.take(present).scalars(slot, "<u8")
    return values


def _bounds(files: I64, count: int) -> list[slice]:
    """Return the rows of each of ``count`` files. ``files`` is sorted."""
    stops = np.searchsorted(files, np.arange(count), "right").tolist()
    return list(map(slice, [0, *stops[:-1]], stops))

"""Chunks of the arrays of a session: look-ups of references, and errors of chunks.

A codec of zarr allocates as many bytes as the header of a compressed chunk claims: a chunk of 60 KiB may
claim 2 GiB. This module refuses a chunk that is larger than the metadata of the array allow. zstd claims the
content sizes of all frames, or without them the most that their blocks hold: then a large chunk is
decompressed once to count its bytes. gzip, shards, and texts of variable length are not checked.
"""

from __future__ import annotations

import copy
import gzip
import json
import lzma
import re
import zlib
from bisect import bisect_right
from collections.abc import Buffer, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, ChunkChanges, Coords
from frazil.changes.zarr_metadata import chunk_lengths
from frazil.errors import ErrorKind, FormatError, IcechunkError, InvalidInputError, StorageError
from frazil.format.chunk_table import ChunkTable, stack
from frazil.format.columns import I64, U32
from frazil.format.ids import chunk_key, id_list, id_to_text
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef
from frazil.format.snapshot import ManifestRefs, Node
from frazil.remedies import call

#: With more manifests, a look-up searches among slabs.
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class _Slabs:
    """Boxes that do not overlap along one dimension: where they start, sorted, and their numbers."""

    axis: int
    starts: list[int]
    numbers: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayEntry:
    """An array with its edits, newest first, and the ids and half-open boxes of its manifests."""

    node: Node
    ids: list[bytes]
    edits: tuple[ChunkChanges, ...]
    boxes: U32
    lows: list[list[int]]
    highs: list[list[int]]
    slabs: _Slabs | None

    @staticmethod
    def of(node: Node, layers: Sequence[ChangeSet]) -> ArrayEntry | None:
        """Return the entry of a node, with its edits in ``layers``, or None for a group.

        Raises ``FormatError`` if the Zarr metadata have another rank: readers would ask for no chunk.
        """
        if node.array is None:
            return None
        rank, ndim = _rank(node.user_data), len(node.array.shape)
        if len(node.array.manifests) and rank not in (None, ndim):
            raise FormatError(
                f"`{node.path}` must have {ndim} dimensions, got {rank}. Restore the snapshot from a copy",
                check="array-shape",
            )
        edits = [layer.chunks.get(node.id) for layer in layers]
        refs = ManifestRefs.of(node.array.manifests, len(node.array.shape))
        boxes = refs.extents
        return ArrayEntry(
            node,
            id_list(refs.ids),
            tuple(each for each in edits if each is not None),
            boxes,
            boxes[:, :, 0].tolist(),
            boxes[:, :, 1].tolist(),
            _slabs(boxes) if len(boxes) > _FEW else None,
        )

    def manifests_at(self, coords: Coords) -> list[int]:
        """Return the numbers of the manifests whose box contains the coordinates."""
        if len(coords) != self.boxes.shape[1]:
            return []
        if self.slabs is not None:
            at = bisect_right(self.slabs.starts, coords[self.slabs.axis]) - 1
            numbers = [self.slabs.numbers[at]] if at >= 0 else []
        elif len(self.lows) > _FEW:
            numbers = self.manifests_meeting(np.array([coords], np.int64))
        else:
            numbers = list(range(len(self.lows)))
        lows, highs = self.lows, self.highs
        return [
            number
            for number in numbers
            if all(a <= c < b for a, c, b in zip(lows[number], coords, highs[number], strict=True))
        ]

    def manifests_meeting(self, index: NDArray[np.integer]) -> list[int]:
        """Return the numbers of the manifests whose box meets the box around coordinates, (n, ndim)."""
        if not len(index) or not len(self.boxes):
            return []
        meets = (self.boxes[:, :, 0] <= index.max(axis=0)) & (self.boxes[:, :, 1] > index.min(axis=0))
        numbers: list[int] = np.flatnonzero(meets.all(axis=1)).tolist()
        return numbers


def _rank(document: bytes) -> int | None:
    """Return the number of dimensions by the Zarr metadata, None if they do not say it."""
    try:
        return len(json.loads(document)["shape"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _slabs(boxes: U32) -> _Slabs | None:
    """Return the boxes as slabs along the first dimension in which they do not overlap."""
    for axis in range(boxes.shape[1]):
        order = np.argsort(boxes[:, axis, 0], kind="stable")
        starts, stops = boxes[order, axis].T
        if (stops[:-1] <= starts[1:]).all():
            return _Slabs(axis, starts.tolist(), order.tolist())
    return None


class ChunkLookup:
    """The references of the chunks at ``index``, which several tables have. The first table overrides."""

    def __init__(self, index: U32) -> None:
        self._index = index
        self._is_missing = np.ones(len(index), np.bool_)
        self._missing: I64 = np.arange(len(index))
        self._parts: list[tuple[I64, ChunkTable]] = []

    def missing_in(self, low: I64, high: I64) -> I64:
        """Return the rows without a reference whose coordinates are in a half-open box."""
        coords = self._index[self._missing]
        return self._missing[((coords >= low) & (coords < high)).all(axis=1)]

    def look_up(self, table: ChunkTable, rows: I64 | None = None) -> None:
        """Look up the references of rows that have none yet. Default: all of them."""
        # Tables whose boxes overlap can have references of the same chunk.
        targets = self._missing if rows is None else rows[self._is_missing[rows]]
        if not len(targets) or not len(table):
            return
        place = table.find_chunks(self._index if len(targets) == len(self._index) else self._index[targets])
        is_match = place >= 0
        if is_match.all():
            matched = targets
        else:
            matched, place = targets[is_match], place[is_match]
        if len(matched):
            self._parts.append((matched, table.select_chunks(place)))
            self._is_missing[matched] = False
            self._missing = np.flatnonzero(self._is_missing)

    def table(self) -> ChunkTable:
        """Return the references as a table in the order of ``index``. Chunks without one are ``ABSENT``."""
        if len(self._parts) == 1 and not len(self._missing):
            return self._parts[0][1]
        if len(self._missing) or not self._parts:
            # ``from_absent`` sorts, but ``index`` may be unsorted.
            index = self._index[self._missing]
            one = ChunkTable.from_absent(np.zeros((1, index.shape[1]), np.uint32))
            absent = one.select_chunks(np.zeros(len(index), np.int64))
            self._parts.append((self._missing, replace(absent, index=index)))
        rows = np.concatenate([rows for rows, _ in self._parts])
        tables = [table for _, table in self._parts]
        stacked = stack(tables, np.concatenate([table.index for table in tables]))
        return stacked.select_chunks(np.argsort(rows))


def place_of(ref: ChunkRef) -> str:
    """Return the location of the bytes of a chunk, as text for a message."""
    if isinstance(ref, InlineRef):
        return f"{len(ref.data)} bytes in a manifest"
    where = chunk_key(ref.chunk_id) if isinstance(ref, NativeRef) else ref.location
    return f"{ref.length} bytes from byte {ref.offset} of `{where}`"


def chunk_error[E: IcechunkError](
    snapshot_id: bytes, path: str, coords: Coords, ref: ChunkRef, error: E
) -> E | IcechunkError:
    """Return a copy of a read error whose message names the chunk. Merged reads share one error object."""
    if not isinstance(error, StorageError | FormatError | InvalidInputError):
        return error  # the error is about the session, not about a chunk
    snapshot = id_to_text(snapshot_id)
    named = f"{_named(path, coords)}, {place_of(ref)}, snapshot {snapshot}"
    copied = copy.copy(error)
    copied.problem = f"{error.problem} ({named})"
    damage = (ErrorKind.OBJECT_NOT_FOUND, ErrorKind.INVALID_OBJECT_SIZE)
    if isinstance(ref, NativeRef) and error.kind in damage:
        copied.with_remedy("`{}` lists all such chunks", call("verify", level="exists"))
    copied.args = (copied.message, copied.kind)
    return copied.with_traceback(error.__traceback__)


#: What codecs raise for bytes that no writer with the metadata of the array has written: a checksum that does
#: not match, data that are no stream of the codec, a wrong decoded size. Codecs raise errors of any class and
#: text also where the bytes may be good: no package, no memory, no permission, another version.
_PROOF_TEXTS: Final = "|".join(
    (
        r"checksum.*match|match checksum|(buffer|shard) is too short|corrupt",
        r"end-of-stream|bad input data|^negative size",
        r"zstd.*(invalid input|too small|src size|unknown frame|respect format)",
        r"lz4 decompression error: (-|invalid|expected)|blosc decompression: (-1|0)$",
        r"cannot reshape array of size|must be a divisor of the total size",
    )
)
_PROOFS: Final = (
    (UnicodeDecodeError, ""),
    (zlib.error, r"^Error -[35]\b"),
    (gzip.BadGzipFile, ""),
    (EOFError, "end-of-stream"),
    (lzma.LZMAError, "corrupt|end-of-stream|input format not supported"),
    (OSError, "^Invalid data stream$"),
    ((RuntimeError, ValueError, SystemError), _PROOF_TEXTS),
)


_ANY_CASE: Final = re.IGNORECASE | re.DOTALL


def proves_damage(error: BaseException) -> bool:
    """Return whether an error of a codec proves that the bytes of a chunk are damaged."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(proves_damage, error.exceptions))
    text = str(error)
    if any(isinstance(error, kind) and re.search(rule, text, _ANY_CASE) for kind, rule in _PROOFS):
        return True
    return error.__cause__ is not None and proves_damage(error.__cause__)


def undecodable(
    snapshot_id: bytes, path: str, coords: Coords, ref: ChunkRef, error: Exception
) -> FormatError:
    """Return the error for a chunk that the codecs of its array cannot decode. ``error`` is the cause."""
    text = f"{type(error).__name__}: {error}".rstrip(" .:")
    why = "are damaged, or were written with other metadata" if proves_damage(error) else "may be good"
    damage = FormatError(
        f"cannot decode {_named(path, coords)}: {text}. Its bytes {why} ({place_of(ref)}, snapshot "
        f"{id_to_text(snapshot_id)})",
        ErrorKind.UNDECODABLE_CHUNK,
    )
    error.__suppress_context__ = True  # it was found by a second read, after the same error
    damage.__cause__ = error
    return damage


def _named(path: str, coords: Coords) -> str:
    return f"the chunk {list(coords)} of the array `{path}`"


#: Chunks that claim at most this number of bytes pass.
_FREE: Final = 1 << 24
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK: Final = 1 << 17
#: A frame that decoders skip begins with a byte from 0x50 to 0x5F, these bytes, and the size of its content.
_SKIPPABLE_FIRST: Final = 0x50
_SKIPPABLE: Final = b"\x2a\x4d\x18"
_SKIPPABLE_HEADER: Final = 8
#: The longest header of a frame.
_FRAME_HEADER: Final = 18
#: The sizes of the fields in the header of a frame in bytes, by two bits of its descriptor.
_CONTENT_BYTES: Final = (0, 2, 4, 8)
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CHECKSUM_BYTES: Final = 4
#: The zstd type of compressed blocks. The headers of other blocks have the size of the content.
_COMPRESSED: Final = 2
_REPEATED_BYTE: Final = 1
_STEP: Final = 1 << 20
#: zarr cannot read arrays of more dimensions. The product of very many lengths would take hours.
_MOST_DIMENSIONS: Final = 64
#: The largest size of a document in the cache of small documents, in bytes.
_SMALL_DOCUMENT: Final = 1 << 14
_BLOSC_HEADER: Final = 16
_BLOSC_VERSIONS: Final = (1, 2)
_DTYPE: Final = re.compile(r"(?:u?int|float|complex|r)(\d+)")
#: The bytes that a codec between the array and its compressor adds.
_ADDED_BYTES: Final = {"transpose": 0, "bytes": 0, "crc32c": 4, "numcodecs.shuffle": 0, "numcodecs.crc32": 4}


def claimed_bytes(data: Buffer) -> tuple[str, int] | None:
    """Return the compressor of some bytes and the size that they claim, or None if the claim is small."""
    view = memoryview(data)
    head = bytes(view[:_BLOSC_HEADER])
    if head.startswith(_ZSTD) or _is_skippable(head):
        size = _most_of_zstd(view)
        return ("zstd", size) if size > _FREE else None
    if len(head) == _BLOSC_HEADER and head[0] in _BLOSC_VERSIONS:
        size, stored = (int.from_bytes(head[at : at + 4], "little") for at in (4, 12))
        # The codec ignores bytes after the stored size.
        return ("blosc", size) if size > _FREE and stored <= view.nbytes else None
    return None


def _is_skippable(head: bytes) -> bool:
    return head[1:4] == _SKIPPABLE and head[0] >> 4 == _SKIPPABLE_FIRST >> 4


def _most_of_zstd(view: memoryview) -> int:
    """Return the number of bytes that all frames can grow to. The codec reports damaged frames."""
    at = total = 0
    while at < len(view):
        header = bytes(view[at : at + _FRAME_HEADER])
        if _is_skippable(header):
            at += _SKIPPABLE_HEADER + int.from_bytes(header[4:8], "little")
            continue
        if len(header) <= len(_ZSTD) or not header.startswith(_ZSTD):
            break
        # It describes the size of the content, the window, the checksum, and the id of the dictionary.
        descriptor = header[len(_ZSTD)]
        has_window = not descriptor & 0x20
        start = len(_ZSTD) + 1 + has_window + _DICTIONARY_BYTES[descriptor & 3]
        size_bytes = _CONTENT_BYTES[descriptor >> 6] or (not has_window)
        content = int.from_bytes(header[start : start + size_bytes], "little") + 256 * (size_bytes == 2)
        at += start + size_bytes
        most = last = 0
        while not last and at + 3 <= len(view):
            block = int.from_bytes(view[at : at + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            most += _ZSTD_BLOCK if kind == _COMPRESSED else size
            at += 3 + (1 if kind == _REPEATED_BYTE else size)
        total += content if size_bytes else most
        at += _CHECKSUM_BYTES * (descriptor >> 2 & 1)
    return total


def require_plausible(key: str, document: bytes, data: Buffer, claimed: tuple[str, int]) -> None:
    """Raise ``FormatError`` for a chunk that claims (``claimed_bytes``) more than the document allows."""
    expected = largest_chunk(document)
    if expected is None or expected[0] != claimed[0] or claimed[1] <= expected[1]:
        return
    if claimed[0] == "zstd":
        count = 0
        frames = memoryview(data)
        with (
            suppress(zstandard.ZstdError),
            zstandard.ZstdDecompressor().stream_reader(frames, read_across_frames=True) as stream,
        ):
            while count <= expected[1] and (step := len(stream.read(_STEP))):
                count += step
            if count <= expected[1]:
                return
    raise FormatError(
        f"{key}: the {claimed[0]} data must have at most {expected[1]} bytes, by the metadata of the array, "
        f"got up to {claimed[1]} bytes, by the headers of the chunk"
    )


def largest_chunk(document: bytes) -> tuple[str, int] | None:
    """Return the last codec of an array and the size of its largest input, or None. It is cached."""
    return (_of_small if len(document) <= _SMALL_DOCUMENT else _of_large)(document)


def _largest_chunk(document: bytes) -> tuple[str, int] | None:
    try:
        array = json.loads(document)
        lengths = [max(each) if isinstance(each, list) else each for each in chunk_lengths(document)]
        *others, last = [_name(codec) for codec in array["codecs"]]
        added = [_ADDED_BYTES.get(name) for name in others]
        data_type = array["data_type"]
        match = _DTYPE.fullmatch(data_type) if isinstance(data_type, str) else None
        bits = 8 if data_type == "bool" else 0 if match is None else int(match[1])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # zarr reports the error in the document
    if not bits or None in added or array.get("storage_transformers") or len(lengths) > _MOST_DIMENSIONS:
        return None
    return last, prod(lengths) * -(-bits // 8) + sum(filter(None, added))


#: The keys of these caches are documents: at most 4 MiB, and two documents of snapshots that are in use.
_of_small = lru_cache(256)(_largest_chunk)
_of_large = lru_cache(2)(_largest_chunk)


def _name(codec: Any) -> str:
    name = codec if isinstance(codec, str) else codec["name"]
    return str(name).replace("numcodecs.zstd", "zstd").replace("numcodecs.blosc", "blosc")

"""The header of every metadata file, 39 bytes, the compression of its payload, and how decoders read it.

    12 bytes  magic          ICE🧊CHUNK
    24 bytes  implementation name, padded with spaces
     1 byte   spec version   1 or 2
     1 byte   file type
     1 byte   compression    1 = zstd

The reference implementation refuses compression 0 (none). Frazil reads such files and never writes them.
"""

from __future__ import annotations

import threading
from collections.abc import Buffer, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from frazil.about import __version__
from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import U32

MAGIC: Final = "ICE🧊CHUNK".encode()
HEADER_BYTES: Final = 39
IMPLEMENTATION: Final = f"frazil-{__version__}"
#: Readers of the format refuse larger payloads.
MAX_PAYLOAD_BYTES: Final = 1 << 31
_SPEC_VERSIONS: Final = (1, 2)
_STEP: Final = 1 << 20
_PLAUSIBLE_RATIO: Final = 256
#: A payload may have this many bytes, or this many times the size of its file if that is more. Tables of a
#: million similar rows reach a ratio of 100, because each row has its own coordinate or id.
FREE_PAYLOAD_BYTES: Final = 1 << 28
MAX_RATIO: Final = 2048
#: Blocks of 1 KiB, each of which takes at least 4 bytes.
_SMALL_BLOCKS: Final = zstandard.ZstdCompressionParameters.from_level(3, window_log=10, write_checksum=1)
#: The parameters of zstd for large payloads at a low level. Such a payload has many tables of equal size, and
#: numbers that grow from table to table. Small search tables find the same matches as large ones, stay in the
#: cache of the processor, and make the file of random ids or sizes smaller. Window 1 MiB.
_TABLES: Final = {
    "strategy": zstandard.STRATEGY_FAST,
    "window_log": 20,
    "hash_log": 14,
    "chain_log": 14,
    "min_match": 5,
}
#: Payloads from this size, in bytes, are compressed in parts, and decompressed into memory of numpy.
_LARGE: Final = 1 << 20
_TABLES_LEVELS: Final = range(1, 4)
#: Block type of zstd for one repeated byte.
_REPEATED_BYTE: Final = 1
#: Two blocks of zstd that mean ``PIECE_GAP`` NULs, and set the three offsets that zstd remembers to 1, 4
#: and 8, as at the start of a frame. So a block that was compressed as the first one of a frame may follow.
#: The first block has 13 NULs and a match of 3 at distance 8, the second one 2 NULs and matches at 4 and 1.
_RESET: Final = bytes.fromhex("440000 6900 01 54 08 03 00 0b  440000 1100 02 54 01 02 00 1c")
PIECE_GAP: Final = 24
#: The header of a frame in pieces (window 1 MiB, checksum, size in 8 bytes), and that of one piece.
_FRAME_OF_PIECES: Final = bytes.fromhex("28b52ffd c4 50")
_FRAME_OF_PIECE: Final = bytes.fromhex("28b52ffd 00 50")
_PIECE_WINDOW: Final = 20
_END_OF_FRAME: Final = b"\1\0\0"
_MOST_IN_BLOCK: Final = 1 << 17
#: At this level zstd finds no matches. It is the fastest way to the checksum of a frame.
_COPY_ONLY: Final = zstandard.ZstdCompressionParameters.from_level(-(1 << 17), write_checksum=1)


class FileType(IntEnum):
    """The type of a metadata file, as the header stores it."""

    SNAPSHOT = 1
    MANIFEST = 2
    TRANSACTION_LOG = 4
    REPO_INFO = 6


#: The files that are mostly tables of one vtable. Snapshots have more text.
_TABLES_FILES: Final = (FileType.MANIFEST, FileType.TRANSACTION_LOG)


class Compression(IntEnum):
    """The compression of the payload, as the header stores it."""

    NONE = 0
    ZSTD = 1


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The contents of the 39 bytes. Readers ignore ``implementation``, the name of the writer."""

    implementation: str
    spec_version: int
    file_type: FileType
    compression: Compression


def spec_version_of(data: Buffer) -> int:
    """Return the spec version in the header of a file that was read."""
    return memoryview(data).cast("B")[36]


def check_spec_version(version: int, check: str) -> None:
    """Raise ``FormatError`` (``unsupported-spec-version``) unless Frazil reads files of a spec version."""
    if version not in _SPEC_VERSIONS:
        advice = "update Frazil, or use the program that wrote the file" if version else "the file is damaged"
        raise FormatError(
            f"the file has spec version {version}, and Frazil {__version__} reads the spec versions 1 and 2: "
            f"{advice}",
            ErrorKind.UNSUPPORTED_SPEC_VERSION,
            check,
        )


def parse_header(data: Buffer, expected: FileType) -> FileHeader:
    """Return the header of a file."""
    raw = bytes(memoryview(data)[:HEADER_BYTES])
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        raise FormatError(
            f"not an Icechunk metadata file: {len(raw)} bytes of header, beginning with {raw[:12]!r}",
            ErrorKind.INVALID_FILE_FORMAT,
            "file-header",
        )
    spec_version, file_type, compression = raw[36:]
    check_spec_version(spec_version, "file-spec-version")
    if file_type != expected:
        raise FormatError(
            f"file type {file_type}, expected {expected.value} ({expected.name})",
            ErrorKind.INVALID_FILE_FORMAT,
            "file-type",
        )
    if compression not in tuple(Compression):
        text = f"compression {compression}, expected 0 or 1"
        raise FormatError(text, ErrorKind.INVALID_FILE_FORMAT, "file-compression")
    name = raw[12:36].decode(errors="replace").rstrip(" \0")
    return FileHeader(name, spec_version, FileType(file_type), Compression(compression))


def open_envelope(
    data: Buffer, expected: FileType, max_bytes: int = MAX_PAYLOAD_BYTES
) -> tuple[FileHeader, Buffer]:
    """Return the header and the payload of a file.

    The payload has at most ``max_bytes``, and at most a plausible size: ``FREE_PAYLOAD_BYTES``, or
    ``MAX_RATIO`` times the size of the file if that is more.
    """
    header = parse_header(data, expected)
    body = memoryview(data)[HEADER_BYTES:]
    if header.compression is Compression.NONE:
        return header, body
    try:
        return header, decompress(body, min(max_bytes, largest_payload(len(body))))
    except FormatError as error:
        error.check = "file-payload"
        raise


def largest_payload(compressed: int) -> int:
    """Return the largest plausible payload, in bytes, of a number of compressed bytes."""
    return max(FREE_PAYLOAD_BYTES, MAX_RATIO * compressed)


def decompress(body: memoryview, max_bytes: int) -> Buffer:
    """Decompress one or several zstd frames. The size in a frame's header is used only if it is plausible."""
    try:
        claimed = zstandard.frame_content_size(body)
        if 0 <= claimed <= min(max_bytes, _PLAUSIBLE_RATIO * len(body) + _STEP):
            end = _end_of_frames(body, frames=1)
            if end == len(body) and claimed < _LARGE:
                return _of_thread.decompressor.decompress(body, max_output_size=claimed)
            if end == len(body):
                # The memory of numpy has huge pages, so there are fewer page faults.
                whole = np.empty(claimed, np.uint8)
                with zstandard.ZstdDecompressor().stream_reader(body) as stream:
                    # The last read is empty. It makes sure that zstd has compared the checksum.
                    if stream.readinto(memoryview(whole)) != claimed or stream.read(1):
                        raise FormatError(
                            f"the compressed payload must have {claimed} bytes, as its header says"
                        )
                whole.flags.writeable = False
                return whole.data
        _end_of_frames(body)
        out = bytearray()
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
            while step := stream.read(_STEP):
                out += step
                if len(out) > max_bytes:
                    raise FormatError(
                        f"expected a payload of a plausible size in {len(body)} compressed bytes, got more "
                        f"than {max_bytes} bytes"
                    )
        return out
    except zstandard.ZstdError as error:
        raise FormatError(f"the payload is not zstd: {error}") from error


def _end_of_frames(body: memoryview, frames: int = -1) -> int:
    """Return where the first frames (all by default) end, from the sizes of their blocks.

    zstd reads a stream that is cut off as a shorter stream. Only the block headers show it.
    """
    at = 0
    while at < len(body) and frames:
        frames -= 1
        has_checksum = zstandard.get_frame_parameters(body[at : at + 18]).has_checksum
        at += zstandard.frame_header_size(body[at : at + 18])
        for _, end in _blocks(body, at):
            at = end
        at += 4 * has_checksum
    if at > len(body) or not at:
        raise FormatError("the compressed payload is cut off")
    return at


#: Payloads up to this number of bytes are joined before they are compressed.
_SMALL_PAYLOAD: Final = 128 << 10


class _OfThread(threading.local):
    """The decompressor of each thread, and its compressors. Threads cannot share them.

    A new one costs as much as its work for a small payload, because it allocates its tables.
    """

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        #: By level, and whether the parameters are ``_TABLES``.
        self.compressors: dict[tuple[int, bool], zstandard.ZstdCompressor] = {}


_of_thread: Final = _OfThread()


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of a payload with its blocks of zstd, which mean the same in every file."""

    data: Any  # The bytes of the payload
    blocks: bytes  # The blocks of zstd, none of which is the last one of a frame

    def __len__(self) -> int:
        return len(self.data)


def stored_piece(data: bytes) -> Piece:
    """Return a piece that is not compressed, such as random numbers that change in each file."""
    parts = [data[at : at + _MOST_IN_BLOCK] for at in range(0, len(data), _MOST_IN_BLOCK)]
    return Piece(data, b"".join((len(part) << 3).to_bytes(3, "little") + part for part in parts))


def compressed_piece(data: bytes, level: int = 3) -> Piece:
    """Return a compressed piece of bytes that begin with ``PIECE_GAP`` NULs."""
    return Piece(data, _RESET + _first_blocks(data[PIECE_GAP:], level))


def _first_blocks(data: bytes, level: int) -> bytes:
    """Return the blocks of a frame, none of which is marked as the last one."""
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, source_size=len(data), window_log=_PIECE_WINDOW
    )
    frame = bytearray(zstandard.ZstdCompressor(compression_params=parameters).compress(data))
    first = zstandard.frame_header_size(frame)
    frame[[at for at, _ in _blocks(frame, first)][-1]] &= ~1
    return bytes(frame[first:])


def _blocks(body: Buffer, at: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each block of a frame whose first block is at ``at``."""
    view, last = memoryview(body), 0
    while not last:
        block = int.from_bytes(view[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        end = at + 3 + (1 if kind == _REPEATED_BYTE else size)
        if end > len(view):
            raise FormatError("the compressed payload is cut off")
        yield at, end
        at = end


def stored_pieces(file: Buffer) -> Iterator[list[bytes]]:
    """Yield the blocks of each compressed piece of a file, and of the pieces that are stored after it."""
    body = memoryview(file)[HEADER_BYTES:]
    if bytes(body[: len(_FRAME_OF_PIECES)]) != _FRAME_OF_PIECES:
        return
    piece: list[bytes] | None = None
    skipped = 0
    for at, end in _blocks(body, zstandard.frame_header_size(body[:18])):
        if body[at : at + len(_RESET)] == _RESET:
            if piece is not None:
                yield piece
            piece, skipped = [], at + len(_RESET)
        elif piece is not None and at >= skipped and not body[at] & 1:
            piece.append(bytes(body[at:end]))
    if piece is not None:
        yield piece


def opened_piece(blocks: Sequence[bytes]) -> Piece:
    """Return the compressed piece with these blocks, which ``stored_pieces`` has returned.

    Raises ``FormatError`` if they need other blocks of their file.
    """
    compressed = _RESET + b"".join(blocks)
    frame = _FRAME_OF_PIECE + compressed + _END_OF_FRAME
    try:
        return Piece(zstandard.ZstdDecompressor().decompressobj().decompress(frame), compressed)
    except zstandard.ZstdError as error:
        raise FormatError(f"the blocks are not those of a piece: {error}") from error


def _file_of_pieces(head: bytes, parts: Sequence[Any], level: int) -> bytes:
    """Return a header and one frame of zstd: other parts first, and then pieces."""
    count = next(place for place, part in enumerate(parts) if isinstance(part, Piece))
    first = b"".join(parts[:count])
    pieces: list[Piece] = [Piece(first, _first_blocks(first, level)), *parts[count:]]
    size = sum(map(len, pieces))
    checksum = zstandard.ZstdCompressor(compression_params=_COPY_ONLY).compressobj(size=size)
    for piece in pieces:
        checksum.compress(piece.data)
    blocks = [piece.blocks for piece in pieces]
    start = [head, _FRAME_OF_PIECES, size.to_bytes(8, "little")]
    return b"".join([*start, *blocks, _END_OF_FRAME, checksum.flush()[-4:]])


def seal(parts: Sequence[Any], file_type: FileType, *, spec_version: int = 2, level: int = 3) -> bytes:
    """Return a whole file: the header and the compressed parts of the payload.

    ``Piece`` parts, which keep their blocks, follow all others.
    The parts of a large file are never joined uncompressed. zstd adds a checksum, because documents and
    metadata are text, in which a flipped bit would not be detected. A payload that compresses too well for
    readers is compressed less.
    """
    head = MAGIC + IMPLEMENTATION.encode().ljust(24) + bytes((spec_version, file_type, Compression.ZSTD))
    if isinstance(parts[-1], Piece):
        return _file_of_pieces(head, parts, level)
    size = sum(map(len, parts))
    is_tables = size > _SMALL_PAYLOAD and file_type in _TABLES_FILES and level in _TABLES_LEVELS
    is_small = size <= _SMALL_PAYLOAD or (is_tables and size < _LARGE)
    compressor = _of_thread.compressors.get((level, is_tables)) if is_small else None
    if compressor is None and is_tables:
        parameters = zstandard.ZstdCompressionParameters.from_level(level, write_checksum=1, **_TABLES)
        compressor = zstandard.ZstdCompressor(compression_params=parameters)
    elif compressor is None:
        compressor = zstandard.ZstdCompressor(level=level, write_checksum=True)
    if is_small:
        _of_thread.compressors[level, is_tables] = compressor
        file = head + compressor.compress(b"".join(parts))
        if size <= largest_payload(len(file) - len(head)):
            return file
    for each in ([] if is_small else [compressor]) + [
        zstandard.ZstdCompressor(compression_params=_SMALL_BLOCKS)
    ]:
        # A `stream_writer` of zstandard never frees the numbers that `write` of a file returns.
        stream = each.compressobj(size=size)
        file = b"".join([head, *map(stream.compress, parts), stream.flush()])
        if size <= largest_payload(len(file) - len(head)):
            break
    return file


#: Errors of numpy and Python that damaged bytes cause.
_DAMAGE: Final = (ValueError, IndexError, OverflowError, TypeError, MemoryError, RecursionError)


class Reading:
    """The context that converts all errors of decoding a file into ``FormatError`` with its name.

    ``others`` are types of errors that damaged bytes also cause. ``check`` is the rule of errors without one.

    It is a class: an error that passes through a generator would be part of a reference cycle. The cycle
    would keep the decompressed payload in memory until the next run of the garbage collector of Python.
    """

    __slots__ = ("_check", "_damage", "_name")

    def __init__(self, name: str, *others: type[Exception], check: str = "") -> None:
        self._name = name
        self._damage: tuple[type[Exception], ...] = (*_DAMAGE, *others)
        self._check = check

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FormatError):
            if not error.message.startswith(f"{self._name}: "):  # otherwise an inner call has added the name
                check = error.check or self._check
                raise FormatError(f"{self._name}: {error.message}", error.kind, check) from error
        elif isinstance(error, self._damage):
            text = f"{self._name}: damaged ({type(error).__name__}: {error!s:.200})"
            raise FormatError(text, check=self._check) from error


reading = Reading


def decode_one[T](decode: Callable[..., list[T]], data: Buffer, name: str, *options: Any) -> T:
    """Return the value of one file from a decoder of several files. Errors name the file."""
    with reading(name):
        return decode([data], *options)[0]


#: The function that decodes a group of fields, by the name of each field of the group.
type Decoders = Mapping[str, Callable[[], Mapping[str, Any]]]

_NO_DECODERS: Final[Decoders] = {}


class LateFields:
    """The base of slotted dataclasses some of whose fields may be decoded at the first use.

    Threads may share a value. Two threads may decode the same fields at once, with the same result.
    """

    __slots__ = ("_decoders",)

    _decoders: Decoders

    if not TYPE_CHECKING:  # for type checkers, the class has only its fields

        def __getattr__(self, name: str) -> Any:
            """Decode the group of a field that has no value yet. Python calls this for no other field."""
            decoders = _NO_DECODERS if name == "_decoders" else getattr(self, "_decoders", _NO_DECODERS)
            if name not in decoders:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
                )
            for field_name, value in decoders[name]().items():
                object.__setattr__(self, field_name, value)
            return getattr(self, name)


#: Sets the functions of a value, for calls with ``map``.
set_decoders: Final[Callable[[LateFields, Decoders], None]] = LateFields.__dict__["_decoders"].__set__


def with_late_fields[T: LateFields](cls: type[T], fields: Mapping[str, Any], decoders: Decoders) -> T:
    """Return a value with some fields, and with functions that decode the others.

    A function may also set the fields itself, or replace the functions of the value, and return no fields.
    """
    value = object.__new__(cls)
    for name, each in {**fields, "_decoders": decoders}.items():
        object.__setattr__(value, name, each)
    return value


def complete[T: LateFields](value: T) -> T:
    """Decode all fields of a value, and return it. Raises the errors of the functions that decode them."""
    for name in getattr(value, "_decoders", _NO_DECODERS):
        inner = getattr(value, name)
        if isinstance(inner, LateFields):
            complete(inner)
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """A rule that a file breaks, which readers of the file do not need (``Repository.list_checks``)."""

    check: str  # The name of the rule
    detail: str  # What the file contains, and what it must contain
    node: bytes = b""  # The id of the array, 8 bytes. Empty for a whole file
    #: The coordinates of chunks that break the rule, uint32 of shape (k, ndim)
    coordinates: U32 = field(default_factory=lambda: np.zeros((0, 0), np.uint32))


def collect(broken: list[Violation] | None, *rules: Iterable[Violation]) -> None:
    """Add the violations of rules to a list, if there is one.

    A rule that cannot read its fields yields nothing more. Readers raise the error when they use the fields.
    """
    if broken is None:
        return
    for violations in rules:
        try:
            with reading("rule"):
                broken.extend(violations)
        except FormatError as error:
            if error.check:
                broken.append(Violation(error.check, error.message.removeprefix("rule: ")))


def unsorted(check: str, what: str, keys: NDArray[Any] | list[Any]) -> Iterator[Violation]:
    """Yield a violation if keys are not strictly ascending."""
    is_sorted = sorted(set(keys)) == keys if isinstance(keys, list) else (keys[:-1] < keys[1:]).all()
    if not is_sorted:
        yield Violation(check, f"{what} must be sorted, each once")

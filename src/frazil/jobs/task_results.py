"""The result of a task as bytes: its changes as columns, its outcome, its staged references, and a value.

The same bytes are staged in the storage, where others may have write access. So decoding builds nothing but
checked columns, bounded by the size of the message, and values of a fixed list of types: if a value has
another type, its task runs again when the job is resumed. Pickles of numpy itself are not safe: a dtype with
wrong flags would turn bytes into pointers. Columns are differences from the row before, byte by byte, for
zstd.
"""

from __future__ import annotations

import builtins
import io
import json
import math
import pickle
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, is_dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
import zstandard
from cloudpickle import CloudPickler  # type: ignore[import-untyped]  # it ships no types
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.changes.manifests import in_boxes
from frazil.changes.reads import NOTHING_READ, ReadSet
from frazil.errors import ErrorKind, FormatError, InvalidInputError, StorageError
from frazil.format.chunk_statistics import ChunkStatistics, row_columns, row_dtype_of
from frazil.format.chunk_table import ChunkKind, VirtualObjects, ascending, stack
from frazil.format.columns import I64, MAX_COPIED_BYTES, U32, U64, Ragged, decode_text
from frazil.format.envelope import reading
from frazil.format.ids import INITIAL_SNAPSHOT_ID, NODE_ID_BYTES, OBJECT_ID_BYTES, id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import ManifestFiles, Node, NodeTable, Snapshot, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import Move
from frazil.repository.catalog.collection_guard import STAGING
from frazil.repository.catalog.context import Context
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit_files import split_of
from frazil.repository.session.session import ForkSession
from frazil.storage.base import Storage
from frazil.storage.checks import Traffic

# Staged references

#: A task sends fewer references of an array than this, and stages them otherwise.
SENT_REFERENCES: Final = 20_000
#: The largest number of boxes of a task. If there are more, the boxes become larger.
_BOXES: Final = 256

type Corner = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Staged references of one array.

    They are the bytes from ``start`` to ``stop`` of the object ``key``. ``count`` is their number. ``low``
    and ``high`` (inclusive) are the corners of a box around their coordinates.
    """

    key: str
    start: int
    stop: int
    count: int
    low: Corner
    high: Corner
    node_id: bytes


def stage_references(fork: ForkSession, place: str) -> tuple[ChangeSet, tuple[Segment, ...]]:
    """Stage references in the folder ``place``. Returns the other changes of the fork, and the segments."""
    workspace = fork.workspace
    changes = workspace.own_changes()
    many = [id_ for id_, edits in changes.chunks.items() if len(edits.table()) >= SENT_REFERENCES]
    if not many:
        return changes, ()
    rest = changes.copy()
    parts: list[tuple[Node, ChunkTable]] = []
    for id_ in many:
        edits = changes.chunks[id_]
        parts.append((workspace.require_array(edits.path), edits.table()))
        rest.chunks[id_] = ChunkChanges(edits.path, edits.ndim)  # marks the array as written
    return rest, tuple(stage_tables(workspace.context, place, parts))


def stage_tables(context: Context, place: str, parts: Iterable[tuple[Node, ChunkTable]]) -> list[Segment]:
    """Write references into one file, divided into the boxes of manifests, and return a segment for each."""
    key = f"{place}/{id_to_text(new_object_id())}.chunks"
    blobs: list[bytes] = []
    segments: list[Segment] = []
    at = 0
    for node, table in parts:
        assert node.array is not None
        split = split_of(context, node, math.prod(node.array.num_chunks))
        while len(boxes := in_boxes(table, split)) > _BOXES:
            split = tuple(min(2 * size, 0xFFFF_FFFF) for size in split)
        for part in boxes:
            edits = ChunkChanges(node.path, part.ndim, (part,))
            blobs.append(encode_changes(ChangeSet(chunks={node.id: edits})))
            bounds = part.bounds().astype(np.int64)
            low, high = tuple(bounds[:, 0].tolist()), tuple((bounds[:, 1] - 1).tolist())
            stop = at + len(blobs[-1])
            segments.append(Segment(key, at, stop, len(part), low, high, node.id))
            at = stop
    context.storage.put(key, b"".join(blobs))
    return segments


def read_segments(storage: Storage, segments: Iterable[Segment]) -> Iterator[ChangeSet]:
    """Yield the references of each segment as a change set."""
    for segment in segments:
        yield decode_changes(bytes(storage.get(segment.key, segment.start, segment.stop)))


def delete_segments(storage: Storage, segments: Iterable[Segment]) -> None:
    """Delete the files of segments, and ignore errors of the storage: remaining files are garbage."""
    keys = list(dict.fromkeys(map(attrgetter("key"), segments)))
    if keys:
        with suppress(StorageError):
            storage.delete(keys)


# Values

_BUILTINS: Final = (
    *("bool", "complex", "dict", "float", "frozenset", "int", "list", "set", "slice", "str", "tuple"),
)
_ALLOWED: Final = {
    *(("collections", name) for name in ("OrderedDict", "defaultdict", "deque")),
    *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
    *((builtins.__name__, name) for name in _BUILTINS),
}
#: Packages whose dataclasses may be values of tasks.
_ROOMS: Final = ("frazil.jobs.", "frazil.pipeline.", "frazil.readers.", "frazil.spark.")


def dumped(value: Any) -> bytes:
    """Return a value as bytes. Raises the error of a part that cannot be pickled."""
    with io.BytesIO() as out:
        ValuePickler(out).dump(value)
        return out.getvalue()


def loaded(data: bytes, module: str | None = None) -> Any:
    """Return the value in ``data``.

    With a ``module`` the bytes are not trusted, and the value may have dataclasses of this module.
    """
    return pickle.loads(data) if module is None else _Unpickler(data, module).load()


class ValuePickler(CloudPickler):  # type: ignore[misc]  # for the same reason
    """A pickler of values of tasks."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object: its function and arguments, or NotImplemented."""
        if isinstance(obj, np.dtype) and (descr := _descr_of(obj)) is not None:
            return dtype_of, (descr,)
        if type(obj) is np.ma.MaskedArray:
            # Not ``fill_value``, which would make a default value that some dtypes cannot hold.
            return masked_of, (obj.data, obj.mask, vars(obj).get("_fill_value"))
        if type(obj) is np.ndarray and obj.dtype.kind == "O":
            return objects_of, (obj.shape, obj.ravel().tolist())
        if isinstance(obj, np.generic) or type(obj) is np.ndarray:
            values = np.asarray(obj)
            if (descr := _descr_of(values.dtype)) is not None:
                return array_of, (descr, values.shape, values.tobytes(), values is not obj)
        return super().reducer_override(obj)


def _descr_of(dtype: np.dtype[Any]) -> Any:
    """Return the description of a dtype for ``dtype_of``; None for dtypes that it cannot make."""
    if dtype.hasobject or dtype.metadata or dtype.kind not in "biufcmMSUV":
        return None
    descr = dtype_to_descr(dtype)
    return descr if descr_to_dtype(descr) == dtype else None


def dtype_of(descr: Any) -> np.dtype[Any]:
    """Return a dtype of plain values from its description."""
    if not isinstance(descr, str | list | tuple):
        raise pickle.UnpicklingError(f"a dtype of {type(descr).__name__}")
    descr_value: Any = descr
    dtype: np.dtype[Any] = descr_to_dtype(descr_value)
    if dtype.hasobject:
        raise pickle.UnpicklingError(f"a dtype with objects, {dtype}")
    return dtype


def array_of(descr: Any, shape: tuple[int, ...], data: bytes, is_scalar: bool = False) -> Any:
    """Return an array of plain values from bytes in C order, or a numpy scalar."""
    dtype = dtype_of(descr)
    size = math.prod(shape) * dtype.itemsize
    if not isinstance(data, bytes) or min(shape, default=0) < 0 or len(data) != size:
        raise pickle.UnpicklingError(f"an array of shape {shape} with a wrong number of bytes")
    array = np.ndarray(shape, dtype, bytearray(data))
    return array[()] if is_scalar else array


def objects_of(shape: tuple[int, ...], items: list[Any]) -> NDArray[Any]:
    """Return an array of objects from a list of them."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def masked_of(data: Any, mask: Any, fill_value: Any) -> Any:
    """Return a masked array from its parts."""
    return np.ma.MaskedArray(data, mask, fill_value=fill_value)


def _bytes_of(*parts: Any) -> bytes:
    """Return bytes from bytes or text. A number is refused, because it would be a length."""
    if not all(isinstance(part, bytes | bytearray | str) for part in parts):
        raise pickle.UnpicklingError("bytes from a value that is neither bytes nor text")
    return bytes(*parts)


#: Types that may take much memory for a few bytes of arguments, with safe replacements.
_GUARDED: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (builtins.__name__, "bytes"): _bytes_of,
    (builtins.__name__, "bytearray"): lambda *parts: bytearray(_bytes_of(*parts)),
}
_OWN: Final[frozenset[Callable[..., Any]]] = frozenset({dtype_of, array_of, objects_of, masked_of})


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, module: str) -> None:
        super().__init__(io.BytesIO(data))
        self._module = module

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _GUARDED:
            return _GUARDED[module, name]
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        # A name with dots could reach other modules.
        if "." not in name and (module == self._module or f"{module}.".startswith(_ROOMS)):
            allowed = super().find_class(module, name)
            if isinstance(allowed, type) and allowed.__module__ == module and is_dataclass(allowed):
                return allowed
            if module == __name__ and allowed in _OWN:
                return allowed
        raise pickle.UnpicklingError(f"a value of the type {module}.{name}, which is not allowed")


# Results

_PATHS: Final = ("documents", "members", "trees")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call of the work function of a job, in addition to the changes in its fork.

    Args:
        value: A small value for ``finish``, which can be pickled. Default: None.
        rows: The number of rows that the task processed, for progress and metrics.
        chunks: The number of chunks that the task wrote.
        bytes_read: The bytes of values that the task read, before compression. The default, None, is what
            Frazil counts in its operations.
        bytes_written: The bytes of values that the task wrote, before compression. The default, None, is what
            Frazil counts in its operations.

    >>> from frazil.pipeline import Outcome
    >>> Outcome(rows=24, chunks=2).rows
    24
    """

    value: Any = None
    rows: int = 0
    chunks: int = 0
    bytes_read: int | None = None
    bytes_written: int | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task.

    ``ends`` is the time after which its fork cannot be committed, in microseconds since 1970. ``retries`` is
    the number of earlier attempts. ``segments`` are references that are not in ``changes``. ``reads`` are the
    reads of the fork, if the job tracks them.
    """

    changes: ChangeSet
    outcome: Outcome
    ends: int
    retries: int = 0
    seconds: float = 0.0
    stored: Traffic = field(default_factory=Traffic)
    staged: bool = False
    segments: tuple[Segment, ...] = ()
    reads: ReadSet = NOTHING_READ


def encode_result(result: TaskResult) -> bytes:
    """Return a result as bytes, for `decode_result`."""
    outcome, reads = result.outcome, result.reads
    numbers = outcome.rows, outcome.chunks, outcome.bytes_read or 0, outcome.bytes_written or 0
    header = {
        "outcome": list(map(int, numbers)),
        "ends": result.ends,
        "retries": result.retries,
        "seconds": result.seconds,
        "stored": astuple(result.stored),
        "segments": [[*astuple(each)[:-1], each.node_id.hex()] for each in result.segments],
        "reads": [sorted(getattr(reads, name)) for name in _PATHS],
        "chunks": [
            [path, *column.shape, column.astype("<u4").tobytes().hex()]
            for path, columns in reads.chunks.items()
            for column in columns
        ],
    }
    return joined([json.dumps(header).encode(), encode_changes(result.changes), dumped(outcome.value)])


def decode_result(data: bytes, staged_for: str | None = None) -> TaskResult:
    """Return the result that `encode_result` encoded.

    ``staged_for`` is the module of the work function, for bytes from the storage.
    """
    text, changes, value = split(data, 3)
    try:
        header = json.loads(text)
        segments = []
        for key, start, stop, count, low, high, node in header["segments"]:
            if not key.startswith(f"{STAGING}/") or ".." in key:
                raise ValueError(f"references staged in {key!r}")
            corners = tuple(map(int, low)), tuple(map(int, high))
            segments.append(Segment(key, int(start), int(stop), int(count), *corners, bytes.fromhex(node)))
        chunks: dict[str, list[U32]] = {}
        for path, count, ndim, numbers in header["chunks"]:
            column = np.frombuffer(bytes.fromhex(numbers), "<u4").astype(np.uint32)
            chunks.setdefault(str(path), []).append(column.reshape(int(count), int(ndim)))
        documents, members, trees = (frozenset(map(str, paths)) for paths in header["reads"])
        rows, written, bytes_read, bytes_written = map(int, header["outcome"])
        return TaskResult(
            decode_changes(changes),
            Outcome(loaded(value, staged_for), rows, written, bytes_read, bytes_written),
            int(header["ends"]),
            int(header["retries"]),
            float(header["seconds"]),
            Traffic(*map(int, header["stored"])),
            staged=staged_for is not None,
            segments=tuple(segments),
            reads=ReadSet(documents, members, trees, chunks),
        )
    except FormatError:
        raise
    except Exception as error:  # a damaged pickle may raise any error
        raise FormatError(
            f"expected a task's result, got {type(error).__name__}: {error}", ErrorKind.INVALID_FILE_FORMAT
        ) from error


# Change sets

_NAME: Final = "a change set"
_LENGTH: Final = struct.Struct("<Q")
_MOST_DIMENSIONS: Final = 1 << 10
#: The most bytes of columns of a message: this number, or this number for each byte of the message.
_FREE_BYTES: Final = 1 << 28
_MOST_RATIO: Final = 1000


def encode_changes(changes: ChangeSet) -> bytes:
    """Return a change set as bytes. `decode_changes` returns the same nodes, changes and references."""
    nodes = [node for node in changes.nodes.values() if node is not None]
    file = b""
    if nodes:
        table = NodeTable.from_nodes(nodes)
        file = encode_snapshot(Snapshot(INITIAL_SNAPSHOT_ID, 0, "", {}, table, ManifestFiles.empty()))
    arrays = sorted(changes.chunks.items(), key=lambda item: (item[1].ndim, item[0]))  # by rank
    tables = [edits.table() for _, edits in arrays]
    columns, sources = _columns([table for table in tables if len(table)])
    statistics = [table.statistics for table in tables]
    header = {
        "gone": [path for path, node in changes.nodes.items() if node is None],
        "created": [id_.hex() for id_ in sorted(changes.created)],
        "updated": [id_.hex() for id_ in sorted(changes.updated)],
        "deleted": [[id_.hex(), is_array] for id_, is_array in changes.deleted.items()],
        "moves": [
            [id_.hex(), move.source, move.target, move.is_array] for id_, move in changes.moves.items()
        ],
        "arrays": [
            [id_.hex(), edits.path, edits.ndim, len(table)]
            for (id_, edits), table in zip(arrays, tables, strict=True)
        ],
        "sources": sources,
        "statistics": [
            None if each is None else [each.context.hex(), row_columns(each.rows.dtype), each.rows.shape[1]]
            for each in statistics
        ],
    }
    columns += [each.columns() for each in statistics if each is not None]
    text = json.dumps(header).encode()
    return joined([text, zlib.crc32(text).to_bytes(4), file, _compressed(columns)])


def decode_changes(data: bytes) -> ChangeSet:
    """Return the change set that `encode_changes` encoded, or raise ``FormatError`` for other bytes."""

    def id_of(text: str) -> bytes:
        if len(id_ := bytes.fromhex(text)) != NODE_ID_BYTES:
            raise FormatError(f"expected the id of a node, got {text:.40}")
        return id_

    with reading(_NAME, KeyError, AttributeError, zstandard.ZstdError):
        text, checksum, file, frame = split(data, 4)
        if zlib.crc32(text).to_bytes(4) != checksum:
            raise FormatError("the checksum of the header does not fit")
        header = json.loads(text)
        moves = [(id_of(id_), source, target, bool(flag)) for id_, source, target, flag in header["moves"]]
        arrays = [(id_of(id_), path, int(ndim), int(count)) for id_, path, ndim, count in header["arrays"]]
        paths = [*header["gone"], *(path for _, path, *_ in arrays)]
        paths += [path for move in moves for path in move[1:3]]
        "".join(paths).encode()  # JSON may contain halves of characters
        changes = ChangeSet(
            created=set(map(id_of, header["created"])), updated=set(map(id_of, header["updated"]))
        )
        if file:
            table = decode_snapshot(memoryview(file), _NAME).nodes
            changes.nodes.update(
                zip(table.paths_list(), map(table.exact().node, range(len(table))), strict=True)
            )
        changes.nodes.update(dict.fromkeys(header["gone"]))
        changes.deleted.update((id_of(id_), bool(is_array)) for id_, is_array in header["deleted"])
        changes.moves.update((id_, Move(source, target, id_, flag)) for id_, source, target, flag in moves)
        # Results that an older version has staged have none.
        statistics = header.get("statistics") or [None] * len(arrays)
        tables = _tables(arrays, header["sources"], statistics, frame)
        for (id_, path, ndim, _), part in zip(arrays, tables, strict=True):
            changes.chunks[id_] = ChunkChanges(path, ndim, () if part is None else (part,))
        return changes


def _columns(tables: Sequence[ChunkTable]) -> tuple[list[Any], list[int]]:
    """Return the columns of tables, none of them empty, and the numbers of their sources by kind."""
    if not tables:
        return [], [0, 0, 0]
    whole = stack(tables, np.zeros((0, 0), np.uint32))
    kind, source = whole.kind, whole.source.copy()
    used: list[NDArray[Any]] = []
    for each in (ChunkKind.NATIVE, ChunkKind.VIRTUAL, ChunkKind.INLINE):
        rows = np.flatnonzero(kind == each)
        steps = np.diff(source[rows].astype(np.int64), prepend=-1)
        if ((steps == 0) | (steps == 1)).all():
            used.append(np.arange(int(source[rows[-1]]) + 1 if len(rows) else 0))
            continue
        distinct, first, number = np.unique(source[rows], return_index=True, return_inverse=True)
        order = np.argsort(first)
        source[rows] = np.argsort(order)[number]
        used.append(distinct[order])
    ids, foreign = whole.chunk_ids[used[0]], whole.foreign.take(used[1])
    inline = whole.inline.take(used[2])
    gaps = whole.offset.copy()
    is_next = (source[1:] == source[:-1]) & (kind[1:] == kind[:-1])
    gaps[1:] -= np.where(is_next, whole.offset[:-1] + whole.length[:-1], np.uint64(0))
    columns: list[Any] = [kind, _planes(_steps(source)), _planes(gaps), _planes(whole.length)]
    for ndim in sorted(set(map(attrgetter("ndim"), tables))):
        index = np.concatenate([table.index for table in tables if table.ndim == ndim])
        columns += [_planes(_steps(column)) for column in index.T]
    columns += [np.ascontiguousarray(ids), _planes(foreign.modified)]
    for texts in (foreign.locations, foreign.etags, inline):
        columns += [_planes(texts.lengths.astype(np.uint32)), texts.compact().values]
    return columns, list(map(len, used))


def _steps(values: NDArray[Any]) -> NDArray[Any]:
    return np.diff(values, prepend=values.dtype.type(0))  # modulo the size of the type


def _planes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the first byte of all numbers, then the second, and so on."""
    whole = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(whole.view(np.uint8).reshape(len(whole), whole.itemsize).T)


def _tables(
    arrays: Sequence[tuple[bytes, str, int, int]],
    sources: Sequence[int],
    statistics: Sequence[tuple[str, list[list[Any]], int] | None],
    frame: bytes,
) -> list[ChunkTable | None]:
    """Return the references of each array; None for an array without references."""
    most = min(max(_FREE_BYTES, _MOST_RATIO * len(frame)), MAX_COPIED_BYTES)
    size = zstandard.frame_content_size(frame) if frame else 0
    if not 0 <= size <= most:
        raise FormatError(f"expected at most {most} bytes, got {size}")
    # Memory grows with the decompressed bytes, not with the size that the frame declares.
    columns = io.BytesIO(
        zstandard.ZstdDecompressor().decompress(frame, max_output_size=size) if frame else b""
    )
    ranks, counts = [ndim for *_, ndim, _ in arrays], [count for *_, count in arrays]
    if min(counts, default=0) < 0 or ranks != sorted(ranks):
        raise FormatError("expected arrays in the order of their ranks, with counts from 0")
    if min(ranks, default=0) < 0 or max(ranks, default=0) > _MOST_DIMENSIONS:
        raise FormatError(f"expected arrays of 0 to {_MOST_DIMENSIONS} dimensions, got others")
    total = sum(counts)
    kind = _numbers(columns, total, "u1")
    source = np.cumsum(_numbers(columns, total, "<u4"), dtype=np.uint32)
    offset, length = _numbers(columns, total, "<u8"), _numbers(columns, total, "<u8")
    index: dict[int, U32] = {}
    for ndim in dict.fromkeys(ndim for *_, ndim, count in arrays if count):
        rows = sum(count for *_, rank, count in arrays if rank == ndim)
        index[ndim] = np.empty((rows, ndim), np.uint32)
        for axis in range(ndim):
            np.cumsum(_numbers(columns, rows, "<u4"), dtype=np.uint32, out=index[ndim][:, axis])
    if total and int(kind.max()) > ChunkKind.INLINE:
        raise FormatError(f"references of kind {kind.max()}")
    num_ids, num_foreign, num_inline = map(int, sources)
    ids = _numbers(columns, num_ids * OBJECT_ID_BYTES, "u1").reshape(num_ids, OBJECT_ID_BYTES)
    modified = _numbers(columns, num_foreign, "<u4")
    texts = []
    for count in (num_foreign, num_foreign, num_inline):
        lengths = _numbers(columns, count, "<u4").astype(np.int64)
        texts.append(Ragged.from_lengths(_numbers(columns, int(lengths.sum()), "u1"), lengths))
    rows_of = [
        None if each is None else _statistics(columns, ndim, count, *each)
        for each, (*_, ndim, count) in zip(statistics, arrays, strict=True)
    ]
    if rest := len(columns.read()):
        raise FormatError(f"expected no more columns, got {rest} bytes")
    for text in texts[:2]:
        if not decode_text(text.values.tobytes()).isascii():
            text.texts()
    if (source >= np.array([1, num_ids, num_foreign, num_inline])[kind]).any():
        raise FormatError("a reference to a source that the message does not have")
    _add_gaps(kind, source, offset, length)
    has_no_range = (kind == ChunkKind.ABSENT) | (kind == ChunkKind.INLINE)
    offset[has_no_range], length[has_no_range] = 0, 0
    length[kind == ChunkKind.INLINE] = texts[2].lengths[source[kind == ChunkKind.INLINE]]
    out: list[ChunkTable | None] = []
    start, firsts, foreign = 0, dict.fromkeys(index, 0), VirtualObjects(texts[0], texts[1], modified)
    for (*_, ndim, count), chunk_statistics in zip(arrays, rows_of, strict=True):
        if not count:
            out.append(None)
            continue
        coords = index[ndim][firsts[ndim] : firsts[ndim] + count]
        if not ascending(coords):
            raise FormatError("chunk coordinates must be in ascending order, got others")
        part = slice(start, start + count)
        numbers = kind[part], source[part], offset[part], length[part]
        out.append(ChunkTable(coords, *numbers, ids, foreign, texts[2], chunk_statistics))
        start, firsts[ndim] = start + count, firsts[ndim] + count
    return out


def _statistics(
    columns: io.BytesIO, ndim: int, count: int, context: str, names: list[list[Any]], tiles: int
) -> ChunkStatistics:
    """Return the next ``count`` rows of statistics of the columns."""
    dtype = row_dtype_of(names)
    data = columns.read(max(count * tiles, 0) * dtype.itemsize)
    if tiles < 1 or dtype["extent"].shape != (ndim,) or len(data) != count * tiles * dtype.itemsize:
        raise FormatError(f"expected {count} rows of statistics, got {len(data)} bytes")
    return ChunkStatistics.of_columns(bytes.fromhex(context), np.zeros((count, tiles), dtype), data)


def _numbers(columns: io.BytesIO, count: int, dtype: str) -> NDArray[Any]:
    """Return the next ``count`` numbers of the columns."""
    width = np.dtype(dtype).itemsize
    data = columns.read(width * max(count, 0))
    if count < 0 or len(data) != width * count:
        raise FormatError(f"expected {count} numbers of {width} bytes, got {len(data)} bytes")
    numbers = np.zeros((count, width), np.uint8)
    for number, plane in enumerate(np.frombuffer(data, np.uint8).reshape(width, count)):
        if plane.any():  # the higher bytes are mostly zeros
            numbers[:, number] = plane
    return numbers.reshape(-1).view(dtype)


def _add_gaps(kind: NDArray[np.uint8], source: U32, gaps: U64, length: U64) -> None:
    """Make offsets of gaps: add up the ends, and subtract them where another source begins."""
    if not len(gaps):
        return
    is_new = (source[1:] != source[:-1]) | (kind[1:] != kind[:-1])
    new: I64 = np.flatnonzero(np.concatenate(([True], is_new)))
    gaps[1:] += length[:-1]
    gaps[new[1:]] -= length[new[1:] - 1]
    np.cumsum(gaps, out=gaps)
    before = np.concatenate((np.zeros(1, np.uint64), gaps[new[1:] - 1]))
    gaps -= np.repeat(before, np.diff(new, append=len(gaps)))


def _compressed(columns: Sequence[Any]) -> bytes:
    size = sum(each.nbytes for each in columns)
    if size > MAX_COPIED_BYTES:
        raise InvalidInputError(
            f"the changes of a task must have at most {MAX_COPIED_BYTES} bytes of references and inline "
            f"chunks, got {size}. Divide the work into smaller tasks",
            ErrorKind.NOT_ALLOWED,
        )
    if not size:
        return b""
    stream = zstandard.ZstdCompressor(level=3, write_checksum=True).compressobj(size=size)
    frame = b"".join([*(stream.compress(each.data) for each in columns if each.nbytes), stream.flush()])
    if size > max(_FREE_BYTES, _MOST_RATIO * len(frame)):
        # Such columns are equal numbers or equal inline chunks. A skippable frame lets readers accept them.
        padding = size // _MOST_RATIO
        frame += b"\x50\x2a\x4d\x18" + padding.to_bytes(4, "little") + bytes(padding)
    return frame


def joined(parts: Sequence[bytes]) -> bytes:
    """Return parts as one: the length of each part, then all parts."""
    return b"".join([*map(_LENGTH.pack, map(len, parts)), *parts])


def split(data: bytes, count: int) -> list[bytes]:
    """Return the parts of ``joined``, or raise ``FormatError`` if there are not ``count`` parts."""
    start = _LENGTH.size * count
    if len(data) < start:
        raise FormatError(f"expected {count} parts, got {len(data)} bytes", ErrorKind.INVALID_FILE_FORMAT)
    out = []
    for (size,) in _LENGTH.iter_unpack(data[:start]):
        out.append(data[start : start + size])
        start += size
    if start != len(data):
        raise FormatError(f"expected {start} bytes, got {len(data)}", ErrorKind.INVALID_FILE_FORMAT)
    return out

"""The result of a task as bytes: its changes, its outcome, its staged references, and a value.

    parts     JSON, the change set, the pickled value; the lengths of the parts come first

The same bytes are staged in the storage (`frazil.jobs.staging`), where others may have write access. So a
value from the storage may have only types of a fixed list. If a value has another type, its task runs again
when the job is resumed. A value from the engine may have any type.

A task that changed many references of an array writes them into one file, divided into boxes of the chunk
grid, and sends a `Segment` for each box.

    from the engine     a pickle of any value, including classes that a notebook defines
    from storage        the same bytes, but only with allowed types: plain types of Python and numpy,
                        dataclasses of the pipeline packages of Frazil, and of one more module

Arrays are pickled as a dtype, a shape and bytes. The pickles of numpy itself are not safe: a dtype with wrong
flags would turn bytes into pointers.
"""

from __future__ import annotations

import builtins
import io
import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, field, is_dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import prod
from operator import attrgetter
from typing import Any, Final

import numpy as np
from cloudpickle import CloudPickler  # type: ignore[import-untyped]  # it ships no types
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from numpy.typing import NDArray

from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.changes.manifests import in_boxes
from frazil.changes.node_changes import NOTHING_READ, ReadSet
from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.format.columns import U32
from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkTable
from frazil.format.snapshot import Node
from frazil.jobs import wire
from frazil.jobs.wire import joined, split
from frazil.repository.catalog.context import Context
from frazil.repository.ids import new_object_id
from frazil.repository.session.commit_files import split_of
from frazil.repository.session.session import ForkSession
from frazil.repository.session.staged_work import STAGING
from frazil.storage.base import Storage
from frazil.storage.checks import Traffic

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
    """Stage references of a fork. Returns its other changes, and the segments.

    ``place`` is a folder of the storage.
    """
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
    """Write references into one file, divided into boxes, and return a segment for each box."""
    key = f"{place}/{id_to_text(new_object_id())}.chunks"
    blobs: list[bytes] = []
    segments: list[Segment] = []
    at = 0
    for node, table in parts:
        for part in _cut(context, node, table):
            edits = ChunkChanges(node.path, part.ndim, (part,))
            blobs.append(wire.encode(ChangeSet(chunks={node.id: edits})))
            box = part.bounds().astype(np.int64)
            low, high = tuple(box[:, 0].tolist()), tuple((box[:, 1] - 1).tolist())
            stop = at + len(blobs[-1])
            segments.append(Segment(key, at, stop, len(part), low, high, node.id))
            at = stop
    context.storage.put(key, b"".join(blobs))
    return segments


def _cut(context: Context, node: Node, table: ChunkTable) -> list[ChunkTable]:
    """Divide references into the boxes of the manifests, or larger boxes if there are too many."""
    assert node.array is not None
    split = split_of(context, node, math.prod(node.array.num_chunks))
    while len(parts := in_boxes(table, split)) > _BOXES:
        split = tuple(min(2 * size, 0xFFFF_FFFF) for size in split)
    return parts


def read_segments(storage: Storage, segments: Iterable[Segment]) -> Iterator[ChangeSet]:
    """Yield the references of each segment as a change set."""
    for segment in segments:
        yield wire.decode(bytes(storage.get(segment.key, segment.start, segment.stop)))


def delete_segments(storage: Storage, segments: Iterable[Segment]) -> None:
    """Delete the files of segments, and ignore errors of the storage: remaining files are garbage."""
    keys = list(dict.fromkeys(map(attrgetter("key"), segments)))
    if keys:
        with suppress(StorageError):
            storage.delete(keys)


_BUILTINS: Final = {"bool", "complex", "dict", "float", "frozenset", "int", "list"} | {
    "set",
    "slice",
    "str",
    "tuple",
}
_ALLOWED: Final = {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
}


def dumped(value: Any) -> bytes:
    """Return a value as bytes. Raises the error of a part that cannot be pickled."""
    with io.BytesIO() as out:
        _Pickler(out).dump(value)
        return out.getvalue()


def loaded(data: bytes, module: str | None = None) -> Any:
    """Return the value in ``data``.

    With a ``module`` the bytes are not trusted, and the value may have dataclasses of this module.
    """
    return pickle.loads(data) if module is None else _Unpickler(data, module).load()


class _Pickler(CloudPickler):  # type: ignore[misc]  # for the same reason
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.dtype) and (descr := _descr_of(obj)) is not None:
            return dtype_of, (descr,)
        if type(obj) is np.ma.MaskedArray:
            # Not ``fill_value``, which would make a default value that some dtypes cannot hold.
            return masked_of, (obj.data, obj.mask, vars(obj).get("_fill_value"))
        if type(obj) is np.ndarray and obj.dtype.kind == "O":
            return objects_of, (obj.shape, obj.ravel().tolist())
        if type(obj) is np.ndarray and (descr := _descr_of(obj.dtype)) is not None:
            return array_of, (descr, obj.shape, obj.tobytes())
        if isinstance(obj, np.generic) and (descr := _descr_of((one := np.asarray(obj)).dtype)) is not None:
            return scalar_of, (descr, one.tobytes())
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


def array_of(descr: Any, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    """Return an array of plain values from bytes in C order."""
    dtype = dtype_of(descr)
    if not isinstance(data, bytes) or min(shape, default=0) < 0 or len(data) != prod(shape) * dtype.itemsize:
        raise pickle.UnpicklingError(f"an array of shape {shape} with a wrong number of bytes")
    return np.ndarray(shape, dtype, bytearray(data))


def scalar_of(descr: Any, data: bytes) -> Any:
    """Return a numpy scalar from its bytes."""
    return array_of(descr, (), data)[()]


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


def _bytearray_of(*parts: Any) -> bytearray:
    return bytearray(_bytes_of(*parts))


def _range_of(*ends: Any) -> range:
    """Return a range of limited length: a list of a long range would take much memory."""
    numbers = range(*ends)
    if len(numbers) > _LONGEST_RANGE:
        raise pickle.UnpicklingError(f"a range of more than {_LONGEST_RANGE}")
    return numbers


def _decimal_of(value: Any) -> Decimal:
    """Return a decimal with a limited exponent: its integer would take much time and memory."""
    number = Decimal(value)
    if number.is_finite() and abs(number.adjusted()) > _LARGEST_EXPONENT:
        raise pickle.UnpicklingError(f"a decimal number with an exponent beyond {_LARGEST_EXPONENT}")
    return number


def _fraction_of(*parts: Any) -> Fraction:
    if any(isinstance(part, str) and "e" in part.lower() for part in parts):
        raise pickle.UnpicklingError("a fraction with an exponent")
    return Fraction(*parts)


#: Types that may take much memory or time for a few bytes of arguments, with safe replacements.
_GUARDED: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    (builtins.__name__, "bytes"): _bytes_of,
    (builtins.__name__, "bytearray"): _bytearray_of,
    (builtins.__name__, "range"): _range_of,
    ("decimal", "Decimal"): _decimal_of,
    ("fractions", "Fraction"): _fraction_of,
}
#: Packages whose dataclasses may be values of tasks.
_ROOMS: Final = ("frazil.jobs.", "frazil.pipeline.", "frazil.readers.", "frazil.spark.")
_LONGEST_RANGE: Final = 1_000_000
_LARGEST_EXPONENT: Final = 1_000

_OWN: Final[frozenset[Callable[..., Any]]] = frozenset({dtype_of, array_of, scalar_of, objects_of, masked_of})


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, module: str) -> None:
        super().__init__(io.BytesIO(data))
        self._module = module

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _GUARDED:
            return _GUARDED[module, name]
        if (module == builtins.__name__ and name in _BUILTINS) or (module, name) in _ALLOWED:
            return super().find_class(module, name)
        # A name with dots could reach other modules.
        if "." not in name and (module == self._module or f"{module}.".startswith(_ROOMS)):
            allowed = super().find_class(module, name)
            if isinstance(allowed, type) and allowed.__module__ == module and is_dataclass(allowed):
                return allowed
            if module == __name__ and allowed in _OWN:
                return allowed
        raise pickle.UnpicklingError(f"a value of the type {module}.{name}, which is not allowed")


_PATHS: Final = ("documents", "members", "trees")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call of the work function of a job, beside the changes in its fork.

    Args:
        value: A small value for ``finish``, which can be pickled. Default: None.
        rows: The number of rows that the task processed, for progress and metrics.
        chunks: The number of chunks that the task wrote.
        bytes_read: The bytes of values that the task read, before compression.
        bytes_written: The bytes of values that the task wrote, before compression.

    >>> from frazil.pipeline import Outcome
    >>> Outcome(rows=24, chunks=2).rows
    24
    """

    value: Any = None
    rows: int = 0
    chunks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Result:
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


def encode_result(result: Result) -> bytes:
    """Return a result as bytes, for `decode_result`."""
    outcome = asdict(replace(result.outcome, value=None))
    header = {
        "outcome": {name: int(number) for name, number in outcome.items() if name != "value"},
        "ends": result.ends,
        "retries": result.retries,
        "seconds": result.seconds,
        "stored": asdict(result.stored),
        "segments": [[*astuple(each)[:-1], each.node_id.hex()] for each in result.segments],
        "reads": _reads_as_json(result.reads),
    }
    return joined([json.dumps(header).encode(), wire.encode(result.changes), dumped(result.outcome.value)])


def decode_result(data: bytes, staged_for: str | None = None) -> Result:
    """Return the result that `encode_result` encoded.

    ``staged_for`` is the module of the work function, for bytes from the storage.
    """
    header, changes, value = split(data, 3)
    try:
        fields = json.loads(header)
        return Result(
            wire.decode(changes),
            Outcome(loaded(value, staged_for), **_integers(fields["outcome"])),
            int(fields["ends"]),
            int(fields["retries"]),
            float(fields["seconds"]),
            Traffic(**_integers(fields["stored"])),
            staged=staged_for is not None,
            segments=tuple(map(_segment, fields["segments"])),
            reads=_reads(fields["reads"]),
        )
    except FormatError:
        raise
    except Exception as error:  # a damaged pickle may raise any error
        raise _damaged(f"{type(error).__name__}: {error}") from error


def _integers(numbers: dict[str, Any]) -> dict[str, int]:
    return dict(zip(numbers, map(int, numbers.values()), strict=True))


def _segment(fields: list[Any]) -> Segment:
    key, start, stop, count, low, high, node = fields
    if not key.startswith(f"{STAGING}/") or ".." in key:
        raise _damaged(f"references staged in {key!r}")
    corners = tuple(map(int, low)), tuple(map(int, high))
    return Segment(key, int(start), int(stop), int(count), *corners, bytes.fromhex(node))


def _reads_as_json(reads: ReadSet) -> dict[str, Any]:
    paths = {name: sorted(getattr(reads, name)) for name in _PATHS}
    columns = [(path, column) for path, columns in reads.chunks.items() for column in columns]
    chunks = [[path, *column.shape, column.astype("<u4").tobytes().hex()] for path, column in columns]
    return {**paths, "chunks": chunks}


def _reads(fields: dict[str, Any]) -> ReadSet:
    chunks: dict[str, list[U32]] = {}
    for path, count, ndim, data in fields["chunks"]:
        column = np.frombuffer(bytes.fromhex(data), "<u4").astype(np.uint32).reshape(int(count), int(ndim))
        chunks.setdefault(str(path), []).append(column)
    documents, members, trees = (frozenset(map(str, fields[name])) for name in _PATHS)
    return ReadSet(documents, members, trees, chunks)


def _damaged(actual: str) -> FormatError:
    return FormatError(f"expected the result of a task, got {actual}", ErrorKind.INVALID_FILE_FORMAT)

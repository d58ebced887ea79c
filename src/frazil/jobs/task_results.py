"""The result of a task as bytes: its changes, its outcome, and a value for ``finish``.

    parts     JSON, the change set, the pickled value; the lengths of the parts come first

The same bytes are staged in the storage (`frazil.jobs.staging`), where others may have write access. So a
value from the storage may have only types of a fixed list. If a value has another type, its task runs again
when the job is resumed. A value from the engine may have any type.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any, Final

import numpy as np

from frazil.changes.change_set import ChangeSet
from frazil.changes.reads import NOTHING_READ, ReadSet
from frazil.errors import ErrorKind, FormatError
from frazil.format.columns import U32
from frazil.jobs import wire
from frazil.jobs.segments import Segment
from frazil.jobs.value_codec import dumped, loaded
from frazil.jobs.wire import joined, split
from frazil.repository.session.staged_work import STAGING
from frazil.storage.traffic import Traffic

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

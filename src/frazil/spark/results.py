"""What a task sends back, as bytes: changes, what it says of itself, and a value for ``finish``.

    parts     JSON, the change set, the pickled value; each with its length before it

The same bytes are staged in storage (`frazil.spark.staging`), where others may be able to write. So a value
that comes from there is unpickled with a list of what it may be made of: Python's and numpy's plain types,
and dataclasses of Frazil and of the module that has the work function. A task whose value is anything else
is done again when its job is resumed. A value that comes from the engine may be anything.
"""

from __future__ import annotations

import builtins
import io
import json
import pickle
import struct
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, is_dataclass, replace
from typing import Any, Final

from pyspark.cloudpickle import dumps

from frazil.changes.change_set import ChangeSet
from frazil.errors import ErrorKind, FormatError
from frazil.repository.staged import STAGING
from frazil.spark import wire
from frazil.spark.segments import Segment
from frazil.storage.counted import Taken

_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call of ``work`` did, beside the changes in its fork.

    ``value`` is for ``finish``: small, anything that can be pickled. ``bytes_written`` before compression.
    """

    value: Any = None
    rows: int = 0
    chunks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a task did. ``ends`` is when its fork can no longer be committed, in microseconds since 1970;
    ``retries`` counts the tries before this one. ``segments`` are references that are not in ``changes``.
    """

    changes: ChangeSet
    outcome: Outcome
    ends: int
    retries: int = 0
    seconds: float = 0.0
    stored: Taken = field(default_factory=Taken)
    staged: bool = False
    segments: tuple[Segment, ...] = ()


def encode_result(result: Result) -> bytes:
    outcome = asdict(replace(result.outcome, value=None))
    said = {
        "outcome": {name: int(number) for name, number in outcome.items() if name != "value"},
        "ends": result.ends,
        "retries": result.retries,
        "seconds": result.seconds,
        "stored": asdict(result.stored),
        "segments": [[*astuple(each)[:-1], each.node_id.hex()] for each in result.segments],
    }
    value = dumps(result.outcome.value)  # type: ignore[no-untyped-call]
    return joined([json.dumps(said).encode(), wire.encode(result.changes), value])


def decode_result(data: bytes, staged_for: str | None = None) -> Result:
    """What ``encode_result`` made bytes of.

    ``staged_for`` is the module of the work function, for bytes that come from storage. ``FormatError`` for
    others, and for values that are not allowed there.
    """
    said, changes, value = split(data, 3)
    try:
        told = json.loads(said)
        return Result(
            wire.decode(changes),
            Outcome(_value(value, staged_for), **told["outcome"]),
            told["ends"],
            told["retries"],
            told["seconds"],
            Taken(**told["stored"]),
            staged=staged_for is not None,
            segments=tuple(map(_segment, told["segments"])),
        )
    except (ValueError, KeyError, TypeError, pickle.UnpicklingError, EOFError, AttributeError) as error:
        raise _damaged(str(error)) from error


def _segment(told: list[Any]) -> Segment:
    key, start, stop, count, low, high, node = told
    if not key.startswith(f"{STAGING}/"):
        raise _damaged(f"references staged in {key!r}")
    return Segment(key, start, stop, count, tuple(low), tuple(high), bytes.fromhex(node))


def joined(parts: Sequence[bytes]) -> bytes:
    """Parts as one: the length of each, then all of them."""
    return b"".join([*map(_LENGTH.pack, map(len, parts)), *parts])


def split(data: bytes, count: int) -> list[bytes]:
    """The parts of ``joined``; ``FormatError`` if these are not so many."""
    start = _LENGTH.size * count
    if len(data) < start:
        raise _damaged(f"{len(data)} bytes")
    out = []
    for (size,) in _LENGTH.iter_unpack(data[:start]):
        out.append(data[start : start + size])
        start += size
    if start != len(data):
        raise _damaged(f"{len(data)} bytes where {start} were said")
    return out


def _damaged(found: str) -> FormatError:
    return FormatError(f"expected what a task has staged, found {found}", ErrorKind.INVALID_FILE_FORMAT)


# Values from storage

_PLAIN: Final = {"complex", "set", "frozenset", "bytearray", "range", "slice", "dict", "list", "tuple"}
_ALLOWED: Final = {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("collections", "deque"),
    ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"),
    ("datetime", "timedelta"),
    ("datetime", "timezone"),
    ("decimal", "Decimal"),
    ("fractions", "Fraction"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.ma.core", "MaskedArray"),
    ("numpy.ma.core", "_mareconstruct"),
    *(
        (module, name)
        for module in ("numpy._core.multiarray", "numpy.core.multiarray")
        for name in ("_reconstruct", "scalar")
    ),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy.core.numeric", "_frombuffer"),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, module: str) -> None:
        super().__init__(io.BytesIO(data))
        self._module = module

    def find_class(self, module: str, name: str) -> Any:
        if (module == builtins.__name__ and name in _PLAIN) or (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module.split(".")[0] == "frazil" or module == self._module:
            found = super().find_class(module, name)
            if isinstance(found, type) and is_dataclass(found):
                return found
        raise pickle.UnpicklingError(f"a value made with {module}.{name}")


def _value(data: bytes, staged_for: str | None) -> Any:
    return pickle.loads(data) if staged_for is None else _Unpickler(data, staged_for).load()

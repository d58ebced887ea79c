"""The failures of tasks as plain values, and the error that the driver raises for them, on all engines.

The process that catches an error makes the `Failure`, because only this process has the frames. Frames of
Frazil and Spark are left out, because users look for a line of their own function.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import FunctionType, MethodType, TracebackType
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]  # it ships no types

from frazil.errors import (
    ErrorKind,
    IcechunkError,
    InvalidInputError,
    RemoteError,
    StorageError,
    TaskFailedError,
)
from frazil.remedies import Remedy

#: Returns a value as a pickle. Raises the error of a part that cannot be pickled.
dumps: Final[Callable[[Any], bytes]] = cloudpickle.dumps


#: Packages whose frames are left out, if they are imported.
_OWN_PACKAGES: Final = ("frazil", "pyspark", "py4j")

#: The largest numbers of characters of a line, and of lines of a text.
_LONGEST_LINE: Final = 500
_LINES_OF_TEXT: Final = 10


def without_own_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of Frazil and Spark, or its last frame if there are no others."""
    every: list[TracebackType] = []
    while frames is not None:
        every.append(frames)
        frames = frames.tb_next
    foreign = [each for each in every if not is_own(each.tb_frame.f_code.co_filename)] or every[-1:]
    out: TracebackType | None = None
    for each in reversed(foreign):
        out = TracebackType(out, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return out


def is_own(filename: str) -> bool:
    """Return whether a file belongs to Frazil or Spark."""
    modules: list[Any] = [sys.modules.get(name) for name in _OWN_PACKAGES]
    files = [each.__file__ for each in modules if getattr(each, "__file__", None)]
    return filename.startswith(tuple(f"{Path(file).parent}/" for file in files))


#: Endings of compiled modules, whose files have no directory in a traceback.
_CYTHON: Final = (".pyx", ".pxi", ".pxd")


def is_library(filename: str) -> bool:
    """Return whether a file belongs to Python, an installed package or Frazil, and not to the user."""
    paths = sysconfig.get_paths()
    folders = (f"{paths[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    installed = "/site-packages/" in filename or "/dist-packages/" in filename or filename.endswith(_CYTHON)
    return installed or is_own(filename) or filename.startswith(("<frozen ", *folders))


def first_and_last(lines: list[str]) -> list[str]:
    """Return the first and the last lines, if there are many."""
    half = _LINES_OF_TEXT // 2
    return [*lines[:half], "...", *lines[-half:]] if len(lines) > _LINES_OF_TEXT else lines


def clip_line(line: str) -> str:
    """Return a line with at most `_LONGEST_LINE` characters."""
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..."


#: The depth of the search, and the number of items of a list.
_DEPTH: Final = 8
_ITEMS: Final = 1_000


def _unsendable(name: str, value: Any, error: Exception) -> InvalidInputError:
    """Return the error for a value that `dumps` refused with ``error``. ``name`` describes the value."""
    names: list[str] = []
    for _ in range(_DEPTH):
        for part_name, part in _parts(value):
            try:
                dumps(part)
            except Exception:  # a part may raise any error
                names.append(part_name)
                value = part
                break
        else:
            break
    of_type = f"{' of '.join(reversed(names))}, of the type {type(value).__name__}"
    because = f" because of {of_type}" if names else ""
    return InvalidInputError(f"{name} cannot be sent to a task{because}: {error}. Create it in the function")


def sendable(
    value: Any,
    name: str = "the function of the tasks",
    parts: Any = None,
    dumps: Callable[[Any], bytes] = dumps,
) -> bytes:
    """Return a value as bytes, or raise an error that names it, and the one of its ``parts`` that fails."""
    try:
        return dumps(value)
    except IcechunkError:
        raise  # its message names the reason, such as a session with changes
    except Exception as error:
        raise _unsendable(name, parts or value, error) from error


@functools.lru_cache(maxsize=4)
def shared_value(data: bytes) -> Any:
    """Return a value that all tasks share. A process unpickles it once, and not for each task."""
    return pickle.loads(data)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a value, each with its name."""
    if isinstance(value, functools.partial):
        yield "the function", value.func
        yield from ((f"the argument {number}", each) for number, each in enumerate(value.args))
        yield from ((f"the argument `{name}`", each) for name, each in value.keywords.items())
    elif isinstance(value, MethodType):
        yield f"the object of the method `{value.__name__}`", value.__self__
    elif isinstance(value, FunctionType):
        of, variables = f"of the function `{value.__name__}`", inspect.getclosurevars(value)
        for name, each in {**variables.nonlocals, **variables.globals}.items():
            yield f"the variable `{name}` {of}", each
        yield from (
            (f"the default {number} {of}", each) for number, each in enumerate(value.__defaults__ or ())
        )
    elif isinstance(value, Mapping):
        yield from ((f"the item {key!r}", each) for key, each in islice(value.items(), _ITEMS))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"the item {number}", each) for number, each in enumerate(islice(value, _ITEMS)))
    elif not isinstance(value, type):
        slots = [name for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
        for name in (*getattr(value, "__dict__", {}), *slots):
            yield f"the attribute `{name}`", getattr(value, name)


#: The largest numbers of characters of the text of an error, and of its traceback, because of JVM and logs.
_LONGEST_TEXT: Final = 6_000
_LONGEST_TRACEBACK: Final = 8_000
#: The largest pickled error that is sent to the driver, in bytes.
_LARGEST_ERROR: Final = 16_000
#: The number of lines of a traceback below an error.
_LINES_SHOWN: Final = 9

#: Errors for which another attempt is useless.
_FINAL_TYPES: Final = (
    TypeError,
    NameError,
    AttributeError,
    NotImplementedError,
    SyntaxError,
    SystemExit,
    KeyboardInterrupt,
)
#: Kinds of storage errors for which another attempt is useless.
_FINAL_KINDS: Final = frozenset(
    {
        ErrorKind.OBJECT_NOT_FOUND,
        ErrorKind.INVALID_OBJECT_SIZE,
        ErrorKind.VIRTUAL_CHUNK_MODIFIED,
        ErrorKind.STORAGE_CONFIG,
        ErrorKind.CANNOT_PARSE_URL,
        ErrorKind.LINK_OUTSIDE,
        ErrorKind.REDIRECT_REFUSED,
    }
)
#: Kinds of other errors of Frazil for which another attempt may help.
_PASSING_KINDS: Final = frozenset(
    {
        ErrorKind.COMMIT_CONFLICT,
        ErrorKind.CONFIG_UPDATED,
        ErrorKind.REPO_INFO_UPDATED,
        ErrorKind.UPDATE_ATTEMPTS_EXHAUSTED,
        ErrorKind.GARBAGE_COLLECTION_RUNNING,
        ErrorKind.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a task, as plain values.

    ``type`` and ``text`` are those of the error, ``where`` is the line of the user's code, and ``traceback``
    the shortened traceback. ``kind`` is the kind of an ``IcechunkError``. ``error`` is the pickled error,
    empty if it cannot be pickled. ``is_final``: another attempt would fail in the same way. ``remedy`` is the
    remedy of an ``IcechunkError``.
    """

    type: str
    text: str
    where: str = ""
    traceback: str = ""
    kind: str | None = None
    is_final: bool = False
    error: bytes = b""
    remedy: Remedy | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.text}" if self.text else self.type


def failure_of(error: BaseException) -> Failure:
    """Return the failure of an error. Call it in the process that caught the error."""
    summary = traceback.TracebackException.from_exception(error, compact=True)
    frames = [frame for frame in summary.stack if not is_own(frame.filename)]
    is_ours = isinstance(error, IcechunkError)
    waiting: list[traceback.TracebackException | None] = [summary]
    while waiting:  # all causes, without the frames of Frazil and Spark, unless there are no others
        if (each := waiting.pop()) is None:
            continue
        waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]
        user_frames = [frame for frame in each.stack if not is_own(frame.filename)] or each.stack[-1:]
        plain = [(frame.filename, frame.lineno or 0, frame.name, frame.line) for frame in user_frames]
        each.stack = traceback.StackSummary.from_list(plain)  # without the markers below the lines
    whole = "\n".join(
        clip_line(line) for part in summary.format() for line in first_and_last(part.splitlines())
    )
    if isinstance(error, StorageError):
        is_final = error.kind in _FINAL_KINDS
    elif isinstance(error, IcechunkError):
        is_final = error.kind not in _PASSING_KINDS
    else:
        is_final = isinstance(error, _FINAL_TYPES)
    users = [frame for frame in frames if not is_library(frame.filename)]
    near = users or ([] if is_ours else frames or list(summary.stack))
    where = f'File "{near[-1].filename}", line {near[-1].lineno}, in {near[-1].name}' if near else ""
    return Failure(
        type=type(error).__name__,
        text=_text(error),
        where=where,
        traceback=whole[-_LONGEST_TRACEBACK:],
        kind=str(error.kind) if isinstance(error, IcechunkError) else None,
        is_final=is_final,
        error=_pickled(error),
        remedy=error.remedy if isinstance(error, IcechunkError) else None,
    )


def task_error(
    failure: Failure, number: int | None, count: int, attempts: int = 1, cause: BaseException | None = None
) -> TaskFailedError:
    """Return the error that all engines raise for a task that failed in all its attempts.

    ``number`` is the number of the task from 0, of ``count`` tasks; None if it is not known. ``cause`` is the
    error itself, if it was raised in this process. The result already has its ``__cause__``: raise it without
    ``from``.
    """
    name = "a task" if number is None else f"task {number + 1}"
    lines = [f"{name} of {count} failed with {failure}"]
    if failure.where:
        lines.append(f"  {failure.where}")
    if attempts > 1:
        lines.append(f"  after {attempts} attempts; this is the error of the last attempt")
    raised = TaskFailedError(
        "\n".join(lines),
        failure.kind,
        task=None if number is None else number + 1,
        tasks=count,
        attempts=attempts,
        traceback=failure.traceback,
    )
    raised.remedy = failure.remedy
    if cause is None:
        cause = _unpickled(failure)
        frames = failure.traceback.splitlines()
        if len(frames) > _ONE_FRAME:
            more = ["  ..."] if len(frames) > _LINES_SHOWN else []
            raised.add_note("\n".join(["In the task:", *more, *frames[-_LINES_SHOWN:]]))
    else:
        cause = cause.with_traceback(without_own_frames(cause.__traceback__))
    raised.__cause__ = cause
    return raised


#: The number of lines of a traceback with one frame, which is already in the text of the error.
_ONE_FRAME: Final = 4


def _text(error: BaseException) -> str:
    try:
        text = error.problem if isinstance(error, IcechunkError) else str(error)
    except Exception as second:
        text = f"(str() of the error raised {type(second).__name__})"
    if not isinstance(error, IcechunkError):  # errors of Frazil are short enough
        text = "\n".join(first_and_last(text.splitlines()))
    if len(text) > _LONGEST_TEXT:
        text = f"{text[: _LONGEST_TEXT // 2]} ... {text[-_LONGEST_TEXT // 2 :]}"
    return text


def _pickled(error: BaseException) -> bytes:
    """Return an error as bytes; empty if it is too large, or cannot be unpickled, or its text is too long."""
    try:
        if _text(error) != (error.problem if isinstance(error, IcechunkError) else str(error)):
            return b""
        data = pickle.dumps(error)
        return data if len(data) <= _LARGEST_ERROR and type(pickle.loads(data)) is type(error) else b""
    except BaseException:  # pickling of an error may raise any exception
        return b""


def _unpickled(failure: Failure) -> BaseException:
    try:
        error = pickle.loads(failure.error)
        if isinstance(error, BaseException):
            return error
    except Exception:  # the driver may not have its class, or there is no pickle
        pass
    return RemoteError(clip_line(str(failure)))


# Processes that died


_MEMORY: Final = "give each task less memory (`max_mem`), or run fewer tasks at a time"
_NATIVE: Final = "a native library crashed, because of a bug or because of the data that it read"
_ENDED: Final = "Code of the task ended the process"
#: The ending of a process, and its probable cause.
_ENDINGS: Final = {
    "signal SIGKILL": f"The operating system kills processes that use too much memory: {_MEMORY}",
    "signal SIGSEGV": f"Probably {_NATIVE}",
    "signal SIGBUS": f"Probably {_NATIVE}, or a file that was mapped into memory became shorter",
    "signal SIGABRT": f"Probably {_NATIVE}, or there was too little memory: {_MEMORY}",
    "signal SIGILL": "Probably a native library was built for another processor",
}


def worker_lost(ending: str, where: str = "") -> Failure:
    """Return the failure of a task whose process died. ``ending`` names the signal or the exit code."""
    has_code = ending.startswith("exit code")
    default = _ENDED if has_code else f"{_ENDED}, or {_NATIVE}, or there was too little memory: {_MEMORY}"
    text = f"its process ended with {ending}. {_ENDINGS.get(ending, default)}"
    failure = Failure("ChildProcessError", text, where=where, kind=ErrorKind.WORKER_LOST)
    return replace(failure, error=pickle.dumps(ChildProcessError(text)))

"""The failures of tasks, and the error that the driver raises for them. All engines use it.

    task      error ──failure_of──> Failure        text, the line of the user's code, a short traceback
    driver    Failure ──task_error──> TaskFailedError

The process that catches the error makes the ``Failure``, because only this process has the frames. A
``Failure`` has plain values, so that it can be sent through a pipe, or as JSON through the JVM. The frames of
Frazil and of Spark are left out, because users look for a line of their own function.
"""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass, replace
from typing import Final

from frazil.errors import ErrorKind, IcechunkError, RemoteError, StorageError, TaskFailedError
from frazil.jobs.traceback_frames import (
    causes_of,
    clip_line,
    first_and_last,
    is_library,
    is_own,
    remove_own_frames,
    without_own_frames,
)
from frazil.remedies import Remedy

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
    """Return the failure of an error. Call it in the process that caught the error.

    >>> failure_of(KeyError("x")).type, failure_of(KeyError("x")).text
    ('KeyError', "'x'")
    """
    summary = traceback.TracebackException.from_exception(error, compact=True)
    frames = [frame for frame in summary.stack if not is_own(frame.filename)]
    is_ours = isinstance(error, IcechunkError)
    for each in causes_of(summary):
        remove_own_frames(each)
    whole = "\n".join(
        clip_line(line) for part in summary.format() for line in first_and_last(part.splitlines())
    )
    users = [frame for frame in frames if not is_library(frame.filename)]
    near = users or ([] if is_ours else frames or list(summary.stack))
    where = f'File "{near[-1].filename}", line {near[-1].lineno}, in {near[-1].name}' if near else ""
    return Failure(
        type=type(error).__name__,
        text=_text(error),
        where=where,
        traceback=whole[-_LONGEST_TRACEBACK:],
        kind=str(error.kind) if isinstance(error, IcechunkError) else None,
        is_final=_is_final(error),
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


def _is_final(error: BaseException) -> bool:
    if isinstance(error, StorageError):
        return error.kind in _FINAL_KINDS
    if isinstance(error, IcechunkError):
        return error.kind not in _PASSING_KINDS
    return isinstance(error, _FINAL_TYPES)


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
    """Return the failure of a task whose process died. ``ending`` names the signal or the exit code.

    >>> worker_lost("exit code 3").text
    'its process ended with exit code 3. Code of the task ended the process'
    """
    has_code = ending.startswith("exit code")
    default = _ENDED if has_code else f"{_ENDED}, or {_NATIVE}, or there was too little memory: {_MEMORY}"
    text = f"its process ended with {ending}. {_ENDINGS.get(ending, default)}"
    failure = Failure("ChildProcessError", text, where=where, kind=ErrorKind.WORKER_LOST)
    return replace(failure, error=pickle.dumps(ChildProcessError(text)))

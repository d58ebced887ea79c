"""What failed in a process of Spark, where, and what to do.

A task that fails raises `marked`: its failure as one line of JSON, which Spark passes on inside of its
own text. The line has a token that only the driver and the tasks of one run know, because the text of an
error may come from a foreign file, and must not be taken for a mark. An error without a mark comes from
Spark itself. Tables of patterns find the cause in the text, since the classes of these errors say little.

Spark shows users the whole traceback of its Python process before the message. So an error of Frazil leaves
a data source or function (`causes_only`) without a traceback. The log has it at the level ``debug``.
"""

from __future__ import annotations

import base64
import functools
import importlib
import inspect
import json
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.util import is_remote_only

from frazil.errors import ErrorKind, IcechunkError
from frazil.jobs.engine import attempt
from frazil.jobs.task_failures import Failure, failure_of, is_library, task_error, worker_lost

_log: Final = logging.getLogger(__name__)

#: The errors of the bridge to the JVM, which pyspark-client does not have.
_BRIDGE_ERRORS: Final[tuple[type[Exception], ...]] = (
    () if is_remote_only() else (importlib.import_module("py4j.protocol").Py4JError,)
)
#: The errors of a call of Spark: the second if Spark has no class for it, the others if a process has ended.
SPARK_ERRORS: Final[tuple[type[Exception], ...]] = (
    PySparkException,
    *_BRIDGE_ERRORS,
    ConnectionError,
    EOFError,
)


def marked(token: str, number: int | None, error: BaseException) -> RuntimeError:
    """Return the error that a task raises instead of ``error``; ``number`` is that of the task, if known."""
    failure = failure_of(error)
    fields = asdict(failure) | {"error": base64.b64encode(failure.error).decode()}
    return RuntimeError(json.dumps({"frazil task": token, "number": number, "attempt": attempt(), **fields}))


def from_spark(error: BaseException, token: str, numbers: Sequence[int], count: int) -> IcechunkError:
    """Return the error that the driver raises for an error of Spark.

    ``numbers`` holds for each partition the first of its tasks; ``count`` is the number of all tasks.
    """
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # an error of the bridge asks the JVM for its text, which may be gone
        text = type(error).__name__
    start = text.find(json.dumps({"frazil task": token})[:-1]) if token else -1
    if start >= 0:
        fields: dict[str, Any] = json.JSONDecoder().raw_decode(text, start)[0]
        del fields["frazil task"]
        number, attempts = fields.pop("number"), fields.pop("attempt") + 1
        fields["error"] = base64.b64decode(fields["error"])
        return task_error(Failure(**fields), number, count, attempts)
    _log.debug("an error of Spark", exc_info=error)
    lost = _lost_worker(text)
    if lost is None:
        sentence = next((words for pattern, words in _CAUSES.items() if re.search(pattern, text)), None)
        first = _first_cause(text)[:_LONGEST]
        raised = IcechunkError(
            f"Spark could not run the tasks: {first if sentence is None else f'{sentence} ({first})'}",
            ErrorKind.CONCURRENCY,
        )
        raised.__cause__ = error.with_traceback(None)
        return raised
    partition = re.search(r"Task (\d+) in stage \S+ failed (\d+) times", text)
    at = int(partition[1]) if partition else len(numbers)
    number = numbers[at] if at < len(numbers) else None
    return task_error(lost, number, count, int(partition[2]) if partition else 1)


# Workers that died, in the text of Spark

_EXECUTOR: Final = re.compile(r"ExecutorLostFailure \(.*?\)(?: Reason: (.*))?")
_EXIT_CODE: Final = re.compile(r"exit(?:ed with)? (?:code|status):? (\d+)", re.IGNORECASE)
_CRASHED: Final = re.compile("Python worker exited unexpectedly")
_NO_START: Final = re.compile(r"Python worker failed to connect back|PYTHON_WORKER_FAILED_TO|Failed to fork")
_FATAL: Final = re.compile(r"Fatal Python error: ([^\n]+)")
_FRAME: Final = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)', re.MULTILINE)
_LINE: Final = 'File "{file}", line {line}, in {name}'
#: The names of signals in the output of Python's fault handler.
_SIGNALS: Final = {
    "Segmentation fault": "signal SIGSEGV",
    "Aborted": "signal SIGABRT",
    "Bus error": "signal SIGBUS",
    "Illegal instruction": "signal SIGILL",
    "Floating point exception": "signal SIGFPE",
}


def _lost_worker(text: str) -> Failure | None:
    """Return the failure if a process of Spark died, else None."""
    if (fatal := _FATAL.search(text)) is not None:
        ending = _SIGNALS.get(fatal[1].strip(), f"the fatal error {fatal[1].strip()}")
        every = [frame.groupdict() for frame in _FRAME.finditer(text, fatal.end())]
        frames = [_LINE.format(**frame) for frame in every if not is_library(frame["file"])]
        return worker_lost(ending, *frames[:1])
    if (executor := _EXECUTOR.search(text)) is not None:
        ending = "the loss of its executor"
        if (exit_code := _EXIT_CODE.search(executor[1] or "")) is not None:
            code = int(exit_code[1])
            # Shells and containers report a signal as 128 plus its number.
            is_signal = code - 128 in signal.valid_signals()
            ending = f"signal {signal.Signals(code - 128).name}" if is_signal else f"exit code {code}"
        failure = worker_lost(ending)
        return replace(failure, text=f"{failure.text}. Spark says: {(executor[1] or executor[0]).strip()}")
    if _CRASHED.search(text):
        return worker_lost("a signal or an exit code that Spark does not report")
    if (start := _NO_START.search(text)) is not None:
        line = text[text.rfind("\n", 0, start.start()) + 1 :].partition("\n")[0].strip()
        return Failure(
            "ChildProcessError",
            f"Spark could not start its Python process: {line}. The log of the executor has details",
            kind=ErrorKind.WORKER_LOST,
        )
    return None


# Other errors of Spark

#: Patterns in the text of Spark, and the message for each.
_CAUSES: Final = {
    "No module named '(?:frazil|pyspark_frazil)": "Frazil is not installed on the executors. Install the "
    "version of the driver there",
    r"spark\.driver\.maxResultSize": "the results of the tasks are larger than spark.driver.maxResultSize. "
    "Raise this setting",
    r"java\.lang\.OutOfMemoryError": "a JVM of Spark had too little memory. Raise spark.driver.memory or "
    "spark.executor.memory",
    r"SparkContext (?:was|has been) ?(?:shut ?down|cancelled|stopped)|stopped SparkContext": "the Spark "
    "session was stopped",
    "Connection refused|Answer from Java side is empty|Error while sending or receiving|Py4JNetwork": "the "
    "JVM of Spark does not answer, because it ended or was killed. Start a new session",
    r"StatusCode\.UNAVAILABLE|failed to connect to all addresses": "the server of Spark Connect does not "
    "answer, because it ended or cannot be reached",
    "SESSION_(?:CLOSED|NOT_FOUND|CHANGED)": "the server of Spark Connect closed the session. Make a new one",
    "[Jj]ob .*cancelled|OPERATION_CANCELED": "the Spark job was cancelled",
}
_PYTHON_CAUSE: Final = re.compile(r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt))\b.*", re.MULTILINE)
_OWN_CAUSE: Final = re.compile(r"frazil\.errors\.\w+: [^\n]+")
_JAVA_CAUSE: Final = re.compile(r"(?:most recent failure: Lost task .*?\): |Caused by: )([^\n]+)")
_LONGEST: Final = 2_000


def _first_cause(text: str) -> str:
    """Return the line of Spark's text with the cause: of Frazil, of a Python traceback, or of a Java one."""
    if own := _OWN_CAUSE.findall(text):
        return str(own[-1])
    python = text.rfind("Traceback (most recent call last)")
    if python >= 0 and (causes := _PYTHON_CAUSE.findall(text, python)):
        return str(causes[-1] if isinstance(causes[-1], str) else causes[-1][0])
    if causes := _JAVA_CAUSE.findall(text):
        return str(causes[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no text")


def causes_only[C: type](cls: C) -> C:
    """Return a class for Spark whose methods raise errors of Frazil without traceback and causes."""
    for name, method in [*vars(cls).items()]:
        if isinstance(method, staticmethod):
            setattr(cls, name, staticmethod(_guarded(method.__func__)))
        elif inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _guarded(method))
    return cls


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def bare() -> Iterator[None]:
        try:
            yield
        except IcechunkError as error:
            _log.debug("an error in a process of Spark", exc_info=error)
            if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
                # Spark begins its text with the traceback of its own frames. The worker ends with this error.
                os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise error.with_traceback(None) from None

    @functools.wraps(method)
    def generating(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with bare():
            yield from method(*args, **kwargs)

    @functools.wraps(method)
    def calling(*args: Any, **kwargs: Any) -> Any:
        with bare():
            return method(*args, **kwargs)

    return generating if inspect.isgeneratorfunction(method) else calling

"""What users read when a task fails, or cannot be sent: the cause, and the line of their own code."""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import re
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.jobs import tasks

import frazil
import frazil.errors
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, TaskFailedError
from frazil.jobs.task_failures import failure_of, sendable, task_error
from frazil.spark import Engine, Inline, OnSpark, Processes, Threads
from frazil.spark.runtime.on_spark import from_spark, marked


def failed(engine: Engine, how: str, shared: bytes = b"") -> TaskFailedError:
    with pytest.raises(TaskFailedError) as caught:
        list(engine.run(tasks.fails_as, [b"", b"", how.encode(), b""], shared))
    return caught.value


@pytest.mark.sample(1, 7)
@pytest.mark.parametrize(
    ("how", "first", "where", "cause"),
    [
        ("deep", "KeyError: 'x'", "deep", KeyError),
        ("chain", "ValueError: no value — ümlaut \udc80", "fails_as", ValueError),
        ("silent", "Silent: (str() of the error raised ValueError)", "fails_as", Exception),
        ("unsendable", "Unsendable: one two", "fails_as", Exception),
        ("exit", "SystemExit: 3", "fails_as", SystemExit),
        ("base", "NoExit: not an Exception", "fails_as", tasks.NoExit),
        ("lines", "OSError: line", "fails_as", Exception),
    ],
)
def test_the_cause_and_the_line_of_the_user(
    every_engine: Engine, how: str, first: str, where: str, cause: type[BaseException]
) -> None:
    error = failed(every_engine, how)
    lines = error.message.splitlines()
    assert lines[0] == f"task 3 of 4 failed with {first}"
    assert len(lines) < 16
    assert len(error.message) < 10_000
    assert any(re.fullmatch(rf'  File ".*tasks\.py", line \d+, in {where}', line) for line in lines)
    assert (error.kind, error.task, error.tasks) == ("task-failed", 3, 4)
    assert isinstance(error.__cause__, cause)
    assert "tasks.py" in error.traceback
    shown = "".join(traceback.format_exception(error)).splitlines()
    below = len(shown) - next(i for i, line in enumerate(shown) if "TaskFailedError: task 3" in line)
    assert below <= len(lines) + 11
    assert not re.search(r"py4j|pyspark|frazil/jobs/job|\tat org\.apache", "\n".join(shown))
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.dispatch_table = {}  # where Dask is used, it makes all errors pickle their causes
    pickler.dump(error)
    again = pickle.loads(buffer.getvalue())
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.sample(1)
def test_causes_in_the_task_are_preserved(every_engine: Engine) -> None:
    error = failed(every_engine, "chain")
    assert error.attempts == (1 if isinstance(every_engine, Inline) else 4)
    assert error.traceback.index("KeyError: 'y'") < error.traceback.index("ValueError: no value")
    assert "in deep" in error.traceback
    assert "frazil/jobs" not in error.traceback


def test_errors_that_another_attempt_does_not_cure_get_one(tmp_path: Path) -> None:
    for engine, how, attempts in [
        (Threads(1), "type", 1),
        (Processes(1), "exit", 1),
        (Threads(1), "deep", 4),
        (Threads(1, attempts=2), "deep", 2),
    ]:
        place = tmp_path / f"{how}-{attempts}"
        place.mkdir()
        error = failed(engine, how, str(place).encode())
        assert error.attempts == attempts
        assert len(list(place.glob(f"{how}-*"))) == attempts
        assert (f"after {attempts} attempts" in error.message) == (attempts > 1)


def test_an_interrupt_is_the_users_where_the_task_runs_in_front_of_him() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(Inline().run(tasks.fails_as, [b"interrupt"], b""))
    for engine in (Threads(1), Processes(1)):
        error = failed(engine, "interrupt")
        assert error.message.startswith("task 3 of 4 failed with KeyboardInterrupt\n")


ERRORS: Final = [
    each for _, each in inspect.getmembers(frazil.errors, inspect.isclass) if issubclass(each, IcechunkError)
]
_ARGUMENTS: Final[dict[type, tuple[Any, ...]]] = {
    frazil.ConflictError: ("A", "B", "another writer was first", "commit-conflict"),
    frazil.RebaseFailedError: ("A", ["a conflict"], "Look"),
    frazil.StaleReadError: ("A", ["a read"], "others changed it"),
    frazil.OutcomeUnknownError: ("nobody knows", "A", "outcome-unknown"),
    frazil.ValidationFailedError: ("broken rules", {"a": 1}, "validation-failed"),
}


@pytest.mark.sample(17)
@pytest.mark.parametrize("engine", [Inline(), Threads(1, attempts=1), Processes(1, attempts=1)], ids=repr)
@pytest.mark.parametrize("of", ERRORS, ids=lambda of: of.__name__)
def test_errors_of_frazil_arrive_whole(engine: Engine, of: type[IcechunkError]) -> None:
    sent = of(*_ARGUMENTS.get(of, ("a text", "io")))
    with pytest.raises(TaskFailedError) as caught:
        list(engine.run(tasks.raises, [b""], pickle.dumps(sent)))
    assert caught.value.kind == sent.kind
    assert caught.value.message.startswith(f"task 1 of 1 failed with {of.__name__}: {sent.problem}")
    assert sent.remedy is None or str(sent.remedy) in caught.value.message
    error = caught.value.__cause__
    assert type(error) is of
    assert error.message == sent.message
    assert {**vars(error)} == {**vars(sent)}


# Processes that die


@pytest.mark.deep
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("ended", "its process ended with exit code 7. Code of the task ended the process"),
        ("crashes", "its process ended with signal SIGSEGV. Probably a native library crashed"),
    ],
)
def test_a_process_that_dies_is_reported(how: str, message: str) -> None:
    error = failed(Processes(1, attempts=2), how)
    assert error.message.startswith(f"task 3 of 4 failed with ChildProcessError: {message}")
    assert (error.kind, error.attempts) == ("worker-lost", 2)


def test_a_process_that_does_not_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(9)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    error = failed(Processes(1, attempts=1), "deep")
    assert "its process ended with exit code 9 while it started, before the task" in error.message
    assert error.kind == "worker-lost"


_LOST: Final = (
    "Job aborted due to stage failure: Task 1 in stage 5.0 failed 4 times, most recent failure: Lost task "
    "1.3 in stage 5.0 (TID 9) (10.0.0.1 executor 2): "
)
_CRASH: Final = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
_TRACE: Final = """: Fatal Python error: Segmentation fault

Current thread 0x0 (most recent call first):
  File "job.py", line 7 in broken
"""
_BAD_NODE: Final = """ExecutorLostFailure (executor 2 exited) Reason: Container killed: Exit status: 137.
Driver stacktrace:"""
_NOT_INSTALLED: Final = """PythonException: Traceback (most recent call last):
  File "x.py", line 1
ModuleNotFoundError: No module named 'frazil'

\tat org.apache.spark"""
_WHILE: Final = "Spark could not run the tasks: "


class Text(NamedTuple):
    """A text of Spark, and what the error says. Errors of tasks have a number, and a number of attempts."""

    text: str
    message: str
    is_of_task: bool = True


TEXTS: Final = {
    "crash": Text(
        f"{_LOST}{_CRASH}. Consider",
        "task 5 of 8 failed with ChildProcessError: its process ended with a signal or an exit code that",
    ),
    "crash with a trace": Text(
        f"{_LOST}{_CRASH}{_TRACE}",
        'because of the data that it read\n  File "job.py", line 7, in broken\n  after 4 attempts',
    ),
    "executor": Text(
        f"{_LOST}{_BAD_NODE}", "signal SIGKILL. The operating system kills processes that use too much memory"
    ),
    "no start": Text(
        f"{_LOST}SparkException: Python worker failed to connect back.\n\tat org.apache",
        "Spark could not start its Python process: ",
    ),
    "not installed": Text(
        f"{_LOST}{_NOT_INSTALLED}",
        f"{_WHILE}Frazil is not installed on the executors. Install the version of the driver there (Mod",
        is_of_task=False,
    ),
    "memory": Text(
        f"{_LOST}java.lang.OutOfMemoryError: Java heap space\n\tat x",
        f"{_WHILE}a JVM of Spark had too little memory",
        is_of_task=False,
    ),
    "cancelled": Text(
        "org.apache.spark.SparkException: Job 3 cancelled part of cancelled job group x",
        f"{_WHILE}the Spark job was cancelled",
        is_of_task=False,
    ),
    "another": Text(
        f"{_LOST}java.io.IOException: No space\n\tat java.base\nCaused by: java.io.IOException: disk",
        f"{_WHILE}java.io.IOException: disk",
        is_of_task=False,
    ),
}


@pytest.mark.parametrize("of", [PySparkException, Py4JError], ids=lambda of: of.__name__)
@pytest.mark.parametrize("row", TEXTS.values(), ids=TEXTS)
def test_errors_of_spark_begin_with_their_cause(of: type[Exception], row: Text) -> None:
    error = from_spark(of(row.text), "token", [2, 4, 6], 8)
    assert row.message in error.message
    assert "\tat " not in error.message
    assert error.kind == ("worker-lost" if row.is_of_task else "concurrency")
    counts = (error.task, error.attempts) if isinstance(error, TaskFailedError) else None
    assert counts == ((5, 4) if row.is_of_task else None)


def test_a_mark_counts_with_its_token_only() -> None:
    mark = str(marked("token", 3, KeyError("x")))
    assert "\n" not in mark
    error = from_spark(
        PySparkException(f"Traceback\nRuntimeError: {mark}\n SQLSTATE: 38000"), "token", [0], 5
    )
    assert isinstance(error, TaskFailedError)
    assert error.message == "task 4 of 5 failed with KeyError: 'x'"
    forged = from_spark(PySparkException(f"Traceback\nRuntimeError: {mark}"), "another", [0], 5)
    assert forged.kind == ErrorKind.CONCURRENCY
    assert not isinstance(forged, TaskFailedError)


def test_a_failure_without_frames_is_reported() -> None:
    error = task_error(failure_of(KeyError("x")), None, 3)
    assert error.message == "a task of 3 failed with KeyError: 'x'"
    assert error.task is None


# Spark itself


@pytest.mark.deep
@pytest.mark.spark
def test_a_worker_of_spark_that_dies_is_reported(spark: SparkSession) -> None:
    engine = OnSpark(spark, jobs=3)
    error = failed(engine, "crashes")
    assert "its process ended with signal SIGSEGV" in error.message
    assert re.search(r'  File ".*tasks\.py", line \d+, in fails_as', error.message)
    assert (error.kind, error.task, error.attempts) == ("worker-lost", 3, 4)
    error = failed(engine, "ended")
    assert "its process ended with a signal or an exit code that Spark does not report" in error.message
    assert (error.kind, error.task) == ("worker-lost", 3)
    assert failed(engine, "forged").message.startswith("task 3 of 4 failed with OSError: {")
    assert list(engine.run(tasks.joined, [b"x"], b"")) == [b"x"]


LOCK: Final = threading.Lock()


@dataclass
class _Holder:
    inner: dict[str, Any] = field(default_factory=lambda: {"a": [1, LOCK]})

    def method(self, shared: bytes, task: bytes) -> bytes:
        return task


def _closure() -> Callable[[bytes, bytes], bytes]:
    lock = threading.Lock()

    def work(shared: bytes, task: bytes) -> bytes:
        with lock:
            return task

    return work


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_closure(), "because of the variable `lock` of the function `work`, of the type lock: "),
        (functools.partial(max, LOCK), "because of the argument 0, of the type lock: "),
        (functools.partial(max, key=LOCK), "because of the argument `key`, of the type lock: "),
        (
            _Holder().method,
            "because of the item 1 of the item 'a' of the attribute `inner` of the object of the method",
        ),
    ],
    ids=["closure", "argument", "keyword", "method"],
)
def test_the_part_is_named(function: Any, message: str) -> None:
    with pytest.raises(
        InvalidInputError, match="the function of the tasks cannot be sent to a task"
    ) as caught:
        list(Processes(1).run(function, [b""], b""))
    assert message in caught.value.message


def test_a_value_without_parts_is_not_named_twice() -> None:
    with pytest.raises(InvalidInputError, match=r"^the item cannot be sent") as caught:
        sendable(LOCK, "the item")
    assert "because of" not in caught.value.message

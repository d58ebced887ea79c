"""Engines: order, what tasks get, what failures look like, retries. All of them keep the same promises."""

from __future__ import annotations

import io
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.jobs import tasks
from tests.support.patience import patience

from frazil.errors import IcechunkError, InvalidInputError
from frazil.spark import Engine, Inline, OnSpark, Processes, Progress, Threads
from frazil.spark.runtime.on_spark import _partitions
from frazil.threads import Purpose


@pytest.mark.sample(1, 3)
@pytest.mark.parametrize("count", [0, 7])
def test_results_come_in_the_order_of_the_tasks(every_engine: Engine, count: int) -> None:
    messages = [f"{n}-task".encode() for n in range(count)]
    results = list(every_engine.run(tasks.joined, messages, b"shared:\0"))
    assert results == [b"shared:\0" + message[::-1] for message in messages]


@pytest.mark.sample(2, 2)
@pytest.mark.deep
def test_the_caller_may_stop(every_engine: Engine, tmp_path: Path) -> None:
    messages = [str(tmp_path / str(n)).encode() for n in range(60)]
    results: Any = every_engine.run(tasks.touches, messages, b"0.1")
    assert next(results) == messages[0]
    results.close()
    # Spark has three jobs of 20 tasks each, and the last one has just begun.
    assert len(list(tmp_path.iterdir())) < 60
    of_engines = (Purpose.LOCAL_TASKS.value, Purpose.SPARK_JOBS.value)
    assert [thread for thread in threading.enumerate() if thread.name.startswith(of_engines)] == []
    # The engine takes other tasks.
    assert list(every_engine.run(tasks.joined, [b"x"], b"")) == [b"x"]


@pytest.mark.sample(1, 3)
def test_a_task_that_fails_is_tried_again(every_engine: Engine) -> None:
    messages = [b"", b"", b"raises", b""]
    if every_engine not in (Inline(), Threads(2)):  # else it would be this process
        messages.append(b"is killed")
    results = every_engine.run(tasks.fails_twice, messages, b"")
    if isinstance(every_engine, Inline):
        with pytest.raises(IcechunkError, match="task 3 of 4 failed with OSError: try 0"):
            list(results)
    else:  # the number of tries before this one
        assert list(results) == [b"0", b"0", b"2", b"0", b"2"][: len(messages)]


def test_a_task_that_a_worker_cannot_load_has_a_message() -> None:
    lost = types.ModuleType("gone_in_the_worker")
    exec("def task(shared, message): return message", lost.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, lost.__name__, lost)
        with pytest.raises(IcechunkError, match=r"failed with ModuleNotFoundError: .*gone_in_the_worker"):
            list(Processes(1, attempts=1).run(lost.task, [b""], b""))


def test_results_do_not_pile_up(tmp_path: Path) -> None:
    """A caller that is slow holds the tasks back."""
    messages = [str(tmp_path / str(n)).encode() for n in range(60)]
    results: Any = Threads(2).run(tasks.touches, messages, b"0")
    assert list(itertools.islice(results, 3)) == messages[:3]
    time.sleep(0.05)
    assert len(list(tmp_path.iterdir())) <= 3 + 8
    results.close()


@pytest.mark.deep
def test_threads_and_processes_are_what_they_say(tmp_path: Path) -> None:
    own = {int(r.split()[0]) for r in Threads(2).run(tasks.process, [b""] * 4, b"")}
    assert own == {os.getpid()}
    place = str(tmp_path).encode()
    others = {int(r.split()[0]) for r in Processes(2).run(tasks.meets_another, [b""] * 6, place)}
    assert len(others) == 2
    assert os.getpid() not in others


@pytest.mark.deep
def test_idle_processes_serve_the_next_run() -> None:
    runs = [{int(r.split()[0]) for r in Processes(1).run(tasks.process, [b""] * 3, b"")} for _ in range(2)]
    assert runs[0] == runs[1]
    os.environ["FRAZIL_TEST_OTHER"] = "surroundings"
    try:
        third = {int(r.split()[0]) for r in Processes(1).run(tasks.process, [b""], b"")}
    finally:
        del os.environ["FRAZIL_TEST_OTHER"]
    assert not third & runs[0]


def test_inline_stays_in_this_thread() -> None:
    threads = list(Inline().run(lambda shared, task: b"%d" % threading.get_ident(), [b"1"], b""))
    assert threads == [b"%d" % threading.get_ident()]


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"attempts": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    for engine in (Threads, Processes):
        with pytest.raises(InvalidInputError, match="must be at least 1, got 0"):
            engine(**wrong)


@pytest.mark.deep
@pytest.mark.spark
def test_tasks_may_share_a_partition(spark: SparkSession) -> None:
    messages = [b"%d" % n for n in range(11)]
    results = list(OnSpark(spark, jobs=2, partitions=4).run(tasks.joined, messages, b""))
    assert results == [message[::-1] for message in messages]
    assert _partitions(spark) == max(256, 8 * (os.cpu_count() or 1))  # on one machine


@pytest.mark.deep
@pytest.mark.spark
def test_each_task_has_a_slot_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    messages, place = [b"%d" % n for n in range(8)], str(tmp_path).encode()
    results = list(OnSpark(spark, jobs=1).run(tasks.meets_another, messages, place))
    workers, frozen = zip(*(result.decode().split() for result in results), strict=True)
    assert len(set(workers)) == 2  # both cores had work
    assert set(frozen) == {"True"}


@pytest.mark.sample(1, 1)
@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_workers_go_with_their_driver(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import signal, sys; from frazil.spark import Processes, Threads; from tests.jobs import tasks\n"
        # A shell that runs the tests in the background lets its children ignore the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "list(Processes(2).run(tasks.leaves_its_process, [sys.argv[1].encode()] * 1000, b''))"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while len(workers := list(tmp_path.iterdir())) < 2:
        assert driver.poll() is None
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(driver.pid, number)  # as a terminal does
    else:
        driver.send_signal(number)
    _, stderr = driver.communicate()
    assert stderr.count(b"Traceback") == (number == signal.SIGINT)  # only of the driver
    pids = [int(path.name) for path in workers]
    until = time.monotonic() + patience(10)
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_line_fits_and_is_drawn_over(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    clock = iter(range(0, 1000, 10))
    with Progress("writing", 4, out, clock=lambda: next(clock)) as bar:
        for _ in range(4):
            bar.advance(rows=1_000_000, chunks=1234, bytes=10**9)
    drawn = out.getvalue().removesuffix("\n").split("\r")[1:]
    assert len(drawn) == 5
    assert "\n" not in "".join(drawn)
    lines = [line.removesuffix("\x1b[K") for line in drawn]
    assert max(map(len, lines)) < columns
    if columns >= 80:
        assert "1/4 tasks  1,000,000 rows  1,234 chunks  1.0 GB  60 s left" in lines[1]
        assert [line.count("━") > 0 for line in lines] == [False, True, True, True, True]
        assert lines[-1].endswith("in 50.0 s")
        assert "─" not in lines[-1]


class Cell:
    """What IPython gives for an output that can be updated."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


def test_a_notebook_shows_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Cell()
    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=lambda data, *, raw, display_id: cell)
    fake = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    clock = iter(range(100))
    with Progress("a<b", 0, clock=lambda: next(clock) / 10) as bar:
        bar.expect(20)
        bar.expect(20)
        for _ in range(40):
            bar.advance(rows=2, chunks=1, bytes=1000)
    texts = [data["text/plain"] for data in cell.shown]
    assert texts[-1].startswith("a<b 100%  40/40 tasks  80 rows  40 chunks  40.0 kB  in ")
    assert 5 < len(texts) < 40  # not at every task
    assert 'value="1.0000"' in cell.shown[-1]["text/html"]
    assert "a&lt;b" in cell.shown[-1]["text/html"]
    assert capsys.readouterr().err == ""
    # and a terminal with IPython is a terminal
    shell.kernel = None
    with Progress("c", 1) as bar:
        bar.advance()
    assert capsys.readouterr().err.startswith("c 100%  1/1 tasks")

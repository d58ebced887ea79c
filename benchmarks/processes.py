"""Processor time and memory of a process and all processes below it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

#: The seconds between two looks at the memory.
_INTERVAL = 0.05


@dataclass(slots=True)
class Usage:
    """What all processes have used: seconds of processors, and the largest memory at one time."""

    processor_s: float = 0.0
    peak_mib: float = 0.0


@contextmanager
def usage_of_all() -> Iterator[Usage]:
    """Measure this process and all below it, from another process, which does not count."""
    used = Usage()
    command = [sys.executable, __file__, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdin is not None
        assert watcher.stdout is not None
        watcher.stdout.readline()
        before = _processor_s(_below(os.getpid(), watcher.pid))
        yield used
        used.processor_s = _processor_s(_below(os.getpid(), watcher.pid)) - before
        watcher.stdin.close()
        used.peak_mib = float(watcher.stdout.readline())


def _below(pid: int, watcher: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *(each for each in process.children(recursive=True) if each.pid != watcher)]


def _processor_s(processes: list[psutil.Process]) -> float:
    """Return the seconds of processes, and of their children that have ended."""
    seconds = 0.0
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            seconds += sum(each.cpu_times()[:4])
    return seconds


def _memory_mib(processes: list[psutil.Process]) -> float:
    """Return the sum of the memory (PSS, so that shared pages count once)."""
    memory = 0
    for each in processes:
        with suppress(psutil.Error):
            memory += each.memory_full_info().pss
    return memory / 2**20


def _watch(pid: int) -> None:
    peak = 0.0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], _INTERVAL)[0]:
        peak = max(peak, _memory_mib(_below(pid, os.getpid())))
    print(peak, flush=True)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))

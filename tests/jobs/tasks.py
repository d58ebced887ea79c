"""Task functions of the tests: executors import this module."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import time
import zlib
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import zarr
from tests.support.patience import patience

import frazil
from frazil.jobs.engine import attempt
from frazil.spark import Block, Outcome


def joined(shared: bytes, task: bytes) -> bytes:
    return shared + task[::-1]


def process(shared: bytes, task: bytes) -> bytes:
    time.sleep(0.05)
    return f"{os.getpid()} {gc.get_freeze_count() > 0}".encode()


def meets_another(shared: bytes, task: bytes) -> bytes:
    """Its process, once another one runs such a task, too. ``shared`` is a directory for their names."""
    place = Path(shared.decode())
    (place / str(os.getpid())).touch()
    end = time.monotonic() + patience(30)
    while len(list(place.iterdir())) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    return process(shared, task)


class Silent(Exception):
    """Cannot be pickled, and cannot say what it is."""

    def __init__(self) -> None:
        self.lock = Lock()

    def __str__(self) -> str:
        raise ValueError("no text")


def values(block: Block) -> np.ndarray:
    """Values that tell where they belong; a first row of fill values."""
    axes = [np.arange(start, stop) for start, stop in zip(block.start, block.stop, strict=True)]
    out = np.zeros(block.shape, "float32")
    for number, axis in enumerate(np.meshgrid(*axes, indexing="ij")):
        out += axis * 10.0**-number
    return out * (axes[0] >= 4).reshape(-1, *[1] * (len(axes) - 1))


def fails_in_the_middle(block: Block) -> np.ndarray:
    if block.start == (8, 0):
        raise ValueError("damaged file")
    return values(block)


def too_small(block: Block) -> np.ndarray:
    return values(block)[:-1]


def counts(fork: frazil.ForkSession, shared: str, start: int) -> Outcome:
    """Work of a job: the numbers of four rows."""
    values = np.arange(start, start + 4, dtype="i4")
    zarr.open_array(fork.store, path=shared, mode="r+")[start : start + 4] = values
    return Outcome(int(values.sum()), rows=4, chunks=1, bytes_written=values.nbytes)


def touches(shared: bytes, task: bytes) -> bytes:
    """Leaves a mark that it has begun, and takes a while."""
    Path(task.decode()).touch()
    time.sleep(float(shared))
    return task


def fails_twice(shared: bytes, task: bytes) -> bytes:
    """Gives the number of its try."""
    if task == b"raises" and attempt() < 2:
        raise OSError(f"try {attempt()}")
    if task == b"is killed" and attempt() < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return b"%d" % attempt()


def reversed_and_more(fork: frazil.ForkSession, shared: tuple[str, str], item: tuple[int, int]) -> Outcome:
    """Work of a second phase: four rows of one array to another, backwards, plus a number."""
    (source, target), (start, more) = shared, item
    values = np.asarray(zarr.open_array(fork.store, path=source, mode="r")[start : start + 4])
    zarr.open_array(fork.store, path=target, mode="r+")[start : start + 4] = values[::-1] + more
    return Outcome(int(values[-1] - 2 * start))


def copies(fork: frazil.ForkSession, shared: Any, start: int) -> Outcome:
    """Work of a job that reads another repository."""
    path, source = shared
    values = np.asarray(zarr.open_array(source.session().store, path="s", mode="r")[start : start + 4])
    zarr.open_array(fork.store, path=path, mode="r+")[start : start + 4] = values
    return Outcome(int(values.sum()), rows=4, chunks=1, bytes_written=values.nbytes)


def counts_with_more(fork: frazil.ForkSession, shared: tuple[str, bytes, int], start: int) -> Outcome:
    """``counts``, with a large value that all tasks share."""
    path, large, checksum = shared
    assert zlib.crc32(large) == checksum
    return counts(fork, path, start)


def leaves_its_process(shared: bytes, task: bytes) -> bytes:
    """The number of its process as the name of a file."""
    Path(task.decode(), str(os.getpid())).touch()
    time.sleep(0.1)
    return b""


def tenfold(fork: frazil.ForkSession, shared: tuple[str, str], start: int) -> Outcome:
    """Two rows of one array to another, times ten."""
    source, target = shared
    values = np.asarray(zarr.open_array(fork.store, path=source, mode="r")[start : start + 2])
    zarr.open_array(fork.store, path=target, mode="r+")[start : start + 2] = values * 10
    return Outcome(chunks=1)


def deep(names: dict[str, int], name: str) -> int:
    return names[name]


class Unsendable(Exception):
    """Can be pickled, and not read back."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


class NoExit(BaseException):
    """Of nobody that catches ``Exception``."""


def fails_as(shared: bytes, task: bytes) -> bytes:
    """Fails in the way that the task names; ``shared`` is a directory in which it counts its attempts."""
    if shared:
        Path(shared.decode(), f"{task.decode()}-{attempt()}").touch()
    match task:
        case b"deep":
            deep({}, "x")
        case b"chain":
            try:
                deep({}, "y")
            except KeyError as error:
                raise ValueError("no value — ümlaut \udc80") from error
        case b"type":
            raise TypeError("expected a number")
        case b"lines":
            raise OSError("line\n" * 5000 + "x" * 10_000_000)
        case b"silent":
            raise Silent
        case b"unsendable":
            raise Unsendable("one ", "two")
        case b"exit":
            sys.exit(3)
        case b"interrupt":
            raise KeyboardInterrupt
        case b"base":
            raise NoExit("not an Exception")
        case b"forged":
            raise OSError('{"frazil task": "a", "number": 0, "attempt": 0, "text": "not me"}')
        case b"ended":
            os._exit(7)
        case b"crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
    return task


def raises(shared: bytes, task: bytes) -> bytes:
    """Raises the error that is pickled in ``shared``."""
    raise pickle.loads(shared)

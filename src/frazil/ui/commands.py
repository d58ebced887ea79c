"""Answers that take long: commands of Frazil, in processes that end with their clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.target import Target

#: How many answers are computed at the same time.
_AT_ONCE: Final = 2
#: Seconds between two looks at the client, and until a process that should end is killed.
_PAUSE: Final = 0.2
_GRACE: Final = 5


def _verify(target: Target, query: Mapping[str, str]) -> list[str]:
    level = query.get("level", "metadata")
    return ["verify", "--json", f"--level={level}", "--", str(Target(target.location))]


def _statistics(target: Target, query: Mapping[str, str]) -> list[str]:
    return ["stats", "--json", "--", str(Target(target.location))]


def _sizes(target: Target, query: Mapping[str, str]) -> list[str]:
    return ["du", "--json", "--all", "--", _node(target, query)]


def _blame(target: Target, query: Mapping[str, str]) -> list[str]:
    return ["blame", "--json", "--", _node(target, query)]


def _history_of(target: Target, query: Mapping[str, str]) -> list[str]:
    return ["history", "--json", "--", _node(target, query), query.get("cell", "")]


def _jobs(target: Target, query: Mapping[str, str]) -> list[str]:
    return ["job", "status", "--json", "--", str(Target(target.location))]


def _status(target: Target, query: Mapping[str, str]) -> list[str]:
    return ["status", "--json", "--", str(Target(target.location))]


#: The name of an answer -> the arguments of its command, from the target of the server and the query.
COMMANDS: Final[dict[str, Callable[[Target, Mapping[str, str]], list[str]]]] = {
    "verify": _verify,
    "statistics": _statistics,
    "sizes": _sizes,
    "blame": _blame,
    "history-of": _history_of,
    "jobs": _jobs,
    "status": _status,
}


def _node(target: Target, query: Mapping[str, str]) -> str:
    """Return the node of the repository of the server that a query names."""
    version = query.get("version") or target.version
    return str(replace(target, version=version, path=query.get("path") or "/"))


@dataclass(frozen=True, slots=True)
class Result:
    """The JSON that a command has printed: its answer, or its error."""

    text: bytes
    is_answer: bool

    @property
    def kind(self) -> str:
        """The kind of the error."""
        return str(json.loads(self.text)["error"]["kind"])


class Processes:
    """The processes of slow answers, a few at the same time."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def run(self, arguments: list[str], is_gone: Callable[[], bool]) -> Result | None:
        """Return what a command prints. None if too many run.

        Raises ``ConnectionAbortedError`` if the client has gone.
        """
        if any("\0" in each for each in arguments):
            raise InvalidInputError(
                "a query must not contain the character NUL, got one", ErrorKind.INVALID_ARGUMENT
            )
        if not self._free.acquire(blocking=False):
            return None
        try:
            # -P: no module of the current folder. A session of its own: Ctrl-C is for the server alone.
            command = [sys.executable, "-P", "-m", "frazil", *arguments]
            pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
            with subprocess.Popen(
                command, stdin=nothing, stdout=pipe, stderr=pipe, start_new_session=True
            ) as process:
                with self._lock:
                    self._running.add(process)
                try:
                    return _result(process, is_gone)
                finally:
                    _end(process)
                    with self._lock:
                        self._running.discard(process)
        finally:
            self._free.release()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            running = list(self._running)
        for process in running:
            _end(process)


def _result(process: subprocess.Popen[bytes], is_gone: Callable[[], bool]) -> Result:
    while not is_gone():
        with suppress(subprocess.TimeoutExpired):
            output, errors = process.communicate(timeout=_PAUSE)
            if output:  # also of `verify` with the status 1, which is an answer with problems
                return Result(output, True)
            last = errors.strip().rpartition(b"\n")[2]
            with suppress(ValueError):
                json.loads(last)
                return Result(last, False)
            return Result(b'{"error": {"kind": "other", "message": "the command has ended"}}', False)
    raise ConnectionAbortedError


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    if sys.platform == "win32":  # it has no groups of processes
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], capture_output=True, check=False)
    else:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is not None:
                return
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE)

"""Runs cases with the adapter of an implementation, and judges its answers."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from icechunk_kit.case import Case, Step, matches, substitute

OUTCOMES = ("passed", "failed", "unsupported")


@dataclass(frozen=True, slots=True)
class Result:
    """What one case gave: an outcome, and for a failure the step, the expectation and the answer."""

    case: Case
    outcome: str
    detail: str = ""
    seconds: float = 0.0


class AdapterFailure(Exception):
    """The adapter ended, gave no answer in time, or answered with something that is not JSON."""


@dataclass(slots=True)
class Adapter:
    """The process of an adapter. It starts with the first request, and again after a failure."""

    command: Sequence[str]
    name: str = ""
    _process: subprocess.Popen[str] | None = None
    _lines: queue.Queue[str] = field(default_factory=queue.Queue)

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, request: Step, seconds: float) -> Any:
        """Return the answer to one request."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=seconds)
            answer = json.loads(line) if line else None
        except queue.Empty:
            self.stop()
            raise AdapterFailure(f"no answer within {seconds:g} s") from None
        except (BrokenPipeError, ValueError):
            answer = None
        if not isinstance(answer, dict):
            code = self._process.poll()
            self.stop()
            raise AdapterFailure(f"the adapter ended with status {code}, or its answer is not a line of JSON")
        return answer

    def peak(self, *, reset: bool = False) -> int:
        """Return the largest memory of the process since the last reset, in MiB, or 0 if it is not known."""
        try:
            folder = Path("/proc") / str(self._process.pid if self._process else 0)
            if reset:
                (folder / "clear_refs").write_text("5")
            status = (folder / "status").read_text()
        except OSError:
            return 0
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError), self._process:  # closes the pipes
                pass
            self._process = None

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._lines = queue.Queue()
        threading.Thread(target=_read_lines, args=(self._process.stdout, self._lines), daemon=True).start()
        self.ask({"op": "start", "location": {}}, 120)  # the time of imports is not that of a case


def _read_lines(stream: Iterable[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


def run(adapters: Sequence[Adapter], cases: Iterable[Case]) -> Iterator[Result]:
    """Run cases. A step goes to the adapter whose number is its `who`, by default to the first one."""
    for case in cases:
        start = monotonic()
        folder = Path(tempfile.mkdtemp(prefix="icechunk-kit-"))
        try:
            outcome, detail = _run(adapters, case, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        yield Result(case, outcome, detail, monotonic() - start)


def _run(adapters: Sequence[Adapter], case: Case, folder: Path) -> tuple[str, str]:
    steps = case.build(folder)
    names: dict[str, Any] = {}
    for number, step in enumerate(steps, 1):
        who = adapters[step.get("who", 0) % len(adapters)]
        request = {
            key: substitute(value, names)
            for key, value in step.items()
            if key not in ("expect", "who", "at", "containers")
        }
        request["location"] = {"path": str(folder / step.get("at", ""))}
        if "containers" in step:
            request["location"]["containers"] = step["containers"]
        before = who.peak(reset=True)
        try:
            answer = who.ask(request, case.seconds)
        except AdapterFailure as failure:
            return "failed", f"step {number}, {step['op']}: {failure}"
        memory = who.peak() - before if before else 0
        if answer.get("unsupported"):
            return "unsupported", f"step {number}: {step['op']}"
        if not _accepts(step.get("expect", "*"), answer, names):
            return (
                "failed",
                f"step {number}, {json.dumps(step)[:600]}: the answer is {json.dumps(answer)[:600]}",
            )
        if memory > case.mebibytes:
            return (
                "failed",
                f"step {number}, {step['op']}: {memory} MiB of memory, the bound is {case.mebibytes}",
            )
    return "passed", ""


def _accepts(expected: Any, answer: Any, names: dict[str, Any]) -> bool:
    if isinstance(expected, dict) and "any" in expected:
        return any(_accepts(each, answer, names) for each in expected["any"])
    if isinstance(expected, dict) and "error" in expected:
        kinds, kind = expected["error"], answer.get("error", {}).get("kind", "panic")
        return kind != "panic" if kinds == "*" else kind in kinds
    return "value" in answer and matches(expected, answer["value"], names)

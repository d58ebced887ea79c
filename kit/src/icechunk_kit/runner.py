"""Runs cases with the adapter of an implementation, and judges its answers."""

from __future__ import annotations

import io
import json
import queue
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import IO, Any

from icechunk_kit.case import Case, KitError, Step, matches, substitute
from icechunk_kit.checks import check, fields
from icechunk_kit.store import Store

#: The members of a step that are not of the request.
OWN = ("expect", "who", "at", "containers")
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
    _process: subprocess.Popen[str] | None = None
    _lines: queue.Queue[str] = field(default_factory=queue.Queue)
    #: The standard error, and where it ended at the last answer.
    _errors: IO[bytes] = field(default_factory=io.BytesIO)
    _mark: int = 0

    def __enter__(self) -> Adapter:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ask(self, request: Step, seconds: float) -> Any:
        """Return the answer to one request."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        line = ""
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
            if line:
                self.stop()
                raise AdapterFailure(f"the answer is not an object of JSON in one line: {line.strip()[:200]}")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            ending = f"status {self._process.poll()}: {self._last_words()}"
            self.stop()
            raise AdapterFailure(f"the adapter ended with {ending}")
        self._mark = self._errors.seek(0, 2)
        return answer

    def _last_words(self) -> str:
        """Return the last line of the standard error since the last answer."""
        self._errors.seek(max(self._mark, self._errors.seek(0, 2) - 2000))
        lines = re.sub("\x1b\\[[0-9;]*m", "", self._errors.read().decode("utf-8", "replace")).split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed no error")

    def peak(self, *, reset: bool = False) -> int:
        """Return the largest memory since the last reset, in MiB. 0 where the system has no number."""
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
            self._errors.close()

    def _start(self) -> None:
        pipe, self._errors, self._mark = subprocess.PIPE, tempfile.TemporaryFile(), 0  # noqa: SIM115 - `stop` closes it
        try:
            self._process = subprocess.Popen(
                self.command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True, errors="replace"
            )
            self._lines = queue.Queue()
            arguments = (self._process.stdout, self._lines)
            threading.Thread(target=_read_lines, args=arguments, daemon=True).start()
            self.ask({"op": "start", "location": {}}, 120)  # the time of imports is not that of a case
        except (OSError, IndexError, AdapterFailure) as error:  # IndexError: no command
            self._errors.close()
            raise KitError(f"the adapter does not start: {shlex.join(self.command)}: {error}") from None


def _read_lines(stream: Iterable[str], lines: queue.Queue[str]) -> None:
    with suppress(ValueError, OSError):  # `stop` closes the stream
        for line in stream:
            lines.put(line)
    lines.put("")


def run(adapters: Sequence[Adapter], cases: Iterable[Case], patience: float = 1) -> Iterator[Result]:
    """Run cases. A step goes to the adapter whose number is its `who`, by default to the first one.

    Args:
        patience: Multiplies the bounds of time, for a machine that is slow or busy.
    """
    with Adapter(adapters[-1].command) as rival:
        for case in cases:
            start, limited = monotonic(), replace(case, seconds=case.seconds * patience)
            folder = Path(tempfile.mkdtemp(prefix="icechunk-kit-"))
            try:
                outcome, detail = _run(adapters, rival, limited, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            yield Result(case, outcome, detail, monotonic() - start)


def _run(adapters: Sequence[Adapter], rival: Adapter, case: Case, folder: Path) -> tuple[str, str]:
    steps = case.build(folder)
    names: dict[str, Any] = {}
    rivals: list[tuple[str, str]] = []

    def perform(step: Step, who: Adapter) -> tuple[str, str]:
        return _step(step, who, case, location, names)

    store = Store(folder, lambda step: rivals.append(perform(step, rival)))
    with store if case.store else nullcontext():
        location = {"s3": store.location} if case.store else {"path": str(folder)}
        for number, step in enumerate(steps, 1):
            if any(fault.get("steps") for fault in step.get("faults", ())):
                perform({"op": "nothing"}, rival)  # its process must run when the other client waits for it
            if step["op"].startswith("kit."):
                try:
                    answer = {"value": _own(store, substitute(step, names))}
                except Exception as error:  # a file that is no file of Icechunk
                    answer = {"value": f"the files cannot be read: {type(error).__name__}: {error}"}
                outcome, detail = "passed", ""
                if not _accepts(step.get("expect", "*"), answer, names):
                    outcome, detail = "failed", f"{json.dumps(step)[:600]}: {json.dumps(answer)[:600]}"
            else:
                outcome, detail = perform(step, adapters[step.get("who", 0) % len(adapters)])
            problems = [each for each in [*rivals, (outcome, detail)] if each[0] != "passed"]
            if problems:
                return problems[0][0], f"step {number}: {problems[0][1]}"
        for fault in store.before + store.faults:
            if not fault.has_happened:
                return "unsupported", f"no request met the fault {fault.effect} of {fault.method} {fault.key}"
    return "passed", ""


def _own(store: Store, step: Step) -> Any:
    """Perform a step of the kit itself."""
    folder = store.root / step.get("at", "")
    match step["op"]:
        case "kit.fault":
            return store.plan(step["faults"])
        case "kit.check":
            return check(folder, step.get("rules"))
        case "kit.fields":
            return fields(folder, step["kind"], step["id"], step["path"])
        case "kit.now":
            now = time_ns() // 1000
            sleep(0.02)  # the times of files come from a clock that is up to 10 ms behind
            return now
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    files = [name for name in files if re.match(step["key"], name) and "#" not in name]
    if step["op"] == "kit.remove":
        for name in files:
            (folder / name).unlink()
    return files


def _step(step: Step, who: Adapter, case: Case, location: Any, names: dict[str, Any]) -> tuple[str, str]:
    """Make one request, and judge its answer."""
    request = {key: substitute(value, names) for key, value in step.items() if key not in OWN}
    request["location"] = {**location, **{key: step[key] for key in ("containers",) if key in step}}
    if "path" in location:
        request["location"]["path"] = str(Path(location["path"]) / step.get("at", ""))
    before = who.peak(reset=True)
    try:
        answer = who.ask(request, case.seconds)
    except AdapterFailure as failure:
        return "failed", f"{step['op']}: {failure}"
    memory = who.peak() - before if before else 0
    if answer.get("unsupported"):
        return "unsupported", step["op"]
    if not _accepts(step.get("expect", "*"), answer, names):
        return "failed", f"{json.dumps(step)[:600]}: the answer is {json.dumps(answer)[:600]}"
    if memory > case.mebibytes:
        return "failed", f"{step['op']}: {memory} MiB of memory, the bound is {case.mebibytes}"
    return "passed", ""


def _accepts(expected: Any, answer: Any, names: dict[str, Any]) -> bool:
    if isinstance(expected, dict) and "any" in expected:
        return any(_accepts(each, answer, names) for each in expected["any"])
    if isinstance(expected, dict) and "error" in expected:
        kinds, kind = expected["error"], answer.get("error", {}).get("kind", "panic")
        return kind != "panic" if kinds == "*" else kind in kinds
    return "value" in answer and matches(expected, answer["value"], names)

"""Answers that take long, and changes: commands of Frazil, in processes that end with their clients.

A change that the page asks for is an action with arguments. Its plan is the rehearsal of a command
(``--dry-run``). The answer has what would change, and the same change with what the rehearsal found: the id
of the version, the tip of the branch, the update to undo. The page sends this change back to apply it. So the
server remembers nothing, and the command refuses a state that differs.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.errors import InvalidInputError
from frazil.repository.target import Target
from frazil.ui.files import ID

#: How many answers are computed at the same time.
_AT_ONCE: Final = 2
#: Seconds between two looks at the client, and until a process that should end is killed.
_PAUSE: Final = 0.2
_GRACE: Final = 5


#: The name of an answer -> its command, and whether it is about a node.
COMMANDS: Final = {
    "verify": (("verify",), False),
    "statistics": (("stats",), False),
    "sizes": (("du", "--all"), True),
    "blame": (("blame",), True),
    "history-of": (("history",), True),
    "jobs": (("job", "status"), False),
    "status": (("status",), False),
}


def answer_command(name: str, target: Target, query: Mapping[str, str]) -> list[str] | None:
    """Return the arguments of the command for an answer, from the server's target; None for no answer."""
    if name not in COMMANDS:
        return None
    words, is_about_node = COMMANDS[name]
    at = Target(target.location)
    if is_about_node:
        version = query.get("version") or target.version
        at = replace(target, version=version, path=query.get("path") or "/")
    options = [f"--level={query.get('level', 'metadata')}"] if name == "verify" else []
    cell = [query.get("cell", "")] if name == "history-of" else []
    return [*words, "--json", *options, "--", str(at), *cell]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The JSON that a command has printed: its answer, or its error."""

    text: bytes
    is_answer: bool

    @property
    def kind(self) -> str:
        """The kind of the error."""
        return str(json.loads(self.text)["error"]["kind"])


class CommandProcesses:
    """The processes of slow answers, a few at the same time."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(_AT_ONCE)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def run(self, arguments: list[str], is_gone: Callable[[], bool]) -> CommandResult | None:
        """Return what a command prints. None if too many run.

        Raises ``ConnectionAbortedError`` if the client has gone.
        """
        if any("\0" in each for each in arguments):
            raise InvalidInputError("a query must not contain the character NUL, got one")
        if not self._free.acquire(blocking=False):
            return None
        try:
            # -P: no module of the current folder. A session of its own: Ctrl-C is only for the server.
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


def _result(process: subprocess.Popen[bytes], is_gone: Callable[[], bool]) -> CommandResult:
    while not is_gone():
        with suppress(subprocess.TimeoutExpired):
            output, errors = process.communicate(timeout=_PAUSE)
            if output:  # also of `verify` with the status 1, which is an answer with problems
                return CommandResult(output, True)
            last = errors.strip().rpartition(b"\n")[2]
            with suppress(ValueError):
                json.loads(last)
                return CommandResult(last, False)
            return CommandResult(b'{"error": {"kind": "other", "message": "the command has ended"}}', False)
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


#: An argument -> the form of its text.
_FORMS: Final = {
    "name": re.compile(r".{1,1000}", re.DOTALL),
    "branch": re.compile(r".{1,1000}", re.DOTALL),
    "version": re.compile(r".{1,1000}", re.DOTALL),
    "tip": re.compile(ID),
    "message": re.compile(r".{1,10000}", re.DOTALL),
    "conflicts": re.compile(r"elements|source|branch|fail"),
    "update": re.compile(r"[0-9T:.-]{1,40}Z"),
}
#: The arguments that are options of commands.
_OPTIONS: Final = frozenset({"tip", "message", "conflicts", "update"})
#: What a plan saw: without it, a change cannot be applied.
_STATE: Final = frozenset({"tip", "update"})
_NONE: Final = frozenset[str]()
_NEW_NAME: Final = (frozenset({"name", "version"}), _NONE)
_INTEGRATION: Final = (frozenset({"branch", "version"}), frozenset({"tip", "message", "conflicts"}))
#: An action, which is a command -> the arguments that it needs, and those that it may have.
_ACTIONS: Final = {
    "branch": _NEW_NAME,
    "tag": _NEW_NAME,
    "merge": _INTEGRATION,
    "revert": _INTEGRATION,
    "undo": (_NONE, frozenset({"update"})),
}


@dataclass(frozen=True, slots=True)
class Change:
    """An action with its arguments, which are texts."""

    action: str
    texts: Mapping[str, str]

    @staticmethod
    def of(document: Any, *, is_plan: bool) -> Change:
        """Return the change that a request describes. To be applied, it must name what its plan saw."""
        texts = dict(document) if isinstance(document, dict) else {}
        action = texts.pop("action", None)
        if not isinstance(action, str) or action not in _ACTIONS:
            raise _invalid(f"`action` must be one of {', '.join(_ACTIONS)}, got {action!r:.80}")
        needed, possible = _ACTIONS[action]
        if not is_plan:
            needed |= possible & _STATE
        if not needed <= texts.keys() <= needed | possible:
            names = ", ".join(sorted(needed))
            raise _invalid(f"the action {action} needs {names}, got {', '.join(texts) or 'nothing'!r:.200}")
        for name, text in texts.items():
            form = _FORMS["tip" if name == "version" and not is_plan else name]
            if not isinstance(text, str) or not form.fullmatch(text):
                raise _invalid(f"`{name}` must be a text of the form {form.pattern}, got {text!r:.80}")
        return Change(action, texts)

    def arguments(self, target: Target, *, is_plan: bool) -> list[str]:
        """Return the arguments of the command that rehearses or makes the change."""
        texts = self.texts
        options = [f"--{name}={texts[name]}" for name in sorted(_OPTIONS & texts.keys())]
        mode = "--dry-run" if is_plan else "--yes"  # the plan has shown what would be lost
        version = texts.get("version")
        at = Target(target.location, texts.get("branch", version))
        names = filter(None, [texts.get("name", version)])
        return [self.action, "--json", mode, *options, "--", str(at), *names]


def planned(change: Change, rehearsal: CommandResult) -> CommandResult:
    """Return the plan of a change: what would change, and the change to apply. A plan counts chunks."""
    document = json.loads(rehearsal.text)
    if change.action == "undo":
        state = {"update": document["updates"][0]["time"]}
    else:
        state = {"version": document.get("source", document["id"])}
    if "before" in document:
        state["tip"] = document["before"]
        if change.action == "merge" and document["id"] != document["source"]:
            state["message"] = document["message"]  # which names the merged branch
        chunks = document["changes"].get("updated_chunks", {})
        document["changes"]["updated_chunks"] = {path: len(rows) for path, rows in chunks.items()}
    apply = {"action": change.action, **replace(change, texts={**change.texts, **state}).texts}
    return CommandResult(json.dumps({"plan": document, "apply": apply}).encode(), True)


def _invalid(text: str) -> InvalidInputError:
    return InvalidInputError(f"{text}. Reload the page")

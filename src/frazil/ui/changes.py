"""Changes that the page asks for: the actions that exist, their arguments, and their plans.

A plan is the rehearsal of a command (``--dry-run``). The answer has what would change, and the same change
with what the rehearsal saw: the id of the version, the tip of the branch, the update to undo. The page sends
this change back to apply it. So the server remembers nothing, and the command refuses a state that differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.target import Target
from frazil.ui.commands import Result
from frazil.ui.files import ID

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


def planned(change: Change, rehearsal: Result) -> Result:
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
    return Result(json.dumps({"plan": document, "apply": apply}).encode(), True)


def _invalid(text: str) -> InvalidInputError:
    return InvalidInputError(f"{text}. Reload the page", ErrorKind.INVALID_ARGUMENT)

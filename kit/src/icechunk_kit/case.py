"""A case: files that the kit writes, and the requests to an implementation with the answers that must come.

A step is a request: `op`, its arguments, and `expect`. A step without `expect` must succeed. `expect` is
compared with the answer: the text "*" stands for anything, and "$name" for a value that is the same in each
place of the case. `{"error": [...]}` expects an error of one of these kinds, `{"error": "*"}` any error
except a panic, and `{"any": [...]}` one of several answers. Bytes are hexadecimal text. `at` names the
folder of the repository inside the folder of the case, and `containers` the prefixes of virtual chunks.
`who` is the number of the implementation. An operation `kit.NAME` is a step of the kit itself: a fault, a
check of the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

type Step = dict[str, Any]

LEVELS = ("reader", "writer", "maintainer")
VERSIONS = ("1", "2.0", "2.1")
#: Why a case has its expectation: a sentence of the specification decides, the text is silent and existing
#: repositories decide, or a file is damaged and an implementation must survive it.
GROUNDS = ("sentence", "silent", "robustness")


class KitError(Exception):
    """A request, an adapter or a case that the kit cannot use. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        id: Words with dots, for example `read.header.magic`. It never changes.
        level: What an implementation does that must pass this case: one of `LEVELS`.
        version: The version of the format in which the case is written: one of `VERSIONS`.
        rule: The sentence of the specification that decides, or the word "silent" or "robustness".
        why: What goes wrong for a user when an implementation fails here.
        build: Writes the files into a folder, and returns the steps.
        seconds, mebibytes: Bounds of the time and of the additional memory of the adapter.
        store: The files are reached through the kit's object store, not on the file system.
    """

    id: str
    level: str
    version: str
    rule: str
    why: str
    build: Callable[[Path], list[Step]]
    seconds: float = 20.0
    mebibytes: int = 1024
    store: bool = False

    @property
    def ground(self) -> str:
        """One of `GROUNDS`."""
        return self.rule if self.rule in GROUNDS else GROUNDS[0]


CASES: dict[str, Case] = {}
ERROR = {"error": "*"}


def matches(expected: Any, actual: Any, names: dict[str, Any]) -> bool:
    """Compare an answer with what a step expects. `names` holds the values of "$name"."""
    if expected == "*":
        return True
    if isinstance(expected, str) and expected.startswith("$"):
        return bool(names.setdefault(expected, actual) == actual)
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(
            matches(expected[key], actual[key], names) for key in expected
        )
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(
            matches(e, a, names) for e, a in zip(expected, actual, strict=True)
        )
    return bool(expected == actual and isinstance(expected, bool) == isinstance(actual, bool))


def substitute(value: Any, names: dict[str, Any]) -> Any:
    """Replace "$name" in a request by its value."""
    if isinstance(value, str) and value.startswith("$"):
        return names.get(value, value)
    if isinstance(value, dict):
        return {key: substitute(each, names) for key, each in value.items()}
    return [substitute(each, names) for each in value] if isinstance(value, list) else value

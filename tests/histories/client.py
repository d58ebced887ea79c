"""A worker as a client of the repository: its random numbers, and calls between two lines of its log."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.histories.layout import SLOTS
from tests.histories.log import LogFile, Outcome, as_lists

import frazil
from frazil.errors import IcechunkError, OutcomeUnknownError

#: A solver that prefers the changes of the session.
OURS: Final = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)


@dataclass
class Client:
    """One worker: its handle on the repository, its log, and its random numbers."""

    name: str
    first_number: int
    repo: frazil.Repository
    log: LogFile
    random: random.Random
    calls: int = 0

    def mark(self) -> str:
        """Return a text that no other operation has."""
        self.calls += 1
        return f"{self.name}.{self.calls}"

    def number(self) -> int:
        """Return the number that the present operation writes. No other operation writes it."""
        return self.first_number + self.calls

    def run(self, kind: str, call: Callable[[str], dict[str, Any] | None], **values: Any) -> None:
        """Make a call between two lines of the log. ``call`` gets the mark and returns values of the answer.

        The answer None means that there was nothing to do.
        """
        mark = self.mark()
        if "changes" in values:
            values["changes"] = as_lists(values["changes"])
        self.log.begin(mark, kind, **values)
        try:
            answer = call(mark)
        except OutcomeUnknownError as error:
            self.log.end(mark, Outcome.UNKNOWN, error=str(error.kind), snapshot=error.snapshot)
        except IcechunkError as error:
            self.log.end(mark, Outcome.REFUSED, error=f"{type(error).__name__} {error.kind}")
        except Exception as error:
            self.log.end(mark, Outcome.UNKNOWN, error=f"{type(error).__name__}: {error}"[:300])
        else:
            self.log.end(mark, Outcome.NOTHING if answer is None else Outcome.OK, **(answer or {}))

    def branch(self) -> str:
        """Return a branch, most often `main`."""
        return "main" if self.random.random() < 0.6 else self.random.choice(sorted(self.repo.list_branches()))

    def side_branch(self) -> str | None:
        """Return a branch other than `main`, or None."""
        names = sorted(self.repo.list_branches() - {"main"})
        return self.random.choice(names) if names else None

    def slots(self, most: int = 3) -> dict[int, int]:
        """Return the number of the next operation for some slots."""
        number = self.number() + 1
        return dict.fromkeys(self.random.sample(range(SLOTS), self.random.randint(1, most)), number)

    def create_tag(self, target: str) -> None:
        """Create a tag on a version."""
        name = f"t{self.name}-{self.calls + 1}"
        change = without_values(lambda: self.repo.create_tag(name, target))
        self.run("create-tag", change, ref=name, target=target)


def time_before(seconds: float) -> datetime:
    """Return the time so many seconds ago."""
    return datetime.now(UTC) - timedelta(seconds=seconds)


def without_values(change: Callable[[], object]) -> Callable[[str], dict[str, Any]]:
    """Return a call whose answer is that it succeeded, without values."""

    def call(_mark: str) -> dict[str, Any]:
        change()
        return {}

    return call


def if_new(client: Client, mark: str, snapshot: str) -> dict[str, Any] | None:
    """Return the answer of a call that can return the present tip, if there is nothing to do."""
    return {"snapshot": snapshot} if client.repo.lookup_snapshot(snapshot).message == mark else None

"""The progress of maintenance, as jobs report it: the number of steps, and each finished step.

A step is the read of a snapshot or a manifest, a request that deletes files, or an update of the repository.
``frazil.pipeline.Progress`` is such an object. An object of the caller needs only the two methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from frazil.arguments import require_progress


class Progress(Protocol):
    """The methods that maintenance calls. Calls come from the thread of the caller."""

    def expect(self, tasks: int) -> None:
        """Announce steps."""

    def advance(self, *, bytes: int = 0) -> None:
        """Count one more finished step."""


class _Silent:
    """Reports nothing."""

    def expect(self, tasks: int) -> None:
        """Ignore the steps."""

    def advance(self, *, bytes: int = 0) -> None:
        """Ignore the step."""


NO_PROGRESS: Final[Progress] = _Silent()


@contextmanager
def one_step(progress: Progress) -> Iterator[None]:
    """Report the block as one step.

    >>> with one_step(NO_PROGRESS):
    ...     pass
    """
    progress.expect(1)
    yield
    progress.advance()


def progress_of(progress: Progress | None) -> Progress:
    """Return the argument ``progress`` of a public function, or an object that reports nothing.

    >>> progress_of(None) is NO_PROGRESS
    True
    """
    require_progress(progress, "expect", "advance")
    return NO_PROGRESS if progress is None else progress

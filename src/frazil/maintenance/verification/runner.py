"""The run of pieces of work: in batches, with progress, without the elements that the state has as done."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from frazil.maintenance.progress import Progress
from frazil.maintenance.verification.pieces import Piece, Run
from frazil.maintenance.verification.verification_state import VerificationState


@dataclass(frozen=True, slots=True)
class Recorded[E, R]:
    """How the results of elements are recorded in the state.

    key     the key of an element, or None for an element that is always done again
    dump    a result as bytes, or None for a result with findings, which is not recorded
    load    the result of an element from these bytes
    """

    key: Callable[[E], bytes | None]
    dump: Callable[[R], bytes | None]
    load: Callable[[E, bytes], R]


@dataclass(slots=True)
class Runner:
    """A run of pieces. ``resumed`` counts the elements that the state has as done."""

    run: Run
    state: VerificationState | None = None
    progress: Progress | None = None
    resumed: int = 0

    def results(
        self,
        piece: Piece,
        elements: Sequence[Any],
        batches: Callable[[Sequence[Any]], Sequence[Sequence[Any]]],
        *,
        shared: Any = None,
        recorded: Recorded[Any, Any] | None = None,
    ) -> Iterator[Any]:
        """Yield the results of a piece for all elements, in any order."""
        if self.state is not None and recorded is not None:
            left = []
            for element in elements:
                result = self._recorded(element, recorded)
                if result is None:
                    left.append(element)
                else:
                    self.resumed += 1
                    yield result[0]
            elements = left
        groups = batches(elements)
        if self.progress is not None:
            self.progress.expect(len(groups))
        answers = self.run(piece, [(shared, group) for group in groups])
        for group in groups:
            answer = list(islice(answers, len(group)))
            if self.state is not None and recorded is not None:
                self._record(group, answer, recorded)
            if self.progress is not None:
                self.progress.advance()
            yield from answer

    def _recorded(self, element: Any, recorded: Recorded[Any, Any]) -> tuple[Any] | None:
        assert self.state is not None
        key = recorded.key(element)
        data = None if key is None else self.state.find_result(key)
        if data is None:
            return None
        try:
            return (recorded.load(element, data),)
        except (ValueError, zlib.error):  # the file of the state is damaged: do the piece again
            return None

    def _record(self, group: Sequence[Any], answer: list[Any], recorded: Recorded[Any, Any]) -> None:
        assert self.state is not None
        for element, result in zip(group, answer, strict=True):
            key, data = recorded.key(element), recorded.dump(result)
            if key is not None and data is not None:
                self.state.store_result(key, data)


__all__ = ["Recorded", "Runner"]

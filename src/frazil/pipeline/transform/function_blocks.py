"""The blocks of `map_blocks`: a task reads the inputs of a block, with their halo, and calls the function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.memory import slabs
from frazil.jobs.parallel_write import Block
from frazil.pipeline.transform.array_info import ArrayInfo, Shape, Values, open_array
from frazil.pipeline.transform.halo import Boundary, Margins, read_with_halo, without_margins
from frazil.repository.session.session import Session

_NUMBERS: Final = frozenset("biufc")


@dataclass(frozen=True, slots=True)
class InputGrid:
    """The grid of the inputs, which is that of the ``first``, and how the grid of the results differs."""

    first: ArrayInfo
    margins: Margins | None
    dropped: frozenset[int]
    new: dict[str, int]

    @property
    def axes(self) -> list[int]:
        """The axes of the first input that the results have."""
        return [axis for axis in range(self.first.ndim) if axis not in self.dropped]

    def arranged[T](self, new: Sequence[T], values: Sequence[T]) -> tuple[T, ...]:
        """Return a value for each axis of a result: of its ``new`` axes, then of the first input's axes."""
        return (*new, *(values[axis] for axis in self.axes))


@dataclass(frozen=True, slots=True)
class FunctionBlocks:
    """Call the function for a block: see `frazil.pipeline.transform.block_job.Compute`.

    ``axes`` are, for each input, the axes of the first input that it has. ``path`` is that of the first
    result. ``dtypes`` are those of the results, None where the caller gives one.
    """

    function: Callable[..., Any]
    grid: InputGrid
    paths: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]
    boundary: Boundary
    path: str
    takes_block: bool
    dtypes: tuple[np.dtype[Any] | None, ...]

    def __call__(self, session: Session, start: Shape, stop: Shape) -> Sequence[Values]:
        """Return the results of the function for a block."""
        inputs = self._inputs(session, start, stop)
        keywords = {"block": Block(self.path, start, stop)} if self.takes_block else {}
        returned, count = self.function(*inputs, **keywords), len(self.dtypes)
        blocks = [returned] if count == 1 and not isinstance(returned, tuple) else list(returned)
        if len(blocks) != count:
            raise InvalidInputError(
                f"The function must return {count} arrays, got {len(blocks)}",
                ErrorKind.INVALID_ARRAY_METADATA,
            )
        out = [self._trimmed(np.asarray(each)) for each in blocks]
        for block, dtype in zip(out, self.dtypes, strict=True):
            if dtype is not None:
                _require_fit(self.path, block, dtype)
        return out

    def _inputs(self, session: Session, start: Shape, stop: Shape) -> list[Values]:
        shape = self.grid.first.shape
        spans = list(zip(start, stop, strict=True))[len(self.grid.new) :]
        for axis in sorted(self.grid.dropped):
            spans.insert(axis, (0, shape[axis]))
        all_margins = self.grid.margins or ((0, 0),) * len(shape)
        inputs = []
        for path, axes in zip(self.paths, self.axes, strict=True):
            margins = [all_margins[axis] for axis in axes]
            array = open_array(session, path)
            values = read_with_halo(array, [spans[axis] for axis in axes], margins, self.boundary)
            index = tuple(slice(None) if axis in axes else None for axis in range(len(shape)))
            inputs.append(values[index])
        return inputs

    def _trimmed(self, block: Values) -> Values:
        if self.grid.margins is None:
            return block
        margins = self.grid.arranged([], self.grid.margins)
        if block.ndim != len(self.grid.new) + len(margins):
            return block  # the job refuses it
        return without_margins(block, margins, len(self.grid.new))


def _require_fit(path: str, block: Values, dtype: np.dtype[Any]) -> None:
    """Raise ``InvalidInputError`` for values that change when they are stored as ``dtype``.

    Floats may be rounded to shorter floats.
    """
    actual = block.dtype
    if dtype.kind not in _NUMBERS or np.can_cast(actual, dtype) or not block.ndim:
        return  # the job refuses a block without dimensions
    if actual.kind in _NUMBERS:
        if dtype.kind in "fc" and np.can_cast(actual, dtype, "same_kind"):
            return
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            parts = (block[part] for part in slabs(block.shape, block.itemsize))
            if all((part.astype(dtype) == part).all() for part in parts):
                return
    raise InvalidInputError(
        f"The values of `{path}` must fit into {dtype}, got a block of {actual} with values that do not. "
        "Pass dtype= to map_blocks, or convert the values in the function",
        ErrorKind.INVALID_ARRAY_METADATA,
    )

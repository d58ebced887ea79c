"""The selection of cells on the command line: by index as in Python, or by the labels of coordinates.

==============================  ======================================================================
``0,:4,::2``                    an index, or START:STOP:STEP, for each dimension
``...,-1``                      the last index of the last dimension
``time=2026-11-01T06,lat=10``   labels of coordinates; a dimension without a label is whole
==============================  ======================================================================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from frazil.cli.argument_types import reader_option
from frazil.extras import needs
from frazil.lazy_names import value_of

if TYPE_CHECKING:
    from frazil.repository.session.session import Session

type Labels = dict[str, Any]
type Indices = tuple[Any, ...]

_PART: Final = re.compile(r"\s*(?:(-?\d+)|(-?\d*)\s*:\s*(-?\d*)(?:\s*:\s*(\d*))?|(\.\.\.))\s*")
#: Functions of the extra `pipeline`.
_ARRAY_INFO: Final = "frazil.pipeline.transform.array_info:array_info"
_POSITIONS: Final = "frazil.pipeline.transform.positions:positions_by_label"


class Selection(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of a selection: a tuple of indices and slices, or labels by the names of dimensions."""

    name = "slice"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Indices | Labels:
        """Return the selection of the text; a wrong text is wrong usage."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # the default
        if "=" in value:
            return dict(map(reader_option, filter(None, value.split(","))))
        matches = [_PART.fullmatch(each) for each in value.split(",")]
        if any(match is None or match[4] == "0" for match in matches):
            self.fail(
                f"must be indices and slices such as 0,:4,::2, or labels such as lat=10, got {value!r}",
                param,
                ctx,
            )
        return tuple(_selector(match) for match in matches if match is not None)


SELECTION: Final = Selection()


def _selector(match: re.Match[str]) -> Any:
    if match[1] is not None:
        return int(match[1])
    if match[5] is not None:
        return Ellipsis
    return slice(*(int(each) if each else None for each in match.group(2, 3, 4)))


def indices_of(session: Session, path: str, selection: Indices | Labels) -> Indices:
    """Return the indices and slices of a selection."""
    if isinstance(selection, tuple):
        return selection
    with needs("a selection by labels", extra="pipeline"):
        array_info, positions = map(value_of, (_ARRAY_INFO, _POSITIONS))
    array = array_info(session, path)
    if unknown := sorted(set(selection).difference(filter(None, array.dims))):
        names = ", ".join(filter(None, array.dims)) or "no names"
        raise click.UsageError(f"no dimension {', '.join(unknown)} in {path}: its dimensions have {names}")
    return tuple(
        _index(positions(session, array, dim, selection[dim], None)) if dim in selection else slice(None)
        for dim in array.dims
    )


def _index(positions: Any) -> Any:
    """Return positions as an index of numpy and zarr: one position is a number, a range is a slice."""
    if not isinstance(positions, int) and len(positions) == 1:
        return positions[0]
    if isinstance(positions, range):
        return slice(positions.start, positions.stop)
    return positions if isinstance(positions, int) else list(positions)


def selected_shape(shape: tuple[int, ...], indices: Indices) -> tuple[int, ...]:
    """Return the shape of a selection, without its values. A wrong selection is wrong usage."""
    try:
        return np.broadcast_to(np.uint8(0), shape)[indices or ...].shape
    except IndexError as error:
        raise click.UsageError(f"the array has the shape {list(shape)}: {error}") from error

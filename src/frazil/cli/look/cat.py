"""``frazil cat``: values of an array."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import click
import numpy as np
import zarr

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import open_version
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Print values of an array as text: a line for each row of the last dimension, values separated by spaces.
SLICE selects them as in Python: an index, or START:STOP:STEP, for each dimension, separated by commas.

The command refuses to print more than a million values without --all."""

_EXAMPLES: Final = """\
frazil cat ice:era5/t 0,:2        the first values of the first step
frazil cat ice@v1:era5/time       all values of a coordinate
frazil cat ice:era5/t -1 --json   the last step as nested lists, with its shape and type"""

_MOST: Final = 1_000_000
_PART: Final = re.compile(r"\s*(?:(-?\d+)|(-?\d*)\s*:\s*(-?\d*)(?:\s*:\s*(\d*))?|(\.\.\.))\s*")


class Selection(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of a selection such as ``0,:4,::2``: a tuple of indices and slices."""

    name = "slice"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the selection of the text; a wrong text is wrong usage."""
        if isinstance(value, tuple):
            return value
        matches = [_PART.fullmatch(each) for each in value.split(",")]
        if any(match is None or match[4] == "0" for match in matches):
            self.fail(f"must be indices and slices such as 0,:4,::2, got {value!r}", param, ctx)
        return tuple(_selector(match) for match in matches if match is not None)


def _selector(match: re.Match[str]) -> Any:
    if match[1] is not None:
        return int(match[1])
    if match[5] is not None:
        return Ellipsis
    return slice(*(int(each) if each else None for each in match.group(2, 3, 4)))


@verb("cat", description=_DESCRIPTION, examples=_EXAMPLES, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@VERSION]:PATH")
@click.argument("selection", type=Selection(), default=(), metavar="[SLICE]")
@click.option("--all", "everything", is_flag=True, help="Also print more than a million values.")
def command(output: Output, target: Target, selection: tuple[Any, ...], everything: bool) -> None:
    """Print the values."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    version = open_version(target)
    session = version.repo.readonly_session(snapshot_id=version.id)
    session.workspace.nodes.require_array(version.path)
    array = zarr.open_array(session.store, path=version.path, mode="r")
    shape = _selected_shape(array.shape, selection)
    if math.prod(shape) > _MOST and not everything:
        raise click.UsageError(
            f"the selection has {math.prod(shape):,} values, expected at most {_MOST:,}. Pass a SLICE, or "
            "--all"
        )
    values = np.asarray(array[selection or ...])
    document = {
        "path": version.path,
        "version": version.id,
        "dtype": str(values.dtype),
        "shape": list(values.shape),
        "values": values.astype(str).tolist() if values.dtype.kind in "mM" else values,
    }
    output.emit(document, _lines(values), pages=True)


def _selected_shape(shape: tuple[int, ...], selection: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the shape of a selection, without its values. A wrong selection is wrong usage."""
    try:
        return np.broadcast_to(np.uint8(0), shape)[selection or ...].shape
    except IndexError as error:
        raise click.UsageError(f"the array has the shape {list(shape)}: {error}") from error


def _lines(values: np.ndarray[Any, Any]) -> Iterator[str]:
    rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    for row in rows:
        yield " ".join(map(str, row.tolist() if row.dtype.kind not in "mMfc" else row))

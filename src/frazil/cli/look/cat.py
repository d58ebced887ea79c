"""``frazil cat``: values of an array, as text or as a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from frazil.cli.cells import Axis, Cells, OpenArray, lines_of, raw_option
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import open_version
from frazil.cli.output import Output
from frazil.cli.pictures import lines_of_picture, png_of
from frazil.cli.selections import SELECTION, Indices, Labels, indices_of, selected_shape
from frazil.cli.target import Target
from frazil.repository.handle.sessions import readonly_session_of

_DESCRIPTION: Final = """\
Print values of an array as text, with their units and, for one or two dimensions, the labels of coordinates.
Values are decoded by the CF conventions: packing (scale_factor, add_offset), missing values, booleans, times.
--raw prints the stored elements. SLICE selects cells: an index, or START:STOP:STEP as in Python, for each
dimension, separated by commas; or labels of coordinates, NAME=LABEL,... (this needs the extra `pipeline`).

--plot and --png draw one or two dimensions: low values are dark, high values are bright, missing values are
empty. North is at the top: rows of ascending latitudes are drawn in the reverse order. The command refuses to
read more than a million values without --all."""

_EXAMPLES: Final = """\
frazil cat ice:era5/t 0,:2         the first values of the first step
frazil cat ice@v1:era5/time        all values of a coordinate
frazil cat ice:era5/t time=2       the values at a label
frazil cat ice:era5/t 0 --raw      the stored elements
frazil cat ice:era5/t --plot       a picture in the terminal
frazil cat ice:era5/t --png t.png  a picture in a file
frazil cat ice:era5/t -1 --json    the last step as nested lists, with its shape, type and units"""

_MOST: Final = 1_000_000


@verb("cat", description=_DESCRIPTION, examples=_EXAMPLES, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@VERSION]:PATH")
@click.argument("selection", type=SELECTION, default=(), metavar="[SLICE]")
@click.option("--all", "everything", is_flag=True, help="Also read more than a million values.")
@raw_option
@click.option("--plot", is_flag=True, help="Draw the values in the terminal.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Draw the values in a file.")
def command(
    output: Output,
    target: Target,
    selection: Indices | Labels,
    everything: bool,
    raw: bool,
    plot: bool,
    png: Path | None,
) -> None:
    """Print or draw the values."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    version = open_version(target)
    session = readonly_session_of(version.context, version.info, snapshot_id=version.id)
    opened = OpenArray(session, version.path, raw=raw)
    indices = indices_of(session, version.path, selection)
    shape = selected_shape(opened.array.shape, indices)
    if math.prod(shape) > _MOST and not everything:
        raise click.UsageError(
            f"the selection has {math.prod(shape):,} values, expected at most {_MOST:,}. Pass a SLICE, or "
            "--all"
        )
    elements = opened.elements(indices)
    cells = opened.cells(elements)
    axes = opened.axes(indices)
    document = {
        "path": version.path,
        "version": version.id,
        "dtype": str(elements.dtype),
        "shape": list(elements.shape),
        "units": cells.units or None,
        "coordinates": {each.name: each.labels.documents() for each in axes if each.labels},
    }
    if png is not None:
        png.write_bytes(png_of(_drawn(cells, axes)[0]))
        output.emit({**document, "values": None, "file": str(png)}, [f"wrote {png}"])
        return
    document["values"] = cells.documents()
    if not plot:
        output.emit(document, lines_of(version.path.rpartition("/")[2], cells, axes), pages=True)
        return
    matrix, is_turned = _drawn(cells, axes)
    notes = f" {cells.units}" * bool(cells.units), ", north at the top" * is_turned
    output.emit(document, lines_of_picture(output, matrix, *notes))


def _drawn(cells: Cells, axes: list[Axis]) -> tuple[np.ndarray[Any, Any], bool]:
    """Return values as a matrix of numbers, and whether its rows are in the reverse order.

    Dimensions of length 1 are left out.
    """
    matrix = cells.values.squeeze()
    if matrix.ndim > 2 or matrix.dtype.kind not in "biuf" or not matrix.size:
        raise click.UsageError(
            f"a picture needs numbers with one or two dimensions, got {cells.values.dtype} of shape "
            f"{list(cells.values.shape)}. Pass a SLICE"
        )
    numbers = matrix.astype(np.float64)
    if cells.missing is not None:
        numbers[cells.missing.squeeze()] = np.nan
    long = [each for each in axes if each.positions.size > 1]
    is_turned = matrix.ndim == 2 and long[0].is_northward
    return np.atleast_2d(numbers[::-1] if is_turned else numbers), is_turned

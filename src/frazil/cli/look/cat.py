"""``frazil cat``: values of an array, as text or as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import zarr

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import open_version
from frazil.cli.output import Output
from frazil.cli.pictures import lines_of_picture, png_of
from frazil.cli.selections import SELECTION, Indices, Labels, indices_of, selected_shape
from frazil.cli.target import Target
from frazil.repository.handle.sessions import readonly_session_of

_DESCRIPTION: Final = """\
Print stored values of an array as text: a line for each row of the last dimension, values separated by
spaces. SLICE selects them: an index, or START:STOP:STEP as in Python, for each dimension, separated by
commas; or labels of coordinates, NAME=LABEL,... (this needs the extra `pipeline`).

--plot and --png draw one or two dimensions: low values are dark, high values are bright, NaN is empty.
The command refuses to read more than a million values without --all."""

_EXAMPLES: Final = """\
frazil cat ice:era5/t 0,:2         the first values of the first step
frazil cat ice@v1:era5/time        all values of a coordinate
frazil cat ice:era5/t time=2       the values at a label
frazil cat ice:era5/t --plot       a picture in the terminal
frazil cat ice:era5/t --png t.png  a picture in a file
frazil cat ice:era5/t -1 --json    the last step as nested lists, with its shape and type"""

_MOST: Final = 1_000_000


@verb("cat", description=_DESCRIPTION, examples=_EXAMPLES, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@VERSION]:PATH")
@click.argument("selection", type=SELECTION, default=(), metavar="[SLICE]")
@click.option("--all", "everything", is_flag=True, help="Also read more than a million values.")
@click.option("--plot", is_flag=True, help="Draw the values in the terminal.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Draw the values in a file.")
def command(
    output: Output,
    target: Target,
    selection: Indices | Labels,
    everything: bool,
    plot: bool,
    png: Path | None,
) -> None:
    """Print or draw the values."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    version = open_version(target)
    session = readonly_session_of(version.context, version.info, snapshot_id=version.id)
    session.workspace.nodes.require_array(version.path)
    array = zarr.open_array(session.store, path=version.path, mode="r")
    indices = indices_of(session, version.path, selection)
    shape = selected_shape(array.shape, indices)
    if math.prod(shape) > _MOST and not everything:
        raise click.UsageError(
            f"the selection has {math.prod(shape):,} values, expected at most {_MOST:,}. Pass a SLICE, or "
            "--all"
        )
    values = np.asarray(array[indices or ...])
    document = {
        "path": version.path,
        "version": version.id,
        "dtype": str(values.dtype),
        "shape": list(values.shape),
        "values": values.astype(str).tolist() if values.dtype.kind in "mM" else values,
    }
    if png is not None:
        png.write_bytes(png_of(_drawn(values)))
        output.emit({**document, "values": None, "file": str(png)}, [f"wrote {png}"])
        return
    output.emit(
        document, lines_of_picture(output, _drawn(values)) if plot else _lines(values), pages=not plot
    )


def _drawn(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return values as a matrix of numbers. Dimensions of length 1 are left out."""
    matrix = values.squeeze()
    if matrix.ndim > 2 or matrix.dtype.kind not in "biuf" or not matrix.size:
        raise click.UsageError(
            f"a picture needs numbers with one or two dimensions, got {values.dtype} of shape "
            f"{list(values.shape)}. Pass a SLICE"
        )
    return np.atleast_2d(matrix).astype(np.float64)


def _lines(values: np.ndarray[Any, Any]) -> Iterator[str]:
    rows = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    for row in rows:
        yield " ".join(map(str, row.tolist() if row.dtype.kind not in "mMfc" else row))

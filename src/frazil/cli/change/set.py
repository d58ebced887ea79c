"""``frazil set``: new values for cells of an array."""

from __future__ import annotations

from typing import Any, Final

import click
import numpy as np

from frazil.cli.cells import Cells, OpenArray, raw_option, values_of
from frazil.cli.changes import dry_run_option, emit_tip, message_option, metadata_option, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.selections import SELECTION, Indices, Labels, indices_of, selected_shape
from frazil.cli.target import Target
from frazil.errors import ErrorKind, InvalidInputError

_DESCRIPTION: Final = """\
Set cells of an array to a value, in one commit on a branch. SLICE selects the cells as in `frazil cat`: by
index, or by the labels of coordinates. `...` selects all cells. VALUE is a value as `frazil cat` prints it: a
number, text, an ISO time, a duration such as "90 s", NaN or null for a missing value, or nested lists in JSON
that fit the selection. It is encoded by the CF conventions (packing, missing values, times) and read back
before the commit. A value that the array cannot hold is refused. With --raw, VALUE is the stored element."""

_EXAMPLES: Final = """\
frazil set ice@dev:era5/t 0,1 281.5                 one cell
frazil set ice:era5/t 2:4,0 NaN -m "Remove spikes"  several cells
frazil set ice:era5/t 0 '[1, 2, 3]' --dry-run       a row; only rehearse
frazil set ice:era5/t 0,1 17 --raw                  the stored element"""

_MOST_SHOWN: Final = 5


@verb("set", description=_DESCRIPTION, examples=_EXAMPLES, commits=True, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@click.argument("selection", type=SELECTION, metavar="SLICE")
@click.argument("value")
@raw_option
@message_option
@metadata_option
@dry_run_option
def command(
    output: Output, target: Target, selection: Indices | Labels, value: str, raw: bool, **settings: Any
) -> None:
    """Set the values, and commit."""
    if target.path in (None, "/"):
        raise click.UsageError("name an array: LOCATION[@BRANCH]:PATH")
    path = target.path or "/"
    repo = writable_repository(target, settings["dry_run"])
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    session = repo.writable_session(branch)
    opened = OpenArray(session, path, raw=raw, mode="r+")
    indices = indices_of(session, path, selection)
    shape = selected_shape(opened.array.shape, indices)
    new = np.broadcast_to(values_of(opened.coding, shape, value, path), shape)
    old = opened.elements(indices)
    opened.array[indices] = new
    _check_stored(opened, new, opened.elements(indices))
    session.commit(settings["message"] or f"Set values of {path}", settings["metadata"] or None)
    cells = [opened.cells(each.reshape(-1)[:_MOST_SHOWN]) for each in (old, new)]
    pairs = zip(*(each.texts().tolist() for each in cells), strict=True)
    units = f" {cells[0].units}" if cells[0].units else ""
    more = "" if old.size <= _MOST_SHOWN else f", ... ({old.size:,} cells)"
    line = f"{path}: {', '.join(f'{was} -> {now}{units}' for was, now in pairs)}{more}"
    emit_tip(output, repo, branch, before, dry_run=settings["dry_run"], further=[line])


def _check_stored(opened: OpenArray, new: np.ndarray[Any, Any], stored: np.ndarray[Any, Any]) -> None:
    """Raise ``InvalidInputError`` if the codecs of the array change values, such as those that round."""
    same = np.asarray(stored == new)
    if new.dtype.kind in "fc":
        same |= np.isnan(stored) & np.isnan(new)
    if new.dtype.kind in "mM":
        same |= np.isnat(stored) & np.isnat(new)
    if not same.all():
        given, read = (
            Cells(opened.coding, *opened.coding.decode(each[~same] if each.ndim else each))
            .texts()
            .reshape(-1)[0]
            for each in (new, stored)
        )
        raise InvalidInputError(
            f"{opened.path} must have values that its codecs keep, got {given}, which reads as {read}",
            ErrorKind.INVALID_ARRAY_METADATA,
        )

"""``frazil set``: new values for cells of an array."""

from __future__ import annotations

import json
from typing import Any, Final

import click
import numpy as np
import zarr

from frazil.cli.changes import dry_run_option, emit_tip, message_option, metadata_option, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.selections import SELECTION, Indices, Labels, indices_of, selected_shape
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Set cells of an array to a value, in one commit on a branch. SLICE selects the cells as in `frazil cat`: by
index, or by the labels of coordinates. `...` selects all cells. VALUE is a number, text, a time, or nested
lists in JSON that fit the selection. Values are as they are stored: `frazil cat` shows them."""

_EXAMPLES: Final = """\
frazil set ice@dev:era5/t 0,1 281.5                 one cell
frazil set ice:era5/t 2:4,0 NaN -m "Remove spikes"  several cells
frazil set ice:era5/t 0 '[1, 2, 3]' --dry-run       a row; only rehearse"""

_MOST_SHOWN: Final = 5


@verb("set", description=_DESCRIPTION, examples=_EXAMPLES, commits=True, ignore_unknown_options=True)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@click.argument("selection", type=SELECTION, metavar="SLICE")
@click.argument("value")
@message_option
@metadata_option
@dry_run_option
def command(output: Output, target: Target, selection: Indices | Labels, value: str, **settings: Any) -> None:
    """Set the values, and commit."""
    if target.path in (None, "/"):
        raise click.UsageError("name an array: LOCATION[@BRANCH]:PATH")
    path = target.path or "/"
    repo = writable_repository(target, settings["dry_run"])
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    session = repo.writable_session(branch)
    session.workspace.nodes.require_array(path)
    array = zarr.open_array(session.store, path=path, mode="r+")
    indices = indices_of(session, path, selection)
    shape = selected_shape(array.shape, indices)
    new = value_for(np.dtype(array.dtype), shape, value)
    old = np.asarray(array[indices])
    array[indices] = new
    session.commit(settings["message"] or f"Set values of {path}", settings["metadata"] or None)
    pairs = zip(old.reshape(-1)[:_MOST_SHOWN], np.broadcast_to(new, shape).reshape(-1), strict=False)
    more = "" if old.size <= _MOST_SHOWN else f", ... ({old.size:,} cells)"
    line = f"{path}: {', '.join(f'{was!s} -> {now!s}' for was, now in pairs)}{more}"
    emit_tip(output, repo, branch, before, dry_run=settings["dry_run"], further=[line])


def value_for(dtype: np.dtype[Any], shape: tuple[int, ...], text: str) -> np.ndarray[Any, Any]:
    """Return the value of a text in the data type of an array; a value that does not fit is wrong usage.

    >>> value_for(np.dtype("i2"), (), "7")
    array(7, dtype=int16)
    """
    loose = np.asarray(_json_or_text(text) if dtype.kind in "biufc" else _text_of(text))
    try:
        value = loose.astype(dtype)
        np.broadcast_to(value, shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise click.UsageError(
            f"the value must fit {dtype} and the shape {list(shape)}, got {text!r}: {error}"
        ) from error
    changed = dtype.kind in "biu" and not np.array_equal(value.astype(loose.dtype), loose)
    if changed or (dtype.kind in "biufc" and loose.dtype.kind in "UO"):
        raise click.UsageError(f"the value must be of the type {dtype}, got {text!r}")
    return value


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return float(text) if text.lower().lstrip("+-") in ("nan", "inf", "infinity") else text


def _text_of(text: str) -> Any:
    """Return lists of JSON for a text that begins as a list, else the text."""
    return json.loads(text) if text.startswith("[") else text

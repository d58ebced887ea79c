"""``frazil diff``: the differences between two versions."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import click

from frazil.cli.cells import raw_option
from frazil.cli.command import VERSION, target_argument, verb
from frazil.cli.nodes import workspace_of
from frazil.cli.opening import OpenVersion, open_version, version_id
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.version_text import MAIN
from frazil.cli.versions import diff_document, diff_lines, is_empty
from frazil.display import counted
from frazil.format.ids import id_from_text, id_to_text
from frazil.repository.session.workspace import Workspace

_DESCRIPTION: Final = """\
Show which nodes and chunks differ between the version of TARGET and the version TO (default: `main`). If
the first version is an ancestor of the second, this is what the commits between them did. `+` is new, `-`
is deleted, `~` is changed. An array that grew or shrank has both shapes. With a path, only this node and the
nodes below it.

--values compares decoded values (packing, missing values, booleans, times), each version with its own
attributes, and counts new and removed cells. --raw compares the stored elements."""

_EXAMPLES: Final = """\
frazil diff ice@v1                    what happened on `main` since v1
frazil diff ice@main dev              how `dev` differs from `main`
frazil diff ice@main~3:era5 --chunks  changes of a group, with the indices of chunks
frazil diff ice@v1:era5/t --values    how many values differ, and by how much
frazil diff ice@v1 v2 --exit-code     the exit status is 1 if there are differences"""

#: The fields of a difference in values.
_NUMBERS: Final = (
    *("path", "cells", "new_cells", "removed_cells", "changed", "mean", "max", "rmse", "units"),
    "chunks_read",
)


@verb("diff", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION@VERSION[:PATH]")
@click.argument("to", type=VERSION, default=MAIN, metavar="[TO]")
@click.option("--chunks", is_flag=True, help="Also print the indices of changed chunks.")
@click.option("--values", is_flag=True, help="Compare the values of changed arrays, and read their chunks.")
@raw_option
@click.option("--exit-code", is_flag=True, help="End with the exit status 1 if there are differences.")
def command(
    output: Output, target: Target, to: str, chunks: bool, values: bool, raw: bool, exit_code: bool
) -> int:
    """Print the differences."""
    if raw and not values:
        raise click.UsageError("--raw is for --values")
    version = open_version(target)
    after = id_to_text(version_id(version.info, to.removeprefix("@")))
    diff = version.repo.diff(from_snapshot_id=version.id, to_snapshot_id=after)
    changes = diff_document(diff, version.path)
    changes["shapes"] = _shapes(version, id_from_text(after), changes["updated_arrays"])
    document = {"from": version.id, "to": after, **changes}
    differences = _value_differences(version, after, changes, raw) if values else []
    if values:
        document["values"] = differences
    shown = (each for each in differences if "/." not in each["path"])
    lines = chain(diff_lines(output, changes, chunks=chunks), map(_values_line, shown))
    output.emit(document, lines, pages=True)
    return int(exit_code and not is_empty(changes))


def _shapes(before: OpenVersion, after: bytes, paths: list[str]) -> dict[str, Any]:
    """Return the earlier and the later shape of arrays that grew or shrank, by their later paths."""
    if not paths:
        return {}
    old, new = workspace_of(before), Workspace(before.context, after)
    ends = {path: [old.same_node(new.require_array(path)), new.node(path)] for path in paths}
    shapes = {
        path: [list(each.array.shape) for each in pair if each and each.array] for path, pair in ends.items()
    }
    return {path: {"from": each[0], "to": each[-1]} for path, each in shapes.items() if each[0] != each[-1]}


def _value_differences(
    version: OpenVersion, after: str, changes: dict[str, Any], raw: bool
) -> list[dict[str, Any]]:
    """Return the differences in values of arrays that both versions have."""
    paths = {*changes["updated_chunks"], *changes["updated_arrays"]}.difference(changes["new_arrays"])
    ends = {"from_snapshot_id": version.id, "to_snapshot_id": after}
    return [
        {name: getattr(each, name) for name in _NUMBERS}
        for path in sorted(paths)
        for each in [version.repo.diff_values(path, **ends, decode=not raw)]
    ]


def _values_line(document: dict[str, Any]) -> str:
    text = f"  {document['path']}: {document['changed']:,} of {counted(document['cells'], 'value')} differ"
    if document["max"] == document["max"]:  # not NaN: the values are numbers
        units = f" {document['units']}" if document["units"] else ""
        numbers = f", mean {document['mean']:+g}, largest {document['max']:g}, rmse {document['rmse']:g}"
        text += numbers.replace(",", f"{units},").removeprefix(units) + units
    for name in ("new", "removed"):
        if document[f"{name}_cells"]:
            text += f", {counted(document[f'{name}_cells'], f'{name} cell')}"
    return text

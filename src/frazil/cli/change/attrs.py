"""``frazil attrs``: the attributes of a group or an array."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from frazil.cli.argument_types import reader_option
from frazil.cli.changes import dry_run_option, emit_tip, message_option, metadata_option, writable_repository
from frazil.cli.command import target_argument, verb
from frazil.cli.nodes import node_at, node_document, workspace_of
from frazil.cli.opening import branch_of, open_version
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Print the attributes of a group or an array, or set some of them in one commit. VALUE is JSON, or text.
Attributes that are not named stay. Attributes of `/` make the root group of a new repository."""

_EXAMPLES: Final = """\
frazil attrs ice:era5                            print them
frazil attrs ice:era5 title=ERA5 levels='[1,2]'  set two of them
frazil attrs ice@dev:era5 --unset title          remove one of them"""
#: The metadata of the root group, which a new repository does not have.
_GROUP: Final[dict[str, Any]] = {"zarr_format": 3, "node_type": "group"}


@verb("attrs", description=_DESCRIPTION, examples=_EXAMPLES, commits=True)
@target_argument(metavar="LOCATION[@BRANCH]:PATH")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--unset", metavar="KEY", multiple=True, help="Remove an attribute; may be repeated.")
@message_option
@metadata_option
@dry_run_option
def command(
    output: Output, target: Target, values: tuple[str, ...], unset: tuple[str, ...], **settings: Any
) -> None:
    """Print or set the attributes."""
    if not values and not unset:
        version = open_version(target)
        attributes = node_document(node_at(workspace_of(version), version.path))["attributes"]
        lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in attributes.items())
        output.emit(attributes, lines)
        return
    new = dict(map(reader_option, values))
    path = target.path or "/"
    repo = writable_repository(target, settings["dry_run"])
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    session = repo.writable_session(branch)
    workspace = session.workspace
    stored = json.loads(node_at(workspace, path).user_data) or _GROUP
    attributes = {**stored.get("attributes", {}), **new}
    if unknown := [name for name in unset if name not in attributes]:
        raise click.UsageError(f"{path} has no attribute {', '.join(unknown)}")
    for name in unset:
        del attributes[name]
    workspace.set_node(path, json.dumps({**stored, "attributes": attributes}).encode())
    session.commit(settings["message"] or f"Set attributes of {path}", settings["metadata"])
    emit_tip(output, repo, branch, before, dry_run=settings["dry_run"])

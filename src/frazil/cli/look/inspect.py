"""``frazil inspect``: the content of a file of the format as JSON."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from frazil.cli.command import target_argument, verb
from frazil.cli.opening import open_version
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Print what a file of the format contains, as JSON: the snapshot of a version; with --log its transaction
log; with --manifest ID a manifest; with --repo the file `repo`; with --manifests the list of a version's
manifests."""

_EXAMPLES: Final = """\
frazil inspect ice                   the snapshot of `main`
frazil inspect ice@v1 --log          what the commit of a tag changed, by node ids
frazil inspect ice --manifests       the manifests of a version
frazil inspect ice --repo            refs, snapshots and newest operations"""


@verb("inspect", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument()
@click.option("--repo", "what", flag_value="repo", help="Print the file `repo`.")
@click.option("--log", "what", flag_value="log", help="Print the transaction log of the version.")
@click.option("--manifests", "what", flag_value="manifests", help="List the manifests of the version.")
@click.option("--manifest", metavar="ID", help="Print the numbers of a manifest.")
def command(output: Output, target: Target, what: str | None, manifest: str | None) -> None:
    """Print the content of the file."""
    version = open_version(target)
    repo = version.repo
    document: Any
    if manifest is not None:
        document = repo.inspect_manifest(manifest)
    elif what == "repo":
        document = repo.inspect_repo_info()
    elif what == "log":
        document = repo.inspect_transaction_log(version.id)
    elif what == "manifests":
        files = repo.list_manifest_files(version.id)
        document = [
            {"id": each.id, "size_bytes": each.size_bytes, "num_chunk_refs": each.num_chunk_refs}
            for each in files
        ]
    else:
        document = repo.inspect_snapshot(version.id)
    lines = json.dumps(document, indent=2, ensure_ascii=False).splitlines()
    output.emit(document, lines, pages=True)

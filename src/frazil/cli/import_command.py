"""The command ``frazil import``: it imports a repository of an older format."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from frazil.cli.changes import dry_run_option, writable_storage
from frazil.cli.command import LOCATION, verb
from frazil.cli.opening import storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.importing import upgrade
from frazil.importing.importer import Chunks
from frazil.storage.url_parts import COMMON_URLS

_DESCRIPTION: Final = f"""\
Import a repository that was written by icechunk 0.1.0a1 to 0.1.3, or by the draft format before that, into a
repository of spec version 2, with all snapshots, branches and tags. The old files do not change. If an import
was interrupted, run the same command again to continue it. For NetCDF files and others use `frazil ingest`.

SOURCE and TARGET are {COMMON_URLS}.
Without TARGET the import is in place."""

_EXAMPLES: Final = """\
frazil import old new                                    copy everything
frazil import old                                        import in place
frazil import old new --dry-run                          only rehearse
frazil import s3://bucket/old new --reference-chunks     leave the chunks in the bucket"""


@verb("import", description=_DESCRIPTION, examples=_EXAMPLES)
@click.argument("source", type=LOCATION)
@click.argument("target", type=LOCATION, required=False)
@click.option("--copy-chunks", is_flag=True, help="Copy the chunk files (the default, except in place).")
@click.option(
    "--reference-chunks", is_flag=True, help="Do not copy the chunk files: refer to them as virtual chunks."
)
@dry_run_option
def command(
    output: Output,
    source: Target,
    target: Target | None,
    copy_chunks: bool,
    reference_chunks: bool,
    dry_run: bool,
) -> None:
    """Import the repository, and print the report."""
    if copy_chunks and reference_chunks:
        raise click.UsageError("--copy-chunks and --reference-chunks exclude each other")
    chunks: Chunks = "copy" if copy_chunks else "reference" if reference_chunks else "auto"
    _require_folder(source)
    new = None if target in (None, source) else target
    if new is None:
        report = upgrade(writable_storage(source, dry_run), chunks=chunks)
    else:
        # a rehearsal does not copy chunk files: it would need the memory for all of them
        chunks = "reference" if dry_run else chunks
        report = upgrade(storage_of(source), writable_storage(new, dry_run), chunks=chunks)
    document = {**asdict(report), "dry_run": dry_run}
    output.emit(document, [*(["rehearsal: nothing was written"] if dry_run else []), str(report)])


def _require_folder(source: Target) -> None:
    """Raise an error with advice for a file, which another command reads."""
    if Path(source.location).is_file():
        raise click.UsageError(
            f"{source.location} is a file, and `import` reads repositories of older formats. `frazil ingest "
            f"{source.location} REPOSITORY` writes the data of files into a repository"
        )

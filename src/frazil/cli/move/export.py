"""``frazil export``: a version in another format."""

from __future__ import annotations

from typing import Any, Final

import click

import frazil.pipeline
from frazil.cli.changes import dry_run_option
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.look.du import sizes_below
from frazil.cli.move.replication import emit_report
from frazil.cli.opening import OpenVersion, open_version, storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.progress import size

_DESCRIPTION: Final = """\
Write a version without its history: as a plain Zarr store, as such a store in one zip file if TO ends in
`.zip`, or a group as a NetCDF file if TO ends in `.nc`. A Zarr store that was exported before is brought up
to date."""

_EXAMPLES: Final = """\
frazil export ice plain.zarr             the newest version of `main` as a Zarr store
frazil export ice plain.zarr.zip         the same in one file
frazil export ice@v1:era5 era5.nc        a group of a tag as a NetCDF file
frazil export ice plain.zarr --dry-run   count the arrays and chunks
frazil export ice@v1 s3://bucket/plain   a Zarr store in a bucket"""


@verb("export", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION[@VERSION][:PATH]", required=True, default=None)
@click.argument("to")
@click.option("--overwrite", is_flag=True, help="Replace an existing NetCDF or zip file.")
@dry_run_option
def command(output: Output, target: Target, to: str, overwrite: bool, dry_run: bool) -> None:
    """Export the version."""
    version = open_version(target)
    if dry_run:
        _emit_plan(output, version, to)
        return
    source: Any = frazil.pipeline.Version.of(version.repo, snapshot_id=version.id)
    arrays = ("*",) if version.path == "/" else (version.path, f"{version.path}/*")
    if to.endswith((".nc", ".zip")):
        if "://" in to:
            raise InvalidInputError(
                f"TO must be a local file if it ends in .nc or .zip, got {to}. Export to a local file, and "
                "upload it",
                ErrorKind.INVALID_ARGUMENT,
            )
        if to.endswith(".nc"):
            path = frazil.pipeline.export_netcdf(source, to, group=version.path, overwrite=overwrite)
        else:
            with output.progress("export") as bar:
                path = frazil.pipeline.export_zip(
                    source, to, arrays=arrays, overwrite=overwrite, progress=bar
                )
        document = {"file": str(path), "bytes": path.stat().st_size}
        output.emit(document, [f"wrote {path}"])
        return
    storage = storage_of(LOCATION.convert(to, None, None))
    with output.progress("export") as bar:
        report = frazil.pipeline.export_zarr(source, storage, arrays=arrays, engine="inline", progress=bar)
    emit_report(output, report, storage.label())


def _emit_plan(output: Output, version: OpenVersion, to: str) -> None:
    """Print how many arrays, chunks and stored bytes an export reads."""
    rows = sizes_below(version, everything=False)
    document = {"arrays": len(rows), **{name: sum(row[name] for row in rows) for name in ("chunks", "bytes")}}
    text = f"{counted(document['arrays'], 'array')}, {counted(document['chunks'], 'chunk')}"
    output.emit(
        {**document, "dry_run": True}, [f"would write {text} ({size(document['bytes'])} as stored) to {to}"]
    )

"""``frazil export``: a version in another format."""

from __future__ import annotations

from typing import Any, Final

import click

import frazil.pipeline
from frazil.cli.command import LOCATION, target_argument, verb
from frazil.cli.move.replication import emit_report
from frazil.cli.opening import open_version, storage_of
from frazil.cli.output import Output
from frazil.cli.target import Target

_DESCRIPTION: Final = """\
Write a version without its history: as a plain Zarr store, or a group as a NetCDF file if the name of the
file TO ends in `.nc`. A Zarr store that was exported before is brought up to date."""

_EXAMPLES: Final = """\
frazil export ice plain.zarr             the newest version of `main` as a Zarr store
frazil export ice@v1:era5 era5.nc        a group of a tag as a NetCDF file
frazil export ice@v1 s3://bucket/plain   a Zarr store in a bucket"""


@verb("export", description=_DESCRIPTION, examples=_EXAMPLES)
@target_argument(metavar="LOCATION[@VERSION][:PATH]", required=True, default=None)
@click.argument("to")
@click.option("--overwrite", is_flag=True, help="Replace an existing NetCDF file.")
def command(output: Output, target: Target, to: str, overwrite: bool) -> None:
    """Export the version."""
    version = open_version(target)
    source: Any = frazil.pipeline.Version.of(version.repo, snapshot_id=version.id)
    if to.endswith(".nc"):
        path = frazil.pipeline.export_netcdf(source, to, group=version.path, overwrite=overwrite)
        document = {"file": str(path), "bytes": path.stat().st_size}
        output.emit(document, [f"wrote {path}"])
        return
    arrays = ("*",) if version.path == "/" else (version.path, f"{version.path}/*")
    storage = storage_of(LOCATION.convert(to, None, None))
    with output.progress("export") as bar:
        report = frazil.pipeline.export_zarr(source, storage, arrays=arrays, engine="inline", progress=bar)
    emit_report(output, report, storage.label())

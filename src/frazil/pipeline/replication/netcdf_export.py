"""Export of a group as a NetCDF file, through xarray."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import xarray as xr

from frazil.errors import AlreadyExistsError, ErrorKind, InvalidInputError
from frazil.jobs.versions import Source, Version, takes_versions
from frazil.remedies import argument
from frazil.repository.paths import absolute


@takes_versions
def export_netcdf(
    source: Source,
    path: str | Path,
    *,
    group: str = "/",
    variables: Sequence[str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the arrays of a group as a NetCDF file, with their coordinates and attributes.

    The values are those that ``xarray.open_zarr`` reads, and the encoding is that of ``Dataset.to_netcdf``.
    With dask, xarray writes chunk by chunk; without, each variable must fit into memory. The file gets its
    name when it is complete.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        path: The file, in a folder that exists.
        group: The path of the group. Default: the root group.
        variables: The names of data variables. Default: all variables.
        overwrite: Whether an existing file is replaced. Default: False.

    Returns:
        The path of the file.

    Raises:
        AlreadyExistsError: The file exists (``not-allowed``).
        InvalidInputError: The group does not have one of the variables (``invalid-argument``).
        NodeNotFoundError: There is no such group.

    Examples:
        >>> import frazil, xarray as xr
        >>> from frazil.pipeline import export_netcdf
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="an array") as store:
        ...     data = xr.Dataset({"t": ("time", [1.0, 2.0])})
        ...     stored = data.to_zarr(store, consolidated=False, zarr_format=3)
        >>> file = export_netcdf(repo, "export.nc")
        >>> xr.load_dataset(file)["t"].values.tolist()
        [1.0, 2.0]
    """
    file = new_file(path, overwrite=overwrite)
    session = Version.of(source).session()
    session.workspace.require_node(absolute(group))
    name = group.strip("/") or None
    with xr.open_zarr(session.store, group=name, consolidated=False) as dataset:
        wanted = list(dataset.data_vars) if variables is None else list(variables)
        if absent := [each for each in wanted if each not in dataset]:
            raise InvalidInputError(
                f"variables must be variables of the group `{group}`, got {absent[0]!r}. It has "
                f"{', '.join(map(str, dataset.data_vars))}",
                ErrorKind.INVALID_ARGUMENT,
            )
        with named_when_complete(file) as part:
            dataset[wanted].to_netcdf(part)
    return file


def new_file(path: str | Path, *, overwrite: bool) -> Path:
    """Return the path of a file that an export may write."""
    file = Path(path)
    if file.exists() and not overwrite:
        raise AlreadyExistsError(f"path must be a new file, got {file}", ErrorKind.NOT_ALLOWED).with_remedy(
            "Pass {} to replace it", argument(overwrite=True)
        )
    return file


@contextmanager
def named_when_complete(file: Path) -> Iterator[Path]:
    """Yield the path of a partial file, which gets its name at the end of the block, or is deleted."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)

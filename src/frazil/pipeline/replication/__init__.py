"""Copies, clones and exports of repositories.

copy_repository     files of a repository in another storage, which later calls bring up to date
clone_repository    a new repository with the history of another one, whose origin it records
export_zarr         arrays of a version as a plain Zarr store
export_zip          arrays of a version as a plain Zarr store in one zip file
export_netcdf       arrays of a version as a NetCDF file
"""

from typing import TYPE_CHECKING

from frazil.lazy_names import import_on_demand

if TYPE_CHECKING:
    from frazil.pipeline.replication.export import export_netcdf, export_zarr, export_zip
    from frazil.pipeline.replication.operation import Copied, clone_repository, copy_repository
    from frazil.pipeline.replication.part import RepositoryPart

import_on_demand(
    __name__,
    {
        "Copied": "frazil.pipeline.replication.operation",
        "export_netcdf": "frazil.pipeline.replication.export",
        "clone_repository": "frazil.pipeline.replication.operation",
        "copy_repository": "frazil.pipeline.replication.operation",
        "RepositoryPart": "frazil.pipeline.replication.part",
        "export_zarr": "frazil.pipeline.replication.export",
        "export_zip": "frazil.pipeline.replication.export",
    },
    extra="pipeline",
)

__all__ = [
    "Copied",
    "RepositoryPart",
    "clone_repository",
    "copy_repository",
    "export_netcdf",
    "export_zarr",
    "export_zip",
]

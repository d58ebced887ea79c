"""Copies, clones, views and exports of repositories.

copy_repository     files of a repository in another storage, which later calls bring up to date
clone_repository    a new repository with the history of another one, whose origin it records
view_repository     a new repository with references to the chunks of a part of another one
from_zarr           chunks of a Zarr store in a repository, without decoding
export_zarr         arrays of a version as a plain Zarr store
export_zip          arrays of a version as a plain Zarr store in one zip file
export_netcdf       arrays of a version as a NetCDF file
export_kerchunk     references of a version for kerchunk
import_kerchunk     references of kerchunk in a session
virtual_dataset     references of a group as a dataset of VirtualiZarr
"""

from frazil.lazy_names import import_on_demand

__all__ = import_on_demand(__name__, extra="pipeline")

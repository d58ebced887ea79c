__all__: list[str]

from frazil.pipeline.replication.export import export_netcdf as export_netcdf
from frazil.pipeline.replication.export import export_zarr as export_zarr
from frazil.pipeline.replication.export import export_zip as export_zip
from frazil.pipeline.replication.operation import CopySummary as CopySummary
from frazil.pipeline.replication.operation import clone_repository as clone_repository
from frazil.pipeline.replication.operation import copy_repository as copy_repository
from frazil.pipeline.replication.part import RepositoryPart as RepositoryPart
from frazil.pipeline.replication.reference_export import export_kerchunk as export_kerchunk
from frazil.pipeline.replication.reference_export import virtual_dataset as virtual_dataset
from frazil.pipeline.replication.reference_import import import_kerchunk as import_kerchunk
from frazil.pipeline.replication.view import ViewSummary as ViewSummary
from frazil.pipeline.replication.view import view_repository as view_repository
from frazil.pipeline.replication.zarr_import import from_zarr as from_zarr

"""Readers of files in other formats: their schemas, their values, and the positions of their chunks.

Start with `frazil.readers.reader`: a reader returns a schema, values, and references to chunks. This package
does not use repositories or Spark.

    reader             the protocol `Reader` and its results: `FileSchema`, `VariableSchema`,
                       `ChunkReferences`
    registry           the table of formats; finds the reader of a file

The readers share these modules:

    base_reader        `BaseReader`: the base class of readers
    files              the bytes of a file, local or in an object store
    block_stream       an object as a file object, which caches blocks
    file_errors        the errors of damaged and unreadable files
    attribute_values   attributes as values of JSON, texts of unknown encoding
    coordinates        finds the coordinates of a file, by the CF conventions
    references         references to chunks of one file, the codec of plain values
    schema_cache       the schemas that this process has read

The formats, each with its library and its modules:

    hdf5               HDF5 and NetCDF-4, by h5py: `hdf5_schema`, `hdf5_dimensions`, `hdf5_types`,
                       `hdf5_chunks`, `hdf5_plugins`
    netcdf3            NetCDF-3 (classic, 64-bit offset, 64-bit data), by numpy: `netcdf3_header`
    grib               GRIB, by cfgrib and eccodes: `grib_cubes`, `grib_names`, `grib_messages`,
                       `grib_references`
    geotiff            GeoTIFF, by rasterio: `geotiff_grid_mapping`, `geotiff_references`, `tiff_layout`,
                       `tiff_tags`
    zarr               Zarr version 2 and 3, by zarr: `zarr_schema`, `zarr_codecs`, `storage_store`

To add a format, write a module with a subclass of `BaseReader`, and add a line to the table in `registry`.
"""

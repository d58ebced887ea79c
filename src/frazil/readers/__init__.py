"""Readers of files in other formats: their schemas, their values, and the positions of their chunks.

Start with `frazil.readers.base_reader`: a `Reader` returns a schema, values, and references to chunks. This
package does not use repositories or Spark.

    base_reader        `Reader`: the base class, which reads the schema once and types the errors
    file_schema        the results: `FileSchema`, `VariableSchema`, `ChunkReferences`
    registry           the table of formats; finds the reader of a file
    files              the bytes of a file, local or in an object store, and the errors of damaged files
    attribute_values   attributes as values of JSON, texts of unknown encoding

The formats, each with its library and its modules:

    hdf5               HDF5 and NetCDF-4, by h5py: `hdf5_schema`, `hdf5_chunks`
    netcdf3            NetCDF-3 (classic, 64-bit offset, 64-bit data), by numpy
    grib               GRIB, by cfgrib and eccodes: `grib_cubes`
    geotiff            GeoTIFF, by rasterio: `geotiff_references`
    zarr               Zarr version 2 and 3, by zarr

To add a format, write a module with a subclass of `Reader`, and add a line to the table in `registry`.
"""

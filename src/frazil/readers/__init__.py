"""Readers of files in other formats: their schemas, their values, and the positions of their chunks.

    base_reader    `Reader`, the base class, and its results: `FileSchema`, `ChunkReferences`
    registry       the table of formats; finds the reader of a file
    files          the bytes of a file, local or in an object store, and the errors of damaged files

Each format has a module of its name: `hdf5`, `netcdf3`, `grib`, `geotiff` and `zarr`. To add a format, write
a module with a subclass of `Reader`, and add a line to the table in `registry`. This package does not use
repositories or Spark.
"""

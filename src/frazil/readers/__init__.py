"""One module for each format, each with the one library that it needs.

files     the bytes of a file, here or in an object store
common    what the readers share: attributes, coordinates, columns of references
hdf5      HDF5 and NetCDF-4, by h5py; its dimensions in `hdf5_dims`, its chunks in `hdf5_chunks`
netcdf3   NetCDF-3: classic, 64-bit offset, 64-bit data; by nothing but numpy
zarr      Zarr version 2 and 3, by zarr, on a `storage_store`
grib2     GRIB, by cfgrib and eccodes
geotiff   GeoTIFF, by rasterio; where its tiles are in `tiff_layout`
"""

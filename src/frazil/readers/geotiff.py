"""The reader of GeoTIFF, with rasterio, as CF: ``band_data`` with dimensions ``band``, ``y`` and ``x``.

The coordinates ``x`` and ``y`` are the centres of pixels. A rotated image has the coordinates ``xc`` and
``yc`` along ``y`` and ``x`` instead. The grid mapping ``spatial_ref`` has the coordinate reference system in
WKT (``crs_wkt``), CF attributes for common projections, and the affine transform (``GeoTransform``), as
rioxarray writes and reads it. ``nodata`` becomes ``_FillValue``, scale and offset become ``scale_factor`` and
``add_offset``. Tags of the image and of its bands become attributes: see `Texts.attrs`.

Tiles and strips without compression, or with deflate or zstd and without a predictor, can have references.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, override

import numpy as np
import rasterio  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError  # type: ignore[import-untyped]  # the same
from rasterio.windows import Window  # type: ignore[import-untyped]  # the same

from frazil.readers.attribute_values import json_value
from frazil.readers.base_reader import FileContents, Reader
from frazil.readers.file_errors import damaged, no_group
from frazil.readers.files import File
from frazil.readers.geotiff_grid_mapping import grid_mapping_attrs
from frazil.readers.geotiff_references import DATA, compression_name, image_references
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.tiff_layout import read_directory, read_layout
from frazil.readers.tiff_tags import one_or_list, read_texts

GRID_MAPPING: Final = "spatial_ref"
#: The coordinates of a rotated image, along the dimensions ``y`` and ``x``.
_PIXEL_COORDS: Final = ("xc", "yc")
#: Types of GDAL that numpy does not have -> dtype of their values in rasterio.
_DTYPES: Final = {"complex_int16": np.dtype("c8")}


class GeoTiffReader(Reader):
    """The reader of the first image of a TIFF, or of the image ``page`` (from 1), with all its bands."""

    format = "geotiff"
    library_errors = (RasterioError, OSError, ValueError, TypeError)
    names_error_type = False

    option_names = ("page",)

    def __init__(self, file: File, group: str = "/", *, page: int | None = None) -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise no_group(file.url, self.group, "a TIFF has no groups: the reader option page chooses")
        self._directory = read_directory(file)
        self._layout = read_layout(file, self._directory)
        self._page = page
        self._stack = ExitStack()
        path = self._stack.enter_context(file.local())
        try:
            with self.library_call("a TIFF"), warnings.catch_warnings():
                warnings.simplefilter("ignore", NotGeoreferencedWarning)
                name = path if page is None else f"GTIFF_DIR:{page}:{path}"
                self._image = self._stack.enter_context(rasterio.open(name))
                self._transform = self._image.transform
        except BaseException:
            self._stack.close()
            raise

    @override
    def close(self) -> None:
        self._stack.close()

    @override
    def contents(self) -> FileContents:
        image = self._image
        if len(set(image.dtypes)) > 1:
            raise damaged(self.file.url, "bands of one dtype", image.dtypes)
        dims = {"band": image.count, "y": image.height, "x": image.width}
        shape = tuple(dims.values())
        dtype = _DTYPES.get(image.dtypes[0]) or np.dtype(image.dtypes[0])
        rows, columns = image.block_shapes[0]
        chunks = (image.count if self._is_pixel_by_pixel else 1, rows, columns)
        data = VariableSchema(
            DATA,
            tuple(dims),
            shape,
            dtype,
            self._attrs(dtype),
            self._nodata(dtype),
            None if chunks == shape else chunks,
            compression_name(self._layout.compression) if self._page is None else None,
        )
        on = (
            {name: (name,) for name in ("y", "x")}
            if self._is_upright
            else dict.fromkeys(_PIXEL_COORDS, ("y", "x"))
        )
        coords = [
            VariableSchema(
                name, on_dims, tuple(dims[dim] for dim in on_dims), np.dtype("f8"), self._coord_attrs(name)
            )
            for name, on_dims in on.items()
        ]
        coords.insert(0, VariableSchema("band", ("band",), (image.count,), np.dtype("i8")))
        mapping = VariableSchema(GRID_MAPPING, (), (), np.dtype("i8"), self._mapping())
        return FileContents([data, *coords, mapping], {}, dims)

    @override
    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        if name in _PIXEL_COORDS:
            return self._pixel_coords(name, *bounds)
        if name != DATA:
            return np.asarray(self._coordinate(name)[tuple(slice(*each) for each in bounds)])
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        (band, _), (row, _), (column, _) = bounds
        with self.library_call("values"):
            values = self._image.read(
                list(range(band + 1, band + 1 + shape[0])), window=Window(column, row, shape[2], shape[1])
            )
        return np.asarray(values)

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        variable = self.variable(name)
        if name != DATA:
            return NotVirtual("computed from the metadata of the file")
        if self._page is not None:
            return NotVirtual("a page that is not the first")
        return image_references(self.file.location, self._layout, variable, self.read)

    # Schema

    @property
    def _is_upright(self) -> bool:
        return bool(self._transform.b == 0 and self._transform.d == 0)

    @property
    def _is_pixel_by_pixel(self) -> bool:
        return self._page is None and not self._layout.planar

    def _nodata(self, dtype: np.dtype[Any]) -> Any:
        value = self._image.nodata
        if value is None or (dtype.kind in "iu" and not _is_one_of(value, dtype)):
            return None
        return np.asarray(value).astype(dtype)[()]

    def _attrs(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        image = self._image
        directory = self._directory if self._page is None else read_directory(self.file, self._page)
        with self.library_call("texts of a TIFF"):
            texts = read_texts(image, directory)
        attrs = {**texts.attrs(), "grid_mapping": GRID_MAPPING}
        if not self._is_upright:
            attrs["coordinates"] = " ".join(_PIXEL_COORDS)
        nodata = self._nodata(dtype)
        if nodata is not None:
            attrs["_FillValue"] = json_value(nodata)
        for name, values in (("units", texts.units), ("long_name", texts.descriptions)):
            if any(values):
                attrs[name] = one_or_list(each or "" for each in values)
        return attrs | _scaling(image.scales, image.offsets)

    def _coord_attrs(self, name: str) -> dict[str, Any]:
        if self._image.crs is None:
            return {}
        axis = name[0]
        attrs = {"axis": axis.upper()} if self._is_upright else {}
        if self._image.crs.is_geographic:
            long, direction = {"x": ("longitude", "east"), "y": ("latitude", "north")}[axis]
            return {**attrs, "standard_name": long, "long_name": long, "units": f"degrees_{direction}"}
        return {
            **attrs,
            "standard_name": f"projection_{axis}_coordinate",
            "long_name": f"{axis} coordinate of projection",
            "units": self._image.crs.linear_units or "metre",
        }

    def _pixel_coords(self, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> NDArray[Any]:
        """Return a region of ``xc`` or ``yc``: the centres of these pixels."""
        per_column, per_row, at = self._transform[:3] if name == _PIXEL_COORDS[0] else self._transform[3:6]
        row, column = np.arange(*rows)[:, np.newaxis], np.arange(*columns)[np.newaxis]
        return np.asarray(column * per_column + row * per_row + (per_column * 0.5 + per_row * 0.5 + at))

    def _coordinate(self, name: str) -> NDArray[Any]:
        image, transform = self._image, self._transform
        match name:
            case "band":
                return np.arange(1, image.count + 1)
            case "x":
                return np.asarray(transform.c + (np.arange(image.width) + 0.5) * transform.a)
            case "y":
                return np.asarray(transform.f + (np.arange(image.height) + 0.5) * transform.e)
            case _:
                return np.array(0)

    def _mapping(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {"GeoTransform": " ".join(map(str, self._transform.to_gdal()))}
        crs = self._image.crs
        if crs is None:
            return attrs
        wkt = crs.to_wkt()
        return {"crs_wkt": wkt, "spatial_ref": wkt, **grid_mapping_attrs(crs.to_dict()), **attrs}


def _is_one_of(value: float, dtype: np.dtype[Any]) -> bool:
    """Return whether pixels of an integer dtype can have this value."""
    return float(value).is_integer() and np.can_cast(np.min_scalar_type(int(value)), dtype)


def _scaling(scales: Sequence[float], offsets: Sequence[float]) -> dict[str, Any]:
    """Return scale and offset as attributes. CF libraries can apply them only if all bands share them."""
    if set(scales) == {1} and set(offsets) == {0}:
        return {}
    if len(set(scales)) == len(set(offsets)) == 1:
        return {"scale_factor": float(scales[0]), "add_offset": float(offsets[0])}
    return {"scales": list(scales), "offsets": list(offsets)}

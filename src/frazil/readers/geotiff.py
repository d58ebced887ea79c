"""GeoTIFF, by rasterio, as CF: ``band_data`` with dimensions ``band``, ``y`` and ``x``.

The coordinates ``x`` and ``y`` are the centres of pixels; those of an image that is rotated are ``xc`` and
``yc``, on ``y`` and ``x``. The grid mapping ``spatial_ref`` has the coordinate reference system in WKT
(``crs_wkt``), its CF attributes for common projections, and the affine transform (``GeoTransform``), as
rioxarray writes and reads it. ``nodata`` is ``_FillValue``, scale and offset are ``scale_factor`` and
``add_offset``. Tags of the image and of its bands are attributes: see `Texts.attrs`.

Tiles and strips that are not compressed, or by deflate or zstd without a predictor, can stay where they are.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np
import rasterio  # type: ignore[import-untyped]  # it ships no types
import zstandard
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError  # type: ignore[import-untyped]  # the same
from rasterio.windows import Window  # type: ignore[import-untyped]  # the same

from frazil.errors import IcechunkError
from frazil.readers.conventions import BaseReader, Parts, bytes_codec, json_value
from frazil.readers.files import File, damaged, no_group
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.tiff_layout import read_directory, read_layout
from frazil.readers.tiff_tags import one_or_list, read_texts

DATA: Final = "band_data"
GRID_MAPPING: Final = "spatial_ref"
#: The coordinates of a rotated image, of pixels as dimensions ``y`` and ``x``.
_PLACES: Final = ("xc", "yc")
_COMPRESSIONS: Final = {
    1: "none",
    5: "LZW",
    6: "JPEG",
    7: "JPEG",
    8: "deflate",
    32773: "packbits",
    32946: "deflate",
    34887: "LERC",
    34925: "LZMA",
    50000: "zstd",
    50001: "WebP",
    50002: "JPEG XL",
}
#: Photometric interpretations of which GDAL gives the numbers that are stored: grey, RGB, palette, mask.
_STORED_COLOURS: Final = (0, 1, 2, 3, 4)
_OTHER_COLOURS: Final = {5: "CMYK", 6: "YCbCr", 8: "CIE L*a*b*", 9: "ICC L*a*b*", 10: "ITU L*a*b*"}
#: Types of GDAL that numpy does not have, and the dtype of their values in rasterio.
_DTYPES: Final = {"complex_int16": np.dtype("c8")}


class GeoTiffReader(BaseReader):
    """The first image of a TIFF, or the image ``page`` (from 1), with all of its bands."""

    format = "geotiff"

    def __init__(self, file: File, group: str = "/", *, page: int | None = None) -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise no_group(file.url, self.group, "a TIFF: use page=")
        self._directory = read_directory(file)
        self._layout = read_layout(file, self._directory)
        self._page = page
        self._stack = ExitStack()
        path = self._stack.enter_context(file.local())
        try:
            with self._reading("a TIFF"), warnings.catch_warnings():
                warnings.simplefilter("ignore", NotGeoreferencedWarning)
                name = path if page is None else f"GTIFF_DIR:{page}:{path}"
                self._image = self._stack.enter_context(rasterio.open(name))
                self._transform = self._image.transform
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def parts(self) -> Parts:
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
            _COMPRESSIONS.get(self._layout.compression, f"compression {self._layout.compression}")
            if self._page is None
            else None,
        )
        on = (
            {name: (name,) for name in ("y", "x")} if self._is_upright else dict.fromkeys(_PLACES, ("y", "x"))
        )
        coords = [
            VariableSchema(
                name, on_dims, tuple(dims[dim] for dim in on_dims), np.dtype("f8"), self._coord_attrs(name)
            )
            for name, on_dims in on.items()
        ]
        coords.insert(0, VariableSchema("band", ("band",), (image.count,), np.dtype("i8")))
        mapping = VariableSchema(GRID_MAPPING, (), (), np.dtype("i8"), self._mapping())
        return Parts([data, *coords, mapping], {}, dims)

    def read(self, name: str, region: tuple[slice, ...]) -> NDArray[Any]:
        variable = self.variable(name)
        bounds = self.region(name, region)
        if name in _PLACES:
            return self._places(name, *bounds)
        if name != DATA:
            return np.asarray(self._coordinate(name)[tuple(slice(*each) for each in bounds)])
        shape = tuple(stop - start for start, stop in bounds)
        if 0 in shape:
            return np.empty(shape, variable.dtype)
        (band, _), (row, _), (column, _) = bounds
        with self._reading("values"):
            found = self._image.read(
                list(range(band + 1, band + 1 + shape[0])), window=Window(column, row, shape[2], shape[1])
            )
        return np.asarray(found)

    def references(self, name: str) -> ChunkReferences | NotVirtual:
        variable = self.variable(name)
        if name != DATA:
            return NotVirtual("made from the metadata of the file")
        why = self._why_not(variable)
        if why is not None:
            return NotVirtual(why)
        layout = self._layout
        dtype = variable.dtype.newbyteorder(">" if layout.big_endian else "<")
        codecs: list[dict[str, Any]] = [bytes_codec(dtype)]
        if layout.bands > 1 and not layout.planar:
            codecs.insert(0, {"name": "transpose", "configuration": {"order": [1, 2, 0]}})
        codecs += _CODECS[_COMPRESSIONS[layout.compression]]
        rows, columns = -(-layout.height // layout.chunk[0]), -(-layout.width // layout.chunk[1])
        grid = (layout.bands if layout.planar else 1, rows, columns)
        index = np.indices(grid, np.uint32).reshape(3, -1).T
        there = np.flatnonzero(layout.length)
        references = ChunkReferences(
            chunks=(1 if layout.planar else layout.bands, *layout.chunk),
            codecs=codecs,
            dtype=dtype,
            fill_value=variable.fill_value if variable.fill_value is not None else dtype.type(0),
            locations=(self.file.url,),
            index=np.ascontiguousarray(index[there]),
            offset=layout.offset[there].astype(np.uint64),
            length=layout.length[there].astype(np.uint64),
            location=np.zeros(len(there), np.uint32),
        )
        if not layout.tiled and layout.height % layout.chunk[0]:
            return references.with_inline(self._last_strips(references, rows - 1))
        return references

    # the schema

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
        with self._reading("texts of a TIFF"):
            texts = read_texts(image, directory)
        attrs = {**texts.attrs(), "grid_mapping": GRID_MAPPING}
        if not self._is_upright:
            attrs["coordinates"] = " ".join(_PLACES)
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

    def _places(self, name: str, rows: tuple[int, int], columns: tuple[int, int]) -> NDArray[Any]:
        """A part of ``xc`` or ``yc``: where the centres of these pixels are."""
        per_column, per_row, at = self._transform[:3] if name == _PLACES[0] else self._transform[3:6]
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
        return {"crs_wkt": wkt, "spatial_ref": wkt, **_grid_mapping(crs.to_dict()), **attrs}

    # references

    def _why_not(self, variable: VariableSchema) -> str | None:
        layout = self._layout
        compression = _COMPRESSIONS.get(layout.compression, f"compression {layout.compression}")
        if self._page is not None:
            return "a page that is not the first"
        if compression not in _CODECS:
            return f"{compression}: no codec in Zarr"
        if layout.predictor != 1:
            return f"predictor {layout.predictor}: no codec in Zarr"
        if set(layout.bits) != {variable.dtype.itemsize * 8}:
            return f"pixels of {layout.bits[0]} bits"
        if layout.photometric not in _STORED_COLOURS or layout.bands != variable.shape[0]:
            colours = _OTHER_COLOURS.get(
                layout.photometric, f"photometric interpretation {layout.photometric}"
            )
            return f"{colours}: GDAL reads other colours than the file stores"
        if layout.reversed_bits:
            return "bytes with the lowest bit first (FillOrder 2)"
        if compression == "none" and not self._is_of_whole_chunks(variable.dtype.itemsize):
            return "tiles or strips that are longer or shorter than their pixels"
        return None

    def _is_of_whole_chunks(self, itemsize: int) -> bool:
        """Whether tiles and strips have the bytes of their pixels; the last strip is copied."""
        layout = self._layout
        rows, columns = layout.chunk
        whole = rows * columns * itemsize * (1 if layout.planar else layout.bands)
        strips = -(-layout.height // rows)
        last = (
            not layout.tiled and layout.height % rows and np.arange(len(layout.length)) % strips == strips - 1
        )
        return bool(((layout.length == whole) | (layout.length == 0) | last).all())

    def _last_strips(self, references: ChunkReferences, last: int) -> dict[int, bytes]:
        """The last strip has fewer rows than the others: chunks of Zarr have all of them."""
        found = {}
        layout = self._layout
        compression = _COMPRESSIONS[layout.compression]
        first = last * layout.chunk[0]
        for row in np.flatnonzero(references.index[:, 1] == last).tolist():
            band = int(references.index[row, 0])
            bands = slice(band, band + 1) if layout.planar else slice(0, layout.bands)
            values = self.read(DATA, (bands, slice(first, layout.height), slice(0, layout.width)))
            whole = np.zeros(references.chunks, references.dtype)
            whole[:, : values.shape[1]] = values
            data = whole.transpose(1, 2, 0).tobytes() if not layout.planar else whole.tobytes()
            found[row] = _ENCODERS[compression](data)
        return found

    @contextmanager
    def _reading(self, expected: str) -> Iterator[None]:
        try:
            yield
        except IcechunkError:
            raise
        except (RasterioError, OSError, ValueError, TypeError) as error:
            raise damaged(self.file.url, expected, error) from error


_CODECS: Final[dict[str, list[dict[str, Any]]]] = {
    "none": [],
    "deflate": [{"name": "numcodecs.zlib", "configuration": {"level": 6}}],
    "zstd": [{"name": "zstd", "configuration": {"level": 9, "checksum": False}}],
}
_ENCODERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "deflate": zlib.compress,
    "zstd": lambda data: zstandard.compress(data, 9),
}

#: Projection of PROJ -> its name in CF, and what CF calls its central longitude.
_PROJECTIONS: Final = {
    "longlat": ("latitude_longitude", ""),
    "tmerc": ("transverse_mercator", "longitude_of_central_meridian"),
    "merc": ("mercator", "longitude_of_projection_origin"),
    "lcc": ("lambert_conformal_conic", "longitude_of_central_meridian"),
    "aea": ("albers_conical_equal_area", "longitude_of_central_meridian"),
    "laea": ("lambert_azimuthal_equal_area", "longitude_of_projection_origin"),
    "stere": ("polar_stereographic", "straight_vertical_longitude_from_pole"),
    "sinu": ("sinusoidal", "longitude_of_projection_origin"),
}
_PARAMETERS: Final = {
    "lat_0": "latitude_of_projection_origin",
    "x_0": "false_easting",
    "y_0": "false_northing",
    "lat_ts": "standard_parallel",
    "a": "semi_major_axis",
    "b": "semi_minor_axis",
    "rf": "inverse_flattening",
}
_ELLIPSOIDS: Final = {
    "WGS84": (6378137.0, 298.257223563),
    "GRS80": (6378137.0, 298.257222101),
    "NAD83": (6378137.0, 298.257222101),
}


def _is_one_of(value: float, dtype: np.dtype[Any]) -> bool:
    """Whether pixels of an integer dtype can have this value."""
    return float(value).is_integer() and np.can_cast(np.min_scalar_type(int(value)), dtype)


def _scaling(scales: Sequence[float], offsets: Sequence[float]) -> dict[str, Any]:
    """Scale and offset as attributes. Readers of CF apply those that hold for all bands, and no others.

    >>> _scaling((0.1, 0.1), (0.0, 0.0))
    {'scale_factor': 0.1, 'add_offset': 0.0}
    >>> _scaling((0.1, 0.2), (5.0, 5.0))
    {'scales': [0.1, 0.2], 'offsets': [5.0, 5.0]}
    >>> _scaling((1.0,), (0.0,))
    {}
    """
    if set(scales) == {1} and set(offsets) == {0}:
        return {}
    if len(set(scales)) == len(set(offsets)) == 1:
        return {"scale_factor": float(scales[0]), "add_offset": float(offsets[0])}
    return {"scales": list(scales), "offsets": list(offsets)}


def _grid_mapping(proj: dict[str, Any]) -> dict[str, Any]:
    """The attributes of CF for common projections; for others WKT says all.

    >>> _grid_mapping({"proj": "longlat", "datum": "WGS84"})["grid_mapping_name"]
    'latitude_longitude'
    """
    if proj.get("proj") == "utm":
        south = 1e7 if proj.get("south") else 0.0
        zone = {"lat_0": 0.0, "lon_0": proj["zone"] * 6.0 - 183, "k": 0.9996, "x_0": 5e5, "y_0": south}
        proj = {**proj, "proj": "tmerc", **zone}
    if proj.get("proj") not in _PROJECTIONS:
        return {}
    name, meridian = _PROJECTIONS[proj["proj"]]
    attrs: dict[str, Any] = {"grid_mapping_name": name}
    attrs |= {cf: float(proj[key]) for key, cf in _PARAMETERS.items() if key in proj}
    if "lon_0" in proj and meridian:
        attrs[meridian] = float(proj["lon_0"])
    if "lat_1" in proj:
        attrs["standard_parallel"] = [float(proj[key]) for key in ("lat_1", "lat_2") if key in proj]
    if "k" in proj or "k_0" in proj:
        where = "central_meridian" if proj["proj"] == "tmerc" else "projection_origin"
        attrs[f"scale_factor_at_{where}"] = float(proj["k"] if "k" in proj else proj["k_0"])
    ellipsoid = _ELLIPSOIDS.get(str(proj.get("datum", proj.get("ellps"))))
    if ellipsoid is not None:
        attrs["semi_major_axis"], attrs["inverse_flattening"] = ellipsoid
    return attrs

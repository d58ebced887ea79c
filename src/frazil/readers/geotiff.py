"""The reader of GeoTIFF, with rasterio, as CF: ``band_data`` with dimensions ``band``, ``y`` and ``x``.

The coordinates ``x`` and ``y`` are the centres of pixels. A rotated image has the coordinates ``xc`` and
``yc`` along ``y`` and ``x`` instead. The grid mapping ``spatial_ref`` has the coordinate reference system in
WKT (``crs_wkt``), CF attributes for common projections, and the affine transform (``GeoTransform``), as
rioxarray writes and reads it. ``nodata`` becomes ``_FillValue``, scale and offset become ``scale_factor`` and
``add_offset``. Tags of the image and of its bands become attributes: see `Texts.attrs`.

Tiles and strips without compression, or with deflate or zstd and without a predictor, can have references.

rasterio reads them from the file and from a file beside it (``.aux.xml``). It expects UTF-8. If one text has
another encoding, it returns no texts of the image, or raises an error. Then the texts are read from the
directory, as UTF-8 or else Latin-1.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, override
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

import numpy as np
import rasterio  # type: ignore[import-untyped]  # it ships no types
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError  # type: ignore[import-untyped]  # the same
from rasterio.windows import Window  # type: ignore[import-untyped]  # the same

from frazil.readers.attribute_values import json_value, text
from frazil.readers.base_reader import FileContents, Reader
from frazil.readers.file_schema import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.files import File, damaged, no_group
from frazil.readers.geotiff_references import (
    DATA,
    Directory,
    compression_name,
    image_references,
    read_directory,
    read_layout,
)

#: Projection of PROJ -> its name in CF, and the CF name of its central longitude.
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


def grid_mapping_attrs(proj: dict[str, Any]) -> dict[str, Any]:
    """Return the CF attributes for common projections, none for others, which only WKT describes."""
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


_METADATA: Final = 42112
_QUOTES: Final = {"&quot;": '"', "&apos;": "'"}
#: Tag -> its name in GDAL.
_TEXTS: Final = {
    269: "TIFFTAG_DOCUMENTNAME",
    270: "TIFFTAG_IMAGEDESCRIPTION",
    305: "TIFFTAG_SOFTWARE",
    306: "TIFFTAG_DATETIME",
    315: "TIFFTAG_ARTIST",
    316: "TIFFTAG_HOSTCOMPUTER",
    33432: "TIFFTAG_COPYRIGHT",
}
#: The names in GDAL of tags that are not texts.
_NUMBERS: Final = (
    "AREA_OR_POINT",
    "TIFFTAG_XRESOLUTION",
    "TIFFTAG_YRESOLUTION",
    "TIFFTAG_RESOLUTIONUNIT",
    "TIFFTAG_MINSAMPLEVALUE",
    "TIFFTAG_MAXSAMPLEVALUE",
)
#: Attributes that control how xarray decodes values. Tags with these names are ignored, because GDAL uses the
#: nodata, scale and offset of the file.
_DECODING: Final = frozenset(
    {
        "_FillValue",
        "_Unsigned",
        "add_offset",
        "coordinates",
        "dtype",
        "grid_mapping",
        "missing_value",
        "scale_factor",
    }
)


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of an image. ``bands``, ``descriptions`` and ``units`` have an entry for each band."""

    image: dict[str, str]
    bands: tuple[dict[str, str], ...]
    descriptions: tuple[str | None, ...]
    units: tuple[str | None, ...]

    def attrs(self) -> dict[str, Any]:
        """Return the tags as attributes of one variable with all bands.

        A tag with the same value in all bands becomes text, other tags become a list with a text for each
        band. A band without the tag has the tag of the image, or an empty text.
        """
        names = dict.fromkeys(name for band in self.bands for name in band)
        tags = {name: [band.get(name, self.image.get(name, "")) for band in self.bands] for name in names}
        attrs = {**self.image, **{name: one_or_list(values) for name, values in tags.items()}}
        return {name: value for name, value in attrs.items() if name not in _DECODING}


def one_or_list(values: Iterable[Any]) -> Any:
    """Return the value that all bands share, or the list of the values of the bands."""
    texts = list(values)
    return texts[0] if len(set(texts)) == 1 else texts


def read_texts(image: Any, directory: Directory) -> Texts:
    """Return the texts of an image of rasterio. ``directory`` is the directory of its page."""
    raw = {tag: directory[tag].tobytes() for tag in (*_TEXTS, _METADATA) if tag in directory}
    if all(map(_is_utf8, raw.values())):
        bands = tuple(image.tags(band) for band in image.indexes)
        return Texts(image.tags(), bands, tuple(image.descriptions), tuple(image.units))
    tags: dict[str, str] = {}
    for name in _NUMBERS:
        with suppress(UnicodeDecodeError):
            value = image.get_tag_item(name)
            tags |= {name: value} if value else {}
    tags |= {name: text(raw[tag]) for tag, name in _TEXTS.items() if tag in raw}
    texts = Texts(tags, tuple({} for _ in image.indexes), (None,) * image.count, (None,) * image.count)
    return _with_items(texts, text(raw.get(_METADATA, b"")))


def _with_items(texts: Texts, document: str) -> Texts:
    """Add the items of the document in the tag of GDAL. Each item belongs to the image or to a band."""
    image, bands = dict(texts.image), [dict(band) for band in texts.bands]
    special = {"description": list(texts.descriptions), "unittype": list(texts.units)}
    for item, value in _items(document):
        sample, role, name = item.get("sample", ""), item.get("role", "").lower(), item.get("name", "")
        band = int(sample) if sample.isdecimal() and int(sample) < len(bands) else None
        if role in special:
            if band is not None:
                special[role][band] = value
        elif not role and "domain" not in item:
            (image if band is None else bands[band])[name] = value
    return Texts(image, tuple(bands), tuple(special["description"]), tuple(special["unittype"]))


def _items(document: str) -> Iterator[tuple[dict[str, str], str]]:
    if "<!" in document:  # GDAL does not write entities or a document type
        return
    with suppress(ElementTree.ParseError):
        for item in ElementTree.fromstring(document).iter("Item"):
            yield item.attrib, unescape(item.text or "", _QUOTES)  # GDAL escapes twice


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


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

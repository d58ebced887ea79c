"""The reader of GeoTIFF, with rasterio, as CF: ``band_data`` with dimensions ``band``, ``y`` and ``x``.

The coordinates ``x`` and ``y`` are the centres of pixels. A rotated image has the coordinates ``xc`` and
``yc`` along ``y`` and ``x`` instead. The grid mapping ``spatial_ref`` has the coordinate reference system in
WKT (``crs_wkt``), CF attributes for common projections, and the affine transform (``GeoTransform``), as
rioxarray writes and reads it. ``band_data`` has the same as attributes of GeoZarr. ``nodata`` becomes
``_FillValue``, scale and offset become ``scale_factor`` and ``add_offset``. Tags of the image and of its
bands become attributes. An image that GDAL made of a NetCDF file has the name of the variable, and the
dimension of its bands (``time``) with labels, in tags.

Tiles and strips without compression, or with deflate or zstd and without a predictor, can have references.
The last strip of an image may have fewer rows than the others, but all chunks of Zarr have one shape. So this
strip is an inline chunk, filled up with zeros.

A directory is a list of entries: tag, type, count, and the values or their offset. A damaged file may have
any number in it, so every read is checked against the size of the file. The values of all tags together are
not larger than the file: many tags could have the same large values.
"""

from __future__ import annotations

import itertools
import math
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, override
from xml.etree import ElementTree
from xml.sax.saxutils import unescape

import numpy as np
import rasterio  # type: ignore[import-untyped]  # it ships no types
import zstandard
from numpy.typing import NDArray
from rasterio.errors import NotGeoreferencedWarning, RasterioError  # type: ignore[import-untyped]  # the same
from rasterio.windows import Window  # type: ignore[import-untyped]  # the same

from frazil.cf import PACKED
from frazil.errors import FormatError
from frazil.geozarr import attributes_of_raster
from frazil.readers.base_reader import (
    Bounds,
    ChunkReferences,
    FileContents,
    NotVirtual,
    Reader,
    VariableSchema,
    bytes_codec,
    json_value,
    references_to_file,
    text,
)
from frazil.readers.files import SourceFile, damaged, no_group

#: Type of an entry -> dtype. Entries of other types are read as bytes.
_TYPES: Final = {1: "u1", 3: "u2", 4: "u4", 13: "u4", 16: "u8", 18: "u8"}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_FILL_ORDER, _SAMPLES, _ROWS, _PLANAR, _PREDICTOR = 266, 277, 278, 284, 317
_MOST_TAGS: Final = 4096
_MOST_PAGES: Final = 65_536
#: The tag of the kind of a page (NewSubfileType), and its bits for overviews and for masks.
_PAGE_KIND, _REDUCED_OR_MASK = 254, 1 | 4
#: Tag -> its values.
type Directory = dict[int, NDArray[Any]]
_STRIPS, _STRIP_SIZES, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_SIZES = 273, 279, 322, 323, 324, 325


@dataclass(frozen=True, slots=True)
class TiffLayout:
    """The storage layout of the pixels of an image.

    ``chunk`` is (rows, columns) of a tile or strip. ``offset`` and ``length`` (bytes) have an entry for each
    tile or strip, row by row, and band by band if ``planar`` (otherwise each one has all bands, pixel by
    pixel). Length 0: the tile is not stored. ``photometric`` is the code of the meaning of numbers as
    colours. ``reversed_bits``: the first bit of a byte is its lowest (FillOrder 2).
    """

    width: int
    height: int
    bands: int
    bits: tuple[int, ...]
    big_endian: bool
    compression: int
    predictor: int
    photometric: int
    reversed_bits: bool
    planar: bool
    tiled: bool
    chunk: tuple[int, int]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]


def read_layout(file: SourceFile, tags: Directory | None = None) -> TiffLayout:
    """Return the layout of the first image. ``tags`` is the result of `read_directory`, if already read."""
    tags = read_directory(file) if tags is None else tags

    def one(tag: int, default: int | None = None) -> int:
        values = tags.get(tag)
        if values is None or not len(values):
            if default is None:
                raise damaged(file.url, f"a TIFF with tag {tag}", f"tags {sorted(tags)}")
            return default
        return int(values[0])

    width, height, bands = one(_WIDTH), one(_HEIGHT), one(_SAMPLES, 1)
    tiled = _TILES in tags
    chunk = (one(_TILE_HEIGHT), one(_TILE_WIDTH)) if tiled else (min(one(_ROWS, height), height), width)
    offset = tags.get(_TILES if tiled else _STRIPS)
    length = tags.get(_TILE_SIZES if tiled else _STRIP_SIZES)
    planar = one(_PLANAR, 1) == 2 and bands > 1
    if offset is None or length is None or 0 in chunk:
        raise damaged(file.url, "the offsets of tiles or strips", f"tags {sorted(tags)}")
    count = -(-height // chunk[0]) * -(-width // chunk[1]) * (bands if planar else 1)
    if len(offset) != count or len(length) != count:
        raise damaged(file.url, f"{count} tiles or strips", f"{len(offset)} offsets and {len(length)} sizes")
    end = max(map(int, (offset.max(initial=0), length.max(initial=0))))
    if end <= file.size:  # then the sums do not overflow
        end = int((offset.astype(np.int64) + length.astype(np.int64)).max(initial=0))
    if end > file.size:
        raise damaged(file.url, f"at least {end} bytes", f"{file.size}: it is truncated")
    return TiffLayout(
        width=width,
        height=height,
        bands=bands,
        bits=tuple(map(int, tags.get(_BITS, [1]))),
        big_endian=file.head[:2] == b"MM",
        compression=one(_COMPRESSION, 1),
        predictor=one(_PREDICTOR, 1),
        photometric=one(_PHOTOMETRIC, 1),
        reversed_bits=one(_FILL_ORDER, 1) == 2,
        planar=planar,
        tiled=tiled,
        chunk=chunk,
        offset=offset.astype(np.int64),
        length=length.astype(np.int64),
    )


def _directories(file: SourceFile) -> Iterator[NDArray[Any]]:
    """Yield the entries (tag, type, count, value) of the directory of each page."""
    order = _byte_order(file)

    def number(start: int, size: int) -> int:
        return int(np.frombuffer(file.read(start, start + size), f"{order}u{size}")[0])

    big = number(2, 2) == 43
    first, counted, entry, inline = (8, 8, 20, 8) if big else (4, 2, 12, 4)
    short = f"{order}u2"
    fields = [("tag", short), ("type", short), ("count", f"{order}u{inline}"), ("value", f"V{inline}")]
    at, places = number(first, inline), set[int]()
    while at and at not in places and len(places) < _MOST_PAGES:
        places.add(at)
        count = number(at, counted)
        if count > _MOST_TAGS:
            raise damaged(file.url, f"a directory of at most {_MOST_TAGS} tags", count)
        end = at + counted + count * entry
        yield np.frombuffer(file.read(at + counted, end), fields)
        at = number(end, inline)


def _byte_order(file: SourceFile) -> Literal["<", ">"]:
    return ">" if file.head[:2] == b"MM" else "<"


def other_pages(file: SourceFile) -> list[int]:
    """Return the numbers (from 1) of the pages after the first that are no overviews and no masks."""
    pages = []
    with suppress(FormatError):  # a damaged page after the first
        for page, entries in enumerate(_directories(file), 1):
            kind = entries["value"][(entries["tag"] == _PAGE_KIND) & (entries["type"] == 4)]
            values = np.frombuffer(kind.tobytes()[:4], f"{_byte_order(file)}u4")
            if page > 1 and not (values & _REDUCED_OR_MASK).any():
                pages.append(page)
    return pages


def read_directory(file: SourceFile, page: int = 1) -> Directory:
    """Return the values of all tags of the image ``page`` (from 1). Texts are bytes."""
    rows = next(itertools.islice(_directories(file), page - 1, None), None)
    if rows is None:
        raise damaged(file.url, f"a TIFF with {page} pages", "fewer")
    order, inline = _byte_order(file), rows.dtype["value"].itemsize
    tags = {}
    total = 0
    for row in rows:
        dtype = np.dtype(order + _TYPES.get(int(row["type"]), "u1"))
        size = int(row["count"]) * dtype.itemsize
        total += size
        if total > file.size + rows.nbytes:
            raise damaged(file.url, f"tags with at most {file.size} bytes of values", f"{total} bytes")
        data = row["value"].tobytes()
        if size > inline:
            place = int(np.frombuffer(data, f"{order}u{inline}")[0])
            data = file.read(place, place + size)
        tags[int(row["tag"])] = np.frombuffer(data[:size], dtype)
    return tags


#: The usual name of the variable of the pixels.
DATA: Final = "band_data"

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
#: Photometric interpretations for which GDAL returns the stored numbers: grey, RGB, palette, mask.
_STORED_COLOURS: Final = (0, 1, 2, 3, 4)
_OTHER_COLOURS: Final = {5: "CMYK", 6: "YCbCr", 8: "CIE L*a*b*", 9: "ICC L*a*b*", 10: "ITU L*a*b*"}
#: Compression -> codecs of Zarr that decode it.
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


def compression_name(code: int) -> str:
    """Return the name of a compression, by the value of its tag."""
    return _COMPRESSIONS.get(code, f"compression {code}")


def _why_not(layout: TiffLayout, variable: VariableSchema) -> str | None:
    """Return the reason why tiles and strips cannot be chunks of a Zarr array; None if they can."""
    compression, itemsize = compression_name(layout.compression), variable.dtype.itemsize
    if compression not in _CODECS:
        return f"{compression}: no codec in Zarr"
    if layout.predictor != 1:
        return f"predictor {layout.predictor}: no codec in Zarr"
    if set(layout.bits) != {itemsize * 8}:
        return f"pixels of {layout.bits[0]} bits"
    if layout.photometric not in _STORED_COLOURS or layout.bands != variable.shape[0]:
        colours = _OTHER_COLOURS.get(layout.photometric, f"photometric interpretation {layout.photometric}")
        return f"{colours}: GDAL converts the stored colours"
    if layout.reversed_bits:
        return "bytes with the lowest bit first (FillOrder 2)"
    whole = math.prod(layout.chunk) * itemsize * (1 if layout.planar else layout.bands)
    fits = (layout.length == whole) | (layout.length == 0)
    if not layout.tiled and layout.height % layout.chunk[0]:  # the last strip is shorter
        strips = -(-layout.height // layout.chunk[0])
        fits |= np.arange(len(fits)) % strips == strips - 1
    if compression == "none" and not fits.all():
        return "tiles or strips that are longer or shorter than their pixels"
    return None


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
_NODATA: Final = 42113
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
    *("AREA_OR_POINT", "TIFFTAG_XRESOLUTION", "TIFFTAG_YRESOLUTION"),
    *("TIFFTAG_RESOLUTIONUNIT", "TIFFTAG_MINSAMPLEVALUE", "TIFFTAG_MAXSAMPLEVALUE"),
)
#: Attributes that control how xarray decodes values. Tags with these names are ignored, because GDAL uses the
#: nodata, scale and offset of the file.
_DECODING: Final = PACKED | {"coordinates", "dtype", "grid_mapping"}


def read_texts(image: Any, directory: Directory) -> dict[str, Any]:
    """Return tags, units and descriptions of an image of rasterio as attributes: texts, or lists for bands.

    rasterio reads them from the file and from a file next to it (``.aux.xml``). It expects UTF-8. If one text
    has another encoding, it returns no texts of the image, or raises an error. Then the texts are read from
    the directory of the page, as UTF-8 or else Latin-1.
    """
    raw = {tag: directory[tag].tobytes() for tag in (*_TEXTS, _METADATA) if tag in directory}
    is_utf8 = all(each.decode(errors="ignore").encode() == each for each in raw.values())
    tags: dict[str, str] = {}
    bands: list[dict[str, str]] = [{} for _ in image.indexes]
    special: dict[str, list[str | None]] = {each: [None] * len(bands) for each in ("description", "unittype")}
    items: list[ElementTree.Element] = []
    if is_utf8:
        tags, bands = image.tags(), [image.tags(band) for band in image.indexes]
        special = {"description": list(image.descriptions), "unittype": list(image.units)}
    else:
        for name in _NUMBERS:
            with suppress(UnicodeDecodeError):
                value = image.get_tag_item(name)
                tags |= {name: value} if value else {}
        tags |= {name: text(raw[tag]) for tag, name in _TEXTS.items() if tag in raw}
        document = text(raw.get(_METADATA, b""))
        # GDAL does not write entities or a document type.
        with suppress(ElementTree.ParseError):
            items = [] if "<!" in document else list(ElementTree.fromstring(document).iter("Item"))
    for item in items:
        sample, role, name = (item.attrib.get(key, "") for key in ("sample", "role", "name"))
        band = int(sample) if sample.isdecimal() and int(sample) < len(bands) else None
        value = unescape(item.text or "", _QUOTES)  # GDAL escapes twice
        if role.lower() in special:
            if band is not None:
                special[role.lower()][band] = value
        elif not role and "domain" not in item.attrib:
            (tags if band is None else bands[band])[name] = value
    # A band without a tag has the tag of the image, or an empty text.
    names = dict.fromkeys(name for mine in bands for name in mine if name not in _DECODING)
    texts = {name: [mine.get(name, tags.get(name, "")) for mine in bands] for name in names}
    for name, values in (("units", special["unittype"]), ("long_name", special["description"])):
        if any(values):
            texts[name] = [each or "" for each in values]
    attrs: dict[str, Any] = {name: each for name, each in tags.items() if name not in _DECODING}
    return attrs | {name: each[0] if len(set(each)) == 1 else each for name, each in texts.items()}


def _listed(value: Any) -> list[str]:
    """Return the items of a list in a tag of the NetCDF driver of GDAL: ``{0,31}``, or ``0``."""
    return value.strip("{}").split(",") if isinstance(value, str) else []


def netcdf_axis(attrs: Mapping[str, Any], count: int) -> tuple[str, NDArray[np.float64]] | None:
    """Return the dimension and the labels of the bands of an image that GDAL made of a NetCDF file.

    None if the image is not such one, or if its ``count`` bands are not along one dimension.
    """
    dims = _listed(attrs.get("NETCDF_DIM_EXTRA"))
    if len(dims) != 1 or not dims[0] or dims[0] in _IMAGE_DIMS or f"NETCDF_DIM_{dims[0]}_DEF" not in attrs:
        return None
    texts = _listed(attrs.get(f"NETCDF_DIM_{dims[0]}_VALUES"))
    of_bands = attrs.get(f"NETCDF_DIM_{dims[0]}", texts)  # a text if it is that of all bands
    try:
        labels, own = (np.array(each, np.float64).reshape(-1) for each in (texts, of_bands))
    except ValueError:
        return None
    return (dims[0], labels) if len(labels) == count and np.array_equal(labels, own) else None


def _own_attrs(attrs: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove the attributes of a NetCDF variable (``name#units``) from tags, and return them."""
    own = {key: attrs.pop(key) for key in list(attrs) if key.startswith(f"{name}#")}
    own = {key.removeprefix(f"{name}#"): value for key, value in own.items()}
    return {key: value for key, value in own.items() if key not in _DECODING}


GRID_MAPPING: Final = "spatial_ref"
_IMAGE_DIMS: Final = ("x", "y")
#: The coordinates of a rotated image, along the dimensions ``y`` and ``x``.
_PIXEL_COORDS: Final = ("xc", "yc")
#: The variables without values of pixels.
_NO_DATA: Final = (*_IMAGE_DIMS, *_PIXEL_COORDS, GRID_MAPPING)
#: Types of GDAL that numpy does not have -> dtype of their values in rasterio.
_DTYPES: Final = {"complex_int16": np.dtype("c8")}


def _missing_value(nodata: Any, directory: Directory, dtype: np.dtype[Any]) -> Any:
    """Return the pixel that means a missing value; None if there is none, or if no pixel can have it."""
    if nodata is None or dtype.kind not in "iu":
        return None if nodata is None else np.asarray(nodata).astype(dtype)[()]
    limits = np.iinfo(dtype)
    text = directory[_NODATA].tobytes().strip(b"\0 ") if _NODATA in directory else b""
    if text.lstrip(b"-").isdigit():
        nodata = int(text)  # GDAL has a float, which is another number from 2**53 on
    is_pixel = float(nodata).is_integer() and limits.min <= int(nodata) <= limits.max
    return dtype.type(int(nodata)) if is_pixel else None


class GeoTiffReader(Reader):
    """The reader of the first image of a TIFF, or of the image ``page`` (from 1), with all its bands."""

    format = "geotiff"
    library_errors: ClassVar[tuple[type[Exception], ...]] = (RasterioError, OSError, ValueError, TypeError)
    names_error_type = False

    option_names: ClassVar[tuple[str, ...]] = ("page",)

    def __init__(self, file: SourceFile, group: str = "/", *, page: int | None = None) -> None:
        super().__init__(file, group)
        if self.group != "/":
            raise no_group(file.url, self.group, "a TIFF has no groups: the reader option page chooses")
        self._directory = read_directory(file)
        self._layout = read_layout(file, self._directory)
        self._page = page
        path = self._stack.enter_context(file.local())
        try:
            with self.library_call("a TIFF"), warnings.catch_warnings():
                warnings.simplefilter("ignore", NotGeoreferencedWarning)
                name = path if page is None else f"GTIFF_DIR:{page}:{path}"
                self._image = self._stack.enter_context(rasterio.open(name))
                self._transform = self._image.transform
                self._is_upright = bool(self._transform.b == self._transform.d == 0)
            self._data = DATA
            self._axis: tuple[str, NDArray[Any]] = "band", np.arange(1, self._image.count + 1)
        except BaseException:
            self._stack.close()
            raise

    @override
    def contents(self) -> FileContents:
        image, crs = self._image, self._image.crs
        if len(set(image.dtypes)) > 1:
            raise damaged(self.file.url, "bands of one dtype", image.dtypes)
        shape = (image.count, image.height, image.width)
        dtype = _DTYPES.get(image.dtypes[0]) or np.dtype(image.dtypes[0])
        is_first = self._page is None
        chunks = (image.count if is_first and not self._layout.planar else 1, *image.block_shapes[0])
        directory = self._directory if is_first else read_directory(self.file, self._page or 1)
        nodata = _missing_value(image.nodata, directory, dtype)
        with self.library_call("texts of a TIFF"):
            attrs = {**read_texts(image, directory), "grid_mapping": GRID_MAPPING}
        self._axis, name = netcdf_axis(attrs, image.count) or self._axis, attrs.get("NETCDF_VARNAME")
        if isinstance(name, str) and name.isidentifier() and name not in (*_NO_DATA, self._axis[0]):
            self._data = name
            attrs = {**_own_attrs(attrs, self._data), **_own_attrs(attrs, "NC_GLOBAL"), **attrs}
        axis_attrs = _own_attrs(attrs, self._axis[0])
        dims = dict(zip((self._axis[0], "y", "x"), shape, strict=True))
        if not self._is_upright:
            attrs["coordinates"] = " ".join(_PIXEL_COORDS)
        if crs is not None or self._transform != rasterio.Affine.identity():
            attrs |= self._geozarr(crs, is_node=attrs.get("AREA_OR_POINT") == "Point")
        if nodata is not None:
            attrs["_FillValue"] = json_value(nodata)
        # CF libraries can apply a scale and an offset only if all bands share them.
        scales, offsets = image.scales, image.offsets
        if len(set(scales)) > 1 or len(set(offsets)) > 1:
            attrs |= {"scales": list(scales), "offsets": list(offsets)}
        elif (scales[0], offsets[0]) != (1, 0):
            attrs |= {"scale_factor": float(scales[0]), "add_offset": float(offsets[0])}
        stored = None if chunks == shape else chunks
        codec = compression_name(self._layout.compression) if is_first else None
        variables = [
            VariableSchema(self._data, tuple(dims), shape, dtype, attrs, nodata, stored, codec),
            VariableSchema(self._axis[0], (self._axis[0],), shape[:1], self._axis[1].dtype, axis_attrs),
        ]
        for axis in ("y", "x") if self._is_upright else ("x", "y"):
            on = (axis,) if self._is_upright else ("y", "x")
            attrs = {"axis": axis.upper()} if self._is_upright and crs is not None else {}
            if crs is not None and crs.is_geographic:
                long, direction = {"x": ("longitude", "east"), "y": ("latitude", "north")}[axis]
                attrs |= {"standard_name": long, "long_name": long, "units": f"degrees_{direction}"}
            elif crs is not None:
                attrs["standard_name"] = f"projection_{axis}_coordinate"
                attrs["long_name"] = f"{axis} coordinate of projection"
                attrs["units"] = crs.linear_units or "metre"
            name, sizes = axis if self._is_upright else f"{axis}c", tuple(dims[dim] for dim in on)
            variables.append(VariableSchema(name, on, sizes, np.dtype("f8"), attrs))
        mapping = {"GeoTransform": " ".join(map(str, self._transform.to_gdal()))}
        if crs is not None:
            wkt = crs.to_wkt()
            mapping = {"crs_wkt": wkt, "spatial_ref": wkt, **grid_mapping_attrs(crs.to_dict()), **mapping}
        variables.append(VariableSchema(GRID_MAPPING, (), (), np.dtype("i8"), mapping))
        pages = other_pages(self.file) if is_first else []
        option = "the reader option page chooses one"
        skipped = {f"page {', '.join(map(str, pages))}": f"another image: {option}"} if pages else {}
        if "NETCDF_DIM_EXTRA" in variables[0].attrs and self._axis[0] == "band":
            skipped["NETCDF_DIM_EXTRA"] = "the bands do not follow each other in one dimension of NetCDF"
        return FileContents(variables, {}, dims, skipped=skipped)

    def _geozarr(self, crs: Any, *, is_node: bool) -> dict[str, Any]:
        """Return the attributes of GeoZarr: the places of pixels, and their system."""
        code = wkt2 = None
        if crs is not None:
            with self.library_call("a coordinate reference system"):
                authority = crs.to_authority()
                code = authority and ":".join(authority)
                wkt2 = None if code else crs.to_wkt(version="WKT2_2019")
        return attributes_of_raster(tuple(self._transform)[:6], is_node=is_node, code=code, wkt2=wkt2)

    @override
    def values(self, variable: VariableSchema, bounds: Bounds) -> NDArray[Any]:
        name, image, transform = variable.name, self._image, self._transform
        if name in _PIXEL_COORDS:  # the centres of these pixels
            per_column, per_row, at = transform[:3] if name == _PIXEL_COORDS[0] else transform[3:6]
            row, column = np.arange(*bounds[0])[:, np.newaxis], np.arange(*bounds[1])[np.newaxis]
            return np.asarray(column * per_column + row * per_row + (per_column * 0.5 + per_row * 0.5 + at))
        if name != self._data:
            values: Any = np.array(0)
            if name == self._axis[0]:
                values = self._axis[1]
            elif name == "x":
                values = transform.c + (np.arange(image.width) + 0.5) * transform.a
            elif name == "y":
                values = transform.f + (np.arange(image.height) + 0.5) * transform.e
            return np.asarray(values[tuple(slice(*each) for each in bounds)])
        first, rows, columns = bounds
        window = Window(columns[0], rows[0], columns[1] - columns[0], rows[1] - rows[0])
        with self.library_call("values"):
            return np.asarray(image.read([band + 1 for band in range(*first)], window=window))

    @override
    def references(self, name: str) -> ChunkReferences | NotVirtual:
        """Return references to the tiles or strips of the first image."""
        variable, layout = self.variable(name), self._layout
        if name != self._data:
            return NotVirtual("computed from the metadata of the file")
        if self._page is not None:
            return NotVirtual("a page that is not the first")
        if (reason := _why_not(layout, variable)) is not None:
            return NotVirtual(reason)
        compression = _COMPRESSIONS[layout.compression]
        dtype = variable.dtype.newbyteorder(">" if layout.big_endian else "<")
        codecs = [bytes_codec(dtype), *_CODECS[compression]]
        if layout.bands > 1 and not layout.planar:
            codecs.insert(0, {"name": "transpose", "configuration": {"order": [1, 2, 0]}})
        rows, columns = -(-layout.height // layout.chunk[0]), -(-layout.width // layout.chunk[1])
        index = np.indices((layout.bands if layout.planar else 1, rows, columns), np.uint32).reshape(3, -1).T
        stored = np.flatnonzero(layout.length)
        references = references_to_file(
            self.file.location,
            (1 if layout.planar else layout.bands, *layout.chunk),
            codecs,
            dtype,
            variable.fill_value if variable.fill_value is not None else dtype.type(0),
            index[stored],
            layout.offset[stored],
            layout.length[stored],
        )
        if layout.tiled or not layout.height % layout.chunk[0]:
            return references
        strips, first = {}, (rows - 1) * layout.chunk[0]
        for row in np.flatnonzero(references.index[:, 1] == rows - 1).tolist():
            band = int(references.index[row, 0])
            bands = slice(band, band + 1) if layout.planar else slice(0, layout.bands)
            values = self.read(name, (bands, slice(first, layout.height), slice(0, layout.width)))
            whole = np.zeros(references.chunks, references.dtype)
            whole[:, : values.shape[1]] = values
            pixels = whole if layout.planar else whole.transpose(1, 2, 0)
            strips[row] = _ENCODERS[compression](pixels.tobytes())
        return references.with_inline(strips)

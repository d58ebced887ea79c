"""GeoTIFF: pixels, coordinates and what rasterio tells of them; tiles and strips where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.readers.comparing import read_all, same, same_by_references, same_regions, why_not

from frazil.errors import FormatError
from frazil.readers.registry import open_source

rasterio = pytest.importorskip("rasterio")
pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    # where images are written here
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]


def write_file(path: Path, bands: int = 1, dtype: str = "int16", **more: Any) -> np.ndarray:
    """An image of 50 rows and 70 columns."""
    values = (np.arange(bands * 3500).reshape(bands, 50, 70) % 251).astype(
        "c8" if dtype == "complex_int16" else dtype
    )
    place = rasterio.transform.from_origin(500_000, 5_000_000, 10, 20)
    options = {"crs": "EPSG:32633", "transform": place} | more
    with rasterio.open(path, "w", "GTiff", 70, 50, bands, dtype=dtype, **options) as image:
        image.write(values)
    return values


def without_geozarr(attrs: dict[str, Any]) -> dict[str, Any]:
    names = ("zarr_conventions", "proj:", "spatial:")
    return {name: value for name, value in attrs.items() if not name.startswith(names)}


LAYOUTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "strips": {"blockysize": 16},
    "even strips": {"blockysize": 10},
    "tiles": {"tiled": True, "blockxsize": 32, "blockysize": 16},
    "big": {"BIGTIFF": "YES", "tiled": True, "blockxsize": 32, "blockysize": 16},
    "big-endian": {"ENDIANNESS": "BIG", "blockysize": 16},
    "planes": {"interleave": "band", "blockysize": 16},
    "planes of tiles": {"interleave": "band", "tiled": True, "blockxsize": 32, "blockysize": 16},
}


@pytest.mark.sample(19)
@pytest.mark.parametrize("compress", ["none", "deflate", "zstd"])
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, bands: int, compress: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for dtype in ("uint8", "int16", "float32"):
        values = write_file(path, bands, dtype, compress=compress, **LAYOUTS[layout])
        with open_source(str(path)) as reader:
            schema = reader.schema()
            assert schema.format == "geotiff"
            assert schema.dims == {"band": bands, "y": 50, "x": 70}
            same(read_all(reader, "band_data"), values)
            same_regions(reader, "band_data")
            same_by_references(reader, "band_data")


def test_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_file(path, 2, nodata=-7)
    with rasterio.open(path, "r+") as image:
        image.scales, image.offsets, image.units = (0.1, 0.1), (5, 5), ("K", "K")
        image.descriptions = ("red", "nir")
        image.update_tags(title="an image", scale_factor="9", grid_mapping="crs", dtype="bool")
        image.update_tags(1, _FillValue="nothing", missing_value="-1", add_offset="x", _Unsigned="true")
    with open_source(str(path)) as reader:
        schema = reader.schema()
        attrs = without_geozarr(schema.variables["band_data"].attrs)
        mapping = schema.variables["spatial_ref"].attrs
        assert attrs == {
            "AREA_OR_POINT": "Area",
            "title": "an image",
            "grid_mapping": "spatial_ref",
            "_FillValue": -7,
            "scale_factor": 0.1,
            "add_offset": 5.0,
            "units": "K",
            "long_name": ["red", "nir"],
        }
        assert [name for name, each in schema.variables.items() if not each.coordinate] == ["band_data"]
        same(schema.coords["x"], 500_005 + 10.0 * np.arange(70))
        same(schema.coords["y"], 4_999_990 - 20.0 * np.arange(50))
        same(schema.coords["band"], [1, 2])
        assert schema.variables["x"].attrs["standard_name"] == "projection_x_coordinate"
        assert mapping["GeoTransform"] == "500000.0 10.0 0.0 5000000.0 0.0 -20.0"
        assert rasterio.crs.CRS.from_wkt(mapping["crs_wkt"]) == rasterio.crs.CRS.from_epsg(32633)
        assert mapping["grid_mapping_name"] == "transverse_mercator"
        assert mapping["longitude_of_central_meridian"] == 15
        assert mapping["semi_major_axis"] == 6378137
        assert "computed from the metadata" in why_not(reader, "x")


@pytest.mark.parametrize(
    ("epsg", "expected"),
    [
        (4326, {"grid_mapping_name": "latitude_longitude"}),
        (32733, {"grid_mapping_name": "transverse_mercator", "false_northing": 1e7}),
        (3035, {"grid_mapping_name": "lambert_azimuthal_equal_area", "false_easting": 4321000}),
        (2154, {"grid_mapping_name": "lambert_conformal_conic", "standard_parallel": [49.0, 44.0]}),
        (3413, {"grid_mapping_name": "polar_stereographic", "standard_parallel": 70}),
    ],
)
def test_grid_mappings(epsg: int, expected: dict[str, Any], tmp_path: Path) -> None:
    write_file(tmp_path / "a.tif", crs=f"EPSG:{epsg}")
    with open_source(str(tmp_path / "a.tif")) as reader:
        mapping = reader.schema().variables["spatial_ref"].attrs
    assert mapping.items() >= expected.items()


@pytest.mark.parametrize(
    ("epsg", "names"),
    [(32633, "projection_{}_coordinate"), (4326, {"xc": "longitude", "yc": "latitude"}), (None, None)],
)
def test_pixels_of_rotated_images(epsg: int | None, names: Any, tmp_path: Path) -> None:
    turned = rasterio.Affine(1.5, -5, 30, -2, -1.5, 40)
    write_file(tmp_path / "a.tif", transform=turned, crs=epsg)
    rows, columns = np.indices((50, 70))
    x, y = rasterio.transform.xy(turned, rows.ravel(), columns.ravel())
    with open_source(str(tmp_path / "a.tif")) as reader:
        schema = reader.schema()
        assert set(schema.variables) == {"band_data", "band", "xc", "yc", "spatial_ref"}
        assert schema.variables["band_data"].attrs["coordinates"] == "xc yc"
        for name, expected in (("xc", x), ("yc", y)):
            variable = schema.variables[name]
            assert (variable.dims, variable.coordinate) == (("y", "x"), True)
            np.testing.assert_allclose(read_all(reader, name).ravel(), expected, rtol=1e-12)
            same_regions(reader, name)
            wanted = names.format(name[0]) if isinstance(names, str) else (names or {}).get(name)
            assert variable.attrs.get("standard_name") == wanted
            assert "axis" not in variable.attrs


def data_attrs(path: Path, **options: Any) -> dict[str, Any]:
    with open_source(str(path), **options) as reader:
        return without_geozarr(reader.schema().variables["band_data"].attrs)


def test_tags_of_bands(tmp_path: Path) -> None:
    write_file(tmp_path / "two.tif", 2)
    with rasterio.open(tmp_path / "two.tif", "r+") as image:
        image.update_tags(title="of the image", source="satellite")
        image.update_tags(1, source="aircraft", levtype="sfc", param="2t", units="K")
        image.update_tags(2, levtype="sfc", units="Pa")
    assert data_attrs(tmp_path / "two.tif") == {
        "AREA_OR_POINT": "Area",
        "title": "of the image",
        "grid_mapping": "spatial_ref",
        "source": ["aircraft", "satellite"],
        "levtype": "sfc",
        "param": ["2t", ""],
        "units": ["K", "Pa"],
    }


def test_scales_that_differ_are_not_applied(tmp_path: Path) -> None:
    write_file(tmp_path / "a.tif", 2)
    for scales, offsets in (([1, 1], [0, 5]), ([0.1, 0.2], [5, 5])):
        with rasterio.open(tmp_path / "a.tif", "r+") as image:
            image.scales, image.offsets = scales, offsets
        attrs = data_attrs(tmp_path / "a.tif")
        assert (attrs["scales"], attrs["offsets"]) == (scales, offsets)
        assert "scale_factor" not in attrs


@pytest.mark.parametrize("place", ["image", "band", "description", "unit", "artist"])
@pytest.mark.parametrize("big", ["NO", "YES"])
def test_texts_that_are_not_utf8_are_latin1(place: str, big: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    # as many bytes in Latin-1 as here
    texts = {each: "caf???" if each == place else "coffee" for each in ("image", "band", "description")}
    write_file(path, 2, BIGTIFF=big)
    with rasterio.open(path, "r+") as image:
        image.update_tags(title=texts["image"], TIFFTAG_ARTIST="caf???" if place == "artist" else "an artist")
        image.update_tags(2, source=f"<{texts['band']}> & others")
        image.descriptions = (texts["description"], "other")
        image.units = ("caf???" if place == "unit" else "metre", "metre")
    whole = path.read_bytes()
    assert whole.count(b"caf???") == 1
    path.write_bytes(whole.replace(b"caf???", "caf\xe9!!".encode("latin-1")))
    attrs = data_attrs(path)
    bad = {place: "café!!"}
    assert attrs == {
        "AREA_OR_POINT": "Area",
        "TIFFTAG_ARTIST": bad.get("artist", "an artist"),
        "title": bad.get("image", "coffee"),
        "source": ["", f"<{bad.get('band', 'coffee')}> & others"],
        "grid_mapping": "spatial_ref",
        "units": [bad["unit"], "metre"] if place == "unit" else "metre",
        "long_name": [bad.get("description", "coffee"), "other"],
    }


def test_texts_of_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    for number, page in enumerate(["red", "gr???", "blue"]):
        options = {"APPEND_SUBDATASET": "YES"} if number else {}
        with rasterio.open(path, "w", "GTiff", 7, 5, 1, dtype="uint8", **options) as image:
            image.write(np.full((1, 5, 7), number, "u1"))
            image.update_tags(1, colour=page)
    path.write_bytes(path.read_bytes().replace(b"gr???", b"gr\xfcn!"))
    attrs = [data_attrs(path, page=page)["colour"] for page in (1, 2, 3)]
    assert attrs == ["red", "grün!", "blue"]
    with open_source(str(path)) as reader:
        assert list(reader.schema().skipped) == ["page 2, 3"]
    with open_source(str(path), page=2) as reader:
        assert not reader.schema().skipped


@pytest.mark.parametrize("endianness", ["LITTLE", "BIG"])
def test_overviews_and_masks_are_no_pages(endianness: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_file(path, dtype="uint8", ENDIANNESS=endianness)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as image:
        image.write_mask(np.ones((50, 70), bool))
        image.build_overviews([2])
    with open_source(str(path)) as reader:
        assert not reader.schema().skipped


@pytest.mark.parametrize(
    ("changes", "dim"),
    [
        ({}, "time"),
        ({"NETCDF_DIM_EXTRA": "{time,level}"}, "band"),
        ({"NETCDF_DIM_time_VALUES": "{0,31,59}"}, "band"),
        ({"NETCDF_DIM_time_VALUES": "{0,30}"}, "band"),
    ],
)
def test_images_of_netcdf_have_its_dimension(changes: dict[str, str], dim: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    values = write_file(path, 2)
    tags = {
        "NETCDF_DIM_EXTRA": "{time}",
        "NETCDF_DIM_time_DEF": "{2,6}",
        "NETCDF_DIM_time_VALUES": "{0,31}",
        "time#units": "days since 2000-01-01",
        "rain#units": "mm",
        "NC_GLOBAL#title": "Rain",
    }
    with rasterio.open(path, "r+") as image:
        image.update_tags(**tags | changes)
        for band, label in enumerate(("0", "31"), 1):
            image.update_tags(band, NETCDF_VARNAME="rain", NETCDF_DIM_time=label)
    with open_source(str(path)) as reader:
        schema = reader.schema()
        rain = schema.variables["rain"]
        assert rain.dims == (dim, "y", "x")
        assert rain.attrs.items() >= {"units": "mm", "title": "Rain"}.items()
        assert np.array_equal(read_all(reader, "rain"), values)
        assert list(schema.skipped) == (["NETCDF_DIM_EXTRA"] if dim == "band" else [])
        if dim == "time":
            assert schema.variables["time"].attrs == {"units": "days since 2000-01-01"}
            assert schema.coords["time"].tolist() == [0, 31]
        same_by_references(reader, "rain")


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [
        ("int8", 5),
        ("int8", 127),
        ("int16", -32768),
        ("int16", 256),
        ("int16", 32767),
        ("int32", 2**31 - 1),
        ("int64", 2**40),
    ],
)
def test_nodata_of_integers(dtype: str, nodata: int, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_file(path, dtype=dtype, nodata=nodata)
    assert data_attrs(path)["_FillValue"] == nodata


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_nodata_that_no_float_can_be(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_file(path, dtype=dtype, nodata=2**53)
    path.write_bytes(path.read_bytes().replace(b"%d\0" % (2**53), b"%d\0" % (2**53 + 1)))
    assert data_attrs(path)["_FillValue"] == 2**53 + 1


@pytest.mark.parametrize("nodata", [b"nan", b"inf", b"1.5", b"999", b"-99"])
def test_nodata_that_no_pixel_can_have(nodata: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_file(path, dtype="uint8", nodata=123)
    assert data_attrs(path)["_FillValue"] == 123
    whole = path.read_bytes()
    assert whole.count(b"123\0") == 1
    path.write_bytes(whole.replace(b"123\0", nodata + b"\0"))
    assert "_FillValue" not in data_attrs(path)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"compress": "lzw"}, "LZW: no codec in Zarr"),
        ({"compress": "deflate", "predictor": 2}, "predictor 2: no codec in Zarr"),
        ({"compress": "packbits"}, "packbits: no codec in Zarr"),
        ({"nbits": 4, "dtype": "uint8"}, "pixels of 4 bits"),
        (
            {"bands": 4, "dtype": "uint8", "photometric": "CMYK", "compress": "deflate"},
            "CMYK: GDAL converts the stored colours",
        ),
        (
            {"bands": 3, "dtype": "uint8", "photometric": "CIELAB"},
            "CIE L*a*b*: GDAL converts the stored colours",
        ),
        ({"dtype": "complex_int16"}, "pixels of 32 bits"),
    ],
)
def test_why_not(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    write_file(tmp_path / "a.tif", **more)
    with open_source(str(tmp_path / "a.tif")) as reader:
        assert why_not(reader, "band_data") == why
        with rasterio.open(tmp_path / "a.tif") as image:
            same(read_all(reader, "band_data"), image.read())


def test_sizes_that_are_not_those_of_the_pixels(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    values = write_file(path, blockysize=10)
    sizes = np.full(5, 10 * 70 * 2, "<u2").tobytes()
    data = path.read_bytes()
    assert data.count(sizes) == 1
    path.write_bytes(data.replace(sizes, sizes[:-2] + np.array([1404], "<u2").tobytes()) + bytes(4))
    with open_source(str(path)) as reader:
        same(read_all(reader, "band_data"), values)
        assert why_not(reader, "band_data") == "tiles or strips that are longer or shorter than their pixels"


def test_tiles_that_are_not_stored(tmp_path: Path) -> None:
    options = {"tiled": True, "blockxsize": 16, "blockysize": 16, "SPARSE_OK": "TRUE", "nodata": 3}
    with rasterio.open(tmp_path / "a.tif", "w", "GTiff", 64, 48, 1, dtype="uint8", **options) as image:
        image.write(np.ones((1, 16, 32), "u1"), window=((16, 32), (16, 48)))
    with open_source(str(tmp_path / "a.tif")) as reader:
        assert len(same_by_references(reader, "band_data").offset) == 2


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    write_file(path, blockysize=16)
    whole = path.read_bytes()
    for size in (len(whole) - 100, len(whole) // 2, 200, 6):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError, match="truncated") as raised:
            open_source(str(path))
        assert path.as_uri() in str(raised.value)
    path.write_bytes(b"II*\0\x08\0\0\0" + bytes(100))
    with pytest.raises(FormatError, match="a TIFF with tag"):
        open_source(str(path))

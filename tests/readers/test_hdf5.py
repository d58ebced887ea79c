"""HDF5 and NetCDF-4: what a reader tells is what xarray and the library see, and its references hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from tests.readers import comparing

from frazil.errors import ErrorKind, FormatError, StorageError
from frazil.readers.hdf5 import PLUGIN_PACKAGES, add_plugins
from frazil.readers.registry import open_source

h5py = pytest.importorskip("h5py")
netCDF4 = pytest.importorskip("netCDF4")  # noqa: N816
pytestmark = pytest.mark.filterwarnings("ignore:numpy.ndarray size changed")


# Files with one feature each, as the library of NetCDF writes them.

VALUES = np.arange(24).reshape(2, 3, 4)


def packed(file: Any) -> None:
    variable = file.createVariable(
        "packed", "i2", ("z", "y", "x"), fill_value=-999, zlib=True, chunksizes=(1, 2, 3)
    )
    variable.set_auto_maskandscale(False)
    variable.setncatts({"scale_factor": 0.5, "add_offset": np.float32(273.15), "missing_value": np.int16(-1)})
    variable[...] = VALUES
    variable[0, 0, 0] = -999


def calendars(file: Any) -> None:
    for calendar in ("noleap", "360_day", "gregorian", "julian"):
        variable = file.createVariable(calendar, "f8", ("y",))
        variable.setncatts({"units": "days since 2000-02-27 00:00", "calendar": calendar})
        variable[...] = [0, 1, 2.5]


def strings(file: Any) -> None:
    words = file.createVariable("words", str, ("z", "y"))
    words[...] = np.array([["", "a", "øresund"], ["b" * 70, "日本", "c d"]], object)
    characters = file.createVariable("characters", "S1", ("z", "x"))
    characters[...] = np.array([[b"a", b"b", b"", b"d"], [b"x", b"", b"", b""]])
    file.setncattr_string("one", "word")
    file.setncattr_string("many", ["a", "b c"])
    file.setncattr_string("list", ["one"])
    file.setncattr("big", np.array([2**63], "u8"))
    file.setncattr("empty", "")


def big_endian(file: Any) -> None:
    for kind in ("i2", "i4", "f4", "f8"):
        file.createVariable(kind, f">{kind}", ("y", "x"), endian="big", zlib=True)[...] = VALUES[0]


def every_type(file: Any) -> None:
    for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
        file.createVariable(kind, kind, ("y",))[...] = [0, 1, 100]


def scalars(file: Any) -> None:
    file.createVariable("height", "f8", ())[...] = 2.0
    file.createVariable("crs", "i4", ()).setncatts({"grid_mapping_name": "rotated_latitude_longitude"})
    file.createVariable("data", "f4", ("x",)).setncatts({"grid_mapping": "crs", "coordinates": "height lat"})
    file["data"][...] = [5, 6, 7, 8]
    file.createVariable("lat", "f4", ("x",))[...] = [1, 2, 3, np.nan]


def unlimited(file: Any) -> None:
    file.createDimension("t", None)
    file.createDimension("u", None)
    file.createVariable("long", "f4", ("t", "x"), chunksizes=(2, 4))[:4] = np.arange(16).reshape(4, 4)
    file.createVariable("short", "i4", ("t",), fill_value=-7, chunksizes=(2,))[:3] = [1, 2, 3]
    file.createVariable("u", "i4", ("u",))[:3] = [7, 8, 9]
    file.createVariable("t", "f8", ("t",))[:2] = [0, 1]
    file.createVariable("never", "f8", ("u", "x"))


def zero_length(file: Any) -> None:
    file.createDimension("none", None)
    file.createVariable("nothing", "f4", ("none", "x"))
    file.createVariable("none", "f8", ("none",))


def enumeration(file: Any) -> None:
    clouds = file.createEnumType(np.uint8, "clouds", {"clear": 0, "broken": 1, "missing": 255})
    file.createVariable("cloud", clouds, ("x",), fill_value=255)[...] = [0, 1, 0, 255]


def names(file: Any) -> None:
    """A variable with the name of a dimension that is not its own, and a coordinate of two dimensions."""
    file.createVariable("y", "f4", ("x",))[...] = [1, 2, 3, 4]
    file.createVariable("x", "f4", ("x", "z"))[...] = VALUES[0, :2].T


def checked(file: Any) -> None:
    file.createDimension("far", 500)
    compressors: dict[str, dict[str, Any]] = {
        "sums": {"fletcher32": True},
        "shuffled": {"zlib": True, "shuffle": True, "complevel": 7},
    }
    if netCDF4.__has_blosc_support__ and netCDF4.__has_zstandard_support__:  # not in older wheels
        compressors |= {
            "zstd": {"compression": "zstd"},
            "bzip2": {"compression": "bzip2"},
            "lz": {"compression": "blosc_lz4"},
            "zblosc": {"compression": "blosc_zstd", "blosc_shuffle": 2},
        }
    for name, more in compressors.items():
        file.createVariable(name, "f4", ("y", "far"), chunksizes=(2, 300), **more)[...] = (
            np.arange(1500).reshape(3, 500) // 9
        )


FEATURES = [
    packed,
    calendars,
    strings,
    big_endian,
    every_type,
    scalars,
    unlimited,
    zero_length,
    enumeration,
    names,
    checked,
]


def write_file(path: Path, feature: Callable[..., Any]) -> Path:
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": feature.__name__, "numbers": np.array([1.5, 2.5], "f4"), "n": np.int64(5)})
        for name, size in {"z": 2, "y": 3, "x": 4}.items():
            file.createDimension(name, size)
        feature(file)
    return path


@pytest.mark.parametrize("feature", FEATURES)
def test_features(feature: Callable[..., Any], tmp_path: Path) -> None:
    path = write_file(tmp_path / "a b.nc", feature)  # a name that a URL has to escape
    added = ("flag_values", "flag_meanings") if feature is enumeration else ()
    with (
        xr.open_dataset(path, decode_cf=False, engine="netcdf4") as original,
        open_source(str(path)) as reader,
    ):
        comparing.same_as_xarray(reader, original, added=added)
        assert {key for each in reader.schema().variables.values() for key in each.attrs} >= {*added}
        for name, variable in reader.schema().variables.items():
            comparing.same_regions(reader, name)
            if variable.dtype.kind != "T":
                comparing.same_by_references(reader, name)


def test_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("x", 3)
        file.createVariable("x", "f4", ("x",))[...] = [1, 2, 3]
        inner = file.createGroup("one/two")
        inner.createDimension("y", 2)
        inner.createVariable("v", "i4", ("y", "x"))[...] = [[1, 2, 3], [4, 5, 6]]
        inner.title = "inner"
    for group in ("/", "one/two"):
        with (
            xr.open_dataset(path, decode_cf=False, engine="netcdf4", group=group) as original,
            open_source(str(path), group=group) as reader,
        ):
            comparing.same_as_xarray(reader, original)
    with open_source(str(path)) as reader:
        assert reader.schema().groups == ("/one", "/one/two")
    with pytest.raises(FormatError, match=r"no group /three: the file has the groups \['/one', '/one/two'\]"):
        open_source(str(path), group="three").schema()


# HDF5 that is not NetCDF-4


def make_hdf5(path: Path, make: Callable[..., Any]) -> Path:
    with h5py.File(path, "w", **({"userblock_size": 1024} if make is userblock else {})) as file:
        make(file)
    return path


def userblock(file: Any) -> None:
    file["whole"] = VALUES
    file.create_dataset("cut", data=VALUES, chunks=(1, 2, 3), compression="gzip")
    file.create_dataset("empty", (3, 4), "f4", fillvalue=7)


def types(file: Any) -> None:
    file["bool"] = np.array([True, False, True])
    file["half"] = np.arange(4, dtype="f2")
    file["complex"] = np.arange(4) * (1 + 2j)
    file["fixed"] = np.array([b"abc", b"d", b""], "S3")
    for pad in ("STR_NULLTERM", "STR_SPACEPAD", "STR_NULLPAD"):
        text = h5py.h5t.C_S1.copy()
        text.set_size(4)
        text.set_strpad(getattr(h5py.h5t, pad))
        space = h5py.h5s.create_simple((2,))
        padded = h5py.h5d.create(file.id, pad.encode(), text, space)
        padded.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([b"ab\0d", b"a   "], "S4"), text)
    file["square"] = np.arange(9).reshape(3, 3)
    small = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    small.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((3,))
    compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I32BE, space, dcpl=small)
    compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([1, 2, 3], "i4"))


@pytest.mark.parametrize("make", [userblock, types])
def test_plain_hdf5(make: Callable[..., Any], tmp_path: Path) -> None:
    path = make_hdf5(tmp_path / "a.h5", make)
    with h5py.File(path) as file, open_source(str(path)) as reader:
        dims = {name: each.dims for name, each in reader.schema().variables.items()}
        assert dims.keys() == set(file)
        if make is userblock:
            assert dims["whole"] == dims["cut"] == ("phony_dim_0", "phony_dim_1", "phony_dim_2")
            assert dims["empty"] == dims["whole"][1:]
        else:
            assert len({*dims["square"]}) == 2
        for name in file:
            expected = file[name][()]
            comparing.same(
                comparing.read_all(reader, name),
                np.strings.decode(expected) if expected.dtype.kind == "S" else expected,
            )
            comparing.same_regions(reader, name)
            if expected.dtype.kind == "S":
                assert "only the library knows" in comparing.why_not(reader, name)
            else:
                comparing.same_by_references(reader, name)


def test_more_than_four_gigabytes(tmp_path: Path) -> None:
    """Sparse: nothing but the ends are written."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        late = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        late.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        large = h5py.Dataset(
            h5py.h5d.create(
                file.id, b"large", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((1_200_000_000,)), dcpl=late
            )
        )
        large[-3:] = [1, 2, 3]
        file["small"] = [1, 2, 3]
    assert path.stat().st_size > 1 << 32
    with open_source(str(path)) as reader:
        comparing.same(reader.read("large", (slice(1_199_999_997, None),)), np.array([1, 2, 3], "f4"))
        comparing.same(comparing.read_all(reader, "small"), [1, 2, 3])
        assert comparing.references_of(reader, "small").offset[0] > 1 << 32
        assert comparing.references_of(reader, "large").length[0] == 4_800_000_000
    path.unlink()


def test_what_no_array_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"] = [1, 2]
        file["fields"] = np.zeros(2, [("a", "i4"), ("b", "f4")])
        file.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        file["to"] = np.array([file["good"].ref], h5py.ref_dtype)
        file["null"] = h5py.Empty("f4")
        file["gone"] = h5py.SoftLink("/nowhere")
        file["good"].attrs.update({"null": h5py.Empty("f4"), "to": file["good"].ref, "yes": np.bool_(True)})
    with open_source(str(path)) as reader:
        schema = reader.schema()
        assert set(schema.variables) == {"good"}
        assert set(schema.skipped) == {"fields", "ragged", "to", "null", "gone"}
        assert schema.variables["good"].attrs["yes"] is True
        with pytest.raises(FormatError, match="got one that cannot be read: a compound"):
            reader.read("fields", (slice(None),))


def test_filters_without_a_codec(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("lzf", data=VALUES, compression="lzf", chunks=True)
        file.create_dataset("scaled", data=VALUES, scaleoffset=0, chunks=True)
        mixed = file.create_dataset("mixed", (4,), "i4", chunks=(2,), compression="gzip")
        mixed[...] = [1, 2, 3, 4]
        mixed.id.write_direct_chunk((2,), np.array([3, 4], "i4").tobytes(), filter_mask=1)
        left_out = file.create_dataset("left_out", (2,), "i4", chunks=(2,), compression="gzip", shuffle=True)
        left_out.id.write_direct_chunk((0,), np.array([3, 4], "i4").tobytes(), filter_mask=3)
        odd = h5py.h5t.STD_I32LE.copy()
        odd.set_precision(20)
        h5py.h5d.create(file.id, b"odd", odd, h5py.h5s.create_simple((3,)))
    with open_source(str(path)) as reader:
        assert comparing.why_not(reader, "lzf") == "lzf: no codec in Zarr"
        assert "no codec" in comparing.why_not(reader, "scaled")
        assert "different filters" in comparing.why_not(reader, "mixed")
        assert "another format" in comparing.why_not(reader, "odd")
        assert comparing.same_by_references(reader, "left_out").codecs[1:] == []
        for name in ("lzf", "scaled"):
            comparing.same(comparing.read_all(reader, name), VALUES)


def test_links_and_data_in_other_files_are_refused(tmp_path: Path) -> None:
    layout = h5py.VirtualLayout((3,), "i4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
    elsewhere = [("/tmp/other.raw", 0, 12)]
    for make, message in {
        lambda file: file.update(x=h5py.ExternalLink("/etc/other.h5", "/x")): "'x', a link to '/x' in '/etc",
        lambda file: file.create_dataset("raw", (3,), "i4", external=elsewhere): "'raw', whose data are",
        lambda file: file.create_virtual_dataset("together", layout): "'together', whose data are in other",
    }.items():
        path = make_hdf5(tmp_path / "a.h5", make)
        with open_source(str(path)) as reader, pytest.raises(FormatError, match=message) as raised:
            reader.schema()
        assert path.as_uri() in str(raised.value)


def test_damaged_files(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.nc", checked)
    whole = path.read_bytes()
    for name, data, message in [
        ("cut", whole[:-1], "truncated"),
        ("half", whole[: len(whole) // 2], "truncated"),
        ("head", whole[:8], "."),
        ("text", b"time,value\n", "bytes b'time,val'"),
        ("empty", b"", "an empty file"),
    ]:
        bad = tmp_path / f"{name}.nc"
        bad.write_bytes(data)
        with pytest.raises(FormatError, match=message) as raised:
            open_source(str(bad)).schema()
        assert raised.value.kind == ErrorKind.INVALID_FILE_FORMAT
        assert bad.as_uri() in str(raised.value)
    with pytest.raises(StorageError, match="does not exist"):
        open_source(str(tmp_path / "none.nc"))
    # a byte in a chunk with a sum
    broken = bytearray(whole)
    with open_source(str(path)) as reader:
        references = comparing.references_of(reader, "sums")
        broken[int(references.offset[0]) + 5] ^= 1
    path.write_bytes(broken)
    with open_source(str(path)) as reader, pytest.raises(FormatError, match="values of 'sums'"):
        comparing.read_all(reader, "sums")


@pytest.mark.parametrize("maximum", [None, (None, None)], ids=["fixed", "unlimited"])
@pytest.mark.parametrize("dtype", ["f4", "i2", h5py.string_dtype()], ids=["f4", "i2", "text"])
def test_regions_of_sparse_data(dtype: object, maximum: object, tmp_path: Path) -> None:
    """What was written is read, wherever it is; the rest is the fill value."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", (40, 30), dtype, chunks=(4, 7), maxshape=maximum)
        values = np.arange(8).reshape(2, 4)
        data[9:11, 5:9] = values.astype(str).astype(object) if data.dtype.kind == "O" else values
        file.create_dataset("never", (40, 30), dtype, maxshape=None)
    whole = xr.open_dataset(path, engine="h5netcdf", phony_dims="sort", decode_cf=False).load()
    with open_source(str(path)) as reader:
        for name in ("data", "never"):
            expected = whole[name].values
            for rows, columns in [
                (slice(0, 40), slice(0, 30)),
                (slice(0, 8), slice(0, 30)),
                (slice(9, 10), slice(6, 7)),
                (slice(11, 13), slice(8, 30)),
                (slice(38, 40), slice(28, 30)),
                (slice(5, 5), slice(0, 30)),
            ]:
                actual = reader.read(name, (rows, columns))
                comparing.same(actual, expected[rows, columns])
                constant = reader.constant(name, (rows, columns))
                if constant is not None:
                    comparing.same(actual, np.full(actual.shape, constant))
        assert reader.constant("data", (slice(0, 8), slice(0, 30))) is not None
        assert reader.constant("data", (slice(0, 9), slice(0, 30))) is None
        assert reader.constant("never", (slice(0, 40), slice(0, 30))) is not None


@pytest.mark.parametrize(("encoding", "length"), [("ascii", None), ("utf-8", None), ("ascii", 8)])
def test_texts_that_are_not_utf8_are_latin1(encoding: str, length: int | None, tmp_path: Path) -> None:
    """Each text by itself: what one of them is does not change how others are read."""
    texts = ["caf\u00e9", "na\u00efve", "plain"]
    stored = np.array([texts[0].encode("latin-1"), texts[1].encode(), texts[2].encode()], object)
    dtype = h5py.string_dtype(encoding, length)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("names", data=stored.astype(dtype), dtype=dtype)
        file.create_dataset("name", data=stored[0], dtype=dtype).attrs.create("title", stored[0], dtype=dtype)
    with open_source(str(tmp_path / "a.h5")) as reader:
        assert comparing.read_all(reader, "names").tolist() == texts
        assert reader.read("names", (slice(1, 3),)).tolist() == texts[1:]
        assert comparing.read_all(reader, "name").tolist() == texts[0]
        assert reader.schema().variables["name"].attrs == {"title": texts[0]}


def test_texts_that_h5py_does_not_convert() -> None:
    path = Path(h5py.__file__).parent / "tests" / "data_files" / "vlen_string_dset_utc.h5"
    if not path.exists():
        pytest.skip("h5py is without its tests")
    with open_source(str(path)) as reader, h5py.File(path) as file:
        assert comparing.read_all(reader, "ds1").tolist() == [each.decode() for each in file["ds1"]]


@pytest.mark.parametrize("name", PLUGIN_PACKAGES)
def test_filters_of_installed_packages_are_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name / "plugins").mkdir(parents=True)
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    before = h5py.h5pl.size()
    add_plugins()
    folders = [h5py.h5pl.get(at) for at in range(before, h5py.h5pl.size())]
    for at in reversed(range(before, h5py.h5pl.size())):
        h5py.h5pl.remove(at)
    assert str(tmp_path / name / "plugins").encode() in folders

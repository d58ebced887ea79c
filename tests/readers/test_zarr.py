"""Zarr, versions 2 and 3: what xarray sees, and chunks where they are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numcodecs  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
import xarray as xr
import zarr
from tests.readers import comparing
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from frazil.errors import FormatError, StorageError
from frazil.readers.registry import open_source

pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    # a directory is not given consolidated metadata by xarray alone
    pytest.mark.filterwarnings("ignore:Consolidated metadata:UserWarning"),
]

VALUES = np.arange(60, dtype="f4").reshape(5, 4, 3)


def dataset() -> xr.Dataset:
    packed = xr.Variable(
        ("t", "y", "x"),
        VALUES + 273.15,
        {"units": "K"},
        {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9},
    )
    return xr.Dataset(
        {
            "packed": packed,
            "masked": (("y", "x"), np.where(VALUES[0] > 3, VALUES[0], np.nan)),
            "name": ("y", np.array(["a", "", "øre", "d"], object)),
            "flag": ("x", np.array([True, False, True])),
            "height": ((), 2.0),
        },
        {"t": np.array(["2000-01-01", "2000-01-02", "2000-02-28", "2000-02-29", "2000-03-01"], "M8[ns]")},
        {"title": "of Zarr", "many": [1, 2.5]},
    )


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_what_xarray_wrote(version: int, consolidated: bool, tmp_path: Path) -> None:
    path = tmp_path / "a b.zarr"
    data = dataset()
    data.packed.encoding["chunks"] = (2, 3, 3)
    data.to_zarr(path, zarr_format=version, consolidated=consolidated)
    with (
        xr.open_zarr(path, decode_cf=False, consolidated=consolidated) as original,
        open_source(str(path)) as reader,
    ):
        assert reader.schema().format == "zarr"
        comparing.same_as_xarray(reader, original)
        for name in reader.schema().variables:
            comparing.same_regions(reader, name)
            comparing.same_by_references(reader, name)
    assert reader.schema().variables["packed"].chunks == (2, 3, 3)


COMPRESSORS: dict[str, Any] = {
    "none": None,
    "gzip": numcodecs.GZip(3),
    "zlib": numcodecs.Zlib(3),
    "zstd": numcodecs.Zstd(3),
    "blosc": numcodecs.Blosc("lz4", 3, numcodecs.Blosc.AUTOSHUFFLE),
    "bz2": numcodecs.BZ2(1),
    "lz4": numcodecs.LZ4(),
    "lzma": numcodecs.LZMA(),
}


@pytest.mark.sample(17)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">i2", "S3"])
@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_codecs_of_version_2(compressor: str, dtype: str, order: Any, tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a",
        shape=(5, 4, 3),
        chunks=(2, 4, 2),
        dtype=dtype,
        compressors=COMPRESSORS[compressor],
        order=order,
        zarr_format=2,
        chunk_key_encoding={"name": "v2", "separator": "/" if order == "F" else "."},
    )
    array[...] = VALUES.astype(dtype)
    array[:2, :, :2] = np.zeros((), dtype)
    with open_source(str(tmp_path / "a")) as reader:
        comparing.same(comparing.read_all(reader, "a"), array[...])
        comparing.same_by_references(reader, "a")


def test_filters_of_version_2(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g", zarr_format=2)
    for name, filters in {
        "shuffle": [numcodecs.Shuffle(4)],
        "delta": [numcodecs.Delta("<f4")],
        "sums": [numcodecs.CRC32()],
    }.items():
        array = group.create_array(name, shape=(60,), chunks=(25,), dtype="<f4", filters=filters)
        array[...] = VALUES.ravel()
    text = group.create_array("text", shape=(3,), chunks=(2,), dtype=str)
    text[...] = np.array(["a", "", "øre"], object)
    group.create_array("structured", shape=(3,), chunks=(2,), dtype=[("a", "i4"), ("b", "f4")])
    with open_source(str(tmp_path / "g")) as reader:
        assert set(reader.schema().skipped) == {"structured"}
        for name in reader.schema().variables:
            comparing.same_by_references(reader, name)


def test_codecs_of_version_3(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g")
    options: dict[str, Any] = {
        "gzip": {"compressors": [GzipCodec(level=3)]},
        "blosc": {"compressors": [BloscCodec(cname="zstd", typesize=4)]},
        "sharded": {"chunks": (1, 2, 3), "shards": (3, 4, 3), "compressors": [ZstdCodec()]},
        "flat": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
        "dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    }
    for name, more in options.items():
        array = group.create_array(name, shape=(5, 4, 3), dtype="f4", **{"chunks": (2, 2, 3), **more})
        array[...] = VALUES
    outside = tmp_path / "g" / "gzip" / "c" / "9" / "0" / "0"  # of an array that was larger
    outside.parent.mkdir(parents=True)
    outside.write_bytes(b"old")
    group.create_array("scalar", shape=(), dtype="i4")[...] = 4
    group.create_array("never", shape=(4,), dtype="i4", fill_value=7)
    group.create_group("inner").create_array("v", shape=(2,), dtype="i4")[...] = [1, 2]
    with open_source(str(tmp_path / "g")) as reader:
        assert reader.schema().groups == ("/inner",)
        assert reader.schema().variables["sharded"].chunks == (3, 4, 3)
        assert len(comparing.same_by_references(reader, "sharded").offset) == 2
        assert comparing.same_by_references(reader, "gzip").index.max() == 2
        assert len(comparing.same_by_references(reader, "never").offset) == 0
        for name in reader.schema().variables:
            comparing.same_by_references(reader, name)
    with open_source((tmp_path / "g").as_uri(), group="inner") as reader:
        comparing.same_by_references(reader, "v")


def test_damaged_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    dataset().to_zarr(path, consolidated=False)
    with open_source(str(path)) as reader:
        first = reader.schema().fingerprint
    chunk = next(path.glob("packed/c/*/*/*"))
    chunk.write_bytes(chunk.read_bytes()[:5])
    with open_source(str(path)) as reader:
        assert reader.schema().fingerprint != first
        with pytest.raises(FormatError, match="values of 'packed'") as raised:
            comparing.read_all(reader, "packed")
        assert path.name in str(raised.value)
    (path / "packed" / "zarr.json").write_text("{")
    with pytest.raises(FormatError), open_source(str(path)) as reader:
        reader.schema()
    shutil.rmtree(path)
    path.mkdir()
    with pytest.raises(FormatError, match="a directory that is not a Zarr group"):
        open_source(str(path))
    with pytest.raises(FormatError, match="a group or an array of Zarr"):
        open_source(str(path), "zarr")


def test_lengths_that_differ(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g")
    group.create_array("a", shape=(3,), dtype="i4", dimension_names=["x"])
    group.create_array("b", shape=(4,), dtype="i4", dimension_names=["x"])
    with open_source(str(tmp_path / "g")) as reader, pytest.raises(FormatError, match="'b' along 'x'"):
        reader.schema()


def test_a_codec_that_version_3_has_not(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a", shape=(4,), dtype="i4", zarr_format=2, compressors=numcodecs.Zlib()
    )
    array[...] = 1
    with open_source(str(tmp_path / "a")) as reader:
        reader.schema()
        object.__setattr__(vars(reader)["_arrays"]["a"].metadata, "compressor", numcodecs.JSON())
        assert comparing.why_not(reader, "a") == "json2: no codec in version 3 of Zarr"


def test_what_cannot_be_listed_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset().to_zarr(tmp_path / "a", consolidated=True)

    def refuse(*_: object) -> Any:
        raise StorageError("a storage over HTTP cannot list its objects")

    with open_source(str(tmp_path / "a")) as reader:
        monkeypatch.setattr(vars(reader)["_storage"], "list", refuse)
        assert "cannot list" in comparing.why_not(reader, "masked")
        comparing.same(
            comparing.read_all(reader, "masked")[1:], np.where(VALUES[0] > 3, VALUES[0], np.nan)[1:]
        )

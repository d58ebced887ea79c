"""References out and in: kerchunk as JSON and Parquet, and VirtualiZarr, read by their own libraries."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil.errors import ErrorKind, IcechunkError
from frazil.pipeline import Inline, export_kerchunk, import_kerchunk, ingest, virtual_dataset

pytest.importorskip("kerchunk")

pytestmark = pytest.mark.deep  # it imports kerchunk, fastparquet and VirtualiZarr


@pytest.fixture
def new_repo(tmp_path: Path) -> Callable[[str], frazil.Repository]:
    """Repositories with virtual chunks in the folder of the test."""
    return lambda name: frazil.Repository.create(tmp_path / name, **allow_folder(tmp_path))


def dataset() -> xr.Dataset:
    """Values of many kinds: packed, with missing values and missing chunks, times, texts, a scalar."""
    data = xr.Dataset(
        {
            "t": (("time", "x"), np.random.default_rng(1).random((6, 400), "f4"), {"units": "K"}),
            "packed": (("time", "x"), np.linspace(0, 9, 2400).reshape(6, 400)),
            "sparse": ("x", np.full(400, np.nan)),
            "flags": ("x", np.arange(400, dtype="u1")),
            "big": ("x", np.arange(400, dtype=">i4")),
            "name": ("time", np.array(list("abcdef"), object)),
            "scalar": ((), 3),
        },
        {"time": ("time", np.arange("2020-01-01", "2020-01-07", dtype="M8[D]").astype("M8[ns]"))},
        attrs={"title": "a test"},
    )
    data["t"][2, 3] = np.nan
    data["sparse"][60:] = 1.5
    return data


ENCODING: dict[str, Any] = {
    "t": {"chunks": (2, 200), "_FillValue": -9.0, "compressors": zarr.codecs.GzipCodec()},
    "packed": {
        "dtype": "i2",
        "scale_factor": 0.01,
        "_FillValue": -1,
        "compressors": zarr.codecs.BloscCodec(),
    },
    "sparse": {"chunks": (20,)},
    "flags": {"chunks": (30,), "compressors": None},
}


def written(repo: frazil.Repository) -> xr.Dataset:
    """Return the decoded values of a version with native and inline chunks."""
    with repo.transaction("main", message="values") as store:
        dataset().to_zarr(
            store, consolidated=False, zarr_format=3, encoding=ENCODING, write_empty_chunks=False
        )
    return decoded(repo.readonly_session("main"))


def decoded(session: frazil.Session) -> xr.Dataset:
    stored: xr.Dataset = xr.open_zarr(session.store, consolidated=False, chunks=None)
    return stored.load()


@pytest.mark.parametrize("name", ["refs.json", "refs.parquet"])
def test_exported_references_give_the_same_values(
    tmp_path: Path, new_repo: Callable[[str], frazil.Repository], name: str
) -> None:
    (tmp_path / "space %41").mkdir()
    repo = new_repo("space %41/repo")
    expected = written(repo)
    path = export_kerchunk(repo, tmp_path / name)
    with xr.open_dataset(str(path), engine="kerchunk") as by_kerchunk:
        xr.testing.assert_identical(by_kerchunk.load(), expected)
    with pytest.raises(frazil.errors.AlreadyExistsError):
        export_kerchunk(repo, path)
    session = new_repo("other").writable_session("main")
    assert import_kerchunk(path, session, group="a/b") == [
        f"/a/b/{each}" for each in sorted(map(str, expected.variables))
    ]
    session.commit("imported")
    again = xr.open_zarr(session.store, group="a/b", consolidated=False, chunks=None).load()
    xr.testing.assert_identical(again, expected)
    assert session.chunk_type("a/b/t", [0, 0]) == frazil.ChunkType.virtual


@pytest.mark.parametrize("form", ["json", "parquet", "virtualizarr"])
def test_references_of_other_libraries(
    tmp_path: Path, new_repo: Callable[[str], frazil.Repository], form: str
) -> None:
    """Kerchunk and VirtualiZarr scan a file. Frazil reads by their references what xarray reads by them."""
    from kerchunk.df import refs_to_dataframe  # type: ignore[import-untyped]  # it ships no types
    from kerchunk.hdf import SingleHdf5ToZarr  # type: ignore[import-untyped]  # it ships no types

    file = tmp_path / "day.nc"
    encoding = {"t": {"chunksizes": (2, 200), "zlib": True, "shuffle": True, "_FillValue": -9.0}}
    dataset()[["t", "flags", "big"]].to_netcdf(file, engine="h5netcdf", encoding=encoding)
    source: Any = SingleHdf5ToZarr(str(file), inline_threshold=300).translate()
    if form == "parquet":
        refs_to_dataframe(source, str(tmp_path / "refs.parq"), record_size=4)
        source = tmp_path / "refs.parq"
    if form == "virtualizarr":
        repo = new_repo("first")
        version = ingest(str(file), repo, virtual=True, engine=Inline()).version
        source = virtual_dataset(version).vz.to_kerchunk(format="dict")
    session = new_repo("second").writable_session("main")
    import_kerchunk(source, session)
    place: Any = source if isinstance(source, dict) else str(source)
    with xr.open_dataset(place, engine="kerchunk") as expected:
        xr.testing.assert_equal(decoded(session), expected.load())
        assert decoded(session)["t"].attrs == expected["t"].attrs
    table = session.chunk_table("t")
    assert len(table) == 6
    assert session.chunk_type("t", [2, 1]) == frazil.ChunkType.virtual


def test_virtual_datasets_have_the_references_of_a_version(
    tmp_path: Path, new_repo: Callable[[str], frazil.Repository]
) -> None:
    repo = new_repo("repo")
    written(repo)
    virtual = virtual_dataset(repo)
    assert virtual.attrs == {"title": "a test"}
    session = repo.readonly_session("main")
    arrays: dict[str, Any] = {str(name): each.data for name, each in virtual.variables.items()}
    for name, array in arrays.items():
        assert sum(map(bool, array.manifest.dict().values())) == len(session.chunk_table(name)), name
    one = arrays["t"].manifest.dict()["2.1"]
    data = Path(one["path"].removeprefix("file://")).read_bytes()[one["offset"] :][: one["length"]]
    assert data == session.workspace.read_chunk("/t", (2, 1))


@pytest.mark.parametrize(
    ("dtype", "values", "fill"),
    [
        ("S1", [b"x", b" "], b" "),
        ("S4", [b"ab", b""], b""),
        ("U3", ["a", "no"], "no"),
        (str, ["a", ""], ""),
        ("c8", [1 + 2j, 0], 1 + 2j),
        ("?", [True, False], False),
        ("f2", [1, 2], 1),
    ],
)
def test_fill_values_mask_what_xarray_masks_in_the_original(dtype: Any, values: Any, fill: Any) -> None:
    original = zarr.storage.MemoryStore()
    array = zarr.create_array(
        original, name="a", shape=2, chunks=2, dtype=dtype, fill_value=fill, zarr_format=2,
        attributes={"_ARRAY_DIMENSIONS": ["x"]},
    )  # fmt: skip
    array[:] = np.array(values, object if dtype is str else dtype)
    zarr.open_group(original, mode="a", zarr_format=2)
    refs = {
        key: f"base64:{base64.b64encode(data.to_bytes()).decode()}"
        for key, data in original._store_dict.items()
    }
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    import_kerchunk(refs, session)
    # xarray has no form for the fill value of bytes
    mask = np.dtype(dtype).kind != "S"
    expected = xr.open_zarr(original, consolidated=False, mask_and_scale=mask).a
    assert decoded(session).a.values.tolist() == pytest.approx(expected.values.tolist(), nan_ok=True)


def test_what_references_cannot_describe(
    tmp_path: Path, new_repo: Callable[[str], frazil.Repository]
) -> None:
    def refused(kind: ErrorKind, text: str, function: Any, *arguments: Any) -> None:
        with pytest.raises(IcechunkError, match=text) as error:
            function(*arguments)
        assert error.value.kind == kind

    memory, sharded = frazil.Repository.create(frazil.in_memory_storage()), new_repo("sharded")
    with memory.transaction("main", message="native") as store:
        zarr.create_array(store, name="a", data=np.random.default_rng(0).random(4000), chunks=(1000,))
    refused(ErrorKind.UNSUPPORTED_ARRAY, "must have URLs, but 4 are in", export_kerchunk, memory, "x.json")
    with sharded.transaction("main", message="shards") as store:
        zarr.create_array(store, name="s", shape=(8,), chunks=(2,), shards=(4,), dtype="i4")[:] = 1
    refused(ErrorKind.UNSUPPORTED_ARRAY, "codec 'sharding_indexed'", export_kerchunk, sharded, "x.json")
    refused(ErrorKind.INVALID_ARGUMENT, "must end with one of .json", export_kerchunk, sharded, "x.txt")
    array = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "fill_value": 0, "order": "C"}
    refs = {
        ".zgroup": '{"zarr_format": 2}',
        "t/.zarray": json.dumps(array | {"filters": None, "compressor": None}),
    }
    session, whole = new_repo("target").writable_session("main"), refs | {"t/0": [f"{tmp_path}/x"]}
    refused(ErrorKind.UNSUPPORTED_ARRAY, "1 name a whole file", import_kerchunk, whole, session)
    elsewhere = refs | {"t/0": ["s3://bucket/x", 0, 8]}
    refused(ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK, "s3://bucket/x", import_kerchunk, elsewhere, session)
    relative = refs | {"t/0": ["a/b.nc", 0, 8]}
    refused(ErrorKind.INVALID_VIRTUAL_REF, "absolute path, got 'a/b.nc'", import_kerchunk, relative, session)
    parts: list[Any] = [{"gen": [{}]}, {"refs": refs | {"t/0": ["{{u(1)}}", 0, 8]}}]
    for part in parts:
        refused(ErrorKind.UNSUPPORTED_ARRAY, "with fsspec", import_kerchunk, {"refs": refs} | part, session)
    for damage in ({}, {"refs": 3}, refs | {"t/0": ["s3://a/b", -1, 8]}):
        refused(ErrorKind.INVALID_FILE_FORMAT, "references of kerchunk", import_kerchunk, damage, session)
    coded = {**array, "filters": None, "compressor": {"id": "zlib", "level": 1}}
    other = {**refs, "t/.zarray": json.dumps(coded), "t/0": "base64:AAAAAAAAAAA="}
    refused(ErrorKind.UNDECODABLE_CHUNK, r"cannot decode the chunk \[0\]", import_kerchunk, other, session)
    lines = {"refs": refs | {"t/1": ["{{u}}/n.bin", 4, 8]}, "templates": {"u": f"file://{tmp_path}"}}
    (tmp_path / "n.bin").write_bytes(np.arange(3, dtype="<i4").tobytes())
    import_kerchunk(lines, session)
    assert frazil.read(session, "t").tolist() == [0, 0, 1, 2]

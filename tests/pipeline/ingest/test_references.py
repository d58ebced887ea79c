"""References of every reader, in every mode, beside copies of the same files."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]  # it ships no types
import icechunk
import netCDF4
import numpy as np
import pytest
import xarray as xr
from tests.pipeline.ingest.netcdf_files import container, ingest, inspect_files, repository, stored_dataset
from tests.readers.test_geotiff import write_file as write_image
from tests.support.judge import reference_storage

import frazil
from frazil.errors import InvalidInputError
from frazil.pipeline import Target
from frazil.readers.hdf5 import Hdf5Reader

pytestmark = [
    pytest.mark.filterwarnings("ignore:numpy.ndarray size changed"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]


@dataclass
class Pair:
    """One repository with references, and one with copies."""

    folder: Path
    repos: list[frazil.Repository] = field(default_factory=list)

    def ingest(self, paths: Sequence[Path] | Path, **request: Any) -> xr.Dataset:
        """Ingest into both, compare what xarray sees, and give it."""
        files = list(map(str, paths)) if isinstance(paths, Sequence) else [str(paths)]
        if not self.repos:
            self.repos = [repository(self.folder / name) for name in ("referred", "copied")]
        referred, copied = self.repos
        containers = [container(Path(files[0]).parent)]
        virtual = ingest(files, referred, virtual=True, containers=containers, **request)
        copies = ingest(files, copied, **request)
        dataset, expected = stored_dataset(virtual.version), stored_dataset(copies.version)
        xr.testing.assert_identical(dataset, expected)
        self.session = virtual.version.session()
        return dataset


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def compact(file: h5py.File, name: str, values: np.ndarray, dtype: Any = None) -> h5py.Dataset:
    """A dataset whose values are in its header."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    kind = h5py.h5t.py_create(np.dtype(dtype or values.dtype), logical=True)
    space = h5py.h5s.create_simple(values.shape) if values.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=plist))
    dataset[...] = values
    return dataset


def of_every_shape(path: Path) -> None:
    with h5py.File(path, "w") as file:
        compact(file, "scalar", np.array(7.5))
        compact(file, "one", np.array([3], "i2"))
        compact(file, "cube", np.arange(24.0).reshape(2, 3, 4))
        compact(file, "large", np.arange(8_000.0))  # more than is kept inline in a manifest
        compact(file, "empty", np.empty((0, 3)))
        file["contiguous"] = np.arange(6).reshape(2, 3)
        file.create_dataset("never", (4, 3), "f4", fillvalue=7)
        file.create_dataset("chunked", data=np.arange(60).reshape(6, 10), chunks=(4, 3), compression="gzip")
        some = file.create_dataset("some", (6, 10), "i4", chunks=(2, 5), fillvalue=-3)
        some[2:4, 5:] = 1


@pytest.mark.deep
def test_chunks_that_have_no_place(pair: Pair) -> None:
    path = pair.folder / "file"
    of_every_shape(path)
    dataset = pair.ingest(path)
    np.testing.assert_array_equal(dataset.cube.values, np.arange(24.0).reshape(2, 3, 4))
    assert pair.session.chunk_type("/scalar", []) == frazil.ChunkType.inline
    assert pair.session.chunk_type("/large", [0]) == frazil.ChunkType.native
    assert pair.session.chunk_type("/contiguous", [0, 0]) == frazil.ChunkType.virtual


@pytest.mark.deep
def test_images_without_the_dimension_that_goes_on(pair: Pair) -> None:
    """Codecs that order dimensions know of the new one."""
    paths = [pair.folder / f"{i}.tif" for i in range(3)]
    for path in paths:
        write_image(path, 3, "uint8", blockysize=16, interleave="pixel")
    dataset = pair.ingest(paths, concat_dim="scene")
    assert dataset.band_data.shape == (3, 3, 50, 70)


# Series


def series(folder: Path, lengths: Sequence[int], *, first: int = 0, **more: Any) -> list[Path]:
    """Files that follow each other along time."""
    paths = []
    for number, length in enumerate(lengths):
        paths.append(folder / f"{first}_{number}.h5")
        step(paths[-1], range(first, first + length), **more)
        first += length
    return paths


def step(path: Path, labels: range, *, kind: str = "contiguous", factor: float = 1, leading: int = 0) -> None:
    """One file; ``leading`` is the length of a dimension before time."""
    shape = (*[leading] * bool(leading), len(labels), 3)
    values = np.broadcast_to(np.array(labels)[:, None] * 10.0 + np.arange(3), shape) * factor
    values = values + np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) * 1000 * bool(leading)
    dims = (*["member"] * bool(leading), "time", "x")
    with h5py.File(path, "w") as file:
        for name, size in zip(dims, shape, strict=True):
            file[name] = np.array(labels if name == "time" else range(size), "f8")
            file[name].make_scale(name)
        if kind == "compact":
            data = compact(file, "data", values)
        elif kind == "contiguous":
            data = file.create_dataset("data", data=values)
        else:
            chunks, most = (*[1] * bool(leading), 4, 2), (*shape[:-2], None, 3)
            data = file.create_dataset("data", data=values, chunks=chunks, maxshape=most)
        for at, name in enumerate(dims):
            data.dims[at].attach_scale(file[name])


def published(folder: Path) -> xr.Dataset:
    """What the published icechunk reads."""
    repo = icechunk.Repository.open(
        reference_storage(folder / "referred"),
        authorize_virtual_chunk_access={f"file://{folder}/": icechunk.credentials.LocalFileSystemAccess},
    )
    store = repo.readonly_session("main").store
    stored: xr.Dataset = xr.open_zarr(store, consolidated=False, chunks=None)
    return stored.load()


@pytest.mark.sample(2, 2)
@pytest.mark.deep
@pytest.mark.interop
@pytest.mark.parametrize("leading", [0, 2], ids=["first", "second"])
@pytest.mark.parametrize("kind", ["compact", "contiguous", "chunked"])
def test_every_mode(kind: str, leading: int, pair: Pair) -> None:
    """Chunks of plain bytes are cut where files of other lengths come."""
    request: dict[str, Any] = {"concat_dim": "time", "allow": {"hole"}}
    more: dict[str, Any] = {"kind": kind, "leading": leading}
    pair.ingest(series(pair.folder, [12, 12, 8], **more), **request)
    assert xr.open_zarr(pair.session.store, consolidated=False).data.encoding["chunks"][bool(leading)] == 4
    # shorter: what is there is cut as well
    pair.ingest(series(pair.folder, [6], first=40, **more), mode="append", **request)
    pair.ingest(series(pair.folder, [3], first=46, **more), mode="append", **request)
    # earlier, and between: chunks move
    pair.ingest(series(pair.folder, [5], first=33, **more), mode="backfill", **request)
    # instead of what is there
    changed = series(pair.folder, [10], first=12, factor=-1, **more)
    pair.ingest(changed, mode="insert", **request)
    pair.ingest(series(pair.folder, [4], first=47, factor=2, **more), mode="upsert", **request)
    dataset = pair.ingest(
        series(pair.folder, [10], first=12, factor=3, **more), mode="upsert", on_change="rewrite", **request
    )
    assert dataset.data.sel(time=13).values.ravel()[0] == 390
    xr.testing.assert_identical(published(pair.folder), dataset)
    kinds = {pair.session.chunk_type("/data", [0] * dataset.data.ndim)}
    assert kinds == {frazil.ChunkType.inline if kind == "compact" else frazil.ChunkType.virtual}


def test_files_of_equal_length_stay_whole(pair: Pair) -> None:
    dataset = pair.ingest(series(pair.folder, [6, 6], leading=3), concat_dim="time")
    assert xr.open_zarr(pair.session.store, consolidated=False).data.encoding["chunks"] == (3, 6, 3)
    assert dataset.data.shape == (3, 12, 3)


def test_records_of_netcdf3_follow_files_without_records(pair: Pair) -> None:
    """Chunks of one step, and chunks of a whole file, of the same data."""
    paths = []
    for number, size in enumerate((3, None)):
        paths.append(pair.folder / f"{number}.nc")
        with netCDF4.Dataset(paths[-1], "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("time", size)
            file.createVariable("time", "f8", ("time",))[:3] = np.arange(3) + 3 * number
            file.createVariable("data", "f4", ("time",))[:3] = np.arange(3) * 2.0 + number
    assert pair.ingest(paths, concat_dim="time").data.values.tolist() == [0, 2, 4, 1, 3, 5]


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["insert", "upsert", "backfill"])
def test_chunks_that_a_newer_file_does_not_have_are_removed(mode: str, pair: Pair) -> None:
    paths = []
    for number in range(2):
        paths.append(pair.folder / f"{number}.nc")
        with netCDF4.Dataset(paths[-1], "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 4)
            file.createVariable("time", "f8", ("time",))[:2] = [0, 1]
            data = file.createVariable(
                "data", "f4", ("time", "x"), chunksizes=(1, 2), zlib=True, fill_value=-1
            )
            if number:
                data[0, :2] = 5
            else:
                data[:] = 3
    pair.ingest(paths[0])
    dataset = pair.ingest(paths[1], mode=mode)
    np.testing.assert_array_equal(dataset.data.values, [[5, 5, np.nan, np.nan], [np.nan] * 4])


def test_another_fill_value_is_refused(tmp_path: Path) -> None:
    """Chunks that no file has would be read as the first file's."""
    repo = repository(tmp_path / "repo")
    for number, fill in enumerate((1, 2)):
        with netCDF4.Dataset(tmp_path / f"{number}.nc", "w") as file:
            file.createDimension("time", None)
            file.createVariable("time", "f8", ("time",))[:2] = [2 * number, 2 * number + 1]
        with h5py.File(tmp_path / f"{number}.nc", "a") as file:
            data = file.create_dataset("data", (2,), "i4", chunks=(2,), fillvalue=fill, compression="gzip")
            data.dims[0].attach_scale(file["time"])
    request: dict[str, Any] = {"virtual": True, "containers": [container(tmp_path)]}
    ingest(str(tmp_path / "0.nc"), repo, concat_dim="time", **request)
    with pytest.raises(InvalidInputError, match="fill value of `/data` must be 1, as in the repository"):
        ingest(str(tmp_path / "1.nc"), repo, concat_dim="time", mode="append", **request)


def test_an_empty_chunk_of_zarr_is_damaged(tmp_path: Path) -> None:
    xr.Dataset({"a": ("x", np.arange(4))}).to_zarr(tmp_path / "a.zarr", consolidated=False)
    (tmp_path / "a.zarr" / "a" / "c" / "0").write_bytes(b"")
    report = inspect_files(str(tmp_path / "a.zarr"), virtual=True, concat_dim="x")
    assert [each.kind for each in report.problems] == ["damaged"]
    assert "expected bytes of the chunk at [0]" in report.problems[0].message


def test_chunks_that_are_not_the_values_of_the_file_are_refused(tmp_path: Path) -> None:
    """The tile of a volume has four images of 16 x 16 pixels, and the image of the file is the first one."""
    pixels = zlib.compress(np.arange(4 * 256, dtype="<u2").tobytes())
    tags = {256: 16, 257: 16, 258: 16, 259: 8, 262: 1, 277: 1, 322: 16, 323: 16, 324: 0, 325: len(pixels)}
    tags |= {32997: 4, 32998: 4}  # the depths of the image and of its tiles
    tags[324] = 8 + 2 + 12 * len(tags) + 4
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()]
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(entries) + bytes(4)
    (tmp_path / "volume.tif").write_bytes(head + pixels)
    path = str(tmp_path / "volume.tif")
    version = ingest(path, repository(tmp_path / "repo")).version
    assert np.array_equal(stored_dataset(version).band_data.values.ravel(), np.arange(256))
    (problem,) = inspect_files(path, virtual=True).problems
    assert problem.kind == "virtual"
    assert "its chunks cannot be decoded" in problem.message
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.arange(4)
    plain: Any = Hdf5Reader.references
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hdf5Reader, "references", lambda *each: replace(plain(*each), codecs=[BIG]))
        (problem,) = inspect_files(str(tmp_path / "a.h5"), virtual=True).problems
    assert "its chunks have other values" in problem.message


BIG = {"name": "bytes", "configuration": {"endian": "big"}}


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
@pytest.mark.parametrize("dims", [("time", "time"), ("time", "x", "time")])
def test_the_unlimited_dimension_twice(dims: tuple[str, ...], pair: Pair) -> None:
    paths = [pair.folder / f"{number}.nc" for number in (0, 1)]
    for number, path in enumerate(paths):
        with netCDF4.Dataset(path, "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 2)
            time = file.createVariable("time", "f8", ("time",))
            time[:] = np.arange(3) + 3 * number
            time.units = "days since 2000-01-01"
            shape = tuple(2 if each == "x" else 3 for each in dims)
            values = np.arange(float(np.prod(shape))).reshape(shape)
            file.createVariable("cov", "f8", dims)[tuple(map(slice, shape))] = values
    assert np.array_equal(pair.ingest(paths[0]).cov.values, values)
    cases: list[Any] = [(paths[1], "append", "/"), (pair.folder / "*.nc", "create", "two")]
    for source, mode, group in cases:
        target = Target(pair.repos[1], group=group)
        with pytest.raises(InvalidInputError, match="must have the dimension time once"):
            ingest(str(source), target, mode=mode)


def netcdf(path: Path, day: int, *, names: Sequence[str] = ("t", "u"), **more: Any) -> Path:
    """Two steps of a day. `u` has no chunk in the file, so readers get the fill value of NetCDF."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("x", 2)
        file.createVariable("time", "f8", ("time",))[:] = [2.0 * day, 2.0 * day + 1]
        for name in names:
            file.createVariable(name, "f4", ("time", "x"), chunksizes=(1, 2), **more)
        file["t"][:] = day
    return path


def test_elements_that_no_file_has_written_have_its_fill_value(pair: Pair, tmp_path: Path) -> None:
    fill = netCDF4.default_fillvals["f4"]
    paths = [netcdf(tmp_path / f"{day}.nc", day) for day in range(4)]
    for path in (paths[0], paths[1], paths[3]):
        pair.ingest(path, mode="append", concat_dim="time", allow={"hole"})
    data = pair.ingest(paths[2], mode="backfill")
    assert (data.u.values == np.float32(fill)).all()
    assert data.t.values[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_variable_that_files_do_not_have_is_missing(pair: Pair, tmp_path: Path) -> None:
    """The fill value of NetCDF is a number for xarray, so the steps of other files need an element of NaN."""
    fill = np.float32(netCDF4.default_fillvals["f4"])
    paths = [
        netcdf(tmp_path / "0.nc", 0),
        netcdf(tmp_path / "1.nc", 1, names=["t"]),
        netcdf(tmp_path / "2.nc", 2),
    ]
    data = pair.ingest(paths, mode="append", allow={"variables"})
    np.testing.assert_array_equal(data.u.values[:, 0], [fill, fill, np.nan, np.nan, fill, fill])
    paths = [netcdf(tmp_path / "3.nc", 3, names=["t"]), netcdf(tmp_path / "4.nc", 4)]
    data = pair.ingest(paths, mode="append", allow={"variables"})
    np.testing.assert_array_equal(data.u.values[6:, 0], [np.nan, np.nan, fill, fill])


def test_files_with_other_levels_of_compression(pair: Pair, tmp_path: Path) -> None:
    paths = [netcdf(tmp_path / f"{day}.nc", day, zlib=True, complevel=1 + day) for day in range(3)]
    pair.ingest(paths[:2])
    data = pair.ingest(paths[2], mode="append")
    assert data.t.values[:, 1].tolist() == [0, 0, 1, 1, 2, 2]
    other = netcdf(tmp_path / "other.nc", 3, zlib=True, shuffle=False)
    text = r"codecs of `/t` must be bytes \(endian little\) \+ .*shuffle \(elementsize 4\) \+ .*zlib, as in"
    with pytest.raises(InvalidInputError, match=text):
        pair.ingest(other, mode="append")
    with pytest.raises(InvalidInputError, match="t must be stored as float32 in chunks of"):
        ingest([*map(str, paths), str(other)], repository(tmp_path / "other"), virtual=True)

"""Parts of arrays equal those of xarray and numpy; whole chunks are not decoded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.transform import shared
from tests.support.judge import same_by_reference
from tests.support.virtual_chunks import allow_folder

import frazil
from frazil.pipeline import Target, Version, crop

lengths = st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 2))


@pytest.mark.deep
@settings(max_examples=18)
@given(st.data(), st.lists(lengths, min_size=1, max_size=3), st.sampled_from(shared.TYPES), st.booleans())
def test_equal_to_numpy(data: Any, axes: list[Any], dtype: str, sharded: bool) -> None:
    shape, chunks, times = (tuple(each[n] for each in axes) for n in range(3))
    names = [f"d{n}" for n in range(len(shape))]
    content = shared.values(shape, dtype)
    repo = shared.new_repository()
    with repo.transaction("main", message="made") as store:
        options: dict[str, Any] = {"dimension_names": names, "chunks": chunks}
        if sharded:
            options["shards"] = tuple(c * t for c, t in zip(chunks, times, strict=True))
        zarr.create_array(store, name="x", shape=shape, dtype=content.dtype, **options)[...] = content
    isel: dict[str, Any] = {}
    expected: Any = xr.Variable(names, content)
    for name, length in zip(names, shape, strict=True):
        number = st.integers(-length, length - 1)
        isel[name] = data.draw(st.one_of(number, st.slices(length), st.lists(number, max_size=4)))
    expected = expected.isel(isel)
    cell = 64 if content.dtype.kind in "TO" else content.dtype.itemsize
    stored_chunks = np.multiply(chunks, times) if sharded else chunks
    least = cell * int(np.prod(chunks) + 3 * np.prod(stored_chunks))
    result = shared.select(
        repo, ["x"], isel=isel, to=Target(repo, group="o"), max_mem=least * data.draw(st.integers(1, 3))
    )
    output = shared.read(result, "o/x")
    np.testing.assert_array_equal(output[...], expected.values)
    assert output.metadata.dimension_names == (expected.dims or None)
    assert (output.shards is None) == (not sharded)


@pytest.fixture
def earth(tmp_path: Path) -> frazil.Repository:
    days = np.arange("2001-01-01", "2001-01-09", dtype="M8[D]").astype("M8[ns]")
    data = xr.Dataset(
        {"t": (("time", "lat", "lon"), np.random.default_rng(3).random((8, 18, 36), "f4"), {"units": "K"})},
        {
            "time": ("time", days),
            "lat": ("lat", 85.0 - np.arange(18) * 10, {"standard_name": "latitude"}),
            "lon": ("lon", np.arange(36) * 10.0, {"units": "degrees_east"}),
            "name": ("lat", np.array([f"row {n}" for n in range(18)])),
        },
    )
    data["t"].encoding["chunks"] = (2, 6, 9)
    return shared.repository_of(data, frazil.local_filesystem_storage(str(tmp_path / "repo")))


@pytest.mark.deep
def test_labels_as_in_xarray(earth: frazil.Repository, tmp_path: Path) -> None:
    before = shared.opened(Version.of(earth), "/")
    wanted: dict[str, Any] = {"time": slice("2001-01-03", "2001-01-06"), "lat": slice(60, -20)}
    to = Target(earth, group="part")
    result = shared.select(earth, ["t"], sel=wanted, isel={"lon": [1, 5, -1]}, to=to)
    expected = before.sel(wanted).isel(lon=[1, 5, -1])
    xr.testing.assert_identical(shared.opened(result.version, "part"), expected)
    near = shared.select(
        result.version,
        ["part"],
        sel={"lat": 3, "time": "2001-01-04"},
        method="nearest",
        to=Target(earth, group="one"),
    )
    xr.testing.assert_identical(
        shared.opened(near.version, "one/part"), expected.sel(lat=3, method="nearest").sel(time="2001-01-04")
    )
    assert shared.select(earth, ["t"], sel=wanted, isel={"lon": [1, 5, -1]}, to=to).done_before
    same_by_reference(tmp_path / "repo", earth)


@pytest.mark.deep
def test_whole_chunks_are_not_decoded(
    earth: frazil.Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = {"time": slice(2, 6), "lat": slice(6, None), "lon": slice(9, 27)}
    before = shared.opened(Version.of(earth), "/").isel(wanted)
    other = shared.new_repository(frazil.local_filesystem_storage(str(tmp_path / "other")))
    real = zarr.codecs.ZstdCodec._decode_sync

    def only_coordinates(self: Any, data: Any, spec: Any) -> Any:
        if len(spec.shape) == 3:
            raise TypeError("decoded")
        return real(self, data, spec)

    with monkeypatch.context() as patched:
        patched.setattr(zarr.codecs.ZstdCodec, "_decode_sync", only_coordinates)
        same_repo_result = shared.select(earth, ["/t"], isel=wanted, to=Target(earth, group="p"))
        other_repo_result = shared.select(earth, ["/t"], isel=wanted, to=Target(other))
        of_zarr = {"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}
        with zarr.config.set(of_zarr), pytest.raises(TypeError, match="decoded"):
            shared.read(Version.of(earth), "t")[:]
    np.testing.assert_array_equal(shared.read(same_repo_result, "p/t")[:], before["t"].values)
    np.testing.assert_array_equal(shared.read(other_repo_result, "t")[:], before["t"].values)
    tables = [
        result.version.session().chunk_table(path)
        for result, path in ((same_repo_result, "/p/t"), (other_repo_result, "/t"))
    ]
    source_ids = {row.tobytes() for row in Version.of(earth).session().chunk_table("/t").prune().chunk_ids}
    ids = [{row.tobytes() for row in table.prune().chunk_ids} for table in tables]
    assert ids[0] <= source_ids  # the same chunks, at another place
    assert not ids[1] & source_ids
    same_by_reference(tmp_path / "other", other)


def test_what_is_cut_off_does_not_come_back(earth: frazil.Repository) -> None:
    part = shared.select(earth, ["t"], isel={"time": slice(0, 3)}, to=Target(earth, group="p"))
    with earth.transaction("main", message="longer") as store:
        array = zarr.open_array(store, path="p/t", mode="r+")
        array.resize((4, *array.shape[1:]))
    assert np.isnan(shared.read(Version.of(earth), "p/t")[3]).all()
    assert shared.read(part, "p/t").shape[0] == 3


@pytest.mark.parametrize("west", [-180, 0, 180])
@pytest.mark.parametrize("eastward", [True, False])
def test_a_box_of_the_globe(west: int, eastward: bool) -> None:
    lon = np.arange(36) * 10.0 + west
    lat = np.arange(-85.0, 90, 10)
    lon, lat = (lon, lat) if eastward else (lon[::-1], lat[::-1])
    data = (lat[:, None] * 1000 + lon % 360).astype("f4")
    array = xr.Dataset(
        {"t": (("y", "x"), data)},
        {"y": ("y", lat, {"units": "degrees_north"}), "x": ("x", lon, {"standard_name": "longitude"})},
    )
    repo = shared.repository_of(array)
    to = Target(repo, group="box")
    result = crop(repo, ["t"], latitude=(-30, 40), longitude=(-20, 30), to=to, engine=shared.INLINE)
    box = shared.opened(result.version, "box")
    assert sorted(box["x"].values % 360) == [0, 10, 20, 30, 340, 350]
    assert sorted(box["y"].values) == [-25, -15, -5, 5, 15, 25, 35]
    np.testing.assert_array_equal(box["t"].values, box["y"].values[:, None] * 1000 + box["x"].values % 360)
    assert set(np.diff(box["x"].values)) == {10 if eastward else -10}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"sel": {"lat": 3}}, "lat must be labels of `/lat`, got 3: the nearest labels are -5.0 and 5.0"),
        ({"sel": {"lon": -62}}, "got -62: the nearest labels are 290.0 and 300.0"),
        ({"sel": {"lon": -5}}, "got -5: the nearest labels are 350.0 and 0.0"),
        ({"sel": {"time": "yesterday"}}, "time must be labels of `/time`"),
    ],
)
def test_missing_labels(earth: frazil.Repository, options: Any, match: str) -> None:
    with pytest.raises(frazil.InvalidInputError, match=match):
        shared.select(earth, ["t"], **options, to=Target(earth, group="o"))


@pytest.fixture
def foreign(tmp_path: Path) -> tuple[frazil.Repository, Path]:
    """An array of virtual, native and missing chunks."""
    archive = tmp_path / "archive"
    archive.mkdir()
    content = np.arange(40, dtype="<i4")
    (archive / "a.bin").write_bytes(b"header" + content.tobytes())
    repo = frazil.Repository.create(tmp_path / "repo", **allow_folder(archive))
    with repo.transaction("main", message="references") as store:
        array = zarr.create_array(store, name="v", shape=(40,), chunks=(10,), dtype="<i4", compressors=None)
        url = f"file://{archive}/a.bin"
        for number in (0, 1):
            store.set_virtual_ref(f"v/c/{number}", url, offset=6 + 40 * number, length=40)
        array[20:30] = 7
    return repo, archive / "a.bin"


def test_virtual_chunks_become_native(foreign: tuple[frazil.Repository, Path], tmp_path: Path) -> None:
    repo, file = foreign
    expected = shared.read(Version.of(repo), "v")[:]
    node = Version.of(repo).session().get_node_id("/v")
    other = shared.new_repository(frazil.local_filesystem_storage(str(tmp_path / "other")))
    results = [
        shared.materialize(repo, ["v"], to=Target(other)),
        shared.materialize(repo, ["v"], to=Target(repo, group="g")),
        shared.materialize(repo),
    ]
    file.unlink()
    for result, path in zip(results, ("v", "g/v", "v"), strict=True):
        assert shared.read(result, path)[:].tolist() == expected.tolist()
        session = result.version.session()
        kinds = [session.chunk_type(f"/{path}", [n]).name for n in range(4)]
        assert "virtual" not in kinds
        assert kinds[3] == "uninitialized"
    assert results[2].version.session().get_node_id("/v") == node
    assert results[2].metrics.chunks == 2
    assert shared.materialize(repo).done_before
    same_by_reference(tmp_path / "other", other)


def test_a_file_that_is_gone_commits_nothing(foreign: tuple[frazil.Repository, Path]) -> None:
    repo, file = foreign
    file.unlink()
    tip = repo.lookup_branch("main")
    with pytest.raises(frazil.IcechunkError) as caught:
        shared.materialize(repo)
    assert caught.value.kind == frazil.ErrorKind.VIRTUAL_CHUNK_FETCH
    assert re.search(r"the chunk \[\d\] of the array `/v`, \d+ bytes from .*a\.bin", caught.value.message)
    assert repo.lookup_branch("main") == tip

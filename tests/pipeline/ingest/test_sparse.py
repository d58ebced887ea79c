"""Copies of files in which little was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
import zarr
from tests.pipeline.ingest.netcdf_files import ingest, repository, stored_dataset

import frazil
from frazil.pipeline.ingest import tasks as sparse

pytestmark = pytest.mark.filterwarnings("ignore:numpy.ndarray size changed")


@pytest.mark.deep
def test_a_sparse_dataset_is_not_read_where_it_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Billions of elements: the library is asked for the chunks that are there."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        most = (None, 1 << 16)
        data = file.create_dataset("chunked", (1 << 16, 1 << 16), "f4", chunks=(256, 256), maxshape=most)
        data[40_000:40_010, 60_000:] = 7
        file.create_dataset("never", (1 << 32,), "i4")
    asked: list[int] = []
    read = h5py.Dataset.__getitem__

    def counted(dataset: h5py.Dataset, region: object, **more: object) -> object:
        values = read(dataset, region, **more)
        asked.append(values.size)
        return values

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    result = ingest(str(path), repo)
    assert sum(asked) <= 22 * 256 * 256
    group: Any = zarr.open_group(result.version.session().store, mode="r")
    assert group["chunked"].shape == (1 << 16, 1 << 16)
    np.testing.assert_array_equal(group["chunked"][39_999:40_001, 59_998:60_002], [[0] * 4, [0, 0, 7, 7]])
    np.testing.assert_array_equal(group["never"][-3:], 0)


@pytest.mark.sample(3, 3)
@pytest.mark.deep
@pytest.mark.parametrize("fill", [0, -5, None], ids=["zero", "five", "missing"])
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_parts_of_a_series(
    dtype: str, fill: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty, half full and full files, appended and replaced, are what they are without the shortcut."""
    paths = []
    for number, length in enumerate((0, 3, 8, 0, 0)):
        paths.append(str(tmp_path / f"{number}.h5"))
        with h5py.File(paths[-1], "w") as file:
            file["time"] = np.arange(8.0) + 8 * min(number, 3)
            file["time"].make_scale("time")
            data = file.create_dataset("data", (8, 50), dtype, chunks=(1, 25), fillvalue=fill or 0)
            if fill is None:
                data.attrs["_FillValue"] = np.array(0, dtype)
            data[:length] = number + 1
            data.dims[0].attach_scale(file["time"])
    datasets = []
    for smallest in (1, 1 << 40):
        monkeypatch.setattr(sparse, "SMALLEST", smallest)
        repo = repository(tmp_path / str(smallest))
        request: dict[str, Any] = {"concat_dim": "time"}
        ingest(paths[:2], repo, chunks={"time": 4, "phony_dim_0": 25}, **request)
        ingest(paths[2:4], repo, mode="append", **request)
        datasets.append(stored_dataset(ingest(paths[4:], repo, mode="upsert", **request).version))
    np.testing.assert_array_equal(datasets[0].data.values, datasets[1].data.values)
    assert datasets[0].identical(datasets[1])

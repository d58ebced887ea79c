"""Chunks without compression are read straight into the result, where their bytes have the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.arrays.test_array import CODECS, local, same

import frazil
from frazil.arrays import box_reading as direct_reading
from frazil.arrays.encoding import zstd_into
from frazil.chunks.reader import ColumnRequest


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the reads into memory, with runs of any length."""
    monkeypatch.setattr(direct_reading, "_SHORTEST_RUN", 1)
    sizes: list[int] = []
    read_into = ColumnRequest.read_into

    def counted(request: ColumnRequest, begin: int, out: memoryview) -> None:
        sizes.append(len(out))
        read_into(request, begin, out)

    monkeypatch.setattr(ColumnRequest, "read_into", counted)
    return sizes


def stored(path: Path, values: np.ndarray, chunks: tuple[int, ...], **options: Any) -> frazil.Session:
    repo = local(path)
    session = repo.writable_session("main")
    zarr.create_array(session.store, name="t", data=values, chunks=chunks, **{"compressors": None, **options})
    session.commit("values")
    return repo.readonly_session("main")


@pytest.mark.parametrize(
    ("index", "sizes"),
    [
        (np.s_[:], [192]),  # all chunks follow each other, in one pack
        (np.s_[2:5], [96]),  # the requests are narrowed to the selected bytes
        (np.s_[::-1], [192]),  # the result is a view of the box
        (np.s_[::2], [32, 32, 32]),  # a run for each row
        (np.s_[:, ::2], []),  # the bytes of a chunk have gaps
        (np.s_[:, 1:3], []),  # the bytes of a chunk are in several places of the result
    ],
)
def test_runs(reads: list[int], tmp_path: Path, index: Any, sizes: list[int]) -> None:
    values = np.arange(48, dtype="f4").reshape(6, 4, 2)
    session = stored(tmp_path, values, (2, 4, 2))
    same(frazil.Array(session, "/t")[index], values[index])
    assert reads == sizes


@pytest.mark.parametrize(
    ("index", "count"),
    [(np.s_[:], 5), (np.s_[3:9], 2), (np.s_[::-1], 5), (np.s_[:, 1:3], 0), (np.s_[::2], 0)],
)
def test_zstd_frames_are_decoded_into_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: Any, count: int
) -> None:
    """Chunks that are selected whole. The last chunk has more elements than the array."""
    monkeypatch.setattr(direct_reading, "_SHORTEST_RUN", 1)
    frames: list[int] = []

    def count_frames(*args: Any) -> Any:
        frames.append(1)
        return zstd_into(*args)

    monkeypatch.setattr(direct_reading, "zstd_into", count_frames)
    values = np.arange(44, dtype="f4").reshape(11, 4)
    session = stored(tmp_path, values, (2, 4), **CODECS["zstd"](2))
    same(frazil.Array(session, "/t")[index], values[index])
    assert len(frames) == count


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("step", [1, -1])
def test_results_of_zarr_in_any_memory(reads: list[int], tmp_path: Path, order: Any, step: int) -> None:
    values = np.arange(48, dtype="f4").reshape(8, 6)
    session = stored(tmp_path, values, (2, 6))
    memory = np.zeros((8, 6), "f4", order=order)
    out = memory[::step]
    with zarr.config.set({"codec_pipeline.path": "frazil.zarr_pipeline.StorePipeline"}):
        array = zarr.open_array(session.store, path="t", mode="r")
    array.get_basic_selection(out=zarr.core.buffer.cpu.NDBuffer.from_numpy_array(out))
    same(out, values)
    assert bool(reads) == (order == "C" and step == 1)

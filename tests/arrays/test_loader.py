"""Windows of arrays as batches for training."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import frazil
from frazil.errors import IcechunkError
from frazil.loader import Windows
from frazil.storage.checks import TRAFFIC


def session_of(length: int, chunk: int) -> frazil.Session:
    """Return a session with an array whose first column counts its rows."""
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="rows") as store:
        array = zarr.create_array(store, name="t", shape=(length, 3), chunks=(chunk, 3), dtype="f4")
        array[:] = np.arange(length * 3).reshape(length, 3)
    return repo.readonly_session("main")


def starts(batches: Iterator[dict[str, Any]], window: int) -> list[list[int]]:
    """Return the first row of each window of each batch, after a comparison of all values."""
    found = []
    for batch in batches:
        first = (batch["t"][:, 0, 0] / 3).astype(int)
        rows = first[:, None] + np.arange(window)
        np.testing.assert_array_equal(batch["t"], rows[..., None] * 3 + np.arange(3))
        found.append(first.tolist())
    return found


@given(data=st.data())
def test_an_epoch_has_each_window_once_and_continues_anywhere(data: st.DataObject) -> None:
    def number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    length, chunk = number(1, 90), number(1, 20)
    world = number(1, 3)
    arguments: dict[str, Any] = {
        "window": number(1, min(length, 25)),
        "stride": number(1, 5),
        "batch_size": number(1, 20),
        "seed": number(0, 3),
        "shuffle": data.draw(st.booleans()),
        "world_size": world,
    }
    session, windows = session_of(length, chunk), []
    for rank in range(world):
        loader = Windows(session, ["t"], rank=rank, **arguments)
        expected = len(loader)
        batches = starts(iter(loader), loader.window)
        assert len(batches) == expected
        assert all(len(each) == loader.batch_size for each in batches[:-1])
        windows += [each for batch in batches for each in batch]
        cut = number(0, expected)
        first, again = (Windows(session, ["t"], rank=rank, **arguments) for _ in range(2))
        iterator = iter(first)
        for _ in range(cut):
            next(iterator)
        iterator.close()  # type: ignore[attr-defined]  # a generator; its thread ends
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert starts(iter(again), loader.window) == batches[cut:]
        if not loader.shuffle and world == 1:
            assert windows == sorted(windows)
    assert sorted(windows) == list(range(0, length - loader.window + 1, loader.stride))


def test_an_epoch_reads_each_chunk_once() -> None:
    session = session_of(400, 7)
    loader = Windows(session, ["t"], window=12, memory=40_000)
    TRAFFIC.take_counts()
    frazil.read(session, "t")
    whole, read = TRAFFIC.take_counts().bytes_read, []
    orders = []
    for _ in range(2):
        TRAFFIC.take_counts()
        orders.append([each for batch in starts(iter(loader), 12) for each in batch])
        read.append(TRAFFIC.take_counts().bytes_read)
    assert read == [whole, whole]
    assert orders[0] != orders[1]
    distances = np.abs(np.diff(orders[0]))
    assert np.median(distances) > 12
    assert not [each for each in threading.enumerate() if "decode" in each.name and not each.daemon]


def test_values_are_decoded(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice")
    with repo.transaction("main", message="packed") as store:
        attributes = {"scale_factor": 0.5, "_FillValue": -1}
        packed = zarr.create_array(store, name="g/p", shape=(4,), dtype="i2", attributes=attributes)
        packed[:] = [2, -1, 6, 8]
        other = zarr.create_array(store, name="g/q", shape=(4,), dtype="i8", chunks=(3,))
        other[:] = [1, 2, 3, 4]
    (batch,) = Windows(f"{tmp_path}/ice:g", ["p", "q"], window=2, shuffle=False)
    np.testing.assert_array_equal(batch["p"], [[1, np.nan], [np.nan, 3], [3, 4]])
    assert batch["q"].tolist() == [[1, 2], [2, 3], [3, 4]]
    (raw,) = Windows(f"{tmp_path}/ice:g", ["p"], window=4, decode=False)
    assert raw["p"].tolist() == [[2, -1, 6, 8]]


def test_another_process_continues_after_a_kill(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice")
    with repo.transaction("main", message="rows") as store:
        array = zarr.create_array(store, name="t", shape=(200, 3), chunks=(9, 3), dtype="f4")
        array[:] = np.arange(600).reshape(200, 3)
    program = (
        "import json, os, signal, sys; from frazil.loader import Windows\n"
        "loader = Windows(sys.argv[1], ['t'], window=10, seed=3)\n"
        "for number, batch in enumerate(loader):\n"
        "    open(sys.argv[2], 'w').write(json.dumps(loader.state_dict()))\n"
        "    if number == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    state = tmp_path / "state.json"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "ice"), str(state)], check=False)
    loader, whole = (Windows(str(tmp_path / "ice"), ["t"], window=10, seed=3) for _ in range(2))
    loader.load_state_dict(json.loads(state.read_text()))
    assert starts(iter(loader), 10) == starts(iter(whole), 10)[3:]
    with repo.transaction("main", message="another version") as store:
        zarr.open_array(store, path="t")[0] = 1
    with pytest.raises(IcechunkError, match="the state must have snapshot_id"):
        Windows(str(tmp_path / "ice"), ["t"], window=10, seed=3).load_state_dict(loader.state_dict())


def test_a_damaged_chunk_reaches_the_reader(tmp_path: Path) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(tmp_path / "ice", config)
    with repo.transaction("main", message="noise") as store:
        array = zarr.create_array(store, name="t", shape=(64,), chunks=(8,), dtype="f8")
        array[:] = np.random.default_rng(0).normal(size=64)
    for file in (tmp_path / "ice" / "chunks").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(IcechunkError):
        list(Windows(str(tmp_path / "ice"), ["t"], window=4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "window must be a whole number"),
        ({"window": 51}, "window must be at most the length of the variables, 50"),
        ({"window": 2, "rank": 1}, "rank must be from 0 to 0"),
        ({"window": 2, "memory": 100}, "memory must be at least"),
        ({"window": 2, "variables": ["u"]}, "/u"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(IcechunkError, match=message):
        Windows(session_of(50, 10), **{"variables": ["t"], **arguments})


# JAX warns at each later fork of its process, so it runs in one of its own.
TENSORS = """
import sys
import numpy as np
from frazil.loader import Windows

package, address = sys.argv[1:]
expected = [batch["t"] for batch in Windows(address, ["t"], window=4)]
batches = list(getattr(Windows(address, ["t"], window=4), package)())
assert type(batches[0]["t"]).__module__.split(".")[0] in (package, "jaxlib")
for batch, values in zip(batches, expected, strict=True):
    np.testing.assert_array_equal(np.asarray(batch["t"]), values)
"""


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_tensors(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    with frazil.Repository.create(tmp_path / "ice").transaction("main", message="noise") as store:
        zarr.create_array(store, name="t", data=np.arange(150.0).reshape(50, 3), chunks=(10, 3))
    subprocess.run([sys.executable, "-c", TENSORS, package, str(tmp_path / "ice")], check=True)

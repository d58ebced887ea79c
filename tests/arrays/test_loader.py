"""TrainingWindows of arrays as batches for training."""

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
from frazil.loader import TrainingWindows
from frazil.storage.checks import TRAFFIC


def session_of(length: int, chunk: int, hours: list[int] | None = None) -> frazil.Session:
    """Return a session with an array whose first column counts its rows, and the times of its rows."""
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0, packing=frazil.PackingConfig(enabled=False)
    )
    repo = frazil.Repository.create(frazil.in_memory_storage(), config)
    with repo.transaction("main", message="rows") as store:
        options: dict[str, Any] = {"dtype": "f4", "dimension_names": ["time", "x"]}
        array = zarr.create_array(store, name="t", shape=(length, 3), chunks=(chunk, 3), **options)
        array[:] = np.arange(length * 3).reshape(length, 3)
        if hours is not None:
            units: dict[str, Any] = {"units": "hours since 2000-01-01", "calendar": "noleap"}
            zarr.create_array(
                store, name="time", data=np.array(hours), dimension_names=["time"], attributes=units
            )
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
    holes = sorted({number(1, length) for _ in range(number(0, 3))} - {length}) if length > 20 else []
    hours = np.arange(length) + np.searchsorted(holes, np.arange(length), "right") * number(1, 30)
    begin = number(0, length // 3)
    stop = number(begin + 1, length)
    window, stride = number(1, min(stop - begin, 25)), number(1, 5)
    expected = [
        each
        for each in range(begin, stop - window + 1, stride)
        if not any(each < hole < each + window for hole in holes)
    ]
    world = number(1, 4)
    arguments: dict[str, Any] = {
        "window": window,
        "stride": stride,
        "batch_size": number(1, 20),
        "seed": number(0, 3),
        "shuffle": data.draw(st.booleans()),
        "world_size": world,
        "start": begin,
        "stop": stop,
        "gaps": "skip",
    }
    session, windows, counts = session_of(length, chunk, hours.tolist()), [], set()
    if len(expected) < world:
        with pytest.raises(IcechunkError, match=f"each of {world} processes must have a window"):
            TrainingWindows(session, ["t"], **arguments)
        return
    for rank in range(world):
        loader = TrainingWindows(session, ["t"], rank=rank, **arguments)
        counts.add(len(loader))
        batches = starts(iter(loader), loader.window)
        assert len(batches) == max(counts)
        assert all(len(each) == loader.batch_size for each in batches[:-1])
        windows += [each for batch in batches for each in batch]
        cut = number(0, len(batches))
        first, again = (TrainingWindows(session, ["t"], rank=rank, **arguments) for _ in range(2))
        iterator = iter(first)
        for _ in range(cut):
            next(iterator)
        iterator.close()  # type: ignore[attr-defined]  # a generator; its thread ends
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert starts(iter(again), loader.window) == batches[cut:]
        if not loader.shuffle and world == 1:
            assert windows == sorted(windows)
    assert len(counts) == 1
    assert len(set(windows)) == len(windows) == len(expected) // world * world
    assert set(windows) <= set(expected)


def test_holes_in_time_and_times_of_a_split(tmp_path: Path) -> None:
    hours = [*range(10), *range(48, 60)]
    session = session_of(22, 5, hours)
    with pytest.warns(UserWarning, match="`/time` has holes: 2 windows that cross them are left out"):
        loader = TrainingWindows(session, ["t"], window=3, shuffle=False)
    assert sorted(each for batch in starts(iter(loader), 3) for each in batch) == [*range(8), *range(10, 20)]
    ignoring = TrainingWindows(session, ["t"], window=3, shuffle=False, gaps="ignore")
    assert sum(map(len, starts(iter(ignoring), 3))) == 20
    late = TrainingWindows(session, ["t"], window=3, shuffle=False, start="2000-01-03", stop="2000-01-03T06")
    assert starts(iter(late), 3) == [[10, 11, 12, 13]]
    months = ("M8[M]", "M8[ns]")
    repo = frazil.Repository.create(tmp_path / "months")
    with repo.transaction("main", message="months of a year but July") as store:
        times = np.delete(np.arange("2001-01", "2002-01", dtype=months[0]), 6).astype(months[1])
        for name, values in (("time", times), ("t", np.arange(33.0).reshape(11, 3))):
            names = ["time", "x"][: values.ndim]
            zarr.create_array(store, name=name, data=values, dimension_names=names)
    loader = TrainingWindows(repo, ["t"], window=2, shuffle=False, gaps="skip", stop="2001-11")
    assert starts(iter(loader), 2) == [[0, 1, 2, 3, 4, 6, 7]]


def test_an_epoch_reads_each_chunk_once() -> None:
    before = set(threading.enumerate())
    session = session_of(400, 7)
    loader = TrainingWindows(session, ["t"], window=12, memory=40_000)
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
    # Threads that all reads of the process share may have come before
    assert {each for each in threading.enumerate() if "decode" in each.name and not each.daemon} <= before


def test_values_are_decoded(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice")
    with repo.transaction("main", message="packed") as store:
        attributes: dict[str, Any] = {"scale_factor": 0.5, "_FillValue": -1}
        packed = zarr.create_array(store, name="g/p", shape=(4,), dtype="i2", attributes=attributes)
        packed[:] = [2, -1, 6, 8]
        other = zarr.create_array(store, name="g/q", shape=(4,), dtype="i8", chunks=(3,))
        other[:] = [1, 2, 3, 4]
    (batch,) = TrainingWindows(f"{tmp_path}/ice:g", ["p", "q"], window=2, shuffle=False)
    np.testing.assert_array_equal(batch["p"], [[1, np.nan], [np.nan, 3], [3, 4]])
    assert batch["q"].tolist() == [[1, 2], [2, 3], [3, 4]]
    (raw,) = TrainingWindows(f"{tmp_path}/ice:g", ["p"], window=4, decode=False)
    assert raw["p"].tolist() == [[2, -1, 6, 8]]


def test_a_state_belongs_to_its_version(tmp_path: Path) -> None:
    with frazil.Repository.create(tmp_path / "ice").transaction("main", message="rows") as store:
        zarr.create_array(store, name="t", data=np.arange(600).reshape(200, 3), chunks=(9, 3))
    state = TrainingWindows(str(tmp_path / "ice"), ["t"], window=10).state_dict()
    with frazil.Repository.open(tmp_path / "ice").transaction("main", message="another version") as store:
        zarr.open_array(store, path="t")[0] = 1
    with pytest.raises(IcechunkError, match="the state must have snapshot_id"):
        TrainingWindows(str(tmp_path / "ice"), ["t"], window=10).load_state_dict(state)


def test_a_damaged_chunk_reaches_the_reader(tmp_path: Path) -> None:
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = frazil.Repository.create(tmp_path / "ice", config)
    with repo.transaction("main", message="noise") as store:
        array = zarr.create_array(store, name="t", shape=(64,), chunks=(8,), dtype="f8")
        array[:] = np.random.default_rng(0).normal(size=64)
    for file in (tmp_path / "ice" / "chunks").iterdir():
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(IcechunkError):
        list(TrainingWindows(str(tmp_path / "ice"), ["t"], window=4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "window must be a whole number"),
        ({"window": 51}, "window must be at most the length of the variables, 50"),
        ({"window": 2, "rank": 1}, "rank must be from 0 to 0"),
        ({"window": 2, "seed": -1}, "seed must be a whole number"),
        ({"window": 2, "seed": None}, "seed must be a whole number"),
        ({"window": 2, "gaps": "fill"}, "gaps must be"),
        ({"window": 2, "start": 51}, "start must be a position"),
        ({"window": 2, "stop": "2001"}, "stop must be a position, or an ISO time"),
        ({"window": 2, "start": 10, "stop": 10}, "must have a window, got 0"),
        ({"window": 2, "memory": 100}, "memory must be at least"),
        ({"window": 2, "variables": ["u"]}, "/u"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(IcechunkError, match=message):
        TrainingWindows(session_of(50, 10), **{"variables": ["t"], **arguments})


# JAX warns at each later fork of its process, so it runs in one of its own.
TENSORS = """
import sys, warnings
import numpy as np
from frazil.errors import InvalidInputError
from frazil.loader import TrainingWindows

package, address = sys.argv[1:]
expected = [batch["t"] for batch in TrainingWindows(address, ["t"], window=4)]
warnings.simplefilter("ignore" if package == "jax" else "error")
batches = list(getattr(TrainingWindows(address, ["t"], window=4), package)())
assert type(batches[0]["t"]).__module__.split(".")[0] in (package, "jaxlib")
for batch, values in zip(batches, expected, strict=True):
    np.testing.assert_array_equal(np.asarray(batch["t"]), values)
if package == "jax":
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        list(TrainingWindows(address, ["t"], window=4).jax())
    assert ["'t' as float32" in str(each.message) for each in messages] == [True]
    for name in ("large", "time"):
        try:
            list(TrainingWindows(address, [name], window=4).jax())
        except InvalidInputError as error:
            assert name in str(error)
        else:
            raise AssertionError(name)
"""


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_tensors(package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    with frazil.Repository.create(tmp_path / "ice").transaction("main", message="noise") as store:
        zarr.create_array(store, name="t", data=np.arange(150.0).reshape(50, 3), chunks=(10, 3))
        zarr.create_array(store, name="large", data=np.arange(50) + 2**40)
        zarr.create_array(store, name="time", data=np.arange(50).astype("M8[s]"))
    subprocess.run([sys.executable, "-c", TENSORS, package, str(tmp_path / "ice")], check=True)

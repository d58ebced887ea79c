"""xarray datasets, in memory and of dask, written and read back."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from xarray.testing import assert_identical

import frazil
from frazil.xarray import to_icechunk

#: xarray's annotations have no sessions and stores.
open_dataset: Any = xr.open_dataset
open_dataarray: Any = xr.open_dataarray


Reopened = Callable[[frazil.Session], frazil.IcechunkStore]


def weather(times: int = 12, start: int = 0) -> xr.Dataset:
    """Two variables of (time, lat, lon), one packed; coordinates of time, numbers and text."""
    rng = np.random.default_rng(start)
    time = np.datetime64("2001-01-01", "ns") + np.arange(start, start + times) * np.timedelta64(6, "h")
    dims = ("time", "lat", "lon")
    dataset = xr.Dataset(
        {
            "wind": (dims, rng.normal(size=(times, 6, 8)).astype("f4"), {"units": "m s-1"}),
            "rain": (dims, rng.integers(0, 100, (times, 6, 8)) / 4),
            "height": (("lat", "lon"), rng.normal(size=(6, 8))),
            "crs": ((), 4326),
        },
        coords={
            "time": time,
            "lat": np.linspace(-50, 50, 6),
            "lon": np.arange(8.0),
            "name": ("lat", ["a", "bb", "ccc", "ü", "", "f"]),
        },
        attrs={"title": "weather", "nested": {"a": [1, 2]}},
    )
    dataset["rain"].encoding = {"dtype": "i2", "scale_factor": 0.25, "_FillValue": -1}
    dataset["time"].encoding = {"units": "hours since 2001-01-01", "dtype": "i8"}
    return dataset


def read(store: frazil.IcechunkStore, **options: Any) -> xr.Dataset:
    dataset: xr.Dataset = xr.open_zarr(store, consolidated=False, chunks=None, **options).load()
    return dataset


@pytest.mark.sample(4)
@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
@pytest.mark.parametrize("chunks", [None, {"time": 5, "lat": 3}, {}])
def test_to_icechunk_and_back(
    session: frazil.Session, reopened: Reopened, chunks: dict[str, int] | None, scheduler: str
) -> None:
    dataset = weather()
    with dask.config.set(scheduler=scheduler):
        to_icechunk(dataset if chunks is None else dataset.chunk(chunks), session, split_every=2)
    assert_identical(read(session.store), dataset)
    assert_identical(read(reopened(session)), dataset)


@pytest.mark.parametrize("chunks", [None, {}])
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("engine", ["frazil", "zarr"])
def test_a_group_is_written_from_its_own_values(
    session: frazil.Session, reopened: Reopened, chunks: dict[str, int] | None, is_new: bool, engine: str
) -> None:
    options: dict[str, Any] = {"engine": engine, "group": "g", "chunks": chunks}
    options |= {"consolidated": False} if engine == "zarr" else {}
    to_icechunk(weather(), session, group="g")
    if not is_new:
        snapshot_id = session.commit("before")
        session = frazil.Repository.open(session.workspace.context.storage).writable_session("main")
        assert session.snapshot_id == snapshot_id
    for factor, size in ((2, 9), (4, 5)):
        lazy = open_dataset(session.store, **options).isel(time=slice(0, size))
        lazy["height"] = lazy["height"] * 2
        to_icechunk(lazy, session, group="g", mode="w")
        expected = weather().isel(time=slice(0, size))
        expected["height"] = expected["height"] * factor
        assert_identical(read(session.store, group="g"), expected)
    assert_identical(read(reopened(session), group="g"), expected)


@pytest.mark.parametrize("mode", ["w", "w-", "a"])
@pytest.mark.parametrize("as_tree", [False, True])
def test_values_that_fail_change_nothing(session: frazil.Session, mode: Any, as_tree: bool) -> None:
    to_icechunk(weather(), session, group="old")
    before, group = session.status(), "new" if mode == "w-" else "old"

    def fail(block: Any) -> Any:
        raise RuntimeError("no values")

    data = da.arange(12, chunks=3).map_blocks(fail, meta=np.array([], "i8"))
    lazy = xr.Dataset({"other": ("x", data)})
    with pytest.raises(RuntimeError, match="no values"):
        to_icechunk(
            xr.DataTree.from_dict({"/": weather(), "/b": lazy}) if as_tree else lazy,
            session,
            group=group,
            mode=mode,
            accept=["variables", "attributes"],
        )
    assert session.status() == before
    assert_identical(read(session.store, group="old"), weather())


def test_unsafe_chunks_are_refused_or_aligned(session: frazil.Session) -> None:
    dataset = xr.Dataset({"a": ("x", da.arange(12, chunks=3))})
    encoding = {"a": {"chunks": (4,)}}
    with pytest.raises(ValueError, match="chunk"):
        to_icechunk(dataset, session, encoding=encoding)
    # Unchecked, two tasks write one chunk: one of them would be lost without a word.
    with pytest.raises(frazil.SessionStateError) as raised:
        to_icechunk(dataset, session, mode="w", encoding=encoding, safe_chunks=False)
    assert raised.value.kind == "merge-failed"
    to_icechunk(dataset, session, mode="w", encoding=encoding, align_chunks=True)
    assert read(session.store)["a"].values.tolist() == list(range(12))


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "w", "region": {"time": slice(0, 12)}},
        {"mode": "w", "append_dim": "time"},
        {"mode": "r+", "append_dim": "time"},
        {"mode": "r"},
        {"mode": "x"},
    ],
)
def test_modes_that_do_not_fit_delete_nothing(session: frazil.Session, options: dict[str, Any]) -> None:
    to_icechunk(weather(), session)
    with pytest.raises(frazil.InvalidInputError, match="mode must be one of"):
        to_icechunk(weather()[["wind"]], session, **options)
    assert_identical(read(session.store), weather())


def test_names(session: frazil.Session) -> None:
    clash = xr.DataArray(np.arange(3), dims="x", name="x")
    to_icechunk(clash, session, group="clash")
    back = open_dataarray(session.store, engine="zarr", group="clash", consolidated=False)
    assert back.name == "x"
    with pytest.raises(TypeError, match="got 3"):
        to_icechunk(xr.Dataset({3: ("x", [1])}), session, group="number")
    for name in ("", "a/b"):
        with pytest.raises(frazil.InvalidInputError, match="must not be empty"):
            to_icechunk(xr.Dataset({name: ("x", [1])}), session, group="refused")


def test_other_values_and_sessions_that_only_read_are_refused(session: frazil.Session) -> None:
    with pytest.raises(TypeError, match="got int"):
        to_icechunk(3, session)  # type: ignore[arg-type]
    to_icechunk(weather(), session)
    session.commit("done")
    with pytest.raises(frazil.ReadOnlyError):
        to_icechunk(weather(), session, mode="w")


def test_dask_arrays_without_elements(session: frazil.Session) -> None:
    dataset = xr.Dataset({"a": (("t", "x"), da.zeros((3, 0)))})
    to_icechunk(dataset, session)
    assert read(session.store)["a"].shape == (3, 0)
    assert dataset["a"].chunks is not None  # the caller's dataset is what it was


@pytest.mark.parametrize("owner", ["zarr.ZarrStore._validate_encoding", "writers.dump_to_store"])
def test_an_xarray_without_what_frazil_uses_is_named(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(f"xarray.backends.{owner}")
    for name in ("frazil.xarray", "frazil.xarray.agreement"):
        monkeypatch.delitem(sys.modules, name)
    message = rf"xarray {re.escape(xr.__version__)} lacks .*{owner.rpartition('.')[2]}"
    with pytest.raises(ImportError, match=message):
        importlib.import_module("frazil.xarray")

"""``to_icechunk``, ``store_dask`` and the merging of sessions, with Frazil and with the published icechunk.

The same calls give the same documents and values, or the same kind of error. Where Frazil does more, the
room's own tests have it: ``store_dask`` for targets of a session that is no fork, conflicts between tasks.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import dask.array
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray
from tests.interop.both import documents_of
from zarr.core.sync import sync

pytestmark = [pytest.mark.deep, pytest.mark.interop]

PACKAGES = ("frazil", "icechunk")
#: Most functions of dask have no types.
da: Any = dask.array


class Kit:
    """One of the two packages, with its submodules and a repository in memory."""

    def __init__(self, name: str) -> None:
        self.package = importlib.import_module(name)
        self.xarray, self.dask, self.distributed = (
            importlib.import_module(f"{name}.{part}") for part in ("xarray", "dask", "distributed")
        )
        self.repo = self.package.Repository.create(self.package.in_memory_storage())

    def session(self) -> Any:
        return self.repo.writable_session("main")

    def write(self, dataset: Any, *, accepts: bool = False, **options: Any) -> None:
        """To a fork, merged and committed: what works with both, in memory or of dask."""
        session = self.session()
        fork = session.fork()
        if accepts and self.package.__name__ == "frazil":  # it compares more than the reference
            options = {"accept": self.xarray.CHECKS, **options}
        self.xarray.to_icechunk(dataset, fork, **options)
        session.merge(fork)
        session.commit("written")

    def documents(self) -> dict[str, bytes]:
        return sync(documents_of(self.repo.readonly_session("main")))

    def read_arrays(self) -> dict[str, NDArray[Any]]:
        root = zarr.open_group(self.repo.readonly_session("main").store, mode="r")
        return {name: np.asarray(array[:]) for name, array in root.arrays()}

    def read(self, group: str | None = None) -> xr.Dataset:
        store = self.repo.readonly_session("main").store
        dataset: xr.Dataset = xr.open_zarr(store, group=group, consolidated=False, chunks=None)
        return dataset.load()


def both() -> tuple[Kit, Kit]:
    return Kit("frazil"), Kit("icechunk")


def outcome(kit: Kit, do: Callable[[Kit], Any]) -> Any:
    """What comes out, or which error: its class and kind, or the builtin class that it is."""
    try:
        return do(kit)
    except kit.package.IcechunkError as error:
        builtin = [cls.__name__ for cls in type(error).__mro__ if cls in (KeyError, ValueError)]
        return "error", *(builtin or (type(error).__name__, str(error.kind)))
    except Exception as error:
        return "error", type(error).__name__


def check(ours: Any, theirs: Any) -> None:
    if theirs[0] == "error" or ours[0] == "error":
        assert ours == theirs
    else:
        assert ours[0] == theirs[0]
        xr.testing.assert_identical(ours[1], theirs[1])


def weather(times: int = 12, start: int = 0) -> xr.Dataset:
    rng = np.random.default_rng(start)
    time = np.datetime64("2001-01-01", "ns") + np.arange(start, start + times) * np.timedelta64(6, "h")
    dataset = xr.Dataset(
        {
            "wind": (("time", "lat", "lon"), rng.normal(size=(times, 6, 8)).astype("f4"), {"units": "m s-1"}),
            "height": (("lat", "lon"), rng.normal(size=(6, 8))),
            "flag": ("time", np.arange(times) % 2 == 0),
        },
        coords={"time": time, "lat": np.linspace(-50, 50, 6), "name": ("lat", list("abcdef"))},
        attrs={"title": "weather"},
    )
    dataset["time"].encoding = {"units": "hours since 2001-01-01", "dtype": "i8"}
    return dataset


FIRST: dict[str, Any] = {
    "encoding": {"wind": {"chunks": (4, 3, 8)}, "flag": {"chunks": (4,)}, "time": {"chunks": (4,)}}
}
PART = weather(4, 12).drop_vars(["height", "name"])
REGION = (weather()[["wind"]].isel(time=slice(4, 8)) * 2).drop_vars(["name"])
PLAIN = [
    {},
    {"group": "a/b"},
    {"mode": "w"},
    {"mode": "a"},
    {"mode": "w-"},
    {"encoding": {"wind": {"dtype": "i2", "scale_factor": 0.1, "_FillValue": -9}}},
    {"encoding": {"nothing": {"chunks": (1,)}}},
    {"encoding": {"wind": {"chunks": (5, 6, 8)}}},
    {"encoding": {"wind": {"no such key": 1}}},
    {"safe_chunks": False, "encoding": {"wind": {"chunks": (2, 3, 8)}}},
    {"align_chunks": True, "encoding": {"wind": {"chunks": (5, 6, 8)}}},
    {"mode": "no such mode"},
]


@pytest.mark.sample(15, 15)
@pytest.mark.parametrize("chunks", [None, {"time": 4, "lat": 3}], ids=["memory", "dask"])
@pytest.mark.parametrize("options", PLAIN, ids=str)
def test_first_write(options: dict[str, Any], chunks: dict[str, int] | None) -> None:
    dataset = weather() if chunks is None else weather().chunk(chunks)

    def do(kit: Kit) -> Any:
        kit.write(dataset.copy(), **options)
        return kit.documents(), kit.read(options.get("group"))

    check(*(outcome(kit, do) for kit in both()))


CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "append": (PART, {"append_dim": "time"}),
    "append in mode a": (PART, {"append_dim": "time", "mode": "a"}),
    "append in mode a-": (PART, {"append_dim": "time", "mode": "a-"}),
    "append everything": (weather(4, 12), {"append_dim": "time"}),
    "append other dtype": (PART.astype("f8"), {"append_dim": "time"}),
    "append with encoding": (PART, {"append_dim": "time", "encoding": {"wind": {"chunks": (1, 6, 8)}}}),
    "append along nothing": (PART, {"append_dim": "nothing"}),
    "region auto": (REGION, {"region": "auto"}),
    "region auto of one": (REGION.drop_vars("lat"), {"region": {"time": "auto", "lat": slice(0, 6)}}),
    "region": (REGION.drop_vars(["lat", "time"]), {"region": {"time": slice(0, 4)}}),
    "region in mode r+": (REGION.drop_vars(["lat", "time"]), {"region": {"time": slice(0, 4)}, "mode": "r+"}),
    "region not aligned": (REGION.drop_vars(["lat", "time"]), {"region": {"time": slice(1, 5)}}),
    "region of another size": (REGION.drop_vars(["lat", "time"]), {"region": {"time": slice(0, 5)}}),
    "region with more": (weather().isel(time=slice(0, 4)), {"region": {"time": slice(0, 4)}}),
    "region in mode w-": (REGION.drop_vars(["lat", "time"]), {"region": {"time": slice(0, 4)}, "mode": "w-"}),
    "again": (weather(), {}),
    "anew": (weather(4)[["height"]], {"mode": "w"}),
    "other variables": (weather()[["height"]].rename(height="depth"), {"mode": "a"}),
    "in place": (weather() * 2, {"mode": "r+"}),
    "a new variable in place": (weather()[["height"]].rename(height="depth"), {"mode": "r+"}),
    "a data array": (weather()["wind"].rename("gale"), {"mode": "a"}),
    "a data array without name": (xr.DataArray(np.arange(3), dims="x"), {"mode": "a"}),
}


#: Frazil refuses these, unless that is accepted: other heights, and booleans that became numbers.
REFUSED = ("append everything", "append other dtype", "in place")


@pytest.mark.sample(14, 14)
@pytest.mark.parametrize("chunked", [False, True], ids=["memory", "dask"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed(change: str, chunked: bool) -> None:
    dataset, options = CHANGES[change]

    def do(kit: Kit, accepts: bool = change in REFUSED) -> Any:
        kit.write(weather(), **FIRST)
        what: Any = dataset.copy()
        if chunked:
            what = what.chunk({name: 4 if name == "time" else -1 for name in what.dims})
        kit.write(what, accepts=accepts, **options)
        return kit.documents(), kit.read()

    check(*(outcome(kit, do) for kit in both()))
    if change in REFUSED:
        assert outcome(Kit("frazil"), lambda kit: do(kit, accepts=False)) == ("error", "ValueError")


# ---- dask ------------------------------------------------------------------------------------------


def arrays(store: Any) -> list[zarr.Array[Any]]:
    root = zarr.open_group(store, mode="a")
    return [root.require_array(name, shape=(8, 12), chunks=(2, 3), dtype="f8") for name in ("a", "b")]


def with_arrays(kit: Kit) -> Any:
    session = kit.session()
    arrays(session.store)
    session.commit("arrays")
    return kit.session()


DATA = np.random.default_rng(0).random((8, 12))
STORES: dict[str, tuple[list[Any], list[int], dict[str, Any]]] = {
    "one": ([da.from_array(DATA, chunks=(4, 6))], [0], {}),
    "two": ([da.from_array(DATA, chunks=(4, 12)), da.from_array(DATA, chunks=(2, 3)) + 1], [0, 1], {}),
    "few at a time": ([da.from_array(DATA, chunks=(2, 3))], [0], {"split_every": 2}),
    "a region": ([da.from_array(DATA[:4], chunks=(2, 6))], [0], {"regions": [(slice(4, 8), slice(0, 12))]}),
    "compute": ([da.from_array(DATA, chunks=(4, 6))], [0], {"compute": False}),
    "as many": ([da.from_array(DATA, chunks=(4, 6))], [0, 1], {}),
    "in one thread": ([da.from_array(DATA, chunks=(4, 6))], [1], {"scheduler": "synchronous"}),
}


@pytest.mark.parametrize("case", STORES)
def test_store_dask(case: str) -> None:
    sources, which, options = STORES[case]

    def do(kit: Kit) -> Any:
        session = with_arrays(kit)
        fork = session.fork()
        targets = [arrays(fork.store)[number] for number in which]
        done = kit.dask.store_dask(sources=sources, targets=targets, **options)
        assert isinstance(done, kit.package.ForkSession)
        session.merge(done)
        session.commit("stored")
        return kit.documents(), kit.read_arrays()

    ours, theirs = (outcome(kit, do) for kit in both())
    if case == "in one thread":  # the reference hands it to a function that does not know it
        assert theirs == ("error", "TypeError")
        np.testing.assert_array_equal(ours[1]["b"], DATA)
    elif theirs[0] == "error":
        assert ours == theirs
    else:
        assert ours[0] == theirs[0]
        np.testing.assert_equal(ours[1], theirs[1])


def lazily(kit: Kit, fork: Any) -> list[Any]:
    sources = [da.from_array(DATA, chunks=(4, 6)), da.from_array(DATA, chunks=(2, 12)) * 2]
    return list(da.store(sources, arrays(fork.store), compute=False, return_stored=True, load_stored=False))


def by_function(kit: Kit, fork: Any) -> Any:
    def write(block_id: tuple[int, ...]) -> zarr.Array[Any]:
        own = fork.fork()
        target = arrays(own.store)[0]
        target[4 * block_id[0] : 4 * block_id[0] + 4] = DATA[:4] + block_id[0]
        return target

    return da.map_blocks(write, chunks=((1, 1),), dtype=object, meta=np.array([], dtype=object))


@pytest.mark.parametrize("split_every", [None, 2])
@pytest.mark.parametrize("build_arrays", [lazily, by_function])
def test_session_merge_reduction(build_arrays: Callable[[Kit, Any], Any], split_every: int | None) -> None:
    read = []
    for kit in both():
        session = with_arrays(kit)
        merged = kit.dask.session_merge_reduction(build_arrays(kit, session.fork()), split_every=split_every)
        assert isinstance(merged, kit.package.ForkSession)
        session.merge(merged)
        session.commit("merged")
        read.append(kit.read_arrays())
    np.testing.assert_equal(read[0], read[1])
    assert (read[0]["a"] > 0).all()


def test_a_reduction_that_users_write_themselves() -> None:
    read = []
    for kit in both():
        session = with_arrays(kit)
        merged = da.reduction(
            lazily(kit, session.fork())[1],
            name="merge",
            chunk=kit.dask.computing_meta(kit.distributed.extract_session),
            aggregate=kit.dask.computing_meta(kit.dask.merge_sessions_array_kwargs),
            split_every=2,
            concatenate=False,
            dtype=object,
        ).compute()
        session.merge(merged)
        session.commit("merged")
        read.append(kit.read_arrays())
    np.testing.assert_equal(read[0], read[1])
    np.testing.assert_array_equal(read[0]["b"], DATA * 2)


MERGES: dict[str, Callable[[Kit, list[Any]], Any]] = {
    "one by one": lambda kit, forks: kit.distributed.merge_sessions(*forks),
    "in a list": lambda kit, forks: kit.distributed.merge_sessions(forks),
    "in lists": lambda kit, forks: kit.distributed.merge_sessions([forks[:1], forks[1:]]),
    "with keywords": lambda kit, forks: kit.dask.merge_sessions_array_kwargs(forks, axis=0, keepdims=True),
    "one": lambda kit, forks: kit.distributed.merge_sessions(forks[0]),
    "twice": lambda kit, forks: kit.distributed.merge_sessions(*forks, *forks),
    "none": lambda kit, forks: kit.distributed.merge_sessions(),
    "a number": lambda kit, forks: kit.distributed.merge_sessions(forks[0], 3),
    "a session": lambda kit, forks: kit.distributed.merge_sessions(kit.session()),
    "from arrays": lambda kit, forks: kit.distributed.merge_sessions(
        [kit.distributed.extract_session(arrays(fork.store)[0], axis=0, keepdims=True) for fork in forks]
    ),
}


@pytest.mark.parametrize("case", MERGES)
def test_merge_sessions(case: str) -> None:
    def do(kit: Kit) -> Any:
        session = with_arrays(kit)
        forks = [session.fork() for _ in range(3)]
        for number, fork in enumerate(forks):
            arrays(fork.store)[0][2 * number : 2 * number + 2] = number + 1
        merged = MERGES[case](kit, forks)
        assert type(merged).__name__ == "ForkSession"
        session.merge(merged)
        session.commit("merged")
        return "values", kit.read_arrays()["a"].tolist()

    ours, theirs = (outcome(kit, do) for kit in both())
    assert ours == theirs

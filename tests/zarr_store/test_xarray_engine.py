"""The engine ``frazil`` of xarray, and the accessor that writes to an address."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from xarray.testing import assert_identical
from zarr.core.buffer import cpu

import frazil
import frazil.xarray
from frazil.errors import IcechunkError, UnreadableArrayWarning
from frazil.storage.checks import TRAFFIC

#: xarray's annotations have no sessions and stores.
open_dataset: Any = xr.open_dataset
open_datatree: Any = xr.open_datatree
open_groups: Any = xr.open_groups
from_array: Any = da.from_array
compute: Any = dask.base.compute


def weather(days: int = 3) -> xr.Dataset:
    """A dataset with packed numbers, missing values, times, text and a scalar."""
    values = np.arange(days * 12.0).reshape(days, 3, 4)
    values[0, 0, 0] = np.nan
    times = np.datetime64("2026-11-01", "ns") + np.arange(days) * np.timedelta64(1, "D")
    data = xr.Dataset(
        {
            "t": (("time", "y", "x"), values, {"units": "K"}),
            "crs": ((), 4326),
            "name": ("y", ["a", "bb", "c"]),
        },
        {"time": times, "x": np.arange(4)},
        {"title": "weather"},
    )
    data["t"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "chunks": (1, 3, 2)}
    return data


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A repository with a tag of three days, and five days on the branch main, in the group `era5/air`."""
    address = str(tmp_path / "ice")
    weather().frazil.to(f"{address}:era5/air", message="three days")
    frazil.Repository.open(address).create_tag("v1", "main")
    later = weather(5).isel(time=slice(3, 5)).drop_vars(["crs", "name"])
    for each in later.variables.values():
        each.encoding = {}
    later.frazil.append(f"{address}:era5/air", "time", message="two more")
    return address


def test_addresses_and_arguments_name_a_version(folder: str) -> None:
    old, new = weather(3), weather(5)
    repo = frazil.Repository.open(folder)
    id_ = repo.lookup_tag("v1")
    cases: list[tuple[Any, dict[str, Any], xr.Dataset]] = [
        (f"{folder}@v1:era5/air", {}, old),
        (f"{folder}:era5", {"group": "air"}, new),
        (f"file://{folder}@{id_}:era5/air", {}, old),
        (folder, {"group": "/era5/air", "tag": "v1"}, old),
        (Path(folder), {"group": "era5/air", "snapshot_id": id_}, old),
        (repo, {"group": "era5/air"}, new),
        (repo, {"group": "era5/air", "tag": "v1"}, old),
        (repo.readonly_session(tag="v1"), {"group": "era5/air"}, old),
        (repo.readonly_session(tag="v1").store, {"group": "era5/air"}, old),
    ]
    for source, options, expected in cases:
        assert_identical(open_dataset(source, engine="frazil", **options), expected)


@pytest.mark.parametrize("options", [{}, {"mask_and_scale": False}, {"decode_times": False}, {"chunks": {}}])
def test_datasets_are_those_of_the_engine_zarr(folder: str, options: dict[str, Any]) -> None:
    session = frazil.Repository.open(folder).readonly_session("main")
    theirs = open_dataset(session.store, engine="zarr", group="era5/air", consolidated=False, **options)
    ours = open_dataset(session, engine="frazil", group="era5/air", **options)
    assert_identical(ours, theirs)
    for name, variable in ours.variables.items():
        expected = {"fill_value": variable.encoding.get("fill_value"), **theirs[name].encoding}
        assert {key: str(value) for key, value in variable.encoding.items()} == {
            key: str(value) for key, value in expected.items()
        }
        assert variable.chunks == theirs[name].variable.chunks
    index = {"time": xr.DataArray([4, 0, 2], dims="p"), "x": xr.DataArray([3, 1, 0], dims="p")}
    assert_identical(ours.isel(index).load(), theirs.isel(index).load())
    assert_identical(
        ours.isel(time=[3, 1], y=slice(None, None, -1)).load(), theirs.isel(time=[3, 1], y=[2, 1, 0])
    )
    assert_identical(pickle.loads(pickle.dumps(ours)), theirs)


def test_values_are_read_when_they_are_needed(folder: str) -> None:
    # With chunks, xarray before 2026.7 looks for a file with the name of a local address
    data = open_dataset(f"file://{folder}:era5/air", engine="frazil", chunks={})
    assert data["t"].chunks == ((1,) * 5, (3,), (2, 2))
    assert not open_dataset(f"{folder}:era5/air", engine="frazil")["t"].variable._in_memory
    assert data["t"].mean().compute().item() == weather(5)["t"].mean().item()
    both = xr.open_mfdataset(
        [f"file://{folder}@v1:era5/air"] * 2, engine="frazil", combine="nested", concat_dim="run"
    )
    assert both.sizes["run"] == 2


def test_a_dataset_reads_the_arrays_that_it_opened(session: frazil.Session) -> None:
    data = xr.Dataset({"t": ("x", np.arange(10.0)), "u": ("x", np.arange(10))})
    data["t"].attrs = {"scale_factor": 2.0}
    data.frazil.to(session)

    def refuses(lazy: xr.Dataset) -> None:
        for part in (lazy["t"], lazy["t"].isel(x=slice(2, 5)), lazy["t"].isel(x=3)):
            with pytest.raises(frazil.InvalidInputError, match="Open the dataset again"):
                part.load()

    for change in (
        lambda: data.assign(t=data["t"].assign_attrs(scale_factor=3.0)).frazil.to(session, mode="w"),
        lambda: data.frazil.to(session, mode="w"),
        lambda: zarr.open_array(session.store, path="t").resize((20,)),
        lambda: zarr.open_array(session.store, path="t").resize((4,)),
        lambda: zarr.open_array(session.store, path="t").attrs.update(scale_factor=4.0),
    ):
        lazy = open_dataset(session, engine="frazil")
        change()
        refuses(lazy)
        data.frazil.to(session, mode="w")
    lazy = open_dataset(session, engine="frazil")
    zarr.open_array(session.store, path="t").attrs["note"] = "harmless"
    zarr.open_array(session.store, path="t")[0] = 5
    session.commit("read after the commit, too")
    assert lazy["t"].values[:2].tolist() == [10.0, 2.0]


@pytest.mark.skipif(zarr.__version__.startswith("3.1."), reason="zarr 3.2 has chunks of unequal lengths")
def test_arrays_that_cannot_be_opened_are_left_out(session: frazil.Session) -> None:
    weather().frazil.to(session, group="g")
    with zarr.config.set({"array.rectilinear_chunks": True}):
        for name in ("uneven", "time2"):
            zarr.create_array(
                session.store,
                name=f"g/{name}",
                shape=(3,),
                chunks=[[1, 2]],
                dtype="i4",
                dimension_names=[name],
            )[:] = [1, 2, 3]
    value = session.store.get_sync("g/crs/zarr.json")
    assert value is not None
    document = json.loads(value.to_bytes())
    parts: dict[str, dict[str, Any]] = {
        "codec": {"codecs": [{"name": "no.such.codec"}]},
        "type": {"data_type": "int1000"},
    }
    for name, part in parts.items():
        data = json.dumps({**document, **part, "shape": [], "dimension_names": []}).encode()
        session.store.set_sync(f"g/{name}/zarr.json", cpu.Buffer.from_bytes(data))
    # An import of Cubed sets this option to True for the whole process.
    with zarr.config.set({"array.rectilinear_chunks": False}), pytest.warns(UnreadableArrayWarning) as caught:
        opened = open_dataset(session, engine="frazil", group="g")
    assert_identical(opened.load(), weather())
    texts = sorted(str(each.message) for each in caught)
    for text, (name, cause) in zip(
        texts,
        [("codec", "no.such.codec"), ("time2", "ectilinear"), ("type", "int1000"), ("uneven", "ectilinear")],
        strict=True,
    ):
        assert f"`/g/{name}`" in text
        assert cause in text
    with pytest.raises(Exception, match="int1000"):
        frazil.read(session, "g/type")
    dropped = ["codec", "type", "uneven", "time2"]
    assert_identical(open_dataset(session, engine="frazil", group="g", drop_variables=dropped), weather())


#: Ways to open a group: a function of the repository.
OPENED: dict[str, Callable[[frazil.Repository], xr.Dataset | xr.DataTree]] = {
    "address": lambda repo: open_dataset("ice@main:g", engine="frazil", chunks={}),
    "group": lambda repo: open_dataset(Path("ice"), group="g", engine="frazil", chunks={"x": 5}),
    "branch": lambda repo: open_dataset("ice:g", engine="frazil", branch="main", chunks={}),
    "files": lambda repo: xr.open_mfdataset(["ice:g"], engine="frazil"),
    "tree": lambda repo: open_datatree("ice", engine="frazil", chunks={})["g"],
    "repository": lambda repo: open_dataset(repo, group="g", engine="frazil", chunks={}),
    "session": lambda repo: open_dataset(
        repo.readonly_session("main"), group="g", engine="frazil", chunks={}
    ),
    "store": lambda repo: xr.open_zarr(repo.readonly_session("main").store, group="g", consolidated=False),
    "array": lambda repo: xr.Dataset(
        {"t": ("x", from_array(frazil.Array(repo.readonly_session("main"), "g/t")))}
    ),
    "later": lambda repo: open_dataset("ice:g", engine="frazil").chunk({}),
    "rows": lambda repo: open_dataset("ice:g", engine="frazil").isel(x=slice(1, 4)).chunk({}),
    "changed": lambda repo: open_dataset(
        repo.writable_session("main"), group="g", engine="frazil", chunks={}
    ),
}


@pytest.mark.skipif(xr.__version__ < "2026.07", reason="with chunks, an older xarray looks for local files")
def test_dask_names_contain_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[dict[str, Any]] = []
    for value in range(3):
        xr.Dataset({"t": ("x", np.full(5, value))}).frazil.to("ice:g", mode="w")
        repo = frazil.Repository.open("ice")
        opened.append({form: call(repo)["t"] for form, call in OPENED.items()})
        again = {form: call(frazil.Repository.open("ice"))["t"] for form, call in OPENED.items()}
        same = {form for form, array in again.items() if array.data.name == opened[-1][form].data.name}
        assert same == set(OPENED) - {"later", "rows", "changed"}
    for form in OPENED:
        arrays = [each[form] for each in opened]
        assert len({each.data.name for each in arrays}) == 3, form
        assert [set(each.values) for each in compute(*arrays)] == [{0}, {1}, {2}], form
    session = repo.writable_session("main")
    states = []
    for value in (3, 4):
        zarr.open_array(session.store, path="g/t")[:] = value
        states.append(open_dataset(session, group="g", engine="frazil", chunks={})["t"].data)
    assert len({*(each.name for each in states), opened[-1]["session"].data.name}) == 3


def test_a_tree_needs_few_requests(tmp_path: Path) -> None:
    memory = frazil.in_memory_storage()
    session = frazil.Repository.create(memory).writable_session("main")
    for number in range(50):
        group = zarr.create_group(session.store, path=f"sweep/{number}")
        for name, dims in (("t", ["x", "y"]), ("x", ["x"]), ("y", ["y"])):
            array = group.create_array(name, shape=(8,) * len(dims), dtype="f8", dimension_names=dims)
            array[...] = np.full(array.shape, number)
    session.commit("sweeps")
    TRAFFIC.take_counts()
    session = frazil.Repository.open_session(memory)
    tree = open_datatree(session, engine="frazil", group="sweep")
    assert TRAFFIC.take_counts().requests <= 8
    assert_identical(
        tree.load(), open_datatree(session.store, engine="zarr", group="sweep", consolidated=False)
    )
    groups = open_groups(session, engine="frazil", drop_variables=["y"])
    assert set(groups) == {"/", "/sweep", *(f"/sweep/{number}" for number in range(50))}
    assert set(groups["/sweep/7"].variables) == {"t", "x"}


def test_wrong_sources(folder: str) -> None:
    session = frazil.Repository.open(folder).writable_session("main")
    zarr.create_array(session.store, name="plain", shape=(3,), dtype="i4")
    session.commit("an array without names")
    session = frazil.Repository.open(folder).readonly_session("main")
    for source, options, message in [
        (f"{folder}:era5/air/t", {}, "Name its group, `/era5/air`"),
        (f"{folder}:era5/wind", {}, "/era5/wind"),
        (f"{folder}@v2", {}, "v2"),
        (folder, {}, "`/plain` must have dimension names"),
        (session, {"tag": "v1"}, "leave out tag"),
    ]:
        with pytest.raises(IcechunkError, match=message):
            open_dataset(source, engine="frazil", **options)
    assert not open_dataset(folder, engine="frazil", drop_variables="plain").variables


def test_writes_and_reads_have_the_same_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = weather()
    data.frazil.to("ice")
    repo = frazil.Repository.open("ice")
    repo.create_branch("dev", repo.lookup_branch("main"))
    written = repo.writable_session("main")
    cases: list[tuple[Any, str | None, dict[str, Any]]] = [
        ("ice:a", None, {}),
        ("ice:a", "b", {}),
        ("ice@dev", "/a/", {"storage_options": {}}),
        (tmp_path / "ice", "c", {}),
        (tmp_path / "a@b", None, {}),
        (tmp_path / "a:b", "d", {}),
        ("C:/data/ice", None, {}),
        ("frazil://ice:h", None, {}),
        (repo, "d", {}),
        (written, "e", {}),
        (written.store, "f", {}),
    ]
    for target, group, options in cases:
        assert (data.frazil.to(target, group=group, **options) is None) == (
            target in (written, written.store)
        )
        assert_identical(open_dataset(target, engine="frazil", group=group).load(), data)
    assert set(open_groups(written, engine="frazil")) == {"/", "/e", "/f"}
    assert {each.name for each in tmp_path.iterdir()} == {"ice", "a@b", "a:b", "C:"}
    for target in (3, None, b"ice", repo.readonly_session("main")):
        with pytest.raises((TypeError, frazil.ReadOnlyError)):
            data.frazil.to(target)
    for target in (written.store.with_read_only(True), written):
        with pytest.raises(IcechunkError, match=r"store|address"):
            data.frazil.to(target, group="h", storage_options={} if target is written else None)
    assert not data.isel(time=[]).drop_vars(["crs", "name"]).frazil.append(written, "time", group="e")
    with pytest.raises(frazil.SessionStateError, match="allow_empty"):
        data.isel(time=[]).drop_vars(["crs", "name"]).frazil.append("ice", "time")
    before = repo.lookup_branch("main")
    assert (
        data.isel(time=[]).drop_vars(["crs", "name"]).frazil.append("ice", "time", allow_empty=True) != before
    )


def test_chunked_appends_keep_variables_that_do_not_grow(repo: frazil.Repository) -> None:
    pytest.importorskip("dask")
    data = xr.Dataset(
        {"t": (("time", "x"), np.ones((8, 4))), "w": ("x", np.arange(4.0)), "name": ("x", list("abcd"))},
        {"time": np.arange(8)},
    )
    data.isel(time=slice(4)).frazil.to(repo, encoding={"t": {"chunks": (2, 4)}})
    later = data.isel(time=slice(4, None)).chunk(time=2)
    with pytest.raises(IcechunkError, match="`w` must have the stored values"):
        later.assign(w=later.w + 1).frazil.append(repo, "time")
    later.frazil.append(repo, "time")
    assert_identical(open_dataset(repo, engine="frazil").load(), data)


@pytest.mark.parametrize(
    "options",
    [
        {"target": "new@dev:g"},
        {"append_dim": "time"},
        {"region": "auto"},
        {"mode": "x"},
        {"accept": "y"},
        {"z": 1},
    ],
)
def test_wrong_writes_create_no_repository(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((IcechunkError, TypeError)):
        weather().frazil.to(**{"target": "new:g"} | options)
    with pytest.raises(TypeError, match="to_icechunk, got 'color'"):
        weather().frazil.to("new:g", color=1)
    assert not list(tmp_path.iterdir())


def test_the_accessor_writes_to_a_session(session: frazil.Session) -> None:
    assert weather().frazil.to(session, group="a") is None
    assert_identical(open_dataset(session, engine="frazil", group="a"), weather())
    later = weather()
    with pytest.raises(IcechunkError, match="time"):  # the labels are stored already
        later.frazil.append(session, "time", group="a")
    tree = xr.DataTree.from_dict({"/": weather(), "/.b": weather()})
    tree.frazil.to(session, group="tree")
    assert_identical(open_datatree(session, engine="frazil", group="tree").load(), tree)

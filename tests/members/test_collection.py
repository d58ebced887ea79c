"""Collections: their table, concurrent changes, conditions, schemas, and what others write."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import frazil
from frazil.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidInputError,
    NodeNotFoundError,
    ReadOnlyError,
    RebaseFailedError,
    ValidationFailedError,
)
from frazil.members.table import RowChanges
from frazil.storage.checks import TRAFFIC


def scene(size: int = 2, lat: float = 50.0, lon: float = 8.0, time: Any = "2024-05-01") -> xr.Dataset:
    values = np.full((size, size), size, "f4")
    axes = {"lat": lat + np.arange(size) / 4, "lon": lon + np.arange(size) / 4}
    coordinates = {**axes, "time": np.datetime64(time, "us")}
    return xr.Dataset({"red": (("lat", "lon"), values, {"units": "1"})}, coordinates)


@pytest.fixture
def repo() -> frazil.Repository:
    return frazil.Repository.create(frazil.in_memory_storage())


@pytest.fixture
def scenes(repo: frazil.Repository) -> frazil.Collection:
    return frazil.Collection.create(repo, "/scenes")


def table(repo: frazil.Repository, branch: str = "main") -> xr.Dataset:
    store = repo.readonly_session(branch).store
    dataset: xr.Dataset = xr.open_zarr(store, group="scenes/members", consolidated=False).load()
    return dataset


def named(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def commits(repo: frazil.Repository) -> int:
    return len(list(repo.ancestry(branch="main")))


def test_a_member_is_one_commit_of_group_and_row(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    before = commits(repo)
    assert scenes.add(scene(3), name="a", cloud=4.5, platform="S2A") == repo.lookup_branch("main")
    assert commits(repo) == before + 1
    rows = table(repo)
    assert dict(rows.sizes) == {"member": 1}
    assert rows["member"].values.tolist() == ["a"]
    box = [float(rows[side][0]) for side in ("west", "south", "east", "north")]
    assert box == [7.875, 49.875, 8.625, 50.625]
    assert rows["time"].values[0] == rows["time_end"].values[0] == np.datetime64("2024-05-01")
    assert (rows["shape"].item(), rows["variables"].item()) == ("lat=3 lon=3", "red")
    assert (rows["cloud"].item(), rows["platform"].item()) == (4.5, "S2A")
    xr.testing.assert_equal(scenes.open("a").load(), scene(3))


def test_many_members_are_one_commit(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    before = commits(repo)
    scenes.add_many({"dataset": scene(n), "name": f"s{n}", "cloud": n} for n in (3, 1, 2))
    assert commits(repo) == before + 1
    assert list(scenes.where()) == ["s3", "s1", "s2"]
    assert len(scenes) == 3


def test_a_session_makes_no_commit(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    session = repo.writable_session("main")
    inside = frazil.Collection(session, "scenes")
    assert inside.add(scene(), name="a") is None
    inside.add(scene(), name="b")
    assert list(inside.where()) == ["a", "b"]
    assert list(scenes.where()) == []
    session.commit("two")
    assert list(scenes.where()) == ["a", "b"]


def test_new_columns_are_missing_in_older_rows(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add(scene(), name="a")
    scenes.add(scene(), name="b", cloud=1, platform="S2A", seen=np.datetime64("2024-01-02"), tags=["x", 1])
    scenes.add(scene(), name="c", cloud=None)
    rows = scenes.where()
    assert rows.columns["cloud"].tolist()[1] == 1.0
    assert np.isnan(rows.columns["cloud"][[0, 2]]).all()
    assert rows.columns["platform"].tolist() == ["", "S2A", ""]
    assert np.isnat(rows.columns["seen"]).tolist() == [True, False, True]
    assert rows.columns["tags"].tolist() == ["", '["x", 1]', ""]
    assert list(scenes.where("cloud IS NULL")) == ["a", "c"]
    assert list(scenes.where("cloud != 7")) == ["b"]  # a missing value meets only IS NULL
    assert list(scenes.where("platform IS NOT NULL AND seen >= '2024-01-01'")) == ["b"]
    assert rows.to_pandas().loc["b", "cloud"] == 1
    assert np.isnan(table(repo)["cloud"].values[0])


@pytest.mark.parametrize("name", ["2024/05/ü", "空 と 間", "a'b", "x" * 200])
def test_names_are_paths_and_unicode(scenes: frazil.Collection, name: str) -> None:
    scenes.add(scene(), name=name)
    assert list(scenes.where()) == [name]
    assert scenes.open(name)["red"].shape == (2, 2)
    assert scenes.check() == {}
    scenes.remove(name)
    assert list(scenes.where()) == []


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "..", "members/x/../y"])
def test_other_names_are_refused(scenes: frazil.Collection, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"name|path"):
        scenes.add(scene(), name=name)


def test_a_name_is_free_and_in_no_member(scenes: frazil.Collection) -> None:
    scenes.add(scene(), name="a/b")
    for name in ("a/b", "a", "members", "members/x"):
        with pytest.raises(AlreadyExistsError):
            scenes.add(scene(), name=name)
    with pytest.raises(AlreadyExistsError, match="in another member"):
        scenes.add(scene(), name="a/b/c")
    assert list(scenes.where()) == ["a/b"]


def test_removal_and_replacement(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add_many({"dataset": scene(n), "name": f"s{n}", "cloud": n} for n in range(1, 6))
    before = commits(repo)
    scenes.remove("s2", "s4")
    scenes.replace(scene(7), name="s3", platform="x")
    assert commits(repo) == before + 2
    rows = scenes.where()
    assert list(rows) == ["s1", "s3", "s5"]
    assert rows.columns["shape"].tolist() == ["lat=1 lon=1", "lat=7 lon=7", "lat=5 lon=5"]
    assert rows.columns["cloud"].tolist()[::2] == [1, 5]
    assert np.isnan(rows.columns["cloud"][1])
    scenes.add(scene(), name="s2", cloud=None)  # the removed rows are not seen again
    assert np.isnan(scenes.where("member = 's2'").columns["cloud"]).all()
    with pytest.raises(NodeNotFoundError):
        scenes.remove("zz")
    with pytest.raises(NodeNotFoundError):
        scenes.replace(scene(), name="zz")
    assert scenes.check() == {}


def test_two_writers_add_different_members(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add(scene(), name="first", cloud=0)
    sessions = [repo.writable_session("main") for _ in range(3)]
    collections = [frazil.Collection(session, "/scenes") for session in sessions]
    for number, collection in enumerate(collections):
        collection.add(scene(number + 1), name=f"s{number}", **named(f"only{number}", number))
    for session, collection in zip(sessions, collections, strict=True):
        session.commit("a member", rebase_with=collection.solver)
    rows = scenes.where()
    assert list(rows) == ["first", "s0", "s1", "s2"]
    assert [rows.columns[f"only{number}"][number + 1] for number in range(3)] == [0, 1, 2]
    assert np.isnan(rows.columns["only0"][[0, 2, 3]]).all()
    assert scenes.check() == {}


def test_a_late_add_is_made_again(
    repo: frazil.Repository, scenes: frazil.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, others = RowChanges.apply, ["one", "two"]

    def late(self: RowChanges, session: frazil.Session, path: str) -> None:
        apply(self, session, path)
        if others and session.branch == "main":
            scenes.add(scene(), name=others.pop(), cloud=2)

    monkeypatch.setattr(RowChanges, "apply", late)
    scenes.add(scene(), name="late", cloud=3, orbit=5)
    assert sorted(scenes.where()) == ["late", "one", "two"]
    assert list(scenes.where("orbit = 5 AND cloud = 3")) == ["late"]
    assert scenes.check() == {}


def test_two_writers_of_one_name(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    session = repo.writable_session("main")
    inside = frazil.Collection(session, "scenes")
    inside.add(scene(), name="a")
    scenes.add(scene(3), name="a")
    with pytest.raises(RebaseFailedError):
        session.commit("late", rebase_with=inside.solver)
    assert scenes.where().columns["shape"].tolist() == ["lat=3 lon=3"]


def test_without_the_solver_late_rows_are_a_conflict(
    repo: frazil.Repository, scenes: frazil.Collection
) -> None:
    session = repo.writable_session("main")
    frazil.Collection(session, "scenes").add(scene(), name="a")
    scenes.add(scene(), name="b")
    with pytest.raises(ConflictError):
        session.commit("late")
    with pytest.raises(RebaseFailedError):
        session.commit("late", rebase_with=frazil.ConflictDetector())


def test_branches_that_both_changed_members_merge(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add_many({"dataset": scene(n), "name": f"old{n}", "cloud": n} for n in range(1, 6))
    repo.create_branch("dev", "main")
    dev = frazil.Collection(repo, "scenes", branch="dev")
    for name in ("d1", "d2"):
        dev.add(scene(), name=name, cloud=10, of_dev="yes")
    dev.remove("old2")
    dev.replace(scene(9), name="old4", cloud=44)
    scenes.add(scene(), name="m1", cloud=20, of_main=1)
    scenes.remove("old1")
    scenes.replace(scene(8), name="old5", cloud=55)
    with pytest.raises(RebaseFailedError):
        repo.merge("dev")
    repo.merge("dev", solver=scenes.solver)
    rows = scenes.where()
    clouds = dict(zip(rows, rows.columns["cloud"].tolist(), strict=True))
    assert clouds == {"old3": 3, "old4": 44, "old5": 55, "m1": 20, "d1": 10, "d2": 10}
    assert list(scenes.where("of_dev = 'yes'")) == ["d1", "d2"]
    assert scenes.open("old4").sizes["lat"] == 9
    assert scenes.check() == {}
    assert list(dev.where("of_dev = 'yes'")) == ["d1", "d2"]


def test_versions_and_tags(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add(scene(), name="a")
    repo.create_tag("v1", "main")
    scenes.add(scene(), name="b")
    old = frazil.Collection(repo.readonly_session(tag="v1"), "scenes")
    assert (list(old.where()), list(scenes.where())) == (["a"], ["a", "b"])
    with pytest.raises(ReadOnlyError):
        old.add(scene(), name="c")


def test_an_error_in_the_middle_changes_nothing(
    repo: frazil.Repository, scenes: frazil.Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("no")

    tip = repo.lookup_branch("main")
    session = repo.writable_session("main")
    with monkeypatch.context() as patch:
        patch.setattr(RowChanges, "apply", fails)
        for source in (repo, session):
            with pytest.raises(OSError, match="no"):
                frazil.Collection(source, "scenes").add(scene(), name="a")
    assert repo.lookup_branch("main") == tip
    assert not session.has_uncommitted_changes
    scenes.add(scene(), name="a")


_KILLED = """
import os, sys, frazil, xarray as xr
from frazil.members.table import RowChanges
RowChanges.apply = lambda *_: os._exit(9)
repo = frazil.Repository.open(sys.argv[1])
frazil.Collection(repo, "scenes").add(xr.Dataset({"t": ("x", [1.0, 2.0])}), name="a")
"""


def test_a_killed_writer_leaves_nothing(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice")
    scenes = frazil.Collection.create(repo, "scenes")
    tip = repo.lookup_branch("main")
    assert subprocess.run([sys.executable, "-c", _KILLED, tmp_path / "ice"], check=False).returncode == 9
    assert repo.lookup_branch("main") == tip
    scenes.add(xr.Dataset({"t": ("x", [1.0, 2.0])}), name="a")
    assert list(scenes.where()) == ["a"]
    assert scenes.check() == {}


def test_empty_collections(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    assert (len(scenes), list(scenes.where("west > 3", bbox=(0, 0, 1, 1))), scenes.check()) == (0, [], {})
    assert table(repo).sizes["member"] == 0
    assert scenes.where().to_pandas().shape == (0, 9)
    with pytest.raises(AlreadyExistsError):
        frazil.Collection.create(repo, "scenes")
    with pytest.raises(NodeNotFoundError):
        frazil.Collection(repo, "other")
    with pytest.raises(InvalidInputError, match="must be a collection"):
        frazil.Collection(repo, "scenes/members")


def test_a_newer_layout_is_refused(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    with repo.transaction("main", message="a newer layout") as store:
        group = zarr.open_group(store, path="scenes")
        group.attrs["frazil:collection"] = {**group.attrs["frazil:collection"], "version": 2}  # type: ignore[dict-item]
    with pytest.raises(InvalidInputError, match="layout 1"):
        scenes.where()


# ---- conditions


def test_conditions_times_and_boxes(scenes: frazil.Collection) -> None:
    places = {"a": (50, 8, "2024-01-01"), "b": (50, 179.8, "2024-06-01"), "c": (-40, 359, "2025-01-01")}
    for name, (lat, lon, time) in places.items():
        scenes.add(scene(lat=lat, lon=lon, time=time), name=name, cloud=len(name))
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"bbox": (7, 49, 9, 51)}, ["a"]),
        ({"bbox": (170, 49, -170, 51)}, ["b"]),
        ({"bbox": (170, 49, 190, 51)}, ["b"]),
        ({"bbox": (-180, 49, -179.9, 51)}, ["b"]),
        ({"bbox": (358, -50, 362, 0)}, ["c"]),
        ({"bbox": (-2, -50, 2, 0)}, ["c"]),
        ({"bbox": (0, -90, 360, 90)}, ["a", "b", "c"]),
        ({"bbox": (20, -90, 30, 90)}, []),
        ({"time": "2024-06-01"}, ["b"]),
        ({"time": ("2024-02-01", None)}, ["b", "c"]),
        ({"time": (None, np.datetime64("2024-06-01"))}, ["a", "b"]),
        ({"condition": "cloud < 10 AND time >= '2024-06-01'", "bbox": (0, -90, 360, 0)}, ["c"]),
        ({"condition": "NOT member LIKE 'a%' AND west BETWEEN 0 AND 180"}, ["b"]),
    ]
    for arguments, names in cases:
        assert list(scenes.where(**arguments)) == names, arguments
    with pytest.raises(InvalidInputError, match="Did you mean"):
        scenes.where("clod < 3")
    with pytest.raises(InvalidInputError, match="bbox must be"):
        scenes.where(bbox=(0, 10, 0, -10))


def test_members_without_a_box_are_in_no_box(scenes: frazil.Collection) -> None:
    scenes.add(xr.Dataset({"t": ("x", [1.0])}), name="a")
    assert list(scenes.where(bbox=(-180, -90, 180, 90))) == []
    assert list(scenes.where("west IS NULL AND time IS NULL AND crs IS NULL")) == ["a"]
    assert list(scenes.where(time=("1900-01-01", "2100-01-01"))) == []


def test_rows_by_columns_and_few_requests(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice")
    scenes = frazil.Collection.create(repo, "scenes")
    count = 10_000  # three chunks of each column
    names = [f"scene-{number:05}" for number in range(count)]
    session = repo.writable_session("main")
    document = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}}).encode()
    for name in names:
        session.workspace.set_node(f"/scenes/{name}", document)
    west = np.linspace(-180, 179, count)
    box = {"west": west, "east": west + 1, "south": np.zeros(count), "north": np.ones(count)}
    texts: dict[str, Any] = {"crs": np.full(count, "EPSG:4326"), "member": names}
    frazil.Collection(session, "scenes").add_rows({**box, **texts, "cloud": np.arange(count) % 100})
    session.commit("by columns")
    scenes.add(scene(), name="one more", cloud=0)
    cold = frazil.Collection(frazil.Repository.open(tmp_path / "ice"), "scenes")
    cold = frazil.Collection(frazil.Repository.open(tmp_path / "ice").readonly_session("main"), "scenes")
    TRAFFIC.take_counts()
    few = frazil.Collection(frazil.Repository.open(tmp_path / "ice").readonly_session("main"), "scenes")
    TRAFFIC.take_counts()
    assert len(few.where("cloud < 2")) == count // 50 + 1
    assert TRAFFIC.take_counts().requests <= 4
    chosen = cold.where("cloud < 2", bbox=(0, 0, 10, 1))
    assert TRAFFIC.take_counts().requests <= 6
    assert set(chosen.columns["crs"].tolist()) == {"EPSG:4326"}
    expected = [name for at, name in enumerate(names) if at % 100 < 2 and -1 <= west[at] <= 10]
    assert list(chosen) == expected
    assert list(scenes.where("cloud < 2", bbox=(0, 0, 10, 1))) == expected
    rows = table(repo)
    assert rows["member"].values.tolist() == [*names, "one more"]
    scenes.remove(names[5000], "one more")
    assert len(scenes) == count - 1
    assert list(scenes.where("cloud < 2", bbox=(0, 0, 10, 1))) == [
        each for each in expected if each != names[5000]
    ]


def test_rows_for_groups_of_others(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    with repo.transaction("main", message="by others") as store:
        scene().to_zarr(store, group="scenes/x", consolidated=False)
    assert scenes.check() == {"x": ["expected a row of the table, found only the group"]}
    scenes.add_rows({"member": ["x"], "cloud": [3]})
    assert scenes.check() == {}
    assert list(scenes.where("cloud = 3")) == ["x"]
    with pytest.raises(AlreadyExistsError):
        scenes.add_rows({"member": ["x"]})
    with pytest.raises(NodeNotFoundError):
        scenes.add_rows({"member": ["y"]})


# ---- schemas, checks

SCHEMA = {
    "columns": {"cloud": "float64", "orbit": "int64", "is_day": "bool"},
    "required": ["cloud"],
    "variables": {"red": {"dims": ["lat", "lon"], "dtype": "float32", "attributes": {"units": "1"}}},
    "attributes": {"platform": None},
    "rules": [{"rule": "Range", "path": "red", "min": 0, "max": 5}],
}


@pytest.fixture
def strict(repo: frazil.Repository) -> frazil.Collection:
    return frazil.Collection.create(repo, "scenes", schema=SCHEMA)


@pytest.mark.parametrize(
    ("dataset", "text"),
    [
        (scene(), "attribute `platform`"),
        (scene().rename(red="blue"), "variable `red`: expected an array, found none"),
        (scene().transpose("lon", "lat"), r"expected dims \['lat', 'lon'\], found \['lon', 'lat'\]"),
        (scene().astype("f8"), "expected dtype float32, found float64"),
        (scene(6), "expected 0 to 5, found 36 outside"),
    ],
)
@pytest.mark.parametrize("in_session", [False, True])
def test_a_member_must_fit_the_schema(
    repo: frazil.Repository, strict: frazil.Collection, dataset: xr.Dataset, text: str, in_session: bool
) -> None:
    dataset = dataset if "platform" in text else dataset.assign_attrs(platform="S2A")
    session = repo.writable_session("main")
    tip = repo.lookup_branch("main")
    collection = frazil.Collection(session, "scenes") if in_session else strict
    with pytest.raises(ValidationFailedError, match=text):
        collection.add(dataset, name="a", cloud=1, orbit=1, is_day=True)
    assert repo.lookup_branch("main") == tip
    assert not session.has_uncommitted_changes


def test_rows_must_fit_the_schema(strict: frazil.Collection) -> None:
    good = scene().assign_attrs(platform="S2A")
    assert strict.schema["required"] == ["cloud"]
    strict.add(good, name="a", cloud=1, orbit=2**60 + 1, is_day=False)
    assert strict.where().columns["orbit"].tolist() == [2**60 + 1]
    assert list(strict.where("is_day = false AND orbit > 1")) == ["a"]
    with pytest.raises(InvalidInputError, match="a column must be one of"):
        strict.add(good, name="b", cloud=1, is_day=True, clod=3)
    for columns, text in (
        ({"is_day": True}, "`cloud`"),
        ({"cloud": None, "is_day": True}, "`cloud`"),
        ({"cloud": "no", "is_day": True}, "cloud"),
        ({"cloud": 1, "is_day": True, "orbit": 1.5}, "orbit"),
        ({"cloud": 1}, "is_day"),
    ):
        with pytest.raises(InvalidInputError, match=text):
            strict.add(good, name="b", **columns)
    assert list(strict.where()) == ["a"]


@pytest.mark.parametrize(
    "schema",
    [
        {"fields": {}},
        {"columns": {"a": "float"}},
        {"variables": {"a": {"dim": []}}},
        {"rules": [{"rule": "No"}]},
    ],
)
def test_unknown_schemas_are_refused(repo: frazil.Repository, schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        frazil.Collection.create(repo, "scenes", schema=schema)


def test_checks_find_what_others_wrote(repo: frazil.Repository, strict: frazil.Collection) -> None:
    good = scene().assign_attrs(platform="S2A")
    for name in ("a", "b", "c"):
        strict.add(good, name=name, cloud=1, is_day=True)
    with repo.transaction("main", message="plain zarr") as store:
        root = zarr.open_group(store, path="scenes")
        del root["a"]
        del root["b/red"]
        good.to_zarr(store, group="scenes/d", consolidated=False)
    assert strict.check() == {
        "a": ["expected a group, found only the row"],
        "b": [
            "the variable `red`: expected an array, found none",
            "Range /scenes/b/red: expected an array, found none",
        ],
        "d": ["expected a row of the table, found only the group"],
    }
    strict.remove("a", "b", "d")
    assert strict.check() == {}
    assert list(strict.where()) == ["c"]


def test_other_columns_are_read_at_their_first_use(tmp_path: Path) -> None:
    repo = frazil.Repository.create(tmp_path / "ice")
    scenes = frazil.Collection.create(repo, "scenes")
    scenes.add_many(
        {"dataset": scene(), "name": f"s{number}", "cloud": number}
        | {f"c{at}": number * at for at in range(9)}
        for number in range(4)
    )
    session = frazil.Repository.open(tmp_path / "ice").readonly_session("main")
    cold = frazil.Collection(session, "scenes")
    chosen = cold.where("cloud < 2")
    scenes.remove("s0")
    assert chosen.columns["c3"].tolist() == [0, 3]
    assert {*chosen.columns} >= {"cloud", "c3", "crs"}
    assert chosen.to_pandas()["c8"].tolist() == [0, 8]
    with pytest.raises(KeyError):
        chosen.columns["member"]
    assert pickle.loads(pickle.dumps(chosen)).columns["c2"].tolist() == [0, 2]


def test_rows_of_a_writable_session_stay_as_they_were(repo: frazil.Repository) -> None:
    frazil.Collection.create(repo, "scenes")
    session = repo.writable_session("main")
    scenes = frazil.Collection(session, "scenes")
    scenes.add(scene(), name="a", cloud=1, more=1)
    session.commit("a")
    session = repo.writable_session("main")
    scenes = frazil.Collection(session, "scenes")
    before = scenes.where("cloud < 2")
    scenes.replace(scene(), name="a", cloud=1, more=5)
    assert scenes.where("cloud < 2").columns["more"].tolist() == [5]
    assert before.columns["more"].tolist() == [1]


def test_a_column_of_another_length_is_refused(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add(scene(), name="a")
    with repo.transaction("main", message="plain zarr") as store:
        zarr.open_array(store, path="scenes/members/west").resize((5,))
    with pytest.raises(InvalidInputError, match="must have 1 rows"):
        scenes.where()


def test_the_log_has_the_chunks_of_removed_rows(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    scenes.add(scene(), name="a")
    scenes.remove("a")
    report = repo.upkeep.verify(level="checksum")
    assert report.ok, str(report)


def test_a_merge_of_equally_long_tables(repo: frazil.Repository, scenes: frazil.Collection) -> None:
    """Both sides change the length of each column in the same way, which is no conflict."""
    repo.create_branch("dev", "main")
    scenes.add(scene(), name="a")
    frazil.Collection(repo, "/scenes", branch="dev").add(scene(), name="b")
    repo.merge("dev", solver=scenes.solver)
    assert list(scenes.where()) == ["a", "b"]
    assert scenes.check() == {}

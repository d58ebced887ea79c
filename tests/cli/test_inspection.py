"""Every command that looks: its JSON, and its lines in a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.cli.main import main

pytestmark = pytest.mark.usefixtures("beside")


def document(run: Any, line: str) -> Any:
    return json.loads(run(f"{line} --json"))


def test_log_of_a_path(run: Any) -> None:
    assert [row["message"] for row in document(run, "log ice:era5/t")] == [
        "Correct the first step",
        "Create the arrays",
    ]
    assert len(document(run, "log ice:era5")) == 3
    assert document(run, "log ice:era5/other") == []
    assert len(document(run, "log ice --since 1d")) == 4
    assert document(run, "log ice --since 0s") == []
    assert run("diff ice@v1:era5/time v2 --exit-code") == ""


def test_patches_of_versions_without_changes(own: Path, run: Any) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(own / "ice")))
    repo.writable_session("main").commit("nothing", allow_empty=True)
    messages = [row["message"] for row in document(run, "log ice --patch")]
    assert (messages[0], messages[-1], len(messages)) == ("nothing", "Repository initialized", 5)


def test_a_pipe_has_whole_lines(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for line in ("ops ice", "log ice", "status ice", "tree ice", "ls ice:era5"):
        assert "…" not in (text := run(line))
        assert max(map(len, text.splitlines())) > 20


def test_cat(run: Any) -> None:
    assert run("cat ice:era5/time") == "0 1 2 3\n"
    table = [line.split() for line in run("cat ice@v1:era5/t :2,1:").splitlines()]
    assert table == [["time", "\\", "x", "1", "2"], ["0", "1.0", "2.0"], ["1", "4.0", "5.0"]]
    assert run("cat ice:era5/t -1") == "9.0 10.0 11.0\n"
    assert document(run, "cat ice:era5/t ...,0")["values"] == [9.0, 3.0, 6.0, 9.0]
    assert run("cat ice:era5/t 1,1") == "4.0\n"
    picture = run("cat ice@v1:era5/t --plot").splitlines()
    assert picture == [".::", "-=+", "+*#", "%%@", "0 to 11, 4 x 3 values"]
    for wrong in ("cat ice:era5/t 4", "cat ice:era5/t a", "cat ice:era5/t ::0", "cat ice", "cat ice:t 0,0,0"):
        run(wrong, status=1 if wrong.startswith("cat ice:t") else 2)


def test_control_characters_of_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They could clear the screen, write the clipboard, or show another line than the one that is stored."""
    monkeypatch.chdir(tmp_path)
    name = "a\x1b[2Jb\x07\x9bc\nd\u202ee\r"
    repo = frazil.Repository.create("x")
    for value in (1, 2):
        with repo.transaction("main", message=f"see {name}\n\n{name}", metadata={"author": name}) as store:
            array = zarr.create_array(
                store, name=name, data=np.array([value]), dimension_names=[name], overwrite=True
            )
            array.attrs["units"] = name
            zarr.create_array(store, name="texts", shape=(1,), dtype=str, overwrite=True)[:] = name
    lines = [
        *("tree x", "ls x", "du x", "show x", "log x", "log x --patch", "ops x", "status x", "refs x"),
        *("diff x@main~1 main", "diff x@main~1 main --values", "inspect x", "verify x", "stats x"),
        *("blame x:{}", "history x:{} 0", "cat x:{}", "cat x:texts", "info x:{}", "cat x:{}missing"),
        "set x:{} 0 3",
    ]
    for line in lines:
        for more in ([], ["--json"]):
            main([*(each.replace("{}", name) for each in line.split()), *more])
            shown = "".join(capsys.readouterr())
            assert shown, line
            assert "".join(shown.split("\n")).isprintable(), (line, shown)


def test_statistics(own: Path, run: Any) -> None:
    def coverage() -> list[tuple[str, int, int]]:
        arrays = document(run, "stats ice:era5")["arrays"]
        return [(each["path"], each["known"], each["chunks"]) for each in arrays]

    before = document(run, "cat ice:era5/t 1:,1: --stats")
    values = np.array(document(run, "cat ice:era5/t 1:,1:")["values"])
    assert [before[name] for name in ("count", "min", "max", "mean")] == [
        *(values.size, values.min(), values.max(), values.mean())
    ]
    assert all(known < chunks for path, known, chunks in coverage() if path == "/era5/t")
    run("stats ice:era5/t --build")
    assert {path: known == chunks for path, known, chunks in coverage()}["/era5/t"]
    after = document(run, "cat ice:era5/t --stats")
    assert (after["chunks"], after["chunks_read"]) == (4, 0)
    assert "chunks read" in run("cat ice:era5/t 0 --stats")
    run("cat ice:era5/t ::2 --stats", status=1)  # a step has no box


def test_the_values_that_meet_a_condition(own: Path, run: Any) -> None:
    repo = frazil.Repository.create("heat")
    with repo.transaction("main", message="values") as store:
        days: dict[str, Any] = {"units": "days since 2001-01-01"}
        zarr.create_array(store, name="time", data=np.arange(4), attributes=days, dimension_names=["time"])
        values = np.array([[280, 281, -1], [282, 300, 283], [299, 284, 285], [301, 286, 287]])
        zarr.create_array(
            store,
            name="t",
            data=values,
            chunks=(1, 3),
            attributes={"units": "K", "_FillValue": -1},
            dimension_names=["time", "x"],
        )
        zarr.create_array(store, name="one", data=np.array(5.0))
    assert run("cat heat:t --where '>= 300 or is null'").splitlines() == [
        "index        time  t [K]",
        "0,2    2001-01-01    NaN",
        "1,1    2001-01-02    300",
        "3,0    2001-01-04    301",
    ]
    found = document(run, "cat heat:t 1: --where 'between 299 and 300'")
    assert (found["index"], found["values"]) == ([[1, 1], [2, 0]], [300, 299])
    assert found["coordinates"] == {"time": ["2001-01-02T00:00:00", "2001-01-03T00:00:00"]}
    assert document(run, "cat heat:time --where \">= '2001-01-03'\"")["index"] == [[2], [3]]
    assert run("cat heat:t --where '> 400'") == "no values meet the condition\n"
    assert document(run, "cat heat:one --where '= 5'")["values"] == [5.0]
    assert document(run, "cat heat:one --where '> 5'")["values"] == []
    assert "at character 3, got 'x'" in run("cat heat:t --where '> x'", 1)
    assert "leave out --raw" in run("cat heat:t --raw --where '> 3'", 2)


def test_statistics_of_times_are_times(own: Path, run: Any) -> None:
    repo = frazil.Repository.create("times")
    days: dict[str, Any] = {"units": "days since 2001-01-01", "calendar": "noleap"}
    with repo.transaction("main", message="times") as store:
        zarr.create_array(store, name="cf", data=np.array([58.0, 59.0, 61.0]), attributes=days)
        zarr.create_array(store, name="date", data=np.array(["2001-01-01", "NaT", "2001-01-04"], "M8[s]"))
        zarr.create_array(store, name="span", data=np.array([1000, 3000], "m8[ms]"))
    for name, texts in {
        "cf": ["2001-02-28T00:00:00", "2001-03-03T00:00:00", "2001-03-01T08:00:00", "1.24721912892 days"],
        "date": ["2001-01-01T00:00:00", "2001-01-04T00:00:00", "2001-01-02T12:00:00", "129600 s"],
        "span": ["1 s", "3 s", "2 s", "1000 ms"],
    }.items():
        rows = dict(line.split(maxsplit=1) for line in run(f"cat times:{name} --stats").splitlines())
        assert [rows[each] for each in ("min", "max", "mean", "std")] == texts
    assert document(run, "cat times:cf --stats")["max"] == 61
    assert "datetime64[s] (3)" in run("tree times")


def test_a_number_that_is_no_time_does_not_hide_the_other_times(own: Path, run: Any) -> None:
    repo = frazil.Repository.create("times")
    with repo.transaction("main", message="times") as store:
        for name, units in (("far", "days since 1970-01-01"), ("wrong", "moons since 1970-01-01")):
            attributes: dict[str, Any] = {"units": units, "calendar": "noleap"}
            zarr.create_array(store, name=name, data=np.array([0.0, np.nan, 2e8]), attributes=attributes)
    far = "200000000.0 days since 1970-01-01"
    assert document(run, "cat times:far")["values"] == ["1970-01-01T00:00:00", None, far]
    assert far in run("cat times:far 2")
    assert "--raw" in run("cat times:wrong", 1)


def test_shards_and_hidden_arrays(own: Path, run: Any) -> None:
    repo = frazil.Repository.create("shards")
    with repo.transaction("main", message="shards") as store:
        zarr.create_array(store, name="a", shape=(8,), chunks=(2,), shards=(4,), dtype="i1")
        zarr.create_array(store, name=".hidden/b", shape=(8,), dtype="i1")
    assert [document(run, "info shards:a")[name] for name in ("chunks", "shards")] == [[2], [4]]
    assert ".hidden" not in run("stats shards")
    assert ".hidden" in run("stats shards --all")


def test_inspect(run: Any) -> None:
    assert document(run, "inspect ice@v1")["commit_message"] == "Create the arrays"
    manifest = json.loads(run("inspect ice --manifests"))[0]["id"]
    assert document(run, f"inspect ice --manifest {manifest}")["id"] == manifest
    assert len(document(run, "inspect ice@v1 --log")["new_arrays"]) == 2
    assert "dev" in document(run, "inspect ice --repo")["branches"]


def test_a_repository_of_version_1(tmp_path: Path, run: Any) -> None:

    frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path / "old")), spec_version=1)
    for name in ("log", "info", "status", "refs", "ls", "tree", "stats", "du"):
        assert run(f"{name} {tmp_path / 'old'}") is not None
    assert run(f"ops {tmp_path / 'old'}", status=1)

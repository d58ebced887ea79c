"""``frazil ingest``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.ingest import netcdf_files as nc
from tests.pipeline.ingest.netcdf_files import replace_seam

import frazil
import frazil.pipeline
from frazil.cli.main import main
from frazil.errors import InvalidInputError
from frazil.pipeline import ConcatDim, FilePattern, Version
from frazil.pipeline.ingest.inspection import inspect_all
from frazil.pipeline.ingest.operation import plan_ingest
from frazil.pipeline.ingest.options import expand
from frazil.storage.base import ALWAYS


def version(place: Path, branch: str = "main") -> Version:
    storage = frazil.local_filesystem_storage(str(place))
    return Version.of(frazil.Repository.open(storage), branch=branch)


@pytest.mark.deep
def test_from_files_to_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = nc.daily_files(tmp_path / "days", 5)
    files, place = str(tmp_path / "days" / "day_000[0-2].nc"), tmp_path / "ice"
    assert main(["ingest", files, str(place), "--inspect", "--engine", "inline"]) == 0
    assert "3 files" in (output := capsys.readouterr().out)
    assert "2000-01-01 00:00:00 to 2000-01-01 11:00:00" in output
    assert not place.exists()
    request = ["--engine", "inline", "--chunks", "time=5", "--branch", "new", "--variables", "tas"]
    assert main(["ingest", files, str(place), *request]) == 0
    captured = capsys.readouterr()
    assert "3 files" in captured.out
    assert "chunks: `/tas`: (5, 3, 4), 240 B, " in captured.out
    assert captured.err == ""  # progress is for terminals
    after = version(place, "new")
    nc.assert_same_dataset(nc.stored_dataset(after), nc.files_dataset(paths[:3]))
    assert after.session().store.session.config is not None
    assert main(["ingest", files, str(place), *request]) == 0
    assert "nothing to do: 3 of 3 files" in capsys.readouterr().out
    Path(paths[4]).write_bytes(b"\x89HDF\r\n\x1a\n")
    everything = [str(tmp_path / "days" / "*.nc"), str(place), *request, "--mode", "append"]
    assert main(["ingest", *everything]) == 1
    error = capsys.readouterr().err
    assert "bad-source" in error
    assert paths[4] in error
    assert main(["ingest", *everything, "--on-problem", "quarantine"]) == 4
    output = capsys.readouterr().out
    assert "1 file, 3 ingested before, 1 left out" in output
    assert f"left out: {paths[4]}: damaged" in output
    nc.assert_same_dataset(nc.stored_dataset(version(place, "new")), nc.files_dataset(paths[:4]))
    assert main(["ingest", *everything, "--inspect"]) == 1
    assert f"    {paths[4]}: " in capsys.readouterr().out


def test_new_files_without_a_mode_are_refused_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inspections: list[int] = []

    def counted(files: Any, *arguments: Any, **options: Any) -> Any:
        inspections.append(len(files.urls))
        return inspect_all(files, *arguments, **options)

    nc.replace_seam(monkeypatch, "frazil.pipeline.ingest.operation.inspect_all", counted)
    request = ["ingest", str(tmp_path / "days" / "*.nc"), str(tmp_path / "ice"), "--engine", "inline"]
    nc.daily_files(tmp_path / "days", 2)
    assert main(request) == 0
    assert inspections == [2]  # once for a new repository
    nc.daily_files(tmp_path / "days", 3)
    assert main(request) == 1
    assert "--mode append" in capsys.readouterr().err
    assert main([*request, "--mode", "append", "--on-change", "ignore"]) == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("folder", ["new", "empty", "deep/er/new"])
def test_a_refused_ingest_leaves_no_new_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    paths = nc.daily_files(tmp_path / "days", 3)
    place = tmp_path / folder
    (tmp_path / "empty").mkdir()
    Path(paths[2]).write_bytes(b"\x89HDF\r\n\x1a\n")
    request = ["ingest", str(tmp_path / "days" / "*.nc"), str(place), "--engine", "inline", "--branch", "b"]
    assert main(request) == 1
    error = capsys.readouterr().err
    assert "[bad-source]" in error
    assert "  --on-problem skip leaves these files out" in error
    assert place.exists() == (folder == "empty")
    assert not list(place.rglob("*"))
    assert main([*request, "--on-problem", "skip", "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["left_out"] == [paths[2]]
    # A second run has nothing to write, and the file is still left out.
    assert main([*request, "--on-problem", "skip", "--mode", "append"]) == 4
    assert f"left out: {paths[2]}: damaged" in capsys.readouterr().out
    before = sorted(place.rglob("*"))
    assert main([*request, "--mode", "append"]) == 1
    assert sorted(place.rglob("*")) == before


@pytest.mark.deep
def test_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = nc.daily_files(tmp_path / "days", 2)
    request = [
        "ingest",
        str(tmp_path / "days" / "*.nc"),
        str(tmp_path / "ice"),
        "--virtual",
        "--engine",
        "inline",
    ]
    assert main(request) == 1
    assert "no-container" in capsys.readouterr().err
    assert not [each for each in (tmp_path / "ice").rglob("*") if each.is_file()]
    assert main([*request, "--container", f"file://{tmp_path / 'days'}"]) == 0
    locations = version(tmp_path / "ice").session().all_virtual_chunk_locations()
    assert set(locations) == {Path(path).as_uri() for path in paths}


@pytest.mark.parametrize(
    "wrong",
    [
        ["--chunks", "time=x"],
        ["--container", "nowhere"],
        ["--mode", "other"],
        ["--reader-option", "squeeze"],
        ["--filter-by-keys", "=surface"],
    ],
)
def test_wrong_arguments(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ingest", "a.nc", "ice", *wrong]) == 2
    assert wrong[0] in capsys.readouterr().err


def test_containers_of_the_repository_are_not_authorised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only those of the command line: the repository's own list is not the user's word."""
    theirs = "file:///home/"
    config = frazil.RepositoryConfig()
    config.set_virtual_chunk_container(
        frazil.VirtualChunkContainer(theirs, frazil.local_filesystem_store("/home"))
    )
    frazil.Repository.create(frazil.local_filesystem_storage(tmp_path / "ice"), config)
    paths = nc.daily_files(tmp_path / "days", 1)
    opened: list[set[str]] = []

    def seen_by(session: frazil.Session, *arguments: Any) -> Any:
        opened.append(set(session.workspace.context.virtual.credentials))
        return plan_ingest(session, *arguments)

    nc.replace_seam(monkeypatch, "frazil.pipeline.ingest.operation.plan_ingest", seen_by)
    mine = f"file://{tmp_path / 'days'}/"
    assert (
        main(
            ["ingest", *paths, str(tmp_path / "ice"), "--virtual", "--engine", "inline", "--container", mine]
        )
        == 0
    )
    assert opened == [{mine}]


def test_no_files_make_no_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "ice"
    assert main(["ingest", str(tmp_path / "*.nc"), str(place)]) == 1
    assert "must match at least one file" in capsys.readouterr().err
    assert not place.exists()


@pytest.mark.parametrize(
    ("limit", "most", "given", "expected"),
    [
        pytest.param("FILES", 64, [], "inline", id="small"),
        pytest.param("FILES", 1, [], "processes", id="many"),
        pytest.param("BYTES", 100, [], "processes", id="large"),
        pytest.param("FILES", 64, ["--engine", "threads"], "threads", id="threads"),
        pytest.param("FILES", 1, ["--engine", "inline"], "inline", id="inline"),
    ],
)
def test_the_engine(
    limit: str, most: int, given: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = nc.daily_files(tmp_path / "days", 2)
    engines: list[Any] = []

    def inspected(source: Any, *, engine: Any, **options: Any) -> Any:
        engines.append(engine)
        raise frazil.InvalidInputError("enough")

    monkeypatch.setattr(frazil.pipeline, "inspect_files", inspected)
    nc.replace_seam(monkeypatch, f"frazil.pipeline.ingest.options.FEW_{limit}", most)
    assert main(["ingest", *paths, str(tmp_path / "ice"), "--inspect", *given]) == 1
    assert engines == [expected]


@pytest.mark.deep
def test_options_of_the_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gribs = pytest.importorskip("tests.readers.gribs")
    path = tmp_path / "a.grib2"
    path.write_bytes(gribs.field("2t", 2) + gribs.field("10u", 10) + gribs.field("sp", None))
    place = tmp_path / "ice"
    options = [
        "--filter-by-keys",
        "typeOfLevel=heightAboveGround,level=10",
        "--reader-option",
        "squeeze=false",
    ]
    assert main(["ingest", str(path), str(place), "--concat-dim", "time", *options]) == 0
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(place)))
    dataset = gribs.xr.open_zarr(Version.of(repo).session().store, consolidated=False)
    assert list(dataset.data_vars) == ["u10"]
    assert dataset.u10.dims[:3] == ("time", "step", "heightAboveGround")
    capsys.readouterr()
    assert main(["ingest", str(path), str(tmp_path / "x"), "--filter-by-keys", "typeOfLevel=hybrid"]) == 1
    assert "typeOfLevel" in capsys.readouterr().err


KEYS = (
    "era/2000/t_1.nc",
    "era/2000/t_2.nc",
    "era/2001/t_1.nc",
    "era/2001/u_1.nc",
    "era/t_1.nc",
    "x+y/t_1.nc",
)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("era/*/t_?.nc", KEYS[:3]),
        ("era/**/t_1.nc", (KEYS[0], KEYS[2], KEYS[4])),
        ("era/20*/*", KEYS[:4]),
        ("x+y/*.nc", KEYS[5:]),
        ("**.nc", KEYS),
    ],
)
def test_globs_of_buckets(glob: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    storage = frazil.in_memory_storage()
    for key in KEYS:
        storage.put(key, b"x", ALWAYS)
    replace_seam(
        monkeypatch,
        "frazil.pipeline.ingest.options.object_storage",
        lambda url, options: (storage, url[len("s3://b/") :]),
    )
    assert expand(f"s3://b/{glob}").urls == tuple(f"s3://b/{key}" for key in expected)


def test_files_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.nc", "a.nc", "in/c.nc", "[1].nc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    paths = [str(tmp_path / name) for name in ("a.nc", "b.nc", "in/c.nc")]
    assert expand("?.nc").urls == tuple(paths[:2])
    assert expand([f"file://{tmp_path}/**/c.nc", Path("a.nc")]).urls == (paths[2], paths[0])
    assert expand("[1].nc").urls == (str(tmp_path / "[1].nc"),)
    nothing: list[str] = []
    for wrong in ("*.grib", nothing):
        with pytest.raises(InvalidInputError, match="at least one file"):
            expand(wrong)
    with pytest.raises(InvalidInputError, match="twice"):
        expand(["a.nc", "?.nc"])
    with pytest.raises(InvalidInputError, match=r"UTF-8, got .*/caf\\udce9\.nc'"):
        expand([os.fsdecode(b"caf\xe9.nc")])
    with pytest.raises(InvalidInputError, match="at most one ConcatDim"):
        FilePattern(str, ConcatDim("x", [1]), ConcatDim("y", [1]))

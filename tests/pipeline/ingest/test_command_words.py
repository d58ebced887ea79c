"""What ``frazil ingest`` says, and which engine it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.ingest.netcdf_files import daily_files, replace_seam

import frazil
import frazil.pipeline
from frazil.cli.main import main
from frazil.pipeline.ingest.options import is_small
from frazil.spark import Version


def test_no_files_make_no_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "ice"
    assert main(["ingest", str(tmp_path / "*.nc"), str(place)]) == 1
    assert "must match at least one file" in capsys.readouterr().err
    assert not place.exists()


@pytest.mark.parametrize(
    ("few", "given", "expected"),
    [
        pytest.param(64, [], "inline", id="small"),
        pytest.param(1, [], "local", id="large"),
        pytest.param(64, ["--engine", "local"], "local", id="local"),
        pytest.param(1, ["--engine", "inline"], "inline", id="inline"),
    ],
)
def test_the_engine(
    few: int, given: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = daily_files(tmp_path / "days", 2)
    engines: list[Any] = []

    def inspected(source: Any, *, engine: Any, **options: Any) -> Any:
        engines.append(engine)
        raise frazil.InvalidInputError("enough")

    monkeypatch.setattr(frazil.pipeline, "inspect_files", inspected)
    replace_seam(monkeypatch, "frazil.pipeline.ingest.options.FEW_FILES", few)
    assert main(["ingest", *paths, str(tmp_path / "ice"), "--inspect", *given]) == 1
    assert engines == [expected]


def test_what_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.nc").write_bytes(bytes(10))
    group = tmp_path / "b.zarr" / "c"
    group.mkdir(parents=True)
    (group / "0").write_bytes(bytes(10))
    assert is_small([str(tmp_path / "a.nc"), str(tmp_path / "b.zarr")])
    assert not is_small([str(tmp_path / "a.nc"), "https://host/b.nc"])
    replace_seam(monkeypatch, "frazil.pipeline.ingest.options.FEW_BYTES", 19)
    assert not is_small([str(tmp_path / "a.nc"), str(tmp_path / "b.zarr")])


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

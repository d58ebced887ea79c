"""A year of two providers and a model that change what they deliver: each morning is one run."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd  # type: ignore[import-untyped]  # it ships no types
import pytest
import xarray as xr
from tests.jobs.killed import dies_after, dies_before
from tests.pipeline.definition.feed import feed
from tests.support.fault_proxy import Fault, FaultProxy, Rule
from tests.support.losses import Losing
from tests.support.servers import ministack

import frazil
from frazil.errors import TaskFailedError
from frazil.jobs.engine import Engine
from frazil.jobs.staging import Staging
from frazil.pipeline import Pipeline, PipelineRun, derived
from frazil.pipeline.derivation.refresh import RefreshChain
from frazil.pipeline.ingest import tasks
from frazil.pipeline.publishing import operation as publishing
from frazil.storage.profiles import storage_of_location

DEFINITION: Final = """
name = "year"
repository = "PLACE"
engine = "ENGINE"

[[ingest]]
files = ["a_*.nc*", "b_*.nc", "m_*.nc"]
group = "/obs"
concat_dim = "time"
rename = {T = "obs", site = "station"}
convert = {obs = "K"}
dates = {time = "b_%Y%m%d.nc"}
grow = ["station"]
allow = ["variables", "dtype", "hole"]
groups = {"/model" = {calendar = "noleap"}}
chunks = {time = 4, station = 8}
on_problem = "quarantine"

[[derived]]
operation = "mean"
sources = ["/obs/obs"]
dims = "time"
to = "/mean"

[[rules]]
rule = "Units"
path = "/obs/obs"
units = "K"
"""
pytest.importorskip("cf_units", reason="the extra `units` is not installed")

MONTHS: Final = range(1, 13)
#: Unit -> the scale and the offset of the same values in kelvin.
UNITS: Final = {"K": (1.0, 0.0), "degC": (1.0, 273.15), "degF": (5 / 9, 459.67 * 5 / 9)}

type Values = dict[tuple[pd.Timestamp, str], float]


class Year:
    """What has arrived: the files, and the values that the archive must have."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place = folder, place
        self.random = np.random.default_rng(7)
        self.obs: Values = {}
        self.rh: Values = {}
        self.model: list[xr.Dataset] = []

    def values(self, times: list[pd.Timestamp], names: list[str], units: str, dtype: str) -> np.ndarray:
        """Return new values of stations in a unit, and remember them in kelvin."""
        scale, offset = UNITS[units]
        kelvin = 250 + 50 * self.random.random((len(times), len(names)))
        kelvin[0, 0] = np.nan
        for at, name in np.ndindex(kelvin.shape):
            self.obs[times[at], names[name]] = float(kelvin[at, name])
        return ((kelvin - offset) / scale).astype(dtype)

    def deliver_a(self, month: int) -> None:
        """Write the file of a month: its units, dtype, names and variables change during the year."""
        times = [pd.Timestamp(2026, month, each) for each in (1, 15)]
        pool = [f"a{number}" for number in range(6 + 2 * month)]
        names = self.random.permutation(pool)[: 4 + month].tolist()
        units, dtype = "degC" if month in (4, 5) else "K", "f4" if month < 7 else "f8"
        data = {"obs": (("time", "station"), self.values(times, names, units, dtype), {"units": units})}
        if month >= 8 and month != 10:
            humidity = self.random.random((2, len(names))).astype("f4")
            data["rh"] = (("time", "station"), humidity, {"units": "1"})
            self.rh |= {(times[i], names[j]): float(humidity[i, j]) for i, j in np.ndindex(humidity.shape)}
        dataset = xr.Dataset(data, {"time": times, "station": np.array(names, object)})
        dataset = dataset.assign_coords(height=("station", [float(name[1:]) for name in names]))
        path = self.folder / f"a_{month:02}.nc"
        encoding = {"time": {"units": "days since 2026-01-01", "dtype": "i8"}}
        dataset = dataset.rename(obs="T") if month == 6 else dataset
        dataset.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"], encoding=encoding)
        if month == 9:
            path.with_suffix(".nc.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()

    def deliver_b(self, month: int) -> None:
        """Write one step of other stations, in other units, whose time is in the name of the file only."""
        time, names = pd.Timestamp(2026, month, 1), [f"b{number}" for number in range(month, month + 3)]
        values = self.values([time], names, "degF", "f8")[0]
        dataset = xr.Dataset({"obs": ("site", values, {"units": "degF"})}, {"site": np.array(names, object)})
        dataset = dataset.assign_coords(height=("site", [100.0 + float(name[1:]) for name in names]))
        dataset.to_netcdf(self.folder / f"b_{time:%Y%m%d}.nc", engine="h5netcdf")

    def deliver_model(self, month: int) -> None:
        """Write a month of another calendar and another grid."""
        values = self.random.random((2, 3)).astype("f4")
        time = (
            "time",
            [30 * month, 30 * month + 15],
            {"units": "days since 2026-01-01", "calendar": "noleap"},
        )
        self.model.append(xr.Dataset({"tas": (("time", "x"), values)}, {"time": time, "x": [1.0, 2.0, 3.0]}))
        path = self.folder / f"m_{month:02}.nc"
        self.model[-1].to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])

    def check(self) -> None:
        """The archive has each value, and nothing else; the derived array is that of its version."""
        repo = frazil.Repository.open(storage_of_location(self.place))
        store = repo.readonly_session("main").store
        groups = ["obs", "mean/obs", *(["model"] if self.model else [])]
        found, mean, *model = (
            xr.open_zarr(store, group=each, consolidated=False).compute() for each in groups
        )
        stations = [str(each) for each in found.station.values]
        assert len({*stations}) == len(stations)
        for name, expected in (("obs", self.obs), ("rh", self.rh)):
            if expected:
                table = pd.Series(expected).unstack()
                table = table.reindex(pd.DatetimeIndex(found.time.values), columns=stations)
                np.testing.assert_allclose(found[name], table.to_numpy(float), rtol=1e-6)
        heights = [float(name[1:]) + (100 if name[0] == "b" else 0) for name in stations]
        np.testing.assert_array_equal(found.height, heights)
        for each in model:
            np.testing.assert_array_equal(each.tas, np.concatenate([one.tas for one in self.model]))
        np.testing.assert_allclose(mean.obs, found.obs.astype("f8").mean("time"), rtol=1e-6)
        assert all(each.state == "current" for each in derived(repo).arrays)


def run_year(
    folder: Path,
    engine: str,
    months: range = MONTHS,
    *,
    place: str | None = None,
    fails: Callable[[Pipeline], None] | None = None,
    runs: Callable[[Pipeline], PipelineRun] = Pipeline.run,
) -> None:
    """Deliver the months, run the definition each morning, and check the archive.

    Each third morning has a run that ``fails`` first.
    """
    place = place or str(folder / "ice")
    text = DEFINITION.replace("ENGINE", engine).replace("PLACE", place)
    year, pipeline = Year(folder, place), feed(folder, text)
    for month in months:
        year.deliver_a(month)
        if month > 1:
            year.deliver_b(month - 1)  # a month late
        if month > 2:
            year.deliver_model(month)
        if fails is not None and month % 3 == 0:
            fails(pipeline)
        run = runs(pipeline)
        assert run.outcome == "published", run.left_out
        year.check()
    assert pipeline.run().outcome == "unchanged"


def break_tasks(pipeline: Pipeline) -> None:
    """Run the pipeline while all tasks that copy values fail."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "copy_values", broken)
        with pytest.raises(TaskFailedError):
            pipeline.run()


#: Where the process of a run dies, one place for each third month.
DEATHS: Final = {
    "tasks of the ingest staged": dies_after(Staging, "stage_round"),
    "tasks of the ingest merged": dies_after(frazil.Session, "merge"),
    "mean refreshed, not committed": dies_before(RefreshChain, "finish"),
    "not yet published": dies_before(publishing, "publish"),
}


def main(file: str, death: str) -> None:
    """Run a pipeline until the process dies."""
    DEATHS[death]()
    Pipeline.load(file).run()


PROGRAM: Final = "import sys; from tests.pipeline.definition.test_year import main; main(*sys.argv[1:])"


def killed_drivers() -> Callable[[Pipeline], None]:
    """Return a function that runs a pipeline in a process that dies, each time at another place."""
    deaths = iter(DEATHS)

    def kill(pipeline: Pipeline) -> None:
        command = [sys.executable, "-c", PROGRAM, str(pipeline.folder / "feed.toml"), next(deaths)]
        environment = {**os.environ, "PYTHONPATH": ":".join(map(str, sys.path))}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert run.returncode == -signal.SIGKILL, (command[-1], run.stderr)

    return kill


def test_a_year_with_failed_runs(tmp_path: Path) -> None:
    run_year(tmp_path, "inline", fails=break_tasks)


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["processes", pytest.param("threads", marks=pytest.mark.weekly)])
def test_a_year_with_killed_drivers(tmp_path: Path, engine: str) -> None:
    run_year(tmp_path, engine, fails=killed_drivers())


@pytest.mark.deep
@pytest.mark.parametrize(
    "every_engine", ["processes", pytest.param("spark", marks=pytest.mark.spark)], indirect=True
)
def test_a_year_with_killed_workers(tmp_path: Path, every_engine: Engine) -> None:
    """Each morning, the worker of the second task is killed before it can return anything."""
    mornings: list[Path] = []

    def runs(pipeline: Pipeline) -> PipelineRun:
        mornings.append(tmp_path / f"marks {len(mornings)}")
        mornings[-1].mkdir()
        return replace(pipeline, engine=Losing(every_engine, mornings[-1], "worker")).run()

    run_year(tmp_path, "inline", range(1, 7), runs=runs)
    assert all((each / "second").exists() for each in mornings)


@pytest.mark.deep
@pytest.mark.parametrize("engine", ["processes", "threads", "spark"])
def test_a_year_in_workers(tmp_path: Path, engine: str) -> None:
    if engine == "spark":
        pytest.importorskip("pyspark")
    run_year(tmp_path, engine, range(1, 10))


#: What happens to the first requests of each morning.
FAULTS: Final = (
    (Fault.ERROR, "^PUT .*/chunks/", 2),
    (Fault.RESET, "^GET ", 2),
    (Fault.TRUNCATE, "^GET .*/chunks/", 1),
    (Fault.LOSE_ANSWER, "^PUT .*/repo", 1),
    (Fault.ERROR_AFTER, "^PUT .*/snapshots/", 1),
)


@pytest.mark.deep
def test_a_year_on_a_spoiled_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ministack", reason="ministack is not installed")
    with ministack() as server, FaultProxy(server.port) as proxy:
        server.make_bucket("year")
        variables = {"REGION": "us-east-1", "ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        variables |= {"ACCESS_KEY_ID": "testkey", "SECRET_ACCESS_KEY": "testsecret"}
        for name, value in variables.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        rules: list[Rule] = []

        def runs(pipeline: Pipeline) -> PipelineRun:
            rules.extend(proxy.add(fault, pattern, times=times) for fault, pattern, times in FAULTS)
            return pipeline.run()

        run_year(tmp_path, "threads", range(1, 5), place="s3://year/ice", runs=runs)
        assert sum(rule.hits for rule in rules) >= 4 * len(FAULTS) - 4

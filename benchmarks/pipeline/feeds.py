"""A whole pipeline: ingest, rechunk, climatology and publication. On the next day, more files arrive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import xarray as xr
import zarr
from distributed import Client, LocalCluster
from icechunk.xarray import to_icechunk
from measure import Measured, scratch
from processes import usage_of_all
from shared_inputs import shared_input

from frazil.pipeline import Pipeline, PipelineDerived, PipelineIngest, Processes
from pipeline import alternatives
from pipeline.engines import WORKERS
from pipeline.inputs import archive
from pipeline.names import DASK_PROCESSES, PROCESSES, XARRAY

#: Hours between two steps: 200 files of two steps are seven months.
HOURS: Final = 12
#: The paths of the arrays of Frazil. The alternatives have the same.
WEATHER, SERIES, MONTHS = "weather", "series/weather", "months/weather"
DAYS: Final = ("the first day", "the second day")


class Feed(Protocol):
    """One way to bring a repository up to date with the files of a folder."""

    def __init__(self, repository: str, folder: str, series: dict[str, int]) -> None: ...

    def run(self, new: list[str]) -> None:
        """Do what is left to do. ``new`` are the files that have arrived."""


class Declared:
    """Frazil: the same call each day."""

    def __init__(self, repository: str, folder: str, series: dict[str, int]) -> None:
        self.pipeline = Pipeline(
            name="feed",
            repository=repository,
            ingest=[PipelineIngest(f"{folder}/*.nc", f"/{WEATHER}", {"concat_dim": "time"})],
            derived=[
                PipelineDerived("rechunk", [f"/{WEATHER}/tas"], "/series", {"chunks": series}),
                PipelineDerived("climatology", [f"/{WEATHER}/tas"], "/months", {"period": "month"}),
            ],
            engine=Processes(WORKERS),
        )

    def run(self, new: list[str]) -> None:
        """Run the pipeline, which finds the files itself."""
        run = self.pipeline.run()
        assert (run.outcome, run.files) == ("published", len(new))


class Scripted:
    """xarray and icechunk: files are appended to the archive, and the rest is computed again."""

    def __init__(self, repository: str, folder: str, series: dict[str, int], *, in_memory: bool) -> None:
        self.repo = alternatives.create(repository)
        self.repo.create_branch("audit", self.repo.lookup_branch("main"))
        self.series, self.in_memory = series, in_memory

    def run(self, new: list[str]) -> None:
        """Commit the archive, the series and the months to a branch, and publish them."""
        session = self.repo.writable_session("audit")
        append: Any = {"append_dim": "time"} if list(zarr.open_group(session.store, mode="a")) else {}
        with _loaded(new) if self.in_memory else alternatives.opened_files(new) as data:
            to_icechunk(data, session, group=WEATHER, **append)
        session.commit("files")
        store = self.repo.readonly_session("audit").store
        chunks: Any = None if self.in_memory else {}
        data = xr.open_zarr(store, group=WEATHER, consolidated=False, chunks=chunks)
        data = data.load() if self.in_memory else data
        data.tas.encoding = {}
        sizes = tuple(min(self.series[str(name)], size) for name, size in data.tas.sizes.items())
        in_series = data if self.in_memory else data.chunk(self.series)
        self._replace(SERIES, in_series, {"tas": {"chunks": sizes}})
        self._replace(MONTHS, data.groupby("time.month").mean("time"), {})
        self.repo.reset_branch("main", self.repo.lookup_branch("audit"))

    def _replace(self, group: str, data: xr.Dataset, encoding: dict[str, Any]) -> None:
        session = self.repo.writable_session("audit")
        to_icechunk(data, session, group=group, mode="w", encoding=encoding)
        session.commit(group)


@contextmanager
def _loaded(files: list[str]) -> Iterator[xr.Dataset]:
    """Read files one by one into memory."""
    parts = [xr.load_dataset(name, engine="h5netcdf") for name in files]
    data = xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")
    for variable in data.variables.values():
        variable.encoding = {}
    yield data


FEEDS: Final[dict[str, Any]] = {
    PROCESSES: Declared,
    DASK_PROCESSES: partial(Scripted, in_memory=False),
    XARRAY: partial(Scripted, in_memory=True),
}


def published(
    implementation: str, files: int, more: int, steps: int, lat: int, lon: int, series: list[int]
) -> Measured:
    """Measure the first files, and those of the next day."""
    out = Measured()
    chunks = dict(zip(("time", "lat", "lon"), series, strict=True))
    paths = archive(files + more, steps, lat, lon, HOURS)
    small = archive(3, 2, 10, 20, HOURS)
    with scratch() as root, ExitStack() as stack:
        if implementation == DASK_PROCESSES:
            cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)  # type: ignore[no-untyped-call]
            stack.enter_context(cluster)
            stack.enter_context(Client(cluster))  # type: ignore[no-untyped-call]
        for name, all_files, counts in (("warm", small, (2, 1)), ("feed", paths, (files, more))):
            folder = Path(root) / f"{name} files"
            folder.mkdir()
            repository = f"{root}/{name}"
            feed: Feed = FEEDS[implementation](repository, str(folder), chunks)
            for day, count in zip(DAYS, counts, strict=True):
                new, all_files = all_files[:count], all_files[count:]
                for path in new:
                    os.symlink(path, folder / Path(path).name)
                with usage_of_all() as used, out.seconds(day):
                    feed.run([str(folder / Path(path).name) for path in new])
                out[f"{day}, processor s"] = used.processor_s
                out[f"{day}, peak memory, MiB"] = used.peak_mib
                _compare(repository, f"{name}-{day.replace(' ', '-')}-{len(paths)}-{lat}-{lon}")
    return out


def _compare(repository: str, name: str) -> None:
    """Compare the results with those of the first implementation that made them."""
    store = alternatives.opened(repository).store
    found: dict[str, Any] = {
        group.replace("/", "-"): np.asarray(zarr.open_array(store, path=f"{group}/tas", mode="r")[:])
        for group in (WEATHER, SERIES, MONTHS)
    }

    def save(folder: Path) -> None:
        for each, values in found.items():
            np.save(folder / f"{each}.npy", values)

    first = shared_input(name, save)
    for each, values in found.items():
        np.testing.assert_allclose(
            values, np.load(first / f"{each}.npy", "r"), rtol=1e-6 * ("months" in each)
        )
    np.testing.assert_array_equal(found["series-weather"], found[WEATHER])

"""The workloads of the data pipeline."""

from __future__ import annotations

from typing import Any

from workload import Workload, at_most

from pipeline import notes
from pipeline.names import (
    CONSTANT,
    CUBED,
    DASK,
    DASK_PROCESSES,
    FULL,
    NAIVE,
    NUMPY,
    ONE,
    PARQUET,
    PLAIN,
    PROCESSES,
    REFERENCE,
    REFERENCE_ON_SPARK,
    SERIAL,
    SLOTS,
    SPARK,
    XARRAY,
)

_ARCHIVE = {"files": 200, "steps": 10, "lat": 200, "lon": 250}
_FEW_FILES = {"files": 4, "steps": 2, "lat": 10, "lon": 20}
_GRID: dict[str, Any] = {"shape": [48, 500, 1000], "old": [4, 250, 500], "new": [48, 50, 100]}
_SMALL_GRID: dict[str, Any] = {"shape": [8, 20, 40], "old": [4, 10, 20], "new": [8, 5, 10]}

#: Two rounds, because most rounds start a session of Spark first.
_ROUNDS = 2

JOBS = "the fixed costs of Spark's jobs, tasks and Python workers. The row with more data meets its target"
ROWS = (
    "the transfer of Arrow batches from Python to the JVM. Constant batches, which read nothing, need three "
    "quarters of the time; rows of Parquet never leave the JVM"
)
WORKER = "what Spark does for each task of a Python worker. Plain PySpark has more idle slots"
DAEMON = "half of the difference is the imports of the workers' daemon (zarr, Frazil), once"

FIXED = "the fixed costs of a job, a commit, and the metadata of each result, about 0.05 s"
LOAD = "the load of the machine, where others measured too. Of the processor time, it is 0.14"
_REDUCED = ("mean", "climatology")
_DERIVED = ("mean", "climatology", "coarsen", "pyramid", "regrid")

#: The second day is the same call, and the work of the new files.
_FEED = {"the first day, s": 1.0, "the second day, s": 0.25, "the first day, peak memory, MiB": 1.0}

PIPELINE = (
    Workload(
        "Pipeline: 400 MB in 200 NetCDF-4 files, into one commit",
        "pipeline.arrays.ingested",
        _ARCHIVE,
        _FEW_FILES,
        (SPARK, ONE, PROCESSES, DASK),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, ONE)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: 1,000 small NetCDF-4 files, into one commit",
        "pipeline.arrays.ingested",
        {"files": 1000, "steps": 1, "lat": 50, "lon": 100},
        _FEW_FILES,
        (SPARK, ONE, DASK),
        targets=at_most(DASK, {"copies, s": 0.5}),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, ONE)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: 2 GB in 200 NetCDF-4 files, into one commit",
        "pipeline.arrays.ingested",
        {**_ARCHIVE, "steps": 50},
        _FEW_FILES,
        (SPARK, ONE, DASK),
        targets=at_most(ONE, {"copies, s": 1.0}),
        compare=((SPARK, ONE), (SPARK, DASK), (ONE, DASK)),
        rounds=1,
        large=True,
    ),
    Workload(
        "Pipeline: rechunk 96 MB from (4, 250, 500) to (48, 50, 100), with bounded memory for each task",
        "pipeline.arrays.rechunked",
        {**_GRID, "max_mem": [16_000_000, 64_000_000]},
        {**_SMALL_GRID, "max_mem": [8000]},
        (SPARK, ONE, DASK, NAIVE),
        targets=at_most(
            DASK, {"16 MB, s": 1.0, "64 MB, s": 1.0}, dict.fromkeys(("16 MB, s", "64 MB, s"), JOBS)
        ),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, ONE), (SPARK, NAIVE)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: rechunk 9.6 GB from (4, 250, 500) to (48, 50, 100), with bounded memory for each task",
        "pipeline.arrays.rechunked",
        {**_GRID, "shape": [480, 2500, 2000], "max_mem": [64_000_000]},
        {**_SMALL_GRID, "max_mem": [8000]},
        (SPARK, ONE, DASK),
        targets=at_most(DASK, {"64 MB, s": 1.0}),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, ONE)),
        rounds=1,
        large=True,
    ),
    Workload(
        "Pipeline: 24 million rows of 28 bytes",
        "pipeline.rows.scanned",
        {"shape": _GRID["shape"], "chunks": _GRID["old"], "tasks": 12},
        {"shape": _SMALL_GRID["shape"], "chunks": _SMALL_GRID["old"], "tasks": 2},
        (SPARK, REFERENCE_ON_SPARK, ONE, PARQUET, CONSTANT),
        # 800 MB/s
        targets=(
            *at_most(None, {"rows, s for a GB": 1.25}, {"rows, s for a GB": ROWS}),
            *at_most(PARQUET, {"rows by the data source, s": 1.0}, {"rows by the data source, s": ROWS}),
            *at_most(PARQUET, {"the sum of a column, s": 2.0}),
        ),
        compare=((SPARK, REFERENCE_ON_SPARK), (SPARK, CONSTANT), (SPARK, PARQUET), (CONSTANT, PARQUET)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: 120 files on a server that takes 50 ms for each answer",
        "pipeline.rows.far",
        {"files": 120, "side": 256, "latency_ms": 50},
        {"files": 8, "side": 16, "latency_ms": 1},
        (SPARK, ONE, REFERENCE, SERIAL),
        compare=((SPARK, SERIAL), (SPARK, ONE), (ONE, REFERENCE)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: the mean over time of 400 MB",
        "pipeline.arrays.averaged",
        {"shape": [400, 500, 500], "chunks": [25, 250, 250]},
        {"shape": [8, 20, 40], "chunks": [4, 10, 20]},
        (SPARK, ONE, DASK, NUMPY),
        targets=at_most(DASK, {"mean, s": 0.7}, {"mean, s": JOBS}),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, NUMPY)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: the mean over time of 2 GB",
        "pipeline.arrays.averaged",
        {"shape": [2000, 500, 500], "chunks": [25, 250, 250]},
        {"shape": [8, 20, 40], "chunks": [4, 10, 20]},
        (SPARK, ONE, DASK, NUMPY),
        targets=at_most(DASK, {"mean, s": 0.7}),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, NUMPY)),
        rounds=1,
        large=True,
    ),
    Workload(
        "Pipeline: the mean of each month of the year, of 409 MB",
        "pipeline.groups.monthly",
        {"shape": [1460, 200, 350], "chunks": [73, 100, 175]},
        {"shape": [60, 20, 40], "chunks": [30, 10, 20]},
        (SPARK, ONE, DASK),
        targets=at_most(DASK, {"climatology, s": 0.7}),
        compare=((SPARK, DASK), (ONE, DASK), (SPARK, ONE)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: 207 MB in 200 files: ingest, rechunk, climatology, publish, and 10 more files",
        "pipeline.feeds.published",
        {"files": 200, "more": 10, "steps": 2, "lat": 360, "lon": 360, "series": [100, 20, 20]},
        {"files": 4, "more": 2, "steps": 2, "lat": 10, "lon": 20, "series": [4, 5, 5]},
        (PROCESSES, DASK_PROCESSES, XARRAY),
        targets=(*at_most(DASK_PROCESSES, _FEED), *at_most(XARRAY, _FEED, {"the second day, s": LOAD})),
        compare=((PROCESSES, DASK_PROCESSES), (PROCESSES, XARRAY)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: programs of xarray by Cubed, of 409 MB",
        "pipeline.programs.by_xarray",
        {"shape": [1460, 200, 350], "old": [73, 100, 175], "new": [1460, 20, 50]},
        {"shape": [60, 20, 40], "old": [30, 10, 20], "new": [60, 5, 10]},
        (PROCESSES, CUBED, DASK),
        compare=((PROCESSES, CUBED), (PROCESSES, DASK)),
        rounds=1,
    ),
    Workload(
        "Pipeline: one more step of 259 kB in an archive of 10,000 steps, and a correction",
        "pipeline.refreshes.followed",
        {"steps": 10_000, "lat": 180, "lon": 360},
        {"steps": 40, "lat": 8, "lon": 16},
        (ONE, FULL, DASK, CUBED),
        targets=(
            *at_most(
                FULL,
                {f"{name}, processor s": 0.01 for name in _DERIVED},
                {f"{name}, processor s": FIXED for name in _DERIVED},
            ),
            *at_most(None, {f"{name}, bytes, % of all": 1.0 for name in _DERIVED}),
        ),
        compare=((ONE, FULL), (ONE, DASK), (ONE, CUBED), (FULL, DASK)),
        rounds=_ROUNDS,
        large=True,
    ),
    Workload(
        "Pipeline: one more step of 1 MB in an archive of 10,000 steps, and a correction",
        "pipeline.refreshes.followed",
        {"steps": 10_000, "lat": 360, "lon": 720, "names": _REDUCED},
        {"steps": 20, "lat": 8, "lon": 16, "names": _REDUCED},
        (ONE, FULL),
        targets=(
            *at_most(
                FULL,
                {f"{name}, processor s": 0.01 for name in _REDUCED},
                {f"{name}, processor s": FIXED for name in _REDUCED},
            ),
            *at_most(None, {f"{name}, bytes, % of all": 1.0 for name in _REDUCED}),
        ),
        compare=((ONE, FULL),),
        rounds=1,
        large=True,
    ),
    Workload(
        "Pipeline: one more step of 3 kB in archives of 1,000 and of 100,000 steps",
        "pipeline.refreshes.grown",
        {"steps": [1000, 100_000], "lat": 18, "lon": 36},
        {"steps": [10, 20], "lat": 4, "lon": 8},
        (ONE,),
        targets=at_most(None, {"mean, long of short": 1.3, "coarsen, long of short": 1.3}),
        compare=(),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: the plan of a refresh of a million chunks",
        "pipeline.refreshes.planned",
        {"chunks": 1_000_000},
        {"chunks": 100},
        (ONE,),
        targets=at_most(None, {"plan, s": 1.0, "memory of the plan, MiB": 100}),
        compare=(),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: tasks of one second on two slots",
        "pipeline.driver.occupied",
        {"tasks": 60, "seconds": 1.0},
        {"tasks": 2, "seconds": 0.01},
        (SPARK, PROCESSES, PLAIN),
        targets=at_most(None, {"idle slots, %": 5}, {"idle slots, %": WORKER}),
        compare=((SPARK, PLAIN), (SPARK, PROCESSES)),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: limits for a thousand slots",
        "pipeline.driver.driver_share",
        {"tasks": 1000, "references": 1000, "shape": _GRID["shape"], "chunks": [_GRID["old"], _GRID["new"]]},
        {
            "tasks": 10,
            "references": 1000,
            "shape": _SMALL_GRID["shape"],
            "chunks": [_SMALL_GRID["old"], _SMALL_GRID["new"]],
        },
        (SPARK,),
        compare=(),
        rounds=1,
        note=notes.thousand_slots,
    ),
    Workload(
        "Pipeline: the size from which Spark is faster",
        "pipeline.arrays.break_even",
        {"megabytes": [10, 50, 200, 400], "files": list(_ARCHIVE.values())},
        {"megabytes": [1], "files": list(_FEW_FILES.values())},
        (SPARK, ONE),
        compare=((SPARK, ONE),),
        rounds=_ROUNDS,
        note=notes.pays,
    ),
    Workload(
        "Pipeline: overhead of Spark for empty tasks, with two slots",
        "pipeline.driver.overhead",
        {"tasks": 1000},
        {"tasks": 4},
        (SPARK, PLAIN),
        targets=(
            *at_most(PLAIN, {"first job in Python, s": 1.5}, {"first job in Python, s": DAEMON}),
            *at_most(None, {"an empty task, ms": 15}),
        ),
        compare=((SPARK, PLAIN),),
        rounds=_ROUNDS,
    ),
    Workload(
        "Pipeline: 1, 2 and 4 slots on this machine",
        "pipeline.arrays.scaled",
        {
            "files": list(_ARCHIVE.values()),
            "grids": [_GRID["shape"], _GRID["old"], _GRID["new"]],
            "max_mem": 16_000_000,
        },
        {
            "files": list(_FEW_FILES.values()),
            "grids": [_SMALL_GRID["shape"], _SMALL_GRID["old"], _SMALL_GRID["new"]],
            "max_mem": 8000,
            "slots": False,
        },
        tuple(SLOTS),
        compare=(("2 slots", "1 slot"), ("4 slots", "2 slots")),
        rounds=1,
    ),
    Workload(
        "Pipeline: change sets of a million references",
        "pipeline.driver.change_sets",
        {"references": 1_000_000, "parts": 1000},
        {"references": 4000, "parts": 4},
        (ONE,),
        targets=at_most(
            None, {"a virtual reference, bytes": 3, "a native reference, bytes": 16, "merge, s": 0.3}
        ),
        compare=(),
        rounds=_ROUNDS,
    ),
    *(
        Workload(
            f"Pipeline: a commit of {millions} million references",
            "pipeline.driver.big_commit",
            {"references": millions * 1_000_000, "per_task": 100_000},
            {"references": 4000, "per_task": 2000},
            (PROCESSES,),
            compare=(),
            rounds=1,
            large=millions > 3,
        )
        for millions in (1, 3, 10)
    ),
)

"""The costs of arrays of many sizes: a look-up, a commit of one chunk, and an appended step."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import zarr
from measure import Measured, peak_mib, scratch

import frazil
from frazil.jobs.job import Job, Tasks
from frazil.jobs.job_run import run_job
from frazil.pipeline import Inline, Processes, Target
from pipeline import tasks as work

_WORKERS = 2
_LENGTH = 4096


def grown(implementation: str, references: int, times: int = 21, per_task: int = 500_000) -> Measured:
    """Measure an array of virtual chunks with this number of references, without a setting for its size.

    Tasks set the references, in one commit. A look-up is in a new handle.
    """
    assert implementation == "frazil"
    out = Measured()
    with scratch() as root:
        storage = frazil.local_filesystem_storage(root)
        rows, each = references // work.WIDE, max(per_task // work.WIDE, 1)

        def prepare(session: frazil.Session) -> Tasks:
            shape = (rows, work.WIDE)
            create = partial(zarr.create_array, session.store, name="v", shape=shape, dtype="f4")
            create(chunks=(1, 1), compressors=None)
            return Tasks([(low, min(low + each, rows)) for low in range(0, rows, each)])

        before = peak_mib()
        with out.seconds("set and commit, by tasks"):
            run_job(
                Job("refer", Target(frazil.Repository.create(storage)), prepare, work.refer, writes=("/v",)),
                Processes(_WORKERS) if references > per_task else Inline(),
            )
        out["driver's peak memory over the start, MiB"] = peak_mib() - before
        out["manifests"] = len(list((Path(root) / "manifests").iterdir()))
        _look_up(out, storage, rows, times)
        _change(out, root, rows, times)
        _append(out, root, rows, times)
    return out


def _look_up(out: Measured, storage: frazil.Storage, rows: int, times: int) -> None:
    seconds = []
    for number in range(times):
        start = time.perf_counter()
        session = frazil.Repository.open(storage).readonly_session("main")
        session.chunk_type("/v", [number * (rows - 1) // times, 7])
        seconds.append(time.perf_counter() - start)
    out["cold look-up, ms"] = statistics.median(seconds) * 1e3


def _change(out: Measured, root: str, rows: int, times: int) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    seconds, sizes = [], []
    for number in range(times):
        session = repo.writable_session("main")
        before = _sizes(root)
        at = f"v/c/{number * (rows - 1) // times}/5"
        start = time.perf_counter()
        session.store.set_virtual_ref(
            at, "s3://bucket/new.nc", offset=number, length=_LENGTH, validate_container=False
        )
        session.commit("one")
        seconds.append(time.perf_counter() - start)
        after = _sizes(root)
        sizes.append(sum(after[name] for name in after.keys() - before.keys()) + after["repo"])
    out["a commit of one chunk, ms"] = statistics.median(seconds) * 1e3
    out["a commit of one chunk writes, KiB"] = max(sizes) / 1024


def _sizes(root: str) -> dict[str, int]:
    files = filter(Path.is_file, Path(root).rglob("*"))
    return {str(file.relative_to(root)): file.stat().st_size for file in files}


def _append(out: Measured, root: str, rows: int, times: int) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage(root))
    seconds = []
    for number in range(times):
        row = rows + number
        start = time.perf_counter()
        session = repo.writable_session("main")
        zarr.open_array(session.store, path="v").resize((row + 1, work.WIDE))
        session.store.set_virtual_refs_arr(
            "v",
            (1, work.WIDE),
            [f"s3://bucket/model/run-{row:06d}/file.nc"] * work.WIDE,
            np.arange(work.WIDE, dtype="u8") * _LENGTH + 512,
            np.full(work.WIDE, _LENGTH, "u8"),
            arr_offset=(row, 0),
            validate_containers=False,
        )
        session.commit("a step")
        seconds.append(time.perf_counter() - start)
    out["append a step of 1,000 chunks, ms"] = statistics.median(seconds) * 1e3

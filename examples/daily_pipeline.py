"""A daily pipeline: ingest new files, update what is derived, check and publish both, clean up.

    python examples/daily_pipeline.py [DIRECTORY] [--days N] [--cluster [--kill-worker]]

    ingest      write the new files to a separate branch; leave out and name damaged files
    refresh     compute daily means, and of them a climatology; from the second day on, read only what is new
    audit       check rules about units, ranges, missing values and the time axis
    publish     move the branch of the readers to the checked data and the means, in one step
    maintenance expire old versions, and delete files that only they used

Each step finds out what is left to do. If you run the program again, it does nothing. If it dies at any
point, run it again, and it continues. ``--days`` is the number of days of the (invented) archive that have
arrived. One file is damaged on its first morning, like an interrupted download, and complete on the next.

The program runs on a local Spark. With ``--cluster``, it starts a standalone cluster with two workers, on
127.0.0.1 and 127.0.0.2. ``--kill-worker`` kills one of them in the middle of the ingest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

from daily import archive
from daily.picture import draw
from pyspark.sql import SparkSession

import frazil
from frazil.spark import (
    Exists,
    IngestResult,
    JobResult,
    Monotonic,
    NanShare,
    NoDuplicates,
    Range,
    Target,
    Units,
    Version,
    climatology,
    coarsen,
    derived,
    get_spark,
    ingest,
    refresh,
    write_audit_publish,
)
from frazil.testing.spark_cluster import SparkCluster, spark_cluster

FIRST = date(2026, 1, 1)
RULES = [
    Exists("/weather/t2m"),
    Units("/weather/t2m", "K"),
    Range("/weather/t2m", 180, 340),
    NanShare("/weather/t2m", 0.01),
    Range("/weather/tp", 0, 500),
    Monotonic("/weather/time"),
    NoDuplicates("/weather/time"),
]


def morning(directory: Path, days: int, keep: int) -> bool:
    """Bring the repository up to date, and return whether it changed."""
    files = deliver(directory / "archive", days)
    place = directory / "repository"
    told(f"{directory}, {'again' if place.exists() else 'first run'}")
    told(f"{len(files)} files, until {files[-1].stem[-10:]}")
    repo = frazil.Repository.open_or_create(frazil.local_filesystem_storage(str(place)))

    def work(target: Target) -> tuple[IngestResult, JobResult]:
        told(f"Spark is {get_spark().sparkContext.master}")  # without new files, Spark does not start
        added = ingest(
            [str(file) for file in files],
            Target(target.repo, target.branch, "/weather"),
            concat_dim="time",
            mode="backfill",
            chunks={"time": 4, "latitude": 36, "longitude": 72},
            on_problem="quarantine",
            on_change="rewrite",
            allow={"hole"},
        )
        version = Version.of(target.repo, branch=target.branch)
        if not derived(version, ["/climatology"]).arrays:
            return added, derive(version, target)
        plan = refresh(target.repo, branch=target.branch)
        for row in plan.report.arrays:
            told(f"refresh: {row.path} is {row.row()}")
        return added, plan.apply()

    published = write_audit_publish(repo, work, RULES, job_id=name_of(files))
    if published.done_before:
        told(f"publish: nothing new since {published.snapshot_id}")
    else:
        if published.value:
            added, means = published.value
            told(f"ingest: {cost(added)}")
            for file in added.quarantined:
                told(f"left out: {Path(file).name}, which is damaged")
            told(f"refresh: {cost(means)}")
        assert published.report is not None
        told(f"audit: {sum(row.ok for row in published.report.rows)} rules hold")
        told(f"publish: main is {published.snapshot_id}")
    changed = not published.done_before
    picture = directory / f"climatology-{published.snapshot_id}.png"
    if not picture.exists():
        for old in directory.glob("climatology-*.png"):
            old.unlink()
        draw(repo.readonly_session("main").store, picture)
    changed |= tidy(repo, keep)
    told(f"results: the repository {place}, the picture {picture}")
    told(f"look at them: frazil ui {place}; frazil log {place}")
    return changed


def derive(version: Version, to: Target) -> JobResult:
    """Compute daily means, and of them the means of each month. Their definitions stay with them."""
    days = coarsen(version, ["/weather/t2m", "/weather/tp"], {"time": 4}, to=replace(to, group="/daily"))
    names = ["/daily/weather/t2m", "/daily/weather/tp"]
    return climatology(days.version, names, "month", to=replace(to, group="/climatology"))


def deliver(directory: Path, days: int) -> list[Path]:
    """Return the files that have arrived. The second newest one is damaged, and complete on the next day."""
    known = set(directory.glob("*.nc"))
    files = archive.fill(directory, FIRST, days)
    note = directory / "damaged.json"
    bad: dict[str, int] = json.loads(note.read_text()) if note.exists() else {}
    for name in [name for name, since in bad.items() if since < days]:
        archive.repair(directory / name)
        del bad[name]
    if days > 1 and files[-2] not in known:
        archive.damage(files[-2])
        bad[files[-2].name] = days
    note.write_text(json.dumps(bad))
    return files


def name_of(files: list[Path]) -> str:
    """Return a job id for exactly these files, so that the same files are the same work."""
    seen = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return f"weather-{hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]}"


def tidy(repo: frazil.Repository, keep: int) -> bool:
    """Expire older versions, delete files that only they used, and return whether there were any."""
    published = [info for info in repo.ancestry(branch="main") if "frazil_audit" in info.metadata]
    if len(published) <= keep:
        return False
    limit = published[keep - 1].written_at
    expired = repo.expire_snapshots(limit)
    freed = repo.upkeep.collect(limit, engine="spark").apply()
    told(f"maintenance: {len(expired)} versions expired, {freed.bytes_deleted / 1e6:.1f} MB deleted")
    return True


def cost(job: JobResult) -> str:
    """Return the metrics of a job, which its commit records too."""
    metrics = job.metrics
    return f"{metrics.work()}, {metrics.bytes_read / 1e6:.1f} MB read, {metrics.writes()} written"


def told(line: str) -> None:
    print(f"  {line}", flush=True)


# Start the program here or on a cluster


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("pipeline-output"))
    parser.add_argument(
        "--days", type=int, default=120, help="number of days that have arrived (default 120)"
    )
    parser.add_argument(
        "--keep", type=int, default=2, help="number of published versions that stay (default 2)"
    )
    parser.add_argument("--cluster", action="store_true", help="start a standalone cluster, and run on it")
    parser.add_argument(
        "--kill-worker", action="store_true", help="kill a worker in the middle of the ingest"
    )
    options = parser.parse_args(arguments)
    if options.kill_worker and not options.cluster:
        parser.error("--kill-worker needs --cluster")
    if options.cluster:
        return on_a_cluster(options)
    options.directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        changed = morning(options.directory, options.days, options.keep)
    finally:
        if (spark := SparkSession.getActiveSession()) is not None:
            spark.stop()
    told(f"{'done' if changed else 'nothing to do'}, in {time.monotonic() - started:.0f} s")
    return 0


def on_a_cluster(options: argparse.Namespace) -> int:
    """Run this program in another process, with a cluster as its Spark."""
    given = {"--days": options.days, "--keep": options.keep}
    command = [sys.executable, __file__, str(options.directory), *(f"{k}={v}" for k, v in given.items())]
    told("on a cluster with two workers, which starts first")
    with spark_cluster() as cluster:
        driver = subprocess.Popen(command, env={**os.environ, **cluster.environment})
        if options.kill_worker:
            staging = options.directory / "repository" / "staging"
            threading.Thread(target=kill_a_worker, args=(cluster, staging, driver), daemon=True).start()
        return driver.wait()


def kill_a_worker(cluster: SparkCluster, staging: Path, driver: subprocess.Popen[bytes]) -> None:
    """Kill a worker when the first task has staged its result."""
    while driver.poll() is None:
        if any(staging.glob("*/*/*/*")):  # job, driver, round, task
            cluster.kill_worker("127.0.0.2")
            told("(the worker on 127.0.0.2 was killed)")
            return
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A morning of a daily feed, with an invented archive: what `frazil pipeline run` does, and a picture.

    python examples/daily_pipeline.py [DIRECTORY] [--days N] [--cluster [--kill-worker]]

The pipeline is `examples/daily_pipeline.toml`. This program copies it into the directory, and invents the
files next to it. ``--days`` is the number of days that have arrived. One file is damaged on its first
morning, like an interrupted download, and complete on the next. If you run the program again, it does
nothing. If it dies at any point, run it again, and it continues.

The program runs on a local Spark. With ``--cluster``, it starts a standalone cluster with two workers, on
127.0.0.1 and 127.0.0.2. ``--kill-worker`` kills one of them in the middle of the ingest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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
from frazil.pipeline import Pipeline, job_metrics
from frazil.testing.spark_cluster import SparkCluster, spark_cluster

FIRST = date(2026, 1, 1)
DEFINITION = Path(__file__).with_suffix(".toml")


def morning(directory: Path, days: int, keep: int) -> None:
    """Let the files of a day arrive, run the pipeline, and draw what it published."""
    deliver(directory / "archive", days)
    file = Path(shutil.copy(DEFINITION, directory))
    pipeline = replace(Pipeline.load(file), versions=keep)
    say(*str(pipeline.plan()).splitlines())
    result = pipeline.run()
    say(*str(result).splitlines())
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(directory / "repository")))
    if result.outcome == "unchanged":
        say("nothing to do")
    for each in job_metrics(repo)[:3]:  # those that retention has not removed
        say(f"{each['name']}: {each['tasks']} tasks in {each['seconds']:.1f} s, {each['retries']} retried")
    picture = directory / f"climatology-{result.snapshot_id}.png"
    if not picture.exists():
        for old in directory.glob("climatology-*.png"):
            old.unlink()
        draw(repo.readonly_session("main").store, picture)
    say(f"the picture: {picture}", f"the state: frazil pipeline status {file}")


def deliver(directory: Path, days: int) -> None:
    """Let files arrive. The second newest one is damaged, and complete on the next day."""
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


def say(*lines: str) -> None:
    """Print lines at once, between those of the other process."""
    for line in lines:
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
        morning(options.directory, options.days, options.keep)
    finally:
        if (spark := SparkSession.getActiveSession()) is not None:
            spark.stop()
    say(f"done, in {time.monotonic() - started:.0f} s")
    return 0


def on_a_cluster(options: argparse.Namespace) -> int:
    """Run this program in another process, with a cluster as its Spark."""
    given = {"--days": options.days, "--keep": options.keep}
    command = [sys.executable, __file__, str(options.directory), *(f"{k}={v}" for k, v in given.items())]
    say("on a cluster with two workers, which starts first")
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
            say("(the worker on 127.0.0.2 was killed)")
            return
        time.sleep(0.002)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

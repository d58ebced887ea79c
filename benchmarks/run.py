"""Compares Frazil with the reference, the LocalStore of zarr, and tensorstore; writes ratios and targets.

    make bench                                   all workloads, about ten minutes
    make bench ARGS="--only pipeline"            only the data pipeline
    make bench ARGS="--large --only pipeline"    and workloads that take minutes
    make bench ARGS="--only chunk_io --rounds 5"
    make bench ARGS="--only upkeep --update"     replaces the tables of these workloads, and leaves the others
    make bench ARGS="--quick --output /tmp/x.md"   tiny sizes, to test the tool itself
    make bench-quick                             a few short workloads, about two minutes; writes nothing

The ratios of each run are printed next to those of the last report: ``WORSE`` marks a ratio that was
larger in all rounds than in all rounds of the report.

Every measurement runs in a new process. In a round, the implementations run one after the other, and the
order is reversed in each new round. All workloads run their first round before any workload runs its second
round. Rounds continue until the time is used up.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import file_readers
from commands import GIT
from commit_peers import PACKAGES_OF_COMMITS
from pipeline.names import PACKAGES_OF_PIPELINE
from report import Round, table
from results import read_tables, trends
from shared_inputs import INPUTS
from targets import results_of, with_targets
from workload import Workload
from workloads import DAILY, WORKLOADS

HERE = Path(__file__).parent
TITLE = "# Frazil and the reference"
LAST_REPORT = HERE / "RESULTS.md"
LAST_TABLES = HERE / "results.json"
MEASUREMENT_SECONDS = 900
PACKAGES = (
    *("frazil", "icechunk", "zarr", "tensorstore", "zarrista", "numpy", "obstore", "zstandard"),
    *("pyspark", "pyarrow", "xarray", "dask", "virtualizarr", "h5netcdf", "duckdb", "xarray-sql"),
    *("insitubatch", "zarr-beluga"),
)
#: The package of an implementation, if the two have different names.
PACKAGE_OF = {
    "LocalStore": "zarr",
    **file_readers.PACKAGES,
    "frazil, plain": "frazil",
    "frazil, local": "frazil",
    "frazil, zarr": "frazil",
    "xarray-sql": "xarray_sql",
    "DuckDB on Parquet": "duckdb",
    "Dask on icechunk": "dask",
    "frazil without statistics": "frazil",
    "a plain commit": "frazil",
    **PACKAGES_OF_PIPELINE,
    **PACKAGES_OF_COMMITS,
}


class MeasurementError(Exception):
    """The process of a measurement failed."""


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    chosen = [
        each
        for each in WORKLOADS
        if any(re.search(only, f"{each.run} {each.title}") for only in options.only)
        and each.large <= options.large
    ]
    if options.daily:
        chosen = [each for each in chosen if each.title in DAILY]
    load = [os.getloadavg()[0]]
    start = time.monotonic()
    with inputs():
        until = start + options.minutes * 60
        rounds, failures = (quick(chosen), []) if options.quick else in_turns(chosen, options.rounds, until)
    load.append(os.getloadavg()[0])
    print_trends(rounds)
    if options.daily:
        return bool(failures)
    command = " ".join(["python benchmarks/run.py", *map(shlex.quote, arguments)])
    tables: dict[str, Any] = {each.title: table(each, found) for each, found in rounds.items()}
    output = Path(options.output)
    output_tables = LAST_TABLES if output == LAST_REPORT else output.with_suffix(".json")
    if options.update:
        note = f"`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; load average "
        note += f"{load[0]:.1f} before, {load[-1]:.1f} after."
        tables = {title: {**document, "measured": note} for title, document in tables.items()}
        tables = json.loads(output_tables.read_text()) | tables
        tables = {each.title: tables[each.title] for each in WORKLOADS if each.title in tables}
        text = output.read_text()
    else:
        lines = preface(chosen, command, load, time.monotonic() - start, output_tables.name)
        text = "\n".join([f"{TITLE}\n", *lines])
    output_tables.write_text(json.dumps(tables, indent=1, ensure_ascii=False) + "\n")
    new = read_tables(output_tables)
    output.write_text(with_targets(text, new, () if options.quick else WORKLOADS))
    for result in results_of(list(rounds), new):
        if result.is_missed:
            print("missed:", *result.cells(), sep="\t", file=sys.stderr)
    print(f"wrote {output} and {output_tables}", file=sys.stderr)
    return bool(failures)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round")
    parser.add_argument("--daily", action="store_true", help="a few short workloads; print their ratios only")
    parser.add_argument("--large", action="store_true", help="also run workloads that take minutes")
    parser.add_argument("--rounds", type=int, help="most rounds of each workload (default 5; 1 with --quick)")
    parser.add_argument(
        "--minutes", type=float, help="start no round that would end later (default 9.5; 2 with --daily)"
    )
    parser.add_argument(
        "--only", action="append", help="only workloads that match this regular expression; repeatable"
    )
    parser.add_argument("--update", action="store_true", help="replace only the tables of these workloads")
    parser.add_argument(
        "--output", default=LAST_REPORT, help="the page to write; the tables go to a JSON file next to it"
    )
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.minutes = options.minutes or (2 if options.daily else 9.5)
    options.only = options.only or [""]
    return options


def print_trends(rounds: Mapping[Workload, Sequence[Round]]) -> None:
    """Print the ratios next to those of the last report."""
    before = read_tables(LAST_TABLES)
    for workload, found in rounds.items():
        if lines := list(trends(workload, found, before)):
            print(workload.title, *lines, sep="\n")


def in_turns(
    chosen: Sequence[Workload], most: int, until: float
) -> tuple[dict[Workload, list[Round]], list[str]]:
    """Run rounds of all workloads, until the time is used up. Return them, and the failures."""
    failures: list[str] = []
    rounds: dict[Workload, list[Round]] = {workload: [] for workload in chosen}
    longest: dict[Workload, float] = {}
    for number in range(most):
        for workload in chosen:
            begun = time.monotonic()
            if number >= workload.rounds or (number and until - begun < longest[workload]):
                continue
            print(f"round {number + 1}: {workload.title}", file=sys.stderr, flush=True)
            order = list(filter(installed, workload.implementations))
            if number % 2:
                order.reverse()
            try:
                rounds[workload].append({name: measure([(name, workload)])[0] for name in order})
            except (MeasurementError, subprocess.TimeoutExpired) as error:
                # The rounds of the other workloads are worth a report.
                failures.append(str(error))
                print(error, file=sys.stderr, flush=True)
            longest[workload] = max(longest.get(workload, 0), time.monotonic() - begun)
    return {workload: found for workload, found in rounds.items() if found}, failures


def quick(chosen: Sequence[Workload]) -> dict[Workload, list[Round]]:
    """Run one round of tiny sizes, in one process, because most of the time is for imports and the JVM.

    Of workloads that differ only in their sizes, one runs.
    """
    once = {(each.run, json.dumps(each.quick)): each for each in reversed(chosen)}
    tiny = [replace(each, sizes=each.quick, targets=()) for each in reversed(once.values())]
    jobs = [(name, workload) for workload in tiny for name in filter(installed, workload.implementations)]
    round_: dict[Workload, dict[str, dict[str, float]]] = {workload: {} for workload in tiny}
    for (name, workload), found in zip(jobs, measure(jobs, seconds=None), strict=True):
        round_[workload][name] = found
    return {workload: [found] for workload, found in round_.items()}


def measure(
    jobs: Sequence[tuple[str, Workload]], seconds: float | None = MEASUREMENT_SECONDS
) -> list[dict[str, float]]:
    """Run jobs in one new process, and return their values. ``seconds`` is its time limit; None: no limit."""
    told = json.dumps([(name, workload.run, dict(workload.sizes)) for name, workload in jobs])
    process = subprocess.run(
        [sys.executable, str(HERE / "measure.py"), told],
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "ICECHUNK_LOG": "error"},
    )
    if process.returncode:
        name, workload = jobs[process.stdout.count("\n")]
        raise MeasurementError(f"{name} failed in {workload.title}:\n{process.stderr}")
    return [json.loads(line) for line in process.stdout.splitlines()]


@contextmanager
def inputs() -> Iterator[None]:
    """Provide a folder for files that all processes read. The first process that needs a file makes it."""
    with tempfile.TemporaryDirectory(prefix="bench-inputs-") as folder:
        os.environ[INPUTS] = folder
        yield


def package_of(implementation: str) -> str:
    return PACKAGE_OF.get(implementation, implementation)


def installed(implementation: str) -> bool:
    if implementation == GIT:
        return shutil.which(GIT) is not None
    return importlib.util.find_spec(package_of(implementation)) is not None


def preface(
    chosen: Sequence[Workload], command: str, load: Sequence[float], seconds: float, tables: str
) -> Iterator[str]:
    """Yield the lines about the command, the versions and the machine."""
    yield f"[{tables}]({tables}) has the tables of all workloads: medians, and ratios as the median of the"
    yield "rounds, the smallest and the largest."
    yield ""
    yield "Less is better in every row. A ratio is Frazil's value divided by the other value. If a column"
    yield "names two implementations, it is the first value divided by the second. Implementations ran one"
    yield "after the other, each in a new process, and the order was reversed in each new round. A ratio"
    yield "compares values of one round. Frazil flushes a commit to disk before it reports the commit;"
    yield "icechunk and LocalStore do not flush."
    yield ""
    yield f"- Command: `{command}`, {seconds / 60:.1f} minutes, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    yield f"- Versions: {', '.join(versions())}"
    yield f"- Machine: {machine()}"
    yield f"- Load average: {load[0]:.1f} before, {load[-1]:.1f} after"
    names = dict.fromkeys(name for each in chosen for name in each.implementations)
    absent = [name for name in names if not installed(name)]
    if absent:
        yield f"- Not installed, and therefore omitted: {', '.join(absent)}"
    yield ""


def versions() -> Iterator[str]:
    yield f"Python {platform.python_version()}"
    for package in PACKAGES:
        try:
            yield f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [f"{os.cpu_count()} cores", f"{memory:.0f} GiB of memory", f"{platform.system()}"]
    if kind := file_system(tempfile.gettempdir()):
        parts.append(f"files on {kind}")
    return ", ".join(parts)


def file_system(path: str) -> str | None:
    """Return the kind of the file system of a path, by the longest mount point above the path."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    path = os.path.realpath(path)
    above = [(point, kind) for point, kind in mounts if os.path.commonpath([path, point]) == point]
    return max(above, key=lambda mount: len(mount[0]))[1] if above else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

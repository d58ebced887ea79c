"""Write real NetCDF files with Spark into one repository, in one commit, and show the result.

    python examples/demo.py [DIRECTORY]       (or: make demo; the default directory is demo-output)

`main` has the steps. The package `demo_parts` has the data, the printing, the picture and the comparison.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyspark
import zarr
from demo_parts.picture import draw
from demo_parts.proof import compared, compared_with_files
from demo_parts.show import Costs, say, step, table, tree
from demo_parts.sources import SOURCES, blocks, read_block, write_metadata

import frazil
from frazil.jobs.progress import size
from frazil.spark import OnSpark, Progress, get_spark, write_blocks

# The second commit changes ten years of a part of the Great Plains. (The error in the data is invented.)
CORRECTED = "e1/air_temperature"
BOX = np.s_[190:200, 20:29, 16:25]
TOO_WARM = np.float32(0.4)
AT = np.s_[186:204:2, 24, 20]


def main(directory: Path) -> int:
    start = time.monotonic()
    repository = directory / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    print(f"Frazil {frazil.__version__}: three NetCDF files become one repository, in {repository}")

    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(repository)))
    costs = Costs(repository)
    costs.commit("(create)")

    with step(1, "Ingest: Spark tasks write, and one commit publishes"):
        first = ingest(repo)
        costs.commit("ingest")
        repo.create_tag("v1", snapshot_id=first)
        costs.commit("(tag v1)")
    with step(2, "The tree"):
        tree(zarr.open_group(repo.readonly_session(tag="v1").store, mode="r"))
    with step(3, "A correction on a separate branch"):
        repo.create_branch("corrections", snapshot_id=first)
        costs.commit("(branch)")
        correct(repo)
        costs.commit("correction")
        describe(repo)
        costs.commit("titles")
        difference(repo)
    with step(4, "Time travel: the same read in two snapshots"):
        travel(repo)
    with step(5, "The history"):
        for line in str(repo.ancestry_graph(plain=True)).splitlines():
            say(line)
    with step(6, "Cost: bytes and files that each commit added"):
        costs.show()
    with step(7, "A picture of the data, read with xarray"):
        picture = directory / "demo.png"
        draw(repo.readonly_session("main").store, picture)
        say(f"{picture}: {size(picture.stat().st_size)}")
    with step(8, "Comparison: the published icechunk reads the same data"):
        differences = prove(repository)

    seconds = time.monotonic() - start
    if differences:
        print(f"\nFAILED: {len(differences)} differences, in {seconds:.0f} s")
        return 1
    print(f"\nOK: everything is equal, bit by bit. The demo took {seconds:.0f} s.")
    return 0


def ingest(repo: frazil.Repository) -> str:
    """Write metadata on the driver and values in Spark tasks, and publish both in one commit."""
    session = repo.writable_session("main")
    work = []
    for source in SOURCES:
        write_metadata(source, session.store)
        work += blocks(source)
        say(f"{source.group:6} {source.file}: {size(source.path.stat().st_size)}")
    say()
    started = time.monotonic()
    spark = get_spark()
    say(
        f"Spark {pyspark.__version__} with {spark.sparkContext.master}, "
        f"started in {time.monotonic() - started:.1f} s"
    )
    try:
        with Progress("   writing", len(work), sys.stdout) as bar:
            written = write_blocks(session, read_block, work, OnSpark(spark), progress=bar)
    finally:
        spark.stop()
    say(f"the tasks returned {size(written.returned)} of references for {size(written.bytes)} of values")
    id_ = session.commit(
        "Ingest two scenarios and the sea surface",
        metadata={
            "job": "demo-ingest",
            "engine": f"spark {pyspark.__version__}",
            "tasks": written.tasks,
            "chunks": written.chunks,
            "sources": [source.fingerprint() for source in SOURCES],
        },
    )
    say(f"commit {id_} publishes all three groups at once")
    return id_


def correct(repo: frazil.Repository) -> None:
    session = repo.writable_session("corrections")
    air = zarr.open_array(session.store, path=CORRECTED, mode="r+")
    air[BOX] = np.asarray(air[BOX]) - TOO_WARM
    session.commit(
        "Great Plains, 2050 to 2059: 0.4 K too warm", metadata={"job": "demo-correction", "array": CORRECTED}
    )


def describe(repo: frazil.Repository) -> None:
    """Change attributes on main. This writes no chunks."""
    with repo.transaction("main", message="Titles for the groups") as store:
        root = zarr.open_group(store, mode="r+")
        for source in SOURCES:
            zarr.open_group(store, path=source.group, mode="r+").attrs["title"] = f"From {source.file}"
        root.attrs["title"] = "Two scenarios and an ocean"


def difference(repo: frazil.Repository) -> None:
    say("changes of `corrections` since `v1`:")
    changed = repo.diff(from_tag="v1", to_branch="corrections").updated_chunks
    for path, chunks in changed.items():
        say(f"  {path}: {len(chunks)} chunks, {' '.join(map(str, sorted(map(tuple, chunks))))}")
    say("changes of `main` since `v1`:")
    for path in sorted(repo.diff(from_tag="v1", to_branch="main").updated_groups):
        say(f"  {path}: attributes")


def travel(repo: frazil.Repository) -> None:
    def read(session: Any) -> Any:
        return np.asarray(zarr.open_array(session.store, path=CORRECTED, mode="r")[AT])

    before, after = read(repo.readonly_session(tag="v1")), read(repo.readonly_session("corrections"))
    rows = [
        (f"{1860 + index}", f"{old:.2f} K", f"{new:.2f} K", f"{new - old:+.2f}" if new != old else "")
        for index, old, new in zip(range(204)[AT[0]], before, after, strict=True)
    ]
    table((CORRECTED, "tag v1", "branch corrections", "change"), rows)


def prove(repository: Path) -> list[str]:
    arrays, differences = compared(repository)
    say(f"{arrays} arrays on all branches, read by Frazil and by icechunk: {len(differences)} differences")
    variables, from_files = compared_with_files(repository, "v1")
    say(f"{variables} variables of the NetCDF files and of icechunk at v1: {len(from_files)} differences")
    for path in differences + from_files:
        say(f"  DIFFERENT: {path}")
    return differences + from_files


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output")))

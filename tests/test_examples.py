"""The how-tos in examples/ run, and print what they are there to show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.support.program_runner import FORKS, ONE_PROCESS

HOW_TO = Path(__file__).parents[1] / "examples" / "how_to"

#: Some of the lines that each prints. What changes from run to run is not among them.
SHOWS: dict[str, list[str]] = {
    "storage": ["memory: 15.0", "folder: 15.0", "s3:     15.0", "http:   15.0", "http:   read-only-storage"],
    "virtual_datasets": [
        "row 7: [700 701 702 703]",
        "changed: virtual-chunk-modified",
        "equal: True {'time': 48, 'lat': 4, 'lon': 5}",
        "not authorised: unauthorized-virtual-chunk-container",
    ],
    "version_control": [
        "corrections: 2.0",
        "at the tag:  3.0",
        "at noon:     1.0",
        "changed: {'/rain': 2}",
        "after amend: ['June and July were read wrongly; units', 'A wet June']",
    ],
    "parallel_writes": [
        "threads    True  By threads",
        "processes  True  By processes",
        "dask       True  By Dask, through xarray",
        "refused: merge-failed",
    ],
    "configuration": [
        "manifests: 4  chunk files: 1",
        "manifests: 5  (one more)",
        "mine: 0  theirs: 64",
        "files of 5 chunks without packs: 5",
    ],
    "error_handling": [
        "repository-not-found: a KeyError too: True",
        "still there: True",
        "committed in attempt 1",
    ],
    "expiration": [
        "expired: 3",
        "history: ['Day 4', 'Day 3', 'Repository initialized']",
        "the tag: (100000,)",
        "equal: True",
    ],
    "moving": [
        "shifted:  [2. 3. 4. 5. 6. 7. 0. 0.]",
        "reversed: [8. 9. 6. 7. 4. 5. 2. 3.]",
        "['archive', 'archive/rest', 'archive/rest/precip', 'archive/temperature']",
        "move-into-self-or-descendant",
    ],
}
SHOWS["conflicts"] = [
    "aligned: [1, 2, 0, 0] ['two', 'one']",
    "conflict: ChunkDoubleUpdate /a [[0]]",
    "theirs: [10, 2, 10, 20]",
    "sum: [16, 2, 10, 20]",
    "stale: /a",
    "read again: [16, 7, 10, 8]",
]
SHOWS["transactions"] = ["committed: 8", "values: [2 2 2 2 2 2 2 2]", "rebase-failed /a [[0]]", "now: 4"]
SHOWS["upgrading"] = [
    "on open: SpecVersion.v1",
    "unsupported-spec-version",
    "after the dry run: SpecVersion.v1",
    "same snapshot: True",
    "at the tag: [7 7 7]",
]
SHOWS["merging"] = [
    "picked:   [1, 2, 0, 0, 0, 0]",
    "merged:   [1, 2, 3, 0, 0, 0]",
    "parents:  True",
    "reverted: [1, 2, 0, 4, 0, 0]",
    "conflict: ChunkDoubleUpdate /a [[4]]",
    "decided:  [1, 2, 0, 4, 5, 6]",
]
SHOWS["importing"] = [
    "unsupported-spec-version",
    "found: M8, as written by icechunk 0.1.0 to 0.1.3",
    "copied: 3 of 3 left out: []",
    "again:  True",
    "history: ['second', 'first', 'Repository initialized'] branches: ['dev', 'main'] tags: ['v 1!']",
    "values:  (2, 6) [0, 1, 2, 300, 400, 500]",
]
NEEDS = {"virtual_datasets": "virtualizarr", "storage": "ministack"}


def run(name: str, *arguments: str) -> list[str]:
    programs = ONE_PROCESS if "spark" in arguments else FORKS
    done = programs.run(HOW_TO / f"{name}.py", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


#: They start servers or other processes.
LONG = {"parallel_writes", "storage", "virtual_datasets"}
NAMES = [pytest.param(name, marks=[pytest.mark.deep] if name in LONG else []) for name in SHOWS]


@pytest.mark.sample(2, 2)
@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_how_to(name: str) -> None:
    needed = NEEDS.get(name)
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    lines = run(name)
    assert [line for line in SHOWS[name] if line not in lines] == []


@pytest.mark.deep
@pytest.mark.spark
def test_parallel_writes_with_spark() -> None:
    assert "spark      True  By 8 Spark tasks" in run("parallel_writes", "spark")


def test_every_how_to_is_listed() -> None:
    assert {path.stem for path in HOW_TO.glob("*.py")} == SHOWS.keys()

"""The how-tos in examples/ run, and print what they are there to show."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.support.program_runner import FORKS

HOW_TO = Path(__file__).parents[1] / "examples" / "how_to"

#: Some of the lines that each prints. What changes from run to run is not among them.
SHOWS: dict[str, list[str]] = {
    "storage": ["memory: 15.0", "folder: 15.0", "s3:     15.0", "http:   15.0", "http:   read-only-storage"],
    "virtual_datasets": [
        "changed: virtual-chunk-modified",
        "not authorised: unauthorized-virtual-chunk-container",
    ],
    "version_control": ["at noon:     1.0", "changed: {'/rain': 2}"],
    "parallel_writes": [
        "processes  True  By processes",
        "dask       True  By Dask, through xarray",
        "refused: merge-failed",
    ],
    "configuration": ["mine: 0  theirs: 64", "files of 5 chunks without packs: 5"],
    "error_handling": ["committed in attempt 1"],
    "expiration": ["history: ['Day 4', 'Day 3', 'Repository initialized']", "equal: True"],
    "moving": [
        "['archive', 'archive/rest', 'archive/rest/precip', 'archive/temperature']",
        "move-into-self-or-descendant",
    ],
}
SHOWS["conflicts"] = ["sum: [16, 2, 10, 20]", "stale: /a", "read again: [16, 7, 10, 8]"]
SHOWS["transactions"] = ["committed: 8", "values: [2 2 2 2 2 2 2 2]", "rebase-failed /a [[0]]", "now: 4"]
SHOWS["upgrading"] = ["after the dry run: SpecVersion.v1", "same snapshot: True", "at the tag: [7 7 7]"]
SHOWS["merging"] = [
    "reverted: [1, 2, 0, 4, 0, 0]",
    "conflict: ChunkDoubleUpdate /a [[4]]",
    "decided:  [1, 2, 0, 4, 5, 6]",
]
SHOWS["importing"] = [
    "found: M8, as written by icechunk 0.1.0 to 0.1.3",
    "history: ['second', 'first', 'Repository initialized'] branches: ['dev', 'main'] tags: ['v 1!']",
    "values:  (2, 6) [0, 1, 2, 300, 400, 500]",
]
NEEDS = {"virtual_datasets": "virtualizarr", "storage": "ministack"}


def run(name: str) -> list[str]:
    done = FORKS.run(HOW_TO / f"{name}.py")
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


def test_every_how_to_is_listed() -> None:
    assert {path.stem for path in HOW_TO.glob("*.py")} == SHOWS.keys()

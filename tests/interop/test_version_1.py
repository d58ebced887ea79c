"""Repositories of spec version 1, of both implementations: names and files. `test_errors` has the errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zarr
from tests.interop.both import check_same, sides, splitting

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

NAMES = ["it works!", "a#b", "a%b", "é", "a?b", "a~b", "..", "a\\b", "a:b", "{x}", "a.b", "*", " ", "%41"]


@pytest.mark.parametrize("writer", [0, 1], ids=["frazil", "icechunk"])
def test_names_of_refs(writer: int, tmp_path: Path) -> None:
    """The reference finds them all, but lists some as they are spelt in paths."""
    both = sides(tmp_path / "r", spec=1)
    both[writer].create()
    both[1 - writer].open()
    root = both[writer].repo.lookup_branch("main")
    for name in NAMES:
        both[writer].repo.create_branch(name, root)
        both[writer].repo.create_tag(name, root)
    for side in both:
        for name in NAMES:
            assert side.repo.lookup_branch(name) == side.repo.lookup_tag(name) == root
    assert both[0].repo.list_branches() == {"main", *NAMES}
    assert both[0].repo.list_tags() == set(NAMES)
    for name in NAMES[::2]:
        both[1 - writer].repo.delete_branch(name)
        both[1 - writer].repo.delete_tag(name)
    assert both[0].repo.list_branches() == {"main", *NAMES[1::2]}
    assert both[0].repo.list_tags() == set(NAMES[1::2])


def test_what_is_in_the_files(tmp_path: Path) -> None:
    """Nothing of version 2, and refs that any reader of JSON understands."""
    ours, theirs = sides(tmp_path / "r", spec=1)
    ours.create(ours.config(manifest=splitting(frazil, 2)))
    theirs.open()
    with ours.repo.transaction("main", message="first", metadata={"é": [1, None, {"x": -1.5}]}) as store:
        root = zarr.create_group(store)
        shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
            ((9,), (4,)), ((), ()), ((0, 3), (2, 2)), ((7, 5), (2, 3)),
        ]  # fmt: skip
        for number, (shape, chunks) in enumerate(shapes):
            array = root.create_array(f"a{number}", shape=shape, chunks=chunks, dtype="i4")
            array[...] = number + 1
    ours.repo.create_tag("t", ours.repo.lookup_branch("main"))
    files = {str(path.relative_to(ours.path)): path for path in ours.path.rglob("*") if path.is_file()}
    assert "repo" not in files
    for name, path in files.items():
        if name.startswith(("snapshots", "manifests", "transactions")):
            assert path.read_bytes()[36] == 1, name
        if name.endswith("ref.json"):
            text = path.read_text()
            assert json.loads(text) == {"snapshot": ours.repo.lookup_branch("main")}
    assert len([name for name in files if name.startswith("transactions")]) == 1
    check_same(ours, theirs)

"""Expiration, compared over made-up histories: both get the same repo info, and leave the same."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import icechunk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import frazil
from frazil.format.ids import INITIAL_SNAPSHOT_ID
from frazil.format.repo_info import (
    RepoInfo,
    SnapshotEntry,
    SnapshotTable,
    decode_repo_info,
    encode_repo_info,
    new_repo_info,
)

pytestmark = [pytest.mark.deep, pytest.mark.interop]

START = datetime(2024, 1, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000


class Case(NamedTuple):
    """A history: parents and times (seconds) of the snapshots from 1 on, 0 is the first of all."""

    parents: list[int]
    times: list[int]
    branches: dict[str, int]
    tags: dict[str, int]
    pruned: dict[int, list[int]]
    older_than: int
    delete_branches: bool
    delete_tags: bool


@st.composite
def cases(draw: Any) -> Case:
    count = draw(st.integers(1, 12))
    back = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    parents = [max(0, n + 1 - step) for n, step in enumerate(back)]
    times = [0]
    for parent in parents:
        times.append(draw(st.integers(1, 3)) + times[parent])
    if draw(st.booleans()):  # clocks that went back
        times[1:] = draw(st.permutations(times[1:]))
    refs = st.dictionaries(st.sampled_from("abc"), st.integers(0, count), max_size=3)
    pruned = st.dictionaries(
        st.integers(1, count), st.lists(st.integers(100, 250), min_size=1, max_size=2), max_size=3
    )
    return Case(
        parents,
        times[1:],
        {**draw(refs), "main": draw(st.integers(0, count))},
        draw(refs),
        draw(pruned),
        draw(st.integers(0, max(times) + 1)),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def id_of(n: int) -> bytes:
    return bytes([n]) * 12 if n else INITIAL_SNAPSHOT_ID


def repo_info(case: Case) -> RepoInfo:
    entries = [
        SnapshotEntry(
            id_of(n),
            id_of(parent),
            START_US + time * 1_000_000,
            f"commit {n}",
            {"n": n},
            tuple(map(id_of, case.pruned.get(n, []))),
        )
        for n, (parent, time) in enumerate(zip(case.parents, case.times, strict=True), 1)
    ]
    info = new_repo_info(START_US)
    return replace(
        info,
        snapshots=SnapshotTable.of([info.snapshots.entry(0), *entries]),
        branches={name: id_of(n) for name, n in case.branches.items()},
        tags={name: id_of(n) for name, n in case.tags.items()},
    )


def seen(path: Path) -> Any:
    info = decode_repo_info((path / "repo").read_bytes(), "repo")
    entries = list(map(info.snapshots.entry, range(len(info.snapshots))))
    return entries, info.branches, info.tags, info.deleted_tags, info.ops.kinds.tolist()


@settings(max_examples=examples(60))
@given(cases())
def test_both_expire_the_same(case: Case) -> None:
    results = []
    for package in (frazil, icechunk):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "repo").write_bytes(encode_repo_info(repo_info(case)))
            repo = package.Repository.open(package.local_filesystem_storage(folder))
            ids = repo.expire_snapshots(
                START + timedelta(seconds=case.older_than),
                delete_expired_branches=case.delete_branches,
                delete_expired_tags=case.delete_tags,
            )
            results.append((ids, seen(path)))
    assert results[0] == results[1]

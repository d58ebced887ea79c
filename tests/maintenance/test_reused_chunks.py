"""Collections of garbage beside sessions that find chunks again, in any order of requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maintenance.schedules import Clocked, Schedule, Seen
from tests.maintenance.test_in_use import REFUSED, TOMORROW, opened_by
from tests.repository.version_1 import copy_of
from tests.support.examples import examples

import frazil
from frazil.storage.memory import MemoryStorage

CONFIG = frazil.RepositoryConfig(
    inline_chunk_threshold_bytes=0,
    packing=frazil.PackingConfig(enabled=False),
    chunks=frazil.ChunksConfig(deduplicate=True),
)


#: The ages of the chunk in hours: fresh, older than half of the lifetime of a session, and garbage.
AGES = (0, 13, 30)
#: How many hours the clock of the storage is ahead.
CLOCKS = (-1, 0, 1)


def with_garbage(hours: float, ahead: float) -> Clocked:
    """A repository with a chunk of sevens to which nobody refers, stored so many hours ago."""
    storage = Clocked()
    storage.ahead = 3600 * ahead
    shift = timedelta(hours=ahead - hours)
    storage._contents.objects.update(
        {
            key: replace(each, modified=each.modified + shift)
            for key, each in copy_of(_with_garbage())._contents.objects.items()
        }
    )
    return storage


@cache
def _with_garbage() -> MemoryStorage:
    storage = MemoryStorage()
    repo = frazil.Repository.create(storage, CONFIG)
    repo.save_config()
    with repo.transaction("main", message="made") as store:
        zarr.create_array(store, name="x", shape=(4,), chunks=(2,), dtype="i4", compressors=None)[2:] = 1
    write(repo.writable_session("main"))
    return storage


def write(session: frazil.Session) -> None:
    zarr.open_array(session.store, path="x", mode="r+")[:2] = 7


def play(schedule: Schedule, hours: float, limit: datetime, ahead: float = 0) -> Any:
    storage = with_garbage(hours, ahead)
    one, other = (
        opened_by(storage, Seen(storage, lambda what, actor=actor: schedule.request(actor, what)))
        for actor in (0, 1)
    )
    one = frazil.Repository(replace(one._context, settings=frazil.Repository.open(storage)._context.settings))

    def commit() -> str:
        session = one.writable_session("main")
        write(session)
        return session.commit("found")

    committed, collected = schedule.run(commit, lambda: other.garbage_collect(limit))
    assert isinstance(collected, frazil.GCSummary), collected
    repo = frazil.Repository.open(storage)
    array = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")
    assert array[:].tolist() == ([7, 7, 1, 1] if isinstance(committed, str) else [0, 0, 1, 1])
    assert not repo.upkeep.verify("checksum").problems
    return committed


@pytest.mark.deep
@settings(max_examples=examples(40))
@given(st.lists(st.integers(0, 1), max_size=80), st.sampled_from([1, 11, *AGES]), st.sampled_from(CLOCKS))
def test_with_an_allowed_limit_every_commit_succeeds(order: list[int], hours: float, ahead: float) -> None:
    committed = play(Schedule(order), hours, datetime.now(UTC) - timedelta(hours=24), ahead)
    assert isinstance(committed, str), committed


@pytest.mark.sample(2, 8)
@pytest.mark.deep
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("hours", AGES)
@pytest.mark.parametrize("ahead", CLOCKS)
@pytest.mark.parametrize("is_forced", [False, True])
def test_one_between_any_two_requests_of_the_other(
    first: int, hours: float, ahead: float, is_forced: bool
) -> None:
    limit = TOMORROW if is_forced else datetime.now(UTC) - timedelta(hours=24)
    for cut in range(200):
        schedule = Schedule([first] * cut + [1 - first] * 200)
        committed = play(schedule, hours, limit, ahead)
        assert isinstance(committed, str) or (is_forced and committed.kind in REFUSED), (cut, committed)
        if [actor for actor, _ in schedule.requests].count(first) <= cut:
            break
    assert cut > 8


@settings(max_examples=examples(25))
@given(st.lists(st.integers(0, 1), max_size=80), st.sampled_from(AGES), st.sampled_from(CLOCKS))
def test_with_a_forced_limit_nothing_that_was_committed_is_missing(
    order: list[int], hours: float, ahead: float
) -> None:
    committed = play(Schedule(order), hours, TOMORROW, ahead)
    assert isinstance(committed, str) or committed.kind in REFUSED

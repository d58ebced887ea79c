"""Which versions stay under a policy, compared with a plain model; and the history that is left."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import assert_no_step_for_each_row
from tests.support.examples import examples

import frazil
from frazil import CommitPattern, ErrorKind, Retention
from frazil.format.ids import INITIAL_SNAPSHOT_ID
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable, new_repo_info
from frazil.maintenance.retention import decide
from frazil.storage.memory import MemoryStorage

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR_US = 3600 * 1_000_000
START_US = int(START.timestamp()) * 1_000_000
#: Most rules select little, so that long parts of a history are removed.
COUNTS = st.sampled_from([0, 0, 0, 1, 2, 3, "all"])


def id_of(number: int) -> bytes:
    return bytes([number]) * 12 if number else INITIAL_SNAPSHOT_ID


@st.composite
def histories(draw: Any) -> RepoInfo:
    """A tree of commits with times in any order, branches and tags."""
    count = draw(st.integers(6, 25))
    entries = [
        SnapshotEntry(
            id_of(number),
            id_of(max(0, number - draw(st.sampled_from([1, 1, 1, 1, 2, 5])))),
            START_US + draw(st.integers(0, 60 * 24)) * HOUR_US,
            f"commit {number % 3}",
            {"author": "ada"} if number % 7 == 0 else {},
        )
        for number in range(1, count + 1)
    ]
    refs = st.integers(0, count).map(id_of)
    info = new_repo_info(START_US)
    return replace(
        info,
        snapshots=SnapshotTable.of([info.snapshots.entry(0), *entries]),
        branches={
            "main": draw(refs),
            **draw(st.dictionaries(st.sampled_from(["dev-1", "dev-2", "x"]), refs)),
        },
        tags=draw(st.dictionaries(st.sampled_from(["v1", "t1", "t2"]), refs)),
    )


def model(info: RepoInfo, policies: dict[str, dict[str, Any]], now: int) -> tuple[set[bytes], set[str]]:
    """The ids that stay and the tags that go, by loops."""
    entries = {entry.id: entry for entry in map(info.snapshots.entry, range(len(info.snapshots)))}

    def history(tip: bytes | None) -> list[SnapshotEntry]:
        out = []
        while tip is not None:
            out.append(entries[tip])
            tip = entries[tip].parent
        return out

    stays, covered = {INITIAL_SNAPSHOT_ID, *info.branches.values()}, set()
    for branch, tip in info.branches.items():
        line = history(tip)
        rules = next((rules for name, rules in policies.items() if fnmatchcase(branch, name)), None)
        if rules is None:
            stays |= {entry.id for entry in line}
            continue
        covered |= {entry.id for entry in line}
        stays |= {entry.id for entry in line[: rules["last"]]}
        stays |= {entry.id for entry in line if entry.flushed_at >= now - rules["hours"] * HOUR_US}
        if rules["author"]:
            stays |= {entry.id for entry in line if "author" in entry.metadata}
        for name, form in (("daily", "%Y-%m-%d"), ("weekly", "%G-%V"), ("monthly", "%Y-%m")):
            newest: dict[str, bytes] = {}
            for entry in line:
                label = datetime.fromtimestamp(entry.flushed_at // 1_000_000, UTC).strftime(form)
                newest.setdefault(label, entry.id)
            labels = sorted(newest, reverse=True)
            stays |= {newest[label] for label in labels[: None if rules[name] == "all" else rules[name]]}
    stays |= entries.keys() - covered
    gone_tags = set()
    for tag, id_ in info.tags.items():
        if id_ in stays:
            continue
        if any(fnmatchcase(tag, rules["tags"]) for rules in policies.values()):
            continue
        gone_tags.add(tag)
    return stays | {id_ for tag, id_ in info.tags.items() if tag not in gone_tags}, gone_tags


RULES = st.fixed_dictionaries(
    {
        "last": st.sampled_from([0, 0, 2]),
        "hours": st.sampled_from([1, 1, 1, 200]),
        "daily": COUNTS,
        "weekly": COUNTS,
        "monthly": COUNTS,
        "author": st.booleans(),
        "tags": st.sampled_from(["*", "v*", "none"]),
    }
)


@pytest.mark.deep
@settings(max_examples=examples(300))
@given(histories(), st.fixed_dictionaries({"main": RULES}, optional={"dev-*": RULES, "*": RULES}))
def test_the_versions_that_stay(info: RepoInfo, policies: dict[str, dict[str, Any]]) -> None:
    now = START_US + 60 * 24 * HOUR_US
    values = {
        name: Retention(
            last=rules["last"],
            newer_than=timedelta(hours=rules["hours"]),
            daily=rules["daily"],
            weekly=rules["weekly"],
            monthly=rules["monthly"],
            tags=rules["tags"],
            where=CommitPattern(author="*") if rules["author"] else (),
        )
        for name, rules in policies.items()
    }
    decision = decide(info, tuple(values.items()), now)
    stays, gone_tags = model(info, policies, now)
    after = decision.info.table
    assert {after.id_of(row) for row in range(len(after))} == stays
    assert decision.info.tags.keys() == info.tags.keys() - gone_tags
    assert decision.info.deleted_tags == gone_tags == set(decision.report.deleted_tags)
    for version in (*decision.report.removed, *decision.report.retained):
        assert version.reasons
    _assert_history(info.table, after)


def _assert_history(before: SnapshotTable, after: SnapshotTable) -> None:
    """Each parent is the next ancestor that stays, and the logs in between are listed, oldest first."""
    for row in range(len(after)):
        entry = after.entry(row)
        line = [before.id_of(each) for each in before.chain(before.find_snapshot(entry.id)).tolist()][1:]
        left = [id_ for id_ in line if after.find_snapshot(id_) >= 0]
        assert entry.parent == (left[0] if left else None)
        between = line[: line.index(left[0])] if left else []
        assert list(entry.pruned_ancestor_tx_logs) == between[::-1]


def commits(storage: MemoryStorage, count: int) -> frazil.Repository:
    repo = frazil.Repository.create(storage)
    for number in range(count):
        with repo.transaction("main", message=str(number)) as store:
            zarr.create_group(store, path=f"g{number}")
    return repo


def messages(repo: frazil.Repository) -> list[str]:
    return [commit.message for commit in repo.ancestry(branch="main")][:-1]


def test_a_policy_is_one_update_and_is_repeated_without_effect() -> None:
    repo = commits(MemoryStorage(), 6)
    before = len(list(repo.ops_log()))
    preview = repo.upkeep.retain(Retention(last=2)).report
    assert messages(repo) == ["5", "4", "3", "2", "1", "0"]
    report = repo.upkeep.retain(Retention(last=2)).apply()
    assert report.removed.ids() == preview.removed.ids()
    assert report.retained[0].reasons == ("tip of branch `main`", "one of the last 2 on `*`")
    assert messages(repo) == ["5", "4"]
    assert len(list(repo.ops_log())) == before + 1
    assert len(repo.upkeep.retain(Retention(last=2)).apply().removed) == 0


def test_spec_version_1_is_refused() -> None:
    repo = frazil.Repository.create(MemoryStorage(), spec_version=1)
    with pytest.raises(frazil.FormatError) as error:
        repo.upkeep.retain(Retention(last=1))
    assert error.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION


def test_a_read_only_repository_is_refused() -> None:
    repo = commits(MemoryStorage(), 1)
    repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.read_only))
    plan = repo.upkeep.retain(Retention(last=1))
    for act in (plan.apply, plan.as_dict):
        with pytest.raises(frazil.ReadOnlyError):
            act()


def long_history(count: int) -> RepoInfo:
    entries = [
        SnapshotEntry(
            number.to_bytes(12), (number - 1).to_bytes(12) if number else None, number * HOUR_US, "", {}
        )
        for number in range(count)
    ]
    info = new_repo_info(0)
    tip = entries[-1].id
    return replace(info, snapshots=SnapshotTable.of(entries), branches={"main": tip})


def test_no_step_for_each_commit() -> None:
    policy = (("main", Retention(last=5, daily="all", weekly=9, yearly=2)),)
    assert_no_step_for_each_row(long_history, lambda info: decide(info, policy, 0))

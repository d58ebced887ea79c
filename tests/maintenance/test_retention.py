"""Retention and squash: versions that stay, compared with a model; periods; rules; logs that are left."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import assert_no_step_for_each_row
from tests.support.errors import of_kind
from tests.support.examples import examples
from tests.support.judge import reference, reference_storage

import frazil
from frazil import CommitPattern, ErrorKind, InvalidInputError, Retention
from frazil.conflicts import ConflictDetector
from frazil.format.ids import INITIAL_SNAPSHOT_ID
from frazil.format.repo_info import RepoInfo, SnapshotEntry, SnapshotTable, new_repo_info
from frazil.handle.repository import context_of
from frazil.maintenance.retention import Period, decide, periods
from frazil.repository.catalog.history_records import JOBS
from frazil.repository.catalog.repo_changes import MAIN
from frazil.repository.clock import to_datetime
from frazil.storage.memory import MemoryStorage
from frazil.survey.columns import no_ids

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
    decision = decide(info, tuple(values.items()), now, no_ids())
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


def test_a_policy_is_one_update_and_is_repeated_without_effect() -> None:
    repo = commits(6)[0]
    before = len(list(repo.ops_log()))
    preview = repo.upkeep.retain(Retention(last=2)).report
    assert messages(repo) == ["5", "4", "3", "2", "1", "0"]
    report = repo.upkeep.retain(Retention(last=2)).apply()
    assert report.removed.ids() == preview.removed.ids()
    assert report.retained[0].reasons == ("tip of branch `main`", "one of the last 2 on `*`")
    assert messages(repo) == ["5", "4"]
    assert len(list(repo.ops_log())) == before + 1
    assert len(repo.upkeep.retain(Retention(last=2)).apply().removed) == 0


def test_a_read_only_repository_is_refused() -> None:
    repo = commits(1)[0]
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
    assert_no_step_for_each_row(long_history, lambda info: decide(info, policy, 0, no_ids()))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "must have a rule"),
        ({"tags": "v*"}, "must have a rule"),
        ({"last": -1}, "last must be at least 0"),
        ({"daily": -2}, "daily must be at least 0"),
        ({"last": 1, "zone": "Nowhere/Town"}, "zone must be the name of a time zone"),
        ({"last": 1, "zone": ""}, "zone must be the name of a time zone"),
    ],
)
def test_wrong_values(options: Any, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text, check=of_kind(ErrorKind.INVALID_ARGUMENT)):
        Retention(**options)


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (Retention, {"last": True}),
        (Retention, {"last": "all"}),
        (Retention, {"daily": 1.5}),
        (Retention, {"newer_than": 3}),
        (Retention, {"newer_than": datetime(2020, 1, 1)}),
        (Retention, {"where": "a"}),
        (Retention, {"where": ["a"]}),
        (Retention, {"last": 1, "tags": 3}),
        (Retention, {"last": 1, "tags": [3]}),
        (CommitPattern, {"message": 3}),
        (CommitPattern, {"author": b"a"}),
        (CommitPattern, {"metadata": ["a"]}),
    ],
)
def test_wrong_types(cls: Any, options: Any) -> None:
    with pytest.raises(TypeError, match=list(options)[-1]):
        cls(**options)


@pytest.mark.parametrize(
    ("policy", "error", "text"),
    [
        *((policy, TypeError, "policy") for policy in (3, {"main": 3}, {3: Retention(last=1)})),
        ({}, InvalidInputError, "at least one branch"),
    ],
)
def test_wrong_policies(policy: Any, error: type[Exception], text: str) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(error, match=text):
        repo.upkeep.retain(policy).apply()


@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        (CommitPattern(message="release *"), True),
        (CommitPattern(message="RELEASE *"), False),
        (CommitPattern(author="ada*"), True),
        (CommitPattern(author="bob"), False),
        (CommitPattern(metadata={"run": 3}), True),
        (CommitPattern(metadata={"run": "3"}), False),
        (CommitPattern(metadata={"run": 3, "missing": 1}), False),
        (CommitPattern(message="release *", author="bob"), False),
    ],
)
def test_a_commit_meets_all_parts(pattern: CommitPattern, met: bool) -> None:
    assert pattern.meets("release 7", {"author": "ada l", "run": 3}) is met


def test_a_condition_has_a_part() -> None:
    with pytest.raises(InvalidInputError, check=of_kind(ErrorKind.INVALID_ARGUMENT)):
        CommitPattern()


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [UTC, ZoneInfo("Europe/Rome"), ZoneInfo("Australia/Lord_Howe"), timezone(timedelta(hours=-9.5))]


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def calendar(moment: datetime, period: Period) -> tuple[object, ...]:
    """What a calendar on the wall says."""
    week = moment.isocalendar()
    return {
        Period.HOUR: (moment.date(), moment.hour, moment.fold),
        Period.DAY: (moment.date(),),
        Period.WEEK: (week.year, week.week),
        Period.MONTH: (moment.year, moment.month),
        Period.YEAR: (moment.year,),
    }[period]


@pytest.mark.sample(8, 8)
@pytest.mark.parametrize("zone", ZONES, ids=str)
@pytest.mark.parametrize("period", Period)
@given(
    start=st.sampled_from([datetime(2024, 3, 30, tzinfo=UTC), datetime(2024, 10, 26, tzinfo=UTC)]),
    minutes=st.lists(st.integers(0, 4 * 24 * 60), min_size=2, max_size=30),
    years=st.integers(0, 3),
)
def test_periods_are_those_of_the_calendar(
    zone: tzinfo, period: Period, start: datetime, minutes: list[int], years: int
) -> None:
    moments = sorted(start + timedelta(days=365 * years, minutes=each) for each in minutes)
    numbers = periods(np.array(list(map(microseconds, moments))), period, zone).tolist()
    labels = [calendar(moment.astimezone(zone), period) for moment in moments]
    for (one, label), (other, later) in zip(
        zip(numbers, labels, strict=True), zip(numbers[1:], labels[1:], strict=True), strict=False
    ):
        assert (one == other) == (label == later)
        assert one <= other


def test_times_outside_of_the_calendar_have_a_period() -> None:
    """Other writers may store any 64 bits."""
    times = np.array([-5, 2**62])
    for zone in ZONES:
        early, late = periods(times, Period.YEAR, zone).tolist()
        assert early < late


LATER = datetime.now(UTC) + timedelta(days=1)
COMMITS = 18


def grown(path: Path, count: int = COMMITS) -> frazil.Repository:
    """A repository in which each commit creates a group and changes a chunk."""
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(path)))
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="t", data=np.zeros(count, "i4"), chunks=(1,))
    for number in range(count):
        with repo.transaction("main", message=str(number)) as store:
            zarr.open_array(store, path="t", mode="r+")[number] = 1 + number
            zarr.create_group(store, path=f"g{number}")
    return repo


def age(path: Path, days: int = 40) -> None:
    then = time.time() - days * 24 * 3600
    for file in (path / "transactions").iterdir():
        os.utime(file, (then, then))


def removed_logs(repo: frazil.Repository) -> int:
    return int(context_of(repo).catalog.full_repo_info().table.pruned().lengths.sum())


def test_few_logs_are_left(tmp_path: Path) -> None:
    repo = grown(tmp_path)
    first = list(repo.ancestry(branch="main"))[-1].id
    before = repo.diff(from_snapshot_id=first, to_branch="main")
    repo.create_branch("old", first)
    session = repo.writable_session("old")
    zarr.create_group(session.store, path="g5")
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    assert removed_logs(repo) == COMMITS
    repo.garbage_collect(LATER)  # the logs are too young
    assert removed_logs(repo) == COMMITS
    age(tmp_path)
    preview = repo.garbage_collect(LATER, dry_run=True)
    summary = repo.garbage_collect(LATER)
    assert preview.transaction_logs_deleted == summary.transaction_logs_deleted == COMMITS
    assert (removed_logs(repo), summary.leases_respected, repo.upkeep.leases()) == (1, 0, [])
    assert len(list((tmp_path / "transactions").iterdir())) == 3
    repo = frazil.Repository.open(repo.storage)
    after = repo.diff(from_snapshot_id=first, to_branch="main")
    assert str(after) == str(before)
    assert len(after.new_groups) == 1 + COMMITS
    repo.reset_branch("old", repo.lookup_branch("main"))
    with pytest.raises(frazil.RebaseFailedError):
        session.rebase(ConflictDetector())
    assert repo.upkeep.verify("checksum").ok
    theirs = reference().Repository.open(reference_storage(tmp_path))  # skips without the reference
    assert theirs.diff(from_snapshot_id=first, to_branch="main").new_groups == after.new_groups


def test_a_log_that_a_record_names_stays_alone(tmp_path: Path) -> None:
    repo = grown(tmp_path)
    commit = list(repo.ancestry(branch="main"))[10].id
    repo.update_metadata({JOBS: [{"id": "monday", "snapshot": commit, "branch": "main"}]})
    repo.upkeep.retain(frazil.Retention(last=1)).apply()
    age(tmp_path)
    repo.garbage_collect(LATER)
    assert removed_logs(repo) == 3
    assert (tmp_path / "transactions" / commit).exists()


def commits(count: int = 5, **options: Any) -> tuple[frazil.Repository, list[str]]:
    repo = frazil.Repository.create(MemoryStorage(), **options)
    ids = [repo.lookup_branch(MAIN)]
    for number in range(count):
        with repo.transaction(MAIN, message=str(number), metadata={"n": number}) as store:
            zarr.create_group(store, path=f"g{number}")
        ids.append(repo.lookup_branch(MAIN))
    return repo, ids


def messages(repo: frazil.Repository, branch: str = MAIN) -> list[str]:
    return [commit.message for commit in repo.ancestry(branch=branch)][:-1]


def groups(repo: frazil.Repository) -> list[str]:
    return sorted(zarr.open_group(repo.readonly_session(MAIN).store, mode="r").group_keys())


def test_the_middle_of_a_history() -> None:
    repo, ids = commits()
    whole = repo.diff(from_snapshot_id=ids[1], to_snapshot_id=ids[4])
    assert repo.upkeep.squash(MAIN, ids[1], ids[4]).apply() == ids[4]
    assert messages(repo) == ["4", "3", "0"]
    assert repo.diff(from_snapshot_id=ids[1], to_snapshot_id=ids[4]).new_groups == whole.new_groups
    assert groups(repo) == [f"g{number}" for number in range(5)]
    with pytest.raises(frazil.SnapshotNotFoundError):
        repo.readonly_session(snapshot_id=ids[2])
    assert repo.upkeep.verify("checksum").ok


def test_a_new_message() -> None:
    repo, ids = commits()
    tip = repo.upkeep.squash(MAIN, ids[1][:8], message="one to four", metadata={"by": "me"}).apply()
    assert tip == repo.lookup_branch(MAIN) != ids[-1]
    assert messages(repo) == ["one to four", "0"]
    assert next(iter(repo.ancestry(branch=MAIN))).metadata == {"n": 4, "by": "me"}
    created = repo.diff(from_snapshot_id=ids[1], to_branch=MAIN).new_groups
    assert created == {f"/g{number}" for number in range(1, 5)}
    repo.garbage_collect(to_datetime(2**52))
    assert repo.diff(from_snapshot_id=ids[1], to_branch=MAIN).new_groups == created
    assert groups(repo) == [f"g{number}" for number in range(5)]
    assert repo.upkeep.verify("checksum").ok


def test_refs_into_the_range_stay() -> None:
    repo, ids = commits()
    repo.create_tag("two", ids[2])
    repo.create_branch("dev", ids[3])
    repo.create_tag("tip", ids[-1])
    repo.upkeep.squash(MAIN, ids[0], message="new").apply()
    assert messages(repo) == ["new"]
    assert messages(repo, "dev") == ["2", "1", "0"]
    assert repo.lookup_tag("two") == ids[2]
    assert [commit.message for commit in repo.ancestry(tag="tip")][:-1] == ["4", "3", "2", "1", "0"]
    assert repo.upkeep.verify().ok


def test_a_session_rebases_over_a_squash() -> None:
    repo, ids = commits()
    session = repo.writable_session(MAIN)
    zarr.create_group(session.store, path="late")
    with repo.transaction(MAIN, message="other") as store:
        zarr.create_group(store, path="other")
    repo.upkeep.squash(MAIN, ids[-1], message="renamed").apply()
    session.commit("late", rebase_with=frazil.ConflictDetector())
    assert {"late", "other"} < set(groups(repo))


@pytest.mark.parametrize(
    ("since", "until", "options", "text"),
    [
        (3, 1, {}, "since must be older than until"),
        (2, 2, {}, "since must be older than until"),
        (1, 3, {"message": "x"}, "until must be the tip"),
        ("dev", None, {}, "since must be a version in the history"),
        (1, "dev", {}, "until must be a version in the history"),
    ],
)
def test_ranges_that_are_refused(since: Any, until: Any, options: Any, text: str) -> None:
    repo, ids = commits()
    repo.create_branch("dev", ids[1])
    with repo.transaction("dev", message="dev") as store:
        zarr.create_group(store, path="dev")
    names: dict[Any, Any] = dict(enumerate(ids)) | {"dev": repo.lookup_branch("dev"), None: None}
    with pytest.raises(InvalidInputError, match=text, check=of_kind(ErrorKind.NOT_ALLOWED)):
        repo.upkeep.squash(MAIN, names[since], names[until], **options).apply()
    assert messages(repo) == ["4", "3", "2", "1", "0"]


def test_metadata_need_a_message() -> None:
    repo, ids = commits(1)
    with pytest.raises(ValueError, match="metadata needs a message"):
        repo.upkeep.squash(MAIN, ids[0], metadata={"a": 1}).apply()


def test_spec_version_1_is_refused() -> None:
    repo, ids = commits(1, spec_version=1)
    with pytest.raises(frazil.FormatError, check=of_kind(ErrorKind.UNSUPPORTED_SPEC_VERSION)):
        repo.upkeep.squash(MAIN, ids[0]).apply()


def test_a_collection_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the new tip are stored, and a collection deletes them before the update."""
    repo, ids = commits()
    storage = repo.storage
    put = type(storage).put
    collected: list[str] = []

    def put_and_collect(self: Any, key: str, data: Any, *args: Any) -> Any:
        answer = put(self, key, data, *args)
        if key.startswith("snapshots/") and not collected:
            collected.append(key)
            frazil.Repository.open(self).garbage_collect(to_datetime(2**52))
        return answer

    monkeypatch.setattr(type(storage), "put", put_and_collect)
    repo.upkeep.squash(MAIN, ids[0], message="new").apply()
    assert collected
    assert messages(frazil.Repository.open(storage)) == ["new"]
    assert repo.upkeep.verify("checksum").ok

"""The checker with one anomaly each, the rows of versions, and short histories of real processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from tests.histories import layout
from tests.histories.__main__ import run
from tests.histories.campaign import Scope, is_installed
from tests.histories.checker import Entry, History, check
from tests.histories.layout import DIGEST, LEFT, NAME, TORN, Changes, apply, first_row
from tests.histories.operations import Operation, Outcome, Rule
from tests.histories.soak import Sample, growing, soak
from tests.support.patience import patience, slowness

import frazil

BASE = "first"


def operation(mark: str, kind: str, time: int, **values: object) -> Operation:
    """An operation that takes from ``time`` to ``time + 5``, with the answer ok."""
    defaults = {"ref": "main", "end": time + 5, "outcome": Outcome.OK}
    return Operation(mark, kind, begin=time, **{**defaults, **values})  # type: ignore[arg-type]


def commit(mark: str, time: int, changes: Changes, **values: object) -> Operation:
    kind = str(values.pop("kind", "commit"))
    return operation(mark, kind, time, **{"snapshot": f"id-{mark}", "changes": changes, **values})


FIRST = first_row()
A = apply(FIRST, Changes({0: 11}, {1: 11}))
B = apply(A, Changes({2: 12}, {}, (0, 12)))
M = apply(B, Changes({4: 16}, {}))
AMENDED = apply(M, Changes({5: 14}, {}))
FLUSHED = apply(AMENDED, Changes({6: 15}, {}, name=15))


def good() -> History:
    """Commits on `main` and a branch, an amend, a tag, a reset, a version without a branch, and reads."""
    operations = (
        commit("a", 10, Changes({0: 11}, {1: 11}), previous=BASE, rule=Rule.FIRST),
        operation("branch", "create-branch", 20, ref="side", target="id-a"),
        commit("b", 30, Changes({2: 12}, {}, (0, 12)), previous=BASE, rule=Rule.DISJOINT),
        commit("c", 40, Changes({3: 13}, {}), ref="side"),
        operation("read", "read-branch", 50, snapshot="id-b", row=tuple(B.tolist())),
        commit("m", 60, Changes({4: 16}, {}), previous="id-b", rule=Rule.FIRST),
        operation("tag", "create-tag", 70, ref="v", target="id-m"),
        commit("am", 80, Changes({5: 14}, {}), kind="amend", previous="id-m", rule=Rule.FIRST),
        operation("look", "read-tag", 90, ref="v", snapshot="id-m", row=tuple(M.tolist())),
        operation("reset", "reset-branch", 100, ref="side", target="id-a", previous="id-c"),
        operation("old", "read-branch", 110, ref="side", snapshot="id-a", row=tuple(A.tolist())),
        operation("no", "commit", 120, outcome=Outcome.REFUSED, error="ConflictError commit-conflict"),
        operation("lost", "commit", 130, ref="side", outcome=Outcome.UNKNOWN, end=None),
        commit("fl", 160, Changes({6: 15}, {}, name=15), kind="flush", ref="", previous="id-am"),
        operation("label", "label", 180, ref="label-w", target="16"),
    )
    entries = (
        Entry("create-branch", "main"),
        Entry("commit", "main", BASE),
        Entry("commit", "main", "id-a"),
        Entry("create-branch", "side"),
        Entry("commit", "main", "id-b"),
        Entry("commit", "side", "id-c"),
        Entry("commit", "main", "id-m"),
        Entry("create-tag", "v"),
        Entry("amend", "main", "id-am", "id-m"),
        Entry("reset-branch", "side", previous="id-c"),
        Entry("flush", "", "id-fl"),
    )
    return History(
        first=BASE,
        operations=operations,
        entries=entries,
        branches={"main": "id-am", "side": "id-a"},
        tags={"v": "id-m"},
        messages={f"id-{mark}": mark for mark in ("a", "m", "am")},
        ancestry={"main": ["id-am", "id-b", "id-a", BASE], "side": ["id-a", BASE]},
        labels={"label-w": "16"},
        rows={"id-am": AMENDED, "id-m": M, "id-b": B, "id-a": A, BASE: FIRST, "id-fl": FLUSHED},
    )


def test_a_good_history_has_no_anomalies() -> None:
    assert check(good()) == []


def changed(mark: str, **values: object) -> Callable[[History], History]:
    """Change one operation."""

    def change(history: History) -> History:
        operations = tuple(
            replace(each, **values) if each.mark == mark else each  # type: ignore[arg-type]
            for each in history.operations
        )
        return replace(history, operations=operations)

    return change


def at_end(**values: object) -> Callable[[History], History]:
    """Change what the repository has at the end."""
    return lambda history: replace(history, **values)  # type: ignore[arg-type]


def entries(change: Callable[[list[Entry]], object]) -> Callable[[History], History]:
    """Change the ops log."""

    def changing(history: History) -> History:
        log = list(history.entries)
        change(log)
        return replace(history, entries=tuple(log))

    return changing


def row(version: str, column: int, number: int) -> Callable[[History], History]:
    """Change one number of a version at the end."""

    def change(history: History) -> History:
        after = history.rows[version].copy()
        after[column] = number
        return replace(history, rows={**history.rows, version: after})

    return change


def swap(log: list[Entry], one: int, other: int) -> None:
    log[one], log[other] = log[other], log[one]


ANOMALIES: dict[str, tuple[str, Callable[[History], History]]] = {
    "a commit with an answer is absent": ("lost", entries(lambda log: log.pop(4))),
    "a commit is there twice": ("doubled", entries(lambda log: log.insert(5, log[4]))),
    "a commit is there twice, under two ids": (
        "doubled",
        lambda history: replace(
            entries(lambda log: log.insert(5, Entry("commit", "main", "id-twin")))(history),
            messages={**history.messages, "id-twin": "b"},
        ),
    ),
    "a refused commit is there": ("refused", changed("b", outcome=Outcome.REFUSED)),
    "a commit of nobody": (
        "unexplained",
        lambda history: entries(lambda log: log.append(Entry("commit", "side", "id-x")))(
            changed("lost", outcome=Outcome.REFUSED)(history)
        ),
    ),
    "a new branch is absent": ("lost", entries(lambda log: log.pop(3))),
    "a reset of nobody": (
        "unexplained",
        entries(lambda log: log.append(Entry("reset-branch", "side", None, "id-a"))),
    ),
    "a commit on another branch": ("branches", changed("c", ref="main")),
    "a reset of a branch that is elsewhere": ("branches", entries(lambda log: swap(log, 5, 9))),
    "an amend of a version that is not the tip": (
        "branches",
        entries(lambda log: log.__setitem__(8, Entry("amend", "main", "id-am", "id-b"))),
    ),
    "the tip of a branch at the end": (
        "branches",
        lambda history: replace(history, branches={**history.branches, "side": "id-c"}),
    ),
    "a branch is gone at the end": ("branches", at_end(branches={"main": "id-am"})),
    "commits in the wrong order": ("order", lambda history: changed("c", begin=1, end=3)(history)),
    "a commit without a rebase follows another one": ("lost update", changed("a", previous="id-z")),
    "a rebase overwrites changes of others": (
        "lost update",
        changed("b", changes=Changes({0: 12}, {}, (0, 12))),
    ),
    "an append overwrites an append": ("lost update", changed("b", changes=Changes({2: 12}, {}, (3, 12)))),
    "a number is of another commit": ("read", row("id-b", 7, 99)),
    "a change is absent": ("read", row("id-am", 5, 1)),
    "the journal is of another commit": ("read", row("id-b", DIGEST, 99)),
    "a chunk has two numbers": ("torn", row("id-a", 4, int(TORN))),
    "one array of two has the commit": ("torn", row("id-a", LEFT + 1, 0)),
    "a read has other numbers": ("read", changed("read", row=tuple(A.tolist()))),
    "a read of a version that nobody wrote": ("read", changed("old", snapshot="id-y")),
    "a read of an old tip": ("stale", changed("read", snapshot="id-a", row=tuple(A.tolist()))),
    "a read of a version before its commit": ("stale", changed("read", begin=2, end=4)),
    "a tag moves, as a reader sees it": ("tags", changed("look", snapshot="id-b", row=tuple(B.tolist()))),
    "a tag moves, at the end": ("tags", at_end(tags={"v": "id-b"})),
    "a tag is created twice": ("tags", entries(lambda log: log.append(Entry("create-tag", "v")))),
    "a history has versions of another branch": (
        "ancestry",
        at_end(ancestry={"main": ["id-am", "id-c", "id-a", BASE]}),
    ),
    "a history in the wrong order": ("ancestry", at_end(ancestry={"main": ["id-am", BASE, "id-a"]})),
    "a version without a branch has other numbers": ("read", row("id-fl", 6, 99)),
    "a group has another name": ("read", row("id-fl", NAME, 99)),
    "an item of the metadata is absent": ("metadata", at_end(labels={})),
    "an item of the metadata is of nobody": (
        "metadata",
        lambda history: replace(history, labels={**history.labels, "label-x": "1"}),
    ),
    "an error of another operation": ("error", changed("no", error="InvalidInputError not-allowed")),
    "an error without a cause": ("error", changed("no", error="FormatError invalid-file-format")),
    "an error of a storage without faults": ("error", changed("no", error="StorageError object-store")),
    "a chunk file is absent": ("damage", at_end(damages=["chunks/X is missing"])),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_an_anomaly_is_reported(name: str) -> None:
    kind, change = ANOMALIES[name]
    assert kind in {anomaly.kind for anomaly in check(change(good()))}


def test_a_lost_answer_allows_both() -> None:
    """A commit whose answer is lost may be there, and its version may be one that nobody can identify."""
    absent = good()
    assert check(absent) == []
    present = entries(lambda log: log.append(Entry("commit", "side", "id-lost")))(absent)
    present = replace(present, branches={**present.branches, "side": "id-lost"}, ancestry={})
    assert check(present) == []
    assert check(replace(present, messages={**present.messages, "id-lost": "lost"})) == []


def require_arrays(store: frazil.IcechunkStore, row: layout.Row, journal: list[int]) -> None:
    """Compare a row with what zarr reads."""
    arrays = {
        name: np.asarray(zarr.open_array(store, path=name, mode="r")[:])
        for name in ("slots", "left", "right", "journal")
    }
    assert (arrays["slots"] == row[: layout.LEFT, None]).all()
    np.testing.assert_array_equal(arrays["left"], row[layout.LEFT : layout.RIGHT])
    np.testing.assert_array_equal(arrays["right"], row[layout.RIGHT : layout.LENGTH])
    assert arrays["journal"].tolist() == journal
    assert row[layout.LENGTH] == len(journal)
    assert list(zarr.open_group(store, path="names", mode="r").group_keys()) == [str(row[layout.NAME])]


@pytest.mark.parametrize("packs", [True, False])
def test_the_model_of_a_version_is_what_readers_get(packs: bool) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage(), layout.config(packs=packs))
    layout.create(repo)
    model = layout.first_row()
    for number in range(3, 7):
        changes = Changes({number: number}, {number % 4: number}, (number - 3, number))
        with repo.transaction("main", message="changes") as store:
            assert layout.journal_length(store) == number - 3
            layout.write(store, changes)
        session = repo.rearrange_session("main")
        renaming = Changes({}, {}, name=number)
        layout.rename(session, renaming)
        session.commit("a name")
        model = layout.apply(layout.apply(model, changes), renaming)
        store = repo.readonly_session("main").store
        np.testing.assert_array_equal(layout.read(store), model)
        require_arrays(store, model, list(range(3, number + 1)))


@pytest.mark.weekly
@pytest.mark.deep
def test_nothing_grows_with_commits(tmp_path: Path) -> None:
    samples = [replace(sample, memory=0) for sample in soak(tmp_path, 200, 25)]
    assert len(samples) == 8
    assert list(growing(samples)) == []


@pytest.mark.parametrize("name", ["memory", "blocks", "handles", "threads", "backups", "repo_size", "files"])
def test_growth_is_reported(name: str) -> None:
    flat = [Sample(at, 2**22, 20_000, 10, 5, 40, 5000, 100, 1.0) for at in range(8)]
    assert list(growing(flat)) == []
    grown = [replace(each, **{name: getattr(each, name) * (4 + at) // 4}) for at, each in enumerate(flat)]
    assert [text.split()[0] for text in growing(grown)] == [name]


#: Storage -> how many operations.
COUNTS = {"local": 150, "ministack": 60, "ceph": 60, "azurite": 60}


@pytest.mark.sample(1, 1)
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.deep if name == "local" else pytest.mark.servers)
        for name in COUNTS
    ],
)
def test_a_short_history_has_no_anomalies(name: str, tmp_path: Path) -> None:
    if name == "ministack":
        pytest.importorskip("ministack", reason="this environment has the core packages alone")
    if not is_installed(name):
        pytest.skip(f"{name} is not installed: run scripts/install-test-servers")
    scope = Scope(
        COUNTS[name], 2, kill_every=1.5 * slowness(), fault_every=0.5 * slowness(), limit=patience(120)
    )
    result = run(name, tmp_path, scope)
    assert result.anomalies == []
    assert result.outcomes.total() >= scope.count
    assert result.outcomes["ok"] > scope.count / 3

"""The workloads of commits, and of repositories with many commits."""

from __future__ import annotations

from typing import Final

from commit_peers import DURABLE, NO_FLUSH, WAL
from workload import FRAZIL, REFERENCE, Workload, at_most
from writer_workloads import WRITERS

COMMIT, LASTING = "a commit, ms", "a commit in the history, ms"
CALLS = "the interpreter: a commit is about 3,000 calls of Python and numpy, 2.5 to 4 ms of processor time"
FILES = f"{CALLS}. SQLite appends to one file; a commit writes three files, and replaces `repo`"
LOSSES = f"{CALLS}, and commits happen one after the other. The reference loses acknowledged commits"
NOT_DURABLE = (NO_FLUSH, REFERENCE)
EIGHT = {"processes": 8, "commits": 15}

COMMITS: Final = (
    Workload(
        "Small commits, one process",
        "commits.alone",
        {"commits": 100},
        {"commits": 3},
        DURABLE,
        targets=(
            *at_most(REFERENCE, {COMMIT: 1.5}, {COMMIT: CALLS}),
            *at_most(WAL, {COMMIT: 1.5}, {COMMIT: FILES}),
        ),
    ),
    Workload(
        "Small commits without flushes, one process",
        "commits.alone",
        {"commits": 100},
        {"commits": 2},
        NOT_DURABLE,
        targets=at_most(REFERENCE, {COMMIT: 1.0}, {COMMIT: CALLS}),
        compare=(NOT_DURABLE,),
    ),
    Workload(
        "Small commits, 8 processes at once",
        "commits.contending",
        EIGHT,
        {"processes": 1, "commits": 2},
        DURABLE,
        targets=at_most(REFERENCE, {COMMIT: 1.0, LASTING: 1.0}, {COMMIT: LOSSES}),
        rounds=2,
    ),
    Workload(
        "Small commits without flushes, 8 processes at once",
        "commits.contending",
        EIGHT,
        {"processes": 1, "commits": 1},
        NOT_DURABLE,
        targets=at_most(REFERENCE, {COMMIT: 1.0, LASTING: 1.0}, {COMMIT: LOSSES}),
        compare=(NOT_DURABLE,),
        rounds=2,
    ),
    *WRITERS,
    *(
        Workload(
            f"A repository of {commits:,} commits",
            "history.long",
            {"commits": commits},
            {"commits": 20},
            targets=at_most(
                REFERENCE,
                {
                    "open, ms": 0.8,
                    "open a session and look a chunk up, ms": 0.8,
                    "ancestry, ms": 1.0,
                    "ancestry as columns, ms": 0.2,
                    "a commit, ms": 1.0,
                },
                {
                    "ancestry as columns, ms": "fixed costs of calls of numpy. With 100,000 commits "
                    "the ratio is 0.12",
                    "a commit, ms": "two flushes of the disk, and about 3,000 calls of Python and numpy",
                },
            ),
        )
        for commits in (1000, 10_000, 100_000)
    ),
    Workload(
        "A rebase and a difference over 1,000 commits of others",
        "integration.others",
        {"commits": 1000, "references": 10},
        {"commits": 20, "references": 2},
        targets=at_most(
            REFERENCE,
            {"rebase, s": 0.3, "difference, s": 0.3},
            {"difference, s": "one core: the reference uses both. Of its processor time, it is 0.25"},
        ),
        rounds=3,
    ),
    Workload(
        "A thousand workers with a thousand chunks each: detached snapshots and pickled forks",
        "integration.snapshots",
        {"workers": 1000, "chunks": 1000},
        {"workers": 3, "chunks": 20},
        (FRAZIL, "pickled forks"),
        targets=at_most(None, {"merge and commit, processor s": 2.0, "memory, MiB": 64}),
        rounds=1,
    ),
    Workload(
        "100 forks with a million references",
        "integration.forks",
        {"number": 100, "references": 10_000},
        {"number": 3, "references": 20},
        targets=at_most(
            REFERENCE,
            {"merge at once, s": 0.3, "merge one by one, s": 0.3, "pickle, s": 0.3, "unpickle, s": 0.3},
        ),
        rounds=3,
    ),
)

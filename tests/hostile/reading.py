"""Every question that a user can ask a repository, asked of a hostile one.

The questions are in groups. ``Group.CHECKS`` costs half of the time of all groups, so the first tier of the
tests asks only the groups that a damage can affect.
"""

from __future__ import annotations

import asyncio
import enum
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import zarr

import frazil
from frazil.errors import IcechunkError, InternalError

LATE = datetime(2100, 1, 1, tzinfo=UTC)

type Question = tuple[str, Callable[[], Any]]
type Asker = Callable[[Answers, frazil.Repository], None]


class Group(enum.Flag):
    """A group of questions."""

    HISTORY = enum.auto()
    VALUES = enum.auto()
    CHECKS = enum.auto()
    COMMITS = enum.auto()
    UPKEEP = enum.auto()
    READS = HISTORY | VALUES
    ALL = READS | CHECKS | COMMITS | UPKEEP


@dataclass(slots=True)
class Answers:
    """What the questions brought: values, typed errors, and other exceptions, by the name of the question."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)
    offences: dict[str, Exception] = field(default_factory=dict)

    def ask(self, name: str, question: Callable[[], Any]) -> Any:
        """Ask one question, and return its answer, or None after an error."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.values[name] = question()
        except InternalError as error:  # a hostile file is no defect in Frazil
            self.offences[name] = error
        except IcechunkError as error:
            self.errors[name] = error
        except Exception as error:
            if _is_of_zarr(error):
                self.errors[name] = error
            else:
                self.offences[name] = error
        return self.values.get(name)


def ask(storage: frazil.Storage, groups: Group = Group.ALL) -> Answers:
    """Open a repository, and ask the questions of some groups. ``COMMITS`` and ``UPKEEP`` change it."""
    answers = Answers()
    repo = answers.ask("open", lambda: frazil.Repository.open(storage))
    if repo is None:
        return answers
    for group, questions in _QUESTIONS.items():
        if group in groups:
            questions(answers, repo)
    return answers


def _values(answers: Answers, repo: frazil.Repository) -> None:
    refs: list[dict[str, Any]] = [{"branch": "main"}, {"tag": "v1"}]  # the branch `dev` has the same version
    for ref in refs:
        label = "".join(ref.values())
        session = answers.ask(f"session {label}", partial(repo.readonly_session, **ref))
        if session is not None:
            _read(answers, session, label)


def _is_of_zarr(error: Exception) -> bool:
    """Return whether zarr refused a document or the bytes of a chunk, after Frazil had returned them."""
    modules = [
        str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    own = [name.partition(".")[0] for name in modules if name.startswith(("zarr.", "frazil."))]
    return own[-1:] == ["zarr"]


def _history(repo: frazil.Repository) -> Iterator[Question]:
    yield "branches", lambda: sorted(map(repo.lookup_branch, repo.list_branches()))
    yield "tags", lambda: sorted(map(repo.lookup_tag, repo.list_tags()))
    refs: list[dict[str, Any]] = [{"branch": "main"}, {"branch": "dev"}, {"tag": "v1"}]
    for ref in refs:
        label = "".join(ref.values())
        yield f"ancestry {label}", partial(_ancestry, repo, ref)
    yield "ops log", lambda: [_shown(each) for each in repo.ops_log()]
    yield "graph", lambda: str(repo.ancestry_graph())
    yield "config", lambda: repr(repo.config)
    yield "metadata", lambda: repr(repo.metadata)
    yield "status", lambda: repr(repo.status)
    yield "flags", lambda: repr(repo.feature_flags())
    yield "dev", lambda: repo.readonly_session(branch="dev").snapshot_id
    yield "as of", lambda: repo.readonly_session(branch="main", as_of=LATE).snapshot_id
    yield "diff", lambda: repr(repo.diff(from_tag="v1", to_branch="main"))
    yield "repo info", lambda: repo.inspect_repo_info()
    yield "snapshot", lambda: repo.inspect_snapshot(repo.lookup_branch("main"))
    yield "transaction log", lambda: repo.inspect_transaction_log(repo.lookup_branch("main"))
    yield "chunks", lambda: repr(repo.chunk_storage_stats())
    yield "leases", lambda: repr(repo.upkeep.leases())


def _ancestry(repo: frazil.Repository, ref: dict[str, Any]) -> list[str]:
    return list(map(_shown, repo.ancestry(**ref)))


def _checks(repo: frazil.Repository) -> Iterator[Question]:
    yield "verify", lambda: repr(repo.upkeep.verify("checksum"))
    yield "garbage", lambda: repr(repo.garbage_collect(LATE, dry_run=True))


def _shown(value: Any) -> str:
    return f"{value!r} {value}"


def _read(answers: Answers, session: frazil.Session, label: str) -> None:
    """Ask for all nodes of a session, for their documents, and for the values of small arrays."""
    answers.ask(f"virtual {label}", lambda: session.all_virtual_chunk_locations())
    root = answers.ask(f"root {label}", lambda: zarr.open_group(session.store, mode="r"))
    if root is not None:
        answers.ask(f"nodes {label}", lambda: [name for name, _ in root.members(max_depth=None)])
    for path in ("g/a", "s", "moved", "scalar"):
        answers.ask(f"coordinates {label} {path}", partial(_coordinates, session, path))
        if root is not None:
            answers.ask(f"values {label} {path}", partial(_array, session, path))


def _coordinates(session: frazil.Session, path: str) -> list[Any]:
    async def collected() -> list[Any]:
        return [each async for each in session.chunk_coordinates(f"/{path}")]

    return asyncio.run(collected())


def _array(session: frazil.Session, path: str) -> Any:
    try:
        array = zarr.open_array(session.store, path=path, mode="r")
    except FileNotFoundError:
        return None
    if array.size > 1 << 16:
        return None  # a large shape is valid, and its chunks are missing
    return np.asarray(array[...]).tolist()


def _commits(repo: frazil.Repository) -> Iterator[Question]:
    def commit() -> str:
        session = repo.writable_session("main")
        zarr.open_group(session.store, mode="a").create_group("new", overwrite=True)
        return session.commit("new")

    def rebased() -> str:
        session = repo.writable_session("main")
        zarr.open_group(session.store, mode="a").attrs["other"] = 1
        commit()
        return session.commit("rebased", rebase_with=frazil.ConflictDetector())

    yield "commit", commit
    yield "rebase", rebased
    yield "amend", lambda: repo.writable_session("main").amend("amended", allow_empty=True)


def _upkeep(repo: frazil.Repository) -> Iterator[Question]:
    yield "rewrite", lambda: repo.rewrite_manifests("rewritten", branch="main")
    yield "reset", lambda: repo.reset_branch("dev", repo.lookup_branch("main"))
    yield "tag", lambda: repo.create_tag("new", repo.lookup_branch("main"))
    yield "config saved", repo.save_config
    yield "expire", lambda: repr(repo.expire_snapshots(LATE - timedelta(days=1)))
    yield "collected", lambda: repr(repo.garbage_collect(LATE))


def _each(questions: Callable[[frazil.Repository], Iterator[Question]]) -> Asker:
    def ask_each(answers: Answers, repo: frazil.Repository) -> None:
        for name, question in questions(repo):
            answers.ask(name, question)

    return ask_each


_QUESTIONS: dict[Group, Asker] = {
    Group.HISTORY: _each(_history),
    Group.VALUES: _values,
    Group.CHECKS: _each(_checks),
    Group.COMMITS: _each(_commits),
    Group.UPKEEP: _each(_upkeep),
}

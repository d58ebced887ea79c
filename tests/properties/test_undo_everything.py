"""Every kind of update, in any order, with undos, redos and restorations in between, beside a small model.

The model has the fields of the repository, the updates that are not undone, and the undone updates that a
redo makes again. It predicts the state, the metadata that users see, and which calls are refused. The values
that a reader gets are compared with those before.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.examples import examples

import frazil
from frazil.history.undo import UNDO, StateField, fields_of
from frazil.repository.catalog import repo_changes

pytestmark = pytest.mark.deep

NAMES = st.sampled_from(["main", "b", "c"])
NUMBERS = st.integers(0, 9)
REFUSALS = (frazil.SessionStateError, frazil.ConflictError, frazil.ReadOnlyError)

type Changes = dict[Any, tuple[Any, Any]]


@dataclass(eq=False)
class Done:
    """An update: its time, its changes, those of them that are not undone, and the update that it repeats."""

    time: datetime
    changes: Changes
    original: datetime
    left: Changes = field(default_factory=dict)
    is_undo: bool = False


def inverse(changes: Changes) -> Changes:
    return {name: (after, before) for name, (before, after) in changes.items()}


class Undoing(RuleBasedStateMachine):
    @initialize(is_upgraded=st.booleans())
    def start(self, is_upgraded: bool) -> None:
        # A short log, so that undo also reads older parts.
        config = frazil.RepositoryConfig(num_updates_per_repo_info_file=5)
        storage = frazil.in_memory_storage()
        repo = frazil.Repository.create(storage, config, spec_version=1 if is_upgraded else 2)
        if is_upgraded:
            frazil.upgrade_icechunk_repository(repo, dry_run=False)
        self.handles = [frazil.Repository.open(storage, config) for _ in range(2)]
        self.repo = self.handles[0]
        with self.repo.transaction("main", message="start") as store:
            zarr.create_array(store, name="a", shape=(2,), chunks=(1,), dtype="i4")[:] = 7
        #: Every update since the start, the updates that are not undone, and the undone ones for redo.
        self.every: list[Done] = []
        self.current: list[Done] = []
        self.undone: list[Done] = []
        self.states = [(self.newest(), self.state())]
        self.number = 0

    def state(self) -> dict[Any, Any]:
        """All fields, and the values of each branch."""
        state: dict[Any, Any] = dict(fields_of(self.repo._context.catalog.repo_info()))
        for branch in self.repo.list_branches():
            store = self.repo.readonly_session(branch).store
            group = zarr.open_group(store, mode="r")
            state[branch] = {name: np.asarray(array).tolist() for name, array in group.arrays()}
        return state

    def newest(self) -> datetime:
        return next(self.repo.ops_log()).updated_at

    def is_open(self) -> bool:
        return bool(self.repo.status.availability.name == "online")

    def changed(self, before: dict[Any, Any], after: dict[Any, Any]) -> Changes:
        return {
            name: (before.get(name), after.get(name))
            for name in before | after
            if isinstance(name, tuple) and before.get(name) != after.get(name)
        }

    def after(self, before: dict[Any, Any], *, is_update: bool = True) -> None:
        """Note an update that is no undo."""
        after = self.state()
        if after != before or not is_update:
            time = self.newest()
            changes = self.changed(before, after)
            done = Done(time, changes, time, dict(changes))
            self.every.append(done)
            self.current.append(done)
            self.states.append((time, after))

    def check(self) -> None:
        """The last state is that of the model, and users see their metadata alone."""
        state = self.states[-1][1]
        assert self.state() == state
        users = {name: value[0] for (part, name), value in self.fields(state) if part is StateField.METADATA}
        assert self.repo.get_metadata() == users
        record = self.repo._context.catalog.repo_info().metadata.get(UNDO, {})
        assert len(json.dumps(record)) < 1024

    def fields(self, state: dict[Any, Any]) -> list[Any]:
        return [each for each in state.items() if isinstance(each[0], tuple)]

    def is_possible(self, changes: Changes) -> bool:
        """Whether all fields have the first value, so that the second one can replace it."""
        state = self.states[-1][1]
        tags = [
            name for name, (before, after) in changes.items() if name[0] is StateField.TAG and before is None
        ]
        opens = (StateField.STATUS, "") in changes
        fits = all(state.get(name) == before for name, (before, _) in changes.items())
        return fits and not tags and (opens or self.is_open())

    def refused(self, call: Any) -> None:
        with pytest.raises(REFUSALS):
            call()
        self.check()

    def take_back(self, done: Done, changes: Changes, report: Any) -> None:
        """Note that an update was undone."""
        self.check_report(done, report)
        after = self.state()
        expected = dict(self.fields(self.states[-1][1]))
        for name, (before, _) in changes.items():
            expected.pop(name, None)
            if before is not None:
                expected[name] = before
        assert dict(self.fields(after)) == expected
        undo = Done(self.newest(), self.changed(self.states[-1][1], after), done.original, is_undo=True)
        self.every.append(undo)
        self.undone.append(undo)
        self.states.append((undo.time, after))
        at = self.current.index(done) if done in self.current else -1
        if at >= 0 and not any(each.left for each in self.current[at + 1 :]):
            del self.current[at:]
            return
        for other in [each for each in self.current if each.time >= done.time]:
            had = bool(other.left)
            other.left = {name: each for name, each in other.left.items() if name not in changes}
            if had and not other.left:
                self.current.remove(other)

    def check_report(self, done: Done, report: Any) -> None:
        assert report.is_applied
        assert report.updates[0].updated_at == done.original
        self.repo = self.handles[self.number % 2]
        self.number += 1

    @rule()
    def other_handle(self) -> None:
        self.repo = self.handles[1 - self.handles.index(self.repo)]

    def branch(self, name: str) -> str:
        return name if name in self.repo.list_branches() else "main"

    @precondition(is_open)
    @rule(name=NAMES, value=NUMBERS, amends=st.booleans())
    def commit(self, name: str, value: int, amends: bool) -> None:
        before = self.state()
        session = self.repo.writable_session(self.branch(name))
        path = "a" if "a" in zarr.open_group(session.store, mode="r") else "moved"
        self.number += 1
        zarr.open_array(session.store, path=path)[value % 2] = 10 * self.number
        with contextlib.suppress(frazil.SessionStateError):  # a commit that moved nodes
            (session.amend if amends else session.commit)(f"commit {self.number}")
        self.after(before)

    @precondition(is_open)
    @rule(name=NAMES)
    def move(self, name: str) -> None:
        before = self.state()
        session = self.repo.rearrange_session(self.branch(name))
        paths = ("/a", "/moved") if "a" in zarr.open_group(session.store, mode="r") else ("/moved", "/a")
        session.move(*paths)
        session.commit("move")
        self.after(before)

    @precondition(is_open)
    @rule(name=NAMES)
    def flush(self, name: str) -> None:
        session = self.repo.writable_session(self.branch(name))
        zarr.create_group(session.store, path="flushed")
        session.flush("no branch")

    @precondition(is_open)
    @rule(name=NAMES, steps=st.integers(0, 3))
    def reset(self, name: str, steps: int) -> None:
        before = self.state()
        history = list(self.repo.ancestry(branch=self.branch(name)))[:-1]
        target = history[min(steps, len(history) - 1)]
        if target is not history[0]:
            self.repo.reset_branch(self.branch(name), target.id)
        self.after(before)

    @precondition(is_open)
    @rule(source=NAMES, into=NAMES)
    def merge(self, source: str, into: str) -> None:
        before = self.state()
        with contextlib.suppress(frazil.ConflictError):
            self.repo.merge(self.branch(source), self.branch(into))
        self.after(before)

    @precondition(is_open)
    @rule(name=NAMES, source=NAMES)
    def create_or_delete_branch(self, name: str, source: str) -> None:
        before = self.state()
        if name not in self.repo.list_branches():
            self.repo.create_branch(name, self.branch(source))
        elif name != "main":
            self.repo.delete_branch(name)
        self.after(before)

    @precondition(is_open)
    @rule()
    def tag(self) -> None:
        before = self.state()
        self.number += 1
        self.repo.create_tag(f"tag {self.number}", "main")
        self.after(before)

    @precondition(is_open)
    @rule(value=NUMBERS)
    def configure(self, value: int) -> None:
        before = self.state()
        self.repo.reconfigure(frazil.RepositoryConfig(inline_chunk_threshold_bytes=value))
        self.number += 1
        self.repo.reconfigure(frazil.RepositoryConfig(get_partial_values_concurrency=self.number))
        self.repo.save_config()
        self.after(before)

    @precondition(is_open)
    @rule(key=st.sampled_from("xyz"), value=st.none() | NUMBERS | st.lists(NUMBERS, max_size=2))
    def metadata(self, key: str, value: Any) -> None:
        before = self.state()
        self.number += 1
        self.repo.update_metadata({key: [value, self.number]})
        self.after(before)

    @precondition(is_open)
    @rule(setting=st.sampled_from([True, False]))
    def flag(self, setting: bool) -> None:
        before = self.state()
        flags = {flag.name: flag.setting for flag in self.repo.feature_flags()}
        if flags["delete_tag"] is None and flags["create_tag"] != setting and setting:
            self.repo.set_feature_flag("create_tag", setting)
        self.after(before)

    @rule(reason=st.sampled_from(["one", "two"]))
    def status(self, reason: str) -> None:
        before = self.state()
        availability = frazil.RepoAvailability.read_only
        self.number += 1
        if not self.is_open():
            availability = frazil.RepoAvailability.online
        self.repo.set_status(frazil.RepoStatus(availability, None, f"{reason} {self.number}"))
        self.after(before)

    @precondition(is_open)
    @rule()
    def nothing(self) -> None:
        before = self.state()
        self.repo.set_metadata(self.repo.get_metadata())
        self.after(before, is_update=False)

    @precondition(is_open)
    @rule(value=NUMBERS)
    def foreign_metadata(self, value: int) -> None:
        """Another implementation replaces all items, and so removes the record."""
        before = self.state()
        self.number += 1
        new = {"x": [value, self.number]}
        self.repo._context.catalog.update_repo_info(repo_changes.set_metadata(lambda _: new))
        self.after(before)
        self.undone = []

    @precondition(lambda self: any(each.left for each in self.current))
    @rule(by_plan=st.booleans())
    def undo(self, by_plan: bool) -> None:
        done = [each for each in self.current if each.left][-1]
        by_plan = by_plan or done is self.current[-1]

        def call() -> Any:
            plan = self.repo.history.undo() if by_plan else self.repo.history.undo(update=done.time)
            assert not by_plan or done is self.current[-1] or "changed nothing" in plan.notes[0]
            return plan.apply()

        if not by_plan and not self.is_possible(inverse(done.changes)):
            self.refused(call)
            return
        if not self.is_possible(inverse(done.left)):
            self.refused(call)
            return
        self.take_back(done, done.left, call())
        self.check()

    @precondition(is_open)
    @rule(name=NAMES)
    def undo_of_a_branch(self, name: str) -> None:
        every = [each for each in self.current if (StateField.BRANCH, name) in each.left]
        if not every:
            return
        done, state = every[-1], self.states[-1][1]
        # Other fields of the update may have changed since: they stay.
        left = {key: change for key, change in done.left.items() if state.get(key) == change[1]}
        if not self.is_possible(inverse(left)):
            self.refused(lambda: self.repo.history.undo(branch=name).apply())
            return
        self.take_back(done, left, self.repo.history.undo(branch=name).apply())
        self.check()

    @precondition(lambda self: self.every)
    @rule(data=st.data())
    def undo_of_any_update(self, data: st.DataObject) -> None:
        done = data.draw(st.sampled_from(self.every))
        if done.is_undo or not done.changes or not self.is_possible(inverse(done.changes)):
            self.refused(lambda: self.repo.history.undo(update=done.time).apply())
            return
        self.take_back(done, done.changes, self.repo.history.undo(update=done.time).apply())
        self.check()

    @rule()
    def redo(self) -> None:
        if not self.undone or not self.is_possible(inverse(self.undone[-1].changes)):
            self.refused(lambda: self.repo.history.redo().apply())
            return
        before = self.states[-1][1]
        undone = self.undone.pop()
        report = self.repo.history.redo().apply()
        expected = dict(self.fields(before))
        for name, (_, value) in inverse(undone.changes).items():
            expected.pop(name, None)
            if value is not None:
                expected[name] = value
        self.after(before)
        assert dict(self.fields(self.states[-1][1])) == expected
        self.current[-1].original = undone.original
        self.check_report(undone, report)
        self.check()

    @precondition(lambda self: self.is_open())
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        time, state = data.draw(st.sampled_from(self.states))
        before = self.states[-1][1]
        changes = self.changed(before, state)
        if not self.is_possible(changes):
            self.refused(lambda: self.repo.history.restore_to(time).apply())
            return
        self.repo.history.restore_to(time).apply()
        self.after(before)
        assert dict(self.fields(self.state())) == dict(self.fields(state))
        self.check()

    def teardown(self) -> None:
        if not hasattr(self, "states"):
            return
        while any(each.left for each in self.current):
            before = len(self.current)
            self.undo(by_plan=True)
            if len(self.current) == before:
                break  # refused
        assert self.repo.upkeep.verify().ok


class TestUndoing(Undoing.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)

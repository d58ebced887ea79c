"""Every kind of update, in any order, with undo and redo in between; then everything is undone.

The state of branches, configuration, metadata, flags and status is compared with the states before, and the
values that a reader gets with those before. Tags are the exception: their creation is undone for good, and
their deletion never, so the machine deletes none.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.examples import examples

import frazil
from frazil.repository.history.repo_state import fields_of

pytestmark = pytest.mark.deep

NAMES = st.sampled_from(["main", "b", "c"])
NUMBERS = st.integers(0, 9)


class Undoing(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        # A short log, so that undo also reads older parts.
        config = frazil.RepositoryConfig(num_updates_per_repo_info_file=5)
        self.repo = frazil.Repository.create(frazil.in_memory_storage()).reopen(config)
        with self.repo.transaction("main", message="start") as store:
            zarr.create_array(store, name="a", shape=(2,), chunks=(1,), dtype="i4")[:] = 7
        self.first = next(self.repo.ops_log()).updated_at
        #: The states before each update that can be undone, and those of the undone updates.
        self.states: list[dict[Any, Any]] = []
        self.later: list[dict[Any, Any]] = []
        self.number = 0

    def state(self) -> dict[Any, Any]:
        """All fields except tags, and the values of each branch."""
        fields = fields_of(self.repo._context.catalog.repo_info())
        state: dict[Any, Any] = {field: value for field, value in fields.items() if field[0] != "tag"}
        for branch in self.repo.list_branches():
            store = self.repo.readonly_session(branch).store
            group = zarr.open_group(store, mode="r")
            state[branch] = {name: array[:].tolist() for name, array in group.arrays()}
        return state

    def is_open(self) -> bool:
        return bool(self.repo.status.availability.name == "online")

    def after(self, before: dict[Any, Any]) -> None:
        if self.state() != before:
            self.states.append(before)
            self.later = []

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
        self.repo.reset_branch(self.branch(name), history[min(steps, len(history) - 1)].id)
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
        self.number += 1
        self.repo.create_tag(f"tag {self.number}", "main")
        self.repo.undo()

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

    @precondition(lambda self: self.states)
    @rule()
    def undo(self) -> None:
        now = self.state()
        self.repo.undo()
        assert self.state() == self.states[-1]
        self.states.pop()
        self.later.append(now)

    @precondition(lambda self: self.later)
    @rule()
    def redo(self) -> None:
        now = self.state()
        self.repo.redo()
        assert self.state() == self.later[-1]
        self.later.pop()
        self.states.append(now)

    @rule()
    def restore(self) -> None:
        before = self.state()
        self.repo.restore_to(self.first)
        self.after(before)

    def teardown(self) -> None:
        if not hasattr(self, "states"):
            return
        while self.states:
            self.undo()
        assert self.repo.verify().ok


class TestUndoing(Undoing.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(max_examples=examples(10), stateful_step_count=20, deadline=None)

"""Withdrawals, a view and a collection, between writes of both implementations, in any order.

A model has the elements of each commit, by its message. After each step, no file of the repository has a
withdrawn element, both implementations read the tips of all branches and the view, and the collection finds
its members. After each withdrawal, both implementations read all elements of all versions.

An element behind the end of an array that was made shorter may come back or not, if the array grows again:
its chunk can be at the edge. The model names such elements ``doubtful``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.maintenance.withdrawal.test_withdrawal import SECRET, decoded, secret
from tests.support.examples import examples
from tests.support.judge import reference, reference_storage

import frazil
from frazil.errors import NodeNotFoundError, RebaseFailedError
from frazil.pipeline import ViewSummary, view_repository

pytestmark = pytest.mark.deep

SIZE, LONGEST = 12, 20
NAMES = st.sampled_from(["main", "dev"])
PATHS = st.sampled_from(["a", "b"])
STARTS = st.integers(0, LONGEST - 1)
LENGTHS = st.integers(1, SIZE)
_HIGH = re.compile(rb"(?s)(?=(....)" + re.escape((SECRET >> 32).to_bytes(4, "little")) + rb")")
_IN_FILE: dict[bytes, frozenset[int]] = {}


def numbers_in(folder: Path) -> dict[int, str]:
    """The numbers of the secret elements in all files below a folder, each with a file that has it."""
    found: dict[int, str] = {}
    for file in filter(Path.is_file, folder.rglob("*")):
        data = file.read_bytes()
        if data not in _IN_FILE:
            parts = (each[1] for part in decoded(data) for each in _HIGH.finditer(part))
            _IN_FILE[data] = frozenset(int.from_bytes(each, "little") for each in parts)
        found |= dict.fromkeys(_IN_FILE[data], str(file))
    return found


@dataclass(frozen=True)
class Content:
    """An array of one version, with all positions that it may ever have."""

    length: int = SIZE
    values: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(LONGEST, "i8"))
    doubtful: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(LONGEST, "?"))

    def written(self, start: int, values: Any) -> Content:
        at = np.arange(LONGEST) - start
        own = (at >= 0) & (at < len(values))
        new = np.where(own, np.resize(values, LONGEST)[at % len(values)], self.values)
        return replace(self, values=new, doubtful=self.doubtful & ~own)

    def resized(self, length: int, chunk: int) -> Content:
        stored = np.arange(LONGEST) < -(-length // chunk) * chunk
        behind = (np.arange(LONGEST) >= length) & (self.values != 0) & stored
        values = np.where(stored, self.values, 0)
        return Content(length, values, stored & (self.doubtful | behind))

    def merged(self, other: Content, base: Content) -> Content:
        length = other.length if self.length == base.length else self.length
        values = np.where(self.values == base.values, other.values, self.values)
        return Content(length, values, self.doubtful | other.doubtful | base.doubtful)

    def check(self, found: Any, low: int = 0) -> None:
        part = slice(low, low + len(found))
        wanted = np.where(self.doubtful[part] & (found == 0), 0, self.values[part])
        np.testing.assert_array_equal(found, wanted)


@dataclass(frozen=True)
class State:
    """What a commit has: arrays, and members of the collection with their cloud cover and elements."""

    arrays: dict[str, Content]
    members: dict[str, tuple[int, np.ndarray[Any, Any]]] = field(default_factory=dict)

    def merged(self, other: State, base: State) -> State:
        names = [
            name
            for name in {**other.members, **self.members}
            if (name in self.members) + (name in other.members) > (name in base.members)
        ]
        arrays = {path: self.arrays[path].merged(other.arrays[path], base.arrays[path]) for path in "ab"}
        return State(arrays, {name: {**other.members, **self.members}[name] for name in names})


@dataclass
class Shared:
    """A view: its folder, and the box of its array."""

    folder: Path
    path: str
    low: int
    high: int
    options: dict[str, Any]
    made: ViewSummary | None = None
    content: Content = field(default_factory=Content)
    positions: set[int] = field(default_factory=set)


class Withdrawing(RuleBasedStateMachine):
    steps = 0

    @initialize(inline=st.sampled_from([0, 40]), packs=st.booleans(), chunk=st.sampled_from([3, 5]))
    def start(self, inline: int, packs: bool, chunk: int) -> None:
        zarr.config.set({"array.rectilinear_chunks": True})
        self.folder = tempfile.TemporaryDirectory()
        self.path, self.chunk = Path(self.folder.name) / "archive", chunk
        self.config = frazil.RepositoryConfig(
            inline_chunk_threshold_bytes=inline, packing=frazil.PackingConfig(enabled=packs)
        )
        self.storage = frazil.local_filesystem_storage(str(self.path), flush=False)
        self.repo = frazil.Repository.create(self.storage, self.config)
        self.number = self.views = 0
        self.writes: list[tuple[str, int, int]] = []  # path, position, number of the secret element
        self.gone: set[int] = set()
        self.shared: Shared | None = None
        session = self.repo.writable_session("main")
        for path in ("a", "b"):
            self.create(session, path)
        frazil.Collection.create(session, "scenes", schema={"columns": {"cloud": "int64"}})
        session.commit("0")
        self.states = {"0": State({"a": Content(), "b": Content()})}
        self.parents: dict[str, tuple[str, ...]] = {"0": ()}
        self.branches, self.tags = {"main": "0", "dev": "0"}, dict[str, str]()
        self.repo.create_branch("dev", self.repo.lookup_branch("main"))

    def create(self, session: Any, path: str) -> None:
        zarr.create_array(
            session.store,
            name=path,
            shape=(SIZE,),
            chunks=(self.chunk,),
            dtype="i8",
            compressors=None,
            dimension_names=[path * 2],
            attributes={"frazil_statistics": path == "a"},
            overwrite=True,
        )

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    # ---- both implementations

    def repository(self, by_reference: bool) -> Any:
        if by_reference:
            return reference().Repository.open(reference_storage(self.path))
        return self.repo

    def committed(self, branch: str, message: str, state: State, *other: str) -> None:
        self.parents[message] = (self.branches[branch], *other)
        self.states[message] = state
        self.branches[branch] = message

    def tip(self, branch: str) -> State:
        return self.states[self.branches[branch]]

    def secrets(self, path: str, start: int, count: int) -> np.ndarray[Any, Any]:
        new = secret(count, self.number + 1)
        self.writes += [(path, start + at, self.number + 1 + at) for at in range(count)]
        self.number += count
        return new

    @rule(branch=NAMES, path=PATHS, start=STARTS, length=LENGTHS, by_reference=st.booleans())
    def write(self, branch: str, path: str, start: int, length: int, by_reference: bool) -> None:
        state, message = self.tip(branch), str(len(self.states))
        content = state.arrays[path]
        start %= content.length
        new = self.secrets(path, start, min(length, content.length - start))
        session = self.repository(by_reference).writable_session(branch)
        zarr.open_array(session.store, path=path)[start : start + len(new)] = new
        session.commit(message)
        arrays = {**state.arrays, path: content.written(start, new)}
        self.committed(branch, message, replace(state, arrays=arrays))

    @rule(branch=NAMES, path=PATHS, length=st.integers(1, LONGEST), by_reference=st.booleans())
    def resize(self, branch: str, path: str, length: int, by_reference: bool) -> None:
        state, message = self.tip(branch), str(len(self.states))
        session = self.repository(by_reference).writable_session(branch)
        zarr.open_array(session.store, path=path).resize((length,))
        session.commit(message, allow_empty=True)
        arrays = {**state.arrays, path: state.arrays[path].resized(length, self.chunk)}
        self.committed(branch, message, replace(state, arrays=arrays))

    @rule(branch=NAMES, path=PATHS, by_reference=st.booleans())
    def create_again(self, branch: str, path: str, by_reference: bool) -> None:
        """Replace an array by another one of this name, which has no element of the first one."""
        state, message = self.tip(branch), str(len(self.states))
        session = self.repository(by_reference).writable_session(branch)
        self.create(session, path)
        session.commit(message)
        self.committed(branch, message, replace(state, arrays={**state.arrays, path: Content()}))

    @rule(branch=NAMES, by_reference=st.booleans())
    def tag(self, branch: str, by_reference: bool) -> None:
        name = f"v{len(self.tags)}"
        repo = self.repository(by_reference)
        repo.create_tag(name, repo.lookup_branch(branch))
        self.tags[name] = self.branches[branch]

    @rule(branch=NAMES, to=NAMES, by_reference=st.booleans())
    def reset(self, branch: str, to: str, by_reference: bool) -> None:
        repo = self.repository(by_reference)
        repo.reset_branch(branch, repo.lookup_branch(to))
        self.branches[branch] = self.branches[to]

    @rule(into=NAMES, by_element=st.booleans())
    def merge(self, into: str, by_element: bool) -> None:
        source, message = "dev" if into == "main" else "main", str(len(self.states))
        ours, theirs = self.tip(source), self.tip(into)
        solver = frazil.ElementSolver() if by_element else self.collection(into).solver
        base = self.base(source, into)
        try:
            self.repo.merge(source, into, solver=solver, message=message)
        except (RebaseFailedError, frazil.errors.SessionStateError):
            return
        found = next(iter(self.repo.ancestry(branch=into))).message
        if found != message:  # there was nothing to merge, or the branch has moved
            assert found in {self.branches[source], self.branches[into]}
            self.branches[into] = found
        elif base is not None:
            self.committed(into, message, ours.merged(theirs, self.states[base]), self.branches[source])

    def base(self, one: str, two: str) -> str | None:
        """The newest version in the histories of two branches."""
        histories = []
        for name in (one, two):
            todo, seen = [self.branches[name]], set[str]()
            while todo:
                message = todo.pop()
                seen.add(message)
                todo += self.parents[message]
            histories.append(seen)
        newest_last = {message: number for number, message in enumerate(self.parents)}
        return max(histories[0] & histories[1], key=newest_last.__getitem__, default=None)

    @rule(by_reference=st.booleans())
    def expire(self, by_reference: bool) -> None:
        self.repository(by_reference).expire_snapshots(datetime.now(UTC))

    @rule(by_reference=st.booleans())
    def collect(self, by_reference: bool) -> None:
        self.repository(by_reference).garbage_collect(datetime.now(UTC) + timedelta(days=1))

    @rule()
    def compact(self) -> None:
        message = str(len(self.states))
        self.repo.upkeep.compact(message, branch="main").apply()
        if next(iter(self.repo.ancestry(branch="main"))).message == message:
            self.committed("main", message, self.tip("main"))

    # ---- the collection

    def collection(self, branch: str) -> frazil.Collection:
        return frazil.Collection(self.repo, "scenes", branch=branch)

    @rule(branch=NAMES, cloud=st.integers(0, 9), by_reference=st.booleans())
    def add_member(self, branch: str, cloud: int, by_reference: bool) -> None:
        state, message = self.tip(branch), str(len(self.states))
        name = f"m{message}"
        values = self.secrets(f"scenes/{name}", 0, 4)
        dataset = xr.Dataset({"red": ("k", values)})
        if by_reference:
            session = self.repository(True).writable_session(branch)
            dataset.to_zarr(session.store, group=f"scenes/{name}", zarr_format=3, consolidated=False)
            session.commit(f"{message} group")
            row: dict[str, Any] = {"member": [name], "cloud": [cloud]}
            self.collection(branch).add_rows(row, message=message)
            self.parents[f"{message} group"] = (self.branches[branch],)
            self.branches[branch] = f"{message} group"
            self.states[f"{message} group"] = state
        else:
            self.collection(branch).add(dataset, name=name, cloud=cloud, message=message)
        self.committed(branch, message, replace(state, members={**state.members, name: (cloud, values)}))

    @precondition(lambda self: any(self.tip(branch).members for branch in self.branches))
    @rule(branch=NAMES, pick=STARTS)
    def remove_member(self, branch: str, pick: int) -> None:
        state, message = self.tip(branch), str(len(self.states))
        if state.members:
            members = dict(state.members)
            name = sorted(members)[pick % len(members)]
            del members[name]
            self.collection(branch).remove(name, message=message)
            self.committed(branch, message, replace(state, members=members))

    @rule(branch=NAMES, limit=st.integers(0, 10))
    def search(self, branch: str, limit: int) -> None:
        members = self.tip(branch).members
        wanted = sorted(name for name, (cloud, _) in members.items() if cloud < limit)
        assert sorted(self.collection(branch).where(f"cloud < {limit}")) == wanted
        store = self.repository(True).readonly_session(branch).store
        rows = xr.open_zarr(store, group="scenes/members", consolidated=False).load()
        assert sorted(rows["member"].values[rows["cloud"].values < limit].tolist()) == wanted
        assert self.collection(branch).check() == {}

    # ---- the view

    @rule(path=PATHS, low=STARTS, length=LENGTHS, rectilinear=st.booleans())
    def share(self, path: str, low: int, length: int, rectilinear: bool) -> None:
        self.views += 1
        folder = Path(self.folder.name) / f"view {self.views}"
        options = {"rectilinear": rectilinear}
        self.shared = Shared(folder, path, low % SIZE, low % SIZE + length, options)
        self.refresh()

    @precondition(lambda self: self.shared is not None)
    @rule()
    def refresh(self) -> None:
        shared = self.shared
        assert shared is not None
        content = self.tip("main").arrays[shared.path]
        if shared.low >= content.length:
            self.shared = None  # the box is empty
            return
        shared.made = view_repository(
            self.repo,
            frazil.local_filesystem_storage(str(shared.folder), flush=False),
            paths=[shared.path],
            isel={shared.path * 2: slice(shared.low, shared.high)},
            engine="inline",
            **shared.options,
        )
        shared.content = content
        shared.positions |= set(range(shared.low, shared.high))

    def view_repositories(self) -> Iterator[Any]:
        assert self.shared is not None
        assert self.shared.made is not None
        for package in (frazil, reference()):
            access = dict.fromkeys(self.shared.made.containers, package.credentials.LocalFileSystemAccess)
            storage = package.local_filesystem_storage(str(self.shared.folder))
            yield package.Repository.open(storage, authorize_virtual_chunk_access=access)

    # ---- withdrawals

    @rule(path=PATHS, start=STARTS, length=LENGTHS)
    def forget(self, path: str, start: int, length: int) -> None:
        stop = min(start + length, LONGEST)
        for message, state in self.states.items():
            content = state.arrays[path].written(start, np.zeros(stop - start, "i8"))
            self.states[message] = replace(state, arrays={**state.arrays, path: content})
        self.gone |= {number for name, at, number in self.writes if name == path and start <= at < stop}
        self.withdraw(self.repo, {path: slice(start, stop)})
        shared = self.shared
        if shared is not None and shared.path == path:
            self.refresh()
            if self.shared is not None and start < shared.high and stop > shared.low:
                view, _ = self.view_repositories()
                self.withdraw(view, {path: slice(max(start - shared.low, 0), stop - shared.low)})

    @precondition(lambda self: any(name.startswith("scenes") for name, _, _ in self.writes))
    @rule(pick=STARTS, follow=st.booleans())
    def forget_member(self, pick: int, follow: bool) -> None:
        names = sorted({name for name, _, _ in self.writes if name.startswith("scenes")})
        path = names[pick % len(names)]
        name = path.removeprefix("scenes/")
        for state in self.states.values():
            if name in state.members:
                state.members[name] = (state.members[name][0], np.zeros(4, "i8"))
        try:
            self.withdraw(self.repo, [path], follow=follow)
        except NodeNotFoundError:  # expired, and collected
            assert not any(name in state.members for state in self.stored_states())
            return
        self.gone |= {number for each, _, number in self.writes if each == path}

    def stored_states(self) -> Iterator[State]:
        """The states of all versions of branches and tags."""
        refs = [{"branch": name} for name in self.branches] + [
            {"tag": name} for name in self.repo.list_tags()
        ]
        messages = {each.message for ref in refs for each in self.repo.ancestry(**ref)}
        return (state for message, state in self.states.items() if message in messages)

    def withdraw(self, repo: frazil.Repository, what: Any, **options: Any) -> None:
        certificate = repo.upkeep.forget(what, **options).apply()
        if not certificate.ok:
            assert all("collect garbage" in text for text in certificate.left), certificate.left
            repo.garbage_collect(datetime.now(UTC) + timedelta(days=1))
            assert repo.upkeep.certificates()[-1].ok
        report = repo.upkeep.verify(level="checksum")
        assert report.ok, str(report)
        if repo is self.repo:
            for by_reference in (False, True):
                self.read(self.repository(by_reference), all_versions=True)

    # ---- what is always right

    @invariant()
    def nothing_is_left(self) -> None:
        if not hasattr(self, "states"):
            return
        type(self).steps += 1
        for by_reference in (False, True):
            self.read(self.repository(by_reference), all_versions=False)
        found = numbers_in(self.path)
        assert not self.gone & found.keys(), {found[each] for each in self.gone & found.keys()}
        shared = self.shared
        if shared is not None:
            found = numbers_in(shared.folder)
            own = {
                number for name, at, number in self.writes if name == shared.path and at in shared.positions
            } - self.gone
            # Compressed bytes may look like other numbers.
            wrong = (found.keys() & {number for _, _, number in self.writes}) - own
            where = [each for each in self.writes if each[2] in wrong]
            assert not wrong, (shared, where, wrong & self.gone, {found[each] for each in wrong})
            for view in self.view_repositories():
                array = zarr.open_array(view.readonly_session("main").store, path=shared.path, mode="r")
                assert array.shape == (min(shared.high, shared.content.length) - shared.low,)
                shared.content.check(array[...], shared.low)

    def read(self, repo: Any, *, all_versions: bool) -> None:
        branches = {name: next(iter(repo.ancestry(branch=name))) for name in repo.list_branches()}
        tags = {name: next(iter(repo.ancestry(tag=name))) for name in repo.list_tags()}
        tags = {name: each for name, each in tags.items() if not name.startswith("view.")}
        assert {name: each.message for name, each in branches.items()} == self.branches
        assert {name: each.message for name, each in tags.items()} == self.tags
        read = {each.id: each for each in branches.values()}
        if all_versions:
            refs = [{"branch": name} for name in branches] + [{"tag": name} for name in repo.list_tags()]
            read = {each.id: each for ref in refs for each in repo.ancestry(**ref)}
        for id_, each in read.items():
            state = self.states.get(each.message)
            if state is not None and not each.message.endswith("group"):
                group: Any = zarr.open_group(repo.readonly_session(snapshot_id=id_).store, mode="r")
                for path, content in state.arrays.items():
                    assert group[path].shape == (content.length,)
                    content.check(group[path][...])
                assert {*group["scenes"].group_keys()} == {"members", *state.members}
                for name, (_, values) in state.members.items():
                    np.testing.assert_array_equal(group[f"scenes/{name}/red"][...], values)


Withdrawing.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=14)
TestWithdrawing = Withdrawing.TestCase

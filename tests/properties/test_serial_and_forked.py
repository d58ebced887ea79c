"""One session alone, and the same work dealt to forks in other processes and merged: the result is the same.

Work goes in rounds. In a round the session has some forks, and forks of these; each piece of work goes to the
one that has the thing in hand already, else to anybody, the session itself included. At the end of the round
all come back, in any order and any groups, each through a pickle. Both repositories commit now and then.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.support.examples import examples
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import frazil

IS_DEEP = settings.get_current_profile_name() == "fuzz"
pytestmark = pytest.mark.timeout(7200 if IS_DEEP else 600)

ARRAYS = ("a", "b", "g/a", "g/h/c")
SIDE, CHUNK = 4, 2  # chunks along each of two dimensions, and their length
FILL = -1
ARRAY: dict[str, Any] = {
    "shape": (SIDE * CHUNK,) * 2,
    "chunks": (CHUNK,) * 2,
    "dtype": "i4",
    "fill_value": FILL,
}

numbers = st.integers(0, 99)


def content(repo: frazil.Repository) -> tuple[dict[str, bytes], dict[str, Any], dict[str, list[list[int]]]]:
    """Documents, values, and which chunks there are, by path."""
    session = repo.readonly_session("main")
    prototype = default_buffer_prototype()

    async def documents() -> dict[str, bytes]:
        keys = [key async for key in session.store.list() if key.endswith("zarr.json")]
        found = [(key, await session.store.get(key, prototype)) for key in keys]
        return {key: buffer.to_bytes() for key, buffer in found if buffer is not None}

    stored = sync(documents())
    arrays = [key.removesuffix("/zarr.json") for key, text in stored.items() if b'"array"' in text]
    values = {
        path: np.asarray(zarr.open_array(session.store, path=path, mode="r")).tolist() for path in arrays
    }
    chunks = {path: session.chunk_table(f"/{path}").index.tolist() for path in arrays}
    return stored, values, chunks


def diff_of(repo: frazil.Repository) -> dict[str, Any]:
    newest, before, *_ = repo.ancestry(branch="main")
    diff = repo.diff(from_snapshot_id=before.id, to_snapshot_id=newest.id)
    names = [name for name in dir(diff) if name.partition("_")[0] in {"new", "deleted", "updated"}]
    return {name: getattr(diff, name) for name in names}


class SerialAndForked(RuleBasedStateMachine):
    @initialize(inline=st.booleans())
    def start(self, inline: bool) -> None:
        config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=512 if inline else 0)
        self.repos = [frazil.Repository.create(frazil.in_memory_storage(), config) for _ in range(2)]
        for repo in self.repos:
            with repo.transaction("main", message="root") as store:
                zarr.create_group(store)
        self.number = 0
        self.begin()

    def begin(self) -> None:
        self.serial, self.session = (repo.writable_session("main") for repo in self.repos)
        self.workers: list[frazil.Session] = [self.session]
        self.parents: list[int] = [0]
        self.in_hand: dict[tuple[Any, ...], int] = {}

    # Who does it

    def worker(self, pick: int, mine: tuple[Any, ...], others: Iterable[tuple[Any, ...]] = ()) -> int | None:
        """Who has ``mine`` or one of ``others``, or anybody; nobody if several have."""
        having = {self.in_hand[key] for key in (mine, *others) if key in self.in_hand}
        if len(having) > 1:
            return None
        chosen = having.pop() if having else pick % len(self.workers)
        self.in_hand[mine] = chosen
        return chosen

    def touching(self, path: str) -> list[tuple[Any, ...]]:
        """Everything in hand at or below a path, and groups above it."""
        return [
            key
            for key in self.in_hand
            if key[1] == path or key[1].startswith(path + "/") or path.startswith(key[1] + "/")
        ]

    def exists(self, path: str) -> bool:
        return self.serial.workspace.node(f"/{path}") is not None

    def act(self, pick: int, kind: str, path: str, change: Callable[[Any], object], *at: object) -> None:
        """Let the session that works alone and a worker make a change, unless several workers have a part."""
        structure = {"node", "gone"} if kind in {"chunk", "meta"} else {"node", "gone", "chunk", "meta"}
        others = [key for key in self.touching(path) if key[0] in structure]
        worker = self.worker(pick, (kind, path, *at), others)
        if worker is not None:
            for session in (self.serial, self.workers[worker]):
                change(zarr.open_group(session.store, mode="r+"))

    # Work

    @rule(path=st.sampled_from(ARRAYS), pick=numbers)
    def create(self, path: str, pick: int) -> None:
        if not self.exists(path):
            self.act(pick, "node", path, lambda root: root.create_array(path, **ARRAY))

    @rule(
        path=st.sampled_from(ARRAYS),
        pick=numbers,
        at=st.tuples(st.integers(0, 3), st.integers(0, 3)),
        value=st.sampled_from([FILL, 1, 2, 3]),
    )
    def write(self, path: str, pick: int, at: tuple[int, int], value: int) -> None:
        """A part of a chunk, or by the fill value all of it: that deletes the chunk."""
        where = tuple(slice(CHUNK * n, CHUNK * n + (CHUNK if value == FILL else 1)) for n in at)

        def change(root: Any) -> None:
            if all(n.start < size for n, size in zip(where, root[path].shape, strict=True)):
                root[path][where] = value

        if self.exists(path):
            self.act(pick, "chunk", path, change, at)

    @rule(path=st.sampled_from(ARRAYS), pick=numbers, value=st.integers(0, 3))
    def attribute(self, path: str, pick: int, value: int) -> None:
        if self.exists(path):
            self.act(pick, "meta", path, lambda root: root[path].attrs.update(k=value))

    @rule(path=st.sampled_from(ARRAYS), pick=numbers, rows=st.integers(0, SIDE + 1))
    def resize(self, path: str, pick: int, rows: int) -> None:
        if self.exists(path):
            self.act(pick, "node", path, lambda root: root[path].resize((rows * CHUNK, SIDE * CHUNK)))

    @rule(path=st.sampled_from([*ARRAYS, "g", "g/h"]), pick=numbers)
    def delete(self, path: str, pick: int) -> None:
        if self.exists(path):
            self.act(pick, "gone", path, lambda root: root.__delitem__(path))

    # Forks

    @precondition(lambda self: len(self.workers) < 6)
    @rule(of=numbers, travels=st.booleans())
    def fork(self, of: int, travels: bool) -> None:
        """Of the session or of another fork, which may have changed something already."""
        parent = of % len(self.workers)
        fork = self.workers[parent].fork()
        self.workers.append(pickle.loads(pickle.dumps(fork)) if travels else fork)
        self.parents.append(parent)
        # What was in hand before, the new one has seen; nobody else has seen what it will do.

    @precondition(lambda self: len(self.workers) > 1)
    @rule(at_once=st.booleans(), backwards=st.booleans())
    def merge(self, at_once: bool, backwards: bool) -> None:
        """All come back, the youngest to its parent first."""
        for parent in reversed(range(len(self.workers))):
            back = [number for number, above in enumerate(self.parents) if above == parent and number]
            forks: list[Any] = [pickle.loads(pickle.dumps(self.workers[number])) for number in back]
            if backwards:
                forks.reverse()
            if at_once and forks:
                self.workers[parent].merge(*forks)
            else:
                for fork in forks:
                    self.workers[parent].merge(fork)
        del self.workers[1:], self.parents[1:]
        self.in_hand.clear()

    @rule(at_once=st.booleans(), backwards=st.booleans())
    def commit(self, at_once: bool, backwards: bool) -> None:
        if len(self.workers) > 1:
            self.merge(at_once, backwards)
        self.number += 1
        message = f"commit {self.number}"
        assert self.serial.has_uncommitted_changes == self.session.has_uncommitted_changes
        assert repr(self.serial.status()) == repr(self.session.status())
        self.serial.commit(message, allow_empty=True)
        self.session.commit(message, allow_empty=True)
        assert content(self.repos[0]) == content(self.repos[1])
        assert diff_of(self.repos[0]) == diff_of(self.repos[1])
        self.begin()

    def teardown(self) -> None:
        if hasattr(self, "workers"):
            self.commit(True, False)


TestSerialAndForked = SerialAndForked.TestCase
TestSerialAndForked.settings = settings(
    max_examples=500 if IS_DEEP else examples(40),
    stateful_step_count=100 if IS_DEEP else 30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    deadline=None,
)

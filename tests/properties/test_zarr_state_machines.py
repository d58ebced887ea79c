"""zarr's state machines of stores and hierarchies, with commits in between."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, note, settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from hypothesis.strategies import DataObject
from tests.support.examples import examples
from tests.zarr_store.documents import GROUP, array_document
from zarr.core.buffer import cpu
from zarr.testing.stateful import SyncStoreWrapper, ZarrHierarchyStateMachine, ZarrStoreStateMachine

import frazil


class Hierarchy(ZarrHierarchyStateMachine):
    def __init__(self, storage: Any) -> None:
        self.repo = frazil.Repository.create(storage)
        super().__init__(self.repo.writable_session("main").store)

    @rule()
    def commit(self) -> None:
        session = cast("frazil.IcechunkStore", self.store).session
        if session.has_uncommitted_changes:
            session.commit("checkpoint")
            self.store = self.repo.writable_session("main").store

    @precondition(lambda self: bool(self.all_groups))
    @rule(data=st.data())
    def check_list_dir(self, data: DataObject) -> None:
        path = self.draw_directory(data).rstrip("/")
        expected = set(self._sync_iter(self.model.list_dir(path)))
        if path in self.all_arrays:
            expected.add("c")  # chunks or not
        assert set(self._sync_iter(self.store.list_dir(path))) == expected


ARRAYS = {"x": 1, "c": 2, "0": 0, "x/c/0": 1}
CHUNKS = st.sampled_from(sorted(ARRAYS)).flatmap(
    lambda path: st.tuples(*[st.integers(0, 3)] * ARRAYS[path]).map(
        lambda coords: "/".join([path, "c", *map(str, coords)])
    )
)


class Values(ZarrStoreStateMachine):
    """Keys are chunks of four arrays, whose documents belong to the model as well."""

    def __init__(self, storage: Any) -> None:
        self.repo = frazil.Repository.create(storage)
        super().__init__(self.repo.writable_session("main").store)

    @initialize()
    def init_store(self) -> None:
        self.store.clear()

    @rule(key=CHUNKS, data=st.binary(min_size=1, max_size=700))
    def set(self, key: str, data: bytes) -> None:
        path = max((path for path in ARRAYS if key.startswith(f"{path}/c")), key=len)
        for name, document in (("zarr.json", GROUP), (f"{path}/zarr.json", array_document(ARRAYS[path]))):
            if name not in self.model:
                self.model[name] = cpu.Buffer.from_bytes(document)
                self.store.set(name, self.model[name])
        note(f"set {key!r}")
        self.model[key] = cpu.Buffer.from_bytes(data)
        self.store.set(key, self.model[key])

    @rule(key=CHUNKS)
    def get_invalid_zarr_keys(self, key: str) -> None:
        assume(key not in self.model)
        assert self.store.get(key, self.prototype) is None

    @rule(key=CHUNKS)
    def exists(self, key: str) -> None:
        assert self.store.exists(key) == (key in self.model)

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data())
    def delete(self, data: DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        note(f"delete {key!r}")
        self.store.delete(key)
        below = key.removesuffix("zarr.json") if key.endswith("zarr.json") else None
        for other in list(self.model):
            if other == key or (below is not None and other.startswith(below)):
                del self.model[other]

    @precondition(lambda self: bool(self.model))
    @rule(data=st.data())
    def delete_dir(self, data: DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        parts = key.split("/")
        prefix = "/".join(parts[: data.draw(st.integers(1, len(parts)))])
        assume(not prefix.endswith("zarr.json"))
        note(f"delete_dir {prefix!r}")
        self.store._sync(self.store.store.delete_dir(prefix))
        for other in list(self.model):
            if other == prefix or other.startswith(f"{prefix}/"):
                del self.model[other]

    @rule()
    def commit(self) -> None:
        session = cast("frazil.IcechunkStore", self.store.store).session
        if session.has_uncommitted_changes:
            session.commit("checkpoint")
            self.store = SyncStoreWrapper(self.repo.writable_session("main").store)


@pytest.mark.sample(1, 1)
@pytest.mark.timeout(300)  # shrinking a failure takes longer than finding it
@pytest.mark.parametrize("machine", [Hierarchy, Values])
@pytest.mark.parametrize("storage", ["memory", "local"])
def test_machine(machine: type[Hierarchy] | type[Values], storage: str, tmp_path: Path) -> None:
    numbers = count()

    def start() -> Any:
        if storage == "memory":
            return machine(frazil.in_memory_storage())
        return machine(frazil.local_filesystem_storage(str(tmp_path / str(next(numbers)))))

    run_state_machine_as_test(
        cast("Any", start),
        settings=settings(
            settings.default,
            max_examples=examples(25),
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )

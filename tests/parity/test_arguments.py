"""What both libraries do with arguments of the wrong type or value.

Each public method is called with each of ``VALUES`` for each of its parameters, on an object that no
successful call has changed, in both libraries. The results are compared: it returns, or it raises an
exception of a class. Frazil may raise a class of its own where the reference raises another one for the same
reason: ``SAME`` lists these pairs.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import zarr

import frazil

ic = pytest.importorskip("icechunk")
pytestmark = [pytest.mark.deep, pytest.mark.interop]

VALUES: tuple[Any, ...] = (
    *(None, 3, -1, 1.5, np.int64(3), "", "x", "main", b"x"),
    *([], object(), datetime(2020, 1, 1)),
)
#: Valid arguments for what a method requires.
VALID = {
    "branch": "main",
    "name": "new",
    "tag": "new",
    "message": "text",
    "path": "/a",
    "array_path": "/a",
    "key": "k",
    "value": 1,
    "metadata": {},
    "older_than": datetime(2020, 1, 1, tzinfo=UTC),
    "delete_object_older_than": datetime(2020, 1, 1, tzinfo=UTC),
}
#: What each of the two raises. The first of a pair is the reference's.
SAME = {
    # a number below zero is a typed error here
    ("OverflowError", "InvalidInputError"),
    # the reference looks for a method of what it is given
    ("AttributeError", "TypeError"),
    # a kind of error instead of none: text that is no id, or names no ref
    ("IcechunkError", "InvalidInputError"),
    ("ValueError", "InvalidInputError"),
    ("ValueError", "RefNotFoundError"),
    # four characters can begin an id
    ("InvalidInputError", "SnapshotNotFoundError"),
    ("IcechunkError", "SnapshotNotFoundError"),
    # wrong types are found first, whatever else is wrong
    ("ValueError", "TypeError"),
    ("SessionStateError", "TypeError"),
    # or another of two faults is found first
    ("TypeError", "ValueError"),
}
#: Calls in which the two differ on purpose: parameter, what the reference does, what Frazil does.
DIFFERENT = {
    # names of refs are not empty
    ("create_branch.branch", "returns", "InvalidInputError"),
    ("create_tag.tag", "returns", "InvalidInputError"),
    # a branch or tag stands for its snapshot
    ("create_branch.snapshot_id", "InvalidInputError", "AlreadyExistsError"),
    ("create_tag.snapshot_id", "InvalidInputError", "returns"),
    ("reset_branch.snapshot_id", "InvalidInputError", "returns"),
    # the type is checked when the method is called, not when the result is iterated
    ("chunk_coordinates.array_path", "returns", "TypeError"),
    ("chunk_coordinates.batch_size", "returns", "TypeError"),
    # bytes are no sequence of coordinates
    ("chunk_type.chunk_coordinates", "returns", "TypeError"),
    # None is no number of tries
    ("commit.rebase_tries", "returns", "TypeError"),
    ("commit.rebase_tries", "OverflowError", "SessionStateError"),
    ("transaction.rebase_tries", "OverflowError", "SessionStateError"),
    # the slash in front of a path may be missing
    ("get_node_id.path", "InvalidInputError", "returns"),
    ("get_node_id.path", "InvalidInputError", "NodeNotFoundError"),
    # nothing is merged into a session that cannot be written
    ("merge.others", "returns", "ReadOnlyError"),
}
#: The reference panics, and prints a stack.
PANICS = {"shift_array.chunk_offset"}
MODULES = (ic, frazil)


def _repository(module: ModuleType) -> Any:
    repo = module.Repository.create(module.in_memory_storage())
    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="a", shape=(4,), chunks=(2,), dtype="i4")
    array[:] = 1
    session.commit("first")
    repo.create_tag("t", repo.lookup_branch("main"))
    return repo


OBJECTS: dict[str, Callable[[ModuleType], Any]] = {
    "Repository": _repository,
    "Session": lambda module: _repository(module).writable_session("main"),
    "read-only Session": lambda module: _repository(module).readonly_session("main"),
    "ForkSession": lambda module: _repository(module).writable_session("main").fork(),
}


def _outcome(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = call()
            if isinstance(result, AbstractContextManager):
                with result:
                    pass
            if inspect.isgenerator(result) or hasattr(result, "__next__"):
                list(result)
        except Exception as error:
            return type(error).__name__
    return "returns"


def _methods(cls: type) -> Iterator[tuple[str, list[inspect.Parameter]]]:
    for name in dir(cls):
        # Asynchronous twins run the same code; static constructors take a storage.
        if name.startswith("_") or name.endswith("_async") or not inspect.isroutine(getattr(cls, name)):
            continue
        if isinstance(inspect.getattr_static(cls, name), classmethod | staticmethod):
            continue
        yield name, list(inspect.signature(getattr(cls, name)).parameters.values())[1:]


def _call(target: Any, method: str, parameters: list[inspect.Parameter], name: str, value: Any) -> Any:
    if any(p.name == name and p.kind is p.VAR_POSITIONAL for p in parameters):
        return getattr(target, method)(value)
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    valid = VALID | {"snapshot_id": getattr(target, "snapshot_id", None)}
    if hasattr(target, "lookup_branch"):
        valid["snapshot_id"] = target.lookup_branch("main")
    return getattr(target, method)(**{p.name: valid.get(p.name) for p in required} | {name: value})


@pytest.mark.sample(2, 2)
@pytest.mark.parametrize("kind", OBJECTS)
def test_methods_do_the_same_with_wrong_arguments(kind: str) -> None:
    make, calls, different = OBJECTS[kind], 0, []
    targets = {module: make(module) for module in MODULES}
    for method, parameters in _methods(type(targets[ic])):
        for parameter in parameters:
            at = f"{method}.{parameter.name}"
            for value in () if at in PANICS else VALUES:
                theirs, ours = (
                    _outcome(lambda: _call(targets[module], method, parameters, parameter.name, value))  # noqa: B023
                    for module in MODULES
                )
                if "returns" in (theirs, ours):  # a call that raises changes nothing
                    targets = {module: make(module) for module in MODULES}
                calls += 1
                if theirs != ours and (theirs, ours) not in SAME and (at, theirs, ours) not in DIFFERENT:
                    different.append(f"{at} = {value!r}: the reference {theirs}, Frazil {ours}")
    assert different == []
    assert calls > 100


@pytest.mark.parametrize("module", MODULES)
async def test_deprecated_methods_warn_where_they_are_called(module: ModuleType) -> None:
    repo = _repository(module)
    with pytest.warns(DeprecationWarning, match="total_chunks_storage.*chunk_storage_stats") as plain:
        number = repo.total_chunks_storage()
    with pytest.warns(DeprecationWarning, match="_async.*chunk_storage_stats_async") as awaited:
        assert await repo.total_chunks_storage_async() == number
    assert [warning.filename for warning in (*plain, *awaited)] == [__file__, __file__]

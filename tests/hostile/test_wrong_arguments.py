"""Wrong arguments change nothing: not the storage, not the session, and not the repository.

`tests/test_bad_input.py` calls every function with wrong arguments and looks at the errors. Here the state
before and after each refused call is compared: the bytes of the storage, and the changes of the session. The
callables and their parameters come from inspection.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import tests.test_bad_input as bad_input
from tests.support.examples import examples
from tests.support.tiers import deep
from tests.zarr_store.documents import GROUP, buffer

import frazil
from frazil.pipeline import Job, Progress, Target, Tasks, ingest, materialize, run_job, write_blocks

run = bad_input.run  # a fixture
#: What a call may do before it finds that an argument is wrong: waiting for a time, or taking a lease.
_FOLDERS = ("leases/",)
_OWNERS = ("Repository", "Session", "ForkSession", "IcechunkStore")
#: A few values for every change, others in the second tier, and all in `make fuzz`.
_SOME = slice(2, None, 14)
_MORE = slice(0, None, 1 if examples(1) > 1 else 9)


def _methods() -> list[str]:
    return [path for path in bad_input.TARGETS if path.partition(".")[0] in _OWNERS and "." in path]


def _bytes_of(storage: frazil.Storage) -> dict[str, bytes]:
    keys = [info.key for info in storage.list("") if not info.key.startswith(_FOLDERS)]
    return {key: bytes(storage.get(key)) for key in sorted(keys)}


def _changes_of(session: frazil.Session) -> bytes:
    return pickle.dumps(session.workspace.changes)


def _state(scene: bad_input.Scene) -> dict[str, Any]:
    return {
        "storage": _bytes_of(scene.storage),
        "session": _changes_of(scene.session),
        "fork": _changes_of(scene.fork),
        "mode": (scene.session.read_only, scene.session.branch, scene.session.snapshot_id),
        "config": repr(scene.repo.config),
        "default metadata": repr(scene.repo.default_commit_metadata()),
    }


def _wrong_calls(path: str, scene: bad_input.Scene, values: slice) -> Iterator[tuple[str, dict[str, Any]]]:
    function = bad_input._resolve(path, scene)
    parameters = bad_input._parameters(function)
    needed = [each for each in parameters if each.default is each.empty or each.name == "message"]
    for wrong in parameters:
        for value in bad_input.bad_values(wrong)[values]:
            arguments = {each.name: scene.good(each) for each in needed}
            yield f"{wrong.name}={value!r:.40}", arguments | {wrong.name: value}


@pytest.mark.sample(45, 131)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.hypothesis
@pytest.mark.parametrize("values", [_SOME, *deep(_MORE)], ids=["some", "more"])
@pytest.mark.parametrize("path", _methods())
def test_a_refused_call_changes_nothing(path: str, values: slice, run: bad_input.Run) -> None:
    scene = before = None
    changed: dict[str, list[str]] = {}
    for label, arguments in list(_wrong_calls(path, _edited_scene(), values)):
        if scene is None or before is None:
            scene = _edited_scene()
            before = _state(scene)
        try:
            bad_input._call(bad_input._resolve(path, scene), arguments, run)
        except Exception:
            after = _state(scene)
            if after != before:
                changed[label] = [name for name in before if before[name] != after[name]]
                scene = None
        else:
            scene = None  # the value is valid, or the method ignores it
    assert changed == {}


def _edited_scene() -> bad_input.Scene:
    """With uncommitted changes in the session and its fork, so that a loss is seen."""
    scene = bad_input.Scene()
    for session in (scene.session, scene.fork):
        session.store.set_sync("b/zarr.json", buffer(GROUP))
    return scene


@pytest.mark.parametrize("method", ["commit", "amend", "flush", "commit_async", "amend_async", "flush_async"])
def test_metadata_are_checked_before_the_first_write(method: str) -> None:
    scene = _edited_scene()
    writes: list[str] = []
    put = type(scene.storage).put

    def recorded(storage: frazil.Storage, key: str, *arguments: Any, **options: Any) -> Any:
        writes.append(key)
        return put(storage, key, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(scene.storage), "put", recorded)
        with pytest.raises(frazil.errors.InvalidMetadataError):
            bad_input._call(getattr(scene.session, method), {"message": "m", "metadata": {"a": math.nan}})
    assert writes == []


def test_a_fork_cannot_be_flushed_in_an_event_loop() -> None:
    scene = bad_input.Scene()
    before = _bytes_of(scene.storage)
    with pytest.raises(frazil.IcechunkError, match="a fork cannot be flushed"):
        bad_input._call(scene.fork.flush_async, {"message": "m"})
    assert _bytes_of(scene.storage) == before


def _operations(scene: bad_input.Scene) -> dict[str, Any]:
    """Operations with an argument ``progress``, for arguments that are valid except for it."""
    repo, target = scene.repo, Target(scene.repo, "main", "/mean")
    options: dict[str, Any] = {"engine": "inline"}
    work: Any = print
    job = Job("group", target, lambda session: Tasks([]), work=work, id="job")
    return {
        "run_job": partial(run_job, job, "inline"),
        "write_blocks": partial(write_blocks, scene.session, work, [], **options),
        "materialize": partial(materialize, repo, "a", to=target, **options),
        "compact": partial(repo.upkeep.compact, "m", branch="main", **options),
        "verify": partial(repo.upkeep.verify, **options),
        "garbage_collect": partial(repo.upkeep.collect, bad_input.NOW, **options),
        "ingest": partial(ingest, "nothing-*.nc", repo, **options),
    }


@pytest.mark.parametrize("name", _operations(bad_input.Scene()))
def test_an_operation_refuses_a_wrong_progress_before_it_writes(name: str) -> None:
    scene = bad_input.Scene()
    before = _state(scene)
    for progress in (1, "bar", object(), Progress):
        with pytest.raises(TypeError, match="progress must be Progress or None"):
            _operations(scene)[name](progress=progress)
        assert _state(scene) == before

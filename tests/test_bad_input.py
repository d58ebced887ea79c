"""Bad input of every kind to every public callable: what comes out is an error with our message.

The callables and their parameters are found by inspection: what is added is tested without a word here. Each
parameter in turn gets each bad value, the others are what ``GOOD`` says. Whatever is raised must be an error
of Frazil that is not "a defect", or a ``TypeError`` or ``ValueError`` that was raised on purpose: by a
``raise`` in our own code.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import math
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import frazil

UNKNOWN = "ZZZZZZZZZZZZZZZZZZZ0"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BAD: list[Any] = [
    lambda: None,
    {"a": object()},
    {"a": math.nan},
    None,
    *(0, -1, 2**70, 1.5, math.nan, math.inf, True),
    *("", "x", "main", "/", "/a", "a/c/0", "a/c/9/9", "\0", "é" * 300, "s3://b/x", UNKNOWN, "//", "../x"),
    *(b"main", [], [1, 2, 3], ["x"], [None], {}, {"a": 1}, {1: 2}, (0,), (-1, 2**40), (0.5,), set()),
    *(object(), int, len, datetime(2020, 1, 1), NOW, np.float64("nan"), np.array([1, 2]), np.array("x")),
    *(frazil.RepositoryConfig(), frazil.SessionMode.writable),
]
#: What parameters are when another one is bad, by name.
GOOD: dict[str, Any] = {
    "branch": "main",
    "tag": "v1",
    "path": "/a",
    "key": "a/c/0",
    "array_path": "/a",
    "from_path": "/a",
    "to_path": "/b",
    "chunk_coordinates": (0,),
    "chunk_offset": (1,),
    "message": "m",
    "metadata": {"a": 1},
    "name": "create_tag",
    "setting": True,
    "older_than": NOW,
    "delete_object_older_than": NOW,
    "location": "s3://bucket/key",
    "offset": 0,
    "length": 4,
    "index": [0],
    "prefix": "",
    "bucket": "bucket",
    "account": "account",
    "container": "container",
    "namespace": "n",
    "base_url": "http://127.0.0.1/x",
    "url": "s3://bucket/x",
    "url_prefix": "s3://bucket/",
    "regex": "a",
    "bearer": "b",
    "access_key_id": "a",
    "secret_access_key": "b",
    "availability": frazil.RepoAvailability.online,
    "text": "x",
    "start": 0,
    "stop": 1,
    "axis": 0,
    "dry_run": True,
}
#: Not called: they print, wait, or are made by functions only; `Storage` is a contract for implementers.
LEFT_OUT = {
    *("print_debug_info", "initialize_logs", "shutdown_telemetry", "spec_version", "user_agent"),
    *("Session", "ForkSession", "IcechunkStore", "Repository", "Storage", "ErrorKind", "AncestryGraph"),
    "Conflict.of",
}


class Scene:
    """A small repository, and what parameters are that have no good value of their own."""

    def __init__(self) -> None:
        self.storage = frazil.in_memory_storage()
        self.repo = frazil.Repository.create(self.storage)
        with self.repo.transaction("main", message="first") as store:
            group = zarr.create_group(store)
            group.create_array("a", shape=(4,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
        self.tip = self.repo.lookup_branch("main")
        self.repo.create_tag("v1", self.tip)
        self.session = self.repo.writable_session("main")
        self.fork = self.session.fork()
        self.store = self.session.store

    def good(self, parameter: inspect.Parameter) -> Any:
        special = {
            "storage": self.storage,
            "snapshot_id": self.tip,
            "from_snapshot_id": "1CECHNKREP0F1RSTCMT0",
            "value": default_buffer_prototype().buffer.from_bytes(b"1234"),
            "prototype": default_buffer_prototype(),
            "status": frazil.RepoStatus(frazil.RepoAvailability.online),
            "store": frazil.s3_store(region="r"),
            "config": frazil.S3Options(region="r"),
        }
        if parameter.name in special and parameter.default is parameter.empty:
            return special[parameter.name]
        return GOOD.get(parameter.name)


OWNERS = {
    "Repository": lambda scene: scene.repo,
    "Session": lambda scene: scene.session,
    "ForkSession": lambda scene: scene.fork,
    "IcechunkStore": lambda scene: scene.store,
    "Storage": lambda scene: scene.storage,
}
#: Of `Storage`, what users call.
USERS = {name for name in dir(frazil.Storage) if name.startswith(("new_", "list_objects"))}


def _targets() -> Iterator[str]:
    for name in frazil.__all__:
        value = getattr(frazil, name)
        if name.startswith("_") or (isinstance(value, type) and issubclass(value, BaseException)):
            continue
        if name not in LEFT_OUT and callable(value) and not hasattr(value, "__origin__"):
            yield name
        if not isinstance(value, type):
            continue
        for member in dir(value):
            if member.startswith("_") or (name == "Storage" and member not in USERS):
                continue
            attribute = inspect.getattr_static(value, member)
            module = str(getattr(getattr(value, member), "__module__", ""))
            if f"{name}.{member}" in LEFT_OUT or not module.startswith("frazil"):  # zarr's own
                continue
            of_users = name in OWNERS or isinstance(attribute, classmethod | staticmethod | type)
            if (
                of_users
                and callable(getattr(value, member))
                and not isinstance(getattr(value, member), value)
            ):
                yield f"{name}.{member}"


def _resolve(path: str, scene: Scene) -> Callable[..., Any]:
    owner, _, member = path.rpartition(".")
    if owner in OWNERS:
        return getattr(OWNERS[owner](scene), member)
    return getattr(getattr(frazil, owner), member) if owner else getattr(frazil, member)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return []
    return [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


async def _all_of(results: Any) -> None:
    async for _ in results:
        pass


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = function(**arguments)
        if inspect.iscoroutine(answer):
            asyncio.run(answer)
        elif inspect.isasyncgen(answer):
            asyncio.run(_all_of(answer))
        elif hasattr(answer, "__enter__") and not isinstance(answer, frazil.IcechunkStore):
            with answer:
                pass


def _on_purpose(error: BaseException) -> bool:
    if isinstance(error, frazil.IcechunkError):
        return "a defect in Frazil" not in str(error)
    if not isinstance(error, TypeError | ValueError | FileNotFoundError):
        return False
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    frame = trace.tb_frame
    if not str(frame.f_globals.get("__name__", "")).startswith("frazil."):
        return False
    return linecache.getline(frame.f_code.co_filename, trace.tb_lineno).strip().startswith("raise")


TARGETS = sorted(set(_targets()))


def test_some_functions_are_called() -> None:
    assert len(TARGETS) > 150


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", TARGETS)
def test_bad_input_is_an_error_of_ours(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some arguments are names of new files
    scene = Scene()
    offences: dict[str, str] = {}
    for bad in _parameters(_resolve(path, scene)):
        for value in BAD:
            function = _resolve(path, scene)
            arguments = {
                p.name: scene.good(p)
                for p in _parameters(function)
                if p.default is p.empty or p.name == "message"
            }
            try:
                _call(function, arguments | {bad.name: value})
            except BaseException as error:
                if not _on_purpose(error):
                    offences[f"{bad.name}={value!r:.40}"] = f"{type(error).__name__}: {error}"[:150]
            else:
                if (
                    scene.session.read_only
                    or scene.repo.status.availability != frazil.RepoAvailability.online
                ):
                    scene = Scene()
    assert offences == {}

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
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

import frazil
from frazil.errors import InvalidInputError
from frazil.options import unsigned

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


@cache
def _files() -> dict[str, bytes]:
    """Return the files of the repository of every scene."""
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="first") as store:
        group = zarr.create_group(store)
        group.create_array("a", shape=(4,), chunks=(1,), dtype="i4", compressors=None)[:] = 1
    repo.create_tag("v1", repo.lookup_branch("main"))
    return {info.key: bytes(storage.get(info.key)) for info in storage.list("")}


class Scene:
    """A small repository, and what parameters are that have no good value of their own."""

    def __init__(self) -> None:
        self.storage = frazil.in_memory_storage()
        for key, data in _files().items():
            self.storage.put(key, data)
        self.repo = frazil.Repository.open(self.storage)
        self.tip = self.repo.lookup_branch("main")
        self.session = self.repo.writable_session("main")
        self.fork = self.session.fork()
        self.store = self.session.store

    @property
    def is_closed(self) -> bool:
        """Return whether later calls would fail because of the state, and not because of their arguments."""
        return self.session.read_only or self.repo.status.availability != frazil.RepoAvailability.online

    def folder(self) -> str:
        """Return the name of a copy of the repository in the current folder."""
        copy = frazil.local_filesystem_storage("address")
        for key, data in _files().items():
            copy.put(key, data)
        return "address"

    def good(self, parameter: inspect.Parameter) -> Any:
        if parameter.default is parameter.empty and parameter.name in SPECIAL:
            return SPECIAL[parameter.name](self)
        return GOOD.get(parameter.name)


#: Good values that belong to a scene, or that a call may change.
SPECIAL: dict[str, Callable[[Scene], Any]] = {
    "storage": lambda scene: scene.storage,
    "snapshot_id": lambda scene: scene.tip,
    "address": lambda scene: scene.folder(),
    "from_snapshot_id": lambda scene: "1CECHNKREP0F1RSTCMT0",
    "value": lambda scene: default_buffer_prototype().buffer.from_bytes(b"1234"),
    "prototype": lambda scene: default_buffer_prototype(),
    "status": lambda scene: frazil.RepoStatus(frazil.RepoAvailability.online),
    "store": lambda scene: frazil.s3_store(region="r"),
    "config": lambda scene: frazil.S3Options(region="r"),
}
OWNERS = {
    "Repository": lambda scene: scene.repo,
    "Session": lambda scene: scene.session,
    "ForkSession": lambda scene: scene.fork,
    "IcechunkStore": lambda scene: scene.store,
    "Storage": lambda scene: scene.storage,
}
#: Of `Storage`, what users call.
USERS = {name for name in dir(frazil.Storage) if name.startswith(("new_", "list_objects"))}


type Run = Callable[[Coroutine[Any, Any, Any]], Any]


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


def _resolve(path: str, scene: Scene) -> Any:
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


def bad_values(parameter: inspect.Parameter) -> list[Any]:
    """Return bad values for a parameter. A text is a good value for a storage: a folder or a URL."""
    return [each for each in BAD if parameter.name != "storage" or not isinstance(each, str)]


async def _all_of(results: Any) -> None:
    async for _ in results:
        pass


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a coroutine in the event loop of the module, because a new loop takes a millisecond."""
    with asyncio.Runner() as runner:
        yield runner.run


def _call(function: Callable[..., Any], arguments: dict[str, Any], run: Run = asyncio.run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer = function(**arguments)
        if inspect.iscoroutine(answer):
            run(answer)
        elif inspect.isasyncgen(answer):
            run(_all_of(answer))
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
@pytest.mark.sample(150)
@pytest.mark.parametrize("path", TARGETS)
def test_bad_input_is_an_error_of_ours(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)  # some arguments are names of new files
    scene = Scene()
    offences: dict[str, str] = {}
    parameters = _parameters(_resolve(path, scene))
    needed = [each for each in parameters if each.default is each.empty or each.name == "message"]
    for bad in parameters:
        for value in bad_values(bad):
            arguments = {each.name: scene.good(each) for each in needed}
            try:
                _call(_resolve(path, scene), arguments | {bad.name: value}, run)
            except BaseException as error:
                if not _on_purpose(error):
                    offences[f"{bad.name}={value!r:.40}"] = f"{type(error).__name__}: {error}"[:150]
            else:
                if scene.is_closed:
                    scene = Scene()
    assert offences == {}


def test_options_are_checked() -> None:
    unsigned(8)("n", None)
    unsigned(8)("n", 255)
    for value in (256, -1):
        with pytest.raises(InvalidInputError):
            unsigned(8)("n", value)
    for wrong in (True, 1.0, "1"):
        with pytest.raises(TypeError):
            unsigned(8)("n", wrong)
    frazil.StorageSettings(storage_class=None)
    with pytest.raises(TypeError, match="storage_class must be str or None, got float"):
        frazil.StorageSettings(storage_class=1.0)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="allow_http must be bool, got NoneType"):
        frazil.S3Options(allow_http=None)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(AttributeError, match="storage_class"):
        frazil.StorageSettings().storage_clas = "x"

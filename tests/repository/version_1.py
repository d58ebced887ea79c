"""Repositories of spec version 1 for tests: with all that one can have; and a storage that dies."""

from __future__ import annotations

from typing import Any

from tests.support.faulty_storage import FaultyStorage

import frazil
from frazil.storage.memory import MemoryStorage

GROUP = b'{"zarr_format": 3, "node_type": "group", "attributes": {"n": %d}}'


def commit(repo: frazil.Repository, n: int, branch: str = "main") -> str:
    session = repo.writable_session(branch)
    session.workspace.set_node("/g", GROUP % n)
    return session.commit(f"commit {n}", {"n": n})


def with_history(storage: Any) -> frazil.Repository:
    """Three commits on ``main``, two on ``dev``, a detached snapshot, tags, a deleted one, a
    configuration.
    """
    config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=7)
    repo = frazil.Repository.create(storage, config, spec_version=1)
    first = commit(repo, 1)
    repo.create_branch("dev", first)
    second = commit(repo, 2)
    commit(repo, 3, "dev")
    commit(repo, 4)
    repo.create_tag("t", second)
    repo.create_tag("gone", first)
    repo.delete_tag("gone")
    repo.create_branch("short", first)
    repo.delete_branch("short")
    session = repo.writable_session("main")
    session.workspace.set_node("/g", GROUP % 5)
    session.flush("detached")
    return repo


def copy_of(storage: Any) -> MemoryStorage:
    out = MemoryStorage()
    fill(out, storage)
    return out


def fill(storage: Any, template: Any) -> None:
    """Store what another storage has, as if it were written now."""
    for info in template.list(""):
        storage.put(info.key, bytes(template.get(info.key)))


def files_of(storage: Any) -> set[str]:
    return {info.key for info in storage.list("")}


def contents_of(repo: frazil.Repository) -> Any:
    """All that is to survive an upgrade, and all that it makes up but the time of itself."""
    info = repo._info()
    ops = [] if info.spec_version == 1 else [info.ops.entry(row) for row in range(1, len(info.ops))]
    history = {name: list(map(str, repo.ancestry(branch=name))) for name in sorted(repo.list_branches())}
    tags = {name: repo.lookup_tag(name) for name in repo.list_tags()}
    return history, tags, sorted(info.deleted_tags), ops, info.config


class Died(BaseException):
    """The process was killed."""


class Mortal(FaultyStorage):
    """Passes on so many calls that change something or read; then every one kills.

    The last one may have taken effect.
    """

    def __init__(self, inner: MemoryStorage, calls: int, takes_effect: bool) -> None:
        super().__init__(inner, lambda key, condition: None)
        self.left = calls
        self.takes_effect = takes_effect

    def _call(self, name: str, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            if self.takes_effect and self.left == -1:
                getattr(self.inner, name)(*arguments)
            raise Died(name)
        return getattr(self.inner, name)(*arguments)

    def get(self, *arguments: Any) -> Any:
        return self._call("get", *arguments)

    def get_versioned(self, key: str) -> Any:
        return self._call("get_versioned", key)

    def put(self, *arguments: Any) -> Any:
        return self._call("put", *arguments)

    def backup(self, *arguments: Any) -> None:
        self._call("backup", *arguments)

    def head(self, key: str) -> Any:
        return self._call("head", key)

    def list(self, prefix: str) -> Any:
        """By name, so that ``dev`` comes before ``main``."""
        return iter(sorted(self._call("list", prefix), key=lambda info: info.key))

    def delete(self, keys: Any) -> None:
        """Each key is a call: some may be gone, and others not."""
        for key in keys:
            self._call("delete", [key])

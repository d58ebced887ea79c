"""Labels in the ``User-Agent`` of requests, as a server sees them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import zarr
from tests.support.loopback_http import FolderHandler, serve_folder

import frazil

LABELS = frazil.Attribution(client="ingest/1.2", workload="nightly run", principal="me@here")
LABELLED = f"ingest/1.2 {frazil.user_agent()} (workload=nightly run; principal=me@here)"


class Handler(FolderHandler):
    agents: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:  # noqa: N802  # the name of http.server
        self.agents.append(self.headers["User-Agent"])
        super().do_GET()

    do_HEAD = do_GET  # noqa: N815  # what the server looks for


def agents() -> set[str | None]:
    """The ``User-Agent`` of each request since the last time."""
    taken = set(Handler.agents)
    Handler.agents.clear()
    return taken


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)))
    with repo.transaction("main", message="first") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="f8", fill_value=0)[:] = 1
    with serve_folder(tmp_path, Handler) as server:
        yield server.url


def _read(repo: frazil.Repository) -> None:
    array: Any = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
    assert array[:].sum() == 4


def test_every_request_of_a_handle_has_its_labels(server: str) -> None:
    storage = frazil.http_storage(server)
    repo = frazil.Repository.open(storage, attribution=LABELS)
    assert repo.attribution == LABELS
    _read(repo)
    assert agents() == {LABELLED}
    for again in (repo.reopen(), pickle.loads(pickle.dumps(repo))):
        assert again.attribution == LABELS
        _read(again)
        assert agents() == {LABELLED}
    repo = frazil.Repository.open(storage)
    assert agents() == {frazil.user_agent()}
    assert repo.attribution == frazil.Attribution()
    mine = frazil.http_storage(server, headers={"user-agent": "mine", "X-A": "b"})
    frazil.Repository.open(mine, attribution=LABELS)
    assert agents() == {"mine"}


def test_requests_for_virtual_chunks_have_labels(server: str, tmp_path: Path) -> None:
    (tmp_path / "foreign").write_bytes(b"12345678")
    prefix = f"{server}/"
    config = frazil.RepositoryConfig.default()
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer(prefix, frazil.http_store()))
    repo = frazil.Repository.create(
        frazil.in_memory_storage(), config, {prefix: frazil.Credentials.HttpAccess()}, attribution=LABELS
    )
    session = repo.writable_session("main")
    array = zarr.create_array(
        session.store, name="v", shape=(8,), chunks=(8,), dtype="u1", compressors=None, filters=None
    )
    session.store.set_virtual_ref("v/c/0", prefix + "foreign", offset=0, length=8)
    with pytest.raises(frazil.StorageError, match="does not support range requests"):
        array[:]  # this server knows no ranges; what was asked is what matters here
    assert agents() == {LABELLED}


def test_redirects_carry_labels(monkeypatch: pytest.MonkeyPatch, server: str) -> None:
    url = server.replace("http", "http+icechunk") + "/"
    monkeypatch.setattr("frazil.storage.web_storages.follow", lambda *_: url)
    frazil.Repository.open(frazil.redirect_storage("http://host.example/x"), attribution=LABELS)
    assert agents() == {LABELLED}

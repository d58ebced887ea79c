"""Repositories whose saved containers lead somewhere, and a server that notes who comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
import zarr
from tests.support.loopback_http import LoopbackHttp

import frazil
from frazil.repository.catalog import repo_changes
from frazil.repository.settings.config_document import to_document

DATA = bytes(range(8))


@dataclass
class Visit:
    """One request: its first line, headers and body."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Listener:
    """What arrived at a server, where it redirects to, by path, and what is wrong in its answers."""

    visits: list[Visit] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)
    url: str = ""
    headers: dict[str, str | None] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def everything(self) -> str:
        return "".join(f"{each.line}\n{each.headers}\n{each.body!r}\n" for each in self.visits)


@contextmanager
def listening() -> Iterator[Listener]:
    """A server of one object, ``DATA``, under every name; other methods get an empty answer."""
    listener, lock = Listener(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener.visits.append(Visit(self.requestline, headers, body))
            to = listener.redirects.get(self.path)
            if to is not None:
                self.send_response(302)
                self.send_header("Location", to)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start, _, stop = self.headers.get("Range", "bytes=0-7").removeprefix("bytes=").partition("-")
            data = DATA[int(start) : int(stop or 7) + 1]
            sent = {"Content-Range": f"bytes {start}-{int(start) + len(data) - 1}/8", **listener.headers}
            data = data if listener.body is None else listener.body
            self.send_response(206 if "Range" in self.headers else 200)
            sent |= {"Content-Length": str(len(data)), "ETag": '"e"'}
            sent |= {"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
            for name, value in sent.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815  # as http.server wants it

    with LoopbackHttp(Handler) as server:
        listener.url = f"http://127.0.0.1:{server.port}"
        yield listener


def hostile(prefix: str, store: Mapping[str, Any], location: str | None = None) -> frazil.Storage:
    """A repository with such a saved container, as any program may write it, and one virtual chunk."""
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage)
    container = {"name": None, "url_prefix": prefix, "store": dict(store)}
    document = {**to_document(frazil.RepositoryConfig()), "virtual_chunk_containers": {prefix: container}}
    repo._context.catalog.update_repo_info(repo_changes.save_config(document))
    repo = frazil.Repository.open(storage)
    with repo.transaction("main", message="a reference") as changed:
        zarr.create_array(changed, name="x", shape=(8,), chunks=(8,), dtype="u1", compressors=None)
        changed.set_virtual_ref("x/c/0", location or f"{prefix}data", offset=0, length=8)
    return storage


def read(repo: frazil.Repository) -> bytes:
    """The virtual chunk."""
    array = zarr.open_array(repo.readonly_session("main").store, path="x", mode="r")
    return bytes(np.asarray(array[:]).tolist())

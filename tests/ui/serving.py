"""A repository in a folder, a server for it, and a client that sends what it is told."""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from tests.support.patience import patience

import frazil
from frazil.cli.main import main
from frazil.ui.server import ExplorerServer, Folder, Site


def repository(folder: Path, spec_version: int) -> Path:
    repo = frazil.Repository.create(str(folder), spec_version=spec_version)
    with repo.transaction("main", message="Create the array") as store:
        array = zarr.create_array(store, name="t", shape=(4, 1000), chunks=(2, 1000), dtype="i4")
        array[:] = np.arange(4000).reshape(4, 1000)
    repo.create_branch("winter", "main")
    repo.create_tag("v1", "main")
    (folder.parent / "secret").write_text("secret")
    (folder / "secret").write_text("secret")
    return folder


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Client:
    """Sends requests exactly as they are written, with the token unless it is replaced."""

    server: ExplorerServer

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.server.site.token}"}

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(30))

    def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Reply:
        connection = self.connect()
        try:
            every = {"Host": f"127.0.0.1:{self.port}", **(self.token if headers is None else headers)}
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in every.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send("GET", path, {**self.token, **named})

    def post(self, path: str, document: object, **headers: str) -> Reply:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        usual = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return self.send("POST", path, {**self.token, **usual, **named}, body)


@contextmanager
def served(site: Site | Folder, host: str = "127.0.0.1") -> Iterator[Client]:
    with ExplorerServer(site, host) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield Client(server)
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    extra: Mapping[str, str] = {}

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def end_headers(self) -> None:
        for name, value in self.extra.items():
            self.send_header(name, value)
        super().end_headers()


@contextmanager
def hosted(folder: Path, headers: Mapping[str, str] | None = None) -> Iterator[str]:
    """What `python -m http.server` does, with more headers."""
    handler = type("_Handler", (_Quiet,), {"extra": headers or {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hosted_page(
    folder: Path, datasets: Mapping[str, Any], later: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The address of a static page of a repository that has datasets of xarray by group.

    A second commit writes the values of ``later`` into the same arrays.
    """
    repo = frazil.Repository.create(str(folder / "ice"))
    for turn, version in enumerate([datasets, *([later] if later else [])]):
        with repo.transaction("main", message=f"data {turn}") as store:
            for group, dataset in version.items():
                mode = {"mode": "r+"} if turn else {}
                dataset.to_zarr(store, group=group, zarr_format=3, consolidated=False, **mode)
    assert main(["ui", str(folder / "ice"), "--static", str(folder / "page")]) == 0
    with hosted(folder) as root:
        yield f"{root}page/index.html"


#: The pixels of a square around a place of a canvas, in pixels of the page: red, green and blue of each.
_PIXELS = """(canvas, [x, y, reach]) => {
  const [ratio, size] = [devicePixelRatio, 2 * reach + 1];
  const { data } = canvas.getContext("2d").getImageData((x - reach) * ratio, (y - reach) * ratio, size, size);
  return [...data];
}"""


def pixels(page: Any, name: str, place: tuple[float, float], reach: int = 0) -> Any:
    """The colours around a place of a picture, of shape (2 * reach + 1, 2 * reach + 1, 3)."""
    canvas = page.get_by_role("application", name=name).locator("canvas")
    size = 2 * reach + 1
    return np.array(canvas.evaluate(_PIXELS, [*place, reach])).reshape(size, size, 4)[:, :, :3]


def wait_for_colour(page: Any, name: str, place: tuple[float, float], expected: Any) -> None:
    end = time.monotonic() + patience(20)
    while not np.allclose(found := pixels(page, name, place)[0, 0], expected, rtol=0, atol=2):
        assert time.monotonic() < end, (found, expected)


def middle_of(page: Any, name: str) -> tuple[float, float]:
    """The middle of a map, which ends at its bar of colours, within its element."""
    world = page.get_by_role("application", name=name)
    world.wait_for()
    box = world.bounding_box()
    right = world.locator(".zoom").evaluate("element => parseFloat(element.style.right) - 10")
    return (box["width"] - right) / 2, (box["height"] - 4) / 2


def tree_of(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + patience(30)
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def pids(file: Path, count: int) -> list[int]:
    wait_for(lambda: file.exists() and len(file.read_text().split()) == count)
    return [int(each) for each in file.read_text().split()]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()

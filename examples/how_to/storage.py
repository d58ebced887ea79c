"""Storages for a repository: memory, a folder, an object store, a web server.

The object store and the web server of this example run on this machine. Real ones need only other arguments.
The object store is the package ministack. If it is not installed, the example skips this part.
Run it:  pip install ministack; python examples/how_to/storage.py
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import zarr

import frazil
from frazil.testing.processes import free_port, running


def first_commit(storage: frazil.Storage) -> frazil.Repository:
    """Create a repository, write an array, and commit it. This works with every storage."""
    repo = frazil.Repository.create(storage)
    with repo.transaction("main", message="A first array") as store:
        zarr.create_array(store, name="t", shape=(100,), chunks=(10,), dtype="f4")[:] = 15.0
    return repo


def mean(repo: frazil.Repository) -> float:
    store = repo.readonly_session("main").store
    return float(np.mean(np.asarray(zarr.open_array(store, path="t", mode="r"))))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print no log lines."""


def status(port: int, method: str, path: str) -> int:
    """Return the status of an HTTP request to this machine, or 0 if there is no reply."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


@contextmanager
def object_store(folder: Path) -> Iterator[int]:
    """Run an S3-compatible object store with a bucket named ``bucket``, and yield its port."""
    port = free_port()
    command = [sys.executable, "-m", "ministack"]
    environment = {"GATEWAY_PORT": str(port), "PERSIST_STATE": "0"}
    with running(command, folder, environment, ready=lambda: status(port, "GET", "/") == 200):
        assert status(port, "PUT", "/bucket") == 200
        yield port


def main(folder: Path) -> None:
    # Memory: for tests. The data are lost when the process ends.
    print("memory:", mean(first_commit(frazil.in_memory_storage())))

    # A folder. Any number of processes may commit to it at the same time.
    local = frazil.local_filesystem_storage(str(folder / "repo"))
    print("folder:", mean(first_commit(local)))
    print("folders:", sorted(path.name for path in (folder / "repo").iterdir() if path.is_dir()))

    # Open the repository of a storage, and create it if it does not exist.
    print("exists:", frazil.Repository.exists(local))
    print("again: ", mean(frazil.Repository.open_or_create(local)))

    # An S3-compatible object store. The credentials are arguments here. They can also come from the
    # environment (from_env=True) or from a function (get_credentials=...). anonymous=True uses no
    # credentials.
    if importlib.util.find_spec("ministack") is None:
        print("s3:     skipped, because ministack is not installed")
    else:
        with object_store(folder) as port:
            s3 = frazil.s3_storage(
                bucket="bucket",
                prefix="weather",
                region="us-east-1",
                endpoint_url=f"http://127.0.0.1:{port}",
                allow_http=True,
                force_path_style=True,
                access_key_id="somebody",
                secret_access_key="a secret",
            )
            print("s3:    ", mean(first_commit(s3)))
            print("keys:  ", len(list(s3.list(""))), "objects below weather/")

    # Any web server that serves the files. It is read-only.
    handler = partial(Quiet, directory=str(folder / "repo"))
    server_ = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server_.serve_forever, daemon=True).start()
    web = frazil.http_storage(f"http://127.0.0.1:{server_.server_port}")
    print("http:  ", mean(frazil.Repository.open(web)))
    try:
        frazil.Repository.open(web).writable_session("main")
    except frazil.ReadOnlyError as error:
        print("http:  ", error.kind)
    server_.shutdown()
    server_.server_close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))

"""A proxy before an HTTP server on the loopback interface: it delays each answer, and counts the requests.

All answers wait at the same time, as on a network with this round-trip time.

    python slow_network.py PORT SECONDS     prints its own port, and the number of GETs for each line of input
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

_LENGTH = re.compile(rb"(?im)^content-length:[ \t]*(\d+)")
_CHUNKED = re.compile(rb"(?im)^transfer-encoding:[ \t]*chunked")
_LIMIT = 1 << 20


def loopback_storage(implementation: Any, bucket: str, port: int) -> Any:
    """Return the S3 storage of frazil or icechunk on a server at a port of the loopback interface."""
    return implementation.s3_storage(
        bucket=bucket,
        prefix="repo",
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        allow_http=True,
        force_path_style=True,
        access_key_id="testkey",
        secret_access_key="testsecret",
    )


class SlowNetwork:
    """Listens on a free port of 127.0.0.1 while its ``with`` block runs.

    Attributes:
        requests: The number of requests by method and by folder below the bucket and the prefix, such as
            ``("PUT", "manifests")``.
    """

    def __init__(self, upstream_port: int, seconds: float) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self._upstream = upstream_port
        self._seconds = seconds
        self._loop = asyncio.new_event_loop()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._client, sock=self._socket, limit=_LIMIT))
        self._loop.run_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection("127.0.0.1", self._upstream, limit=_LIMIT)
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                method, path, _ = request.split(b"\r\n", 1)[0].decode().split(" ", 2)
                self.requests[method, _folder(path)] += 1
                upstream[1].write(request + await _body(reader, request))
                await upstream[1].drain()
                answer = await upstream[0].readuntil(b"\r\n\r\n")
                body = b"" if method == "HEAD" else await _body(upstream[0], answer)
                await asyncio.sleep(self._seconds)
                writer.write(answer + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # one side has closed its connection
        finally:
            writer.close()
            upstream[1].close()


@contextmanager
def slow_network(port: int, milliseconds: int) -> Iterator[int]:
    """Run the proxy in another process, beside a reader that uses its own. Yield the port of the proxy."""
    with counting_network(port, milliseconds) as (proxy, _):
        yield proxy


@contextmanager
def counting_network(port: int, milliseconds: int) -> Iterator[tuple[int, Callable[[], int]]]:
    """Run the proxy in another process. Yield its port, and a function that returns the GETs so far."""
    command = [sys.executable, __file__, str(port), str(milliseconds / 1000)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def gets() -> int:
        print(file=questions, flush=True)
        return int(answers.readline())

    try:
        yield int(answers.readline()), gets
    finally:
        process.kill()
        process.wait()


def _folder(path: str) -> str:
    """Return the first part of the path below the bucket and the prefix of the repository."""
    parts = path.partition("?")[0].strip("/").split("/")
    return parts[2] if len(parts) > 2 else ""


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if _CHUNKED.search(head):
        return await _chunked(reader)
    length = _LENGTH.search(head)
    return await reader.readexactly(int(length[1])) if length else b""


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readline()
        size = int(line.partition(b";")[0], 16)
        body += line + await reader.readexactly(size + 2)
        if not size:
            return body


if __name__ == "__main__":
    with SlowNetwork(int(sys.argv[1]), float(sys.argv[2])) as network:
        print(network.port, flush=True)
        for _ in sys.stdin:
            count = sum(n for (method, _), n in network.requests.copy().items() if method == "GET")
            print(count, flush=True)
        threading.Event().wait()

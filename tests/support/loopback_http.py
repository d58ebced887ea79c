"""An HTTP server on a free port of 127.0.0.1, for the length of a ``with`` block."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class QuietHandler(BaseHTTPRequestHandler):
    """Prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def reply(self, status: int, body: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> None:
        self.send_response(status)
        for header in [*headers, ("Content-Length", str(len(body)))]:
            self.send_header(*header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


class FolderHandler(QuietHandler, SimpleHTTPRequestHandler):
    """Serves the files of a folder."""


class LoopbackHttp:
    """Serves with ``handler`` while its ``with`` block runs: https with ``tls``, http without."""

    def __init__(
        self, handler: Callable[..., BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None
    ) -> None:
        self._http = _Server(("127.0.0.1", 0), handler)
        if tls is not None:  # the threads shake hands, so that a slow client does not hold up the others
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def serve_folder(folder: Path, handler: type[FolderHandler] = FolderHandler) -> LoopbackHttp:
    return LoopbackHttp(partial(handler, directory=str(folder)))

"""A proxy that does to requests what a bad network does, for tests of a storage.

It stands before an HTTP server on 127.0.0.1. Each rule says what happens to which requests, how often:

    with FaultProxy(server_port) as proxy:
        proxy.add(Fault.LOSE_ANSWER, "^PUT ", times=1)
        ...  # the first PUT is applied, and nobody is told

Signed requests pass, as the ``Host`` header is not changed.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from enum import Enum, auto
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING

from tests.support.loopback_http import LoopbackHttp, QuietHandler
from tests.support.patience import patience

if TYPE_CHECKING:
    from types import TracebackType


class Fault(Enum):
    """What happens to a request."""

    RESET = auto()  #: the connection breaks before the server sees it
    ERROR = auto()  #: an error is answered, and the server does not see it
    LOSE_ANSWER = auto()  #: the server does it, then the connection breaks
    ERROR_AFTER = auto()  #: the server does it, then an error is answered
    STALL = auto()  #: the server does it, and no answer ever comes
    TRUNCATE = auto()  #: half of the answer comes, then the connection breaks
    DELAY = auto()  #: it waits for ``seconds`` first


@dataclass(slots=True)
class Rule:
    """One fault for the requests whose "METHOD /path" matches, ``times`` times (-1: always)."""

    fault: Fault
    pattern: re.Pattern[str]
    times: int = 1
    status: int = 503
    seconds: float = 0.0
    hits: int = 0


class FaultProxy(LoopbackHttp):
    """Listens on a free port of 127.0.0.1 while its ``with`` block runs."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream = upstream_port
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self.stopped = threading.Event()
        super().__init__(_handler(self))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        super().__exit__(kind, error, trace)

    def add(
        self, fault: Fault, pattern: str = "", times: int = 1, *, status: int = 503, seconds: float = 0.0
    ) -> Rule:
        """Add a rule; ``rule.hits`` counts what it did."""
        rule = Rule(fault, re.compile(pattern), times, status, seconds)
        with self._lock:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules."""
        with self._lock:
            self._rules.clear()

    def pick(self, line: str) -> Rule | None:
        """The rule for this request, counted."""
        with self._lock:
            for rule in self._rules:
                if rule.times and rule.pattern.search(line):
                    rule.times -= rule.times > 0
                    rule.hits += 1
                    if not rule.times:
                        self._rules.remove(rule)
                    return rule
        return None

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[HTTPResponse, bytes]:
        """Ask the server behind."""
        connection = HTTPConnection("127.0.0.1", self._upstream, timeout=patience(60))
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


def _handler(proxy: FaultProxy) -> type[QuietHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            headers = {k: v for k, v in self.headers.items() if k.lower() != "connection"}
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            rule = proxy.pick(f"{self.command} {self.path}")
            fault = None if rule is None else rule.fault
            if rule is not None and fault is Fault.DELAY:
                time.sleep(rule.seconds)
            if fault is Fault.RESET:
                return self._reset()
            if rule is not None and fault is Fault.ERROR:
                return self._error(rule.status)
            answer, answer_body = proxy.forward(self.command, self.path, headers, body)
            if fault is Fault.LOSE_ANSWER:
                return self._reset()
            if fault is Fault.STALL:
                proxy.stopped.wait()
                return self._reset()
            if rule is not None and fault is Fault.ERROR_AFTER:
                return self._error(rule.status)
            return self._pass(answer, answer_body, truncated=fault is Fault.TRUNCATE)

        def _pass(self, answer: HTTPResponse, body: bytes, *, truncated: bool) -> None:
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            length = answer.getheader("content-length") if self.command == "HEAD" else str(len(body))
            if length is not None and answer.status not in (204, 304):
                self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if truncated else body)
            self.wfile.flush()
            if truncated:
                self._reset()

        def _error(self, status: int) -> None:
            body = b"<Error><Code>Injected</Code><Message>injected</Message></Error>"
            self.reply(status, body, [("Content-Type", "application/xml")])

        def _reset(self) -> None:
            # With a linger time of zero, closing sends RST and not FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            os.close(self.connection.detach())
            self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    return Handler

"""A relay to a server on this machine that delays each request, as a network does.

python slow_network.py PORT MILLISECONDS     prints its own port
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: The bytes of one call of ``recv``.
_SIZE = 1 << 18


@contextmanager
def slow_network(port: int, milliseconds: int) -> Iterator[int]:
    """Run a relay to the server at a port, in another process. Yield the port of the relay."""
    command = [sys.executable, __file__, str(port), str(milliseconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def _relay(client: socket.socket, port: int, seconds: float) -> None:
    server = socket.create_connection(("127.0.0.1", port))
    for each in (client, server):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=_pump, args=(server, client, 0.0), daemon=True).start()
    _pump(client, server, seconds)


def _pump(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Send what arrives. A request of a client arrives in one piece, and waits."""
    try:
        while data := source.recv(_SIZE):
            if seconds:
                time.sleep(seconds)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


def main(port: int, milliseconds: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_relay, args=(client, port, milliseconds / 1000), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

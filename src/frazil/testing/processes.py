"""Programs that tests start on this machine, with a time limit. They are stopped by process id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from frazil.errors import ServerFailedError

#: Variables that prevent clients from reading credentials of the machine or the user.
QUIET_ENVIRONMENT: Final = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
    "GCE_METADATA_HOST": "127.0.0.1:9",
    "GCE_METADATA_ROOT": "127.0.0.1:9",
    "METADATA_IP": "127.0.0.1",
    "NO_PROXY": "*",
}


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no server listens, and which no system gives to a client."""
    while True:
        port = 10_000 + int.from_bytes(os.urandom(2)) % 20_000
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def running(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    ready: Callable[[], bool],
    seconds: float = 30.0,
) -> Iterator[int]:
    """Run a program during the block, and yield its process id.

    The block begins when ``ready`` returns True.

    Raises:
        ServerFailedError: The program ends or is not ready within ``seconds``.
    """
    log = directory / f"{Path(command[0]).name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **QUIET_ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                tail = log.read_text(errors="replace")[-2000:]
                raise ServerFailedError(f"{command[0]} did not start within {seconds} s:\n{tail}")
            time.sleep(0.05)
        yield process.pid
    finally:
        # The program has its own process group. This ends its children, too, and no other processes.
        if sys.platform != "win32":  # the servers of the tests run on POSIX systems
            for how, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, how)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(patience)
                    break

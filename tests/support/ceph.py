"""Ceph's radosgw on 127.0.0.1: a strict S3 server."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from tests.support.buckets import S3_ACCESS_KEY, S3_SECRET_KEY, is_http_server
from tests.support.patience import patience

from frazil.errors import ServerFailedError
from frazil.testing.processes import free_port, running

_CEPH_PROGRAMS: Final = ("monmaptool", "ceph-mon", "ceph", "ceph-osd", "radosgw", "radosgw-admin")

# Three settings are there for speed: without the modes "crc" the gateway takes 38 s to start, without the
# short "propose interval" each of its pools takes 1 to 2 s, without "tcp_nodelay" each request 40 ms.
_CEPH_CONFIG: Final = """\
[global]
fsid = {cluster}
mon host = [v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]
mon initial members = a
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
run dir = {home}/run
admin socket = {home}/run/$name.asok
pid file = {home}/run/$name.pid
log file = {home}/log/$name.log
crash dir = {home}/log
mon data = {home}/mon
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 2000
mon data avail crit = -1
mon data avail warn = 2
osd data = {home}/osd
osd objectstore = memstore
memstore device bytes = 4294967296
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd op num shards = 2
osd op num threads per shard = 1
ms async op threads = 2
ms mon client mode = crc
ms client mode = crc
ms cluster mode = crc
ms service mode = crc
ms mon cluster mode = crc
ms mon service mode = crc
paxos propose interval = 0.05
paxos min wait = 0.01
[client]
keyring = /dev/null
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw dns name = localhost
rgw thread pool size = 64
rgw run sync thread = false
"""


def _start_ceph(home: Path, port: int, stack: ExitStack) -> None:
    for name in ("mon", "osd", "run", "log"):
        (home / name).mkdir()
    cluster, osd = str(uuid4()), str(uuid4())
    v1, v2 = free_port(), free_port()
    config = home / "ceph.conf"
    config.write_text(_CEPH_CONFIG.format(home=home, cluster=cluster, v1=v1, v2=v2, port=port))

    def run(*command: str) -> str:
        done = subprocess.run(
            [command[0], "-c", str(config), *command[1:]],
            capture_output=True,
            text=True,
            timeout=patience(30),
        )
        if done.returncode:
            raise ServerFailedError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return done.stdout

    def start(*command: str, ready: Callable[[], bool]) -> None:
        arguments = [command[0], "-c", str(config), *command[1:], "-f"]
        stack.enter_context(running(arguments, home, {}, ready, patience(30)))

    address = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]"
    run("monmaptool", "--create", "--fsid", cluster, "--addv", "a", address, str(home / "monmap"))
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(home / "monmap"))
    start("ceph-mon", "-i", "a", ready=lambda: True)
    run("ceph", "--connect-timeout", "15", "osd", "new", osd)
    run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
    start("ceph-osd", "-i", "0", ready=lambda: "1 up" in run("ceph", "--connect-timeout", "5", "osd", "stat"))
    start("radosgw", "--name", "client.rgw", ready=lambda: is_http_server(port))
    keys = (f"--access-key={S3_ACCESS_KEY}", f"--secret-key={S3_SECRET_KEY}")
    run("radosgw-admin", "--name", "client.rgw", "user", "create", "--uid=test", "--display-name=test", *keys)


@contextmanager
def gateway() -> Iterator[int]:
    """A gateway that runs: a monitor, one OSD that keeps all objects in memory, and radosgw. Yields its port.

    There is no authentication between them, no manager, and there are no service files.
    """
    port = free_port()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _start_ceph(home, port, stack)
        yield port


def is_installed() -> bool:
    """Whether ``gateway`` can start."""
    return all(map(shutil.which, _CEPH_PROGRAMS))

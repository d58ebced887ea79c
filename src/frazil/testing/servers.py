"""Real object stores on 127.0.0.1, for tests: started with a time limit, stopped by process id.

    with ministack() as server:
        server.make_bucket("a-bucket")
        storage = server.storage("a-bucket")

============  ===================================================================================
ministack     an S3 server in Python; a test dependency, starts in 2 s
ceph          Ceph's radosgw with one monitor and one OSD in memory: a strict S3; starts in 2 s
azurite       Microsoft's emulator of Azure blob storage; starts in 1 s
gcs           our own stand-in, in this process (``object_server``)
============  ===================================================================================

``scripts/install-test-servers`` installs Ceph and azurite.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from frazil.storage.buckets import AzureContainer, Bucket, GcsBucket, S3Bucket
from frazil.storage.credentials import (
    azure_credentials,
    gcs_credentials,
    s3_static_credentials,
)
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import S3Options
from frazil.testing.object_server import Conditions, ObjectServer

#: With these, no client looks for credentials on the machine's metadata address or in a home directory.
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

_ACCESS_KEY: Final = "testkey"
_SECRET_KEY: Final = "testsecret"
#: The account that every azurite has, with its published key.
_AZURITE_ACCOUNT: Final = "devstoreaccount1"
_AZURITE_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class RunningServer:
    """A server that runs: how to make a bucket in it, and how to open one."""

    name: str
    port: int
    make_bucket: Callable[[str], None]
    open_bucket: Callable[[str, int], Bucket]

    def bucket(self, name: str, port: int | None = None) -> Bucket:
        """The bucket of this name; through the proxy at ``port``, if one is given."""
        return self.open_bucket(name, self.port if port is None else port)

    def storage(self, bucket: str | None = None, prefix: str = "") -> ObjectStorage:
        """A storage in that bucket; in a new one if none is given."""
        if bucket is None:
            bucket = f"bucket-{secrets.token_hex(8)}"
            self.make_bucket(bucket)
        return ObjectStorage(self.bucket(bucket), prefix)


class ServerFailedError(RuntimeError):
    """A server did not start; the message ends with its log."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# the servers


@contextmanager
def ministack() -> Iterator[RunningServer]:
    """An S3 server. Any key is right for it."""
    port = free_port()
    environment = {
        "GATEWAY_PORT": str(port),
        "HOST": "127.0.0.1",
        "GATEWAY_HOST": "127.0.0.1",
        "PERSIST_STATE": "0",
    }
    command = [str(_beside_python("ministack"))]
    with (
        tempfile.TemporaryDirectory() as directory,
        running(command, Path(directory), environment, ready=lambda: _answers(port)),
    ):
        yield _s3_server("ministack", port)


@contextmanager
def azurite() -> Iterator[RunningServer]:
    """Azure blob storage."""
    port = free_port()
    binary = azurite_binary()
    if binary is None:
        raise ServerFailedError("azurite is not installed: run scripts/install-test-servers")
    options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
    command = [str(binary), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]
    with (
        tempfile.TemporaryDirectory() as directory,
        running(command, Path(directory), {}, ready=lambda: _answers(port)),
    ):

        def open_bucket(container: str, port: int) -> Bucket:
            endpoint = f"http://127.0.0.1:{port}/{_AZURITE_ACCOUNT}"
            config = {"endpoint": endpoint, "allow_http": "true"}
            credentials = azure_credentials(access_key=_AZURITE_KEY)
            return AzureContainer(_AZURITE_ACCOUNT, container, config, credentials)

        yield RunningServer("azurite", port, lambda name: _make_container(port, name), open_bucket)


@contextmanager
def gcs() -> Iterator[RunningServer]:
    """Our own stand-in for GCS."""

    def open_bucket(bucket: str, port: int) -> Bucket:
        config = {"base_url": f"http://127.0.0.1:{port}", "allow_http": "true"}
        return GcsBucket(bucket, config, gcs_credentials(bearer_token="test"))

    with ObjectServer(Conditions.GENERATION) as server:
        yield RunningServer("gcs", server.port, server.make_bucket, open_bucket)


@contextmanager
def ceph() -> Iterator[RunningServer]:
    """Ceph's radosgw: a monitor, one OSD that keeps all in memory, and the gateway. No authentication
    between them, no manager, no service files."""
    missing = [name for name in _CEPH_PROGRAMS if shutil.which(name) is None]
    if missing:
        raise ServerFailedError(f"{', '.join(missing)} not installed: run scripts/install-test-servers")
    port = free_port()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _start_ceph(home, port, stack)
        yield _s3_server("ceph", port)


def ceph_is_installed() -> bool:
    """Whether ``ceph()`` can start."""
    return all(map(shutil.which, _CEPH_PROGRAMS))


def azurite_binary() -> Path | None:
    """Azurite, on the path or where ``scripts/install-test-servers`` puts it."""
    found = shutil.which("azurite-blob")
    if found is not None:
        return Path(found)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frazil"
    cache = Path(os.environ.get("FRAZIL_CACHE") or base)
    binary = cache / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return binary if binary.exists() else None


def s3_bucket(bucket: str, port: int) -> S3Bucket:
    """A bucket of an S3 server on 127.0.0.1."""
    options = S3Options(
        region="us-east-1", endpoint_url=f"http://127.0.0.1:{port}", allow_http=True, force_path_style=True
    )
    credentials = s3_static_credentials(access_key_id=_ACCESS_KEY, secret_access_key=_SECRET_KEY)
    return S3Bucket(bucket, options, credentials)


def _s3_server(name: str, port: int) -> RunningServer:
    return RunningServer(name, port, lambda bucket: _make_bucket(port, bucket), s3_bucket)


# processes


@contextmanager
def running(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    ready: Callable[[], bool],
    seconds: float = 30.0,
) -> Iterator[int]:
    """Run a program until the block ends; begins when ``ready`` says so."""
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
        # The program leads a process group of its own, so this ends its children as well, and no others.
        for how, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience)
                break


def _answers(port: int) -> bool:
    """Whether there is an HTTP server."""
    try:
        _request(port, "GET", "/", {}, timeout=2)
    except OSError:
        return False
    return True


def _beside_python(program: str) -> Path:
    beside = Path(sys.executable).parent / program
    found = beside if beside.exists() else shutil.which(program)
    if found is None:
        raise ServerFailedError(f"{program} is not installed: it is among the test dependencies")
    return Path(found)


# buckets

_Headers = Mapping[str, str]


def _request(port: int, method: str, path: str, headers: _Headers, timeout: float = 30) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _expect_made(status: int, name: str) -> None:
    if status not in (200, 201):
        raise ServerFailedError(f"could not make {name}: HTTP status {status}")


def _sign(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _make_bucket(port: int, bucket: str) -> None:
    """``PUT /bucket``, signed as version 4 of the AWS signature wants it."""
    now = datetime.now(UTC)
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    empty = hashlib.sha256(b"").hexdigest()
    headers = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": empty, "x-amz-date": stamp}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"PUT\n/{bucket}\n\n{lines}\n{names}\n{empty}"
    scope = f"{day}/us-east-1/s3/aws4_request"
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{_SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = _sign(key, part)
    signature = _sign(key, to_sign).hex()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={_ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    status = _request(port, "PUT", f"/{bucket}", {**headers, "authorization": authorization})
    _expect_made(status, bucket)


def _make_container(port: int, container: str) -> None:
    """``PUT /account/container``, signed with Azure's shared key."""
    stamp = format_datetime(datetime.now(UTC), usegmt=True)
    headers = {"x-ms-date": stamp, "x-ms-version": "2021-08-06"}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    path = f"/{_AZURITE_ACCOUNT}/{container}"
    to_sign = "PUT" + "\n" * 12 + f"{lines}/{_AZURITE_ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(_sign(base64.b64decode(_AZURITE_KEY), to_sign)).decode()
    authorization = f"SharedKey {_AZURITE_ACCOUNT}:{signature}"
    status = _request(
        port,
        "PUT",
        f"{path}?restype=container",
        {**headers, "authorization": authorization, "content-length": "0"},
    )
    _expect_made(status, container)


# Ceph

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
mon data avail crit = 1
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
    cluster, osd = _uuid(), _uuid()
    v1, v2 = free_port(), free_port()
    config = home / "ceph.conf"
    config.write_text(_CEPH_CONFIG.format(home=home, cluster=cluster, v1=v1, v2=v2, port=port))

    def run(*command: str) -> str:
        done = subprocess.run(
            [command[0], "-c", str(config), *command[1:]], capture_output=True, text=True, timeout=30
        )
        if done.returncode:
            raise ServerFailedError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        return done.stdout

    def start(*command: str, ready: Callable[[], bool]) -> None:
        arguments = [command[0], "-c", str(config), *command[1:], "-f"]
        stack.enter_context(running(arguments, home, {}, ready))

    address = f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]"
    run("monmaptool", "--create", "--fsid", cluster, "--addv", "a", address, str(home / "monmap"))
    run("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(home / "monmap"))
    start("ceph-mon", "-i", "a", ready=lambda: True)
    run("ceph", "--connect-timeout", "15", "osd", "new", osd)
    run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
    start("ceph-osd", "-i", "0", ready=lambda: "1 up" in run("ceph", "--connect-timeout", "5", "osd", "stat"))
    start("radosgw", "--name", "client.rgw", ready=lambda: _answers(port))
    keys = (f"--access-key={_ACCESS_KEY}", f"--secret-key={_SECRET_KEY}")
    run("radosgw-admin", "--name", "client.rgw", "user", "create", "--uid=test", "--display-name=test", *keys)


def _uuid() -> str:
    return Path("/proc/sys/kernel/random/uuid").read_text().strip()

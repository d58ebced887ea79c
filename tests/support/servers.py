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

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.support import ceph as ceph_cluster
from tests.support.buckets import (
    AZURITE_ACCOUNT,
    AZURITE_KEY,
    S3_ACCESS_KEY,
    S3_SECRET_KEY,
    create_bucket,
    create_container,
    is_http_server,
)
from tests.support.object_server import Conditions, ObjectServer
from tests.support.patience import patience

from frazil.errors import ServerFailedError
from frazil.storage.buckets import AzureContainer, Bucket, GcsBucket, S3Bucket
from frazil.storage.credentials import azure_credentials, gcs_credentials, s3_static_credentials
from frazil.storage.object_store import ObjectStorage
from frazil.storage.object_store_config import S3Options
from frazil.testing.processes import free_port, running


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


# the servers


@contextmanager
def _http_server(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    """Run a program until the block ends; the block begins when its port answers."""
    with tempfile.TemporaryDirectory() as directory:
        ready = partial(is_http_server, port)
        with running(command, Path(directory), environment, ready, seconds=patience(30)):
            yield


@contextmanager
def ministack() -> Iterator[RunningServer]:
    """An S3 server. Any key is right for it."""
    port = free_port()
    command = [str(_beside_python("ministack"))]
    environment = {
        "GATEWAY_PORT": str(port),
        "HOST": "127.0.0.1",
        "GATEWAY_HOST": "127.0.0.1",
        "PERSIST_STATE": "0",
    }
    with _http_server(command, port, environment):
        yield _s3_server("ministack", port)


@contextmanager
def azurite() -> Iterator[RunningServer]:
    """Azure blob storage."""
    port = free_port()
    options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
    command = [str(azurite_binary()), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]
    with _http_server(command, port, {}):

        def open_bucket(container: str, port: int) -> Bucket:
            endpoint = f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}"
            config = {"endpoint": endpoint, "allow_http": "true"}
            credentials = azure_credentials(access_key=AZURITE_KEY)
            return AzureContainer(AZURITE_ACCOUNT, container, config, credentials)

        yield RunningServer("azurite", port, lambda name: create_container(port, name), open_bucket)


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
    """Ceph's radosgw."""
    with ceph_cluster.gateway() as port:
        yield _s3_server("ceph", port)


def azurite_binary() -> Path | None:
    """Azurite, on the path or where ``scripts/install-test-servers`` puts it."""
    program = shutil.which("azurite-blob")
    if program is not None:
        return Path(program)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "frazil"
    cache = Path(os.environ.get("FRAZIL_CACHE") or base)
    binary = cache / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    return binary if binary.exists() else None


def s3_bucket(bucket: str, port: int) -> S3Bucket:
    """A bucket of an S3 server on 127.0.0.1."""
    options = S3Options(
        region="us-east-1", endpoint_url=f"http://127.0.0.1:{port}", allow_http=True, force_path_style=True
    )
    credentials = s3_static_credentials(access_key_id=S3_ACCESS_KEY, secret_access_key=S3_SECRET_KEY)
    return S3Bucket(bucket, options, credentials)


def _s3_server(name: str, port: int) -> RunningServer:
    return RunningServer(name, port, lambda bucket: create_bucket(port, bucket), s3_bucket)


def _beside_python(program: str) -> Path:
    beside = Path(sys.executable).parent / program
    path = beside if beside.exists() else shutil.which(program)
    if path is None:
        raise ServerFailedError(f"{program} is not installed: it is among the test dependencies")
    return Path(path)

"""Requests that create buckets and containers, signed as the servers expect them."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from http.client import HTTPConnection
from typing import Final

from tests.support.patience import patience

from frazil.errors import ServerFailedError

S3_ACCESS_KEY: Final = "testkey"
S3_SECRET_KEY: Final = "testsecret"
#: The account that every azurite has, with its published key.
AZURITE_ACCOUNT: Final = "devstoreaccount1"
AZURITE_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


def is_http_server(port: int) -> bool:
    """Whether there is an HTTP server."""
    try:
        _request(port, "GET", "/", {}, timeout=patience(2))
    except OSError:
        return False
    return True


_Headers = Mapping[str, str]


def _request(port: int, method: str, path: str, headers: _Headers, timeout: float = patience(30)) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _require_created(status: int, name: str) -> None:
    if status not in (200, 201):
        raise ServerFailedError(f"could not make {name}: HTTP status {status}")


def _sign(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def create_bucket(port: int, bucket: str) -> None:
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
    key = f"AWS4{S3_SECRET_KEY}".encode()
    for part in scope.split("/"):
        key = _sign(key, part)
    signature = _sign(key, to_sign).hex()
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={S3_ACCESS_KEY}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    status = _request(port, "PUT", f"/{bucket}", {**headers, "authorization": authorization})
    _require_created(status, bucket)


def create_container(port: int, container: str) -> None:
    """``PUT /account/container``, signed with Azure's shared key."""
    stamp = format_datetime(datetime.now(UTC), usegmt=True)
    headers = {"x-ms-date": stamp, "x-ms-version": "2021-08-06"}
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    path = f"/{AZURITE_ACCOUNT}/{container}"
    to_sign = "PUT" + "\n" * 12 + f"{lines}/{AZURITE_ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(_sign(base64.b64decode(AZURITE_KEY), to_sign)).decode()
    authorization = f"SharedKey {AZURITE_ACCOUNT}:{signature}"
    status = _request(
        port,
        "PUT",
        f"{path}?restype=container",
        {**headers, "authorization": authorization, "content-length": "0"},
    )
    _require_created(status, container)

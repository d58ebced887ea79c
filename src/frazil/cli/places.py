"""Storages as one writes them in a terminal: a folder, or the URL of a bucket and a prefix in it.

/data/ice  file:///data/ice          a folder
s3://bucket/prefix                   S3, with the credentials and the endpoint of the environment
gs://bucket/prefix
az://account/container/prefix
http://host/prefix                   only to read from
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage import (
    Storage,
    azure_storage,
    gcs_storage,
    http_storage,
    local_filesystem_storage,
    s3_storage,
)
from frazil.storage.option_names import shown_url

PLACES: Final = "a folder, or s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix"


def storage_at(place: str) -> Storage:
    """The storage; ``InvalidInputError`` (``cannot-parse-url``) if the text means none.

    >>> print(str(storage_at("s3://ice/a/b")).strip())
    <frazil.Storage>
    type: S3 (native)
    bucket: ice
    prefix: a/b
    """
    scheme, separator, rest = place.partition("://")
    if not separator:
        if not place:
            raise _unknown(place)
        return local_filesystem_storage(place)
    # Names of objects may have ? and #, which end the path of other URLs.
    host, _, path = rest.partition("/")
    make = _SCHEMES.get(scheme.lower())
    if make is None or (not host) != (make is _file):
        raise _unknown(place)
    return make(place, host, path.strip("/"))


def _unknown(place: str) -> InvalidInputError:
    return InvalidInputError(f"expected {PLACES}, found {shown_url(place)!r}", ErrorKind.CANNOT_PARSE_URL)


def _file(place: str, host: str, path: str) -> Storage:
    return local_filesystem_storage("/" + unquote(path))


def _s3(place: str, bucket: str, prefix: str) -> Storage:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return s3_storage(
        bucket=bucket,
        prefix=prefix,
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        endpoint_url=endpoint,
        allow_http=endpoint is not None and endpoint.startswith("http://"),
        force_path_style=endpoint is not None,
        from_env=True,
    )


def _gcs(place: str, bucket: str, prefix: str) -> Storage:
    return gcs_storage(bucket=bucket, prefix=prefix, from_env=True)


def _azure(place: str, account: str, path: str) -> Storage:
    container, _, prefix = path.partition("/")
    return azure_storage(account=account, container=container, prefix=prefix, from_env=True)


def _http(place: str, host: str, path: str) -> Storage:
    return http_storage(place)


_SCHEMES: Final[dict[str, Callable[[str, str, str], Storage]]] = {
    "file": _file,
    "s3": _s3,
    "gs": _gcs,
    "gcs": _gcs,
    "az": _azure,
    "http": _http,
    "https": _http,
}

"""Storages as a user writes them in a terminal: see ``frazil.storage.url_parts``.

Credentials, the region and the endpoint come from the environment.
"""

from __future__ import annotations

from typing import Final

from frazil.storage import Storage
from frazil.storage.urls import parse_url

#: The most common URLs, for the help of commands.
PLACES: Final = "a folder, or s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix"


def storage_at(place: str) -> Storage:
    """The storage; ``InvalidInputError`` (``cannot-parse-url``) if the text means none.

    >>> print(str(storage_at("s3://ice/a/b")).strip())
    <frazil.Storage>
    type: S3 (native)
    bucket: ice
    prefix: a/b
    """
    return parse_url(place).storage()

"""The parts of a URL of a storage, and the parser of these URLs.

=====================================================  ======================================================
``s3://bucket/prefix``                                 S3, and servers with its protocol. Also ``s3a:``,
                                                       ``s3n:``
``gs://bucket/prefix``                                 Google Cloud Storage. Also ``gcs:``
``az://account/container/prefix``                      Azure blob storage
``abfs://container@account.dfs.core.windows.net/prefix``  the same, as Hadoop writes it. Also ``abfss:``
``http://host/path``, ``https://host/path``            a web server, read only
``file:///path``                                       a folder of this machine; percent codes are decoded
``/data/ice``, ``ice``, ``~/ice``                      the same
=====================================================  ======================================================

In a bucket, all characters after the bucket's name belong to the prefix or the key without any decoding,
because names of objects may contain ``?``, ``#`` and ``%``.

The locations of virtual chunks are URLs of the Icechunk format, which have no account:
``az://container/key``. ``UrlParts.chunk_location`` converts a URL to this form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote, urlsplit

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.option_names import shown_url

type Scheme = Literal["file", "s3", "gs", "az", "http", "https"]

#: The most common URLs, for the help of commands.
COMMON_URLS: Final = "a folder, or s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix"
#: All URLs, for messages.
_EXPECTED_URL: Final = f"{COMMON_URLS}, http://host/path, https://host/path or file:///path"

#: Scheme in the text -> scheme.
_SCHEMES: Final[Mapping[str, Scheme]] = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "https",
}
_HADOOP_SCHEMES: Final = frozenset({"abfs", "abfss"})
_HADOOP_AZURE: Final = re.compile(r"([^@/]+)@([^.@/]+)\.(?:dfs|blob)\.core\.windows\.net")
#: A scheme has at least two characters. Without a slash after the colon, it must consist of letters, because
#: names of files may contain colons, for example ``run-2024-05-01T00:00.nc``.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?=:/)|((?i:s3[an]?)|[A-Za-z]{2,})(?=:)")


@dataclass(frozen=True, slots=True)
class UrlParts:
    """The parts of a URL of a storage or of an object.

    Attributes:
        scheme: One of ``file``, ``s3``, ``gs``, ``az``, ``http`` and ``https``.
        bucket: Bucket, container of Azure, or server of a web URL. Empty for files.
        key: Prefix of a storage or key of an object. Empty for a whole bucket. For files it is the path, and
            for the web the path of the URL with its percent codes.
        account: Storage account of Azure. Empty for other URLs.
        query: Query of a web URL. Empty for other URLs.
    """

    scheme: Scheme
    bucket: str
    key: str
    account: str = ""
    query: str = ""

    @property
    def family(self) -> str:
        """The scheme; ``http`` stands for ``https``, too."""
        return "http" if self.scheme == "https" else self.scheme

    @property
    def is_local(self) -> bool:
        """Whether the URL names files of this machine."""
        return self.scheme == "file"

    @property
    def path(self) -> str:
        """The absolute path of a file URL. Empty for other URLs."""
        return os.path.abspath(self.key) if self.is_local else ""

    @property
    def url(self) -> str:
        """The URL itself. Aliases of schemes are replaced."""
        if self.is_local:
            return f"file://{quote(self.path)}"
        parts = "/".join(filter(None, (self.account, self.bucket, self.key)))
        return f"{self.scheme}://{parts}{self.query and f'?{self.query}'}"

    @property
    def chunk_location(self) -> str:
        """The URL in the form of locations of virtual chunks, without the account."""
        return f"az://{self.bucket}/{self.key}" if self.scheme == "az" else self.url


def parse_parts(text: str | os.PathLike[str]) -> UrlParts:
    """Return the parts of a URL or path. The module's docstring lists the possible forms."""
    text = os.fspath(text)
    if not isinstance(text, str):
        raise wrong_type("url", text, "str")
    match = _SCHEME.match(text)
    if match is None:
        if not text or "\0" in text:
            raise _cannot_parse(text)
        return UrlParts("file", "", os.path.expanduser(text))
    alias, rest = match[0].lower(), text[match.end() + 1 :]
    scheme = _SCHEMES.get(alias)
    if scheme is None:
        raise _cannot_parse(text)
    if scheme == "file":
        return _parse_file(text, rest)
    if not rest.startswith("//"):
        raise _cannot_parse(text)
    if scheme in ("http", "https"):
        return _parse_web(text, scheme)
    bucket, _, key = rest[2:].partition("/")
    account = ""
    if alias in _HADOOP_SCHEMES:
        account, bucket = _parse_hadoop(text, bucket)
    elif scheme == "az":
        account, (bucket, _, key) = bucket, key.partition("/")
        if not account:
            raise _cannot_parse(text)
    if not bucket:
        raise _cannot_parse(text)
    return UrlParts(scheme, bucket, key, account)


def _parse_file(text: str, rest: str) -> UrlParts:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise _cannot_parse(text)
        rest = f"/{path}"
    path = unquote(rest)
    if not path.startswith("/") or "\0" in path:
        raise _cannot_parse(text)
    return UrlParts("file", "", path)


def _parse_web(text: str, scheme: Scheme) -> UrlParts:
    try:
        parts = urlsplit(text)
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise _cannot_parse(text)
    return UrlParts(scheme, parts.netloc, parts.path.removeprefix("/"), query=parts.query)


def _parse_hadoop(text: str, authority: str) -> tuple[str, str]:
    """Return account and container of ``container@account.dfs.core.windows.net``."""
    match = _HADOOP_AZURE.fullmatch(authority)
    if match is None:
        raise InvalidInputError(
            "an abfs URL must be abfs://container@account.dfs.core.windows.net/prefix, "
            f"got {shown_url(text)!r}. Or write az://account/container/prefix",
            ErrorKind.CANNOT_PARSE_URL,
        )
    return match[2], match[1]


def _cannot_parse(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"url must be {_EXPECTED_URL}, got {shown_url(text)!r}", ErrorKind.CANNOT_PARSE_URL
    )

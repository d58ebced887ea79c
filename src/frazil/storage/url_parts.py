"""The parts of a URL of a storage, and the parser of the dialect.

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

In a bucket all characters after the bucket's name are the prefix or the key, letter by letter: names of
objects may contain ``?``, ``#`` and ``%``.

The locations of virtual chunks are URLs in the dialect of the Icechunk format, which has no account:
``az://container/key``. ``UrlParts.chunk_location`` converts.
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
#: The dialect, for messages.
_EXPECTED_URL: Final = f"{COMMON_URLS}, http://host/path, https://host/path or file:///path"

#: Scheme as the user writes it -> scheme.
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
#: A scheme has two characters at least. Without a slash behind the colon it is a scheme if it is one word:
#: names of files may contain colons, such as ``run-2024-05-01T00:00.nc``.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?=:/)|((?i:s3[an]?)|[A-Za-z]{2,})(?=:)")


@dataclass(frozen=True, slots=True)
class UrlParts:
    """A URL of a storage, or of an object in it.

    ``bucket`` is the bucket, the container of Azure, or the server of a web address; files have none.
    ``key`` is the prefix of a storage or the key of an object. It is empty for a whole bucket. For files it
    is the path, and for the web the path of the address as it is sent. ``query`` is of a web address.
    """

    scheme: Scheme
    bucket: str
    key: str
    account: str = ""
    query: str = ""

    @property
    def family(self) -> str:
        """The scheme, which is ``http`` for ``https`` as well."""
        return "http" if self.scheme == "https" else self.scheme

    @property
    def is_local(self) -> bool:
        """Whether the URL names files of this machine."""
        return self.scheme == "file"

    @property
    def path(self) -> str:
        """The absolute path of a file URL; empty for other URLs."""
        return os.path.abspath(self.key) if self.is_local else ""

    @property
    def url(self) -> str:
        """The URL itself, with the scheme that aliases stand for."""
        if self.is_local:
            return f"file://{quote(self.path)}"
        parts = "/".join(filter(None, (self.account, self.bucket, self.key)))
        return f"{self.scheme}://{parts}{self.query and f'?{self.query}'}"

    @property
    def chunk_location(self) -> str:
        """The URL as locations of virtual chunks have it: without the account."""
        return f"az://{self.bucket}/{self.key}" if self.scheme == "az" else self.url


def parse_parts(text: str | os.PathLike[str]) -> UrlParts:
    """The URL or path ``text``, in its parts. See the module for the dialect.

    Raises ``InvalidInputError`` (``cannot-parse-url``) for a text that names no storage.

    >>> parse_parts("abfss://ice@mine.dfs.core.windows.net/a/b").url
    'az://mine/ice/a/b'
    >>> parse_parts("hdfs://namenode/ice")
    Traceback (most recent call last):
    frazil.errors.InvalidInputError: expected a folder, or s3://bucket/prefix, ... found 'hdfs://namenode/ice'
    """
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
    """Account and container of ``container@account.dfs.core.windows.net``."""
    match = _HADOOP_AZURE.fullmatch(authority)
    if match is None:
        raise InvalidInputError(
            f"expected abfs://container@account.dfs.core.windows.net/prefix, found {shown_url(text)!r}; "
            "or write az://account/container/prefix",
            ErrorKind.CANNOT_PARSE_URL,
        )
    return match[2], match[1]


def _cannot_parse(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"expected {_EXPECTED_URL}, found {shown_url(text)!r}", ErrorKind.CANNOT_PARSE_URL
    )

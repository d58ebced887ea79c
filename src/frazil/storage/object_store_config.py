"""Which object store holds virtual chunks, and how to reach it: values only, no connection.

``ObjectStoreConfig`` is a family of variants, one per kind of store; ``s3_store()`` and its siblings are
the short way to make them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from os import PathLike, fspath
from typing import Any, ClassVar

from frazil.arguments import checked
from frazil.display import (
    PACKAGE,
    Check,
    Default,
    Family,
    Numbered,
    Settings,
    Shown,
    instance,
    literal,
    required,
    unsigned,
)
from frazil.storage.option_names import check_headers, shown_headers, shown_options, shown_url


class ChecksumAlgorithm(IntEnum):
    """Checksum that an S3 client sends with what it uploads."""

    Crc32 = 0
    Crc32c = 1
    Crc64Nvme = 2
    Sha1 = 3
    Sha256 = 4

    __str__ = Enum.__str__

    def __repr__(self) -> str:
        return f"ChecksumAlgorithm.{self.name}"


@dataclass(slots=True, repr=False)
class S3Options(Settings):
    """How to reach an S3 bucket: region, endpoint, addressing, and who pays. Mutable."""

    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    force_path_style: bool = False
    network_stream_timeout_seconds: int | None = None
    requester_pays: bool = False
    checksum_algorithm: ChecksumAlgorithm | None = None

    shown_as: ClassVar[str] = "storage.S3Options"
    _fields: ClassVar[dict[str, Default | None]] = {
        "region": None,
        "endpoint_url": None,
        "allow_http": None,
        "anonymous": None,
        "force_path_style": None,
        "network_stream_timeout_seconds": None,
        "requester_pays": None,
        "checksum_algorithm": None,
    }
    _checks: ClassVar[dict[str, Check]] = {
        "region": instance(str),
        "endpoint_url": instance(str),
        "allow_http": required(bool),
        "anonymous": required(bool),
        "force_path_style": required(bool),
        "network_stream_timeout_seconds": unsigned(32),
        "requester_pays": required(bool),
        "checksum_algorithm": instance(ChecksumAlgorithm),
    }

    def _displayed(self, name: str) -> Any:
        value = getattr(self, name)
        return shown_url(value) if name == "endpoint_url" and value is not None else value


def _masked(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return shown_headers(value) if name == "headers" else shown_options(value)


class _Variant(Numbered, Settings):
    """Prints as a call with positional arguments; the options of S3 are its own rows."""

    __slots__ = ()
    _fields: ClassVar[dict[str, Default | None]] = {}
    _checks: ClassVar[dict[str, Check]] = {}
    _shown_names: ClassVar[dict[str, str]] = {}

    def _values(self) -> list[tuple[str, Any]]:
        return [(f.name, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]  # a dataclass

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for name, value in self._values():
            if isinstance(value, S3Options):
                yield from value._rows()
            else:
                yield self._shown_names.get(name, name), literal(_masked(name, value))

    def __repr__(self) -> str:
        return f"{PACKAGE}.{self.shown_as}({', '.join(literal(_masked(*pair)) for pair in self._values())})"


_Options = Mapping[str, str]
_OPTIONS = instance(Mapping)


class ObjectStoreConfig(metaclass=Family):
    """One of the kinds of object store. Compare by value; has no instances of its own."""

    def _repr_html_(self) -> str:
        """The record as HTML; each variant has its own."""
        raise NotImplementedError

    @dataclass(slots=True, repr=False)
    class InMemory(_Variant):
        """Chunks in this process."""

        shown_as: ClassVar[str] = "config.ObjectStoreConfig.InMemory"

    @dataclass(slots=True, repr=False)
    class LocalFileSystem(_Variant):
        """Files under ``path``."""

        path: str
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.LocalFileSystem"
        _checks: ClassVar[dict[str, Check]] = {"path": required(str)}

    @dataclass(slots=True, repr=False)
    class S3Compatible(_Variant):
        """A server that speaks S3's protocol (MinIO, Ceph, R2)."""

        options: S3Options
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.S3Compatible"
        _checks: ClassVar[dict[str, Check]] = {"options": required(S3Options)}

    @dataclass(slots=True, repr=False)
    class S3(_Variant):
        """Amazon S3."""

        options: S3Options
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.S3"
        _checks: ClassVar[dict[str, Check]] = {"options": required(S3Options)}

    @dataclass(slots=True, repr=False)
    class Gcs(_Variant):
        """Google Cloud Storage; ``opts`` are options of the object store client."""

        opts: _Options | None = None
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.Gcs"
        _shown_names: ClassVar[dict[str, str]] = {"opts": "config"}
        _checks: ClassVar[dict[str, Check]] = {"opts": _OPTIONS}

    @dataclass(slots=True, repr=False)
    class Azure(_Variant):
        """Azure blob storage; ``opts`` holds the ``account`` and options of the client."""

        opts: _Options | None = None
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.Azure"
        _shown_names: ClassVar[dict[str, str]] = {"opts": "config"}
        _checks: ClassVar[dict[str, Check]] = {"opts": _OPTIONS}

    @dataclass(slots=True, repr=False)
    class Tigris(_Variant):
        """Tigris."""

        opts: S3Options
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.Tigris"
        _checks: ClassVar[dict[str, Check]] = {"opts": required(S3Options)}

    @dataclass(slots=True, repr=False)
    class Http(_Variant):
        """Files on a web server; read only. Every request carries ``headers``."""

        opts: _Options | None = None
        headers: _Options | None = None
        shown_as: ClassVar[str] = "config.ObjectStoreConfig.Http"
        _checks: ClassVar[dict[str, Check]] = {"opts": _OPTIONS, "headers": _OPTIONS}


AnyObjectStoreConfig = (
    ObjectStoreConfig.InMemory
    | ObjectStoreConfig.LocalFileSystem
    | ObjectStoreConfig.S3
    | ObjectStoreConfig.S3Compatible
    | ObjectStoreConfig.Gcs
    | ObjectStoreConfig.Azure
    | ObjectStoreConfig.Tigris
    | ObjectStoreConfig.Http
)


@checked
def local_filesystem_store(path: str | PathLike[str]) -> ObjectStoreConfig.LocalFileSystem:
    """Virtual chunks in files under ``path``.

    >>> local_filesystem_store("/data").path
    '/data'
    """
    return ObjectStoreConfig.LocalFileSystem(fspath(path))


@checked
def s3_store(
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    anonymous: bool = False,
    s3_compatible: bool = False,
    force_path_style: bool = False,
    network_stream_timeout_seconds: int = 60,
    requester_pays: bool = False,
    checksum_algorithm: ChecksumAlgorithm | None = None,
) -> ObjectStoreConfig.S3Compatible | ObjectStoreConfig.S3:
    """Virtual chunks in S3, or with ``s3_compatible`` in a server that speaks its protocol."""
    options = S3Options(
        region=region,
        endpoint_url=endpoint_url,
        allow_http=allow_http,
        anonymous=anonymous,
        force_path_style=force_path_style,
        network_stream_timeout_seconds=network_stream_timeout_seconds,
        requester_pays=requester_pays,
        checksum_algorithm=checksum_algorithm,
    )
    return ObjectStoreConfig.S3Compatible(options) if s3_compatible else ObjectStoreConfig.S3(options)


@checked
def gcs_store(opts: dict[str, str] | None = None) -> ObjectStoreConfig.Gcs:
    """Virtual chunks in Google Cloud Storage."""
    return ObjectStoreConfig.Gcs(opts)


@checked
def azure_store(*, account: str, config: dict[str, str] | None = None) -> ObjectStoreConfig.Azure:
    """Virtual chunks in Azure blob storage, of this account."""
    return ObjectStoreConfig.Azure({"account": account, **(config or {})})


@checked
def http_store(
    opts: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> ObjectStoreConfig.Http:
    """Virtual chunks on a web server.

    Raises ``InvalidInputError`` (``storage-config``) for headers that HTTP does not allow.
    """
    check_headers(headers)
    return ObjectStoreConfig.Http(opts, headers)

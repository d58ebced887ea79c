"""The places of chunks, the kinds of store that hold virtual chunks, and their options. No connections.

``ObjectStoreConfig`` is a family of classes, one for each kind of store. ``s3_store`` and similar functions
create them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from os import PathLike, fspath
from typing import Any, ClassVar, TypedDict

from frazil.argument_docs import with_argument_docs
from frazil.arguments import checked
from frazil.display import PACKAGE, Family, NamedEnum, Numbered, Shown, literal
from frazil.options import Settings, option, unsigned
from frazil.storage.option_names import MASK, PLAIN_HEADERS, check_headers, shown_options, shown_url


class ChecksumAlgorithm(IntEnum):
    """The checksum that a client of S3 sends with uploads."""

    Crc32 = 0
    Crc32c = 1
    Crc64Nvme = 2
    Sha1 = 3
    Sha256 = 4

    __str__ = Enum.__str__

    def __repr__(self) -> str:
        return f"ChecksumAlgorithm.{self.name}"


class ChunkType(NamedEnum, IntEnum):
    """The place of the bytes of a chunk.

    The value is a number, so that callers can compare it with columns of numbers.

    Attributes:
        uninitialized: The chunk is missing. A read returns the fill value.
        native: A chunk file of the repository.
        virtual: An object outside of the repository.
        inline: The manifest.
    """

    uninitialized = 0
    native = 1
    virtual = 2
    inline = 3


class StorageHeaders(TypedDict, total=False):
    """Headers of the requests of a storage.

    Attributes:
        read_headers: Headers that are sent with every request that reads. Default: none.
        write_headers: Headers that are sent with every request that writes. Default: none.
        headers: Headers that are sent with every request. Default: none.
    """

    read_headers: dict[str, str] | None
    write_headers: dict[str, str] | None
    headers: dict[str, str] | None


@dataclass(slots=True, repr=False)
class S3Options(Settings):
    """Options to reach a bucket of S3, or of a server with the same protocol. Mutable.

    Attributes:
        region: Region of the bucket. Default: ``AWS_REGION``, ``AWS_DEFAULT_REGION`` or the AWS profile.
        endpoint_url: URL of the server, for example ``https://minio.example:9000``. Default: Amazon S3.
        allow_http: Whether requests without encryption are allowed (for an ``http://`` endpoint).
            Default: False.
        anonymous: True sends requests without credentials. Default: False.
        force_path_style: True puts the bucket into the path of URLs. False, the default, puts it into the
            host name where this is possible.
        network_stream_timeout_seconds: A read that makes no progress for this number of seconds fails. 0
            means no limit. Default: 60.
        requester_pays: True makes the owner of the credentials pay for the requests. Default: False.
        checksum_algorithm: Checksum that is sent with uploads: ``Sha256`` or ``Crc64Nvme``. Other members of
            ``ChecksumAlgorithm`` are not supported. Default: none.

    Examples:
        >>> S3Options(region="eu-west-1", anonymous=True).region
        'eu-west-1'
    """

    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool = False
    anonymous: bool = False
    force_path_style: bool = False
    network_stream_timeout_seconds: int | None = option(check=unsigned(32))
    requester_pays: bool = False
    checksum_algorithm: ChecksumAlgorithm | None = None

    shown_as: ClassVar[str] = "storage.S3Options"

    def _displayed(self, name: str) -> Any:
        value = getattr(self, name)
        return shown_url(value) if name == "endpoint_url" and value is not None else value


def _masked(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if name == "headers":
        return {header: text if header.lower() in PLAIN_HEADERS else MASK for header, text in value.items()}
    return shown_options(value)


class _StoreVariant(Numbered, Settings):
    """Prints as a call with positional arguments; the options of S3 are its own rows."""

    __slots__ = ()
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


class ObjectStoreConfig(metaclass=Family):
    """A kind of object store and its options. One of the nested classes.

    The class itself has no instances. Values are compared by their fields.
    """

    def _repr_html_(self) -> str:
        """Return the value as HTML. Each variant implements this method."""
        raise NotImplementedError

    @dataclass(slots=True, repr=False)
    class InMemory(_StoreVariant):
        """Chunks in the memory of this process."""

    @dataclass(slots=True, repr=False)
    class LocalFileSystem(_StoreVariant):
        """Files in the directory ``path``."""

        path: str

    @dataclass(slots=True, repr=False)
    class S3Compatible(_StoreVariant):
        """A server with the protocol of S3, for example MinIO, Ceph or R2."""

        options: S3Options

    @dataclass(slots=True, repr=False)
    class S3(_StoreVariant):
        """Amazon S3."""

        options: S3Options

    @dataclass(slots=True, repr=False)
    class Gcs(_StoreVariant):
        """Google Cloud Storage. ``opts`` has options of the client."""

        opts: Mapping[str, str] | None = None
        _shown_names: ClassVar[dict[str, str]] = {"opts": "config"}

    @dataclass(slots=True, repr=False)
    class Azure(_StoreVariant):
        """Azure blob storage. ``opts`` has the ``account`` and options of the client."""

        opts: Mapping[str, str] | None = None
        _shown_names: ClassVar[dict[str, str]] = {"opts": "config"}

    @dataclass(slots=True, repr=False)
    class Tigris(_StoreVariant):
        """Tigris, a service with the protocol of S3."""

        opts: S3Options

    @dataclass(slots=True, repr=False)
    class Http(_StoreVariant):
        """A web server, which is read only. Every request carries ``headers``."""

        opts: Mapping[str, str] | None = None
        headers: Mapping[str, str] | None = None


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
    """Return the store of a container whose virtual chunks are in local files.

    Args:
        path: Directory that holds the files.

    Returns:
        The store, for ``VirtualChunkContainer``.

    Examples:
        >>> local_filesystem_store("/data").path
        '/data'
    """
    return ObjectStoreConfig.LocalFileSystem(fspath(path))


@checked
@with_argument_docs(S3Options)
def s3_store(  # noqa: D417  # the decorator describes the others
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
    """Return the store of a container whose virtual chunks are in S3.

    Args:
        s3_compatible: True for another server with the protocol of S3. Default: False, which means Amazon S3.

    Returns:
        The store, for ``VirtualChunkContainer``.

    Examples:
        >>> s3_store(region="eu-west-1", anonymous=True).options.region
        'eu-west-1'
    """
    place = (region, endpoint_url, allow_http, anonymous, force_path_style)
    options = S3Options(*place, network_stream_timeout_seconds, requester_pays, checksum_algorithm)
    return ObjectStoreConfig.S3Compatible(options) if s3_compatible else ObjectStoreConfig.S3(options)


@checked
def gcs_store(opts: dict[str, str] | None = None) -> ObjectStoreConfig.Gcs:
    """Return the store of a container whose virtual chunks are in Google Cloud Storage.

    Args:
        opts: Options of the client and their values. Default: none.

    Returns:
        The store, for ``VirtualChunkContainer``.

    Examples:
        >>> gcs_store({"timeout": "30s"}).opts
        {'timeout': '30s'}
    """
    return ObjectStoreConfig.Gcs(opts)


@checked
def azure_store(*, account: str, config: dict[str, str] | None = None) -> ObjectStoreConfig.Azure:
    """Return the store of a container whose virtual chunks are in Azure blob storage.

    Args:
        account: Name of the storage account.
        config: Other options of the client and their values. Default: none.

    Returns:
        The store, for ``VirtualChunkContainer``.

    Examples:
        >>> azure_store(account="me").opts
        {'account': 'me'}
    """
    return ObjectStoreConfig.Azure({"account": account, **(config or {})})


@checked
def http_store(
    opts: dict[str, str] | None = None, headers: dict[str, str] | None = None
) -> ObjectStoreConfig.Http:
    """Return the store of a container whose virtual chunks are on a web server.

    Args:
        opts: Options of the HTTP client and their values. Default: none.
        headers: Headers that are sent with every request. Default: none.

    Returns:
        The store, for ``VirtualChunkContainer``.

    Raises:
        InvalidInputError: ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> http_store({"timeout": "30s"}).opts
        {'timeout': '30s'}
    """
    check_headers(headers)
    return ObjectStoreConfig.Http(opts, headers)

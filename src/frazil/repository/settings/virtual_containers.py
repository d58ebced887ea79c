"""Virtual chunks for users of the library: containers and references.

A virtual chunk is a range of bytes in an object that another program wrote. Its location starts with the
``url_prefix`` of a container, which defines how to access it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from frazil.errors import ErrorKind, InvalidInputError
from frazil.options import Settings, unsigned
from frazil.storage.access import require_scheme
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import check_headers, shown_url

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True, repr=False)
class VirtualChunkContainer(Settings):
    """A prefix of virtual references, with the access to it.

    Attributes:
        url_prefix: The beginning of all locations in this container. It must end with ``/``.
        store: The kind of storage, with its options.
        name: The name for relative locations, ``vcc://<name>/<path>``. Default: no name.

    Examples:
        >>> from frazil.storage.object_store_config import s3_store
        >>> VirtualChunkContainer("s3://bucket/era5/", s3_store(region="eu-west-1")).validate()
    """

    url_prefix: str
    store: AnyObjectStoreConfig
    name: str | None = None
    #: Whether it was read from a repository, so that it is only a hint: see ``frazil.storage.hints``.
    from_repository: bool = field(default=False, init=False, repr=False, compare=False)

    shown_as: ClassVar[str] = "virtual.VirtualChunkContainer"
    order = ("name", "url_prefix", "store")

    def validate(self) -> None:
        """Raise an error if the prefix, the store and the name do not fit together.

        Raises:
            InvalidInputError: ``invalid-virtual-ref`` if they do not.
        """
        if not self.url_prefix.endswith("/"):
            raise _invalid("url_prefix must end with /", self.url_prefix)
        url = urlsplit(self.url_prefix)
        require_scheme(self.store, self.url_prefix)
        if url.scheme in ("s3", "tigris") and not url.netloc:
            raise _invalid("url_prefix must contain a bucket", self.url_prefix)
        if self.name is not None and (not self.name or "/" in self.name):
            raise _invalid("name must not be empty or contain /", repr(self.name))
        if isinstance(self.store, ObjectStoreConfig.Http):
            check_headers(self.store.headers)

    def as_own(self) -> VirtualChunkContainer:
        """Return a copy that counts as configured by the caller, even if a repository saved this container.

        A repository may not choose the server, files and secrets that its readers use. Check a saved
        container first, then set its copy in the configuration that you open the repository with.

        Returns:
            The copy.

        Examples:
            >>> from frazil import RepositoryConfig
            >>> from frazil.storage.object_store_config import s3_store
            >>> config = RepositoryConfig()
            >>> saved = VirtualChunkContainer("s3://bucket/", s3_store(endpoint_url="https://minio.example"))
            >>> config.set_virtual_chunk_container(saved.as_own())
        """
        return VirtualChunkContainer(self.url_prefix, deepcopy(self.store), self.name)

    def _displayed(self, name: str) -> Any:
        value = getattr(self, name)
        return shown_url(value) if name == "url_prefix" else value


def _invalid(expected: str, actual: str) -> InvalidInputError:
    return InvalidInputError(
        f"virtual chunk container: {expected}, got {shown_url(actual)}",
        ErrorKind.INVALID_VIRTUAL_REF,
    )


@dataclass(frozen=True, slots=True)
class VirtualChunkSpec:
    """One chunk to set as a virtual chunk: its index in the chunk grid, and its range of bytes.

    If a checksum is given, reading another version of the object raises an error.

    Attributes:
        index: The index of the chunk in the chunk grid.
        location: The URL of the object, or a relative location ``vcc://<name>/<path>``.
        offset: Where the chunk begins in the object, in bytes.
        length: The length of the chunk in bytes.
        etag_checksum: The etag of the object.
        last_updated_at_checksum: The latest allowed modification time of the object, with a time zone.
    """

    index: list[int] = field(hash=False)
    location: str
    offset: int
    length: int
    etag_checksum: str | None = None
    last_updated_at_checksum: datetime | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", _index(self.index))
        unsigned(64)("offset", self.offset)
        unsigned(64)("length", self.length)
        moment = self.last_updated_at_checksum
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise TypeError(f"last_updated_at_checksum must be a datetime with a time zone, got {moment}")


def _index(given: Sequence[Any]) -> list[int]:
    if isinstance(given, str | bytes) or not hasattr(given, "__len__") or getattr(given, "ndim", 1) == 0:
        raise TypeError(f"index must be a sequence of integers, got {type(given).__name__}")
    check = unsigned(32)
    for i in given:
        check("index", i)
    return list(given)

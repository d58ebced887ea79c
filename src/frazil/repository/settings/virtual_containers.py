"""Virtual chunks as users name them: the containers they live in, and single references.

A virtual chunk is a range of bytes in an object that somebody else wrote. Its location starts with the
``url_prefix`` of a container, which says how to reach it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from frazil.display import Check, Default, Settings, instance, required, unsigned
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.access import require_scheme
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.option_names import check_headers, shown_url

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True, repr=False)
class VirtualChunkContainer(Settings):
    """A place where virtual chunks may be: every location that starts with ``url_prefix``.

    A named container can be meant by relative locations, ``vcc://<name>/<path>``.

    >>> from frazil.storage.object_store_config import s3_store
    >>> VirtualChunkContainer("s3://bucket/era5/", s3_store(region="eu-west-1")).validate()
    """

    url_prefix: str
    store: AnyObjectStoreConfig
    name: str | None = None
    #: Read from a repository, and so a hint: see ``frazil.storage.hints``.
    from_repository: bool = field(default=False, init=False, repr=False, compare=False)

    shown_as: ClassVar[str] = "virtual.VirtualChunkContainer"
    _fields: ClassVar[dict[str, Default | None]] = {"name": None, "url_prefix": None, "store": None}
    _checks: ClassVar[dict[str, Check]] = {
        "url_prefix": required(str),
        "store": required(ObjectStoreConfig),
        "name": instance(str),
    }

    def validate(self) -> None:
        """Raise ``InvalidInputError`` if prefix, store and name do not fit together."""
        if not self.url_prefix.endswith("/"):
            raise _invalid("url_prefix to end with /", self.url_prefix)
        url = urlsplit(self.url_prefix)
        require_scheme(self.store, self.url_prefix)
        if url.scheme in ("s3", "tigris") and not url.netloc:
            raise _invalid("a bucket in the url_prefix", self.url_prefix)
        if self.name is not None and (not self.name or "/" in self.name):
            raise _invalid("a name that is not empty and has no /", repr(self.name))
        if isinstance(self.store, ObjectStoreConfig.Http):
            check_headers(self.store.headers)

    def as_own(self) -> VirtualChunkContainer:
        """A copy that counts as yours, also if this container was read from a repository.

        A repository may not choose the server, files and secrets that its readers use. Look at a saved
        container first, and set its copy in the configuration that you open the repository with.

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


def _invalid(expected: str, found: str) -> InvalidInputError:
    return InvalidInputError(
        f"virtual chunk container: expected {expected}, found {shown_url(found)}",
        ErrorKind.INVALID_VIRTUAL_REF,
    )


@dataclass(frozen=True, slots=True)
class VirtualChunkSpec:
    """One chunk to be set as virtual: its index in the grid, and the range of bytes that it is.

    ``etag_checksum`` or ``last_updated_at_checksum`` say which version of the object is meant; reading
    another one is an error.
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
            raise TypeError(f"last_updated_at_checksum: expected a datetime with a time zone, found {moment}")


def _index(given: Sequence[Any]) -> list[int]:
    if isinstance(given, str | bytes) or not hasattr(given, "__len__") or getattr(given, "ndim", 1) == 0:
        raise TypeError(f"index: expected a sequence of integers, found {type(given).__name__}")
    check = unsigned(32)
    for i in given:
        check("index", i)
    return list(given)

"""Virtual chunks, which are ranges of foreign objects that the user has authorised.

A location belongs to the *container* with the longest matching URL prefix. It is only read if the user has
authorised this container: a repository is foreign data. Locations are stored verbatim, except for ``file:``
URLs, which are normalized as paths. ``vcc://<name>/<path>`` is relative to the container with this name.
"""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, Unpack
from urllib.parse import quote, unquote

import numpy as np

from frazil.about import PACKAGE_FOLDER
from frazil.chunks.ranges import copy_into
from frazil.display import some_of
from frazil.errors import ChangedFileWarning, ErrorKind, InvalidInputError, StorageError
from frazil.lazy_names import ModuleOnDemand
from frazil.storage.access import require_hint
from frazil.storage.option_names import shown_url

if TYPE_CHECKING:
    from collections.abc import Buffer, Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from frazil.format.manifest import VirtualRef
    from frazil.storage import foreign_objects
    from frazil.storage.credential_families import AnyCredential
    from frazil.storage.foreign_objects import ForeignObjects
    from frazil.storage.object_store_config import AnyObjectStoreConfig
else:
    foreign_objects = ModuleOnDemand("frazil.storage.foreign_objects")

RELATIVE: Final = "vcc://"
#: The cache of places: the largest number of locations, and the length of the longest one.
_CACHED_PLACES: Final = 1 << 14
_CACHED_LENGTH: Final = 512


@dataclass(frozen=True, slots=True)
class Container:
    """A container of virtual chunks: all URLs that start with ``url_prefix``, in ``store``."""

    name: str | None
    url_prefix: str
    store: AnyObjectStoreConfig
    is_given: bool = False
    warns_of_changes: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the objects are local files."""
        return self.url_prefix.startswith("file:")


class _Conditions(TypedDict):
    """The conditions of a read, and a set to which the state of the object is added."""

    etag: str | None
    not_modified_since: datetime | None
    states: set[str] | None


_NO_CONDITIONS: Final[_Conditions] = {"etag": None, "not_modified_since": None, "states": None}


class ForeignReader(Protocol):
    """A reader of foreign objects under one URL prefix, which checks the etag or the time of objects."""

    def get(self, url: str, start: int, stop: int, **conditions: Unpack[_Conditions]) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``, if the object has not changed."""

    async def get_async(self, url: str, start: int, stop: int, **conditions: Unpack[_Conditions]) -> Buffer:
        """Return the result of ``get``."""


#: The scheme of a URL -> the usual access to its objects, as a name of the package.
_ACCESS: Final = {
    "file": "credentials.LocalFileSystemAccess",
    **dict.fromkeys(("http", "https"), "credentials.HttpAccess"),
    **dict.fromkeys(("gs", "gcs"), "gcs_from_env_credentials()"),
    **dict.fromkeys(("az", "azure", "abfs"), "azure_from_env_credentials()"),
}


#: Connects to the store of a container: its configuration, the credentials, and the URL prefix.
type OpenForeign = Callable[[Any, Any, str], ForeignReader]


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """A foreign object with the etag or time that its references have. It is a ``Readable`` of one read.

    ``states`` has the states of the object in the answers of its servers.
    """

    name: str
    etag: str | None
    modified: int | None
    is_local: bool = field(compare=False)
    reader: ForeignReader = field(compare=False)
    states: set[str] = field(default_factory=set, compare=False)

    @property
    def is_checked(self) -> bool:
        """Whether each read compares the object with its references, and never returns another one."""
        has_checksum = (self.etag, self.modified) != (None, None)
        return has_checksum and not isinstance(self.reader, WarningReader)

    def require_one_state(self) -> None:
        """Raise ``StorageError`` (``virtual-chunk-modified``) if the object changed during the read."""
        if len(self.states) > 1:
            raise StorageError(
                f"the object of virtual chunks must not change during a read, got two states of "
                f"{shown_url(self.name)}: {' and '.join(sorted(self.states))}. Read again",
                ErrorKind.VIRTUAL_CHUNK_MODIFIED,
            )

    def get(self, start: int, stop: int) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``."""
        return self.reader.get(self.name, start, stop, **self._conditions())

    async def get_async(self, start: int, stop: int) -> Buffer:
        """Return the result of ``get``."""
        return await self.reader.get_async(self.name, start, stop, **self._conditions())

    def get_into(self, start: int, out: memoryview) -> int:
        """Read the bytes from ``start`` into memory. Return their number."""
        return copy_into(self.get(start, start + len(out)), out)

    def size(self) -> int | None:
        """Return None, because the size is not known."""
        return None

    def _conditions(self) -> _Conditions:
        time = None if self.modified is None else datetime.fromtimestamp(self.modified, UTC)
        return {"etag": self.etag, "not_modified_since": time, "states": self.states}


@dataclass(slots=True)
class WarningReader:
    """A reader that warns once for each changed object, and returns its data."""

    reader: ForeignReader
    changed: set[str] = field(default_factory=set)

    def get(self, url: str, start: int, stop: int, **conditions: Unpack[_Conditions]) -> Buffer:
        """Return the bytes from ``start`` up to ``stop``."""
        if url not in self.changed:
            try:
                return self.reader.get(url, start, stop, **conditions)
            except StorageError as error:
                self._warn(url, error)
        return self.reader.get(url, start, stop, **_NO_CONDITIONS)

    async def get_async(self, url: str, start: int, stop: int, **conditions: Unpack[_Conditions]) -> Buffer:
        """Return the result of ``get``."""
        if url not in self.changed:
            try:
                return await self.reader.get_async(url, start, stop, **conditions)
            except StorageError as error:
                self._warn(url, error)
        return await self.reader.get_async(url, start, stop, **_NO_CONDITIONS)

    def _warn(self, url: str, error: StorageError) -> None:
        if error.kind != ErrorKind.VIRTUAL_CHUNK_MODIFIED:
            raise error
        # The set changes first: other threads that read this object do not warn, too.
        is_new = url not in self.changed
        self.changed.add(url)
        if is_new:
            warnings.warn(error.message, ChangedFileWarning, skip_file_prefixes=(PACKAGE_FOLDER,))


def open_on_demand(
    config: AnyObjectStoreConfig,
    credentials: AnyCredential | None,
    url_prefix: str,
    *,
    user_agent: str | None = None,
) -> ForeignObjects:
    """Return the result of ``open_foreign``. Its module loads the clients of many storages on demand."""
    return foreign_objects.open_foreign(config, credentials, url_prefix, user_agent=user_agent)


class VirtualSources:
    """The containers of a repository, with the credentials of those that the user has authorised."""

    def __init__(
        self,
        containers: Sequence[Container],
        credentials: Mapping[str, Any],
        *,
        open_foreign: OpenForeign = open_on_demand,
    ) -> None:
        #: All containers, authorised or not.
        self.containers: Final = tuple(containers)
        #: The credentials of authorised containers, by the URL prefix that the user has passed. A prefix with
        #: ``*`` at its end authorises all containers at and below it.
        self.credentials: Mapping[str, Any] = dict(credentials)
        self._credentials = {
            _prefix(prefix.removesuffix("*")) + "*" * prefix.endswith("*"): value
            for prefix, value in credentials.items()
        }
        self._open_foreign = open_foreign
        # The longest prefix is first, so the first match is the answer. A repository may write a prefix of
        # the user in another way, or use a name of the user: then the user's container is used.
        placed = [(_prefix(c.url_prefix), c) for c in self.containers]
        self._by_length = sorted(placed, key=lambda pair: (len(pair[0]), pair[1].is_given), reverse=True)
        last_is_own = sorted(self._by_length, key=lambda pair: pair[1].is_given)
        self._by_name = {c.name: prefix for prefix, c in last_is_own if c.name is not None}
        self._readers: dict[str, ForeignReader] = {}
        self._lock = threading.Lock()
        # Cached, because many chunks are in the same object. An entry has at most two texts of this length,
        # so a full cache has less than 40 MiB.
        self._cached_place = lru_cache(_CACHED_PLACES)(self._place)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.containers, self.credentials, self._open_foreign)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        containers, credentials, open_foreign = state
        VirtualSources.__init__(self, containers, credentials, open_foreign=open_foreign)

    def strict(self) -> VirtualSources:
        """Return the same containers, with an error for each changed object."""
        containers = [replace(each, warns_of_changes=False) for each in self.containers]
        return VirtualSources(containers, self.credentials, open_foreign=self._open_foreign)

    def resolve(self, location: str) -> str:
        """Return the URL of a location. A relative location is joined to the prefix of its container."""
        if location[: len(RELATIVE)].lower() != RELATIVE:
            return normalized(location)
        name, slash, path = location[len(RELATIVE) :].partition("/")
        prefix = self._by_name.get(name) if slash else None
        if prefix is None:
            raise InvalidInputError(
                f"the relative location {location!r} must have a path, and the name of a virtual chunk "
                f"container ({some_of(sorted(self._by_name))}), got the name {name!r}",
                ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK,
            )
        return normalized(prefix + path)

    def urls(self, locations: Sequence[str]) -> list[str]:
        """Return the URLs of stored locations. Only relative locations change. See ``resolve``."""
        relative = list(map(str.startswith, locations, repeat(RELATIVE)))
        if not any(relative):
            return list(locations)
        pairs = zip(locations, relative, strict=True)
        return [self.resolve(each) if is_relative else each for each, is_relative in pairs]

    def find_container(self, location: str) -> Container:
        """Return the container of a location, authorised or not. Raises ``InvalidInputError`` without one."""
        return self._place(location)[2]

    def matching(self, locations: Sequence[str]) -> NDArray[np.bool_]:
        """Return for each location whether it is valid and has a container. Repetitions are fast."""
        has_container: dict[str, bool] = {}
        for location in set(locations):
            with suppress(InvalidInputError):
                has_container[location] = bool(self._place(location))
        return np.fromiter(map(has_container.__contains__, locations), bool, len(locations))

    def locate(self, ref: VirtualRef) -> ForeignObject:
        """Return the object of a reference. Raises ``InvalidInputError`` if it is not authorised."""
        is_cached = len(ref.location) <= _CACHED_LENGTH
        url, prefix, container = (self._cached_place if is_cached else self._place)(ref.location)
        reader = self._readers.get(prefix) or self._opened(prefix, container, url)
        return ForeignObject(url, ref.etag, ref.modified, container.is_local, reader)

    def _place(self, location: str) -> tuple[str, str, Container]:
        """Return the URL of a location, the matching prefix, and its container."""
        url = self.resolve(location)
        for prefix, container in self._by_length:
            if url.startswith(prefix):
                return url, prefix, container
        raise InvalidInputError(
            f"no virtual chunk container matches {shown_url(url)!r}: the location must be under one of "
            f"{some_of(shown_url(prefix) for prefix, _ in self._by_length)}. Add a VirtualChunkContainer to "
            "the configuration",
            ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK,
        )

    def _opened(self, prefix: str, container: Container, url: str) -> ForeignReader:
        parents = (key for key in self._credentials if key.endswith("*") and prefix.startswith(key[:-1]))
        key = prefix if prefix in self._credentials else max(parents, key=len, default=None)
        if key is None:
            access = _ACCESS.get(prefix.partition(":")[0], "s3_anonymous_credentials()")
            raise InvalidInputError(
                f"{shown_url(url)!r} is in the virtual chunk container {shown_url(prefix)!r}, which is not "
                "authorised",
                ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER,
            ).with_remedy(
                "Pass the container when you open the repository: "
                "authorize_virtual_chunk_access=frazil.containers_credentials({})",
                f"{{{shown_url(prefix)!r}: frazil.{access}}}",
                shell="Name the container in the variable FRAZIL_VIRTUAL_ACCESS",
            )
        if not container.is_given:
            require_hint(container.store, container.url_prefix)
        with self._lock:
            reader = self._readers.get(prefix)
            if reader is None:
                reader = self._open_foreign(container.store, self._credentials[key], prefix)
                if container.warns_of_changes:
                    reader = WarningReader(reader)
                self._readers[prefix] = reader
            return reader


# URLs

#: The start of each location that ``normalized`` does not change, if it is no local file.
_NORMAL: Final = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*://[^/]")
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def normalized(location: str) -> str:
    """Return a location in the form in which it is stored and matched with containers."""
    match = _URL.fullmatch(location)
    if match is None:
        raise _invalid(location, "it has no scheme")
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        return _file_url(location, rest)
    if not rest.startswith("//") or rest[2:3] in ("", "/"):
        raise _invalid(location, "it has no bucket or host")
    return f"{scheme}:{rest}"


def normalized_all(locations: list[str]) -> list[str]:
    """Return the result of ``normalized`` for many locations."""
    # One call of C for each location that is normal already.
    return locations if all(map(_NORMAL.match, locations)) else list(map(normalized, locations))


def _prefix(url_prefix: str) -> str:
    """Return the prefix of a container in the form for matches, with a slash at its end."""
    if ":" not in url_prefix:
        return url_prefix
    prefix = normalized(url_prefix)
    return prefix if prefix.endswith("/") else f"{prefix}/"


def _file_url(location: str, rest: str) -> str:
    """Return a normalized ``file:`` URL, where ``..`` is resolved, so that it cannot leave a prefix."""
    match = _PATH.fullmatch(rest)
    assert match is not None  # all parts of the pattern can be empty
    host, path, query = match.groups("")
    if _HIDDEN.search(path):
        raise _invalid(location, "its path has a NUL or an encoded slash")
    resolved: list[str] = []
    segments = path.replace("\\", "/").removeprefix("/").split("/")
    for segment in segments:
        dots = unquote(segment)
        if dots == "..":
            del resolved[-1:]
        elif dots != ".":
            resolved.append(segment)
    # A path that ends in "/." or "/.." is a directory.
    if dots in (".", ".."):
        resolved.append("")
    where = "" if host == "localhost" else host
    return f"file://{where}/" + "/".join(quote(segment, safe=_UNQUOTED) for segment in resolved) + query


#: Characters of a path segment that are not quoted in a ``file:`` URL. With "%", quoted characters stay.
_UNQUOTED: Final = "!$&'()*+,;=:@~[]|^%"
_PATH: Final = re.compile(r"(?://([^/\\?#]*))?([^?#]*)(.*)", re.DOTALL)
_HIDDEN: Final = re.compile(r"\0|%00|%2f", re.IGNORECASE)


def _invalid(location: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"a virtual chunk location must be a URL such as s3://bucket/key, https://host/path or "
        f"file:///absolute/path, got {shown_url(location)!r}: {reason}",
        ErrorKind.INVALID_VIRTUAL_REF,
    )

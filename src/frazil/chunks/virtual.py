"""Virtual chunks: bytes in objects of others, read only from where the user allowed it.

A *container* says which locations there may be (those under its URL prefix) and which store holds them. A
location belongs to the container with the longest matching prefix, and is read only if the user authorised
that very container: a repository is data from somewhere, and must not make its readers fetch what they did
not agree to. What a repository says about a container is a hint besides: see ``frazil.storage.hints``.

Locations are URLs, kept verbatim (``//``, ``.`` and ``..`` mean themselves on an object store), with two
exceptions: ``file:`` URLs are normalised as paths, and ``vcc://<name>/<path>`` is relative to the prefix of
the container of that name.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, unquote

import numpy as np

from frazil.chunks.ranges import ByteRange
from frazil.display import some_of
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.foreign import open_foreign as connect
from frazil.storage.hints import require_hint
from frazil.storage.option_names import shown_url

if TYPE_CHECKING:
    from collections.abc import Buffer, Mapping, Sequence

    from numpy.typing import NDArray

    from frazil.format.manifest import VirtualRef
    from frazil.storage.object_store_config import AnyObjectStoreConfig

RELATIVE: Final = "vcc://"


@dataclass(frozen=True, slots=True)
class Container:
    """Where virtual chunks may be: all URLs that start with ``url_prefix``, held by ``store``.

    ``name``, if given, can be used in relative locations, ``vcc://<name>/<path>``. ``is_given`` says that
    it is the user's own, and not one that the repository brings along.
    """

    name: str | None
    url_prefix: str
    store: AnyObjectStoreConfig
    is_given: bool = False

    @property
    def is_local(self) -> bool:
        return self.url_prefix.startswith("file:")


class ForeignReader(Protocol):
    """Objects of others under one URL prefix; a read checks what is known of their state."""

    def get(
        self, url: str, start: int, stop: int, *, etag: str | None, not_modified_since: datetime | None
    ) -> Buffer: ...

    async def get_async(
        self, url: str, start: int, stop: int, *, etag: str | None, not_modified_since: datetime | None
    ) -> Buffer: ...


class OpenForeign(Protocol):
    """Connects to the store of a container."""

    def __call__(self, config: Any, credentials: Any, url_prefix: str, /) -> ForeignReader: ...


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """An object of others in the state that a reference remembers; a ``Readable``."""

    name: str
    etag: str | None
    modified: int | None
    is_local: bool = field(compare=False)
    reader: ForeignReader = field(compare=False)

    def get(self, start: int, stop: int) -> Buffer:
        return self.reader.get(self.name, start, stop, etag=self.etag, not_modified_since=self._time())

    async def get_async(self, start: int, stop: int) -> Buffer:
        return await self.reader.get_async(
            self.name, start, stop, etag=self.etag, not_modified_since=self._time()
        )

    def size(self) -> int | None:
        return None

    def _time(self) -> datetime | None:
        return None if self.modified is None else datetime.fromtimestamp(self.modified, UTC)


class VirtualSources:
    """The containers of a repository and the credentials for those that the user authorised.

    ``credentials`` is keyed by the containers' URL prefixes; a prefix that is there is authorised, whatever
    its value. Stores are opened when first read from, and reopened where a pickle arrives.

    >>> sources = VirtualSources([Container("era", "s3://bucket/era5/", None)], {})
    >>> sources.resolve("vcc://era/2024.nc")
    's3://bucket/era5/2024.nc'
    >>> sources.matching(["s3://bucket/era5/x.nc", "s3://other/x.nc"]).tolist()
    [True, False]
    """

    def __init__(
        self,
        containers: Sequence[Container],
        credentials: Mapping[str, Any],
        *,
        open_foreign: OpenForeign = connect,
    ) -> None:
        self._containers = tuple(containers)
        self._given = dict(credentials)
        self._credentials = {_prefix(prefix): value for prefix, value in credentials.items()}
        self._open_foreign = open_foreign
        # Longest first: the first match is the answer. A repository may spell a prefix in another way, or
        # take a name: then the user's own container counts.
        placed = [(_prefix(c.url_prefix), c) for c in self._containers]
        self._by_length = sorted(placed, key=lambda pair: (len(pair[0]), pair[1].is_given), reverse=True)
        last_is_own = sorted(self._by_length, key=lambda pair: pair[1].is_given)
        self._by_name = {c.name: prefix for prefix, c in last_is_own if c.name is not None}
        self._readers: dict[str, ForeignReader] = {}
        self._lock = threading.Lock()
        # Many chunks are in one object.
        self._placed = lru_cache(1 << 16)(self._place)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._containers, self._given, self._open_foreign)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        containers, credentials, open_foreign = state
        VirtualSources.__init__(self, containers, credentials, open_foreign=open_foreign)

    @property
    def credentials(self) -> Mapping[str, Any]:
        """By URL prefix, as the user spelled it; what is there is authorised."""
        return dict(self._given)

    @property
    def containers(self) -> tuple[Container, ...]:
        return self._containers

    def resolve(self, location: str) -> str:
        """Return the URL of a location: relative ones joined to their container's prefix, others checked.

        Raises ``InvalidInputError``: ``invalid-virtual-ref``, or ``no-container-for-virtual-chunk`` for an
        unknown name.
        """
        if location[: len(RELATIVE)].lower() != RELATIVE:
            return normalized(location)
        name, slash, path = location[len(RELATIVE) :].partition("/")
        prefix = self._by_name.get(name) if slash else None
        if prefix is None:
            raise InvalidInputError(
                f"{location!r} is relative to a virtual chunk container named {name!r}: expected one of "
                f"{some_of(sorted(self._by_name))}, and a path",
                ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK,
            )
        return normalized(prefix + path)

    def urls(self, locations: Sequence[str]) -> list[str]:
        """Stored locations as URLs: only the relative ones change. See ``resolve``."""
        relative = list(map(str.startswith, locations, repeat(RELATIVE)))
        if not any(relative):
            return list(locations)
        return list(map(_one_url, repeat(self), locations, relative))

    def find_container(self, location: str) -> Container:
        """Return the container of a location, authorised or not; else ``no-container-for-virtual-chunk``."""
        return self._place(location)[2]

    def matching(self, locations: Sequence[str]) -> NDArray[np.bool_]:
        """Which of the locations are well-formed and have a container; a dictionary lookup for each."""
        verdicts = _Verdicts(self)
        return np.fromiter(map(verdicts.__getitem__, locations), bool, len(locations))

    def locate(self, ref: VirtualRef) -> ForeignObject:
        """Return the object that a reference points to.

        Raises ``InvalidInputError`` of kind ``unauthorized-virtual-chunk-container`` if the user did not
        allow it.
        """
        url, prefix, container = self._placed(ref.location)
        reader = self._readers.get(prefix) or self._opened(prefix, container, url)
        return ForeignObject(url, ref.etag, ref.modified, container.is_local, reader)

    def read(self, ref: VirtualRef, start: int = 0, stop: int | None = None) -> Buffer:
        """Return the bytes ``start <= i < stop`` of a virtual chunk."""
        return self._range(ref, start, stop).read()

    async def read_async(self, ref: VirtualRef, start: int = 0, stop: int | None = None) -> Buffer:
        """``read`` for an event loop."""
        return await self._range(ref, start, stop).read_async()

    def _range(self, ref: VirtualRef, start: int, stop: int | None) -> ByteRange:
        last = ref.length if stop is None else min(stop, ref.length)
        return ByteRange(self.locate(ref), ref.offset + start, ref.offset + last)

    def _place(self, location: str) -> tuple[str, str, Container]:
        """Return the URL of a location, and its container with the prefix that matched."""
        url = self.resolve(location)
        for prefix, container in self._by_length:
            if url.startswith(prefix):
                return url, prefix, container
        raise InvalidInputError(
            f"no virtual chunk container matches {shown_url(url)!r}: expected a location under one of "
            f"{some_of(shown_url(prefix) for prefix, _ in self._by_length)}. Add a VirtualChunkContainer to "
            "the configuration",
            ErrorKind.NO_CONTAINER_FOR_VIRTUAL_CHUNK,
        )

    def _opened(self, prefix: str, container: Container, url: str) -> ForeignReader:
        if prefix not in self._credentials:
            raise InvalidInputError(
                f"{shown_url(url)!r} is in the virtual chunk container {shown_url(prefix)!r}, which is not "
                "authorised: name it in authorize_virtual_chunk_access when opening the repository",
                ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER,
            )
        if not container.is_given:
            require_hint(container.store, container.url_prefix)
        with self._lock:
            reader = self._readers.get(prefix)
            if reader is None:
                reader = self._open_foreign(container.store, self._credentials[prefix], prefix)
                self._readers[prefix] = reader
            return reader


def _one_url(sources: VirtualSources, location: str, relative: bool) -> str:
    return sources.resolve(location) if relative else location


class _Verdicts(dict[str, bool]):
    """Whether a location has a container, worked out once for each distinct location."""

    def __init__(self, sources: VirtualSources) -> None:
        super().__init__()
        self._sources = sources

    def __missing__(self, location: str) -> bool:
        try:
            self._sources.find_container(location)
        except InvalidInputError:
            verdict = False
        else:
            verdict = True
        self[location] = verdict
        return verdict


# ------------------------------------------------------------------------------------------- URLs

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def normalized(location: str) -> str:
    """A location as it is kept and matched; ``InvalidInputError`` (``invalid-virtual-ref``) if it is no URL.

    >>> normalized("s3://bucket//a/../b")
    's3://bucket//a/../b'
    >>> normalized("file:///data/a b/../c.nc")
    'file:///data/c.nc'
    """
    match = _URL.fullmatch(location)
    if match is None:
        raise _invalid(location, "it has no scheme")
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        return _file_url(location, rest)
    if not rest.startswith("//") or rest[2:3] in ("", "/"):
        raise _invalid(location, "it names no bucket or host")
    return f"{scheme}:{rest}"


def _prefix(url_prefix: str) -> str:
    """A container's prefix as it is matched: with a slash at its end, or it would match ``s3://bucket-other``.

    Early versions of the format kept only a scheme, ``s3``.
    """
    if ":" not in url_prefix:
        return url_prefix
    prefix = normalized(url_prefix)
    return prefix if prefix.endswith("/") else f"{prefix}/"


def _file_url(location: str, rest: str) -> str:
    """``file:`` URLs name paths: ``..`` is resolved before matching, or a prefix would protect nothing."""
    match = _PATH.fullmatch(rest)
    assert match is not None  # every part may be empty
    host, path, query = match.groups("")
    if _HIDDEN.search(path):
        raise _invalid(location, "its path holds a NUL or an encoded slash")
    resolved: list[str] = []
    segments = path.replace("\\", "/").removeprefix("/").split("/")
    for segment in segments:
        dots = unquote(segment)
        if dots == "..":
            del resolved[-1:]
        elif dots != ".":
            resolved.append(segment)
    # What ends in "/." or "/.." is a directory.
    if dots in (".", ".."):
        resolved.append("")
    where = "" if host == "localhost" else host
    return f"file://{where}/" + "/".join(quote(segment, safe=_UNQUOTED) for segment in resolved) + query


#: Characters of a path segment that stay as they are in a ``file:`` URL; what is quoted already stays so.
_UNQUOTED: Final = "!$&'()*+,;=:@~[]|^%"
_PATH: Final = re.compile(r"(?://([^/\\?#]*))?([^?#]*)(.*)", re.DOTALL)
_HIDDEN: Final = re.compile(r"\0|%00|%2f", re.IGNORECASE)


def _invalid(location: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{shown_url(location)!r} is not a virtual chunk location: {reason}; expected a URL such as "
        "s3://bucket/key, https://host/path or file:///absolute/path",
        ErrorKind.INVALID_VIRTUAL_REF,
    )

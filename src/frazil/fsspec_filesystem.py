"""The file system ``frazil`` of fsspec: the keys of Zarr in one version of a repository, read only.

fsspec finds it by an entry point. Programs that read Zarr through fsspec read a version without other code:

>>> import frazil, fsspec, numpy, zarr
>>> with frazil.Repository.create("ice").transaction("main", message="an array") as store:
...     array = zarr.create_array(store, name="t", data=numpy.arange(3))
>>> files = fsspec.filesystem("frazil", address="ice@main")
>>> files.ls("t", detail=False), files.info("t/c/0")["type"]
(['t/c', 't/zarr.json'], 'file')
>>> fsspec.get_mapper("frazil://ice@main:t")["zarr.json"][:1]
b'{'
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, override

from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]  # it ships no types
from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]
from zarr.abc.store import RangeByteRequest

import frazil
from frazil.errors import IcechunkError, InvalidInputError, KeyNotFoundError, NotFoundError
from frazil.repository.target import Target, parse_target

__all__ = ["FrazilFileSystem"]

_PROTOCOL: Final = "frazil://"


class _File(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """A file that reads ranges of a value."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start, end)
        return data


class FrazilFileSystem(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The keys of one version of a repository as files.

    A file system reads the snapshot that it has opened, also if its branch moves, or after it was pickled.
    URLs are ``frazil://LOCATION[@VERSION][:PATH]``, and each URL opens its version again.

    Args:
        address: The text ``LOCATION[@VERSION][:PATH]``, as in `frazil.open_address`. Paths are below the
            path of the address.
        session: A session to read instead of an address.
        root: The node of the session to which paths are relative. Default: the root group.
        storage_options: Options of the storage by name.
        config: Options of the repository.
        authorize_virtual_chunk_access: Containers of virtual chunks to read.
        options: Options of fsspec, such as ``asynchronous``.

    Raises:
        InvalidInputError: Neither an address nor a session is given (``invalid-argument``).
        RepositoryNotFoundError: There is no repository at the location.
    """

    protocol = "frazil"
    # A second look at a branch reads its new version.
    cachable = False

    def __init__(
        self,
        address: str | None = None,
        *,
        session: frazil.Session | None = None,
        root: str = "/",
        storage_options: Mapping[str, Any] | None = None,
        config: frazil.RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if session is None:
            if address is None:
                raise InvalidInputError(
                    "address must name a repository, got None. Write frazil://LOCATION[@VERSION][:PATH]",
                    frazil.errors.ErrorKind.INVALID_ARGUMENT,
                )
            session, root = frazil.open_address(
                address,
                storage_options=storage_options,
                config=config,
                authorize_virtual_chunk_access=authorize_virtual_chunk_access,
            )
        self._options = {**options, "session": session, "root": root}
        self._store = session.store
        self._prefix = f"{root.strip('/')}/".lstrip("/")

    # fsspec copies and pickles a file system with these arguments, and sets them after the constructor.
    storage_args: Final = property(lambda self: (), lambda self, value: None)
    storage_options: Final = property(lambda self: self._options, lambda self, value: None)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        if text.startswith(_PROTOCOL):
            text = parse_target(text.removeprefix(_PROTOCOL)).path or ""
        return text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        target = parse_target(path.removeprefix(_PROTOCOL))
        return {"address": str(Target(target.location, target.version))}

    async def _size(self, path: str) -> int | None:
        """Return the size of the value of a key, or None without one."""
        try:
            return await self._store.getsize(self._prefix + path)
        except (InvalidInputError, NotFoundError):  # a group or a part of the chunk grid
            return None

    async def _names(self, path: str) -> list[str]:
        try:
            return sorted([each async for each in self._store.list_dir(self._prefix + path)])
        except IcechunkError:  # a key, or a name that no node can have
            return []

    @override
    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        name = self._strip_protocol(path)
        size = await self._size(name)
        if size is None and not await self._names(name):
            raise FileNotFoundError(path)
        return {"name": name, "size": size or 0, "type": "directory" if size is None else "file"}

    @override
    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        name = self._strip_protocol(path)
        own = await self._info(name)
        if own["type"] == "file":
            return [own] if detail else [name]
        paths = [f"{name}/{each}".lstrip("/") for each in await self._names(name)]
        if not detail:
            return paths
        sizes = await asyncio.gather(*map(self._size, paths))
        return [
            {"name": each, "size": size or 0, "type": "directory" if size is None else "file"}
            for each, size in zip(paths, sizes, strict=True)
        ]

    @override
    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        name = self._strip_protocol(path)
        span = None
        if start is not None or end is not None:
            size = await self._size(name)
            if size is None:
                raise FileNotFoundError(path)
            first, stop, _ = slice(start, end).indices(size)
            span = RangeByteRequest(first, max(first, stop))
        try:
            value = await self._store.get(self._prefix + name, None, span)
        except (InvalidInputError, KeyNotFoundError):
            value = None
        if value is None:
            raise FileNotFoundError(path)
        return value.to_bytes()

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> _File:
        """Open a file for reading. fsspec calls this method."""
        if mode != "rb":
            raise frazil.errors.ReadOnlyError(f"a version is read only, got the mode {mode!r} of {path!r}")
        return _File(self, path, mode, **kwargs)

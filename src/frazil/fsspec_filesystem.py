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

fsspec reads all URLs of a list with the file system of the first one, and gives it their paths. So the path
of a URL has its address, in percent codes: ``ice%40main/./t``. Other paths are relative to the node of the
file system.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Never, override
from urllib.parse import quote, unquote

from fsspec.asyn import AsyncFileSystem  # type: ignore[import-untyped]  # it ships no types
from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]
from fsspec.utils import tokenize  # type: ignore[import-untyped]
from zarr.abc.store import RangeByteRequest

import frazil
from frazil.errors import IcechunkError, InvalidInputError, KeyNotFoundError, NotFoundError
from frazil.repository.target import PROTOCOL, Target, parse_target

__all__ = ["FrazilFileSystem"]

#: Between the address and the key in the path of a URL. Keys of Zarr have no part of this name.
_MARK: Final = "/./"


def _address(text: str) -> str:
    """Return the address of a URL without the path of the node, as its paths have it."""
    target = parse_target(text)
    return quote(str(Target(target.location, target.version)), safe="")


class _BufferedFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """A file that reads ranges of a value."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start, end)
        return data


class FrazilFileSystem(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The keys of one version of a repository as files.

    A file system reads the snapshot that it has opened, also if its branch moves, or after it was pickled.
    URLs are ``frazil://LOCATION[@VERSION][:PATH]``. Each new file system opens its version again. A URL of
    another version or repository is opened with the same options.

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
        access = {
            "storage_options": storage_options,
            "config": config,
            "authorize_virtual_chunk_access": authorize_virtual_chunk_access,
        }
        if session is None:
            if address is None:
                raise InvalidInputError(
                    "address must name a repository, got None. Write frazil://LOCATION[@VERSION][:PATH]",
                    frazil.errors.ErrorKind.INVALID_ARGUMENT,
                )
            session, root = frazil.open_address(address, **access)
        self._access = access
        self._options = {**options, **access, "address": address, "session": session, "root": root}
        self._store = session.store
        self._stores = {} if address is None else {_address(address): self._store}
        self._prefix = f"{root.strip('/')}/".lstrip("/")

    # fsspec copies a file system with these arguments, and sets them and the token after the constructor.
    storage_args: Final = property(lambda self: (), lambda self, value: None)
    storage_options: Final = property(lambda self: self._options, lambda self, value: None)
    _fs_token_ = property(lambda self: self._token(self._store, self._prefix), lambda self, value: None)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (self._options, self._stores))

    @staticmethod
    def _token(store: frazil.IcechunkStore, *more: str) -> str:
        """Return a name of a version of the repository, for Dask."""
        token: str = tokenize(*store.__dask_tokenize__(), *more)
        return token

    @override
    def ukey(self, path: str) -> str:
        """Return a name of the content of a path, which contains the version."""
        return self._token(self._at(path)[0], super().ukey(path))

    @override
    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """Return the file system as values of JSON: the address of its snapshot, and the options."""
        options = {name: value for name, value in self._options.items() if value is not None}
        session, root = options.pop("session"), options.pop("root")
        if "address" not in options:
            raise InvalidInputError(
                "a file system must have an address to become JSON, got one of a session",
                frazil.errors.ErrorKind.INVALID_ARGUMENT,
            )
        location = parse_target(options["address"]).location
        options["address"] = str(Target(location, session.snapshot_id, root))
        cls = type(self)
        return {"cls": f"{cls.__module__}:{cls.__name__}", "protocol": PROTOCOL[:-3], "args": [], **options}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = str(path)
        if text.startswith(PROTOCOL):
            text = text.removeprefix(PROTOCOL)
            text = f"{_address(text)}{_MARK}{(parse_target(text).path or '').strip('/')}"
        return text.strip("/")

    @override
    def unstrip_protocol(self, name: str) -> str:
        """Return the URL of a path."""
        address, mark, key = f"{self._strip_protocol(name)}/".partition(_MARK)
        if not mark:
            address, key = next(iter(self._stores), ""), self._prefix + address
        return f"{PROTOCOL}{unquote(address)}:{key.rstrip('/')}"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"address": unquote(_address(path.removeprefix(PROTOCOL)))}

    def _at(self, path: str) -> tuple[frazil.IcechunkStore, str]:
        """Return the store that has a path, and the key there."""
        address, mark, key = f"{self._strip_protocol(path)}/".partition(_MARK)
        if not mark:
            return self._store, self._prefix + address.rstrip("/")
        store = self._stores.get(address)
        if store is None:
            try:
                opened = frazil.open_address(unquote(address), **self._access)[0].store
            except NotFoundError as error:
                raise FileNotFoundError(str(error)) from error
            store = self._stores.setdefault(address, opened)
        return store, key.rstrip("/")

    async def _size(self, path: str) -> int | None:
        """Return the size of the value of a key, or None without one."""
        store, key = self._at(path)
        try:
            return await store.getsize(key)
        except (InvalidInputError, NotFoundError):  # a group or a part of the chunk grid
            return None

    async def _names(self, path: str) -> list[str]:
        store, key = self._at(path)
        try:
            return sorted([each async for each in store.list_dir(key)])
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
        store, key = self._at(name)
        try:
            value = await store.get(key, None, span)
        except (InvalidInputError, KeyNotFoundError):
            value = None
        if value is None:
            raise FileNotFoundError(path)
        return value.to_bytes()

    @override
    async def _get_file(self, rpath: str, lpath: Any, **kwargs: Any) -> None:
        if await self._isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
        elif hasattr(lpath, "write"):
            lpath.write(await self._cat_file(rpath))
        else:
            Path(lpath).write_bytes(await self._cat_file(rpath))

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> _BufferedFile:
        """Open a file for reading. fsspec calls this method."""
        if mode != "rb":
            raise frazil.errors.ReadOnlyError(f"a version is read only, got the mode {mode!r} of {path!r}")
        return _BufferedFile(self, path, mode, **kwargs)

    async def _refuse(self, path: str, *args: Any, **kwargs: Any) -> Never:
        raise frazil.errors.ReadOnlyError(
            f"a version is read only, got a change of {path!r}. Write with Repository.writable_session"
        )

    _mkdir = _makedirs = _rm_file = _rm = _pipe_file = _put_file = _cp_file = _mv_file = _refuse

    def rmdir(self, path: str) -> Never:
        """Raise ``ReadOnlyError``."""
        raise frazil.errors.ReadOnlyError(f"a version is read only, got a change of {path!r}")

    def modified(self, path: str) -> Never:
        """Raise ``NotImplementedError``."""
        raise NotImplementedError(
            f"a key has no time, got {path!r}. Repository.ancestry has the times of the commits"
        )

    created = modified


def _restored(options: dict[str, Any], stores: dict[str, frazil.IcechunkStore]) -> FrazilFileSystem:
    files = FrazilFileSystem(**options)
    files._stores.update(stores)
    return files

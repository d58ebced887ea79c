"""The files that a browser may read: those of the format, and the assets of the page.

A file of the format is *immutable* if an id names it: its bytes never change, so that its key is its etag.
Expiration rewrites snapshots of spec version 1, so these are not. Statistics of chunks are written again when
more of them are known.

The explorer as files is for a bucket or a web server without a program. Its ``explorer.json`` says where the
repository is, relative to the page, so that both can be moved together. A web server cannot list the refs of
a repository of spec version 1, so ``index.json`` has them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Buffer, Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from frazil.errors import ErrorKind, InvalidInputError, StorageError
from frazil.format.ids import ID_TEXT_LENGTH, id_to_text
from frazil.repository.catalog.files_v1 import read_all_refs
from frazil.repository.target import Target
from frazil.storage.base import Storage
from frazil.storage.local import LocalStorage

ID: Final = rf"[0-9A-HJKMNP-TV-Z]{{{ID_TEXT_LENGTH}}}"
_IMMUTABLE: Final = re.compile(rf"(?:snapshots|manifests|transactions|chunks)/{ID}")
_MUTABLE: Final = re.compile(
    r"repo|config\.yaml|refs/(?:branch|tag)\.[^/\\\x00-\x1f\x7f]+/ref\.json(?:\.deleted)?"
    rf"|statistics/{ID}"
)
#: The file with the refs of a repository of spec version 1, which only the homes of the explorer have.
INDEX: Final = "index.json"
#: The name of an asset that says which bytes it has. The build of the page gives such names to its parts.
_OF_CONTENT: Final = re.compile(r"-[A-Z0-9]{8}\.js$")
#: A part of a range is read and sent at once.
_PART: Final = 4 << 20
#: The largest range that one answer contains in memory.
LONGEST: Final = 256 << 20

#: The suffix of an asset -> its type.
TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "wasm": "application/wasm",
    "txt": "text/plain; charset=utf-8",
}
BINARY: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class BytesContent:
    """Bytes in memory. Their etag is their hash."""

    data: Buffer
    is_immutable: bool = False

    @classmethod
    def of_asset(cls, asset: Traversable, is_packed: bool) -> BytesContent:
        """Read a file of the page, and pack it with gzip if the client unpacks it."""
        data = asset.read_bytes()
        return cls(gzip.compress(data, mtime=0) if is_packed else data, bool(_OF_CONTENT.search(asset.name)))

    @property
    def size(self) -> int:
        """The number of bytes."""
        return memoryview(self.data).nbytes

    @property
    def etag(self) -> str:
        """The hash of the bytes."""
        return hashlib.blake2b(self.data, digest_size=16).hexdigest()

    def parts(self, start: int, stop: int) -> Iterator[Buffer]:
        """Yield the range at once."""
        yield memoryview(self.data).cast("B")[start:stop]


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """An immutable object of a storage, which is read when it is sent."""

    storage: Storage
    key: str
    size_of: Callable[[str], int]
    is_immutable: bool = True

    @property
    def size(self) -> int:
        """The number of bytes, which may take a request."""
        return self.size_of(self.key)

    @property
    def etag(self) -> str:
        """The key, because it never names other bytes."""
        return self.key

    def parts(self, start: int, stop: int) -> Iterator[Buffer]:
        """Yield the range as the storage returns it."""
        for first in range(start, stop, _PART):
            yield self.storage.get(self.key, first, min(first + _PART, stop))

    def part(self, start: int, stop: int) -> Buffer | None:
        """Return a range with one request, without the size of the object. None if the size is needed.

        A request for the size would double the time of each chunk on an object store.
        """
        if self.storage.is_local or not 0 < stop - start <= _PART:
            return None
        try:
            return self.storage.get(self.key, start, stop)
        except StorageError as error:
            if error.kind is ErrorKind.OBJECT_STORE:  # also a range that begins at the end or after it
                return None
            raise


#: What an answer contains: bytes of a known number, with an etag.
type Content = BytesContent | ObjectContent


def range_of(content: Content, start: int, stop: int) -> Buffer:
    """Return a range of a content in memory, which ends where the content ends."""
    data = content.part(start, stop) if isinstance(content, ObjectContent) else None
    return b"".join(content.parts(start, min(stop, content.size))) if data is None else data


class RepositoryFiles:
    """The files of one repository, by their keys."""

    def __init__(self, storage: Storage, spec_version: int) -> None:
        self._storage = storage
        self._is_v1 = spec_version == 1
        self._size = lru_cache(1 << 16)(self._size_of)

    def content(self, key: str) -> Content | None:
        """Return a file. None if no file of the format has this key.

        Raises ``StorageError`` (``object-not-found``) now or later if it does not exist.
        """
        if self._is_v1 and key == INDEX:
            return BytesContent(json.dumps(index(self._storage)).encode())
        if _IMMUTABLE.fullmatch(key) and not (self._is_v1 and key.startswith("snapshots/")):
            return ObjectContent(self._storage, key, self._size)
        if _MUTABLE.fullmatch(key) or _IMMUTABLE.fullmatch(key):
            return BytesContent(self._storage.get_versioned(key)[0])
        return None

    def _size_of(self, key: str) -> int:
        info = self._storage.head(key)
        if info is None:
            raise StorageError(f"{key} does not exist", ErrorKind.OBJECT_NOT_FOUND)
        return info.size


def index(storage: Storage) -> dict[str, Any]:
    """Return the refs of a repository of spec version 1, which a browser cannot list over HTTP."""
    refs = read_all_refs(storage)
    return {
        "branches": {name: id_to_text(id_) for name, id_ in refs.branches.items()},
        "tags": {name: id_to_text(id_) for name, id_ in refs.tags.items()},
    }


def start(target: Target) -> dict[str, str]:
    """Return what the page shows first, if the target names it."""
    parts = {"version": target.version, "path": target.path}
    return {name: value for name, value in parts.items() if value is not None}


def assets() -> dict[str, Traversable]:
    """Return the files of the page by their paths, which the package contains."""
    return dict(_below(files("frazil.ui") / "static", ""))


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _below(each, f"{prefix}{each.name}/")
        else:
            yield f"{prefix}{each.name}", each


SETTINGS: Final = "explorer.json"


def export(
    folder: Path, target: Target, storage: Storage, spec_version: int, repo_url: str | None = None
) -> dict[str, Any]:
    """Write the page into a folder, and return the content of its ``explorer.json``.

    ``repo_url`` is the address of the repository for the page. Without it, the repository must be a folder
    next to the page, around it or in it.
    """
    settings: dict[str, Any] = {
        "repo": _relative(folder, storage) if repo_url is None else _address(repo_url),
        "label": storage.label() if repo_url is None else repo_url,
        **start(target),
        "specVersion": spec_version,
    }
    if isinstance(storage, LocalStorage):
        settings["label"] = storage.root.name  # a page for others does not show folders of this machine
    files = {name: each.read_bytes() for name, each in assets().items()}
    if spec_version == 1:
        settings["index"] = INDEX
        files[INDEX] = _document(index(storage))
    files[SETTINGS] = _document(settings)
    # The browser asks for the first files while it still reads the page.
    early = [SETTINGS] if spec_version == 1 else [SETTINGS, f"{settings['repo']}repo"]
    links = "".join(f'<link rel="preload" as="fetch" crossorigin href="{escape(each)}" />' for each in early)
    files["index.html"] = files["index.html"].replace(b"</title>", f"</title>{links}".encode(), 1)
    # The page comes last, so that it finds its files.
    for name in sorted(files, key="index.html".__eq__):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return settings


def _document(value: Any) -> bytes:
    return f"{json.dumps(value, ensure_ascii=False, indent=2)}\n".encode()


def _relative(folder: Path, storage: Storage) -> str:
    """Return the address of a local repository, relative to the page."""
    if isinstance(storage, LocalStorage):
        root, page = storage.root.resolve(), folder.resolve()
        if os.path.commonpath([root, page]) in map(str, (root, root.parent, page)):
            return f"{quote(os.path.relpath(root, page))}/"
    raise InvalidInputError(
        f"the address of the repository for the page must be known, but {storage.label()} is not a folder "
        f"next to {folder} or around it. Pass --repo-url with the URL at which browsers find the repository"
    )


def _address(url: str) -> str:
    parts = urlsplit(url)
    is_relative = not parts.scheme and not parts.netloc
    if (
        parts.username
        or parts.query
        or parts.fragment
        or not (is_relative or (parts.scheme in ("http", "https") and parts.netloc))
    ):
        raise InvalidInputError(
            f"--repo-url must be http, https or relative to the page, without user and query, got {url!r}"
        )
    return f"{url.rstrip('/')}/"

"""Which files, and how they belong together.

    a glob, or a list    ``"data/*.nc"``: their coordinates tell the order, their variables what is merged
    FilePattern          names of files made from keys, as in pangeo-forge-recipes:

>>> def name(time, variable):
...     return f"s3://bucket/{variable}_{time:02}.nc"
>>> pattern = FilePattern(name, ConcatDim("time", [1, 2]), MergeDim("variable", ["tas", "pr"]))
>>> files = expand(pattern)
>>> files.urls
('s3://bucket/tas_01.nc', 's3://bucket/pr_01.nc', 's3://bucket/tas_02.nc', 's3://bucket/pr_02.nc')
>>> files.position.tolist(), files.concat_dim
([0, 0, 1, 1], 'time')
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.readers.files import local_path, object_storage
from frazil.storage.urls import parse_url


@dataclass(frozen=True, slots=True)
class ConcatDim:
    """The dimension in which files follow each other.

    Where the files do not have the dimension, each is one step of it, and ``keys`` become its coordinate.
    """

    name: str
    keys: Sequence[Any]


@dataclass(frozen=True, slots=True)
class MergeDim:
    """Files that hold different variables of the same things."""

    name: str
    keys: Sequence[Any]


@dataclass(frozen=True, slots=True)
class FilePattern:
    """``format_function`` makes the name of a file from one key of each dimension, given by name."""

    format_function: Callable[..., str]
    combine_dims: tuple[ConcatDim | MergeDim, ...]

    def __init__(self, format_function: Callable[..., str], *combine_dims: ConcatDim | MergeDim) -> None:
        object.__setattr__(self, "format_function", format_function)
        object.__setattr__(self, "combine_dims", combine_dims)
        if sum(isinstance(dim, ConcatDim) for dim in combine_dims) > 1:
            raise InvalidInputError(
                f"expected at most one ConcatDim, found {[dim.name for dim in combine_dims]}",
                ErrorKind.UNIMPLEMENTED,
            )


#: A pattern, a glob, one file, or many files or globs.
type Files = FilePattern | str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files in order. ``position``: the place of each along ``concat_dim``, if a pattern gives it."""

    urls: tuple[str, ...]
    concat_dim: str | None = None
    position: NDArray[np.int64] | None = None
    keys: tuple[Any, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.urls


def expand(source: Files, storage_options: Mapping[str, Any] | None = None) -> SourceFiles:
    """The files that are meant. Raises ``InvalidInputError`` if there are none, or one twice.

    Globs of buckets (``s3://bucket/*/t2m_*.nc``) list what begins like them.
    """
    expanded = _expanded(source, storage_options)
    if expanded.is_empty:
        raise InvalidInputError(
            f"expected at least one file, found none for {source!r}", ErrorKind.KEY_NOT_FOUND
        )
    if len(set(expanded.urls)) < len(expanded.urls):
        seen: set[str] = set()
        twice = next(url for url in expanded.urls if url in seen or seen.add(url))  # type: ignore[func-returns-value]
        raise InvalidInputError(f"expected each file once, found {twice} twice", ErrorKind.INVALID_ARGUMENT)
    return expanded


def _expanded(source: Files, storage_options: Mapping[str, Any] | None) -> SourceFiles:
    if isinstance(source, FilePattern):
        return _from_pattern(source)
    given = [source] if isinstance(source, str | os.PathLike) else source
    return SourceFiles(
        tuple(itertools.chain.from_iterable(_globbed(os.fspath(each), storage_options) for each in given))
    )


def _globbed(text: str, storage_options: Mapping[str, Any] | None) -> Iterable[str]:
    path = _absolute(text)
    if glob.has_magic(path) and "://" in path and parse_url(path).scheme in _LISTED:
        return _listed(path, storage_options)
    if "://" in path or not glob.has_magic(path) or os.path.exists(path):
        return (path,)
    return sorted(glob.glob(path, recursive=True))


def _listed(url: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """The objects that a glob means: ``*`` and ``?`` stay in one segment of the key, ``**`` does not."""
    storage, key = object_storage(url, storage_options)
    place = url[: len(url) - len(key)]
    fixed = list(itertools.takewhile(lambda each: not glob.has_magic(each), key.split("/")[:-1]))
    wanted = re.compile("".join(_MEANS.get(each) or re.escape(each) for each in _PARTS.split(key) if each))
    keys = map(attrgetter("key"), storage.list("/".join(fixed)))
    return [place + each for each in sorted(filter(wanted.fullmatch, keys))]


_LISTED: Final = ("s3", "gs", "az")
_PARTS: Final = re.compile(r"(\*\*/|\*\*|\*|\?)")
_MEANS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _absolute(url: str) -> str:
    """Tasks have other working directories, and a second run may have."""
    return local_path(url) or url


def _from_pattern(pattern: FilePattern) -> SourceFiles:
    dims = pattern.combine_dims
    names = [dim.name for dim in dims]
    urls = tuple(
        _absolute(pattern.format_function(**dict(zip(names, keys, strict=True))))
        for keys in itertools.product(*(dim.keys for dim in dims))
    )
    at = next((i for i, dim in enumerate(dims) if isinstance(dim, ConcatDim)), None)
    if at is None:
        return SourceFiles(urls)
    position = np.indices([len(dim.keys) for dim in dims])[at].ravel()
    return SourceFiles(urls, names[at], position, tuple(dims[at].keys))

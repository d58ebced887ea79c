"""The files of an ingest, and how they are combined.

    a glob, or a list    ``"data/*.nc"``: coordinates decide the order, variables decide what is merged
    FilePattern          a function makes the name of each file from keys, as in pangeo-forge-recipes:

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
    """The dimension of a `FilePattern` in which files follow each other.

    If the files do not have the dimension, each file is one step of it, and ``keys`` become its coordinate.

    Args:
        name: The name of the dimension, and of the argument of ``format_function``.
        keys: The value of the argument for each file, in order.
    """

    name: str
    keys: Sequence[Any]


@dataclass(frozen=True, slots=True)
class MergeDim:
    """The dimension of a `FilePattern` along which files hold different variables.

    Args:
        name: The name of the argument of ``format_function``.
        keys: The values of the argument, such as the names of variables.
    """

    name: str
    keys: Sequence[Any]


@dataclass(frozen=True, slots=True)
class FilePattern:
    """Files whose names are made from keys.

    Args:
        format_function: A function that returns the path or URL of a file. Its arguments have the names of
            the dimensions, and get one key of each.
        *combine_dims: At most one `ConcatDim`, and any number of `MergeDim`.

    Raises:
        InvalidInputError: ``unimplemented`` for more than one `ConcatDim`.

    >>> pattern = FilePattern("data/{time}.nc".format, ConcatDim("time", [2023, 2024]))
    >>> pattern.format_function(time=2023)
    'data/2023.nc'
    """

    format_function: Callable[..., str]
    combine_dims: tuple[ConcatDim | MergeDim, ...]

    def __init__(self, format_function: Callable[..., str], *combine_dims: ConcatDim | MergeDim) -> None:
        object.__setattr__(self, "format_function", format_function)
        object.__setattr__(self, "combine_dims", combine_dims)
        if sum(isinstance(dim, ConcatDim) for dim in combine_dims) > 1:
            raise InvalidInputError(
                f"combine_dims must have at most one ConcatDim, got {[dim.name for dim in combine_dims]}. "
                "Use MergeDim for the other dimensions",
                ErrorKind.UNIMPLEMENTED,
            )


#: A pattern, a glob, a file, or several files or globs.
type Files = FilePattern | str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files in order. A pattern gives ``position``, the index of each file along ``concat_dim``."""

    urls: tuple[str, ...]
    concat_dim: str | None = None
    position: NDArray[np.int64] | None = None
    keys: tuple[Any, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there are no files."""
        return not self.urls

    def names(self) -> tuple[str, ...]:
        """Return the names of the files for the metadata of commits: URLs, and local paths without folders.

        Local paths begin with the name of the folder that all of them have in common.
        """
        paths = [local_path(url) for url in self.urls]
        folders = {os.path.dirname(each) for each in paths if each is not None}
        start = os.path.dirname(os.path.commonpath(folders)) if folders else ""
        return tuple(
            url if path is None else os.path.relpath(path, start)
            for url, path in zip(self.urls, paths, strict=True)
        )


def expand(source: Files, storage_options: Mapping[str, Any] | None = None) -> SourceFiles:
    """Return the files that a pattern, globs or names match.

    A glob in a bucket (``s3://bucket/*/t2m_*.nc``) lists the objects under its fixed prefix.
    """
    expanded = _expanded(source, storage_options)
    if expanded.is_empty:
        raise InvalidInputError(
            f"source must match at least one file, got {source!r}, which matches none",
            ErrorKind.KEY_NOT_FOUND,
        )
    if len(set(expanded.urls)) < len(expanded.urls):
        seen: set[str] = set()
        twice = next(url for url in expanded.urls if url in seen or seen.add(url))  # type: ignore[func-returns-value]
        raise InvalidInputError(
            f"source must name each file once, got {twice} twice", ErrorKind.INVALID_ARGUMENT
        )
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
    """List the objects that a glob matches. ``*`` and ``?`` do not match a slash, ``**`` does."""
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
    """Return an absolute path: tasks and later runs may have other working directories."""
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

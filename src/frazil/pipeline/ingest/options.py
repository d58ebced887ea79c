"""The call of an ingest: its files, how they are opened, and its options as one checked value.

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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Literal, Self, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import Run, RunOptions
from frazil.jobs.progress import Progress
from frazil.pipeline.ingest.arrays import require_sizes
from frazil.pipeline.ingest.problems import require_tolerable
from frazil.pipeline.ingest.steps import MODES, Mode
from frazil.readers.base_reader import Reader
from frazil.readers.files import local_path, object_storage
from frazil.readers.registry import open_source, require_format
from frazil.repository.settings.config import VirtualChunkContainer
from frazil.storage.urls import parse_url


@dataclass(frozen=True, slots=True)
class FileAccess:
    """The format, the group in the files, and the options of storage and reader; see `FileOptions`."""

    format: str | None = None
    group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    reader_options: Mapping[str, Any] = field(default_factory=dict)

    def open(self, url: str) -> Reader:
        """Open a file with the reader of its format."""
        storage_options = None if self.storage_options is None else dict(self.storage_options)
        return open_source(
            url, self.format, group=self.group, storage_options=storage_options, **self.reader_options
        )


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


#: This process reads so few files and bytes faster than other processes start.
FEW_FILES: Final = 64
FEW_BYTES: Final = 256 << 20


def is_small(source: Files) -> bool:
    """Return whether ``source`` is at most 64 files with at most 256 MiB, all on this machine."""
    urls = expand(source).urls
    if len(urls) > FEW_FILES:
        return False
    paths = [local_path(url) for url in urls]
    return all(path is not None for path in paths) and sum(map(_size, filter(None, paths))) <= FEW_BYTES


def _size(path: str) -> int:
    """Return the bytes of a file, or of all files of a folder (a Zarr group); 0 if it does not exist."""
    if not os.path.isdir(path):
        try:
            return os.stat(path).st_size
        except OSError:  # the ingest reports the file
            return 0
    return sum(
        entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
        for folder, _, _ in os.walk(path)
        for entry in os.scandir(folder)
    )


type OnProblem = Literal["fail", "skip", "quarantine"]
type Compound = Literal["skip", "fields"]
type OnChange = Literal["fail", "ignore", "rewrite"]


class FileOptions(TypedDict, total=False):
    """The options that decide how files are opened.

    Attributes:
        format: The format of all files. None: detected for each file.
        source_group: The path of the group in the files.
        storage_options: Options of the storage of the files.
        reader_options: Options of the reader of the format.
        compound: Whether variables of compound types (HDF5) are left out, or each field becomes an array.
    """

    format: str | None
    source_group: str
    storage_options: Mapping[str, Any] | None
    reader_options: Mapping[str, Any] | None
    compound: Compound


class InspectionOptions(FileOptions, total=False):
    """The options of `inspect_files` that are not in its signature; see `ingest`."""

    allow: Collection[str]
    unpack: bool
    engine: Engine | EngineName | None
    progress: Progress | None


class IngestOptions(FileOptions, RunOptions, total=False):
    """The options of `ingest` that are not in its signature; see `ingest`."""

    chunks: Mapping[str, int] | None
    encoding: Mapping[str, Mapping[str, Any]] | None
    containers: Sequence[VirtualChunkContainer]
    on_problem: OnProblem
    on_change: OnChange
    allow: Collection[str]
    unpack: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """All options of one call with their defaults, before they are checked."""

    concat_dim: str | None = None
    mode: Mode = "create"
    variables: Collection[str] | None = None
    virtual: bool = False
    chunks: Mapping[str, int] | None = None
    encoding: Mapping[str, Mapping[str, Any]] | None = None
    containers: Sequence[VirtualChunkContainer] = ()
    on_problem: OnProblem = "fail"
    on_change: OnChange = "fail"
    allow: Collection[str] = ()
    unpack: bool = False
    format: str | None = None
    source_group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    reader_options: Mapping[str, Any] | None = None
    compound: Compound = "skip"
    engine: Engine | EngineName | None = None
    job_id: str | None = None
    message: str | None = None
    progress: Progress | None = None

    @property
    def run(self) -> Run:
        """The options that all operations have in common."""
        return Run(self.engine, self.job_id, self.message, self.progress)


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """The files and the checked options of one call: the first step of an ingest."""

    files: SourceFiles
    access: FileAccess
    concat_dim: str | None
    variables: frozenset[str] | None
    mode: Mode
    chunks: Mapping[str, int]
    encoding: Mapping[str, Mapping[str, Any]]
    virtual: bool
    containers: tuple[VirtualChunkContainer, ...]
    on_problem: OnProblem
    on_change: OnChange
    allow: frozenset[str]
    unpack: bool

    @classmethod
    def of(cls, source: Files, settings: Settings) -> Self:
        """Return the request of a call. Globs are expanded, but no file is opened."""
        _require_choices(settings)
        allow = require_tolerable(_as_names(settings.allow))
        chunks, encoding = dict(settings.chunks or {}), dict(settings.encoding or {})
        require_sizes(chunks, encoding)
        require_format(settings.format)
        variables = None if settings.variables is None else frozenset(_as_names(settings.variables))
        return cls(
            files=expand(source, settings.storage_options),
            access=FileAccess(
                settings.format,
                settings.source_group,
                settings.storage_options,
                _reader_options(settings),
            ),
            concat_dim=settings.concat_dim,
            variables=variables,
            mode=settings.mode,
            chunks=chunks,
            encoding=encoding,
            virtual=settings.virtual,
            containers=tuple(settings.containers),
            on_problem=settings.on_problem,
            on_change=settings.on_change,
            allow=allow,
            unpack=settings.unpack,
        )

    def parameters(self, dim: str | None) -> dict[str, Any]:
        """Return the parameters of the job. ``dim`` is the dimension along which the files were inspected."""
        return {
            "mode": self.mode,
            "concat_dim": dim,
            "variables": None if self.variables is None else sorted(self.variables),
            "chunks": dict(self.chunks),
            "encoding": {name: sorted(map(repr, each.items())) for name, each in self.encoding.items()},
            "virtual": self.virtual,
            "on_problem": self.on_problem,
            "on_change": self.on_change,
            "unpack": self.unpack,
            "format": self.access.format,
            "source_group": self.access.group,
            **({"compound": "fields"} if "compound" in self.access.reader_options else {}),
        }


def _require_choices(settings: Settings) -> None:
    for name, choice, choices in (
        ("mode", settings.mode, MODES),
        ("on_problem", settings.on_problem, get_args(OnProblem.__value__)),
        ("on_change", settings.on_change, get_args(OnChange.__value__)),
        ("compound", settings.compound, get_args(Compound.__value__)),
    ):
        if choice not in choices:
            raise InvalidInputError(
                f"{name} must be one of {', '.join(choices)}, got {str(choice)!r}",
                ErrorKind.UNKNOWN_CHOICE,
            )


def _reader_options(settings: Settings) -> dict[str, Any]:
    """Return the options of the reader. Only HDF5 has compound types, so others do not know the option."""
    compound = {} if settings.compound == "skip" else {"compound": settings.compound}
    return {**(settings.reader_options or {}), **compound}


def _as_names(names: Collection[str]) -> Collection[str]:
    """Return names as a collection. A string is one name, not a collection of letters."""
    return (names,) if isinstance(names, str) else names

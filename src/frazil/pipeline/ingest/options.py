"""The call of an ingest: its files, its options, and the kinds of problems that it tolerates.

    a glob, or a list    ``"data/*.nc"``: coordinates decide the order, variables decide what is merged
    FilePattern          a function makes the name of each file from keys, as in pangeo-forge-recipes

Files with a fatal problem cannot be in the dataset. ``allow`` can tolerate a kind of problem only if the
dataset then still represents all files, in the way that `TABLE` describes.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import is_name, require_choice
from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.job import RunOptions
from frazil.jobs.progress import Progress
from frazil.pipeline.transform.block_functions import fingerprint
from frazil.readers.adapters import DatePattern
from frazil.readers.files import local_path, object_storage, object_validator
from frazil.readers.registry import FileAccess, require_format, require_units
from frazil.remedies import Remedy, argument, joined
from frazil.repository.settings.config import VirtualChunkContainer
from frazil.storage.option_names import shown_url
from frazil.storage.urls import parse_url

#: The number of problems that an error lists. `Report` has all of them.
_LISTED: Final = 10
_SKIP: Final = argument(on_problem="skip")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of one file, or of all files together.

    Attributes:
        kind: The kind of the problem, a key of ``KINDS``.
        message: What is wrong, in words.
        url: The URL of the file. None: the problem concerns all files.
        fatal: Whether the file cannot be ingested. If False, the problem is a note.
    """

    kind: str
    message: str
    url: str | None = None
    fatal: bool = True

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.kind, self.url, self.message)))


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of one file, which is given by its number."""

    file: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ProblemKind:
    """A kind of problem: its meaning, the effect of ``allow`` ("" if not tolerable), and another remedy."""

    meaning: str
    allowed: str = ""
    remedy: Remedy | None = None


#: The remedy of files that cannot be in the group.
OTHER_GROUP: Final = "Ingest the files into another group"

TABLE: Final[dict[str, ProblemKind]] = {
    "damaged": ProblemKind("not a file of a known format, truncated, or cannot be decoded"),
    "unreadable": ProblemKind("the storage has no file with this name"),
    "format": ProblemKind("an archive (zip), or references of another library"),
    "options": ProblemKind(
        "this call cannot open the file: wrong group or reader options, or a library that fails to import",
        remedy=Remedy(
            "{} chooses a group, {} one of several datasets",
            (argument(source_group=...), argument(reader_options=...)),
        ),
    ),
    "variables": ProblemKind(
        "other variables than the other files",
        allowed="takes each variable from the files that have it, and is missing elsewhere",
        remedy=Remedy("{} chooses the variables that all files have", (argument(variables=...),)),
    ),
    "dims": ProblemKind(
        "other dimensions, or another length of a dimension that does not grow",
        remedy=Remedy(
            "{} names the dimension in which files follow each other; ingest files with other variables into "
            "another group",
            (argument(concat_dim=...),),
        ),
    ),
    "dtype": ProblemKind(
        "another dtype", allowed="stores the values of all files in the smallest dtype that holds them"
    ),
    "mixed": ProblemKind(
        "values of another kind, such as texts where other files have numbers: no array holds both",
        remedy=Remedy(
            "{} converts the values, {} leaves out the variable",
            (argument(preprocess=...), argument(variables=...)),
        ),
    ),
    "units": ProblemKind("other units or another calendar, which change the meaning of the numbers"),
    "attributes": ProblemKind(
        "other attributes that change what values are or which are valid; fatal for missing values, flags, "
        "and projections",
        remedy=Remedy(
            "{} also converts missing values, {} makes files alike",
            (argument(allow={"dtype"}), argument(preprocess=...)),
        ),
    ),
    "descriptions": ProblemKind("other attributes that only describe data, such as `long_name`"),
    "packing": ProblemKind(
        "another scale or offset: the packed numbers cannot be in one array",
        remedy=Remedy("{} stores the unpacked values", (argument(unpack=True),)),
    ),
    "values": ProblemKind(
        "other values of a variable that all files share, such as latitudes",
        allowed="keeps the values of the first file, or of the repository",
        remedy=Remedy("ingest files with other variables into another group"),
    ),
    "chunks": ProblemKind(
        "chunks or codecs that cannot be in one array (virtual only)",
        remedy=Remedy(
            "Ingest a copy, without {}: it can have any chunks and codecs", (argument(virtual=True),)
        ),
    ),
    "virtual": ProblemKind(
        "a variable whose chunks have no references (virtual only)",
        remedy=Remedy(
            "Ingest a copy, without {}, or other {}", (argument(virtual=True), argument(variables=...))
        ),
    ),
    "unordered": ProblemKind(
        "labels that neither all increase nor all decrease",
        allowed="keeps the steps of each file in the order of the file",
    ),
    "overlap": ProblemKind(
        "labels that an earlier file has too", allowed="takes the steps of the later file"
    ),
    "duplicate": ProblemKind(
        "the same contents as an earlier file", allowed="takes the steps of the later file"
    ),
    "hole": ProblemKind(
        "a gap in regular times, or labels that only some variables have", allowed="leaves the gap"
    ),
    "changed": ProblemKind(
        "a file that was ingested before, with other contents or another modification time",
        remedy=Remedy("{} replaces the values, 'ignore' keeps them", (argument(on_change="rewrite"),)),
    ),
    "stale": ProblemKind("labels that changed files had before, and have no more: they stay"),
    "types": ProblemKind("variables or attributes of types that no array can hold: they are left out"),
    "preprocess": ProblemKind("the function `preprocess` failed, or has changed the file"),
    "renamed": ProblemKind("variables or dimensions that get other names"),
    "dates": ProblemKind("coordinates that are dates in the names of files, or in attributes"),
    "grown": ProblemKind("labelled dimensions that get new labels"),
    "converted": ProblemKind("variables that get other units"),
    "groups": ProblemKind(
        "groups below the group that is read: they are left out",
        remedy=Remedy("{} reads one of them, for another group", (argument(source_group=...),)),
    ),
    "references": ProblemKind("references to a few bytes each (virtual only)"),
    "target": ProblemKind("a file that does not fit the group in the repository"),
}
#: The kinds of notes on what makes the dataset differ from the files. A commit names them.
CHANGES: Final = (
    *("preprocess", "renamed", "dates", "converted", "variables"),
    *("dtype", "attributes", "grown", "stale"),
)
#: The meaning of each kind of problem.
KINDS: Final[dict[str, str]] = {name: kind.meaning for name, kind in TABLE.items()}
#: The kinds that ``allow`` tolerates.
TOLERABLE: Final = tuple(name for name, kind in TABLE.items() if kind.allowed)


def refusal(problems: Sequence[Problem], files: int) -> InvalidInputError:
    """Return the error for ``on_problem="fail"``, with the remedies for each kind."""
    named = len({each.url for each in problems if each.url is not None})
    some = f"{named:,} of " if named else ""
    summary = f"{counted(len(problems), 'problem')} in {some}{counted(files, 'file')}"
    lines = [f"the files are not one dataset: {summary}. Nothing was written"]
    lines += [f"  {each}" for each in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"  and {len(problems) - _LISTED:,} more: an inspection lists them")
    remedies = []
    for name in dict.fromkeys(each.kind for each in problems):
        kind = TABLE[name]
        allowed = Remedy(f"{{}} {kind.allowed}", (argument(allow={name}),)) if kind.allowed else None
        if helps := [each for each in (allowed, kind.remedy) if each is not None]:
            remedies.append(joined("", [Remedy(f"{name}: "), joined("; ", helps)]))
    if named:
        remedies.append(Remedy("{} leaves these files out; 'quarantine' also remembers them", (_SKIP,)))
    error = InvalidInputError("\n".join(lines), ErrorKind.BAD_SOURCE)
    error.remedy = joined("\n  ", remedies) if remedies else None
    return error


type Mode = Literal["create", "append", "insert", "upsert", "backfill"]

MODES: Final = ("create", "append", "insert", "upsert", "backfill")

#: The arguments of ``zarr.create_array`` that ``encoding`` accepts.
ENCODING: Final = ("chunks", "shards", "compressors", "filters", "serializer")


def require_sizes(chunks: Mapping[str, Any], encoding: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ``InvalidInputError`` (``invalid-argument``) for impossible chunk sizes or unknown encodings."""
    sizes = [(f"chunks of {dim}", size) for dim, size in chunks.items()]
    for name, each in encoding.items():
        if unknown := sorted(each.keys() - set(ENCODING)):
            raise InvalidInputError(
                f"encoding of {name} must have only {', '.join(ENCODING)}, got {unknown[0]!r}. All other "
                "properties are those of the files"
            )
        for key in ("chunks", "shards"):
            if each.get(key) is not None:
                sizes += [(f"{key} of {name}", size) for size in each[key]]
    for what, size in sizes:
        if (
            not isinstance(size, int | np.integer)
            or size < (-1 if what.startswith("chunks") else 1)
            or not size
        ):
            raise InvalidInputError(
                f"{what} must be a number of at least 1, or -1 for the whole dimension, got {size!r}"
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
    """The files in order. A pattern gives ``position``, the index of each file along ``concat_dim``.

    ``validators`` are the validators of objects that a glob has listed, by URL (see `object_validator`).
    """

    urls: tuple[str, ...]
    concat_dim: str | None = None
    position: NDArray[np.int64] | None = None
    keys: tuple[Any, ...] = ()
    validators: Mapping[str, str] = field(default_factory=dict)

    def names(self, rows: Sequence[int]) -> tuple[str, ...]:
        """Return names of some files for commits: URLs, and local paths below the folder of all files."""
        folders = {local_path(each) for each in {url[: url.rfind(os.sep) + 1] for url in self.urls}}
        start = (
            os.path.dirname(os.path.commonpath([each for each in folders if each])) if any(folders) else ""
        )
        paths = [(self.urls[row], local_path(self.urls[row])) for row in rows]
        return tuple(url if path is None else os.path.relpath(path, start) for url, path in paths)


#: The name of a local file in a ledger, which ends with a hash of its path.
_HASHED: Final = re.compile(r"[^/\\]* \([0-9a-f]{16}\)")


def public_name(url: str) -> str:
    """Return a name of a file or of a glob for readers: a URL without secrets, or a name without a folder."""
    path = local_path(url)
    return shown_url(url) if path is None else re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def ledger_name(url: str) -> str:
    """Return the name of a file in a ledger: a URL, or of a local file its name, and a hash of its path.

    Repositories are published, and readers need not know the folders of the machine that wrote them. The name
    of a file in a ledger is its own name. Ledgers of earlier releases have paths.
    """
    if _HASHED.fullmatch(url) or (path := local_path(url)) is None:
        return url
    return f"{public_name(url)} ({hashlib.sha256(path.encode()).hexdigest()[:16]})"


def expand(source: Files, storage_options: Mapping[str, Any] | None = None) -> SourceFiles:
    """Return the files that a pattern, globs (also in buckets) or names match, with absolute paths."""
    keys: tuple[Any, ...] = ()
    dim: str | None = None
    position: NDArray[np.int64] | None = None
    urls: list[str] = []
    validators: dict[str, str] = {}
    if isinstance(source, FilePattern):
        dims = source.combine_dims
        for chosen in itertools.product(*(each.keys for each in dims)):
            names = (each.name for each in dims)
            url = source.format_function(**dict(zip(names, chosen, strict=True)))
            urls.append(local_path(url) or url)
        for at, each in enumerate(dims):
            if isinstance(each, ConcatDim):
                dim, keys = each.name, tuple(each.keys)
                position = np.indices([len(one.keys) for one in dims])[at].ravel()
    else:
        for each_name in [source] if isinstance(source, str | os.PathLike) else source:
            text = os.fspath(each_name)
            path = local_path(text) or text
            if "://" in path and glob.has_magic(path) and parse_url(path).scheme in _SCHEMES:
                listed = _listed(path, storage_options)
                urls += listed
                validators |= listed
            elif "://" in path or not glob.has_magic(path) or os.path.exists(path):
                urls.append(path)
            else:
                urls += sorted(glob.glob(path, recursive=True))
    if not urls:
        raise InvalidInputError(
            f"source must match at least one file, got {source!r}, which matches none",
            ErrorKind.KEY_NOT_FOUND,
        )
    if twice := [url for url, count in Counter(urls).items() if count > 1]:
        raise InvalidInputError(f"source must name each file once, got {twice[0]} twice")
    if wrong := [url for url in urls if url.encode(errors="replace").decode() != url]:
        raise InvalidInputError(f"the names of files must be UTF-8, got {wrong[0]!r}. Rename this file")
    return SourceFiles(tuple(urls), dim, position, keys, validators)


def _listed(url: str, storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the validators of the objects that a glob matches, by URL. Only ``**`` matches a slash."""
    storage, key = object_storage(url, storage_options)
    place = url[: len(url) - len(key)]
    fixed = list(itertools.takewhile(lambda each: not glob.has_magic(each), key.split("/")[:-1]))
    pattern = re.compile("".join(_MEANS.get(each) or re.escape(each) for each in _PARTS.split(key) if each))
    found = (each for each in storage.list("/".join(fixed)) if pattern.fullmatch(each.key))
    return {place + each.key: object_validator(each) for each in sorted(found, key=attrgetter("key"))}


_SCHEMES: Final = ("s3", "gs", "az")
_PARTS: Final = re.compile(r"(\*\*/|\*\*|\*|\?)")
_MEANS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


#: This process reads so few files and bytes faster than other processes start.
FEW_FILES: Final = 64
FEW_BYTES: Final = 256 << 20


def is_small(source: Files) -> bool:
    """Return whether ``source`` is at most 64 files (or folders) with 256 MiB, all on this machine."""
    paths = list(map(local_path, expand(source).urls))
    if len(paths) > FEW_FILES or None in paths:
        return False
    total = 0
    for path in filter(None, paths):
        inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        for each in inside if os.path.isdir(path) else (path,):
            with suppress(OSError):
                total += os.stat(each).st_size
    return total <= FEW_BYTES


type OnProblem = Literal["fail", "skip", "quarantine"]
type Compound = Literal["skip", "fields"]
type OnChange = Literal["fail", "ignore", "rewrite"]


class FileOptions(TypedDict, total=False):
    """The options that decide how files are opened; see `ingest`."""

    format: str | None
    source_group: str
    storage_options: Mapping[str, Any] | None
    reader_options: Mapping[str, Any] | None
    compound: Compound
    preprocess: Callable[..., Any] | None
    rename: Mapping[str, str] | None
    dates: Mapping[str, str] | None
    convert: Mapping[str, str] | None


class InspectionOptions(FileOptions, total=False):
    """The options of `inspect_files` that are not in its signature; see `ingest`."""

    allow: Collection[str]
    grow: Collection[str]
    groups: Mapping[str, Mapping[str, Any]] | None
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
    grow: Collection[str]
    groups: Mapping[str, Mapping[str, Any]] | None
    unpack: bool
    refresh: bool


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """One call with all its options, checked, and its files: globs are expanded, and no file is opened."""

    source: Files
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
    grow: Collection[str] = ()
    groups: Mapping[str, Mapping[str, Any]] | None = None
    unpack: bool = False
    refresh: bool = False
    format: str | None = None
    source_group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    reader_options: Mapping[str, Any] | None = None
    compound: Compound = "skip"
    preprocess: Callable[..., Any] | None = None
    rename: Mapping[str, str] | None = None
    dates: Mapping[str, str] | None = None
    convert: Mapping[str, str] | None = None
    engine: Engine | EngineName | None = None
    job_id: str | None = None
    message: str | None = None
    progress: Progress | None = None
    files: SourceFiles = field(init=False)
    access: FileAccess = field(init=False)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require_choice(name, getattr(self, name), choices)
        # A string is one name, not a collection of letters.
        allow, variables, grow = (
            frozenset(map(str, (names,) if isinstance(names, str) else names))
            for names in (self.allow, self.variables or (), self.grow)
        )
        if grow and self.virtual:
            raise InvalidInputError(
                "grow must be empty for a virtual ingest: references have whole chunks. Copy these files",
                ErrorKind.UNIMPLEMENTED,
            )
        for name in sorted(allow.difference(TOLERABLE)):
            error = InvalidInputError(
                f"allow must be one of {', '.join(TOLERABLE)}, got {name!r}", ErrorKind.UNKNOWN_CHOICE
            )
            other = TABLE[name].remedy if name in TABLE else None
            skip = Remedy("{} leaves out files with other problems", (_SKIP,))
            error.remedy = joined("; ", [skip] if other is None else [other, skip])
            raise error
        values: dict[str, Any] = {
            "allow": allow,
            "grow": grow,
            "variables": None if self.variables is None else variables,
            "groups": {str(path): dict(rule) for path, rule in (self.groups or {}).items()},
            "chunks": dict(self.chunks or {}),
            "encoding": dict(self.encoding or {}),
        }
        require_sizes(values["chunks"], values["encoding"])
        require_format(self.format)
        values["files"] = expand(self.source, self.storage_options)
        # Only HDF5 has compound types, so other readers do not know the option.
        compound = {} if self.compound == "skip" else {"compound": self.compound}
        options = {**(self.reader_options or {}), **compound}
        rename, dates, convert = (
            {str(name): str(value) for name, value in (each or {}).items()}
            for each in (self.rename, self.dates, self.convert)
        )
        for option, names in (("rename", rename.values()), ("dates", dates)):
            for name in itertools.filterfalse(is_name, names):
                raise InvalidInputError(
                    f"{option} must give names that an array can have, without `/`, got {name!r}",
                    ErrorKind.INVALID_KEY,
                )
        if convert:
            require_units(convert)
        for path, rule in values["groups"].items():
            if not path.startswith("/") or not rule:
                raise InvalidInputError(
                    "groups must give the absolute path of each group at least one condition, such as "
                    f"{{'/coarse': {{'lat': 90}}}}, got {path!r}: {rule!r}"
                )
        values["access"] = FileAccess(
            self.format,
            self.source_group,
            self.storage_options,
            options,
            self.preprocess,
            rename,
            {name: DatePattern.of(name, text) for name, text in dates.items()},
            convert,
            texts=grow,
        )
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def parameters(self, dim: str | None) -> dict[str, Any]:
        """Return the parameters of the job. ``dim`` is the dimension along which the files were inspected."""
        names = ("mode", "virtual", "on_problem", "on_change", "unpack", "format", "source_group")
        return {
            **{name: getattr(self, name) for name in names},
            "concat_dim": dim,
            "variables": None if self.variables is None else sorted(self.variables),
            "chunks": dict(self.chunks or {}),
            "encoding": {
                name: sorted(map(repr, each.items())) for name, each in (self.encoding or {}).items()
            },
            **({"grow": sorted(self.grow)} if self.grow else {}),
            **({"groups": self.groups} if self.groups else {}),
            **({"compound": "fields"} if "compound" in self.access.reader_options else {}),
            **{
                name: dict(sorted(each.items()))
                for name in ("rename", "dates", "convert")
                if (each := getattr(self, name))
            },
            **({"preprocess": self.function} if self.function else {}),
        }

    @property
    def function(self) -> dict[str, str] | None:
        """The name of ``preprocess`` and a hash of its code and values, as JSON."""
        return None if self.preprocess is None else fingerprint(self.preprocess)


#: The values of the options that are one of several words.
_CHOICES: Final = {
    "mode": MODES,
    "on_problem": get_args(OnProblem.__value__),
    "on_change": get_args(OnChange.__value__),
    "compound": get_args(Compound.__value__),
}

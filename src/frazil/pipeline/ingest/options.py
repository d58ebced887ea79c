"""The options of ``ingest`` and ``inspect_files``: as the caller passes them, and as one checked value."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypedDict, get_args

from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.progress import Progress
from frazil.jobs.run_options import Run, RunOptions
from frazil.pipeline.ingest.arrays import require_sizes
from frazil.pipeline.ingest.axis import MODES, Mode
from frazil.pipeline.ingest.file_access import FileAccess
from frazil.pipeline.ingest.pattern import Files, SourceFiles, expand
from frazil.pipeline.ingest.problems import require_tolerable
from frazil.readers.registry import require_format
from frazil.repository.settings.virtual_containers import VirtualChunkContainer

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

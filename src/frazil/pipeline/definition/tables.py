"""The tables of a definition that may be repeated, each checked: files to ingest, and arrays to derive."""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from frazil.arguments import check_fields, checks_of_fields, named_function
from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.handle.addresses import container_of
from frazil.pipeline.derivation.declaration import Declaration
from frazil.pipeline.ingest.options import IngestRequest
from frazil.repository.paths import absolute
from frazil.repository.settings.config import VirtualChunkContainer

#: The options of an ingest: those of `frazil.pipeline.ingest`, without those that the pipeline sets.
_OPTIONS: Final = {each.name for each in fields(IngestRequest) if each.init} - {
    *("source", "engine", "job_id", "progress", "refresh")
}
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put a place in a definition before the message of an error about it."""
    try:
        yield
    except (IcechunkError, TypeError) as error:
        kind = error.kind if isinstance(error, IcechunkError) else ErrorKind.INVALID_ARGUMENT
        raise InvalidInputError(f"{where}: {error}", kind) from error


def require_keys(document: Any, known: Mapping[str, bool], *, others: bool = False) -> None:
    """Raise ``InvalidInputError`` unless a value is a table with known keys. True: the key must be there."""
    if not isinstance(document, Mapping):
        raise InvalidInputError(f"the value must be a table, got {type(document).__name__}")
    for name in document.keys() - known.keys() if not others else ():
        text = f"`{name}` must be one of the keys {', '.join(known)}{suggest(name, known)}"
        raise InvalidInputError(text, ErrorKind.UNKNOWN_CHOICE)
    for name, is_required in known.items():
        if is_required and name not in document:
            raise InvalidInputError(f"the key `{name}` must be set, and is missing")


def keys_of(cls: type) -> dict[str, bool]:
    """Return the fields of a dataclass, each with whether it must be set."""
    return {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(cls)}


def table_of[T](cls: type[T], document: Any, where: str) -> T:
    """Return a table of TOML as a dataclass, whose last field has all other keys."""
    with located(where):
        known = keys_of(cls)
        *_, rest = known
        del known[rest]
        require_keys(document, known, others=True)
        own = {key: document[key] for key in known if key in document}
        return cls(**own, **{rest: {key: document[key] for key in document if key not in known}})


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(os.fspath, (value,) if isinstance(value, str | os.PathLike) else value))


def _takes_function(hint: Any) -> bool:
    if isinstance(hint, typing.TypeAliasType):
        return _takes_function(hint.__value__)
    return typing.get_origin(hint) is Callable or any(map(_takes_function, typing.get_args(hint)))


def _with_functions(value: Any) -> Any:
    """Return a value with the functions that its texts ``module:function`` name."""
    if isinstance(value, Mapping):
        return {key: _with_functions(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_with_functions, value))
    if isinstance(value, str) and _FUNCTION.fullmatch(value):
        return named_function(value)
    return value


def _container(prefix: Any) -> VirtualChunkContainer:
    return prefix if isinstance(prefix, VirtualChunkContainer) else container_of(prefix)


@dataclass(frozen=True, slots=True)
class PipelineIngest:
    """Files that a pipeline ingests: a table ``[[ingest]]``.

    Attributes:
        files: The files: a glob, a path or URL, or several. Relative paths begin in the folder of the
            definition.
        group: The path of the group in the repository.
        options: The options of `frazil.pipeline.ingest` by name. The default of ``mode`` is ``"backfill"``.
            In TOML, they are keys of the table, functions are texts ``"module:function"``, and
            ``containers`` are prefixes of URLs.

    Examples:
        >>> from frazil.pipeline import PipelineIngest
        >>> PipelineIngest("era5/*.nc", "/era5", {"on_problem": "quarantine"}).files
        ('era5/*.nc',)
    """

    files: str | Sequence[str]
    group: str = "/"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        checks, hints = checks_of_fields(IngestRequest), typing.get_type_hints(IngestRequest)
        options = {"mode": "backfill", **self.options}
        require_keys(options, dict.fromkeys(("files", "group", *sorted(_OPTIONS)), False))
        for name in options:
            if _takes_function(hints[name]):
                options[name] = _with_functions(options[name])
            checks[name](f"`{name}`", options[name])
            if name == "containers":
                options[name] = tuple(map(_container, options[name]))
        IngestRequest("-", **options)
        for name, value in (("files", _texts(self.files)), ("group", absolute(self.group))):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "options", options)

    @property
    def groups(self) -> tuple[str, ...]:
        """The group, and the groups of its rules."""
        return (self.group, *self.options.get("groups", ()))


def request_of(table: PipelineIngest, folder: Path, **others: Any) -> IngestRequest:
    """Return the request of an ingest of the files of a table, relative to a folder."""
    files = [each if "://" in each else str(folder / each) for each in table.files]
    return IngestRequest(**{"source": files, **table.options, **others})


@dataclass(frozen=True, slots=True)
class PipelineDerived:
    """Arrays that a pipeline derives from others: a table ``[[derived]]``.

    Attributes:
        operation: The name of a function of `frazil.pipeline`, such as ``"coarsen"`` or ``"climatology"``.
        sources: The paths of the arrays that it reads.
        to: The group of the results. No other table writes there, or below.
        parameters: The other arguments of the function by name. In TOML, they are keys of the table, and a
            value that TOML does not have is written as in the definition of a derived array.

    Examples:
        >>> from frazil.pipeline import PipelineDerived
        >>> PipelineDerived("coarsen", "/era5/t2m", "/daily", {"factors": {"time": 4}}).sources
        ('/era5/t2m',)
    """

    operation: str
    sources: str | Sequence[str]
    to: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "sources", tuple(map(absolute, _texts(self.sources))))
        object.__setattr__(self, "to", absolute(self.to))
        declaration_of(self)


def declaration_of(table: PipelineDerived) -> Declaration:
    """Return the operation of a table with its arguments."""
    return Declaration.of(table.operation, tuple(table.sources), table.to, table.parameters)

"""Arguments and options that commands share: their types, the annotations that declare them, completion.

A location is completed by the shell, as a folder. Behind ``@`` come the branches and tags, and behind ``:``
the members of a group. Nothing is completed if the repository cannot be opened.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click
from click.shell_completion import CompletionItem, get_completion_class

from frazil.arguments import named_function
from frazil.cli.command import Note, Output, argument, option, verb
from frazil.cli.opening import OpenTarget
from frazil.errors import IcechunkError, InvalidInputError
from frazil.repository.target import Target, parse_target, parse_time

if TYPE_CHECKING:
    from frazil.repository.settings.config import VirtualChunkContainer


type Completions = list[CompletionItem]

_AGE: Final = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class TargetType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of arguments ``LOCATION[@VERSION][:PATH]``."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the parts of the text; a wrong text is wrong usage."""
        if isinstance(value, Target):
            return value
        try:
            target = parse_target(value)
        except InvalidInputError as error:
            self.fail(str(error), param, ctx)
        if ctx is not None:
            ctx.ensure_object(Output).location = str(Target(target.location))
        return target

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Completions:
        """Return the completions of a target: folders, branches and tags, groups and arrays."""
        try:
            target = parse_target(incomplete.removesuffix("@"))
            if target.path is not None:
                # The typed path may lack the first slash.
                group, _, beginning = incomplete.rpartition(":")[2].rpartition("/")
                parent = f"/{group.strip('/')}"
                names = OpenTarget(target).workspace.children(parent)
                paths = (f"{parent.rstrip('/')}/{each}" for each in names if each.startswith(beginning))
                return [CompletionItem(str(replace(target, path=path))) for path in paths]
            if target.version is None and not incomplete.endswith("@"):
                return [CompletionItem(incomplete, type="file")]
            refs = _refs(target, target.version or "")
            return [CompletionItem(str(replace(target, version=name)), help=kind) for name, kind in refs]
        except IcechunkError:
            return []


class LocationType(TargetType):
    """The type of arguments ``LOCATION``: a whole repository."""

    name = "location"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the location of the text; a version or a path is wrong usage."""
        target = super().convert(value, param, ctx)
        if target.version is not None or target.path is not None:
            self.fail(
                f"this command works on a whole repository, got {str(value)!r}. Leave out @VERSION and :PATH",
                param,
                ctx,
            )
        return target


class VersionType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of arguments that name one more version: a text, which the shell completes."""

    name = "version"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> Completions:
        """Return the branches and tags of the repository."""
        target = ctx.params.get("target")
        try:
            refs = _refs(target, incomplete) if isinstance(target, Target) else []
        except IcechunkError:
            return []
        return [CompletionItem(name, help=kind) for name, kind in refs]


def _refs(target: Target, beginning: str) -> list[tuple[str, str]]:
    """Return the names of branches and tags with this beginning, each with its kind."""
    info = OpenTarget(target).info
    kinds = (("branch", info.branches), ("tag", info.tags))
    return [(name, kind) for kind, ids in kinds for name in sorted(ids) if name.startswith(beginning)]


def moment(text: str) -> datetime:
    """Return the time of ``2026-11-01``, ``2026-11-01T06:00Z``, or ``7d`` for seven days ago."""
    from frazil.repository.clock import now_us, to_datetime

    try:
        return to_datetime(now_us()) - duration(text) if _AGE.fullmatch(text) else parse_time(text)
    except (InvalidInputError, OverflowError) as error:
        raise click.BadParameter(f"{error}. An age such as 12h, 7d or 2w is a time too") from error


def state(text: str) -> datetime | int:
    """Return a moment, or the number N of ``~N`` for the state before N updates."""
    number = text[1:] or "1"
    return int(number) if text[:1] == "~" and number.isdecimal() else moment(text)


def duration(text: str) -> timedelta:
    """Return the duration of ``30s``, ``5m``, ``12h``, ``7d`` or ``2w``."""
    match = _AGE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"must be a number with a unit, such as 30s, 5m or 12h, got {text!r}")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def comma_separated(text: str) -> tuple[str, ...]:
    """Return the parts of ``A,B``."""
    return tuple(filter(None, text.split(",")))


def chunk_sizes(text: str) -> dict[str, int]:
    """Return the sizes of ``DIM=N,...``."""
    pairs = [each.partition("=") for each in comma_separated(text)]
    try:
        return {name.strip(): int(size) for name, _, size in pairs}
    except ValueError:
        raise click.BadParameter(f"must be DIM=NUMBER,..., got {text!r}") from None


def key_value(text: str) -> tuple[str, Any]:
    """Return the name and the value of ``KEY=VALUE``; the value is JSON, or text."""
    name, separator, value = map(str.strip, text.partition("="))
    if not separator or not name:
        raise click.BadParameter(f"must be KEY=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def key_values(text: str) -> dict[str, Any]:
    """Return the keys and values of ``KEY=VALUE,...``."""
    return dict(map(key_value, comma_separated(text)))


def group_rule(text: str) -> tuple[str, dict[str, Any]]:
    """Return the path of a group and the conditions of its files, ``PATH:KEY=VALUE,...``."""
    path, _, conditions = text.partition(":")
    return path, key_values(conditions)


def container(prefix: str) -> VirtualChunkContainer:
    """Return the container for a prefix of URLs."""
    from frazil.handle.addresses import container_of
    from frazil.storage.urls import parse_url

    try:
        if "://" in prefix:
            return container_of(prefix)
        url = parse_url(prefix).url
    except InvalidInputError as error:
        raise click.BadParameter(str(error)) from error
    raise click.BadParameter(f"must be a prefix of URLs, such as {url}, got {prefix!r}")


def function(text: str) -> Any:
    """Return the function ``MODULE:NAME``. The module may be in the current folder, as for ``python -m``."""
    sys.path[:0] = [] if os.getcwd() in sys.path else [os.getcwd()]
    try:
        return named_function(text)
    except InvalidInputError as error:
        raise click.BadParameter(error.message) from error


def converted(function: Callable[[str], Any], default: Any = None) -> Any:
    """Return a callback that converts the text of an option."""
    return lambda _ctx, _param, text: default if text is None else function(text)


def collected(function: Callable[[str], Any], into: Callable[..., Any] = list) -> Any:
    """Return a callback that converts each text of an option that may be repeated."""
    return lambda _ctx, _param, texts: into(map(function, texts))


LOCATION: Final = LocationType()


class SourceType(TargetType):
    """The type of arguments that name a repository or files: a file that exists is a location as it is."""

    name = "source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Return the parts of the text. Names of files may have the characters ``@`` and ``:``."""
        is_file = isinstance(value, str) and os.path.isfile(value)
        return super().convert(Target(value) if is_file else value, param, ctx)


def _target(metavar: str, **settings: Any) -> Note:
    return argument(**{"type": TargetType(), "default": ".", "metavar": metavar, **settings})


def _with_path(_ctx: click.Context, _param: click.Parameter, target: Target) -> Target:
    """Return a target that names an array."""
    if target.path is None:
        raise click.UsageError("name an array: LOCATION[@VERSION]:PATH")
    return target


# The repository, version and node that a command works on
AnyTarget = Annotated[Target, _target("[LOCATION[@VERSION][:PATH]]")]
RequiredTarget = Annotated[Target, _target("LOCATION[@VERSION][:PATH]", required=True, default=None)]
ArrayTarget = Annotated[Target, _target("LOCATION[@VERSION]:PATH", callback=_with_path)]
BranchTarget = Annotated[Target, _target("LOCATION[@BRANCH]")]
BranchNodeTarget = Annotated[Target, _target("LOCATION[@BRANCH]:PATH")]
Location = Annotated[Target, _target("[LOCATION]", type=LOCATION)]
RequiredLocation = Annotated[Target, argument(type=LOCATION)]
Version = Annotated[str, argument(type=VersionType())]
Sources = Annotated[
    tuple[Target, ...], argument(nargs=-1, type=SourceType(), metavar="[LOCATION[@VERSION][:PATH] | FILE...]")
]

# Options of several commands
DryRun = Annotated[bool, option(help="Change nothing: show what the command would do.")]
Yes = Annotated[bool, option("-y", "--yes", help="Do not ask before something is lost.")]
Message = Annotated[str | None, option("-m", "--message", metavar="TEXT", help="The message of the commit.")]
Metadata = Annotated[
    dict[str, Any],
    option(
        metavar="KEY=VALUE",
        multiple=True,
        callback=collected(key_value, dict),
        help="Metadata of the commit, VALUE as JSON or text; may be repeated.",
    ),
]
Everything = Annotated[bool, option("-a", "--all", help="Also show nodes whose names begin with a dot.")]
Raw = Annotated[
    bool, option(help="Stored elements instead of values: without packing, missing values, times.")
]
Engine = Annotated[
    Literal["inline", "threads", "processes", "spark", "sail"],
    option(
        help="Where tasks run: in this process (inline), its threads, other processes, on Spark, on Sail."
    ),
]
ConcatDim = Annotated[str | None, option(metavar="DIM")]
Variables = Annotated[Any, option(metavar="A,B", callback=converted(comma_separated))]
FilterByKeys = Annotated[Any, option(metavar="KEY=VALUE,...", callback=converted(key_values, {}))]
Time = Annotated[datetime | None, option(metavar="TIME", callback=converted(moment))]
Number = Annotated[int | None, option("-n", "--number", type=click.IntRange(min=1), metavar="N")]
Rules = Annotated[str | None, option(type=click.Path(exists=True, dir_okay=False), metavar="FILE")]


@verb("completion")
def completion(
    output: Output, shell: Annotated[str, argument(type=click.Choice(["bash", "zsh", "fish"]))]
) -> None:
    """Print a program for a shell that completes commands, options, branches, tags and paths of `frazil`.

    In bash, `@` and `:` do not separate words any more.

    Examples:
        frazil completion bash   load it with: eval "$(frazil completion bash)"
        frazil completion fish   save it as ~/.config/fish/completions/frazil.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    group = click.get_current_context().find_root().command
    text = shell_class(group, {}, "frazil", "_FRAZIL_COMPLETE").source()
    if shell == "bash":
        text += "\n# LOCATION@VERSION:PATH is one word\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//[@:]/}\n"
    output.emit({"shell": shell, "program": text}, text.splitlines())

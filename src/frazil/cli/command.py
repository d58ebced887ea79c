"""The classes of commands: a group that imports a command when it runs, and commands with common options.

Every command has ``--json``, ``--debug`` and ``--help``. Its function gets the `Output` as its first
argument, and returns the exit status, or None for 0.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.output import Output
from frazil.cli.target import Target, parse_target
from frazil.cli.verb_table import SECTIONS, VERBS
from frazil.display import suggest
from frazil.errors import InvalidInputError
from frazil.extras import needs
from frazil.lazy_names import value_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SUGGESTIONS: Final = "frazil.cli.suggestions"
#: The author of commits, in the ``meta`` of click's context.
AUTHOR: Final = "frazil.author"
_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Frazil(click.Group):
    """The group of all commands. Its help needs no module of a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command, and return the command."""
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        with _extra_of(cmd_name):
            command: click.Command = verb.command()
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command of the arguments, or an error that names a similar command."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            near = suggest(args[0], VERBS)
            raise click.UsageError(
                f"no command `{args[0]}`{near or '.'} `frazil --help` lists all commands", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of commands, from the table alone."""
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.name.ljust(width), verb.help) for verb in verbs])


class VerbCommand(click.Command):
    """A command with its examples below the options."""

    def __init__(self, *args: Any, description: str = "", examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.description = description
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The error for one argument too many has the call that was probably meant."""
        has_more, ctx.allow_extra_args = ctx.allow_extra_args, True
        more = super().parse_args(ctx, args)
        if more and not has_more and not ctx.resilient_parsing:
            raise click.UsageError(f"unexpected argument {more[0]!r}{self._with_version(ctx, more)}", ctx)
        return more

    def _with_version(self, ctx: click.Context, more: list[str]) -> str:
        """Return advice if the version stands behind the location instead of in it: ``diff ice main fix``."""
        target = ctx.params.get("target")
        versions = [each.name for each in self.params if each.type is VERSION]
        if not isinstance(target, Target) or target.version or len(versions) != 1 or len(more) > 1:
            return ""
        if any(isinstance(each.type, LocationType) for each in self.params):
            return ""
        meant = replace(target, version=str(ctx.params[str(versions[0])]))
        return f". Write `{ctx.command_path} {meant} {more[0]}`"

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(self.description)
            if extra := VERBS[str(self.name)].extra:
                formatter.write_paragraph()
                formatter.write_text(f'Needs an extra: pip install "frazil[{extra}]"')

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}".rstrip() + "\n" for line in self.examples.splitlines()))


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

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the completions of a target: folders, branches and tags, groups and arrays."""
        completions: list[CompletionItem] = value_of(f"{_SUGGESTIONS}:complete_target")(incomplete)
        return completions


class VersionType(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """The type of arguments that name a version beside the target: a text, which the shell completes."""

    name = "version"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the branches and tags of the repository."""
        completions: list[CompletionItem] = value_of(f"{_SUGGESTIONS}:complete_version")(ctx, incomplete)
        return completions


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


TARGET: Final = TargetType()
VERSION: Final = VersionType()
LOCATION: Final = LocationType()


def verb(
    name: str, *, description: str, examples: str, commits: bool = False, **settings: Any
) -> Callable[[Callable[..., int | None]], VerbCommand]:
    """Return a decorator that makes a function a command with the common options."""

    def decorate(function: Callable[..., int | None]) -> VerbCommand:
        def run(*args: Any, **kwargs: Any) -> int:
            output = click.get_current_context().ensure_object(Output)
            with _extra_of(name):
                return function(output, *args, **kwargs) or 0

        update_wrapper(run, function)
        command = click.command(
            name,
            cls=VerbCommand,
            short_help=VERBS[name].help,
            description=description,
            examples=examples,
            context_settings={**_SETTINGS, **settings},
        )
        return command(_json(debug_option(author_option(run) if commits else run)))

    return decorate


def _extra_of(name: str) -> AbstractContextManager[None]:
    """Return a context that names the command and its extra in the error for a missing package."""
    extra = VERBS[name].extra
    return needs(f"`frazil {name}`", extra=extra) if extra else nullcontext()


def _remember(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        setattr(ctx.ensure_object(Output), "as_json" if param.name == "json" else "debug", True)


_json: Final = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print the result as JSON."
)
#: The option of every command, and of the group.
debug_option: Final = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember,
    is_eager=True,
    help="Print the trace of an error.",
)


#: The option of commands that commit. `frazil.cli.opening` gives the author to the commits.
author_option: Final = click.option(
    "--author",
    metavar="NAME",
    envvar="FRAZIL_AUTHOR",
    expose_value=False,
    callback=lambda ctx, _param, name: ctx.meta.update({AUTHOR: name}),
    help="The author of the commit, for `log` and `blame` ($FRAZIL_AUTHOR).",
)


def target_argument(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for the argument TARGET, ``LOCATION[@VERSION][:PATH]``; default: this folder."""
    settings = {"type": TARGET, "default": ".", "metavar": "[LOCATION[@VERSION][:PATH]]", **options}
    return click.argument("target", **settings)

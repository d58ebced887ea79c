"""Commands: the table of all commands, what declares one of them, and their output.

The function of a command is its declaration. The parameters give the arguments and options: their names,
types and defaults. The docstring gives the text of ``--help``, with the section ``Args`` for the options and
the section ``Examples`` for the end. What differs (an argument instead of an option, a short flag, a type of
the command line) is a note in the annotation: `argument` or `option`. `frazil.cli.arguments` has the
annotations that commands share.

Every command has ``--json``, ``--debug`` and ``--help``. Its function gets the `Output` as its first
argument, and returns the exit status, or None for 0. It imports what it needs, so that each command starts
fast.

Standard output contains only the result: text for people, or JSON for programs. Questions, progress and
errors go to standard error. Colours, a pager and shortened texts appear only on a terminal. In a pipe, the
same columns are plain and complete.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from textwrap import dedent
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin

import click

from frazil.display import suggest
from frazil.extras import install_command, needs
from frazil.repository.target import Target

#: Style -> the number of an ANSI colour.
STYLES: Final = {
    "id": 33,
    "branch": 32,
    "tag": 36,
    "add": 32,
    "remove": 31,
    "change": 33,
    "faint": 2,
    "bold": 1,
}
#: The begin of a colour in a line, before `Output.visible`. A name in a repository cannot contain it.
_COLOUR: Final = f"\x1b{secrets.token_hex(8)}"
#: Colours of `Output.paint`, and the characters that control a terminal or change the order of others.
_CONTROLS: Final = re.compile(
    rf"{_COLOUR}(\d+)m|[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
#: Options of the pager `less`: end if the text fits on the screen, pass colours on, leave the text visible.
_LESS: Final = "FRX"


@dataclass(slots=True)
class Output:
    """Where and how a command prints.

    Attributes:
        as_json: Whether the result is JSON.
        debug: Whether an error shows its trace.
        location: The location of the repository that the command works on, for the commands in messages.
        statuses: The exit statuses of kinds of errors; the others have 1. A command with statuses has its
            options in a file, so that errors do not name options of the command line.
    """

    as_json: bool = False
    debug: bool = False
    location: str = "LOCATION"
    statuses: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        """Whether people read the output on a terminal."""
        return sys.stdout.isatty() and not self.as_json

    @property
    def has_colours(self) -> bool:
        """Whether texts have colours: on a terminal, without ``NO_COLOR`` and not on a dumb one."""
        return self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def paint(self, text: str, style: str) -> str:
        """Return a text in the colour of a style, if there are colours."""
        return f"{_COLOUR}{STYLES[style]}m{text}{_COLOUR}0m" if self.has_colours and text else text

    def emit(self, document: Any, lines: Iterable[str], *, pages: bool = False) -> None:
        """Print a result: ``document`` as JSON, or ``lines``. Both may be computed on demand.

        With ``pages``, lines on a terminal go through a pager.
        """
        if self.as_json:
            document = list(document) if isinstance(document, Iterator) else document
            sys.stdout.write(f"{_json(document, indent=2)}\n")
            return
        lines = map(visible, lines)
        if pages and self.is_terminal:
            os.environ.setdefault("LESS", _LESS)
            click.echo_via_pager((f"{line}\n" for line in lines), color=self.has_colours)
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines)

    def emit_now(self, document: Any, *lines: str) -> None:
        """Print a part of a result that grows, at once: a JSON object, or ``lines``."""
        text = _json(document) if self.as_json else "\n".join(map(visible, lines))
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def cut(self, line: str) -> str:
        """Return a line without colours that fits on the terminal. In a pipe it stays complete."""
        if not self.is_terminal:
            return line
        columns = shutil.get_terminal_size().columns
        return line if len(line) <= columns else line[: columns - 1] + "…"

    @contextmanager
    def progress(self, name: str) -> Iterator[Any]:
        """Yield a progress bar on a terminal, and None elsewhere."""
        if not sys.stderr.isatty() or self.as_json:
            yield None
            return
        from frazil.jobs.progress import Progress

        with Progress(name, 0) as bar:
            yield bar


def visible(line: str) -> str:
    """Return a line for a terminal: its control characters are escaped, and `Output.paint` has its colours.

    Names, messages and values come from the repository, whose writers must not control the terminal.
    """
    return _CONTROLS.sub(lambda match: f"\x1b[{match[1]}m" if match[1] else _escaped(match[0]), line)


def _escaped(character: str) -> str:
    """Return a character as the escape of Python and JSON."""
    return {"\n": "\\n", "\r": "\\r"}.get(character, f"\\u{ord(character):04x}")


def _json(document: Any, **options: Any) -> str:
    """Return a result as JSON. JSON has no NaN and no infinity: they are null."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, default=_plain, **options)
    except ValueError:
        document = json.loads(json.dumps(document, default=_plain), parse_constant=lambda name: None)
        text = json.dumps(document, ensure_ascii=False, **options)
    return "\n".join(map(visible, text.split("\n")))


def _plain(value: Any) -> Any:
    """Return a value of a result in a form that JSON has."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def picked(value: Any, *names: str, **attributes: str) -> dict[str, Any]:
    """Return attributes of a value as a document: those ``names``, and name of a member -> attribute."""
    named = dict(zip(names, names, strict=True)) | attributes
    return {name: getattr(value, attribute) for name, attribute in named.items()}


def table(rows: Iterable[tuple[str, ...]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Return rows as lines with aligned columns. ``right`` has the columns of numbers."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = [
        [each.rjust(width) if at in right else each.ljust(width) for each in column]
        for at, (column, width) in enumerate(zip(zip(*cells, strict=True), widths, strict=True))
    ]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


class Verb(NamedTuple):
    """A command: its module, its line in the help, and the extra that installs what it needs."""

    name: str
    module: str
    help: str
    extra: str = ""

    def command(self) -> VerbCommand:
        """Import the command."""
        module = import_module(f"frazil.cli.{self.module}")
        verb_command: VerbCommand = (
            getattr(module, re.sub("[- ]", "_", self.name), None) or vars(module)[f"{self.name}_"]
        )
        return verb_command


#: The sections of ``frazil --help``, in order.
SECTIONS: Final[dict[str, tuple[Verb, ...]]] = {
    "inspect": (
        Verb("log", "history", "show the versions, newest first"),
        Verb("show", "history", "show one version and what it changed"),
        Verb("diff", "differences", "show the differences between two versions"),
        Verb("blame", "differences", "show which commits wrote the chunks of an array"),
        Verb("history", "differences", "show all commits that wrote one cell of an array"),
        Verb("bisect", "history", "find the first version that fails a check"),
        Verb("ls", "contents", "list the groups and arrays of a group"),
        Verb("tree", "contents", "show all groups and arrays as a tree"),
        Verb("info", "contents", "describe a repository, a group or an array"),
        Verb("cat", "contents", "print or draw values of an array"),
        Verb("collection", "contents", "list the members of a collection", "xarray"),
        Verb("ui", "ui", "show a repository in a browser"),
        Verb("sql", "contents", "answer a query in SQL with DuckDB", "arrow"),
        Verb("refs", "history", "list the branches and tags"),
        Verb("status", "history", "show the state of a repository: branches, leases"),
        Verb("ops", "history", "show the ops log: all updates, newest first"),
        Verb("events", "jobs", "list the runs of jobs, also those that failed", "pipeline"),
        Verb("watch", "history", "print new versions of a branch as they come"),
        Verb("stats", "contents", "count versions, files and bytes of a repository"),
        Verb("du", "contents", "show how many bytes each array of a version takes"),
        Verb("inspect", "contents", "print the content of a file of the format as JSON"),
    ),
    "change": (
        Verb("init", "repository", "create a repository"),
        Verb("branch", "repository", "create or delete a branch"),
        Verb("tag", "repository", "create or delete a tag"),
        Verb("merge", "edits", "bring the changes of a version into a branch"),
        Verb("cherry-pick", "edits", "repeat a commit on a branch"),
        Verb("revert", "edits", "commit the inverse of a commit on a branch"),
        Verb("merge-snapshots", "edits", "commit the detached snapshots of workers"),
        Verb("reset", "repository", "move a branch to another version"),
        Verb("undo", "repository", "undo the last update of the repository"),
        Verb("redo", "repository", "make an undone update again"),
        Verb("restore-to", "repository", "return to an earlier state of the repository"),
        Verb("protect", "repository", "protect branches from mistakes"),
        Verb("unprotect", "repository", "remove the protection of branches"),
        Verb("set", "edits", "set values of an array"),
        Verb("mv", "edits", "move or rename a group or an array"),
        Verb("rm", "edits", "delete a group or an array"),
        Verb("attrs", "edits", "print or set attributes"),
        Verb("config", "repository", "print or save the configuration and the status"),
    ),
    "maintain": (
        Verb("expire", "upkeep", "remove old versions from the history"),
        Verb("collect", "upkeep", "delete files that no version needs"),
        Verb("compact", "upkeep", "merge small and mostly unused chunk files"),
        Verb("rewrite-manifests", "upkeep", "write the manifests of a branch again"),
        Verb("forget", "upkeep", "withdraw data from all versions"),
        Verb("hold", "upkeep", "hide data of a branch until a date"),
        Verb("doctor", "upkeep", "show what makes a repository slow, expensive or unsafe"),
        Verb("lease", "upkeep", "list or end the leases that hold back `collect`"),
        Verb("verify", "upkeep", "look for damaged and missing files of a repository"),
        Verb("repair", "upkeep", "repair lost, damaged and exchanged files of a repository"),
        Verb("cache", "upkeep", "show or empty the cache on disk for remote repositories"),
        Verb("upgrade", "repository", "upgrade a repository from spec version 1 to 2"),
    ),
    "move data": (
        Verb("copy", "moves", "copy a repository, or bring a copy up to date", "pipeline"),
        Verb("clone", "moves", "make a new repository with the files of another one", "pipeline"),
        Verb("view", "moves", "make a repository that refers to the chunks of another one", "pipeline"),
        Verb("export", "moves", "write a version as a Zarr store or a NetCDF file", "pipeline"),
        Verb("adopt", "moves", "make a version of a Zarr store, without a copy"),
        Verb("rechunk", "moves", "store arrays in other chunks", "pipeline"),
        Verb("recompress", "moves", "store arrays with another compression", "pipeline"),
        Verb("derived", "moves", "list derived arrays, and how far they are behind", "pipeline"),
        Verb("refresh", "moves", "compute what has changed of derived arrays", "pipeline"),
        Verb("ingest", "moves", "write files (NetCDF, HDF5, Zarr, GRIB, GeoTIFF) into a dataset", "pipeline"),
        Verb("import", "moves", "import a repository of a format older than version 1", "import"),
    ),
    "run a pipeline": (
        Verb("pipeline plan", "pipelines", "show what a run would do, and why", "pipeline"),
        Verb("pipeline run", "pipelines", "ingest, derive, check and publish what is new", "pipeline"),
        Verb("pipeline status", "pipelines", "show the published version, and what is left out", "pipeline"),
        Verb("pipeline backfill", "pipelines", "ingest the files of a span again", "pipeline"),
        Verb("pipeline show", "pipelines", "show the steps of a pipeline", "pipeline"),
    ),
    "write with a batch system": (
        Verb("job open", "jobs", "open a job whose tasks run anywhere", "pipeline"),
        Verb("job task", "jobs", "run a command as one task of a job", "pipeline"),
        Verb("job status", "jobs", "show the tasks of a job that have no result", "pipeline"),
        Verb("job commit", "jobs", "commit the results of all tasks of a job", "pipeline"),
    ),
    "shell": (Verb("completion", "arguments", "print a program that completes commands in a shell"),),
}
VERBS: Final = {verb.name: verb for verbs in SECTIONS.values() for verb in verbs}

#: Words of other tools -> the command that does the same here.
_OTHER_WORDS: Final = {
    **dict.fromkeys(("gc", "vacuum"), "collect"),
    **dict.fromkeys(("delete", "remove"), "rm"),
    **dict.fromkeys(("move", "rename"), "mv"),
    "prune": "expire",
    "fsck": "verify",
    "rollback": "undo",
    "append": "ingest",
    "jobs": "job status",
    "embargo": "hold",
}

#: The author of commits, in the ``meta`` of click's context.
AUTHOR: Final = "frazil.author"
SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Frazil(click.Group):
    """The group of all commands. Its help needs no module of a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command, and return the command."""
        verb = VERBS.get(cmd_name)
        return None if verb is None else verb.command()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command of the arguments, or an error that names a similar command."""
        if " ".join(args[:2]) in VERBS:  # the name of a command may have two words
            args = [" ".join(args[:2]), *args[2:]]
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            longer = [name for name in VERBS if name.startswith(f"{args[0]} ")]
            near = f". Write one of: {', '.join(longer)}." if longer else suggest(args[0], VERBS)
            if other := _OTHER_WORDS.get(args[0]):
                near = f". Did you mean `{other}`?"
            raise click.UsageError(f"no command `{args[0]}`{near or '.'} `frazil --help` lists commands", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of commands, from the table only."""
        width = max(map(len, VERBS))
        for title, verbs in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.name.ljust(width), verb.help) for verb in verbs])


class VerbCommand(click.Command):
    """A command with its examples below the options."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The error for one argument too many has the call that was probably meant."""
        has_more, ctx.allow_extra_args = ctx.allow_extra_args, True
        more = super().parse_args(ctx, args)
        if more and not has_more and not ctx.resilient_parsing:
            target, advice = ctx.params.get("target"), ""
            kinds = [each.type.name for each in self.params]
            takes_version = kinds.count("version") == len(more) == 1 and "location" not in kinds
            if takes_version and isinstance(target, Target) and not target.version:
                # The version stands behind the location instead of in it: ``diff ice main fix``.
                version = ctx.params[str(self.params[kinds.index("version")].name)]
                meant = replace(target, version=str(version))
                advice = f". Write `{ctx.command_path} {meant} {more[0]}`"
            elif labels := ctx.params.get("selection"):
                advice = f". Join the parts of a selection with commas: {','.join((str(labels), *more))}"
            raise click.UsageError(f"unexpected argument {more[0]!r}{advice}", ctx)
        return more

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, and the extra that the command needs."""
        super().format_help_text(ctx, formatter)
        if extra := VERBS[str(self.name)].extra:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(f"Needs an extra: {install_command(extra)}")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        with formatter.section("Examples"):
            formatter.write("".join(f"  {line}".rstrip() + "\n" for line in self.examples.splitlines()))


@dataclass(frozen=True, slots=True)
class Note:
    """What the annotation of a parameter says to the command line: see `argument` and `option`."""

    is_argument: bool
    flags: tuple[str, ...]
    settings: dict[str, Any]


def argument(**settings: Any) -> Note:
    """Return the note of an argument, with settings of click."""
    return Note(True, (), settings)


def option(*flags: str, **settings: Any) -> Note:
    """Return the note of an option, with its flags (by default its name) and settings of click."""
    return Note(False, flags, settings)


def verb(
    name: str,
    *,
    commits: bool = False,
    ignore_unknown_options: bool = False,
    like: Callable[..., None] | None = None,
) -> Callable[[Callable[..., int | None]], VerbCommand]:
    """Return a decorator that makes a command of the function that declares it.

    Commands that share their work share its declaration: ``like`` is the function with the work. Its
    parameters, except those that only keywords set, and their descriptions come before those of the command.
    """

    def declare(function: Callable[..., int | None]) -> VerbCommand:
        extra = VERBS[name].extra

        def run(**values: Any) -> int:
            with needs(f"`frazil {name}`", extra=extra) if extra else nullcontext():
                return function(click.get_current_context().ensure_object(Output), **values) or 0

        text, examples, helps = _sections(function)
        declared = [*inspect.signature(function, eval_str=True).parameters.values()][1:]
        if like is not None:
            helps = _sections(like)[2] | helps
            declared = [*[*inspect.signature(like, eval_str=True).parameters.values()][1:], *declared]
            declared = [each for each in declared if each.kind is each.POSITIONAL_OR_KEYWORD]
        return VerbCommand(
            name,
            callback=run,
            params=[
                JSON,
                DEBUG,
                *([_AUTHOR] if commits else []),
                *(_parameter(each, helps.get(each.name, "")) for each in declared),
            ],
            help=text,
            short_help=VERBS[name].help,
            examples=examples,
            context_settings={**SETTINGS, "ignore_unknown_options": ignore_unknown_options},
        )

    return declare


def _sections(function: Callable[..., Any]) -> tuple[str, str, dict[str, str]]:
    """Return the parts of a docstring: the text, the examples, and the descriptions of parameters."""
    text, *more = re.split(r"^(Args|Examples):\n", inspect.getdoc(function) or "", flags=re.MULTILINE)
    sections = dict(zip(more[::2], map(dedent, more[1::2]), strict=True))
    entries = re.findall(r"^(\w+): (.*(?:\n .*)*)", sections.get("Args", ""), re.MULTILINE)
    return text, sections.get("Examples", ""), {name: " ".join(words.split()) for name, words in entries}


def _parameter(declared: inspect.Parameter, text: str) -> click.Parameter:
    """Return the argument or option of a parameter."""
    is_annotated = get_origin(declared.annotation) is Annotated
    kind, *notes = get_args(declared.annotation) if is_annotated else [declared.annotation]
    settings = {name: value for note in notes for name, value in note.settings.items()}
    if any(note.is_argument for note in notes):
        return click.Argument([declared.name], **settings)
    flags = [flag for note in notes for flag in note.flags]
    if not any(flag.startswith("--") for flag in flags):
        flags.append(f"--{declared.name.replace('_', '-')}")
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) is Literal:
        settings = {"type": click.Choice(kinds), **settings}
    elif kind is bool:
        settings = {"is_flag": True, **settings}
    elif get_origin(kind) is tuple:
        settings = {"multiple": True, **settings}
    elif int in (kind, *kinds):
        settings = {"type": click.IntRange(min=0), **settings}
    if declared.default is not inspect.Parameter.empty:
        settings["default"] = declared.default
        text = f"{text.removesuffix('.')} ({declared.default})." if declared.default else text
    return click.Option([declared.name, *flags], **{"help": text, **settings})


def _common(name: str, attribute: str, text: str, **settings: Any) -> click.Option:
    """Return an option of every command, which sets an attribute of the output."""

    def remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            setattr(ctx.ensure_object(Output), attribute, True)

    flag: dict[str, Any] = {"is_flag": True, "expose_value": False, "callback": remember, "help": text}
    return click.Option([f"--{name}"], **flag, **settings)


JSON: Final = _common("json", "as_json", "Print the result as JSON.")
DEBUG: Final = _common("debug", "debug", "Print the trace of an error.", is_eager=True)
#: The option of commands that commit. `frazil.cli.opening` gives the author to the commits.
_AUTHOR: Final = click.Option(
    ["--author"],
    metavar="NAME",
    envvar="FRAZIL_AUTHOR",
    expose_value=False,
    callback=lambda ctx, _param, name: ctx.meta.update({AUTHOR: name}),
    help="The author of the commit, for `log` and `blame` ($FRAZIL_AUTHOR).",
)

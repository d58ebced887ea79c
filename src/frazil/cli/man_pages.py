"""``frazil man``: manual pages, from the same descriptions as ``--help``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from frazil.about import __version__
from frazil.cli.command import VerbCommand, verb
from frazil.cli.output import Output
from frazil.cli.verb_table import SECTIONS, VERBS

_DESCRIPTION: Final = """\
Print the manual page of a command, or of `frazil`, in the format of man. With --folder, write the pages of
all commands into a folder, such as ~/.local/share/man/man1, where `man frazil-log` looks for them."""

_EXAMPLES: Final = """\
frazil man log             the page of a command; show it with: frazil man log | man -l -
frazil man --folder pages  all pages, into a folder"""


@verb("man", description=_DESCRIPTION, examples=_EXAMPLES)
@click.argument("name", required=False, metavar="[COMMAND]", type=click.Choice([*VERBS]))
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Write all pages into it.")
def command(output: Output, name: str | None, folder: Path | None) -> None:
    """Print or write the pages."""
    group = click.get_current_context().find_root().command
    assert isinstance(group, click.Group)
    if folder is None:
        text = page_of(group, name)
        output.emit({"page": text}, [text])
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = [None, *VERBS]
    for each in names:
        (folder / f"{_title(each)}.1").write_text(page_of(group, each) + "\n", "utf-8")
    output.emit({"folder": str(folder), "pages": len(names)}, [f"wrote {len(names)} pages into {folder}"])


def page_of(group: click.Group, name: str | None) -> str:
    """Return the manual page of a command, or of the group for None."""
    # A context that no command line made has no settings of its own.
    context = click.Context(group, info_name="frazil", **group.context_settings)
    if name is None:
        parts = [_heading("frazil", "versioned storage for Zarr arrays")]
        parts += _synopsis("frazil", "[OPTIONS] COMMAND [ARGS]...")
        parts += [".SH DESCRIPTION", *_paragraphs(group.help or ""), *_options(group, context)]
        for title, verbs in SECTIONS.items():
            parts.append(f".SH {title.upper()}")
            for each in verbs:
                parts += [".TP", f"\\fBfrazil\\-{_text(each.name)}\\fR(1)", _text(each.help)]
        return "\n".join(parts)
    page_command = group.get_command(context, name)
    assert isinstance(page_command, VerbCommand)
    own = click.Context(page_command, info_name=name, parent=context)
    parts = [_heading(_title(name), VERBS[name].help)]
    parts += _synopsis(f"frazil {name}", " ".join(page_command.collect_usage_pieces(own)))
    parts += [".SH DESCRIPTION", *_paragraphs(page_command.description), *_options(page_command, own)]
    parts += [".SH EXAMPLES", ".nf", *map(_text, page_command.examples.splitlines()), ".fi"]
    return "\n".join([*parts, ".SH SEE ALSO", "\\fBfrazil\\fR(1)"])


def _title(name: str | None) -> str:
    return "frazil" if name is None else f"frazil-{name}"


def _heading(title: str, summary: str) -> str:
    return (
        f'.TH "{_text(title.upper())}" "1" "" "frazil {__version__}" "Frazil"\n'
        f".SH NAME\n{_text(title)} \\- {_text(summary)}"
    )


def _synopsis(name: str, arguments: str) -> list[str]:
    return [".SH SYNOPSIS", f"\\fB{_text(name)}\\fR {_text(arguments)}"]


def _options(command: click.Command, context: click.Context) -> list[str]:
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options]
    lines = [".SH OPTIONS"]
    for names, text in filter(None, records):
        lines += [".TP", f"\\fB{_text(names)}\\fR", _text(text)]
    return lines


def _paragraphs(text: str) -> list[str]:
    """Return paragraphs; lines below the mark of click for fixed lines stay as they are."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("\b"):
            lines += [".PP", ".nf", *map(_text, paragraph.splitlines()[1:]), ".fi"]
        else:
            lines += [".PP", *map(_text, paragraph.splitlines())]
    return lines


def _text(text: str) -> str:
    r"""Return a text in which roff finds no requests.

    >>> _text(".5 a-b")
    '\\&.5 a\\-b'
    """
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text

"""``frazil completion``, and what a shell completes: branches, tags, groups and arrays of a repository.

A location is completed by the shell, as a folder. Behind ``@`` come the branches and tags, and behind ``:``
the members of a group. Nothing is completed if the repository cannot be opened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import click
from click.shell_completion import CompletionItem, get_completion_class

from frazil.cli.command import argument, verb
from frazil.cli.opening import Opened
from frazil.cli.output import Output
from frazil.cli.target import Target, parse_target
from frazil.errors import IcechunkError


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
    output.emit({"shell": shell, "program": text}, [text])


def complete_target(text: str) -> list[CompletionItem]:
    """Return the completions of the beginning of a target."""
    try:
        target = parse_target(text.removesuffix("@") if text.endswith("@") else text)
        if target.path is not None:
            return _paths(target, text.rpartition(":")[2])
        if target.version is None and not text.endswith("@"):
            return [CompletionItem(text, type="file")]
        return [
            CompletionItem(str(replace(target, version=name)), help=kind)
            for name, kind in _refs(target)
            if name.startswith(target.version or "")
        ]
    except IcechunkError:
        return []


def complete_version(ctx: click.Context, text: str) -> list[CompletionItem]:
    """Return the branches and tags of the target of a command that begin with a text."""
    target = ctx.params.get("target")
    if not isinstance(target, Target):
        return []
    try:
        refs = _refs(target)
    except IcechunkError:
        return []
    return [CompletionItem(name, help=kind) for name, kind in refs if name.startswith(text)]


def _refs(target: Target) -> list[tuple[str, str]]:
    """Return the names of branches and tags, each with its kind."""
    info = Opened(target).info
    kinds = (("branch", info.branches), ("tag", info.tags))
    return [(name, kind) for kind, names in kinds for name in sorted(names)]


def _paths(target: Target, typed: str) -> list[CompletionItem]:
    """Return the members of a group whose paths begin with the typed path, which may lack the first slash."""
    group, _, beginning = typed.rpartition("/")
    nodes = Opened(target).workspace
    parent = f"/{group.strip('/')}"
    paths = [f"{parent.rstrip('/')}/{name}" for name in nodes.children(parent) if name.startswith(beginning)]
    return [CompletionItem(str(replace(target, path=path))) for path in paths]

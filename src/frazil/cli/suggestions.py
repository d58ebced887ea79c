"""What a shell completes in the arguments of a command: branches, tags, groups and arrays of a repository.

A location is completed by the shell, as a folder. Behind ``@`` come the branches and tags, and behind ``:``
the members of a group. Nothing is completed if the repository cannot be opened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from click.shell_completion import CompletionItem

from frazil.cli.nodes import workspace_of
from frazil.cli.opening import open_version, repo_info_of, storage_of
from frazil.cli.target import Target, parse_target
from frazil.errors import IcechunkError


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
    info = repo_info_of(storage_of(target))
    kinds = (("branch", info.branches), ("tag", info.tags))
    return [(name, kind) for kind, names in kinds for name in sorted(names)]


def _paths(target: Target, typed: str) -> list[CompletionItem]:
    """Return the members of a group whose paths begin with the typed path, which may lack the first slash."""
    group, _, beginning = typed.rpartition("/")
    nodes: Any = workspace_of(open_version(replace(target, path=None)))
    parent = f"/{group.strip('/')}"
    paths = [f"{parent.rstrip('/')}/{name}" for name in nodes.children(parent) if name.startswith(beginning)]
    return [CompletionItem(str(replace(target, path=path))) for path in paths]

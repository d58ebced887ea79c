"""The examples in the help of commands."""

from __future__ import annotations

import re
import shlex

from frazil.cli.command import VERBS

#: Commands whose examples run on the repository `ice`, with status 0. The others are parsed.
RUNS = {
    *("log", "history", "show", "diff", "blame", "ls", "tree", "info", "cat", "refs"),
    *("status", "ops", "stats", "du", "inspect", "sql"),
    *("init", "branch", "tag", "merge", "cherry-pick", "revert", "reset", "mv", "rm", "attrs", "config"),
    *("expire", "collect", "compact", "rewrite-manifests", "upgrade", "completion", "cache"),
    *("set", "restore-to", "doctor"),
    # these need the extra `pipeline`
    *("rechunk", "recompress", "copy", "clone", "export", "protect"),
}


def examples_of(name: str) -> list[list[str]]:
    """The arguments of each example, without the text behind it."""
    text = VERBS[name].command().examples
    lines = [re.split(r"\s{2,}| > ", line)[0] for line in text.splitlines() if line.startswith("frazil ")]
    assert lines
    return [shlex.split(line)[1:] for line in lines]

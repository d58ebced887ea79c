"""Messages of the library for a terminal: with options of the command instead of arguments of Python.

The library names arguments (``on_problem='skip'``), sometimes with the option behind them
(``on_problem='skip' (--on-problem skip)``). On a terminal only the option is left.
"""

from __future__ import annotations

import re
from typing import Final

#: A value of Python as messages show it: text, brackets of any kind, a word.
_VALUE: Final = r"(?:'[^']*'|\[[^\]]*\]|\{(?:[^{}]|\{[^{}]*\})*\}|\([^()]*\)|[\w.]+)?"
#: ``name=value (--option value)`` or ``mode 'value' (--option value)``: only the option stays.
_WITH_OPTION: Final = re.compile(rf"\b(?:[a-z_]+={_VALUE}|mode '[a-z]+') \((--[^()]+)\)")
#: Arguments of `frazil.pipeline.ingest` that are an option with a value of one word.
_TEXT_ARGUMENTS: Final = re.compile(
    r"\b(mode|on_problem|on_change|concat_dim|source_group|format|engine|message)=(['\"])([^'\"]*)\2"
)
#: Other arguments, as messages show them, and their option.
_OTHER_ARGUMENTS: Final = (
    (re.compile(rf"\breader_options=\{{'filter_by_keys': {_VALUE}\}}"), "--filter-by-keys KEY=VALUE,..."),
    (re.compile(rf"\breader_options={_VALUE}"), "--reader-option KEY=VALUE"),
    (re.compile(rf"\ballow={_VALUE}"), "--allow KIND"),
    (re.compile(rf"\bvariables={_VALUE}"), "--variables A,B"),
    (re.compile(rf"\bcontainers={_VALUE}"), "--container PREFIX"),
    (re.compile(r"\bunpack=True"), "--unpack"),
    (re.compile(r"\bvirtual=True"), "--virtual"),
    (re.compile(r"\bmode '(create|append|insert|upsert|backfill)'"), r"--mode \1"),
)


#: Advice that names methods of Python -> the advice that names commands, or "" where there is none.
_ADVICE: Final = (
    ("Repository.set_status makes it writable again", "`frazil config LOCATION --online` makes it writable"),
    ("`Repository.ancestry` lists", "`frazil log` lists"),
    ("create a repository with Repository.create", "create a repository with `frazil init`"),
    (". Open it with Repository.open", ""),
    (". Write something first, or pass allow_empty=True", ": the branch has all of them already"),
    ("Pass overwrite=True to replace it", "--overwrite replaces it"),
    (
        "Pass the container in authorize_virtual_chunk_access when you open the repository",
        "Name the container in the variable FRAZIL_VIRTUAL_ACCESS",
    ),
    ("Repository.unprotect_branch removes", "`frazil unprotect` removes"),
    ("watch it without a cursor", "watch it without --cursor"),
    ("Repository.verify names", "`frazil verify` names"),
    ("Repository.list_leases lists", "`frazil lease` lists"),
)


def for_terminal(message: str) -> str:
    """Return a message with options and commands instead of the arguments and methods that it names.

    >>> for_terminal("on_problem='skip' (--on-problem skip) leaves them out, unpack=True stores values")
    '--on-problem skip leaves them out, --unpack stores values'
    >>> for_terminal("use mode 'upsert' (--mode upsert)")
    'use --mode upsert'
    >>> for_terminal("reader_options={'filter_by_keys': {'level': 2}} chooses fields")
    '--filter-by-keys KEY=VALUE,... chooses fields'
    """
    text = _WITH_OPTION.sub(r"\1", message)
    text = _TEXT_ARGUMENTS.sub(lambda match: f"--{match[1].replace('_', '-')} {match[3]}", text)
    for pattern, option in _OTHER_ARGUMENTS:
        text = pattern.sub(option, text)
    for method, command in _ADVICE:
        text = text.replace(method, command)
    return text


#: Calls of methods in advice -> commands. ``{at}`` is the location of the repository.
_COMMANDS: Final = (
    (re.compile(r"repo\.rewrite_manifests\(.*branch='([^']*)'\)"), r"frazil rewrite-manifests {at}@\1"),
    (re.compile(r"repo\.compact\(.*branch=\"main\"\)"), "frazil compact {at}"),
    (
        re.compile(r"repo\.garbage_collect\(datetime\.fromisoformat\('([^'+]*)[^']*'\)\)"),
        r"frazil gc {at} --older-than \1",
    ),
    (re.compile(r"repo\.undo\(branch='([^']*)'\)"), r"frazil undo {at} --branch \1"),
    (re.compile(r"repo\.break_lease\('([^']*)'\)"), r"frazil lease {at} --end \1"),
    (re.compile(r"repo\.protect_branch\('([^']*)', \.\.\.\)"), r"frazil protect {at} \1"),
)


def command_for(call: str, location: str) -> str:
    r"""Return the command for a call of a method, or the call where there is no command.

    >>> command_for("repo.rewrite_manifests('rewrite manifests', branch='dev')", "ice")
    'frazil rewrite-manifests ice@dev'
    """
    for pattern, text in _COMMANDS:
        call = pattern.sub(text.replace("{at}", location.replace("\\", "\\\\")), call)
    return call


def lines_of(message: str, kind: str) -> list[str]:
    """Return an error as lines of a terminal: the message with its kind, then a line for each file."""
    first, *others = [" ".join(line.split()) for line in message.splitlines() if line.strip()] or [""]
    return [f"frazil: {first} [{kind}]", *(f"  {line}" for line in others)]

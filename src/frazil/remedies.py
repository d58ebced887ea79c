"""What to do about an error: a value that Python spells as a call, and the command line as a command.

`OPERATIONS` has both spellings of each operation. An argument is spelled by one rule: ``on_problem='skip'``
is ``--on-problem skip``. So the command line rewrites no text. This module imports nothing of Frazil.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from shlex import quote
from typing import Any, Final, NamedTuple, override


class Operation(NamedTuple):
    """The two spellings of an operation. In a command, ``{at}`` is the location of the repository."""

    python: str
    command: str
    #: Whether the call returns a plan, which is applied.
    is_plan: bool = False


#: The operations that messages name.
OPERATIONS: Final[Mapping[str, Operation]] = {
    "ancestry": Operation("Repository.ancestry", "log {at}"),
    "branch_protections": Operation("Repository.branch_protections", "protect {at}"),
    "compact": Operation("Repository.upkeep.compact", "compact {at}@{branch}", is_plan=True),
    "create": Operation("Repository.create", "init {at}"),
    "delete_tag": Operation("Repository.delete_tag", "tag {at} {tag} --delete"),
    "end_hold": Operation("Repository.upkeep.end_hold", "hold {at} --end {name}", is_plan=True),
    "exists": Operation("Repository.exists", "status {at}"),
    "feature_flags": Operation("Repository.feature_flags", "inspect {at} --repo"),
    "fetch_config": Operation("Repository.fetch_config", "config {at}"),
    "garbage_collect": Operation("Repository.garbage_collect", "collect {at}"),
    "get_metadata": Operation("Repository.get_metadata", "inspect {at} --repo"),
    "get_status": Operation("Repository.get_status", "status {at}"),
    "list_branches": Operation("Repository.list_branches", "refs {at}"),
    "leases": Operation("Repository.upkeep.leases", "lease {at}"),
    "list_tags": Operation("Repository.list_tags", "refs {at}"),
    "lookup_branch": Operation("Repository.lookup_branch", "refs {at}"),
    "lookup_snapshot": Operation("Repository.lookup_snapshot", "show {at}@{snapshot_id}"),
    "ops_log": Operation("Repository.ops_log", "ops {at}"),
    "protect_branch": Operation("Repository.protect_branch", "protect {at} {pattern}"),
    "redo": Operation("Repository.history.redo", "redo {at}"),
    "refresh": Operation("frazil.pipeline.refresh", "refresh {at}", is_plan=True),
    "repair": Operation("Repository.upkeep.repair", "repair {at}"),
    "reset_branch": Operation("Repository.reset_branch", "reset {at}@{branch} {snapshot_id}"),
    "restore": Operation("frazil.Repository.upkeep.restore(storage).apply()", "repair {at}"),
    "retain": Operation("Repository.upkeep.retain", "expire {at}", is_plan=True),
    "rewrite_manifests": Operation("Repository.rewrite_manifests", "rewrite-manifests {at}@{branch}"),
    "set_status": Operation("Repository.set_status", "config {at} --online"),
    "undo": Operation("Repository.history.undo", "undo {at}"),
    "unprotect_branch": Operation("Repository.unprotect_branch", "unprotect {at} {pattern}"),
    "upgrade": Operation("frazil.upgrade(storage)", "import {at}"),
    "upgrade_icechunk_repository": Operation("frazil.upgrade_icechunk_repository(storage)", "upgrade {at}"),
    "verify": Operation("Repository.upkeep.verify", "verify {at}"),
}
#: Arguments whose option has another name.
_OPTIONS: Final = {
    "containers": "container",
    "copies": "copy",
    "delete_object_older_than": "older-than",
    "reader_options": "reader-option",
}
#: The location in a command, where the location is not known.
_LOCATION: Final = "LOCATION"


class _Fields(dict[str, Any]):
    """The fields of a command. A field without a value is a placeholder."""

    def __missing__(self, name: str) -> str:
        return name.removesuffix("_id").upper()


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of ``OPERATIONS`` with arguments, or only arguments of the operation that failed.

    The value ``...`` stands for any value.
    """

    operation: str
    arguments: Mapping[str, object] = field(default_factory=dict)

    @override
    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={_literal(value)}" for name, value in self.arguments.items())
        if not self.operation:
            return arguments
        name, _, is_plan = OPERATIONS[self.operation]
        called = f"{name.replace('Repository', 'repo')}({arguments}){'.apply()' if is_plan else ''}"
        return called if arguments else name

    def command(self, location: str = _LOCATION) -> str:
        """Return the command or the options, for a shell."""
        template = OPERATIONS[self.operation].command.split() if self.operation else []
        fields = _Fields(self.arguments, at=location)
        words = [quote(word.format_map(fields)) for word in template]
        for name, value in self.arguments.items():
            if not any(f"{{{name}}}" in word for word in template):
                words.append(f"--{_OPTIONS.get(name, name).replace('_', '-')}")
                words += [] if value is True else [quote(_word(value))]
        return " ".join(["frazil", *words] if self.operation else words)


def call(operation: str, /, **arguments: object) -> Call:
    """Return an operation of ``OPERATIONS`` with arguments."""
    return Call(operation, arguments)


def argument(**arguments: object) -> Call:
    """Return arguments of the operation that failed, by their names in Python."""
    return Call("", arguments)


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about an error.

    Attributes:
        text: One or more sentences without the last full stop, with ``{}`` for each part.
        parts: Calls, and other values that are the same in each spelling.
        shell: The text of the command line, where it differs in more than the spelling of the calls. An empty
            text: the command line has no such remedy.

    Examples:
        >>> remedy = Remedy("`{}` shows the versions of `{}`", (call("ancestry"), "main"))
        >>> print(remedy)
        `Repository.ancestry` shows the versions of `main`
        >>> remedy.for_shell("ice")
        '`frazil log ice` shows the versions of `main`'
    """

    text: str
    parts: tuple[object, ...] = ()
    shell: str | None = None

    @override
    def __str__(self) -> str:
        return self.text.format(*self.parts)

    def for_shell(self, location: str = _LOCATION) -> str:
        """Return the text with commands and options.

        Args:
            location: The location of the repository.

        Returns:
            The text. It is empty if the command line has no such remedy.
        """
        if self.shell is not None:
            return self.shell
        parts = (part.command(location) if isinstance(part, Call) else part for part in self.parts)
        return self.text.format(*parts)


def joined(separator: str, remedies: Iterable[Remedy]) -> Remedy:
    """Return several remedies as one. None of them has a text of its own for the command line."""
    each = list(remedies)
    parts = tuple(part for remedy in each for part in remedy.parts)
    return Remedy(separator.join(remedy.text for remedy in each), parts)


def _literal(value: object) -> str:
    if value is ...:
        return "..."
    return f"datetime.fromisoformat({value.isoformat()!r})" if isinstance(value, datetime) else repr(value)


def _word(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value))
    return "..." if value is ... else str(value)

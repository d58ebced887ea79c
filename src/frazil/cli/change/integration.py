"""``frazil merge``, ``frazil cherry-pick`` and ``frazil revert``: changes of other versions, on a branch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

import frazil
from frazil.cli.changes import (
    confirm,
    dry_run_option,
    emit_tip,
    message_option,
    metadata_option,
    options,
    source_text,
    writable_repository,
    yes_option,
)
from frazil.cli.command import VERSION, target_argument, verb
from frazil.cli.opening import branch_of
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.display import counted

if TYPE_CHECKING:
    from frazil.conflicts import Conflict, DiscardedValues, ElementSolver

#: Value of ``--conflicts`` -> what the solver does with the conflicts that elements cannot decide.
_OTHERWISE: Final = {"elements": "Fail", "source": "UseOurs", "branch": "UseTheirs"}

_arguments: Final = options(
    target_argument(metavar="LOCATION[@BRANCH]"),
    click.argument("version", type=VERSION),
    message_option,
    metadata_option,
    click.option(
        "--conflicts",
        type=click.Choice([*_OTHERWISE, "fail"]),
        default="elements",
        help="Where both sides wrote a chunk: keep the changes of both, and end with an error if both "
        "changed the same element (elements), or take the value of VERSION (source) or of the branch "
        "(branch) for it; or always end with an error (fail).",
    ),
    dry_run_option,
    yes_option,
)


@verb(
    "merge",
    commits=True,
    description="Bring the changes of VERSION into a branch (default: `main`). A branch without own changes "
    "moves to VERSION, unless --no-ff asks for a commit.",
    examples="""\
frazil merge ice dev                             the changes of `dev` into `main`
frazil merge ice@dev main -m "Catch up"          the changes of `main` into `dev`
frazil merge ice dev --dry-run                   show the result or the conflicts
frazil merge ice dev --conflicts source          values of `dev` win where both changed them""",
)
@_arguments
@click.option("--no-ff", is_flag=True, help="Always make a commit.")
def merge(output: Output, target: Target, no_ff: bool, **settings: Any) -> None:
    """Merge the version."""
    _integrate(output, "merge", target, settings, fast_forward=not no_ff)


@verb(
    "cherry-pick",
    commits=True,
    description="Repeat on a branch (default: `main`) what the commit VERSION changed.",
    examples="""\
frazil cherry-pick ice dev               the newest commit of `dev`, on `main`
frazil cherry-pick ice dev --dry-run     show what it would change""",
)
@_arguments
def cherry_pick(output: Output, target: Target, **settings: Any) -> None:
    """Repeat the commit."""
    _integrate(output, "cherry_pick", target, settings)


@verb(
    "revert",
    commits=True,
    description="Undo on a branch (default: `main`) what the commit VERSION changed. Later commits stay.",
    examples="""\
frazil revert ice main                   undo the newest commit
frazil revert ice main~1 --dry-run       show what the revert of the commit before it would change""",
)
@_arguments
def revert(output: Output, target: Target, **settings: Any) -> None:
    """Undo the commit."""
    _integrate(output, "revert", target, settings)


@dataclass(slots=True)
class _AskingSolver:
    """A solver of elements that asks before it discards values.

    Attributes:
        output: Where it asks.
        solver: The solver that decides.
        sides: The names of the two sides.
        yes: Whether it prints the values instead of a question.
        dry_run: Whether it neither prints nor asks.
        accepted: What the answer was yes to.
    """

    output: Output
    solver: ElementSolver
    sides: dict[frazil.VersionSelection, str]
    yes: bool
    dry_run: bool
    accepted: list[DiscardedValues] = field(default_factory=list)

    def solve(self, conflicts: Sequence[Conflict]) -> list[Any]:
        """Decide the conflicts. End the command if values would be discarded and the answer is no."""
        answers = self.solver.solve(conflicts)
        discarded = self.solver.discarded
        is_decided = all(each is not frazil.VersionSelection.Fail for each in answers)
        if discarded and is_decided and discarded != self.accepted:
            text = "; ".join(self.lines("will discard"))
            if self.yes and not self.dry_run:
                click.echo(text, err=True)
            confirm(self.output, f"{text}. Continue?", yes=self.yes or self.dry_run)
            self.accepted = discarded
        return answers

    def lines(self, verb: str) -> Iterator[str]:
        """Yield a line for each array with the number of values that the last answers discard."""
        for each in self.solver.discarded:
            values = "an unknown number of values" if each.values is None else counted(each.values, "value")
            chunks = counted(each.chunks, "chunk")
            yield f"{each.path}: {verb} {values} of {self.sides[each.side]} in {chunks}"

    def document(self) -> list[dict[str, Any]]:
        """Return the same for programs, with the side as ``--conflicts`` names it."""
        names = {frazil.VersionSelection.UseOurs: "source", frazil.VersionSelection.UseTheirs: "branch"}
        return [
            {"path": each.path, "side": names[each.side], "values": each.values, "chunks": each.chunks}
            for each in self.solver.discarded
        ]


def _integrate(output: Output, method: str, target: Target, settings: dict[str, Any], **further: Any) -> None:
    repo = writable_repository(target, settings["dry_run"])
    branch = branch_of(repo, target)
    before = repo.lookup_branch(branch)
    text = settings["version"]
    source = source_text(repo, text)
    message = settings["message"]
    if message is None and method == "merge" and source != text:
        message = f"Merge {text} into {branch}"  # the default has the id
    name = f"the revert of `{text}`" if method == "revert" else f"`{text}`"
    solver = None
    if settings["conflicts"] in _OTHERWISE:
        side = frazil.VersionSelection[_OTHERWISE[settings["conflicts"]]]
        sides = {frazil.VersionSelection.UseOurs: name, frazil.VersionSelection.UseTheirs: f"`{branch}`"}
        solver = _AskingSolver(
            output, frazil.ElementSolver(otherwise=side), sides, settings["yes"], settings["dry_run"]
        )
    try:
        getattr(repo, method)(
            source, branch, solver=solver, message=message, metadata=settings["metadata"] or None, **further
        )
    except frazil.RebaseFailedError as error:
        error.with_remedy("{}", _advice(error, settings["conflicts"], name, branch))
        raise
    lines = (
        () if solver is None else tuple(solver.lines("would discard" if settings["dry_run"] else "discards"))
    )
    more = {"discarded": [] if solver is None else solver.document()}
    emit_tip(output, repo, branch, before, dry_run=settings["dry_run"], further=lines, more=more)


def _advice(error: frazil.RebaseFailedError, choice: str, source: str, branch: str) -> str:
    """Return the options that decide conflicts, as the last sentence of an error."""
    kinds = {each.conflict_type for each in error.conflicts}
    decided = {
        frazil.ConflictType.ChunkDoubleUpdate,
        frazil.ConflictType.DeleteOfUpdatedArray,
        frazil.ConflictType.DeleteOfUpdatedGroup,
    }
    if choice not in ("elements", "fail") or not kinds <= decided:
        return f"Change `{branch}` or {source} so that the conflict ends, and repeat the command"
    both = "--conflicts elements keeps the changes of both sides where they changed other elements, "
    sides = f"--conflicts source keeps the values of {source} there, --conflicts branch those of `{branch}`"
    return f"{both if choice == 'fail' else ''}{sides}"

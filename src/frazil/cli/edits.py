"""Commands that make a commit on a branch: merge, cherry-pick, revert, set, mv, rm, attrs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click
import numpy as np

import frazil
from frazil.arguments import misfit
from frazil.cli import arguments as args
from frazil.cli.command import Output, argument, option, verb
from frazil.cli.opening import BranchChange, OpenTarget, confirm, node_at, node_document
from frazil.display import counted
from frazil.format.ids import id_to_text
from frazil.repository.catalog.ancestry import all_ancestors
from frazil.repository.catalog.repo_changes import snapshot_named
from frazil.repository.paths import absolute

if TYPE_CHECKING:
    from frazil.conflicts import Conflict, DiscardedValues, ElementSolver

#: Value of ``--conflicts`` -> what the solver does with the conflicts that elements cannot decide.
_OTHERWISE: Final = {"elements": "Fail", "source": "UseOurs", "branch": "UseTheirs"}
#: The side of a solver -> its name for ``--conflicts``.
_SIDES: Final = {frazil.VersionSelection.UseOurs: "source", frazil.VersionSelection.UseTheirs: "branch"}
#: The conflicts that ``--conflicts`` decides.
_DECIDED: Final = {
    frazil.ConflictType.ChunkDoubleUpdate,
    frazil.ConflictType.DeleteOfUpdatedArray,
    frazil.ConflictType.DeleteOfUpdatedGroup,
}
_Conflicts = Annotated[
    Literal["elements", "source", "branch", "fail"],
    option(
        default="elements",
        help="Where both sides wrote a chunk: keep the changes of both, and end with an error if both "
        "changed the same element (elements), or take the value of VERSION (source) or of the branch "
        "(branch) for it; or always end with an error (fail).",
    ),
]


def _integrate(
    output: Output,
    target: args.BranchTarget,
    version: args.Version,
    message: args.Message,
    metadata: args.Metadata,
    conflicts: _Conflicts,
    tip: Annotated[str | None, option(metavar="ID")],
    dry_run: args.DryRun,
    yes: args.Yes,
    *,
    method: str,
    **further: Any,
) -> None:
    """Bring changes of a version into a branch.

    Args:
        tip: Change the branch only if this is still the id of its newest version.
    """
    change = BranchChange(output, target, dry_run)
    info = change.opened.context.catalog.repo_info()
    source_id = snapshot_named(info, change.opened.source(version))
    source = id_to_text(source_id)
    if message is None and method == "merge":
        message = f"Merge {version} into {change.branch}"  # the default has the id
    name = f"the revert of `{version}`" if method == "revert" else f"`{version}`"
    solver = None
    if conflicts in _OTHERWISE:
        elements = frazil.ElementSolver(otherwise=frazil.VersionSelection[_OTHERWISE[conflicts]])
        solver = _AskingSolver(output, elements, (name, f"`{change.branch}`"), yes, change.dry_run)
    further |= {"message": message, "metadata": metadata or None, "from_snapshot_id": tip}
    integrate, are_behind = getattr(change.repo, method), False
    try:
        try:
            integrate(source, change.branch, solver=solver, **further)
        except frazil.RebaseFailedError as error:
            if solver is None or not error.of_derived:
                raise
            from frazil.pipeline import DerivedSolver

            others: Any = solver
            integrate(source, change.branch, solver=DerivedSolver(others), **further)
            are_behind = True
    except frazil.RebaseFailedError as error:
        advice = f"Change `{change.branch}` or {name} so that the conflict ends, and repeat the command"
        if conflicts in ("elements", "fail") and {each.conflict_type for each in error.conflicts} <= _DECIDED:
            advice = f"--conflicts source keeps the values of {name} there, --conflicts branch those of "
            advice += f"`{change.branch}`"
            if conflicts == "fail":
                both = "--conflicts elements keeps the changes of both sides if they changed other elements"
                advice = f"{both}, {advice}"
        error.with_remedy("{}", advice)
        raise
    lines = [] if solver is None else [*solver.lines("would discard" if change.dry_run else "discards")]
    if are_behind:
        lines.append(
            f"both sides have computed the same derived arrays: those of `{change.branch}` stay. "
            f"Bring them up to date with `frazil refresh`"
        )
    discarded = [] if solver is None else solver.document()
    members: dict[str, Any] = {"source": source, "discarded": discarded, "derived_behind": are_behind}
    if method == "merge":
        existing = all_ancestors(info, info.branches[change.branch])
        members["commits"] = len(np.setdiff1d(all_ancestors(info, source_id), existing))
    change.emit(lines, **members)


@verb("merge", commits=True, like=_integrate)
def merge(output: Output, no_ff: bool, **arguments: Any) -> None:
    """Bring the changes of VERSION into a branch (default: `main`).

    A branch without own changes moves to VERSION, unless --no-ff asks for a commit. Derived arrays that both
    have computed stay as on the branch: `frazil refresh` brings them up to date.

    Args:
        no_ff: Always make a commit.

    Examples:
        frazil merge ice dev                             the changes of `dev` into `main`
        frazil merge ice@dev main -m "Catch up"          the changes of `main` into `dev`
        frazil merge ice dev --dry-run                   show the result or the conflicts
        frazil merge ice dev --conflicts source          values of `dev` win where both changed them
    """
    _integrate(output, method="merge", fast_forward=not no_ff, **arguments)


@verb("cherry-pick", commits=True, like=_integrate)
def cherry_pick(output: Output, **arguments: Any) -> None:
    """Repeat on a branch (default: `main`) what the commit VERSION changed.

    Examples:
        frazil cherry-pick ice dev               the newest commit of `dev`, on `main`
        frazil cherry-pick ice dev --dry-run     show what it would change
    """
    _integrate(output, method="cherry_pick", **arguments)


@verb("revert", commits=True, like=_integrate)
def revert(output: Output, **arguments: Any) -> None:
    """Commit the inverse of the commit VERSION on a branch (default: `main`). Later commits stay.

    Examples:
        frazil revert ice main                   the inverse of the newest commit
        frazil revert ice main~1 --dry-run       show what the revert of the commit before it would change
    """
    _integrate(output, method="revert", **arguments)


@verb("merge-snapshots", commits=True)
def merge_snapshots(
    output: Output,
    target: args.BranchTarget,
    ids: Annotated[tuple[str, ...], argument(nargs=-1, metavar="[ID]...")],
    ids_from: Annotated[Any, option("--ids", type=click.File(), metavar="FILE")],
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
) -> None:
    """Merge detached snapshots, which workers have made with `Session.flush`, in one commit on a branch.

    Repeat the command after an interruption: there is one commit.

    Args:
        ids_from: Read more ids from a file, separated by spaces or lines; `-` is standard input.

    Examples:
        frazil merge-snapshots ice 3XK0 91TS -m "Run 7"      two snapshots, into `main`
        cat ids/* | frazil merge-snapshots ice@dev --ids -   the snapshots of all tasks
    """
    named = [*ids, *(ids_from.read().split() if ids_from else ())]
    change = BranchChange(output, target, dry_run)
    text = message or f"Merge {counted(len(set(named)), 'snapshot')}"
    change.repo.merge_snapshots(change.branch, named, text, metadata=metadata or None)
    change.emit()


@dataclass(slots=True)
class _AskingSolver:
    """A solver of elements that asks before it discards values; with ``yes`` it prints them instead.

    ``sides`` are the names of the source and of the branch, ``accepted`` is what the answer was yes to.
    """

    output: Output
    solver: ElementSolver
    sides: tuple[str, str]
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
            side = self.sides[_SIDES[each.side] == "branch"]
            yield f"{each.path}: {verb} {values} of {side} in {counted(each.chunks, 'chunk')}"

    def document(self) -> list[dict[str, Any]]:
        """Return the same for programs, with the side as ``--conflicts`` names it."""
        return [
            {"path": each.path, "side": _SIDES[each.side], "values": each.values, "chunks": each.chunks}
            for each in self.solver.discarded
        ]


@verb("set", commits=True, ignore_unknown_options=True)
def set_(
    output: Output,
    target: args.BranchNodeTarget,
    selection: Annotated[str, argument(metavar="SLICE")],
    value: Annotated[str, argument()],
    raw: args.Raw,
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
    yes: args.Yes,
) -> None:
    """Set cells of an array to a value, in one commit on a branch.

    SLICE selects the cells as in `frazil cat`: by index, or by the labels of coordinates. `...` selects all
    cells. VALUE is a value as `frazil cat` prints it: a number, text, an ISO time, a duration such as "90 s",
    NaN or null for a missing value, or nested lists in JSON that fit the selection. It is encoded by the CF
    conventions (packing, missing values, times) and read back before the commit. A value that the array
    cannot hold is refused. With --raw, VALUE is the stored element.

    `~` selects the nearest labels: then the command names them, and asks before it writes.

    Examples:
        frazil set ice@dev:era5/t 0,1 281.5                 one cell
        frazil set ice:era5/t 2:4,0 NaN -m "Remove spikes"  several cells
        frazil set ice:era5/t 0 '[1, 2, 3]' --dry-run       a row; only rehearse
        frazil set ice:era5/t 0,1 17 --raw                  the stored element
    """
    from frazil.cli.cells import (
        SELECTION,
        OpenArray,
        has_nearest,
        indices_of,
        place,
        selected_shape,
        values_of,
    )

    selected = SELECTION.convert(selection, None, None)
    change = BranchChange(output, target, dry_run, node="an array")
    path = change.path
    session = change.repo.writable_session(change.branch)
    opened = OpenArray(session, path, raw=raw, mode="r+")
    indices = indices_of(session, path, selected)
    shape = selected_shape(opened.array.shape, indices)
    new = np.broadcast_to(values_of(opened.coding, shape, value, path), shape)
    old = opened.elements(indices)
    where = place(opened.axes(indices))
    where = f"{path} at {where}" if where else path
    if has_nearest(selected) and not dry_run:
        confirm(output, f"`~` selects {counted(old.size, 'cell')} of {where}. Set them?", yes=yes)
    opened.array[indices] = new
    stored = opened.elements(indices)
    same = np.asarray(stored == new)
    if new.dtype.kind in "fcmM":
        missing = np.isnat if new.dtype.kind in "mM" else np.isnan
        same |= missing(stored) & missing(new)
    if not same.all():  # codecs, such as those that round
        both = (opened.cells(each[~same] if each.ndim else each) for each in (new, stored))
        original, read = (each.texts().reshape(-1)[0] for each in both)
        raise misfit(f"{path} must have values that its codecs keep, got {original}, which reads as {read}")
    session.commit(message or f"Set values of {path}", metadata or None)
    most = 5
    cells = [opened.cells(each.reshape(-1)[:most]) for each in (old, new)]
    pairs = zip(*(each.texts().tolist() for each in cells), strict=True)
    units = f" {cells[0].units}" if cells[0].units else ""
    more = "" if old.size <= most else f", ... ({old.size:,} cells)"
    change.emit([f"{where}: {', '.join(f'{was} -> {now}{units}' for was, now in pairs)}{more}"])


@verb("mv", commits=True)
def mv(
    output: Output,
    target: args.BranchNodeTarget,
    to: Annotated[str, argument()],
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
) -> None:
    """Move or rename a group or an array, with all nodes below it, in one commit. No chunk is copied.

    Examples:
        frazil mv ice:era5/t era5/t2m                   rename an array of `main`
        frazil mv ice@dev:era5 era5_old -m "Make room"  move a group of a branch
    """
    if to.startswith((f"{target.location}:", f"{target.location}@")):
        path = to.rpartition(":")[2]
        raise click.UsageError(f"TO must be a path, got {to!r}. Write `frazil mv {target} {path}`")
    change = BranchChange(output, target, dry_run, node="the group or array to move")
    session = change.repo.rearrange_session(change.branch)
    session.move(change.path, absolute(to))
    session.commit(message or f"Move {change.path} to {absolute(to)}", metadata)
    change.emit()


@verb("rm", commits=True)
def rm(
    output: Output,
    target: args.BranchNodeTarget,
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
) -> None:
    """Delete a group or an array, with all nodes below it, in one commit.

    Older versions still have it: the bytes stay until these versions expire.

    Examples:
        frazil rm ice:era5/t              delete an array of `main`
        frazil rm ice@dev:era5 --dry-run  show what the deletion of a group removes
    """
    change = BranchChange(output, target, dry_run, node="the group or array to delete")
    session = change.repo.writable_session(change.branch)
    session.workspace.require_node(change.path)
    session.workspace.delete_node(change.path)
    session.commit(message or f"Delete {change.path}", metadata)
    change.emit()


@verb("attrs", commits=True)
def attrs(
    output: Output,
    target: args.BranchNodeTarget,
    values: Annotated[tuple[str, ...], argument(nargs=-1, metavar="[KEY=VALUE]...")],
    unset: Annotated[tuple[str, ...], option(metavar="KEY")],
    message: args.Message,
    metadata: args.Metadata,
    dry_run: args.DryRun,
) -> None:
    """Print the attributes of a group or an array, or set some of them in one commit. VALUE is JSON, or text.

    Attributes that are not named stay. Attributes of `/` make the root group of a new repository.

    Args:
        unset: Remove an attribute; may be repeated.

    Examples:
        frazil attrs ice:era5                            print them
        frazil attrs ice:era5 title=ERA5 levels='[1,2]'  set two of them
        frazil attrs ice@dev:era5 --unset title          remove one of them
    """
    if not values and not unset:
        version = OpenTarget(target)
        attributes = node_document(node_at(version.workspace, version.path))["attributes"]
        lines = (f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in attributes.items())
        output.emit(attributes, lines)
        return
    added = dict(map(args.key_value, values))
    change = BranchChange(output, target, dry_run)
    session = change.repo.writable_session(change.branch)
    nodes = session.workspace
    # A new repository has no root group.
    stored = json.loads(node_at(nodes, change.path).user_data) or {"zarr_format": 3, "node_type": "group"}
    attributes = {**stored.get("attributes", {}), **added}
    if unknown := [name for name in unset if name not in attributes]:
        raise click.UsageError(f"{change.path} has no attribute {', '.join(unknown)}")
    for name in unset:
        del attributes[name]
    nodes.set_node(change.path, json.dumps({**stored, "attributes": attributes}).encode())
    session.commit(message or f"Set attributes of {change.path}", metadata)
    change.emit()

"""Commands that move and protect refs: branch, tag, reset, protect, unprotect."""

from __future__ import annotations

from typing import Annotated, Any

import click

from frazil.cli.arguments import AnyTarget, BranchTarget, DryRun, Location, Rules, Version, VersionType, Yes
from frazil.cli.changes import BranchChange, confirm
from frazil.cli.command import argument, option, verb
from frazil.cli.documents import SHORT
from frazil.cli.history import rules_of
from frazil.cli.opening import Opened
from frazil.cli.output import Output
from frazil.cli.target import MAIN
from frazil.repository.catalog.ancestry import is_in_history
from frazil.repository.catalog.repo_changes import find_snapshot, snapshot_id

#: What the deletion of a ref loses.
_LOSSES = {
    "branch": "Its last versions are in no other branch or tag, and can expire.",
    "tag": "Its name cannot be used again.",
}


def _change_ref(
    output: Output,
    target: AnyTarget,
    name: Version,
    delete: Annotated[bool, option("-d", "--delete")],
    dry_run: DryRun,
    yes: Yes,
    *,
    kind: str,
) -> None:
    """Create or delete a branch or a tag.

    Args:
        delete: Delete NAME.
    """
    if target.path is not None:
        raise click.UsageError("a branch or tag names a whole version. Leave out :PATH")
    if delete and target.version is not None:
        raise click.UsageError(f"--delete deletes the {kind} NAME. Leave out @VERSION")
    opened = Opened(target, dry_run=dry_run)
    repo = opened.repo
    lookup = getattr(repo, f"lookup_{kind}")
    if delete:
        id_ = lookup(name)
        if kind == "tag" or _is_last_ref(opened, name, id_):
            confirm(output, f"Delete the {kind} {name}? {_LOSSES[kind]}", yes=yes or dry_run)
        getattr(repo, f"delete_{kind}")(name)
    else:
        getattr(repo, f"create_{kind}")(name, opened.source(target.version or MAIN))
        id_ = lookup(name)
    document: dict[str, Any] = {kind: name, "id": id_, "deleted": delete, "dry_run": dry_run}
    action = "delete" if delete else "create"
    action = f"would {action}" if dry_run else f"{action}d"
    output.emit(document, [f"{action} the {kind} {name} on {output.paint(id_[:SHORT], 'id')}"])


@verb("branch", like=_change_ref)
def branch(output: Output, **arguments: Any) -> None:
    """Create a branch NAME on a version, or delete it. `frazil refs` lists the branches.

    Examples:
        frazil branch ice new              on the tip of `main`
        frazil branch ice@v1 fix           on a tag
        frazil branch ice --delete dev -y  delete a branch, without a question
    """
    _change_ref(output, kind="branch", **arguments)


@verb("tag", like=_change_ref)
def tag(output: Output, **arguments: Any) -> None:
    """Create a tag NAME on a version, or delete it. A tag never moves. `frazil refs` lists tags.

    Examples:
        frazil tag ice v3                 on the tip of `main`
        frazil tag ice@main~1 checked     on an ancestor
        frazil tag ice --delete v2 -y     delete a tag, without a question
    """
    _change_ref(output, kind="tag", **arguments)


def _is_last_ref(opened: Opened, branch: str, id_: str) -> bool:
    """Return whether no other branch or tag leads to the tip of a branch."""
    info = opened.context.catalog.repo_info()
    tip = snapshot_id(id_, lambda: info)
    others = {*info.tags.values(), *(each for name, each in info.branches.items() if name != branch)}
    return not any(is_in_history(info, tip, of=each) for each in others)


@verb("reset")
def reset(output: Output, target: BranchTarget, version: Version, dry_run: DryRun, yes: Yes) -> None:
    """Move a branch (default: `main`) to VERSION.

    Commits that the branch leaves stay in the repository until they expire: `frazil ops` shows their ids. If
    another writer moves the branch at the same time, nothing changes.

    Examples:
        frazil reset ice main~1 -y         drop the newest commit of `main`
        frazil reset ice@dev v1 --dry-run  show what `dev` would lose
    """
    change = BranchChange(output, target, dry_run)
    info = change.opened.context.catalog.repo_info()
    source = change.opened.source(version)
    goal = find_snapshot(source, lambda: info)
    before = change.repo.lookup_branch(change.branch)
    if goal is not None and not is_in_history(info, info.branches[change.branch], of=goal):
        question = (
            f"Move {change.branch} from {before[:SHORT]} to {version}? It loses the commits after {version}."
        )
        confirm(output, question, yes=yes or dry_run)
    change.repo.reset_branch(change.branch, source, from_snapshot_id=before)
    change.emit()


@verb("protect")
def protect(
    output: Output,
    target: Location,
    name: Annotated[str | None, argument(type=VersionType(), required=False)],
    by: Annotated[tuple[str, ...], option(metavar="USER")],
    allow_reset: bool,
    rules: Rules,
    dry_run: DryRun,
) -> None:
    """Protect a branch, or all branches whose names match a pattern. Without NAME, list the protections.

    A protected branch cannot be deleted, and it only moves to versions that contain its tip. Protections
    prevent mistakes: other implementations ignore them.

    Args:
        by: Who may move it; may be repeated.
        allow_reset: It may also move to versions without its tip.
        rules: Rules of an audit.

    Examples:
        frazil protect ice                            list the protections
        frazil protect ice main                       no reset, no undo, no deletion
        frazil protect ice 'release-*' --by ada       only ada moves these branches
        frazil protect ice main --rules rules.yaml    only versions that an audit with these rules has passed
    """
    repo = Opened(target, dry_run=dry_run).repo
    if name is None:
        protections = list(map(_protection_document, repo.branch_protections()))
        output.emit(protections, map(_protection_line, protections))
        return
    parsed = () if rules is None else rules_of(rules)
    protection = repo.protect_branch(name, principals=by, fast_forward_only=not allow_reset, rules=parsed)
    document = {**_protection_document(protection), "dry_run": dry_run}
    output.emit(document, [f"{'would protect' if dry_run else 'protected'} {_protection_line(document)}"])


@verb("unprotect")
def unprotect(output: Output, target: Location, name: Version, dry_run: DryRun) -> None:
    """Remove the protection of a branch or a pattern. `frazil protect LOCATION` lists them.

    Examples:
        frazil unprotect ice main            remove the protection of `main`
        frazil unprotect ice main --dry-run  only check whether it is possible
    """
    Opened(target, dry_run=dry_run).repo.unprotect_branch(name)
    action = "would remove" if dry_run else "removed"
    output.emit({"pattern": name, "dry_run": dry_run}, [f"{action} the protection of {name}"])


def _protection_document(protection: Any) -> dict[str, Any]:
    return {"pattern": protection.pattern, **protection.document()}


def _protection_line(document: dict[str, Any]) -> str:
    parts = ["no reset"] if document["fast_forward_only"] else []
    parts += [f"only {', '.join(document['principals'])}"] if document["principals"] else []
    parts += [f"{len(document['rules'])} rules"] if document["rules"] else []
    return f"{document['pattern']}: {'; '.join(['no deletion', *parts])}"

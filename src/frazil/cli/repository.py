"""Commands that change the state of a repository: its refs, its configuration, the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import click

import frazil
from frazil.cli import arguments as args
from frazil.cli.command import Output, argument, option, picked, verb
from frazil.cli.history import rules_of, update_document
from frazil.cli.opening import SHORT, BranchChange, OpenTarget, confirm, storage_of
from frazil.errors import ConflictError, ErrorKind
from frazil.handle.repository import context_of
from frazil.repository.catalog import repo_changes
from frazil.repository.catalog.ancestry import is_in_history
from frazil.repository.catalog.repo_changes import find_snapshot, resolve_id
from frazil.repository.settings.config_document import document_to_save, from_document, to_document
from frazil.repository.settings.manifest_config import AUTO
from frazil.repository.target import MAIN

if TYPE_CHECKING:
    from frazil.handle.repository import Repository


#: The option that is "auto", or rules.
_SPLITTING: Final = "manifest.splitting"


@verb("init")
def init(
    output: Output, target: args.Location, dry_run: args.DryRun, spec_version: Literal["1", "2"] = "2"
) -> None:
    """Create a repository in an empty folder or prefix, with the branch `main` on an empty version.

    Args:
        spec_version: The version of the format.

    Examples:
        frazil init new                   in a folder
        frazil init s3://bucket/prefix    in a bucket
        frazil init new --dry-run         only check that the location is empty
    """
    storage = storage_of(target, dry_run)
    repo = frazil.Repository.create(storage, spec_version=int(spec_version))
    action = "would create" if dry_run else "created"
    document = {"location": target.location, "spec_version": int(repo.spec_version), "dry_run": dry_run}
    document["id"] = repo.lookup_branch("main")
    output.emit(document, [f"{action} a repository of spec version {spec_version} in {storage.label()}"])


@verb("upgrade")
def upgrade(output: Output, target: args.Location, dry_run: args.DryRun, yes: args.Yes) -> None:
    """Upgrade a repository from spec version 1 to 2. No other process should write to it at the same time.

    If the upgrade was interrupted, run the same command again. `frazil import` reads formats before version
    1.

    Examples:
        frazil upgrade ice --dry-run   do everything except writing
        frazil upgrade ice --yes       upgrade, without a question
    """
    repo = OpenTarget(target).repo
    before = int(repo.spec_version)
    if before > 1:
        line = f"nothing to do: spec version {before}"
    elif dry_run:
        frazil.upgrade_icechunk_repository(repo, dry_run=True)
        line = "would upgrade from spec version 1 to 2"
    else:
        question = "Upgrade to spec version 2? Libraries that only know version 1 cannot read it."
        confirm(output, question, yes=yes)
        repo = frazil.upgrade_icechunk_repository(repo, dry_run=False)
        line = f"upgraded from spec version 1 to {int(repo.spec_version)}"
    output.emit({"before": before, "spec_version": int(repo.spec_version), "dry_run": dry_run}, [line])


@verb("undo")
def undo(
    output: Output,
    target: Annotated[args.AnyTarget, argument(metavar="[LOCATION[@BRANCH]]")],
    branch: Annotated[str | None, option(metavar="NAME")],
    update: args.Time,
    dry_run: args.DryRun,
    yes: args.Yes,
) -> None:
    """Undo the last update of `frazil ops` that is not undone yet.

    An update is a commit, a merge, a reset, a branch, the configuration. Repeat the command to go back
    step by step. LOCATION@BRANCH, or --branch, undoes the last update of a branch. The undo is a new
    update.

    Args:
        branch: Undo the last update of this branch, as LOCATION@NAME does.
        update: Change nothing unless this is the time of the update to undo, as --dry-run --json prints it.

    Examples:
        frazil undo ice --dry-run       show what would change
        frazil undo ice -y              undo the last update
        frazil undo ice@dev             undo the last update of a branch
    """
    if target.path is not None:
        raise click.UsageError("an undo concerns a whole branch or repository. Leave out :PATH")
    if None not in (branch, target.version) and branch != target.version:
        raise click.UsageError(f"name one branch, either {target.version} in the target or --branch {branch}")
    plan = OpenTarget(target).repo.history.undo(branch=branch or target.version)
    last = plan.updates[0].updated_at
    if update not in (None, last):
        text = f"the update to undo must be that of {update}, got {last}. Nothing was changed"
        raise ConflictError(message=text, kind=ErrorKind.REPO_INFO_UPDATED)
    _apply(output, "Undo", plan, dry_run, yes)


@verb("redo")
def redo(output: Output, target: args.Location, dry_run: args.DryRun, yes: args.Yes) -> None:
    """Make the last update again that `frazil undo` has undone.

    Examples:
        frazil redo ice             make it again
        frazil redo ice --dry-run   show what would change
    """
    _apply(output, "Redo", OpenTarget(target).repo.history.redo(), dry_run, yes)


@verb("restore-to")
def restore_to(
    output: Output,
    target: args.Location,
    when: Annotated[datetime | int, argument(callback=args.converted(args.state))],
    dry_run: args.DryRun,
    yes: args.Yes,
) -> None:
    """Return to an earlier state of the repository: all branches, tags, the configuration and the metadata.

    WHEN is a time (2026-11-01T06:00), an age (2h), or ~N for the state before the last N updates of
    `frazil ops`. The restoration is a new update, and `frazil undo` undoes it.

    Examples:
        frazil restore-to ice ~2 --dry-run    show what would change without the last two updates
        frazil restore-to ice ~1 -y           take back the last update
    """
    repo = OpenTarget(target).repo
    at: Any = when if isinstance(when, datetime) else next(islice(repo.ops_log(), when, None), None)
    if at is None:
        raise click.UsageError(f"the ops log has fewer than {when} updates before this state")
    _apply(output, "Restore", repo.history.restore_to(at), dry_run, yes)


def _apply(output: Output, action: str, plan: Any, dry_run: bool, yes: bool) -> None:
    """Apply a plan unless it is a dry run, after a question about its notes, and print it."""
    if not dry_run:
        if plan.notes:
            notes = (f"{each[0].upper()}{each[1:]}." for each in plan.notes)
            confirm(output, " ".join([f"{action}?", *notes]), yes=yes)
        plan = plan.apply()
    document: dict[str, Any] = {
        "dry_run": not plan.is_applied,
        "updates": list(map(update_document, plan.updates)),
        "changes": [picked(each, "subject", "before", "after") for each in plan.changes],
        "notes": list(plan.notes),
    }
    verb = "changed" if plan.is_applied else "would change"
    changes = [
        f"{verb} {each.subject}: {each.before or 'none'} -> {each.after or 'none'}" for each in plan.changes
    ]
    output.emit(document, [*changes, *(f"note: {each}" for each in plan.notes)])


@verb("config")
def config(
    output: Output,
    target: args.RequiredLocation,
    values: Annotated[tuple[str, ...], argument(nargs=-1, metavar="[KEY=VALUE]...")],
    read_only: Annotated[str | None, option(metavar="REASON")],
    online: bool,
    dry_run: args.DryRun,
) -> None:
    """Print the saved configuration, or save options in it, VALUE as JSON or text; `null` is the default.

    Handles that are opened later use them. --read-only makes the repository refuse all changes, and --online
    accepts them again.

    Args:
        read_only: Refuse changes.
        online: Accept changes.

    Examples:
        frazil config ice                                    print options that are not the default
        frazil config ice inline_chunk_threshold_bytes=1024  save an option
        frazil config ice compression.level=null             return to the default
        frazil config ice --read-only archived               refuse changes, with a reason
    """
    if online and read_only is not None:
        raise click.UsageError("--online and --read-only exclude each other")
    repo = OpenTarget(target, dry_run=dry_run).repo
    if online:
        repo.set_status(frazil.RepoStatus(frazil.RepoAvailability.online))
    if values:
        document = to_document(_saved_config(repo))
        for name, value in map(args.key_value, values):
            is_auto = name == _SPLITTING and value == AUTO
            if name == _SPLITTING:
                # "auto" is stored apart from rules.
                _set(document, f"frazil.{name.rpartition('.')[2]}", AUTO if is_auto else None)
            _set(document, name, None if is_auto else value)
        config = from_document(document)
        existing = dict(_options(to_document(config)))
        for name, value in map(args.key_value, values):
            if value is not None and not any(f"{each}.".startswith(f"{name}.") for each in existing):
                raise click.UsageError(f"no option `{name}`. docs/configuration.md lists the options")
        config.validate()
        saved = document_to_save(config, False, partial(_saved_config, repo))
        context_of(repo).catalog.update_repo_info(repo_changes.save_config(saved))
    if read_only is not None:
        availability = frazil.RepoAvailability.read_only
        repo.set_status(frazil.RepoStatus(availability, limited_availability_reason=read_only))
    options = dict(_options(to_document(_saved_config(repo))))
    status = repo.status.availability.name if repo.spec_version > 1 else "online"
    lines = [f"{name}={value}" for name, value in options.items()]
    output.emit({"status": status, "config": options, "dry_run": dry_run}, [f"status: {status}", *lines])


def _saved_config(repo: Repository) -> frazil.RepositoryConfig:
    """Return only the saved configuration: not the defaults of the storage, as a handle has them."""
    return frazil.Repository.fetch_config(repo.storage) or frazil.RepositoryConfig()


def _set(document: dict[str, Any], name: str, value: Any) -> None:
    *groups, last = name.split(".")
    for group in groups:
        if document.get(group) is None:
            document[group] = {}
        document = document[group]
    document[last] = value


def _options(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the options that are set, by dotted names."""
    for name, value in document.items():
        if name == "virtual_chunk_containers" and value is not None:
            yield name, list(value)  # only the prefixes: options of stores may hold secrets
        elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            yield from _options(value, f"{prefix}{name}.")
        elif value is not None:
            shown = f"{prefix}{name}"
            yield (_SPLITTING if shown == "frazil.splitting" else shown), value


#: What the deletion of a ref loses.
_LOSSES = {
    "branch": "Its last versions are in no other branch or tag, and can expire.",
    "tag": "Its name cannot be used again.",
}


def _change_ref(
    output: Output,
    target: args.AnyTarget,
    name: args.Version,
    delete: Annotated[bool, option("-d", "--delete")],
    dry_run: args.DryRun,
    yes: args.Yes,
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
    opened = OpenTarget(target, dry_run=dry_run)
    repo = opened.repo
    lookup = getattr(repo, f"lookup_{kind}")
    if delete:
        id_ = lookup(name)
        info = opened.context.catalog.repo_info()
        tip = resolve_id(id_, lambda: info)
        others = {*info.tags.values(), *(each for other, each in info.branches.items() if other != name)}
        # A branch is lost if no other branch or tag leads to its tip.
        if kind == "tag" or not any(is_in_history(info, tip, of=each) for each in others):
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


@verb("reset")
def reset(
    output: Output, target: args.BranchTarget, version: args.Version, dry_run: args.DryRun, yes: args.Yes
) -> None:
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
        question = f"Move {change.branch} from {before[:SHORT]} to {version}? It loses all later commits."
        confirm(output, question, yes=yes or dry_run)
    change.repo.reset_branch(change.branch, source, from_snapshot_id=before)
    change.emit()


@verb("protect")
def protect(
    output: Output,
    target: args.Location,
    name: Annotated[str | None, argument(type=args.VersionType(), required=False)],
    by: Annotated[tuple[str, ...], option(metavar="USER")],
    allow_reset: bool,
    rules: args.Rules,
    dry_run: args.DryRun,
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
    repo = OpenTarget(target, dry_run=dry_run).repo
    if name is None:
        protections = list(map(_protection_document, repo.branch_protections()))
        output.emit(protections, map(_protection_line, protections))
        return
    parsed = () if rules is None else rules_of(rules)
    protection = repo.protect_branch(name, principals=by, fast_forward_only=not allow_reset, rules=parsed)
    document = {**_protection_document(protection), "dry_run": dry_run}
    output.emit(document, [f"{'would protect' if dry_run else 'protected'} {_protection_line(document)}"])


@verb("unprotect")
def unprotect(output: Output, target: args.Location, name: args.Version, dry_run: args.DryRun) -> None:
    """Remove the protection of a branch or a pattern. `frazil protect LOCATION` lists them.

    Examples:
        frazil unprotect ice main            remove the protection of `main`
        frazil unprotect ice main --dry-run  only check whether it is possible
    """
    OpenTarget(target, dry_run=dry_run).repo.unprotect_branch(name)
    action = "would remove" if dry_run else "removed"
    output.emit({"pattern": name, "dry_run": dry_run}, [f"{action} the protection of {name}"])


def _protection_document(protection: Any) -> dict[str, Any]:
    return {"pattern": protection.pattern, **protection.document()}


def _protection_line(document: dict[str, Any]) -> str:
    parts = ["no reset"] if document["fast_forward_only"] else []
    parts += [f"only {', '.join(document['principals'])}"] if document["principals"] else []
    parts += [f"{len(document['rules'])} rules"] if document["rules"] else []
    return f"{document['pattern']}: {'; '.join(['no deletion', *parts])}"

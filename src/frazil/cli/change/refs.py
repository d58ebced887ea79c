"""``frazil branch`` and ``frazil tag``: create and delete names of versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from frazil.cli.changes import confirm, dry_run_option, options, source_text, writable_repository, yes_option
from frazil.cli.command import VERSION, target_argument, verb
from frazil.cli.output import Output
from frazil.cli.target import Target
from frazil.cli.version_text import MAIN
from frazil.cli.versions import SHORT
from frazil.repository.catalog.history import is_in_history
from frazil.repository.catalog.version_names import snapshot_id
from frazil.repository.handle.interior import context_of

if TYPE_CHECKING:
    from frazil.repository.handle.repository import Repository


@dataclass(frozen=True, slots=True)
class RefKind:
    """The two kinds of refs, and what the deletion of one loses."""

    name: str
    loss: str


BRANCH: Final = RefKind("branch", "Its last versions are in no other branch or tag, and can expire.")
TAG: Final = RefKind("tag", "Its name cannot be used again.")

_ref_arguments: Final = options(
    target_argument(),
    click.argument("name", type=VERSION),
    click.option("-d", "--delete", is_flag=True, help="Delete NAME."),
    dry_run_option,
    yes_option,
)


@verb(
    "branch",
    description="Create a branch NAME on a version, or delete it. `frazil refs` lists the branches.",
    examples="""\
frazil branch ice new              on the tip of `main`
frazil branch ice@v1 fix           on a tag
frazil branch ice --delete dev -y  delete a branch, without a question""",
)
@_ref_arguments
def branch(output: Output, target: Target, name: str, **settings: bool) -> None:
    """Create or delete the branch."""
    _change(output, BRANCH, target, name, **settings)


@verb(
    "tag",
    description="Create a tag NAME on a version, or delete it. A tag never moves. `frazil refs` lists tags.",
    examples="""\
frazil tag ice v3                 on the tip of `main`
frazil tag ice@main~1 checked     on an ancestor
frazil tag ice --delete v2 -y     delete a tag, without a question""",
)
@_ref_arguments
def tag(output: Output, target: Target, name: str, **settings: bool) -> None:
    """Create or delete the tag."""
    _change(output, TAG, target, name, **settings)


def _change(
    output: Output, kind: RefKind, target: Target, name: str, *, delete: bool, dry_run: bool, yes: bool
) -> None:
    if target.path is not None:
        raise click.UsageError("a branch or tag names a whole version. Leave out :PATH")
    if delete and target.version is not None:
        raise click.UsageError(f"--delete deletes the {kind.name} NAME. Leave out @VERSION")
    repo = writable_repository(target, dry_run)
    if delete:
        id_ = repo.lookup_branch(name) if kind is BRANCH else repo.lookup_tag(name)
        if kind is TAG or _is_last_ref(repo, name, id_):
            confirm(output, f"Delete the {kind.name} {name}? {kind.loss}", yes=yes or dry_run)
        (repo.delete_branch if kind is BRANCH else repo.delete_tag)(name)
    else:
        version = source_text(repo, target.version or MAIN)
        (repo.create_branch if kind is BRANCH else repo.create_tag)(name, version)
        id_ = repo.lookup_branch(name) if kind is BRANCH else repo.lookup_tag(name)
    document: dict[str, Any] = {kind.name: name, "id": id_, "deleted": delete, "dry_run": dry_run}
    action = ("would delete" if delete else "would create") if dry_run else "deleted" if delete else "created"
    output.emit(document, [f"{action} the {kind.name} {name} on {output.paint(id_[:SHORT], 'id')}"])


def _is_last_ref(repo: Repository, branch: str, id_: str) -> bool:
    """Return whether no other branch or tag leads to the tip of a branch."""
    info = context_of(repo).catalog.repo_info()
    tip = snapshot_id(id_, lambda: info)
    others = {*info.tags.values(), *(each for name, each in info.branches.items() if name != branch)}
    return not any(is_in_history(info, tip, of=each) for each in others)

"""Operations of a worker on versions: integration of changes, squash, compaction, expiration, collection."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from typing import Any, Final, Literal

from tests.history.client import OURS, Client, if_new, time_before, without_values

import frazil

#: Seconds after which a version may expire, and after which a file may be collected.
EXPIRY: Final = 20
GARBAGE: Final = 6
#: How many of the last versions a cherry-pick, a revert or a squash looks at.
_BACK: Final = 5
#: The kind of the operation, and the argument for it.
_METHODS: Final[tuple[tuple[str, Literal["new_commit", "amend"]], ...]] = (
    ("commit", "new_commit"),
    ("amend", "amend"),
)


def merge(client: Client) -> None:
    """Merge the tip of another branch."""
    source, into = client.side_branch(), client.branch()
    if source is None or source == into:
        return
    target = client.repo.lookup_branch(source)

    def call(mark: str) -> dict[str, Any] | None:
        snapshot = client.repo.merge(target, into, solver=OURS, message=mark, fast_forward=False)
        return if_new(client, mark, snapshot)

    client.run("merge", call, ref=into, target=target)


def cherry_pick(client: Client) -> None:
    """Repeat on a branch what one of the last commits of another branch did."""
    source, onto = client.side_branch(), client.branch()
    version = None if source in (None, onto) else _recent(client, str(source))
    if version is not None:
        _carry(client, "cherry-pick", client.repo.cherry_pick, version.id, onto)


def revert(client: Client) -> None:
    """Undo one of the last commits of a branch."""
    branch = client.branch()
    version = _recent(client, branch)
    if version is not None:
        _carry(client, "revert", client.repo.revert, version.id, branch)


def _carry(client: Client, kind: str, change: Callable[..., str], target: str, branch: str) -> None:
    def call(mark: str) -> dict[str, Any]:
        return {"snapshot": change(target, branch, solver=OURS, message=mark)}

    client.run(kind, call, ref=branch, target=target)


def squash(client: Client) -> None:
    """Remove the versions between two of the last versions of a branch."""
    branch = client.branch()
    version = _recent(client, branch)
    if version is None or version.parent_id is None:
        return
    since = version.parent_id
    if client.random.random() < 0.5:
        client.run("squash", without_values(lambda: client.repo.upkeep.squash(branch, since)), ref=branch)
        return

    def call(mark: str) -> dict[str, Any]:
        return {"snapshot": client.repo.upkeep.squash(branch, since, message=mark)}

    client.run("squash-commit", call, ref=branch, target=since)


def _recent(client: Client, branch: str) -> frazil.SnapshotInfo | None:
    """Return one of the last versions of a branch, or None if its parent is the first of the repository."""
    count = client.random.randint(2, _BACK)
    line = list(islice(client.repo.ancestry(branch=branch), count))
    return line[-2] if len(line) == count and line[-1].parent_id is not None else None


def rewrite(client: Client) -> None:
    """Write the manifests of a branch again."""
    branch, (kind, method) = client.branch(), client.random.choice(_METHODS)

    def call(mark: str) -> dict[str, Any] | None:
        return if_new(client, mark, client.repo.rewrite_manifests(mark, branch=branch, commit_method=method))

    client.run(kind, call, ref=branch)


def compact(client: Client) -> None:
    """Merge small chunk files into packs."""
    branch, (kind, method) = client.branch(), client.random.choice(_METHODS)
    limits = frazil.CompactionLimits(live_fraction=0.9)

    def call(mark: str) -> dict[str, Any] | None:
        report = client.repo.upkeep.compact(mark, branch=branch, limits=limits, commit_method=method)
        return {"snapshot": report.snapshots[branch]} if report.snapshots else None

    client.run(kind, call, ref=branch)


def expire(client: Client) -> None:
    client.run("expire", without_values(lambda: client.repo.expire_snapshots(time_before(EXPIRY))))


def retain(client: Client) -> None:
    """Remove old versions from the middle of histories."""
    policy = frazil.Retention(last=5, newer_than=timedelta(seconds=EXPIRY), tags="*")
    client.run("retain", lambda _: {"count": len(client.repo.upkeep.retain(policy).removed)})


def collect(client: Client) -> None:
    def call(_mark: str) -> dict[str, Any]:
        summary = client.repo.garbage_collect(time_before(GARBAGE))
        return {"count": summary.chunks_deleted + summary.manifests_deleted + summary.snapshots_deleted}

    client.run("collect", call)

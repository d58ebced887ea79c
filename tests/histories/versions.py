"""Operations of a worker on versions: rewritten manifests, compaction, expiration, collection."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal

from tests.histories.client import Client, if_new, time_before, without_values

import frazil

#: Seconds after which a version may expire, and after which a file may be collected.
EXPIRY: Final = 20
GARBAGE: Final = 6
#: The kind of the operation, and the argument for it.
_METHODS: Final[tuple[tuple[str, Literal["new_commit", "amend"]], ...]] = (
    ("commit", "new_commit"),
    ("amend", "amend"),
)


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
        report = client.repo.upkeep.compact(mark, branch=branch, limits=limits, commit_method=method).apply()
        return {"snapshot": report.snapshots[branch]} if report.snapshots else None

    client.run(kind, call, ref=branch)


def expire(client: Client) -> None:
    client.run("expire", without_values(lambda: client.repo.expire_snapshots(time_before(EXPIRY))))


def retain(client: Client) -> None:
    """Remove old versions from the middle of histories."""
    policy = frazil.Retention(last=5, newer_than=timedelta(seconds=EXPIRY), tags="*")
    client.run("retain", lambda _: {"count": len(client.repo.upkeep.retain(policy).apply().removed)})


def collect(client: Client) -> None:
    def call(_mark: str) -> dict[str, Any]:
        summary = client.repo.garbage_collect(time_before(GARBAGE))
        return {"count": summary.chunks_deleted + summary.manifests_deleted + summary.snapshots_deleted}

    client.run("collect", call)

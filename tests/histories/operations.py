"""What a worker does: `OPERATIONS` has each operation, a function of a `Client`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.histories import commits, layout, refs, versions
from tests.histories.client import Client

import frazil


def read(client: Client) -> None:
    """Read all numbers of the tip of a branch."""
    branch = client.branch()
    client.run("read-branch", lambda _: _row(client.repo.readonly_session(branch)), ref=branch)


def read_tag(client: Client) -> None:
    """Read all numbers of a tag."""
    names = sorted(client.repo.list_tags())
    if names:
        name = client.random.choice(names)
        client.run("read-tag", lambda _: _row(client.repo.readonly_session(tag=name)), ref=name)


def _row(session: frazil.Session) -> dict[str, Any]:
    return {"snapshot": session.snapshot_id, "row": layout.read(session.store).tolist()}


#: Each operation, and how often a worker does it.
OPERATIONS: Final[dict[Callable[[Client], None], float]] = {
    commits.overwrite: 24,
    commits.rebase: 14,
    commits.pair: 9,
    commits.append: 10,
    commits.amend: 4,
    commits.fork: 2,
    commits.flush: 1.5,
    commits.move: 2,
    versions.rewrite: 0.7,
    versions.compact: 0.7,
    versions.expire: 1,
    versions.retain: 0.5,
    versions.collect: 2,
    refs.create_branch: 2,
    refs.delete_branch: 0.5,
    refs.reset_branch: 1.5,
    refs.create_tag: 2,
    refs.delete_tag: 2,
    refs.label: 1,
    refs.configure: 0.3,
    read: 11,
    read_tag: 2,
}

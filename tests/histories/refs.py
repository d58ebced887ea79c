"""Operations of a worker on branches, tags and the metadata of the repository."""

from __future__ import annotations

from typing import Final

from tests.histories.client import Client, without_values
from tests.histories.layout import LABEL

#: The largest number of branches and tags.
_REFS: Final = 5


def create_branch(client: Client) -> None:
    target = client.repo.lookup_branch(client.branch())
    if len(client.repo.list_branches()) >= _REFS:
        return delete_branch(client)
    name = f"b{client.name}-{client.calls + 1}"
    return client.run(
        "create-branch",
        without_values(lambda: client.repo.create_branch(name, target)),
        ref=name,
        target=target,
    )


def delete_branch(client: Client) -> None:
    name = client.side_branch()
    if name is not None:
        client.run("delete-branch", without_values(lambda: client.repo.delete_branch(name)), ref=name)


def reset_branch(client: Client) -> None:
    """Set a branch back by one version, or to the tip of `main`, if it has not moved."""
    name = client.side_branch()
    if name is None:
        return
    tip = client.repo.lookup_branch(name)
    parent = client.repo.lookup_snapshot(tip).parent_id
    target = parent if client.random.random() < 0.5 else client.repo.lookup_branch("main")
    if target is None or client.repo.lookup_snapshot(target).parent_id is None:
        return  # the first version has no arrays
    client.run(
        "reset-branch",
        without_values(lambda: client.repo.reset_branch(name, target, from_snapshot_id=tip)),
        ref=name,
        target=target,
        previous=tip,
    )


def create_tag(client: Client) -> None:
    client.create_tag(client.repo.lookup_branch(client.branch()))


def delete_tag(client: Client) -> None:
    names = sorted(client.repo.list_tags())
    if len(names) > _REFS:
        name = client.random.choice(names)
        client.run("delete-tag", without_values(lambda: client.repo.delete_tag(name)), ref=name)


def label(client: Client) -> None:
    """Set an item of the metadata of the repository, which only this worker sets."""
    name, text = f"{LABEL}{client.name}", str(client.number() + 1)
    client.run(
        "label", without_values(lambda: client.repo.update_metadata({name: text})), ref=name, target=text
    )


def configure(client: Client) -> None:
    client.run("configure", without_values(client.repo.save_config))

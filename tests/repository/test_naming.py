"""Ids, their first characters, and names of refs, wherever a snapshot is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.repository.version_1 import GROUP
from tests.support.errors import of_kind

import frazil
from frazil.errors import ErrorKind, InvalidInputError, SnapshotNotFoundError
from frazil.format.ids import id_to_text, prefix_bounds
from frazil.repository.session import commit_files
from frazil.testing import FaultyStorage

#: Ids of snapshots: two begin alike, for 6 characters.
IDS = ["ABCD" * 5, "QRST2222222222222220", "QRST22333333333333330", "ZZZZ0000000000000000"]
ALIKE = "QRST22"


@pytest.fixture(params=[2, 1])
def repo(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> frazil.Repository:
    storage = FaultyStorage(frazil.in_memory_storage(), lambda key, condition: None)
    repo = frazil.Repository.create(storage, spec_version=request.param)
    for number, text in enumerate(IDS):
        id_ = prefix_bounds(text[:19])[0]  # type: ignore[index]  # these are ids
        monkeypatch.setattr(commit_files, "new_object_id", lambda id_=id_: id_)
        session = repo.writable_session("main")
        session.workspace.set_node("/g", GROUP % number)
        session.commit(str(number))
    monkeypatch.undo()
    repo.create_branch("dev", repo.lookup_branch("main"))
    return repo


def whole(repo: frazil.Repository, number: int) -> str:
    return [entry.id for entry in repo.ancestry(branch="main")][-2 - number]


Use = Callable[[frazil.Repository, str], Any]
#: Takes an id or its first characters; the result is what it gives for the whole id.
BY_ID: dict[str, Use] = {
    "lookup": lambda repo, text: repo.lookup_snapshot(text).id,
    "ancestry": lambda repo, text: next(iter(repo.ancestry(snapshot_id=text))).id,
    "graph": lambda repo, text: str(repo.ancestry_graph(snapshot_id=text, plain=True)),
    "session": lambda repo, text: repo.readonly_session(snapshot_id=text).snapshot_id,
    "diff from": lambda repo, text: repr(repo.diff(from_snapshot_id=text, to_branch="main")),
    "diff to": lambda repo, text: repr(repo.diff(from_branch="main", to_snapshot_id=text)),
    "manifests": lambda repo, text: repo.list_manifest_files(text),
    "inspect snapshot": lambda repo, text: repo.inspect_snapshot(text)["id"],
    "inspect log": lambda repo, text: repo.inspect_transaction_log(text)["header"],
}


#: Takes names of refs too.
def _named(
    create: Callable[[str, str], None], lookup: Callable[[str], str], text: str, ref: str = "new"
) -> str:
    create(ref, text)
    return lookup(ref)


BY_NAME: dict[str, Use] = {
    "branch": lambda repo, text: _named(repo.create_branch, repo.lookup_branch, text),
    "tag": lambda repo, text: _named(repo.create_tag, repo.lookup_tag, text),
    "reset": lambda repo, text: _named(repo.reset_branch, repo.lookup_branch, text, "dev"),
}
INTEGRATION: dict[str, Use] = {
    "merge": lambda repo, text: repo.merge(text),
    "cherry-pick": lambda repo, text: repo.cherry_pick(text, "dev"),
    "revert": lambda repo, text: repo.revert(text, "dev"),
}


@pytest.mark.sample(14)
@pytest.mark.parametrize("use", BY_ID)
def test_the_first_characters_of_an_id(repo: frazil.Repository, use: str) -> None:
    for number, short in ((0, "ABCD"), (1, ALIKE + "22"), (2, ALIKE + "33"), (3, "zzzz")):
        id_ = whole(repo, number)
        for text in (short, short.lower(), id_[:19], id_.lower()):
            assert BY_ID[use](repo, text) == BY_ID[use](repo, id_)


@pytest.mark.parametrize("use", [*BY_ID, *BY_NAME, *INTEGRATION])
def test_what_can_mean_several(repo: frazil.Repository, use: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        {**BY_ID, **BY_NAME, **INTEGRATION}[use](repo, ALIKE)
    assert error.value.kind == ErrorKind.INVALID_SNAPSHOT_ID
    assert whole(repo, 1) in str(error.value)
    assert whole(repo, 2) in str(error.value)


@pytest.mark.parametrize("use", [*BY_ID, *BY_NAME])
def test_names_of_no_snapshot(repo: frazil.Repository, use: str) -> None:
    act = {**BY_ID, **BY_NAME}[use]
    for text in ("4444", "4" * 19, "4" * 19 + "0"):
        with pytest.raises(SnapshotNotFoundError):
            act(repo, text)
    for text in ("", "ABC", "UUUU", "ABCD" * 6, "main main", "é" * 5):
        with pytest.raises(InvalidInputError, check=of_kind(ErrorKind.INVALID_SNAPSHOT_ID)):
            act(repo, text)


@pytest.mark.parametrize("use", BY_NAME)
def test_a_name_that_begins_an_id(repo: frazil.Repository, use: str) -> None:
    repo.create_branch("ABCD", whole(repo, 0))
    assert BY_NAME[use](repo, "ABCD") == whole(repo, 0)  # both are the same
    repo.create_tag("ZZZZ", whole(repo, 1))
    with pytest.raises(InvalidInputError, match="the tag `ZZZZ`"):
        BY_NAME["branch"](repo, "ZZZZ")
    repo.create_branch("twice", whole(repo, 0))
    repo.create_tag("twice", whole(repo, 1))
    with pytest.raises(InvalidInputError, match="the branch `twice`"):
        BY_NAME["branch"](repo, "twice")


def test_a_whole_id_costs_nothing_more(repo: frazil.Repository) -> None:
    storage = repo.storage
    assert isinstance(storage, FaultyStorage)
    id_ = whole(repo, 0)
    storage.gets.clear()
    repo.create_tag("v1", id_)
    assert storage.gets == ["repo" if repo.spec_version == 2 else "refs/tag.v1/ref.json"]


@given(st.binary(min_size=12, max_size=12), st.integers(1, 20))
def test_bounds(id_: bytes, length: int) -> None:
    bounds = prefix_bounds(id_to_text(id_)[:length])
    assert bounds is not None
    first, last = bounds
    assert first <= id_ <= last
    assert id_to_text(first)[:length] == id_to_text(last)[:length] == id_to_text(id_)[:length]

"""Upgrading: killed anywhere and done again it is the same, and no commit is lost on the way."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.repository.version_1 import Died, Mortal, commit, contents_of, copy_of, files_of, with_history
from tests.support.errors import of_kind

import frazil
from frazil.errors import ErrorKind
from frazil.format.ids import CONFIG, REPO
from frazil.storage.memory import MemoryStorage
from frazil.testing import Fault, FaultyStorage

upgrade = frazil.upgrade_icechunk_repository


@pytest.fixture(scope="module")
def template() -> MemoryStorage:
    storage = MemoryStorage()
    with_history(storage)
    return storage


@pytest.fixture(scope="module")
def wanted(template: MemoryStorage) -> Any:
    """What an upgrade makes when nothing goes wrong, and the files that it leaves."""
    storage = copy_of(template)
    upgraded = upgrade(frazil.Repository.open(storage), dry_run=False)
    assert not {key for key in files_of(storage) if key.startswith("refs/") or key == CONFIG}
    return contents_of(upgraded), files_of(storage)


def test_history_and_content_stay(template: MemoryStorage, wanted: Any) -> None:
    before = contents_of(frazil.Repository.open(template))
    assert wanted[0][:3] == before[:3]
    storage = copy_of(template)
    old = frazil.Repository.open(storage)
    session = old.writable_session("main")
    session.workspace.set_node("/x", b'{"zarr_format": 3, "node_type": "group"}')
    new = upgrade(old, dry_run=False)
    assert new.spec_version == frazil.SpecVersion.v2
    assert new.config.inline_chunk_threshold_bytes == 7
    assert new.readonly_session("main").workspace.node("/g") is not None
    newest = next(iter(new.ops_log()))
    assert newest.kind == frazil.UpdateType.RepoMigrated(1, 2)
    for stale in (
        lambda: old.list_branches(),
        lambda: old.writable_session("main"),
        lambda: old.create_tag("x", old.lookup_branch("main")),
        lambda: old.save_config(),
        lambda: session.commit("too late"),
        lambda: pickle.loads(pickle.dumps(old)).list_tags(),
    ):
        with pytest.raises(frazil.FormatError, match="upgraded") as error:
            stale()
        assert error.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION
    assert commit(new, 7) == new.lookup_branch("main")
    with pytest.raises(frazil.SessionStateError, check=of_kind(ErrorKind.INVALID_REPOSITORY_MIGRATION)):
        upgrade(new, dry_run=False)
    upgrade(old, dry_run=False)  # of which nothing is left to do
    assert new.list_branches() == {"main", "dev"}


def test_dry_run_writes_nothing(template: MemoryStorage) -> None:
    storage = copy_of(template)
    repo = upgrade(frazil.Repository.open(storage), dry_run=True, prefetch_concurrency=1)
    assert repo.spec_version == frazil.SpecVersion.v1
    assert files_of(storage) == files_of(template)
    assert commit(repo, 8) == repo.lookup_branch("main")
    with pytest.raises(frazil.InvalidInputError):
        upgrade(repo, dry_run=True, prefetch_concurrency=0)


@pytest.mark.sample(3, 3)
@pytest.mark.deep
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("takes_effect", [False, True])
def test_killed_at_any_call(takes_effect: bool, keeps: bool, template: MemoryStorage, wanted: Any) -> None:
    """After each death the repository can be read, and another call makes the same of it."""
    deaths, versions = 0, set()
    while True:
        storage = copy_of(template)
        mortal = Mortal(storage, 10_000, takes_effect)
        repo = frazil.Repository.open(mortal)
        mortal.left = deaths
        try:
            upgrade(repo, dry_run=False, delete_unused_v1_files=not keeps)
        except Died:
            pass
        else:
            break
        deaths += 1
        between = frazil.Repository.open(storage)
        assert contents_of(between)[:3] == wanted[0][:3]
        versions.add((between.spec_version, between.spec_version == 1 or between.status.availability))
        with suppress(frazil.SessionStateError):  # where nothing is left to do
            between = upgrade(between, dry_run=False)
        assert (contents_of(between), files_of(storage)) == wanted
        assert between.status.availability is frazil.RepoAvailability.online
    assert deaths > 20
    # Until the upgrade is complete, nobody can change the repository.
    v1, v2 = frazil.SpecVersion.v1, frazil.SpecVersion.v2
    states = frazil.RepoAvailability
    assert versions == {(v1, True), (v2, states.read_only), (v2, states.online)}


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("times", [1, 3])
def test_lost_answers(fault: Fault, times: int, template: MemoryStorage, wanted: Any) -> None:
    storage = copy_of(template)
    faults = iter([fault] * times)
    faulty = FaultyStorage(storage, lambda key, condition: next(faults, None) if key == REPO else None)
    upgraded = upgrade(frazil.Repository.open(faulty), dry_run=False)
    assert (contents_of(upgraded), files_of(storage)) == wanted


Meanwhile = Callable[[frazil.Repository], Any]


def between(template: MemoryStorage, after: bool, what: Meanwhile) -> tuple[MemoryStorage, Any]:
    """An upgrade in which a writer of version 1 comes before or after ``repo`` is written, who does not look
    for it.
    """
    storage = copy_of(template)
    writer = frazil.Repository.open(storage)
    catalog: Any = writer._context.catalog
    hidden = FaultyStorage(storage, lambda key, condition: None)
    hidden.head = lambda key: None if key == REPO else storage.head(key)  # type: ignore[method-assign]
    catalog.storage = hidden
    done: list[Any] = []

    class Watched(FaultyStorage):
        def put(self, key: str, *arguments: Any) -> Any:
            if key != REPO or done:
                return self.inner.put(key, *arguments)
            if not after:
                done.append(what(writer))
            answer = self.inner.put(key, *arguments)
            if after:
                done.append(what(writer))
            return answer

    watched = Watched(storage, lambda key, condition: None)
    upgraded = upgrade(frazil.Repository.open(watched), dry_run=False)
    assert contents_of(upgraded) == contents_of(frazil.Repository.open(storage))
    return storage, done[0]


@pytest.mark.parametrize("after", [False, True])
def test_what_comes_meanwhile_is_not_lost(after: bool, template: MemoryStorage) -> None:
    storage, id_ = between(template, after, lambda repo: commit(repo, 9))
    repo = frazil.Repository.open(storage)
    assert repo.lookup_branch("main") == id_
    assert [type(update.kind).__name__ for update in repo.ops_log()].count("RepoMigrated") == 1
    storage, _ = between(template, after, lambda repo: repo.create_tag("new", repo.lookup_branch("dev")))
    repo = frazil.Repository.open(storage)
    assert repo.lookup_tag("new") == repo.lookup_branch("dev")
    storage, _ = between(template, after, lambda repo: repo.delete_branch("dev"))
    assert frazil.Repository.open(storage).list_branches() == {"main"}


def test_a_writer_of_ours_learns_of_the_upgrade(template: MemoryStorage) -> None:
    """The upgrade is done while a commit is on its way: between its look for ``repo`` and its last write.

    The upgrade may read the refs again later, so the commit may or may not take effect.
    """
    storage = copy_of(template)
    done: list[frazil.Repository] = []

    def choose(key: str, condition: Any) -> None:
        if key.startswith("refs/") and not done:
            upgraded = upgrade(frazil.Repository.open(storage), dry_run=False, delete_unused_v1_files=False)
            done.append(upgraded)

    writer = frazil.Repository.open(FaultyStorage(storage, choose))
    with pytest.raises(frazil.OutcomeUnknownError, match="upgraded") as error:
        commit(writer, 9)
    assert error.value.kind == ErrorKind.OUTCOME_UNKNOWN
    assert error.value.snapshot is not None
    # Its files are there: as long as nobody has written since, another call takes them over.
    upgraded = upgrade(frazil.Repository.open(storage), dry_run=False)
    assert next(entry.message for entry in upgraded.ancestry(branch="main")) == "commit 9"


def test_too_late_for_both(template: MemoryStorage) -> None:
    """Version 1 and the upgraded repository have both gone on: nothing is deleted, somebody has to look."""
    storage = copy_of(template)
    old = frazil.Repository.open(storage)
    before = files_of(storage)
    new = upgrade(frazil.Repository.open(storage), dry_run=False, delete_unused_v1_files=False)
    commit(new, 7)
    hidden = FaultyStorage(storage, lambda key, condition: None)
    hidden.head = lambda key: None if key == REPO else storage.head(key)  # type: ignore[method-assign]
    catalog: Any = old._context.catalog
    catalog.storage = hidden
    commit(old, 8)
    with pytest.raises(frazil.ConflictError, match="main"):
        upgrade(new, dry_run=False)
    assert before <= files_of(storage)
    # Old refs that say nothing new are just left over.
    storage = copy_of(template)
    new = upgrade(frazil.Repository.open(storage), dry_run=False, delete_unused_v1_files=False)
    tip = commit(new, 7)
    assert upgrade(new, dry_run=False).lookup_branch("main") == tip
    assert not {key for key in files_of(storage) if key.startswith("refs/") or key == CONFIG}
    assert {key for key in files_of(storage) if key.startswith("snapshots/")} > {
        key for key in before if key.startswith("snapshots/")
    }

"""Where the creation of repositories is refused, when a session warns about lost changes, and upgrades.

An upgrade that is killed anywhere and done again is the same, and no commit is lost on the way.
"""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zarr
from tests.repository.version_1 import Died, Mortal, commit, contents_of, copy_of, files_of, with_history
from tests.support.errors import of_kind
from tests.support.faulty_storage import Fault, FaultyStorage
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ErrorKind, FormatError, InvalidInputError, UncommittedChangesWarning
from frazil.format.ids import CONFIG, REPO
from frazil.storage import Storage
from frazil.storage.memory import MemoryStorage
from frazil.storage.object_store import ObjectStorage

#: Storages without a prefix. Nothing answers at the endpoints: the creation must not send a request.
BUCKETS: dict[str, Callable[[], Storage]] = {
    "s3": lambda: frazil.s3_storage(
        bucket="b", prefix=None, endpoint_url="http://127.0.0.1:9", allow_http=True, anonymous=True
    ),
    "s3 with a slash": lambda: frazil.s3_storage(bucket="b", prefix="/", region="eu-west-1", anonymous=True),
    "r2": lambda: frazil.r2_storage(prefix="b", account_id="a", anonymous=True),
    "gcs": lambda: frazil.gcs_storage(bucket="b", prefix="", anonymous=True),
    "azure": lambda: frazil.azure_storage(account="a", container="c", prefix="", anonymous=True),
    "url": lambda: frazil.storage_from_url("s3://b", region="eu-west-1", anonymous=True),
}


@pytest.mark.parametrize("name", BUCKETS)
@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_repository_needs_a_prefix_in_a_bucket(name: str, spec_version: int) -> None:
    with pytest.raises(InvalidInputError, match="must have a prefix in the bucket") as caught:
        frazil.Repository.create(BUCKETS[name](), spec_version=spec_version)
    assert caught.value.kind == ErrorKind.EMPTY_PREFIX_CREATION


def test_a_repository_of_a_newer_format_is_refused_before_its_chunks() -> None:
    """A later spec version may lay out chunk files in another way."""
    storage = frazil.in_memory_storage()
    frazil.Repository.create(storage)
    data = bytearray(storage.get(REPO))
    data[36] = 3  # the spec version of the file
    storage.put(REPO, bytes(data))
    for call in (frazil.Repository.open, frazil.Repository.open_or_create):
        with pytest.raises(FormatError, match="spec version 3") as error:
            call(storage)
        assert error.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION
        assert "update Frazil" in str(error.value)


@pytest.mark.parametrize(
    ("folder", "writers"),
    [
        ("refs/branch.main", "icechunk 0.1.0a2 to 0.1.3"),
        ("refs/branch:main", "icechunk 0.1.0a1"),
        ("r/main", "the draft of 2024"),
    ],
)
def test_a_repository_of_an_older_format_is_refused(folder: str, writers: str) -> None:
    storage = frazil.in_memory_storage()
    for other in ("ZZZZZZZU.json", "ZZZZZZZZZZZZZ.json", "ZZZZZZZ.json", "ZZZZZZZZ.txt", "x.json"):
        storage.put(f"{folder}/{other}", b"{}")
    assert not frazil.Repository.exists(storage)
    storage.put(f"{folder}/{'ZZZZZZZZZZZZY' if 'a1' in writers else 'ZZZZZZWV'}.json", b"{}")
    assert frazil.Repository.exists(storage)
    repository = frazil.Repository
    for call in (repository.open, repository.open_or_create, repository.fetch_spec_version):
        with pytest.raises(FormatError, match=f"older format, as written by {writers}, which") as error:
            call(storage)
        assert error.value.kind == ErrorKind.UNSUPPORTED_SPEC_VERSION
        assert "frazil.upgrade" in str(error.value)
        assert "frazil import" in error.value.for_shell()


def test_a_repository_at_the_root_of_a_bucket_can_be_opened() -> None:
    memory = frazil.in_memory_storage()
    snapshot_id = frazil.Repository.create(memory).lookup_branch("main")
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("bucket")
        storage = ObjectStorage(s3_bucket("bucket", server.port))
        for info in memory.list(""):
            storage.put(info.key, memory.get(info.key))
        repo = frazil.Repository.open_or_create(storage)
        assert repo.lookup_branch("main") == snapshot_id
        repo.create_tag("v1", snapshot_id)
        assert frazil.Repository.open(storage).list_tags() == {"v1"}


@pytest.mark.parametrize("form", [str, Path, Path.as_uri])
async def test_a_repository_has_a_folder_or_a_url(tmp_path: Path, form: Callable[[Path], Any]) -> None:
    place = form(tmp_path / "weather")
    assert not frazil.Repository.exists(place)
    assert frazil.Repository.fetch_spec_version(place) is None
    tip = frazil.Repository.create(place).lookup_branch("main")
    assert await frazil.Repository.exists_async(place)
    assert frazil.Repository.open_session(place).snapshot_id == tip
    assert frazil.Repository.open_or_create(place).lookup_branch("main") == tip
    assert (await frazil.Repository.open_async(place)).list_branches() == {"main"}
    assert frazil.Repository.fetch_config(place) is not None  # how manifests are split
    with pytest.raises(InvalidInputError, match="must be a folder, or"):
        frazil.Repository.open("x3://bucket/weather")


def test_history_and_upkeep_are_objects_of_the_handle() -> None:
    """They follow changes of the handle, also in a copy, and have no methods of sessions."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    for handle in (repo, pickle.loads(pickle.dumps(repo))):
        assert handle.history is handle.history
        assert handle.upkeep is handle.upkeep
        handle.reconfigure(frazil.RepositoryConfig(inline_chunk_threshold_bytes=8))
        handle.set_default_commit_metadata({"by": "me"})
        assert handle.history.log(branch="main")["message"].tolist() == ["Repository initialized"]
        id_ = handle.upkeep.rewrite_manifests("split", branch="main")
        assert handle.lookup_snapshot(id_).metadata["by"] == "me"
        handle.reset_branch("main", "1CECHNKREP0F1RSTCMT0")
    assert len(pickle.loads(pickle.dumps(repo.history)).log(branch="main")["id"]) == 1
    shared = {name for name in dir(repo.history) if hasattr(frazil.Repository, name) and name[0] != "_"}
    assert shared == set()


def made(repo: frazil.Repository, path: str = "new") -> frazil.Session:
    session = repo.writable_session("main")
    zarr.create_group(session.store, path=path)
    return session


def _rebased(repo: frazil.Repository) -> None:
    session = made(repo, "first")
    made(repo).commit("new")
    session.rebase(frazil.ConflictDetector())
    session.commit("first")


def _failed_block(repo: frazil.Repository) -> None:
    with suppress(RuntimeError), repo.transaction("main", message="new") as store:
        zarr.create_group(store, path="new")
        raise RuntimeError


def _failed_commit(repo: frazil.Repository) -> None:
    session = made(repo, "first")
    made(repo).commit("new")
    with pytest.raises(frazil.ConflictError):
        session.commit("first")


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (made, 1),
        (lambda repo: repo.rearrange_session("main").move("/old", "/new"), 1),
        (lambda repo: made(repo).commit("new"), 0),
        (_rebased, 0),
        (lambda repo: made(repo).discard_changes(), 0),
        (lambda repo: zarr.create_group(repo.writable_session("main").fork().store, path="new"), 0),
        (_failed_block, 0),
        (_failed_commit, 0),
    ],
)
def test_lost_changes(work: Callable[[frazil.Repository], object], expected: int) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="old") as store:
        zarr.create_group(store, path="old")
    gc.collect()  # the sessions of other tests
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work(repo)
        gc.collect()
    assert [each.category for each in caught] == [UncommittedChangesWarning] * expected


@pytest.mark.parametrize(("end", "expected"), [("", True), ("session.commit('new')", False)])
def test_the_end_of_a_program(end: str, expected: bool) -> None:
    program = (
        "import frazil, zarr; repo = frazil.Repository.create(frazil.in_memory_storage());"
        f"session = repo.writable_session('main'); zarr.create_group(session.store, path='new'); {end}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ("UncommittedChangesWarning" in done.stderr) == expected


def test_a_write_after_the_commit_says_so() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = made(repo)
    session.commit("new")
    group = zarr.open_group(session.store, mode="a")
    for write in (
        lambda: group.create_group("more"),
        lambda: zarr.open_group(session.store, mode="w"),
        lambda: session.move("/new", "/moved"),
    ):
        with pytest.raises(frazil.ReadOnlyError, match=r"has committed.*writable_session"):
            write()


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
    assert {version for version, _ in versions} == {frazil.SpecVersion.v1, frazil.SpecVersion.v2}
    # Until the upgrade is complete, nobody can change the repository.
    assert (frazil.SpecVersion.v2, frazil.RepoAvailability.read_only) in versions


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
    hidden.head = lambda key: None if key == REPO else storage.head(key)
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
    hidden.head = lambda key: None if key == REPO else storage.head(key)
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

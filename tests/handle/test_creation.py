"""Where the creation of repositories is refused, and when a session warns about lost changes."""

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
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ErrorKind, InvalidInputError, UncommittedChangesWarning
from frazil.importing.importer import require_writable
from frazil.storage import Storage
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


def test_an_import_needs_a_prefix_in_a_bucket() -> None:
    with pytest.raises(InvalidInputError, match="must have a prefix in the bucket") as caught:
        require_writable(BUCKETS["s3"]())
    assert caught.value.kind == ErrorKind.EMPTY_PREFIX_CREATION


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

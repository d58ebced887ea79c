"""The creation of repositories: where it is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.object_server import Conditions, ObjectServer
from tests.support.servers import s3_bucket

import frazil
from frazil.errors import ErrorKind, FormatError, InvalidInputError
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

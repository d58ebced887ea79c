"""Storages beside the published icechunk: the same constructors, and objects on disk that both see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
import zarr

import frazil
from frazil.storage.base import IfVersion, Stored
from frazil.storage.local import LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

icechunk = pytest.importorskip("icechunk", reason="the published icechunk is not installed")

pytestmark = pytest.mark.interop

CONSTRUCTORS = {
    name: getattr(frazil.storage, name) for name in frazil.storage.__all__ if name.endswith("_storage")
}


def test_the_reference_does_not_see_our_hidden_files(tmp_path: Path) -> None:
    config = icechunk.RepositoryConfig(inline_chunk_threshold_bytes=0)
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path)), config)
    session = repo.writable_session("main")
    zarr.create_array(session.store, shape=(4,), chunks=(1,), dtype="i4", fill_value=-1)[:] = [1, 2, 3, 4]
    session.commit("one")

    ours = LocalStorage(tmp_path)
    theirs = icechunk.local_filesystem_storage(str(tmp_path))
    objects = {info.key: info.size for info in ours.list("")}
    assert sum(key.startswith("chunks/") for key in objects) == 4
    assert {info.key: info.size_bytes for info in theirs.list_objects_metadata()} == objects

    # An update of the repo object by us leaves a lock file; a killed writer leaves a temporary one.
    data, version = ours.get_versioned("repo")
    ours.backup("repo", version, data, "overwritten/repo.1")
    assert isinstance(ours.put("repo", data, IfVersion(version)), Stored)
    (tmp_path / "chunks" / "1CECHNKREP0F1RSTCMT0#12345678901234567890").touch()
    (tmp_path / "snapshots" / "1CECHNKREP0F1RSTCMT0#12345678901234567890").touch()
    assert (tmp_path / "repo#0").exists()
    assert {info.key for info in ours.list("")} == {*objects, "overwritten/repo.1"}
    assert {info.key for info in theirs.list_objects_metadata()} == {*objects, "overwritten/repo.1"}

    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    repo.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    array = zarr.open_array(repo.readonly_session("main").store, mode="r")
    assert np.asarray(array[:]).tolist() == [1, 2, 3, 4]
    session = repo.writable_session("main")
    zarr.open_array(session.store, mode="r+")[0] = 7
    session.commit("two")
    assert bytes(ours.get("overwritten/repo.1")) == bytes(data)


_SECRET = {"access_key_id": "AKIAX", "secret_access_key": "SECRET"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("in_memory_storage", {}),
        ("local_filesystem_storage", {"path": "/tmp/x"}),
        ("s3_storage", {"bucket": "b", "prefix": "p", **_SECRET}),
        (
            "s3_storage",
            {
                "bucket": "b",
                "prefix": None,
                "region": "x",
                "endpoint_url": "http://127.0.0.1:9",
                "allow_http": True,
                "force_path_style": True,
                "requester_pays": True,
                "anonymous": True,
            },
        ),
        ("r2_storage", {"prefix": "b/p", "account_id": "7", **_SECRET}),
        ("tigris_storage", {"bucket": "b", "prefix": "p", "region": "iad", **_SECRET}),
        ("hf_storage", {"bucket": "b", "prefix": "p", "namespace": "n", **_SECRET}),
        ("gcs_storage", {"bucket": "b", "prefix": "p", "bearer_token": "SECRET"}),
        ("azure_storage", {"account": "a", "container": "c", "prefix": "p", "access_key": "U0VDUkVU"}),
        ("http_storage", {"base_url": "http://127.0.0.1:9/x"}),
    ],
)
def test_printed_as_the_reference_does(name: str, arguments: dict[str, object]) -> None:
    ours, theirs = CONSTRUCTORS[name](**arguments), getattr(icechunk, name)(**arguments)
    assert repr(ours) == repr(theirs).replace("icechunk", "frazil", 1)
    assert _numbers(ours.default_settings()) == _numbers(theirs.default_settings())


def _numbers(settings: object) -> list[object]:
    """All fields, in depth."""
    names = (
        "unsafe_use_conditional_create",
        "unsafe_use_conditional_update",
        "unsafe_use_metadata",
        "storage_class",
        "metadata_storage_class",
        "chunks_storage_class",
        "minimum_size_for_multipart_upload",
        "max_tries",
        "initial_backoff_ms",
        "max_backoff_ms",
        "max_concurrent_requests_for_object",
        "ideal_concurrent_request_size",
    )
    parts = [settings, getattr(settings, "retries", None), getattr(settings, "concurrency", None)]
    return [getattr(part, name, None) for part in parts for name in names]

"""What programs give to the one implementation the other accepts too, and answers in the same way.

Each case is a small program; both run it, and what it returns has to be the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr

import frazil

pytestmark = [pytest.mark.deep, pytest.mark.interop]

Program = Callable[[Any, Path], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def repository(package: Any) -> Any:
    repo = package.Repository.create(package.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="i4")[:] = range(4)
    return repo


@program
def a_path_object(package: Any, folder: Path) -> Any:
    package.Repository.create(package.local_filesystem_storage(folder / "repo"))
    return package.Repository.exists(package.local_filesystem_storage(str(folder / "repo")))


@program
def numbers_of_numpy(package: Any, folder: Path) -> Any:
    config = package.RepositoryConfig(
        inline_chunk_threshold_bytes=np.int32(7), caching=package.CachingConfig(num_chunk_refs=np.uint64(9))
    )
    config.get_partial_values_concurrency = np.int64(3)
    storage = package.in_memory_storage()
    repo = package.Repository.create(storage, config)
    read = package.Repository.fetch_config(storage)
    spec = package.VirtualChunkSpec([np.int64(1)], "s3://a/b", np.int64(3), np.uint8(4))
    settings = package.StorageRetriesSettings(max_tries=np.int16(2))
    return (
        type(config.get_partial_values_concurrency),
        repo.config.inline_chunk_threshold_bytes,
        read.caching.num_chunk_refs,
        (list(spec.index), spec.offset, spec.length),
        repr(settings).partition(".")[2],
    )


@program
def truths_of_numpy(package: Any, folder: Path) -> Any:
    repo = repository(package)
    repo.set_feature_flag("create_tag", np.bool_(False))
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    expired = repo.expire_snapshots(long_ago, delete_expired_branches=np.bool_(True))
    return [flag.name for flag in repo.disabled_feature_flags()], expired


@program
def splitting_by_numbers_of_numpy(package: Any, folder: Path) -> Any:
    every, axis = package.ManifestSplitCondition.AnyArray(), package.ManifestSplitDimCondition.Axis
    splitting = package.ManifestSplittingConfig.from_dict({every: {axis(np.int64(0)): np.int64(1)}})
    config = package.RepositoryConfig(manifest=package.ManifestConfig(splitting=splitting))
    counts = []
    for version in (1, 2):
        repo = package.Repository.create(package.in_memory_storage(), config, spec_version=version)
        with repo.transaction("main", message="an array") as store:
            zarr.create_array(store, name="a", shape=(4,), chunks=(2,), dtype="i4")[:] = range(1, 5)
        counts.append(len(repo.list_manifest_files(repo.lookup_branch("main"))))
    return counts, type(package.local_filesystem_store(folder)).__name__


@program
def fields_of_records(package: Any, folder: Path) -> Any:
    repo = repository(package)
    records = [repo.garbage_collect(datetime.now(UTC), dry_run=True), repo.chunk_storage_stats()]
    return [[line.partition(":")[0] for line in str(record).splitlines()[1:]] for record in records]


@program
def a_configuration_is_a_copy(package: Any, folder: Path) -> Any:
    config = package.RepositoryConfig(caching=package.CachingConfig(num_chunk_refs=5))
    storage = package.in_memory_storage()
    repo = package.Repository.create(storage, config)
    config.inline_chunk_threshold_bytes = 1
    config.caching.num_chunk_refs = 6
    for handle in (repo, repo.writable_session("main"), repo.reopen()):
        handle.config.inline_chunk_threshold_bytes = 2
        handle.config.caching.num_chunk_refs = 7
    repo.save_config()
    saved = package.Repository.fetch_config(storage)
    seen = (repo.config, repo.writable_session("main").config, saved)
    return [(each.inline_chunk_threshold_bytes, each.caching.num_chunk_refs) for each in seen]


@program
def arrays_in_metadata(package: Any, folder: Path) -> Any:
    repo = repository(package)
    metadata = {
        "steps": np.arange(3),
        "grid": np.eye(2),
        "one": np.float32(0.5),
        "text": np.array(["a", "b"]),
    }
    repo.set_metadata(metadata)
    old = package.Repository.create(package.in_memory_storage(), spec_version=1)
    ids = [each.writable_session("main").commit("x", metadata, allow_empty=True) for each in (repo, old)]
    stored = [each.lookup_snapshot(id_).metadata for each, id_ in zip((repo, old), ids, strict=True)]
    return repo.get_metadata(), stored


@program
def text_that_is_none(package: Any, folder: Path) -> Any:
    repo = repository(package)
    tip = repo.lookup_branch("main")
    calls: list[Callable[[], object]] = [
        lambda: repo.writable_session("main").commit("\ud800", allow_empty=True),
        lambda: repo.rewrite_manifests("\ud800", branch="main"),
        lambda: repo.create_branch("\ud800", tip),
        lambda: repo.create_tag("\ud800", tip),
        lambda: zarr.open_group(repo.writable_session("main").store, path="\ud800", mode="w"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r".") as raised:
            call()
        assert not isinstance(raised.value, frazil.InternalError)
    return repo.lookup_branch("main") == tip


@program
def no_dask_arrays(package: Any, folder: Path) -> Any:
    session = repository(package).writable_session("main")
    array: Any = zarr.open_array(session.fork().store, path="a")
    store_dask = importlib.import_module(f"{package.__name__}.dask").store_dask
    with pytest.raises(ValueError, match="sources"):
        store_dask(sources=[1], targets=[array])
    return array[:].tolist()


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_do_the_same(name: str, tmp_path: Path) -> None:
    assert PROGRAMS[name](frazil, tmp_path / "frazil") == PROGRAMS[name](icechunk, tmp_path / "icechunk")

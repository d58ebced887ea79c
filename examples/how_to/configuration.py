"""Options of a repository, for one program or for all users.

A configuration that is passed to `open` applies to that repository object only. `create` and `save_config`
save the configuration in the repository, for all users.

Run it:  python examples/how_to/configuration.py
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import zarr

import frazil


def count(folder: Path, kind: str) -> int:
    return sum(1 for _ in (folder / kind).glob("*")) if (folder / kind).is_dir() else 0


def main(folder: Path) -> None:
    storage = frazil.local_filesystem_storage(str(folder))
    config = frazil.RepositoryConfig.default()
    # Chunks up to this size (in bytes) are stored in the manifest, and need no separate request.
    config.inline_chunk_threshold_bytes = 64
    # For the array `forecast`, a manifest holds the references of at most 10 chunks along the first
    # dimension. A commit writes only manifests with changed references.
    config.manifest = frazil.ManifestConfig(
        splitting=frazil.ManifestSplittingConfig.from_dict(
            {
                frazil.ManifestSplitCondition.name_matches("^forecast$"): {
                    frazil.ManifestSplitDimCondition.Axis(0): 10
                }
            }
        )
    )
    # The compression level of metadata files. zarr compresses the chunks.
    config.compression = frazil.CompressionConfig(level=9)
    config.caching = frazil.CachingConfig(num_chunk_refs=1_000_000)
    repo = frazil.Repository.create(storage, config)

    session = repo.writable_session("main")
    array = zarr.create_array(session.store, name="forecast", shape=(40, 1000), chunks=(1, 1000), dtype="f8")
    array[:] = np.random.default_rng(0).random((40, 1000))
    session.commit("40 chunks")
    print("manifests:", count(folder, "manifests"), " chunk files:", count(folder, "chunks"))
    with repo.transaction("main", message="One chunk") as store:
        zarr.open_array(store, path="forecast")[15] = 0
    print("manifests:", count(folder, "manifests"), " (one more)")

    # `create` has saved the configuration. Every user gets it, and can override it for one repository object.
    saved = frazil.Repository.fetch_config(storage)
    assert saved is not None
    assert saved.compression is not None
    print("saved:", saved.inline_chunk_threshold_bytes, "bytes inline, level", saved.compression.level)
    mine = frazil.Repository.open(storage, frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    theirs = frazil.Repository.open(storage)
    print(
        "mine:",
        mine.config.inline_chunk_threshold_bytes,
        " theirs:",
        theirs.config.inline_chunk_threshold_bytes,
    )
    mine.save_config()
    print("saved again:", frazil.Repository.open(storage).config.inline_chunk_threshold_bytes)

    # Storage settings: retries, time-outs, and the number of concurrent requests.
    settings = frazil.StorageSettings(
        concurrency=frazil.StorageConcurrencySettings(max_concurrent_requests_for_object=4),
        retries=frazil.StorageRetriesSettings(max_tries=5, initial_backoff_ms=50, max_backoff_ms=5_000),
    )
    tuned = frazil.Repository.open(storage, frazil.RepositoryConfig(storage=settings))
    assert tuned.config.storage is not None
    assert tuned.config.storage.retries is not None
    print("tries:", tuned.config.storage.retries.max_tries)

    # Small chunks that are written together share one file, a pack. icechunk ignores this option of Frazil.
    packed = frazil.RepositoryConfig(packing=frazil.PackingConfig(enabled=False))
    before = count(folder, "chunks")
    alone = frazil.Repository.open(storage, packed)
    with alone.transaction("main", message="A file for each chunk") as store:
        zarr.open_array(store, path="forecast")[:5] = np.random.default_rng(1).random((5, 1000))
    print("files of 5 chunks without packs:", count(folder, "chunks") - before)

    # Metadata of the repository, and default metadata of commits.
    repo = frazil.Repository.open(storage)
    repo.set_metadata({"title": "Forecasts", "contact": "ada@example.org"})
    repo.set_default_commit_metadata({"pipeline": "nightly"})
    print("about:", repo.metadata)
    session = repo.writable_session("main")
    left = session.expires_at - datetime.now(UTC)
    print("a session ends after", round(left.total_seconds() / 3600), "hours")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory) / "repo")

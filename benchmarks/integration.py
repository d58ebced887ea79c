"""The changes of others: a rebase, differences, forks and their merge, and a pickled session."""

from __future__ import annotations

import importlib
import pickle
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from commits import group
from measure import Measured, scratch
from versions import Sizes, loose

LENGTH = 4096
LOCATIONS = 100


def others(implementation: str, commits: int, references: int) -> Measured:
    """Measure a rebase over the commits of others, and the difference that they make."""
    from zarr.core.sync import sync

    icechunk = importlib.import_module(implementation)
    out = Measured()
    with scratch() as root:
        loose(Path(root), Sizes(commits, commits * references, 0))
        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        history = list(repo.ancestry(branch="main"))
        tip, first = history[0].id, history[-2].id
        repo.reset_branch("main", first)
        session = repo.writable_session("main")
        repo.reset_branch("main", tip)
        sync(session.store.set("other/zarr.json", group(1)))
        with out.seconds_of_all("rebase"):
            session.rebase(icechunk.ConflictDetector())
        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        with out.seconds_of_all("difference"):
            difference = repo.diff(from_snapshot_id=first, to_branch="main")
        assert sum(map(len, difference.updated_chunks.values())) == (commits - 1) * references
    return out


def forks(implementation: str, number: int, references: int) -> Measured:
    """Measure the merge of forks, at once and one by one, and the pickling of one with all references."""
    out = Measured()
    with scratch() as root:
        repo, arrays = _repository(implementation, root, number, references)
        for name, size in (("at once", number), ("one by one", 1)):
            session = repo.writable_session("main")
            copies = [pickle.dumps(session.fork()) for _ in range(number)]
            changed = [pickle.loads(copy) for copy in copies]
            for row, fork in enumerate(changed):
                fork.store.set_virtual_refs_arr("v", (1, references), *arrays, arr_offset=(row, 0))
            with out.seconds_of_all(f"merge {name}"):
                for start in range(0, number, size):
                    session.merge(*changed[start : start + size])
            assert session.has_uncommitted_changes
        fork = repo.writable_session("main").fork()
        for row in range(number):
            fork.store.set_virtual_refs_arr("v", (1, references), *arrays, arr_offset=(row, 0))
        with out.seconds_of_all("pickle"):
            data = pickle.dumps(fork)
        with out.seconds_of_all("unpickle"):
            pickle.loads(data)
        out["pickle, MiB"] = len(data) / 2**20
    return out


def snapshots(implementation: str, workers: int, chunks: int) -> Measured:
    """Measure the merge and the commit of workers: detached snapshots of Frazil, or pickled forks."""
    frazil = importlib.import_module("frazil")
    out = Measured()
    with scratch() as root:
        path = Path(root, "repo")
        repo = frazil.Repository.create(
            str(path), config=frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
        )
        with repo.transaction("main", message="array") as store:
            zarr.create_array(store, name="t", shape=(workers * chunks,), chunks=(1,), dtype="i4")
        session = repo.writable_session("main")
        results: list[Any] = []
        for start in range(0, workers * chunks, chunks):
            own = repo.writable_session("main") if implementation == "frazil" else session.fork()
            array = zarr.open_array(own.store, path="t")
            array[start : start + chunks] = np.arange(start + 1, start + chunks + 1)
            results.append(own.flush("part") if implementation == "frazil" else pickle.dumps(own))

        def merge(session: Any) -> None:
            if implementation == "frazil":
                frazil.Repository.open(str(path)).merge_snapshots("main", results, "merged")
            else:
                session.merge(*map(pickle.loads, results))
                session.commit("merged")

        tip = repo.lookup_branch("main")
        shutil.copytree(path, Path(root, "copy"))
        with out.seconds_of_all("merge and commit"):
            merge(session)
        out["repo, kB"] = (path / "repo").stat().st_size / 1000
        # Once more, because the measurement of memory takes time.
        shutil.rmtree(path)
        Path(root, "copy").rename(path)
        session = frazil.Repository.open(str(path)).writable_session("main")
        assert session.snapshot_id == tip
        tracemalloc.start()
        merge(session)
        out["memory, MiB"] = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return out


def _repository(implementation: str, root: str, number: int, references: int) -> tuple[Any, list[Any]]:
    """Make an array with one row of chunks for each fork. Return it with the references of a row."""
    icechunk = importlib.import_module(implementation)
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer("s3://bucket/", icechunk.s3_store(region="us-east-1"))
    )
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root), config)
    session = repo.writable_session("main")
    zarr.create_array(
        session.store,
        name="v",
        shape=(number, references),
        chunks=(1, 1),
        dtype="f4",
        compressors=None,
        filters=None,
    )
    session.commit("an array")
    each = -(-references // LOCATIONS)
    locations = [f"s3://bucket/model/run-{place // each:06d}/file.nc" for place in range(references)]
    offsets = (np.arange(references, dtype="u8") % each) * LENGTH + 512
    return repo, [locations, offsets, np.full(references, LENGTH, "u8")]

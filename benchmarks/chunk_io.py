"""Writing, committing and reading chunks through zarr, as a whole array and one by one."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measure import Measured, scratch

POINTS = 500
COMPRESSORS: dict[str, Any] = {"none": None, "zstd": zarr.codecs.ZstdCodec(level=1)}
PIPELINES = {"default": "Batched", "fused": "Fused"}


def local(
    implementation: str, chunks: int, chunk_kib: int, codec: str = "none", pipeline: str = "default"
) -> Measured:
    """Measure chunks of float32 on the local file system."""
    values = chunk_kib * 256
    rng = np.random.default_rng(0)
    data = np.round(np.cumsum(rng.standard_normal(chunks * values)).astype("f4"), 2)
    points = (rng.integers(0, chunks, POINTS) * values + 5).tolist()
    zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{PIPELINES[pipeline]}CodecPipeline"})
    with scratch() as root:
        if implementation == "tensorstore":
            return _tensorstore(root, data, values, codec, points)
        return _zarr(implementation, root, data, values, codec, points)


def _zarr(
    implementation: str, root: str, data: np.ndarray, values: int, codec: str, points: list[int]
) -> Measured:
    out = Measured()
    icechunk: Any = None
    if implementation == "LocalStore":
        store: Any = zarr.storage.LocalStore(root)
    else:
        icechunk = importlib.import_module(implementation)
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root))
        session = repo.writable_session("main")
        store = session.store
    array = zarr.create_array(
        store,
        name="a",
        shape=data.shape,
        chunks=(values,),
        dtype="f4",
        compressors=COMPRESSORS[codec],
        filters=None,
    )
    with out.seconds_of_all("write and commit"):
        array[:] = data
        if icechunk:
            session.commit("data")
    if icechunk:
        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        store = repo.readonly_session("main").store
    array = zarr.open_array(store, path="a", mode="r")
    with out.seconds_of_all("read"):
        found = array[:]
    assert np.array_equal(found, data)
    with out.microseconds_each("read a point", len(points)):
        for point in points:
            array[point]
    return out


def twice(implementation: str, chunks: int, chunk_kib: int) -> Measured:
    """Measure the same bytes in two arrays and two commits. Frazil stores them once."""
    values = chunk_kib * 1024
    data = np.random.default_rng(0).integers(0, 256, chunks * values, "u1")
    icechunk = importlib.import_module(implementation)
    config = icechunk.RepositoryConfig.default()
    if implementation == "frazil":
        config.chunks = icechunk.ChunksConfig(deduplicate=True)
        config.packing = icechunk.PackingConfig(threshold_bytes=values)
    out = Measured()
    with scratch() as root:
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(root), config)
        for name, what in (("a", "write and commit"), ("b", "write again and commit")):
            session = repo.writable_session("main")
            array = zarr.create_array(
                session.store, name=name, shape=data.shape, chunks=(values,), dtype="u1", compressors=None
            )
            with out.seconds_of_all(what):
                array[:] = data
                session.commit(name)
        out["chunk files, MiB"] = (
            sum(file.stat().st_size for file in (Path(root) / "chunks").iterdir()) / 2**20
        )
    return out


def _tensorstore(root: str, data: np.ndarray, values: int, codec: str, points: list[int]) -> Measured:
    import tensorstore

    codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if codec == "zstd":
        codecs.append({"name": "zstd", "configuration": {"level": 1}})
    where = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{root}/a"}}
    metadata = {
        "shape": list(data.shape),
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [values]}},
        "codecs": codecs,
    }
    out = Measured()
    array = tensorstore.open({**where, "metadata": metadata}, create=True).result()
    with out.seconds_of_all("write and commit"):
        array.write(data).result()
    array = tensorstore.open(where).result()
    with out.seconds_of_all("read"):
        found = array.read().result()
    assert np.array_equal(found, data)
    with out.microseconds_each("read a point", len(points)):
        for point in points:
            array[point].read().result()
    return out


def own_share(implementation: str, chunks: int, chunk_kib: int) -> Measured:
    """Measure `set` and `get` of the store, without the pipeline of zarr."""
    assert implementation == "frazil"
    from zarr.core.buffer import default_buffer_prototype

    from frazil import Repository, local_filesystem_storage

    prototype = default_buffer_prototype()
    value = prototype.buffer.from_bytes(bytes(chunk_kib << 10))
    keys = [f"a/c/{k}" for k in range(chunks)]
    out = Measured()
    with scratch() as root:
        repo = Repository.create(local_filesystem_storage(root))
        session = repo.writable_session("main")
        store = session.store
        zarr.create_array(store, name="a", shape=(chunks,), chunks=(1,), dtype="f4")
        with out.microseconds_each("set a chunk", chunks):
            for key in keys:
                store.set_sync(key, value)
        with out.milliseconds_each("commit", 1):
            session.commit("data")
        store = repo.readonly_session("main").store
        start = time.perf_counter()
        store.get_sync(keys[0], prototype=prototype)
        out["get the first chunk, ms"] = (time.perf_counter() - start) * 1000
        with out.microseconds_each("get a chunk", chunks):
            for key in keys:
                store.get_sync(key, prototype=prototype)
    return out

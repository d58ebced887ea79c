"""Writing, committing and reading chunks through zarr, as a whole array and one by one."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import file_readers
import numpy as np
import obstore.store
import zarr
from measure import Measured, scratch

POINTS = 500
#: Stores without versions, by a folder.
PLAIN: dict[str, Callable[[str], Any]] = {
    "LocalStore": zarr.storage.LocalStore,
    "obstore": lambda folder: zarr.storage.ObjectStore(obstore.store.LocalStore(folder)),
}
COMPRESSORS: dict[str, Any] = {"none": None, "zstd": zarr.codecs.ZstdCodec(level=1)}
BATCHED, FUSED = (f"zarr.core.codec_pipeline.{name}CodecPipeline" for name in ("Batched", "Fused"))
#: The pipelines of icechunk and LocalStore. With "default" and "zarr", each store has the pipeline that zarr
#: uses without a setting. "handle" is `frazil.Array`.
PIPELINES = {"fused": (FUSED, FUSED), "handle": (BATCHED, FUSED)}


def local(
    implementation: str, chunks: int, chunk_kib: int, codec: str = "none", pipeline: str = "default"
) -> Measured:
    """Measure chunks of float32 on the local file system."""
    values = chunk_kib * 256
    rng = np.random.default_rng(0)
    data = np.round(np.cumsum(rng.standard_normal(chunks * values)).astype("f4"), 2)
    points = (rng.integers(0, chunks, POINTS) * values + 5).tolist()
    with scratch() as root:
        if implementation == "tensorstore":
            return _tensorstore(root, data, values, codec, points)
        if implementation in (file_readers.PLAIN_FILES, file_readers.ZARRISTA):
            return file_readers.read(implementation, root, data, values, COMPRESSORS[codec], points)
        _use_pipeline(implementation, pipeline)
        return _zarr(implementation, root, data, values, codec, points, pipeline == "handle")


def _use_pipeline(implementation: str, pipeline: str) -> None:
    if pipeline in PIPELINES and implementation != "frazil":
        number = 0 if implementation == "icechunk" else 1
        zarr.config.set({"codec_pipeline.path": PIPELINES[pipeline][number]})
    elif pipeline == "fused":
        zarr.config.set({"codec_pipeline.path": FUSED})


def _zarr(
    implementation: str,
    root: str,
    data: np.ndarray,
    values: int,
    codec: str,
    points: list[int],
    has_handle: bool,
) -> Measured:
    out = Measured()
    icechunk: Any = None
    if implementation in PLAIN:
        store: Any = PLAIN[implementation](root)
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
    if has_handle and implementation == "frazil":
        array = icechunk.Array(session, "a")
    with out.seconds_of_all("write and commit"):
        array[:] = data
        if icechunk:
            session.commit("data")
    if icechunk:
        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(root))
        session = repo.readonly_session("main")
        store = session.store
    if has_handle and implementation == "frazil":
        array = icechunk.Array(session, "a")
    else:
        array = zarr.open_array(store, path="a", mode="r")
    with out.seconds_of_all("read"):
        found = array[:]
    assert np.array_equal(found, data)
    with out.microseconds_each("read a point", len(points)):
        for point in points:
            array[point]
    return out


def points(implementation: str, chunks: int, count: int, codec: str = "none") -> Measured:
    """Measure points in random places of many chunks, in one call."""
    rng = np.random.default_rng(0)
    shape = (chunks, 64, 64)
    data = np.round(np.cumsum(rng.standard_normal(np.prod(shape))).astype("f4"), 2).reshape(shape)
    wanted = tuple(rng.integers(0, n, count) for n in shape)
    out = Measured()
    with scratch() as root:
        if implementation == "tensorstore":
            array: Any = _new_tensorstore(root, shape, (1, 64, 64), codec)
            array.write(data).result()
            with out.seconds_of_all("read"):
                values = array.vindex[wanted].read().result()
        else:
            store, session = _store_of_points(implementation, root, data, codec)
            if implementation == "frazil":
                array = importlib.import_module("frazil").Array(session, "a")
            else:
                array = zarr.open_array(store, path="a", mode="r").vindex
            with out.seconds_of_all("read"):
                values = array[wanted]
    assert np.array_equal(values, data[wanted])
    return out


def _store_of_points(implementation: str, root: str, data: np.ndarray, codec: str) -> tuple[Any, Any]:
    """Return a store with the array, and its session."""
    options = {"name": "a", "data": data, "chunks": (1, 64, 64), "compressors": COMPRESSORS[codec]}
    if implementation in PLAIN:
        store = PLAIN[implementation](root)
        zarr.create_array(store, **options)
        return store, None
    module = importlib.import_module(implementation)
    repo = module.Repository.create(module.local_filesystem_storage(root))
    session = repo.writable_session("main")
    zarr.create_array(session.store, **options)
    session.commit("data")
    session = repo.readonly_session("main")
    return session.store, session


def twice(implementation: str, chunks: int, chunk_kib: int) -> Measured:
    """Measure the same bytes in two arrays and two commits. "frazil" stores them once, the others twice."""
    values = chunk_kib * 1024
    data = np.random.default_rng(0).integers(0, 256, chunks * values, "u1")
    icechunk = importlib.import_module(implementation.partition(",")[0])
    config = icechunk.RepositoryConfig.default()
    if implementation != "icechunk":
        config.chunks = icechunk.ChunksConfig(deduplicate=implementation == "frazil")
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


def _new_tensorstore(root: str, shape: tuple[int, ...], chunks: tuple[int, ...], codec: str) -> Any:
    import tensorstore

    codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if codec == "zstd":
        codecs.append({"name": "zstd", "configuration": {"level": 1}})
    metadata = {
        "shape": list(shape),
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "codecs": codecs,
    }
    return tensorstore.open({**_tensorstore_at(root), "metadata": metadata}, create=True).result()


def _tensorstore_at(root: str) -> dict[str, Any]:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{root}/a"}}


def _tensorstore(root: str, data: np.ndarray, values: int, codec: str, points: list[int]) -> Measured:
    import tensorstore

    out = Measured()
    array = _new_tensorstore(root, data.shape, (values,), codec)
    with out.seconds_of_all("write and commit"):
        array.write(data).result()
    array = tensorstore.open(_tensorstore_at(root)).result()
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

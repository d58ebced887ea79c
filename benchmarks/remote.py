"""Chunks on an object store, a small S3 server on the loopback interface."""

from __future__ import annotations

import importlib
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measure import Measured
from slow_network import loopback_storage, slow_network

# The tests use the same server.
sys.path.append(str(Path(__file__).resolve().parents[1]))

#: No client looks for credentials on the network.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


def s3(implementation: str, chunks: int, chunk_kib: int) -> Measured:
    """Measure writing, committing and reading chunks."""
    from tests.support.servers import ministack

    icechunk = importlib.import_module(implementation)
    values = chunk_kib * 256
    data = np.random.default_rng(0).standard_normal(chunks * values).astype("f4")
    out = Measured()
    with ministack() as server:
        bucket = f"bucket-{secrets.token_hex(8)}"
        server.make_bucket(bucket)
        storage = loopback_storage(icechunk, bucket, server.port)
        repo = icechunk.Repository.create(storage)
        session = repo.writable_session("main")
        array = zarr.create_array(
            session.store,
            name="a",
            shape=data.shape,
            chunks=(values,),
            dtype="f4",
            compressors=None,
            filters=None,
        )
        with out.seconds("write and commit"):
            array[:] = data
            session.commit("data")
        repo = icechunk.Repository.open(storage)
        array = zarr.open_array(repo.readonly_session("main").store, path="a", mode="r")
        with out.seconds("read"):
            values_read = array[:]
        assert np.array_equal(values_read, data)
    return out


def far(implementation: str, chunks: int, chunk_kib: int, latency_ms: int, codec: str = "none") -> Measured:
    """Measure reads of a whole array with a latency for each request, as multiples of the latency.

    ``cold`` opens the repository, a session and the array. ``warm`` reads with an open array whose references
    are not in memory. ``again`` repeats the read.
    """
    from tests.support.servers import ministack

    icechunk = importlib.import_module(implementation)
    values = chunk_kib * 256
    data = np.round(np.cumsum(np.random.default_rng(0).standard_normal(chunks * values)).astype("f4"), 2)
    compressor = zarr.codecs.ZstdCodec(level=1) if codec == "zstd" else None
    out = Measured()
    with ministack() as server:
        bucket = f"bucket-{secrets.token_hex(8)}"
        server.make_bucket(bucket)
        repo = icechunk.Repository.create(loopback_storage(icechunk, bucket, server.port))
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="a", data=data, chunks=(values,), compressors=compressor, filters=None
        )
        session.commit("data")
        with slow_network(server.port, latency_ms) as port:
            storage = loopback_storage(icechunk, bucket, port)
            array = _array(icechunk, storage)  # connections, imports
            array[:values]
            for name in ("cold", "warm"):
                if name == "warm":
                    array = _array(icechunk, storage)
                start = time.perf_counter()
                if name == "cold":
                    array = _array(icechunk, storage)
                found = array[:]
                out[f"{name} read, rounds"] = (time.perf_counter() - start) * 1000 / latency_ms
                assert np.array_equal(found, data)
            start = time.perf_counter()
            array[:]
            out["the read again, rounds"] = (time.perf_counter() - start) * 1000 / latency_ms
    return out


def _array(icechunk: Any, storage: Any) -> Any:
    """Open a session, and return the array to read: Frazil's own handle, or an array of zarr."""
    if icechunk.__name__ == "frazil":
        return icechunk.Array(icechunk.Repository.open_session(storage, "main"), "a")
    session = icechunk.Repository.open(storage).readonly_session("main")
    return zarr.open_array(session.store, path="a", mode="r")

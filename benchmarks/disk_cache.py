"""Reads of a repository on a distant object store with a cache on disk, beside a local repository."""

from __future__ import annotations

import importlib
import os
import secrets
import sys
import time
from pathlib import Path

import numpy as np
import zarr
from measure import Measured, scratch
from slow_network import loopback_storage, slow_network

# The tests use the same server.
sys.path.append(str(Path(__file__).resolve().parents[1]))

#: No client looks for credentials on the network.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

LOCAL = "frazil, local"


def epochs(implementation: str, chunks: int, chunk_kib: int, latency_ms: int, codec: str) -> Measured:
    """Measure epochs: of a local repository, or of a remote one with a cache on disk."""
    from tests.support.servers import ministack

    frazil = importlib.import_module("frazil")
    values = chunk_kib * 256
    data = np.round(np.cumsum(np.random.default_rng(0).standard_normal(chunks * values)).astype("f4"), 2)
    compressor = zarr.codecs.ZstdCodec(level=1) if codec == "zstd" else None
    out = Measured()
    with scratch() as folder, ministack() as server:
        bucket = f"bucket-{secrets.token_hex(8)}"
        server.make_bucket(bucket)
        local = frazil.local_filesystem_storage(f"{folder}/local")
        repo = frazil.Repository.create(
            local if implementation == LOCAL else loopback_storage(frazil, bucket, server.port)
        )
        session = repo.writable_session("main")
        zarr.create_array(
            session.store, name="a", data=data, chunks=(values,), compressors=compressor, filters=None
        )
        session.commit("data")
        with slow_network(server.port, latency_ms) as port:
            storage = local
            if implementation != LOCAL:
                storage = frazil.cached_storage(
                    loopback_storage(frazil, bucket, port), f"{folder}/cache", "10GB"
                )
            with out.seconds("first two epochs"):
                array = frazil.Array(frazil.Repository.open_session(storage, "main"), "a")
                array[:]
                array[:]
            seconds = []
            with out.seconds_of_all("9 later epochs"):
                for _ in range(9):
                    start = time.perf_counter()
                    values_read = array[:]
                    seconds.append(time.perf_counter() - start)
            out["a later epoch, median, ms"] = sorted(seconds)[4] * 1000
            assert np.array_equal(values_read, data)
    return out

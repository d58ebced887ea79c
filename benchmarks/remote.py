"""Chunks on an object store, a small S3 server on the loopback interface."""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from pathlib import Path

import numpy as np
import zarr
from measure import Measured

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
        storage = icechunk.s3_storage(
            bucket=bucket,
            prefix="repo",
            region="us-east-1",
            endpoint_url=f"http://127.0.0.1:{server.port}",
            allow_http=True,
            force_path_style=True,
            access_key_id="testkey",
            secret_access_key="testsecret",
        )
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

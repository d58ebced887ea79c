"""Queries on NetCDF-4 files in an object store, through virtual references: requests and seconds.

The queries are those of Earthmover's comparison of Icechunk and Iceberg: a point through time, a box, and a
stream of training samples. The stream comes in two forms: samples at random places that xarray reads one by
one, and an epoch of windows of whole fields, which Frazil reads with its loader. The files are hourly fields,
one file for each day. Their chunks are a quarter of a field, with the filters shuffle and zlib, as files of
reanalyses have them.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import netCDF4
import numpy as np
import xarray as xr
import zarr
from measure import Measured, scratch
from slow_network import counting_network, loopback_storage
from zarr.codecs.numcodecs import Shuffle, Zlib

from frazil.loader import TrainingWindows

# The tests use the same server.
sys.path.append(str(Path(__file__).resolve().parents[1]))

#: No client looks for credentials on the network.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

NAMES = ("t2m", "u10", "v10")
STEPS, FIELD, CHUNK = 24, (182, 288), (1, 91, 144)


def queries(implementation: str, files: int, samples: int, latency_ms: int) -> Measured:
    """Measure the queries, each with a repository that was just opened."""
    from tests.support.servers import ministack

    out = Measured()
    with ministack() as server, scratch() as folder:
        bucket = f"bucket-{secrets.token_hex(8)}"
        server.make_bucket(bucket)
        _write_files(server, bucket, Path(folder), files)
        _write_references(_repository("icechunk", bucket, server.port, create=True), Path(folder), bucket)
        with counting_network(server.port, latency_ms) as (port, gets):
            sums = {}
            for name, query in _QUERIES.items():
                repo = _repository(implementation, bucket, port)
                session = repo.readonly_session("main")
                dataset = xr.open_zarr(session.store, chunks=None, consolidated=False)
                if name == EPOCH and implementation == "frazil":
                    query = partial(_epoch_of_loader, session)
                before = gets()
                with out.seconds(name):
                    sums[name] = query(dataset, samples)
                out[f"{name}, GETs"] = gets() - before
    expected = {name: query(_expected(files), samples) for name, query in _QUERIES.items()}
    assert sums == expected, (sums, expected)
    return out


def _point(dataset: xr.Dataset, samples: int) -> float:
    return float(dataset["t2m"].isel(lat=40, lon=200).values.sum(dtype="f8"))


def _box(dataset: xr.Dataset, samples: int) -> float:
    half = slice(0, dataset.sizes["time"] // 2)
    return float(dataset["u10"].isel(time=half, lat=slice(60, 120), lon=slice(20, 80)).values.sum(dtype="f8"))


def _stream(dataset: xr.Dataset, samples: int) -> float:
    """Read windows of eight steps of all variables at random places, one after the other."""
    random = np.random.default_rng(0)
    total = 0.0
    for _ in range(samples):
        time, lat, lon = (
            int(random.integers(n - k)) for n, k in zip(_shape(dataset), (8, 64, 64), strict=True)
        )
        window = {"time": slice(time, time + 8), "lat": slice(lat, lat + 64), "lon": slice(lon, lon + 64)}
        sample = dataset.isel(window).load()
        total += sum(float(sample[name].values.sum(dtype="f8")) for name in NAMES)
    return total


def _epoch(dataset: xr.Dataset, samples: int) -> float:
    """Read each window of eight steps once, in a random order."""
    windows = np.random.default_rng(0).permutation(dataset.sizes["time"] // 8) * 8
    fields = (dataset.isel(time=slice(start, start + 8)).load() for start in windows.tolist())
    return sum(float(field[name].values.sum(dtype="f8")) for field in fields for name in NAMES)


def _epoch_of_loader(session: Any, dataset: xr.Dataset, samples: int) -> float:
    windows = TrainingWindows(session, NAMES, window=8, stride=8, batch_size=1)
    return sum(float(batch[name].sum(dtype="f8")) for batch in windows for name in NAMES)


EPOCH = "an epoch of windows"
_QUERIES: dict[str, Callable[[xr.Dataset, int], float]] = {
    "a point through time": _point,
    "a box": _box,
    "samples one by one": _stream,
    EPOCH: _epoch,
}


def _shape(dataset: xr.Dataset) -> tuple[int, ...]:
    return tuple(dataset.sizes[name] for name in ("time", "lat", "lon"))


def _fields(number: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the variables of a file: smooth waves with noise, as packed by about five digits."""
    random = np.random.default_rng(number)
    lat, lon = (np.linspace(0, 6, n, dtype="f4") for n in FIELD)
    waves = np.sin(lat)[:, None] * np.cos(lon)
    for name in NAMES:
        drift = random.standard_normal((STEPS, 1, 1)).astype("f4")
        noise = random.standard_normal((STEPS, *FIELD)).astype("f4")
        yield name, np.round((drift + 9 * waves + noise / 8) * 64) / 64


def _expected(files: int) -> xr.Dataset:
    parts = [dict(_fields(number)) for number in range(files)]
    dims = ("time", "lat", "lon")
    return xr.Dataset({name: (dims, np.concatenate([part[name] for part in parts])) for name in NAMES})


def _write_files(server: Any, bucket: str, folder: Path, files: int) -> None:
    for number in range(files):
        with netCDF4.Dataset(folder / f"{number:03d}.nc", "w") as file:
            for dimension, length in zip(("time", "lat", "lon"), (STEPS, *FIELD), strict=True):
                file.createDimension(dimension, length)
            for name, values in _fields(number):
                variable = file.createVariable(
                    name, "f4", ("time", "lat", "lon"), zlib=True, complevel=1, chunksizes=CHUNK
                )
                variable[:] = values
        server.storage(bucket, "files").put(f"{number:03d}.nc", (folder / f"{number:03d}.nc").read_bytes())


def _write_references(repo: Any, folder: Path, bucket: str) -> None:
    paths = sorted(folder.iterdir())
    session = repo.writable_session("main")
    grid = tuple(n // k for n, k in zip((STEPS, *FIELD), CHUNK, strict=True))
    for name in NAMES:
        zarr.create_array(
            session.store,
            name=name,
            shape=(len(paths) * STEPS, *FIELD),
            chunks=CHUNK,
            dtype="f4",
            compressors=[Shuffle(elementsize=4), Zlib(level=1)],
            filters=None,
            dimension_names=("time", "lat", "lon"),
        )
        for number, path in enumerate(paths):
            with h5py.File(path) as file:
                variable = file[name].id
                chunks = [variable.get_chunk_info(row) for row in range(variable.get_num_chunks())]
            chunks.sort(key=lambda chunk: chunk.chunk_offset)
            session.store.set_virtual_refs_arr(
                name,
                grid,
                [f"s3://{bucket}/files/{path.name}"] * len(chunks),
                np.array([chunk.byte_offset for chunk in chunks], np.uint64),
                np.array([chunk.size for chunk in chunks], np.uint64),
                arr_offset=(number * STEPS, 0, 0),
                checksum=f'"{hashlib.md5(path.read_bytes()).hexdigest()}"',
            )
    session.commit("references")


def _repository(implementation: str, bucket: str, port: int, *, create: bool = False) -> Any:
    package = importlib.import_module(implementation)
    config = package.RepositoryConfig.default()
    prefix = f"s3://{bucket}/files/"
    store = package.s3_store(
        region="us-east-1",
        endpoint_url=f"http://127.0.0.1:{port}",
        allow_http=True,
        s3_compatible=True,
        force_path_style=True,
    )
    config.set_virtual_chunk_container(package.VirtualChunkContainer(prefix, store))
    keys = package.s3_credentials(access_key_id="testkey", secret_access_key="testsecret")
    access = package.containers_credentials({prefix: keys})
    make = package.Repository.create if create else package.Repository.open
    return make(loopback_storage(package, bucket, port), config=config, authorize_virtual_chunk_access=access)

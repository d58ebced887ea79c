"""Arrays as rows, and reads from a slow server."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import zarr
from measure import Measured, scratch
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from shared_inputs import shared_input

import frazil
from frazil.arrow.grid import Selection
from frazil.spark import Split, mean, read, scan
from frazil.spark.data_source import plan_rows
from frazil.spark.tables.scan import batches
from pipeline.engines import WORKERS, engine_of, spark_with
from pipeline.inputs import grid
from pipeline.names import CONSTANT, ONE, PARQUET, REFERENCE, REFERENCE_ON_SPARK, SERIAL

#: time, lat and lon are float64, the value is float32.
ROW_BYTES = 28
COLUMNS = "time double, lat double, lon double, tas float"


def scanned(implementation: str, shape: list[int], chunks: list[int], tasks: int) -> Measured:
    """Measure every cell as a row (time, lat, lon, tas), into a sink that discards the rows."""
    path = grid(tuple(shape), tuple(chunks))
    rows = int(np.prod(shape))
    out = Measured()
    if implementation == ONE:
        session = frazil.Repository.open(frazil.local_filesystem_storage(path)).readonly_session("main")
        with _per_row(out, "rows", rows):
            plan, scan_tasks = plan_rows(session, None, (), Selection(), split=Split(tasks))
            count = sum(batch.num_rows for task in scan_tasks for batch in batches(plan, task))
        assert count == rows
        return out
    spark = spark_with(WORKERS)
    if implementation == REFERENCE_ON_SPARK:
        frames = {"rows": _reference(path, tuple(shape), tasks)}
    elif implementation == PARQUET:
        frames = {"rows by the data source": spark.read.parquet(_parquet(path, tuple(shape), tuple(chunks)))}
    elif implementation == CONSTANT:
        spark.dataSource.register(ConstantSource)
        source = spark.read.format("constant").options(rows=str(rows), partitions=str(tasks)).load()
        produce = partial(_constants, rows // tasks)
        frames = {
            "rows": spark.range(0, tasks, 1, tasks).mapInArrow(produce, COLUMNS),
            "rows by the data source": source,
        }
    else:
        repo = frazil.Repository.open(frazil.local_filesystem_storage(path))
        frames = {
            "rows": scan(spark, repo, split=Split(tasks)),
            "rows by the data source": read(spark, repo, options={"partitions": str(tasks)}),
        }
    for name, frame in frames.items():
        _consume(frame.limit(1000))  # imports
        _consume(frame)
        with _per_row(out, name, rows):
            _consume(frame)
    frame = next(iter(frames.values()))
    queries = {"the sum of a column": frame.groupBy().sum("tas").collect, "the number of rows": frame.count}
    for name, query in queries.items():
        query()
        with out.seconds(name):
            query()
    return out


def _consume(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextmanager
def _per_row(out: Measured, name: str, rows: int) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    out[f"{name}, s"] = seconds
    out[f"{name}, ns for each"] = seconds * 1e9 / rows
    out[f"{name}, s for a GB"] = seconds * 1e9 / (rows * ROW_BYTES)


def _reference(path: str, shape: tuple[int, ...], tasks: int) -> DataFrame:
    """Return the same rows from a session of the published icechunk."""
    session = icechunk.Repository.open(icechunk.local_filesystem_storage(path)).readonly_session("main")
    shared = pickle.dumps(session)

    def rows(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = pickle.loads(shared).store
        array: Any = zarr.open_array(store, path="tas", mode="r")
        axes = [np.asarray(zarr.open_array(store, path=name, mode="r")[:]) for name in ("time", "lat", "lon")]
        step = array.chunks[0]
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                starts = list(range(0, shape[0], step))
                low, high = (len(starts) * (number + more) // tasks for more in (0, 1))
                for start in starts[low:high]:
                    yield from _batches(array, axes, start, min(start + step, shape[0]))

    spark = spark_with(WORKERS)
    return spark.range(0, tasks, 1, tasks).mapInArrow(rows, COLUMNS)


def _parquet(path: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> str:
    """Write the same rows as Parquet, a file for each slab of chunks, and return the folder."""

    def make(folder: Path) -> None:
        session = icechunk.Repository.open(icechunk.local_filesystem_storage(path)).readonly_session("main")
        array: Any = zarr.open_array(session.store, path="tas", mode="r")
        axes = [np.arange(length, dtype="f8") for length in shape]
        for start in range(0, shape[0], chunks[0]):
            slab = _batches(array, axes, start, min(start + chunks[0], shape[0]))
            parquet.write_table(pa.Table.from_batches(list(slab)), folder / f"{start:04}.parquet")

    return str(shared_input("rows-" + "-".join(map(str, (*shape, *chunks))), make))


# The limit: rows that cost nothing


def _constants(rows: int, partitions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for partition in partitions:
        for _ in range(partition.num_rows):
            yield from _constant(rows)


def _constant(rows: int, size: int = 1 << 17) -> Iterator[pa.RecordBatch]:
    long, short = pa.array(np.arange(size, dtype="f8")), pa.array(np.arange(size, dtype="f4"))
    batch = pa.RecordBatch.from_arrays([long, long, long, short], names=["time", "lat", "lon", "tas"])
    for at in range(0, rows, size):
        yield batch.slice(0, min(size, rows - at))


class ConstantSource(DataSource):
    """A data source of equal batches: what Spark's transfer from Python costs, without any work."""

    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        partitions = int(self.options["partitions"])
        return ConstantReader(int(self.options["rows"]) // partitions, partitions)


class ConstantReader(DataSourceReader):
    """The reader of `ConstantSource`."""

    def __init__(self, rows: int, count: int) -> None:
        self.rows, self.count = rows, count

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _constant(self.rows)


def _batches(array: Any, axes: list[np.ndarray], start: int, stop: int, size: int = 1 << 17) -> Iterator[Any]:
    values = np.asarray(array[start:stop])
    along = np.broadcast_arrays(
        axes[0][start:stop, None, None], axes[1][None, :, None], axes[2][None, None, :]
    )
    columns = [*(each.ravel() for each in along), values.ravel()]
    for at in range(0, values.size, size):
        yield pa.RecordBatch.from_arrays(
            [pa.array(column[at : at + size]) for column in columns], names=["time", "lat", "lon", "tas"]
        )


# Slow server

SERVER = """
import sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
delay, size = float(sys.argv[1]), int(sys.argv[2])
body = bytes(range(256)) * (size // 256)
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        time.sleep(delay)
        first, last = 0, size - 1
        said = self.headers.get("Range")
        if said:
            first, last = (int(x) for x in said.removeprefix("bytes=").split("-"))
        part = body[first : last + 1]
        self.send_response(206 if said else 200)
        if said:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(part)
    def log_message(self, *args):
        pass
class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 256
server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def _far_away(milliseconds: int, size: int) -> Iterator[str]:
    """Run a web server that answers after this latency."""
    command = [sys.executable, "-c", SERVER, str(milliseconds / 1000), str(size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
    finally:
        process.kill()
        process.wait()


def far(implementation: str, files: int, side: int, latency_ms: int) -> Measured:
    """Measure the mean of one chunk in each of many files, on a server with latency."""
    module: Any = icechunk if implementation == REFERENCE else frazil
    out = Measured()
    with scratch() as root, _far_away(latency_ms, side * side * 4) as url:

        def repository(name: str, count: int) -> Any:
            path = str(Path(root) / name)
            storage = module.local_filesystem_storage(path)
            config = module.RepositoryConfig.default()
            config.set_virtual_chunk_container(
                module.VirtualChunkContainer(url, module.http_store({"allow_http": "true"}))
            )
            repo = module.Repository.create(storage, config, {url: None})
            session = repo.writable_session("main")
            zarr.create_array(
                session.store,
                name="tas",
                shape=(count, side, side),
                chunks=(1, side, side),
                dtype="i4",
                compressors=None,
                filters=None,
                dimension_names=["time", "lat", "lon"],
            )
            names = [f"{url}{number}.bin" for number in range(count)]
            offsets, lengths = np.zeros(count, "u8"), np.full(count, side * side * 4, "u8")
            session.store.set_virtual_refs_arr("tas", (count, 1, 1), names, offsets, lengths)
            session.commit("references")
            return repo

        small, large = repository("small", 4), repository("large", files)
        _far_mean(implementation, small, root)
        with out.seconds("mean"):
            _far_mean(implementation, large, root)
    return out


def _far_mean(implementation: str, repo: Any, root: str) -> None:
    array: Any = zarr.open_array(repo.readonly_session("main").store, path="tas", mode="r")
    if implementation == SERIAL:
        sum(np.asarray(array[number]).sum(dtype="f8") for number in range(array.shape[0]))
    elif implementation == REFERENCE:
        np.asarray(array[:]).mean(axis=0)
    else:
        name = f"{root}/mean of {array.shape[0]}"
        to = frazil.Repository.create(frazil.local_filesystem_storage(name))
        mean(repo, ["tas"], "time", to=frazil.spark.Target(to), engine=engine_of(implementation))

"""Files of statistics of other versions of Frazil, wrong ones, and what finds and replaces them."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, ShardingCodec

import frazil
from frazil.format.chunk_statistics import absent_rows, row_dtype
from frazil.format.ids import id_to_text
from frazil.format.manifest import Manifest
from frazil.format.statistics_file import decode_statistics

ON = frazil.RepositoryConfig(chunks=frazil.ChunksConfig(statistics=True))


@pytest.fixture(autouse=True)
def zarr_pipeline() -> None:
    """zarr uses the pipeline that users get, which writes statistics."""


def file_keys(storage: frazil.Storage) -> set[str]:
    return {f"statistics/{each.key.rpartition('/')[2]}" for each in storage.list("statistics")}


def parsed(data: bytes) -> tuple[dict[str, Any], dict[str, dict[str, NDArray[Any]]]]:
    """Return the header of a file, and the columns of each node: docs/specification.md, by hand."""
    assert data[:8] == b"FRZSTAT2"
    assert data[8:40] == sha256(data[40:]).digest()
    end = 44 + int.from_bytes(data[40:44], "little")
    header = json.loads(data[44:end])
    nodes = dict[str, dict[str, NDArray[Any]]]()
    for array in header["arrays"]:
        columns, first = zstandard.decompress(data[end : end + array["size"]]), 0
        nodes[array["node"]] = {}
        for name, dtype, shape in array["columns"]:
            column = np.ndarray((array["rows"], array["tiles"], *shape), dtype, columns, first)
            nodes[array["node"]][name] = column
            first += column.nbytes
        assert first == len(columns)
        end += array["size"]
    assert end == len(data)
    return header, nodes


def assembled(header: dict[str, Any], nodes: dict[str, dict[str, NDArray[Any]]]) -> bytes:
    """Return the file with other columns."""
    frames = []
    for array in header["arrays"]:
        columns = nodes[array["node"]]
        array["columns"] = [[name, each.dtype.str, list(each.shape[2:])] for name, each in columns.items()]
        frames.append(zstandard.compress(b"".join(each.tobytes() for each in columns.values())))
        array["size"] = len(frames[-1])
    return sealed(header, b"".join(frames))


def sealed(header: dict[str, Any], frames: bytes) -> bytes:
    text = json.dumps(header).encode()
    body = len(text).to_bytes(4, "little") + text + frames
    return b"FRZSTAT2" + sha256(body).digest() + body


def frames_of(data: bytes) -> bytes:
    return data[44 + int.from_bytes(data[40:44], "little") :]


def one_array(chunk: int = 20) -> tuple[frazil.Storage, str]:
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, config=ON)
    with repo.transaction("main", message="array") as store:
        zarr.create_array(store, name="t", data=np.arange(200.0), chunks=(chunk,))
    return storage, file_keys(storage).pop()


def change(storage: frazil.Storage, key: str, edit: Callable[[dict[str, NDArray[Any]]], None]) -> None:
    """Edit the columns of the one array of a file."""
    header, nodes = parsed(bytes(storage.get(key)))
    (node,) = nodes
    nodes[node] = {name: column.copy() for name, column in nodes[node].items()}
    edit(nodes[node])
    storage.put(key, assembled(header, nodes))


def reduced(storage: frazil.Storage) -> frazil.Reduction:
    return frazil.reduce(frazil.Array(frazil.Repository.open(storage).readonly_session("main"), "/t"))


def newer(columns: dict[str, NDArray[Any]]) -> None:
    """Columns that a later version could store: between the others, and after them."""
    rows = columns["known"].shape
    later = {"zeros": np.arange(10, dtype="<u8").reshape(rows), "sketch": np.full((*rows, 3), b"ab", "S4")}
    own = dict(columns)
    columns.clear()
    columns.update({"zeros": later["zeros"]} | own | {"sketch": later["sketch"]})


def test_a_file_of_a_newer_version_answers_and_keeps_its_columns() -> None:
    storage, key = one_array()
    change(storage, key, newer)
    header, nodes = parsed(bytes(storage.get(key)))
    header["arrays"][0]["later"] = header["later"] = 5
    storage.put(key, assembled(header, nodes))
    assert (reduced(storage).sum, reduced(storage).chunks_read) == (19900.0, 0)
    repo = frazil.Repository.open(storage)
    session = repo.writable_session("main")
    fork = pickle.loads(pickle.dumps(session.fork()))
    zarr.open_array(fork.store, path="t")[60:80] = 7
    session.merge(fork)
    session.commit("a chunk")
    (new,) = file_keys(storage) - {key}
    ((_, columns),) = parsed(bytes(storage.get(new)))[1].items()
    assert (columns["zeros"][:, 0] == [0, 1, 2, 2**64 - 1, 4, 5, 6, 7, 8, 9]).all()
    assert (columns["sketch"][:, 0] == b"ab").sum() == 27
    assert set(columns["sketch"][3].ravel()) == {b"\xff" * 4}
    assert reduced(storage).chunks_read == 0


def test_a_build_keeps_the_columns_of_a_newer_version() -> None:
    storage, key = one_array()

    def edit(columns: dict[str, NDArray[Any]]) -> None:
        newer(columns)
        columns["known"][4] = False

    change(storage, key, edit)
    assert reduced(storage).chunks_read == 1
    report = frazil.Repository.open(storage).upkeep.build_statistics()
    assert (report.chunks_read, report.manifests_written) == (1, 1)
    ((_, columns),) = parsed(bytes(storage.get(key)))[1].items()
    assert (columns["zeros"][:, 0] == [0, 1, 2, 3, 2**64 - 1, 5, 6, 7, 8, 9]).all()
    assert (reduced(storage).sum, reduced(storage).chunks_read) == (19900.0, 0)


@pytest.mark.parametrize("name", ["known", "nan", "minimum", "sum", "squares", "extent"])
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_file_without_a_required_column_is_ignored(name: str, is_lost: bool) -> None:
    storage, key = one_array()

    def edit(columns: dict[str, NDArray[Any]]) -> None:
        column = columns.pop(name)
        if not is_lost:
            columns[name] = column.astype("<f4")

    change(storage, key, edit)
    assert (reduced(storage).sum, reduced(storage).chunks_read) == (19900.0, 10)
    assert frazil.Repository.open(storage).upkeep.build_statistics().chunks_read == 10
    assert (reduced(storage).sum, reduced(storage).chunks_read) == (19900.0, 0)


@pytest.mark.parametrize(
    "column",
    [
        *(["x", "|O", []], ["x", "<u4,<u4", []], ["x", "|V0", []], ["x", "no", []], ["x", "?", []]),
        *(["x", "<u8", [-1]], ["x", "<u8", [1 << 40]], ["x", "<u8", [0]], ["nan", "<u8", []]),
        *([1, "<u8", []], ["x", 5, []], ["x", "<u8"], ["", "<u8", "a"]),
    ],
)
def test_columns_that_are_none_are_ignored(column: list[Any]) -> None:
    storage, key = one_array()
    header, nodes = parsed(bytes(storage.get(key)))
    data = assembled(header, nodes)
    header["arrays"][0]["columns"].append(column)
    storage.put(key, sealed(header, frames_of(data)))
    assert (reduced(storage).sum, reduced(storage).chunks_read) == (19900.0, 10)


def test_a_damaged_file_costs_reads_and_no_answer() -> None:
    storage, key = one_array()
    data = bytes(storage.get(key))
    dice = random.Random(5)
    damages = [data[: dice.randrange(len(data))] for _ in range(20)]
    for _ in range(60):
        changed = bytearray(data)
        changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        damages.append(bytes(changed))
    of_another_manifest, its_key = one_array()
    for damage in [b"", b"\0" * len(data), *damages, of_another_manifest.get(its_key)]:
        storage.put(key, damage)
        result = reduced(storage)
        assert (result.sum, result.max, result.chunks_read) == (19900.0, 199.0, 10)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("minimum", 1e9), ("sum", 1e9), ("sum", np.nan), ("squares", -1.0), ("nan", 6), ("extent", 4)],
        ("missing", 1),  # the array declares no missing value
    ],
)
def test_rows_that_contradict_themselves_are_ignored(column: str, value: float) -> None:
    storage, key = one_array(5)
    change(storage, key, lambda columns: columns[column].__setitem__(3, value))
    result = reduced(storage)
    assert (result.sum, result.max, result.nan, result.chunks_read) == (19900.0, 199.0, 0, 1)


def manifest_of(storage: frazil.Storage) -> Manifest:
    workspace = frazil.Repository.open(storage).readonly_session("main").workspace
    node = workspace.require_array("/t")
    assert node.array is not None
    return workspace.manifests([ref.id for ref in node.array.manifests])[0]


def test_a_file_that_claims_large_columns_takes_no_memory() -> None:
    storage, key = one_array(5)
    manifest, (header, _) = manifest_of(storage), parsed(bytes(storage.get(key)))
    (array,), frame = header["arrays"], frames_of(bytes(storage.get(key)))
    hostile = [([{**array, "tiles": tiles}], frame) for tiles in (0, -1, 1 << 40, 1 << 62)]
    zeros = zstandard.ZstdCompressor(19).compress(bytes(row_dtype("f", 1).itemsize * 40 * 25_000))
    many = {**array, "tiles": 25_000, "size": len(zeros)}
    hostile += [([array] * 2, frame * 2), ([array, many], frame + zeros)]
    for arrays, frames in hostile:
        document = {"manifest": id_to_text(manifest.id), "arrays": arrays}
        with pytest.raises(ValueError, match="it has"):
            decode_statistics(sealed(document, frames), manifest.id, manifest.arrays)


def test_the_file_of_other_references_is_refused() -> None:
    storage, key = one_array()
    manifest, data = manifest_of(storage), storage.get(key)
    assert decode_statistics(data, manifest.id, manifest.arrays)
    ((node, table),) = manifest.arrays.items()
    for column in ("offset", "length"):
        other = replace(table, **{column: getattr(table, column) + np.uint64(1)})
        with pytest.raises(ValueError, match="other references"):
            decode_statistics(data, manifest.id, {node: other})


def test_an_absent_column_is_a_value() -> None:
    rows = np.zeros((2, 1), [("known", "?"), ("zeros", "<u8"), ("pair", "<f8", (2,))])
    rows["known"] = [[True], [False]]
    rows["pair"][0] = np.frombuffer(b"\xff" * 16)
    assert absent_rows(rows, "zeros").ravel().tolist() == [False, True]
    assert absent_rows(rows, "pair").ravel().tolist() == [True, True]
    assert absent_rows(rows, "median").all()


def every_kind(store: Any) -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(280, 5, (30, 7)).astype("f4")
    values[3] = np.nan
    zarr.create_array(store, name="f4", data=values, chunks=(4, 3))
    packed: dict[str, Any] = {"scale_factor": 0.1, "_FillValue": -9}
    integers = rng.integers(-9, 99, (30, 7)).astype("i2")
    zarr.create_array(store, name="i2", data=integers, chunks=(4, 3), attributes=packed)
    sharded = ShardingCodec(chunk_shape=(2, 3), codecs=[BytesCodec()])
    array = zarr.create(
        store=store, path="sharded", shape=(30, 7), chunks=(8, 6), dtype="u8", codecs=[sharded], zarr_format=3
    )
    array[:] = rng.integers(0, 2**63, (30, 7)).astype("u8")
    zarr.create_array(store, name="scalar", data=np.array(5.0))
    zarr.create_array(store, name="times", data=np.array([3, 2**62, 1], "M8[s]"), chunks=(2,))


def test_verification_compares_statistics_with_chunks() -> None:
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, config=ON)
    with repo.transaction("main", message="arrays") as store:
        every_kind(store)
    with repo.transaction("main", message="other extents") as store:
        zarr.open_array(store, path="f4").resize((29, 6))
    assert repo.upkeep.verify("decode").ok
    for key in file_keys(storage):
        header, nodes = parsed(bytes(storage.get(key)))
        for node, columns in nodes.items():
            other = {name: column.copy() for name, column in columns.items()}
            other["maximum"].reshape(-1)[-1] += 1
            nodes[node] = other
        storage.put(key, assembled(header, nodes))
    repo = frazil.Repository.open(storage)
    report = repo.upkeep.verify("decode")
    assert {each.check for each in report.problems} == {"statistics"}
    assert len({each.node for each in report.problems}) == 5
    assert repo.upkeep.verify("checksum").ok
    assert not frazil.Repository.upkeep.repair(storage, level="decode").steps
    for version in repo.ancestry(branch="main"):
        rebuilt = repo.upkeep.build_statistics(version.id, rebuild=True)
        assert (rebuilt.chunks_read, rebuilt.chunks_failed) == (rebuilt.chunks, 0)
    assert not frazil.Repository.open(storage).upkeep.verify("decode").problems


def test_a_rebuild_replaces_wrong_statistics_of_the_arrays_that_it_names() -> None:
    storage = frazil.in_memory_storage()
    repo = frazil.Repository.create(storage, config=ON)
    with repo.transaction("main", message="arrays") as store:
        for name in ("t", "u"):
            zarr.create_array(store, name=name, data=np.arange(40.0), chunks=(10,))
    for key in file_keys(storage):
        header, nodes = parsed(bytes(storage.get(key)))
        for node, columns in nodes.items():
            nodes[node] = columns | {"maximum": columns["maximum"] + 100}
        storage.put(key, assembled(header, nodes))
    repo = frazil.Repository.open(storage)
    assert repo.upkeep.build_statistics().chunks_read == 0
    assert repo.upkeep.build_statistics("main", ["/t"], rebuild=True).chunks_read == 4
    session = frazil.Repository.open(storage).readonly_session("main")
    assert [frazil.reduce(frazil.Array(session, path)).max for path in ("/t", "/u")] == [39, 139]

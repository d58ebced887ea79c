"""Large repositories. A buffer holds copies of one table: all offsets inside of a table are relative."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from icechunk_kit.case import Step, ask, case, read
from icechunk_kit.cases.history import log, node, value
from icechunk_kit.files import (
    FIRST_TIME,
    ROOT_ID,
    Change,
    Document,
    Node,
    Repository,
    encode_id,
    identifier,
    inline,
)
from icechunk_kit.schema import pack, unpack

# A case is a paragraph, not a column of arguments.
# fmt: off

type Rows = npt.NDArray[np.uint8]
SLOW = "Repositories of this size exist. A reader needs a cost that grows with what it reads."

def tiles(kind: str, document: Document, count: int) -> tuple[Rows, int]:
    """Return copies of a table as rows of bytes, and the place of the table in each row."""
    data = pack(kind, document)
    start = struct.unpack_from("<I", data)[0] - 8
    data = data[8:] + bytes(-len(data) % 8)
    return np.tile(np.frombuffer(data, np.uint8), (count, 1)), start

def write_column(rows: Rows, marker: bytes, values: npt.NDArray[Any]) -> None:
    """Replace the bytes of a marker by one value in each row."""
    place = rows[0].tobytes().index(marker)
    rows[:, place : place + values.dtype.itemsize * (values.size // len(rows))] = (
        np.ascontiguousarray(values).view(np.uint8).reshape(len(rows), -1)
    )

def with_vector(body: bytes, rows: Rows, start: int, place: int) -> bytes:
    """Return a buffer whose empty vector at a place becomes the vector of the rows, at the end of the buffer.

    Args:
        place: The place of the offset of the vector.
    """
    body += bytes(-len(body) % 8)
    head = len(body) + 4 + 4 * len(rows)
    gap = -head % 8
    where = np.arange(len(rows), dtype=np.int64)
    offsets = head + gap + where * rows.shape[1] + start - (len(body) + 4 + 4 * where)
    vector = struct.pack("<I", len(rows)) + offsets.astype("<u4").tobytes() + bytes(gap)
    offset = struct.pack("<I", len(body) - place)
    return b"".join([body[:place], offset, body[place + 4 :], vector, rows.tobytes()])

def vector_place(body: bytes, slot: int, place: int | None = None) -> int:
    """Return the place of the offset in a slot of a table, by default of the root."""
    table = struct.unpack_from("<I", body)[0] if place is None else place
    vtable = table - struct.unpack_from("<i", body, table)[0]
    return int(table + struct.unpack_from("<H", body, vtable + 4 + 2 * slot)[0])

def references(count: int) -> Change:
    """Return a change of a manifest with one array: chunk n is the 4 bytes at 4n of a chunk file."""

    def change(body: bytes) -> bytes:
        reference = {
            "index": [0xDDDDDDDD],
            "offset": 0xEEEEEEEEEEEE,
            "length": 4,
            "chunk_id": identifier("data"),
        }
        rows, start = tiles("ChunkRef", reference, count)
        write_column(rows, b"\xdd" * 4, np.arange(count, dtype="<u4"))
        write_column(rows, b"\xee" * 6 + b"\0\0", np.arange(count, dtype="<u8") * 4)
        document = unpack("Manifest", body)
        document["arrays"][0]["refs"] = []
        body = pack("Manifest", document)
        arrays = vector_place(body, 1)
        element = arrays + struct.unpack_from("<I", body, arrays)[0] + 4
        table = element + struct.unpack_from("<I", body, element)[0]
        return with_vector(body, rows, start, vector_place(body, 1, table))

    return change

MILLION = 1_000_000

@case("scale.references", "reader", "2.0", "One element per chunk reference in the array.", SLOW, seconds=60)
def _references(folder: Path) -> list[Step]:
    repository = Repository(folder)
    array = Node("/a", [4 * MILLION], [4], refs={(0,): inline(b"-")}, split=[[(0, MILLION)]])
    repository.commit([array], header={"Manifest": {"body": references(MILLION)}})
    repository.write()
    data = np.arange(MILLION, dtype="<u4").tobytes()
    repository.put(f"chunks/{encode_id(identifier('data'))}", data)
    places = (0, 1, 499_999, 999_999)
    return [read("/a", {(n,): struct.pack("<I", n) for n in places}), ask("count", MILLION, path="/a")]

def snapshots(count: int) -> Change:
    """Return a change of the repo file: a chain of snapshots with ids that ascend."""

    def change(body: bytes) -> bytes:
        info = {
            "id": b"\xdd" * 12,
            "parent_offset": 0x77777777,
            "flushed_at": 0xEEEEEEEEEEEE,
            "message": "commit",
            "metadata": [],
        }
        rows, start = tiles("SnapshotInfo", info, count)
        number = np.arange(count)
        ids = np.zeros((count, 12), np.uint8)
        ids[:, :4] = np.ascontiguousarray(number.astype(">u4")).view(np.uint8).reshape(-1, 4)
        write_column(rows, b"\xdd" * 12, ids)
        write_column(rows, b"\x77" * 4, (number - 1).astype("<i4"))
        write_column(rows, b"\xee" * 6 + b"\0\0", FIRST_TIME + number.astype("<u8"))
        document = unpack("Repo", body) | {"snapshots": [], "tags": []}
        document["branches"] = [{"name": "main", "snapshot_index": count - 1}]
        body = pack("Repo", document)
        return with_vector(body, rows, start, vector_place(body, 4))

    return change

for _count in (3_000, 100_000):

    @case(f"scale.commits.{_count}", "reader", "2.0", "All snapshots in this repository.", SLOW, seconds=60)
    def _(folder: Path, count: int = _count) -> list[Step]:
        repository = Repository(folder)
        last = struct.pack(">I", count - 1) + bytes(8)
        repository.commit([node(5)], id=last)
        repository.write(body=snapshots(count))
        return [ask("refs", {"branches": {"main": encode_id(last)}, "tags": {}}), value(5),
            log(["commit"] * count)]

@case("scale.nodes", "reader", "2.0", "All nodes in this snapshot.", SLOW, seconds=60)
def _nodes(folder: Path) -> list[Step]:
    repository = Repository(folder)
    paths = [f"/g{n // 100:03}/a{n % 100:02}" for n in range(10_000)]
    nodes = [Node(path, [4], [2]) for path in paths]
    nodes[7_777].refs = {(1,): inline(b"\1")}
    repository.commit([*(Node(f"/g{n:03}") for n in range(100)), *nodes])
    repository.write()
    return [read(paths[7_777], {(1,): b"\1"}), ask("metadata", path=paths[-1]), ask("list")]

@case("scale.refs", "reader", "2.0", "All tags.", SLOW, seconds=60)
def _refs(folder: Path) -> list[Step]:
    repository = Repository(folder)
    id = repository.commit([node(5)])
    repository.tags = {f"v{n}": id if n % 2 else ROOT_ID for n in range(10_000)}
    repository.write()
    return [value(5, ref={"tag": "v7777"}), log(["Repository initialized"], ref={"tag": "v9998"})]

@case("scale.manifests", "reader", "2.0", "Pointers to all manifest files containing chunk references", SLOW)
def _manifests(folder: Path) -> list[Step]:
    repository = Repository(folder)
    refs = {(n,): inline(bytes([n % 251])) for n in range(300)}
    repository.commit([Node("/a", [300], [1], refs=refs, split=[[(n, n + 1)] for n in range(300)])])
    repository.write()
    return [read("/a", {(n,): bytes([n % 251]) for n in (0, 150, 299)}), ask("count", 300, path="/a")]

@case("scale.manifest.arrays", "reader", "2.0", "One element for each array that has chunk refs", SLOW)
def _arrays(folder: Path) -> list[Step]:
    repository = Repository(folder)
    repository.commit([node(n % 251, f"/{n:04}") for n in range(3_000)], shared=True)
    repository.write()
    return [value(n % 251, f"/{n:04}") for n in (0, 1, 1_499, 2_999)]

@case("scale.updates", "reader", "2.0", "Repo.latest_updates list holds recent operations", SLOW)
def _updates(folder: Path) -> list[Step]:
    repository = Repository(folder)
    for _ in range(999):
        repository.log("ConfigChangedUpdate")
    repository.write()
    kinds = [*["ConfigChangedUpdate"] * 999, "RepoInitializedUpdate"]
    return [ask("updates", [{"kind": kind, "time": "*"} for kind in kinds])]

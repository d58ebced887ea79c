"""Large repositories. A buffer holds copies of one table: all offsets inside of a table are relative."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from icechunk_kit.case import Step
from icechunk_kit.cases.repositories import Builder, line
from icechunk_kit.files import FIRST_TIME, Document, Node, encode_id, identifier, inline
from icechunk_kit.schema import pack, unpack

type Rows = npt.NDArray[np.uint8]


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


@line
def references(builder: Builder, count: str) -> None:
    """Commit one array: chunk n is the 4 bytes at 4n of a chunk file."""
    number = np.arange(int(count))

    def change(body: bytes) -> bytes:
        reference = {
            "index": [0xDDDDDDDD],
            "offset": 0xEEEEEEEEEEEE,
            "length": 4,
            "chunk_id": identifier("data"),
        }
        rows, start = tiles("ChunkRef", reference, len(number))
        write_column(rows, b"\xdd" * 4, number.astype("<u4"))
        write_column(rows, b"\xee" * 6 + b"\0\0", number.astype("<u8") * 4)
        document = unpack("Manifest", body)
        document["arrays"][0]["refs"] = []
        body = pack("Manifest", document)
        arrays = vector_place(body, 1)
        element = arrays + struct.unpack_from("<I", body, arrays)[0] + 4
        table = element + struct.unpack_from("<I", body, element)[0]
        return with_vector(body, rows, start, vector_place(body, 1, table))

    builder.headers["Manifest"] = {"body": change}
    box = [(0, len(number))]
    builder.commit([Node("/a", [4 * len(number)], [4], refs={(0,): inline(b"-")}, split=[box])])
    builder.repository.put(f"chunks/{encode_id(identifier('data'))}", number.astype("<u4").tobytes())


@line
def chain(builder: Builder, count: str) -> list[Step]:
    """Write a repo file with a chain of snapshots, whose ids ascend. The last one has a file."""
    number = np.arange(int(count))

    def change(body: bytes) -> bytes:
        info = {"id": b"\xdd" * 12, "parent_offset": 0x77777777, "flushed_at": 0xEEEEEEEEEEEE}
        rows, start = tiles("SnapshotInfo", info | {"message": "commit", "metadata": []}, len(number))
        ids = np.zeros((len(number), 12), np.uint8)
        ids[:, :4] = np.ascontiguousarray(number.astype(">u4")).view(np.uint8).reshape(-1, 4)
        write_column(rows, b"\xdd" * 12, ids)
        write_column(rows, b"\x77" * 4, (number - 1).astype("<i4"))
        write_column(rows, b"\xee" * 6 + b"\0\0", FIRST_TIME + number.astype("<u8"))
        document = unpack("Repo", body) | {"snapshots": [], "tags": []}
        document["branches"] = [{"name": "main", "snapshot_index": len(number) - 1}]
        body = pack("Repo", document)
        return with_vector(body, rows, start, vector_place(body, 4))

    last = struct.pack(">I", len(number) - 1) + bytes(8)
    builder.headers["Repo"] = {"body": change}
    builder.repository.commit([Node("/a", [3], [1], refs={(0,): inline(b"\5")})], id=last)
    builder.ids["one"] = last
    messages = [{"id": "*", "message": "commit", "time": "*"}] * len(number)
    return [{"op": "log", "ref": {"branch": "main"}, "expect": messages}]


@line
def manifests(builder: Builder, count: str) -> None:
    refs = {(n,): inline(bytes([n % 251])) for n in range(int(count))}
    builder.commit([Node("/a", [int(count)], [1], refs=refs, split=[[(n, n + 1)] for (n,) in refs])])

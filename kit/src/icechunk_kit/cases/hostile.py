"""Files that are right in an unusual form, and files that are wrong: what a line of a case cannot say."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zstandard
from flatbuffers import flexbuffers  # type: ignore[import-untyped]

from icechunk_kit.case import Step
from icechunk_kit.cases.repositories import DICTIONARY, NAMED, Builder, line, node, patch
from icechunk_kit.cases.script import steps
from icechunk_kit.files import ROOT_ID, Change, edit, encode_id, flexbuffer


def streamed(body: bytes) -> bytes:
    """Return a frame with a checksum and without the size of its content."""
    stream = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compressobj()
    return bytes(stream.compress(body) + stream.flush())


def frames(body: bytes) -> bytes:
    return b"".join(streamed(body[start : start + 50]) for start in range(0, len(body), 50))


def vtable_after(body: bytes) -> bytes:
    """Move the vtable of the root behind the table."""
    root = struct.unpack_from("<I", body)[0]
    vtable = root - struct.unpack_from("<i", body, root)[0]
    size = struct.unpack_from("<H", body, vtable)[0]
    data = bytearray(body + bytes(-len(body) % 4))
    struct.pack_into("<i", data, root, root - len(data))
    return bytes(data + body[vtable : vtable + size])


def bomb(size: int, declared: int | None = None) -> Change:
    """Return a compression that gives a frame of zeros: 4 bytes for each 128 KiB."""
    head = b"\x28\xb5\x2f\xfd"
    head += b"\x00\x38" if declared is None else b"\xc0\x38" + struct.pack("<Q", declared)
    block = 128 * 1024
    blocks = [struct.pack("<I", (block << 3) | 2)[:3] + b"\0"] * (size // block)
    blocks[-1] = struct.pack("<I", (block << 3) | 3)[:3] + b"\0"
    return lambda body: head + b"".join(blocks)


def doubled(levels: int) -> bytes:
    """Return a FlexBuffer of vectors: each one holds the one before it twice."""
    out = bytearray(b"\1\7\4")  # one element, the integer 7
    for level in range(levels):
        start = len(out) - (2 if level == 0 else 4)
        out += bytes([2, len(out) + 1 - start, len(out) + 2 - start, 0x28, 0x28])
    return bytes(out + bytes([4, 0x28, 1]))


def built(build: Callable[[Any], object]) -> bytes:
    builder = flexbuffers.Builder()
    build(builder)
    return bytes(builder.Finish())


REST = random.Random(1).randbytes(400_000)
NAMED |= {
    "CONFIG": flexbuffer({"inline_chunk_threshold_bytes": 12, "later": {"x": [None]}}),
    "DEEP_JSON": b'{"a":' * 200_000,
    "DICTIONARY": DICTIONARY,
    "LATER": [("string", "later"), ("u64", 2**63), ("[ObjectId12]", [bytes(12)])],
    "BY_COMPONENTS": lambda rows: sorted(rows, key=lambda row: row["path"].split("/")),
    "REPEATED": lambda rows: [rows[0] | {"refs": rows[0]["refs"] * 100_000}] * 2000,
    "REVERSED": lambda rows: rows[::-1],
    "TWICE": lambda rows: [row for row in rows for _ in range(2)],
    "OWNER": [{"name": "owner", "value": flexbuffer({"a": [1]})}],
    # compressions, and changes of a body or of a file
    "bomb_declared": bomb(2**20, 2**50),
    "bomb_declared_small": bomb(3 * 2**30, 1000),
    "bomb_undeclared": bomb(3 * 2**30),
    "cut": lambda body: streamed(body + REST)[:-9],
    "frames": frames,
    "high_level": lambda body: zstandard.compress(body, 19),
    "streamed": streamed,
    "unchanged": bytes,
    "wrong_checksum": lambda body: streamed(body)[:-1] + b"\0",
    "longer": lambda body: body + bytes(64),
    "vtable_after": vtable_after,
    "zeros": lambda body: bytes(len(body)),
    "empty": lambda file: b"",
    "half": lambda file: file[: len(file) // 2],
    "html": lambda file: b"<html>" + b"404 " * 99,
    "no_body": lambda file: file[:39],
    "short": lambda file: file[:38],
    # properties of a snapshot
    "deep": b"\x91" * 1_000_000,
    "doubled": doubled(40),
    "typed-integers": built(lambda b: b.TypedVectorFromElements([1, -2, 300])),
    "typed-floats": built(lambda b: b.TypedVectorFromElements([0.5, 1.5, 2.5, 3.5, 4.5])),
    "fixed-integers": built(lambda b: b.FixedTypedVectorFromElements([1, 2, 3])),
    "indirect": built(lambda b: b.VectorFromElements([0.25, 7])),
    "float32": built(lambda b: b.Float(0.25, 4)),
    "unsigned": built(lambda b: b.UInt(2**64 - 1)),
}
#: The request that needs each kind of file.
REQUESTS = {
    "Repo": "refs main=two",
    "Snapshot": "nodes main / /a* /b* /g",
    "Manifest": "read main /a 696e6c696e65 0203",
    "TransactionLog": 'diff one two \'new=["/b", "/g"]\' \'chunks={"/a": [[1]], "/b": [[0, 1]]}\'',
}


def damaged(builder: Builder, folder: str, kind: str, **header: Any) -> list[Step]:
    """Write a repository with damage in the files of one kind that the last commit or `repo` has."""
    builder.perform(f"at {folder}")
    builder.perform("snapshot one: /a 4/1 0=696e6c696e65")
    builder.headers[kind] = header
    nodes = ("/a 4/1 0=696e6c696e65 1=native:0203 'names=[\"x\"]'", "/b 2,2/1,1 0,1=04", "/g")
    builder.commit([node(text) for text in nodes], "two", shared=True, message="commit")
    return [step | builder.facts for step in steps(REQUESTS[kind])]


@line
def truncated(builder: Builder, kind: str, part: str) -> list[Step]:
    """Cut a file, or its body: of a buffer that is cut, a reader may read what is whole."""
    result = []
    for share in range(16):
        cut = {part: lambda data, share=share: data[: len(data) * share // 16]}
        for step in damaged(builder, str(share), kind, **cut):
            answers = [{"error": "*"}, *([step["expect"]] if part == "body" else [])]
            result.append(step | {"expect": {"any": answers}})
    return result


@line
def words(builder: Builder, kind: str, word: str) -> list[Step]:
    result = []
    for place in range(0, 600, 4 if kind in ("Snapshot", "Manifest") else 12):
        result += damaged(builder, str(place), kind, body=patch(place, bytes.fromhex(word)))
    return [step | {"expect": {"any": ["*", {"error": "*"}]}} for step in result]


@line
def property(builder: Builder, text: str) -> None:
    """Commit a property with the encoded value."""
    value = NAMED[text] if text in NAMED and isinstance(NAMED[text], bytes) else bytes.fromhex(text)
    items = [{"name": "key", "value": value}]
    builder.edits = {"Snapshot": edit("", metadata=items), "Repo": edit("snapshots.*", metadata=items)}
    builder.commit([])


@line
def expire(builder: Builder, *names: str) -> None:
    """Take snapshots away. The next one keeps their logs."""
    builder.perform(f"forget {' '.join(names)}")
    logs = [builder.ids[name] for name in names]
    builder.repository.snapshots[-1] |= {"parent": ROOT_ID, "info": {"pruned_ancestor_tx_logs": logs}}
    for id in logs:
        Path(builder.folder, "snapshots", encode_id(id)).unlink()

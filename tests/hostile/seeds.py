"""One or a few valid files for each decoder, with all fields of the format and as small as possible."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from zipfile import ZipFile

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
from importer.tests.writer import repository
from tests.hostile import generator
from tests.support.config_bytes import encode_config

import frazil
from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.changes.reads import ReadSet
from frazil.format.chunk_trailer import crc32c, encode_trailer
from frazil.format.ids import id_to_text
from frazil.format.manifest import InlineRef, NativeRef, VirtualRef
from frazil.format.nodes import ArrayData, ManifestRef, Node
from frazil.format.transaction_log import Move
from frazil.jobs.job import Input
from frazil.jobs.staging import StagedPlan, encode_plan
from frazil.jobs.task_results import Outcome, Segment, TaskResult, encode_changes, encode_result
from frazil.pipeline.publishing import AUDIT
from frazil.repository.catalog.collection_guard import STAGING
from frazil.repository.catalog.history_records import JOB
from frazil.repository.settings.config_document import to_document
from frazil.repository.settings.config_yaml import dump_config
from frazil.storage.checks import Traffic
from frazil_import.generations import GENERATIONS

GOLDEN = Path(__file__).parents[1] / "golden"
LOW, HIGH = b"\3" * 12, b"\4" * 12
DOCUMENT = (
    b'{"zarr_format":3,"node_type":"array","shape":[9,4],"data_type":"int16","fill_value":0,'
    b'"chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4,2]}},"attributes":{"a":1},'
    b'"chunk_key_encoding":{"name":"default"},"codecs":[{"name":"bytes"},{"name":"zstd"}],'
    b'"dimension_names":["x",null]}'
)
RECTILINEAR = DOCUMENT.replace(
    b'{"name":"regular","configuration":{"chunk_shape":[4,2]}}',
    b'{"name":"rectilinear","configuration":{"kind":"inline","chunk_shapes":[[4,[1,5]],2]}}',
)


def largest_files(folder: str) -> list[bytes]:
    """The largest file of a folder in small repositories: two of the reference, and one of each version."""
    groups = []
    for name in ("story", "expired"):
        with ZipFile(GOLDEN / f"{name}.zip") as archive:
            names = [each for each in archive.namelist() if f"{each}/".startswith(f"repo/{folder}/")]
            groups.append(list(map(archive.read, names)))
    for version in (2, 1):
        storage = generator.repository(version)
        groups.append([bytes(storage.get(key)) for key in generator.keys(storage, folder)])
    return [max(group, key=len) for group in groups if group]


def stream_records() -> dict[str, list[dict[str, object]]]:
    return {"q": [{"batch": 3, "snapshot": id_to_text(LOW), "branch": "main", "alone": True}]}


def job_records() -> list[dict[str, object]]:
    snapshot = id_to_text(LOW)
    return [{"id": "j", "snapshot": snapshot, "branch": "main", "work": "5a", "commit": snapshot}]


def configuration() -> frazil.RepositoryConfig:
    config = frazil.RepositoryConfig.default()
    config.inline_chunk_threshold_bytes = 12
    config.compression = frazil.CompressionConfig(level=3)
    store = frazil.s3_store(region="us-east-1")
    config.set_virtual_chunk_container(frazil.VirtualChunkContainer("s3://bucket/", store))
    config.manifest = frazil.ManifestConfig(
        splitting=frazil.ManifestSplittingConfig.from_dict(
            {frazil.ManifestSplitCondition.AnyArray(): {frazil.ManifestSplitDimCondition.Axis(0): 3}}
        )
    )
    return config


def config_flexbuffer() -> bytes:
    return encode_config(configuration())


def config_yaml() -> bytes:
    return dump_config(to_document(configuration()))


def old_files(folder: str) -> list[bytes]:
    """The largest file of each generation in a folder, and of the draft."""
    out = []
    for generation in GENERATIONS:
        layout = generation.layout
        place = {"snapshots": layout.snapshots, "manifests": layout.manifests, "refs": layout.refs}.get(
            folder, folder
        )
        files = [data for key, data in repository(generation.name).items() if key.startswith(f"{place}/")]
        if files:
            out.append(max(files, key=len))
    return out


def change_set() -> ChangeSet:
    edits = ChunkChanges("/a", 2)
    edits.set((0, 0), NativeRef(LOW, 3, 9))
    edits.set((0, 1), VirtualRef("s3://b/a.nc", 1, 2, "etag"))
    edits.set((0, 2), VirtualRef("s3://b/b.nc", 1, 2, None, 7))
    edits.set((1, 0), InlineRef(b"bytes"))
    edits.set((1, 1), None)
    other = ChunkChanges("/b", 0)
    other.set((), NativeRef(HIGH, 0, 9))
    array = ArrayData((9, 4), (3, 2), ("x", None), (ManifestRef(LOW, np.array([[0, 3], [1, 2]], np.uint32)),))
    return ChangeSet(
        {
            "/a": Node(b"\2" * 8, "/a", DOCUMENT, array),
            "/gone": None,
            "/g": Node(b"\3" * 8, "/g", b"{}", None),
        },
        {b"\2" * 8},
        {b"\3" * 8},
        {b"\5" * 8: True},
        {b"\2" * 8: edits, b"\6" * 8: other},
        {b"\7" * 8: Move("/old", "/new", b"\7" * 8, True)},
    )


def result() -> bytes:
    segment = Segment(f"{STAGING}/x/1", 0, 99, 3, (0, 0), (1, 2), b"\2" * 8)
    reads = ReadSet(frozenset({"/a"}), frozenset(), frozenset({"/g"}), {"/a": [np.zeros((1, 2), np.uint32)]})
    value = {
        "dates": [np.arange(3.0)],
        "text": ("é", None, 1.5, True, 1 << 70),
        "set": {1},
        "slice": slice(1),
    }
    outcome = Outcome(value, 1, 2, 3, 4)
    return encode_result(
        TaskResult(change_set(), outcome, 1, 2, 0.5, Traffic(), segments=(segment,), reads=reads)
    )


def message() -> bytes:
    return encode_changes(change_set())


def plan() -> bytes:
    return encode_plan(
        StagedPlan("job", "name", "main", "digest", id_to_text(LOW), 1, 2, 3, id_to_text(HIGH))
    )


def marker() -> bytes:
    return json.dumps({"age": 5, "left": 9, "purpose": "fork", "listed": True, "done": False}).encode()


def chunk_file() -> bytes:
    chunks = [b"first", b"second", b"third chunk"]
    return b"".join(chunks) + encode_trailer(LOW, list(map(len, chunks)), list(map(crc32c, chunks)))


def netcdf3(version: int = 1) -> bytes:
    """Two dimensions, one unlimited; a fixed and two record variables; attributes."""
    count, offset = {1: (4, 4), 2: (4, 8), 5: (8, 8)}[version]

    def number(value: int, width: int = count) -> bytes:
        return value.to_bytes(width, "big")

    def name(text: str) -> bytes:
        return number(len(text)) + text.encode().ljust(-(-len(text) // 4) * 4, b"\0")

    def attribute(text: str, kind: int, data: bytes, values: int) -> bytes:
        return name(text) + number(kind, 4) + number(values) + data.ljust(-(-len(data) // 4) * 4, b"\0")

    none = number(0, 4) + number(0)
    attrs = number(12, 4) + number(2) + attribute("title", 2, b"a b", 3)
    attrs += attribute("f", 5, struct.pack(">2f", 1.5, float("nan")), 2)
    dims = number(10, 4) + number(2) + name("time") + number(0) + name("x") + number(3)

    def header(begin: int) -> bytes:
        def variable(text: str, codes: list[int], kind: int, size: int, start: int) -> bytes:
            shape = number(len(codes)) + b"".join(map(number, codes))
            return name(text) + shape + none + number(kind, 4) + number(size) + number(start, offset)

        variables = number(11, 4) + number(3) + variable("x", [1], 3, 8, begin)
        variables += variable("time", [0], 6, 8, begin + 8) + variable("v", [0, 1], 5, 12, begin + 16)
        return b"CDF" + bytes([version]) + number(2) + dims + attrs + variables

    begin = len(header(0))
    records = b"".join(struct.pack(">d3f", at, 1, 2, 3) for at in range(2))
    return header(begin) + struct.pack(">3h", 1, 2, 3).ljust(8, b"\0") + records


def tiff(*, order: str = "<", big: bool = False, tiled: bool = False) -> bytes:
    """An image of 4 rows and 4 columns of 8 bits in two strips or tiles, with a second page."""
    word, head = ("Q", 16) if big else ("I", 8)
    layout = {322: (3, [2]), 323: (3, [4]), 324: (4, [0, 8]), 325: (4, [8, 8])}
    strips = {273: (4, [0, 8]), 278: (3, [2]), 279: (4, [8, 8])}
    tags = {256: (3, [4]), 257: (3, [4]), 258: (3, [8]), 259: (3, [1]), 262: (3, [1]), 277: (3, [1])}
    tags |= layout if tiled else strips
    codes, inline = {3: "H", 4: "I"}, 8 if big else 4
    entry_size = 20 if big else 12
    counted = 8 if big else 2
    end = head + counted + len(tags) * entry_size + (8 if big else 4)
    entries, more = b"", b""
    for tag, (kind, values) in sorted(tags.items()):
        at = [value + 200 if tag in (273, 324) else value for value in values]
        data = struct.pack(f"{order}{len(at)}{codes[kind]}", *at)
        if len(data) > inline:
            place, more = end + len(more), more + data
            data = struct.pack(order + word, place)
        entries += struct.pack(f"{order}HH{word}", tag, kind, len(at)) + data.ljust(inline, b"\0")
    first = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}H", 43 if big else 42)
    first += struct.pack(f"{order}HHQ", 8, 0, head) if big else struct.pack(f"{order}I", head)
    directory = struct.pack(order + ("Q" if big else "H"), len(tags)) + entries + struct.pack(order + word, 0)
    return (first + directory + more).ljust(400, b"\1")


def grib(edition: int = 2) -> bytes:
    """Two messages with the sections that the reader looks at, whose data are zeros."""
    if edition == 1:
        body = bytes(40)
        return b"".join([b"GRIB", (len(body) + 12).to_bytes(3, "big"), b"\1", body, b"7777"] * 2)
    sections = [(1, 21), (3, 72), (4, 34), (5, 23), (6, 6), (7, 9)]
    body = b"".join(size.to_bytes(4, "big") + bytes([number]) + bytes(size - 5) for number, size in sections)
    head = b"GRIB\0\0\0\2" + (16 + len(body) + 4).to_bytes(8, "big")
    return (head + body + b"7777") * 2


def job_record() -> bytes:
    entry = Input("s3://bucket/r", "main", id_to_text(LOW), ("/a", "/g"), "00")
    record = {"id": "job", "name": "mean", "parameters": {"dim": "x"}, "inputs": [entry.as_json()]}
    record |= {"outputs": ["/a", "/b"], "work": "00", "metrics": {"seconds": 1.5, "tasks": 3}}
    return json.dumps({JOB: record, AUDIT: {"id": "job", "rows": [{"ok": True}, {"ok": False}]}}).encode()


def hdf5() -> bytes:
    """Dimension scales, attributes, a chunked and compressed dataset, and a contiguous one."""
    out = io.BytesIO()
    with h5py.File(out, "w", libver="latest") as file:
        x = file.create_dataset("x", data=np.arange(4.0))
        x.make_scale("x")
        values = file.create_dataset(
            "v", data=np.arange(12, dtype="i2").reshape(3, 4), chunks=(2, 2), compression="gzip", shuffle=True
        )
        values.dims[1].attach_scale(x)
        values.attrs.update({"units": "K", "_FillValue": np.int16(-1), "list": [1.5, 2.5]})
        file.create_dataset("text", data=["a", "b"], dtype=h5py.string_dtype())
        file.attrs["title"] = "seed"
    return out.getvalue()

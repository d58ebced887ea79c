"""Every function that decodes bytes which other people may have written, with its seeds.

``read`` decodes the bytes, asks for everything that is decoded lazily, and writes the value again. It
returns, or raises one of ``errors``. Any other exception is a defect.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from tests.hostile import mutations, seeds
from tests.hostile.forms import PLAIN, TRAILER, ZSTD, Form, part, parts_of_changes, sealed
from tests.hostile.mutations import Mutation, change_bytes, change_flatbuffer, change_json
from tests.hostile.schema import KINDS

from frazil.changes.zarr_metadata import chunk_lengths, parse_node, same_encoding
from frazil.errors import FormatError, IcechunkError, InvalidInputError
from frazil.format import flexbuffer, msgpack
from frazil.format.chunk_trailer import check_file, damaged_rows, decode_trailer, find_remains
from frazil.format.envelope import FileType, decode_one, open_envelope, reading
from frazil.format.ids import MANIFESTS, REPO, SNAPSHOTS, TRANSACTIONS
from frazil.format.joined_files import decode_chunk_files, decode_chunk_ranges, decode_manifests_of_snapshots
from frazil.format.manifest import (
    LazyTables,
    Manifest,
    decode_manifest,
    encode_manifest,
    find_ref,
    open_manifest,
)
from frazil.format.repo_info import RepoInfo, decode_repo_info, encode_repo_info
from frazil.format.snapshot import decode_entry, decode_snapshot, encode_snapshot
from frazil.format.transaction_log import (
    decode_transaction_log,
    decode_transaction_logs,
    encode_transaction_log,
)
from frazil.jobs.shared_job import decode_start
from frazil.jobs.staging import decode_plan, decode_round, encode_plan
from frazil.jobs.task_results import decode_changes, decode_result, joined
from frazil.pipeline.ingest.existing import EMPTY, ledger_of
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.provenance import Graph, _step
from frazil.readers.base_reader import Reader
from frazil.readers.files import SourceFile
from frazil.readers.geotiff import read_directory, read_layout
from frazil.readers.grib import check_messages, edition, length, packing
from frazil.readers.hdf5 import Hdf5Reader
from frazil.readers.netcdf3 import NetCdf3Reader
from frazil.repository.catalog.collection_guard import (
    LeaseLimit,
    collection_records,
    delete_killed_records,
    in_force,
    is_collecting,
)
from frazil.repository.catalog.files_v1 import decode_ref
from frazil.repository.catalog.history_records import JOBS, STREAMS, read_entries, read_records
from frazil.repository.catalog.presentation import history_infos
from frazil.repository.catalog.version_info import SnapshotInfo
from frazil.repository.clock import now_us, to_datetime
from frazil.repository.session.chunk_refs import claimed_bytes, require_plausible
from frazil.repository.settings.config_document import from_document, to_document
from frazil.repository.settings.config_yaml import dump_config, load_config
from frazil.storage.base import Storage
from frazil_import.generations import DOT, DRAFT, LAYOUTS
from frazil_import.generations import decode_ref as decode_old_ref
from frazil_import.manifest import decode_old_log, decode_old_manifest
from frazil_import.snapshot import decode_old_snapshot, format_signs

NAME = "some/file"
#: Values of more elements than this are not read, because the size is that of a valid file.
_MOST_VALUES = 1 << 16

type Read = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoder. ``forms`` are the packages in which its input comes, each with changes of the content."""

    read: Read
    seeds: Callable[[], list[bytes]]
    forms: tuple[tuple[Form, Mutation], ...] = ((PLAIN, change_bytes),)
    errors: tuple[type[Exception], ...] = (FormatError,)
    names_file: bool = True


def survives(decoder: Decoder, data: bytes) -> bool:
    """Return whether the decoder accepts the bytes; False after an error of the right type."""
    try:
        decoder.read(data)
    except decoder.errors as error:
        if decoder.names_file and NAME not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return False
    return True


def _each(calls: Iterable[Callable[[], Any]]) -> None:
    for call in calls:
        with contextlib.suppress(FormatError):
            call()


def _encode_again(call: Callable[[], Any]) -> None:
    with contextlib.suppress(IcechunkError):  # an encoder may refuse a value that a decoder accepts
        call()


def _same_together(
    decode: Callable[[list[bytes]], list[Any]], data: bytes, content: Callable[[Any], object]
) -> None:
    """Decode bytes as one of two files, which gives an error or the content of the only file."""
    with contextlib.suppress(FormatError), reading(NAME):
        together = decode([data, data])
        assert {content(each) for each in together} == {content(decode_one(decode, data, NAME))}


# Metadata files


def _history(info: RepoInfo, tip: bytes) -> None:
    for each in islice(history_infos(info, tip), 50):
        _each(
            partial(getattr, each, field)
            for field in ("id", "parent_id", "written_at", "message", "metadata")
        )


def _repo_info(data: bytes) -> None:
    info = decode_repo_info(data, NAME, [])
    rows = range(min(len(info.snapshots), 50))
    table = info.table
    _each([partial(_history, info, table.id_of(row)) for row in rows])
    _each(partial(method, row) for method in (table.entry, table.chain) for row in rows)
    _each(partial(info.ops.entry, row) for row in range(min(len(info.ops), 50)))
    _each([partial(read_records, info.metadata)])
    if info.config is not None:
        _each([partial(from_document, info.config)])
    _encode_again(lambda: encode_repo_info(info))


def _snapshot(data: bytes) -> None:
    snapshot = decode_snapshot(data, NAME, [])
    nodes = snapshot.nodes
    _each(partial(nodes.node, row) for row in range(min(len(nodes), 50)))
    _each(
        [nodes.paths_list, nodes.manifest_ids, partial(nodes.children, "/"), partial(nodes.find_node, "/a")]
    )
    _each([partial(decode_entry, data, NAME)])
    _same_together(decode_manifests_of_snapshots, data, lambda each: each.files.ids.tobytes())
    _encode_again(lambda: encode_snapshot(snapshot))


def _manifest(data: bytes) -> None:
    _same_together(decode_chunk_files, data, lambda each: each.chunk_ids.tobytes())
    _same_together(decode_chunk_ranges, data, lambda each: each.chunk_ids.tobytes())
    with reading(NAME):
        lazy = open_manifest(data, NAME)
    for node in list(cast("LazyTables", lazy.arrays).searches)[:2]:
        _each([partial(find_ref, lazy, node, coords) for coords in ((), (1,), (0, 1), (1, 2), (2, 1))])
    manifest = decode_manifest(data, NAME, [])
    for table in manifest.arrays.values():
        for row in range(min(len(table), 20)):
            table.find_chunk(tuple(table.index[row].tolist()))
            _each([partial(table.ref, row)])
    small = {node: table for node, table in manifest.arrays.items() if len(table) < 100}
    _encode_again(lambda: encode_manifest(Manifest(manifest.id, small)))


def _transaction_log(data: bytes) -> None:
    log = decode_transaction_log(data, NAME, [])
    _same_together(decode_transaction_logs, data, repr)
    _encode_again(lambda: encode_transaction_log(log))


def _flatbuffer(kind: FileType, *versions: int) -> tuple[tuple[Form, Mutation], ...]:
    root = next(table for each, table in KINDS.values() if each is kind)
    changes: tuple[Mutation, ...] = (partial(change_flatbuffer, table=root), change_bytes)
    packages = [(sealed(kind, version), change) for version in versions for change in changes]
    return (*packages, (PLAIN, change_bytes))


# Configuration, refs, markers


def _configuration(document: Any) -> None:
    config = from_document(document)
    repr(config)
    _encode_again(lambda: to_document(config))


def _config_yaml(data: bytes) -> None:
    document = load_config(data, NAME)
    _configuration(document)
    dump_config(document)


class BytesStorage:
    """A storage with the same bytes in every object."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def list(self, prefix: str) -> list[Any]:
        info = SimpleNamespace(key=f"{prefix}/x", modified=to_datetime(now_us()), size=len(self.data))
        return [cast("Any", info)]

    def get(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        return self.data[start:stop]

    def head(self, key: str) -> None:
        return None

    def delete(self, keys: object) -> None:
        pass


def _markers(data: bytes) -> None:
    storage = cast("Storage", BytesStorage(data))
    now = now_us()
    limit = LeaseLimit(storage, now, now - 10)
    to_datetime(max(0, limit.refresh()))
    for lease in in_force(storage, now):
        to_datetime(max(0, lease.since)), to_datetime(lease.until)
    for record in collection_records(storage):
        record.garbage(storage)
    is_collecting(storage)
    delete_killed_records(storage, now)


def _records(read: Callable[[dict[str, Any]], Any], data: bytes) -> None:
    metadata = flexbuffer.loads(data, NAME)
    if isinstance(metadata, dict):  # as `read_metadata` returns it
        read(metadata)


# Older formats


def _old(decode: Callable[..., Any], data: bytes) -> None:
    try:
        decode(data, NAME, DRAFT)
    except FormatError:
        decode(data, NAME, DOT)


def _old_snapshot(data: bytes) -> None:
    for layout in LAYOUTS.values():
        _each([partial(format_signs, data, NAME, layout, True)])
    _old(decode_old_snapshot, data)


def _packages_of_older(kind: FileType) -> tuple[tuple[Form, Mutation], ...]:
    changes = (change_json, mutations.change_msgpack, change_bytes)
    forms = (PLAIN, sealed(kind, 1), ZSTD)
    return tuple((form, change) for form in forms for change in changes)


# Staged work


_HEADER, _COLUMNS = parts_of_changes(seeds.message())
_WIRE: tuple[tuple[Form, Mutation], ...] = (
    (PLAIN, change_bytes),
    (_HEADER, change_json),
    (_COLUMNS, change_bytes),
)


# Documents and chunks of arrays


def _zarr_json(data: bytes) -> None:
    array = parse_node(data)
    same_encoding(data, seeds.DOCUMENT)
    if array is not None:
        chunk_lengths(data)
    _each([partial(require_plausible, NAME, data, b"", ("zstd", 1 << 30))])


def _chunk(data: bytes) -> None:
    if (claimed := claimed_bytes(data)) is not None:
        require_plausible(NAME, seeds.DOCUMENT, data, claimed)


def _chunk_trailer(data: bytes) -> None:
    find_remains(seeds.LOW, data)
    check_file(seeds.LOW, data)
    trailer = decode_trailer(seeds.LOW, data, len(data))
    if trailer is not None:
        damaged_rows(trailer, np.arange(len(trailer.lengths)), data)


# Files of other formats


def file_of(data: bytes) -> SourceFile:
    storage = cast("Storage", BytesStorage(data))
    return SourceFile(f"s3://bucket/{NAME}", len(data), storage=storage, key=NAME)


def _exhausted(reader: Reader) -> None:
    schema = reader.schema()
    for name, variable in schema.variables.items():
        if math.prod(variable.shape) <= _MOST_VALUES:
            values = reader.read(name, tuple(slice(None) for _ in variable.shape))
            assert values.shape == variable.shape
        references = reader.references(name)
        assert references is not None


def _tiff(data: bytes) -> None:
    file = file_of(data)
    layout = read_layout(file)
    assert len(layout.offset) == len(layout.length)
    _each([partial(read_directory, file, 2)])


def _grib(data: bytes) -> None:
    file = file_of(data)
    check_messages(file)
    if edition(data[:16]) == 2:
        with file.open() as stream:
            packing(cast("Any", stream), 0, length(data[:16]))


# Records in metadata and attributes


def _document(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _job_record(data: bytes) -> None:
    info = SnapshotInfo(NAME, None, to_datetime(0), "m", _document(data))
    step = _step(info)
    graph = Graph((step,))
    assert str(step) + repr(step) + str(graph) + repr(graph) + graph._repr_html_()
    graph.inputs_of("/a")


def _ledger(data: bytes) -> None:
    columns = {name: getattr(EMPTY, name) for name in ("url", "fingerprint", "size", "quarantined")}
    ledger = ledger_of(columns, _document(data), NAME)
    json.dumps([ledger.concat_dim, ledger.unlimited, sorted(ledger.variables or ())])
    ledger.covers(IngestRequest("a.nc", variables=["a"]))


_JSON: tuple[tuple[Form, Mutation], ...] = ((PLAIN, change_json), (PLAIN, change_bytes))
_FLEXBUFFER: tuple[tuple[Form, Mutation], ...] = ((PLAIN, mutations.change_flexbuffer), (PLAIN, change_bytes))
_MSGPACK: tuple[tuple[Form, Mutation], ...] = ((PLAIN, mutations.change_msgpack), (PLAIN, change_bytes))

DECODERS: dict[str, Decoder] = {
    "repo-info": Decoder(_repo_info, lambda: seeds.largest_files(REPO), _flatbuffer(FileType.REPO_INFO, 2)),
    "snapshot": Decoder(
        _snapshot, lambda: seeds.largest_files(SNAPSHOTS), _flatbuffer(FileType.SNAPSHOT, 2, 1)
    ),
    "manifest": Decoder(
        _manifest, lambda: seeds.largest_files(MANIFESTS), _flatbuffer(FileType.MANIFEST, 2, 1)
    ),
    "transaction-log": Decoder(
        _transaction_log,
        lambda: seeds.largest_files(TRANSACTIONS),
        _flatbuffer(FileType.TRANSACTION_LOG, 2, 1),
    ),
    "envelope": Decoder(
        lambda data: _each(partial(open_envelope, data, kind) for kind in FileType),
        lambda: seeds.largest_files(TRANSACTIONS),
    ),
    "flexbuffer": Decoder(
        lambda data: flexbuffer.loads(data, NAME), lambda: [seeds.config_flexbuffer()], _FLEXBUFFER
    ),
    "msgpack": Decoder(
        msgpack.loads_json,
        lambda: [msgpack.dumps({"a": [1, None, {"b": -1.5}], "t": "é" * 40})],
        _MSGPACK,
        names_file=False,
    ),
    "config": Decoder(
        lambda data: _configuration(flexbuffer.loads(data, NAME)),
        lambda: [seeds.config_flexbuffer()],
        _FLEXBUFFER,
        names_file=False,
    ),
    "config-yaml": Decoder(
        _config_yaml,
        lambda: [seeds.config_yaml()],
        ((PLAIN, mutations.change_yaml), (PLAIN, change_bytes)),
        names_file=False,
    ),
    "ref-v1": Decoder(
        lambda data: decode_ref(data, NAME), lambda: [b'{"snapshot":"1CECHNKREP0F1RSTCMT0"}'], _JSON
    ),
    "markers": Decoder(_markers, lambda: [seeds.marker()], _JSON, errors=()),
    "stream-records": Decoder(
        partial(_records, read_records),
        lambda: [flexbuffer.dumps({STREAMS: seeds.stream_records()})],
        _FLEXBUFFER,
        names_file=False,
    ),
    "job-records": Decoder(
        partial(_records, read_entries),
        lambda: [flexbuffer.dumps({JOBS: seeds.job_records()})],
        _FLEXBUFFER,
        names_file=False,
    ),
    "old-snapshot": Decoder(
        _old_snapshot, lambda: seeds.old_files("snapshots"), _packages_of_older(FileType.SNAPSHOT)
    ),
    "old-manifest": Decoder(
        partial(_old, decode_old_manifest),
        lambda: seeds.old_files("manifests"),
        _packages_of_older(FileType.MANIFEST),
    ),
    "old-transaction-log": Decoder(
        lambda data: decode_old_log(data, NAME),
        lambda: seeds.old_files("transactions"),
        _packages_of_older(FileType.TRANSACTION_LOG),
    ),
    "old-ref": Decoder(lambda data: decode_old_ref(data, NAME), lambda: seeds.old_files("refs"), _JSON),
    "staged-result": Decoder(
        lambda data: decode_result(data, "tests.hostile.nothing"),
        lambda: [seeds.result()],
        (
            (part(0, 3), change_json),
            (part(1, 3), change_bytes),
            (part(2, 3), change_bytes),
            (PLAIN, change_bytes),
        ),
        names_file=False,
    ),
    "wire": Decoder(decode_changes, lambda: [seeds.message()], _WIRE, names_file=False),
    "staged-plan": Decoder(
        lambda data: (plan := decode_plan(data)) and encode_plan(plan),
        lambda: [seeds.plan()],
        _JSON,
        errors=(),
    ),
    "staged-round": Decoder(
        decode_round,
        lambda: [joined([b'{"tasks":3,"items":"00"}', seeds.message()])],
        ((part(0, 2), change_json), (part(1, 2), change_bytes), (PLAIN, change_bytes)),
        names_file=False,
    ),
    "task-start": Decoder(
        decode_start,
        lambda: [b'{"host":"node12","process":7,"started":1793491200000000,"error":""}'],
        _JSON,
        errors=(),
    ),
    "zarr-json": Decoder(
        _zarr_json,
        lambda: [seeds.DOCUMENT, seeds.RECTILINEAR],
        _JSON,
        errors=(FormatError, InvalidInputError),
        names_file=False,
    ),
    "chunk-frames": Decoder(_chunk, lambda: [ZSTD.close(bytes(1 << 25)), b"\2" + bytes(15)]),
    "chunk-trailer": Decoder(
        _chunk_trailer,
        lambda: [seeds.chunk_file()],
        ((TRAILER, change_bytes), (PLAIN, change_bytes)),
        names_file=False,
    ),
    "netcdf3": Decoder(
        lambda data: _exhausted(NetCdf3Reader(file_of(data))), lambda: list(map(seeds.netcdf3, (1, 2, 5)))
    ),
    "tiff": Decoder(
        _tiff,
        lambda: [
            seeds.tiff(),
            seeds.tiff(order=">", tiled=True),
            seeds.tiff(big=True),
            seeds.tiff(order=">", big=True, tiled=True),
        ],
    ),
    "job-record": Decoder(_job_record, lambda: [seeds.job_record()], _JSON),
    "ledger": Decoder(
        _ledger, lambda: [b'{"concat_dim":"time","unlimited":["time"],"variables":["t"]}'], _JSON
    ),
    "grib": Decoder(_grib, lambda: [seeds.grib(2), seeds.grib(1)]),
}

#: Decoders that call libraries in C with damaged files. A defect of the library may end the process, so only
#: the command runs them, each in a process of its own.
NATIVE: dict[str, Decoder] = {
    "hdf5": Decoder(lambda data: _exhausted(Hdf5Reader(file_of(data))), lambda: [seeds.hdf5()])
}
#: Inputs that were once not survived, in a folder for each decoder.
CORPUS = Path(__file__).resolve().parent / "corpus"


def starts(name: str) -> list[bytes]:
    """Return the inputs of a decoder that are changed: its seeds, and the files of its corpus."""
    files = sorted((CORPUS / name).glob("*"))
    return [*(DECODERS | NATIVE)[name].seeds(), *(file.read_bytes() for file in files)]

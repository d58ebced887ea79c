"""Any bytes: a value or a typed error that names the file, in bounded time and memory, for every decoder."""

from __future__ import annotations

import json
import os
import random
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard
from hypothesis import settings
from tests.hostile.decoders import DECODERS, file_of, starts, survives
from tests.support.examples import examples
from tests.support.patience import patience
from tests.support.tiers import deep

import frazil
from frazil.changes.change_set import ChangeSet, ChunkChanges
from frazil.errors import FormatError
from frazil.format import envelope
from frazil.format.envelope import HEADER_BYTES, MAGIC, FileType, seal
from frazil.format.manifest import ChunkTable
from frazil.jobs.task_results import decode_changes, encode_changes, joined
from frazil.pipeline import job_metrics, lineage, lineage_graph
from frazil.pipeline.ingest.existing import EMPTY, load_ledger, save_ledger
from frazil.readers.geotiff import read_directory
from frazil.repository.settings import config_document, config_yaml
from frazil.repository.settings.conditions import matches
from frazil.repository.settings.config_yaml import load_config

decoders = pytest.mark.parametrize("name", DECODERS)
MIB = 1 << 20
#: A payload may have 256 MiB. It grows in a buffer that may be copied once.
MOST_MEMORY = 600 * MIB


@contextmanager
def peak_of_memory() -> Iterator[Callable[[], int]]:
    """Give a function that returns how far the memory grew in the context, at its peak (bytes).

    Linux can forget an earlier peak. Elsewhere the function returns 0.
    """
    status, forget = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not (status.exists() and os.access(forget, os.W_OK)):
        yield lambda: 0
        return

    def read(name: str) -> int:
        line = next(each for each in status.read_text().splitlines() if each.startswith(name))
        return int(line.split()[1]) << 10

    forget.write_text("5")
    start = read("VmRSS:")
    yield lambda: read("VmHWM:") - start


@pytest.fixture
def bounded() -> Iterator[None]:
    """The test takes little memory and processor time, whatever it decodes."""
    with peak_of_memory() as peak:
        start = time.process_time()
        yield
    assert peak() < MOST_MEMORY
    assert time.process_time() - start < patience(60)


@decoders
@pytest.mark.usefixtures("bounded")
def test_valid_files_are_read(name: str) -> None:
    accepted = [survives(DECODERS[name], each) for each in starts(name)]
    assert any(accepted)


@pytest.mark.sample(27, 27)
@decoders
@pytest.mark.hypothesis
@pytest.mark.usefixtures("bounded")
def test_changed_content(name: str) -> None:
    decoder = DECODERS[name]
    inputs = starts(name)
    profile = settings.default
    chance = random.Random(name if profile and profile.derandomize else None)
    for _ in range(examples(200)):
        form, mutation = chance.choice(decoder.forms)
        start = chance.choice(inputs)
        content = form.open(start)
        data = mutation(start, chance) if content is None else form.close(mutation(content, chance))
        try:
            survives(decoder, data)
        except Exception as error:
            error.add_note(f"the input is {data!r}")
            raise


METADATA = ("repo-info", "snapshot", "manifest", "transaction-log")


@pytest.mark.parametrize("name", METADATA)
@pytest.mark.usefixtures("bounded")
def test_a_file_cut_anywhere(name: str) -> None:
    decoder = DECODERS[name]
    data = min(decoder.seeds(), key=len)
    assert not any(survives(decoder, data[:size]) for size in range(len(data)))


def _metadata_bomb(kind: FileType, frames: int = 128) -> bytes:
    """A file of about 70 KiB with two gigabytes of zeros, or with fewer frames of 16 MiB."""
    head = seal([b""], kind)[:HEADER_BYTES]
    return head + zstandard.ZstdCompressor(level=3).compress(bytes(16 * MIB)) * frames


BOMBS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "deep JSON arrays": lambda: b"[\n" * 30_000,
    "deep JSON objects": lambda: b'{"a":' * 30_000,
    "deep MessagePack": lambda: b"\x91" * 200_000,
    "deep YAML": lambda: b"- " * 20_000,
    "deep pickle": lambda: b"(" * 100_000 + b".",
    "long number": lambda: b"9" * 100_000,
    "YAML aliases": lambda: (
        b"a: &a [x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (at + 1, at + 1, b",".join([b"*%c" % at] * 9))
            for at in range(ord("a"), ord("k"))
        )
    ),
    "chunks": lambda: json.dumps(_with_chunks([[[1, (1 << 32) - 1]], [[1, (1 << 24) - 1]] * 9])).encode(),
    "many chunks in many dimensions": lambda: json.dumps(_with_chunks([[[1, (1 << 24) - 1]]] * 99)).encode(),
    "product of long numbers": lambda: json.dumps(_with_chunks([10**4000] * 40)).encode(),
    "plain header": lambda: MAGIC,
}
#: Bombs that take a second, until the decoders reach their limit.
LARGE_BOMBS: dict[str, Callable[[], bytes]] = {
    "deep lists": lambda: b"[" * MIB,
    "deep objects": lambda: b'{"a":' * (MIB // 5),
    "deeper MessagePack": lambda: b"\x91" * MIB,
    **{f"zeros in {kind.name}": partial(_metadata_bomb, kind) for kind in FileType},
}


def _with_chunks(shapes: list[Any]) -> dict[str, Any]:
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}
    array = {"zarr_format": 3, "node_type": "array", "shape": [1] * len(shapes), "data_type": "int8"}
    return {**array, "chunk_grid": grid, "codecs": [{"name": "bytes"}]}


@pytest.mark.sample(8, 8)
@pytest.mark.parametrize("bomb", [*BOMBS, *deep(*LARGE_BOMBS)])
@pytest.mark.usefixtures("bounded")
def test_bombs(bomb: str) -> None:
    data = (BOMBS | LARGE_BOMBS)[bomb]()
    for decoder in DECODERS.values():
        survives(decoder, data)


@pytest.mark.parametrize("kind", FileType)
def test_the_size_of_a_payload_is_bounded(kind: FileType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "FREE_PAYLOAD_BYTES", 8 * MIB)
    data = _metadata_bomb(kind, frames=16)
    for decoder in DECODERS.values():
        with peak_of_memory() as peak:
            survives(decoder, data)
        assert peak() < 96 * MIB


def test_bombs_inside_of_packages() -> None:
    decoder = DECODERS["staged-result"]
    for form, _ in decoder.forms:
        for bomb in ("deep JSON arrays", "deep pickle", "long number"):
            assert not survives(decoder, form.close(BOMBS[bomb]()))


def test_many_tags_with_the_same_values_are_refused() -> None:
    size, count = MIB, 3000
    entries = b"".join(
        at.to_bytes(2, "little") + b"\7\0" + (size // 2).to_bytes(4, "little") + bytes(4)
        for at in range(count)
    )
    data = (b"II*\0" + b"\x08\0\0\0" + count.to_bytes(2, "little") + entries + bytes(4)).ljust(size, b"\0")
    with pytest.raises(FormatError, match="tags with at most"):
        read_directory(file_of(data))


def test_a_variable_with_more_dimensions_than_numpy_allows_is_refused() -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(4, "big")

    def file(rank: int) -> bytes:
        dimension = number(10) + number(1) + number(4) + b"long" + number(1)
        variable = number(11) + number(1) + number(1) + b"v\0\0\0" + number(rank) + number(0) * rank
        values = bytes(8) + number(1) + number(4) + number(200) + bytes(600)
        return b"CDF\1" + number(0) + dimension + bytes(8) + variable + values

    assert survives(DECODERS["netcdf3"], file(64))
    with pytest.raises(FormatError, match="at most 64 dimensions of 'v'"):
        DECODERS["netcdf3"].read(file(65))


def _changes_of(count: int, columns: bytes) -> bytes:
    """A change set with references of the kind 0."""
    names = "gone", "created", "updated", "deleted", "moves"
    arrays = [["00" * 8, "/a", 2, count]]
    header = {**{name: [] for name in names}, "arrays": arrays, "sources": [0, 0, 0]}
    text = json.dumps(header).encode()
    frame = zstandard.ZstdCompressor(level=1, write_content_size=True).compress(columns)
    return joined([text, zlib.crc32(text).to_bytes(4), b"", frame])


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(("count", "size"), [(1, 257 * MIB), (1 << 40, 100)])
def test_references_that_need_much_memory_are_refused(count: int, size: int) -> None:
    data = _changes_of(count, bytes(size))
    assert len(data) < 100_000
    with pytest.raises(FormatError, match="expected"):
        decode_changes(data)


@pytest.mark.deep
def test_references_that_compress_too_well_are_padded() -> None:
    index = np.stack(np.unravel_index(np.arange(10_000_000), (10_000, 1_000)), 1)
    edits = ChunkChanges("/a", 2, (ChunkTable.from_absent(index),))
    data = encode_changes(ChangeSet(chunks={bytes(8): edits}))
    assert len(decode_changes(data).chunks[bytes(8)].table()) == len(index)
    with pytest.raises(FormatError):
        decode_changes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("line", "most"),
    [
        *((line, 1 << 10) for line in (b"- 1\n", b"? ,", b"!x ,", b"a1: 1\n")),
        pytest.param(b"- 1\n", config_yaml._MOST_NODES, marks=pytest.mark.deep),
    ],
)
def test_many_values_in_yaml_are_refused(line: bytes, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_yaml, "_MOST_NODES", most)
    head, tail = {b"-": (b"a:\n", b""), b"a": (b"", b"")}.get(
        line[:1], (b"a: [" if line[:1] == b"!" else b"{", b"]")
    )
    content = head + line * ((MIB - 10) // len(line)) + tail
    with pytest.raises(FormatError, match=f"expected at most {most} keys and values"):
        load_config(content)


LONG_NUMBERS = {
    "float to the base 60": b"!!float 1" + b":1" * 400,
    "integer to the base 60": b"!!int 1" + b":1" * 400,
    "to the base 16": b"0x" + b"f" * 5000,
    "of a variant": b"!int 0o" + b"7" * 200,
}


@pytest.mark.parametrize("number", LONG_NUMBERS.values(), ids=LONG_NUMBERS)
def test_numbers_in_yaml_that_take_long_are_refused(number: bytes) -> None:
    with pytest.raises(FormatError, match="expected a number of at most 100 digits"):
        load_config(b"inline_chunk_threshold_bytes: " + number)


@pytest.mark.parametrize("regex", ["a{99999999999999}", "(" * 3000, "(" * 300, "a|" * 501])
def test_expressions_that_do_not_compile_match_nothing(regex: str) -> None:
    assert not matches(regex, "a")


SLOW_EXPRESSIONS = [
    *("(a+)+$", "(a|a)*$", "(a|aa)+$", "(.*a){20}$", "((a*)*)*$", "(?:a?){200}a{200}$"),
    *(r"(\w+\s?)*$", "(a*)*" * 190 + "$"),
]


@pytest.mark.parametrize("regex", SLOW_EXPRESSIONS)
def test_expressions_with_many_ways_to_match_take_linear_time(regex: str) -> None:
    """Python's ``re`` would need years for most of them."""
    assert not matches(f"^(?:{regex})", "a" * 3000 + "!")


def test_a_saved_configuration_has_a_limited_number_of_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    def saved(number: int) -> dict[str, Any]:
        rules = [
            [{"path_matches": {"regex": f"a{at}"}}, [{"condition": {"DimensionName": "t"}, "num_chunks": 1}]]
            for at in range(number)
        ]
        return {"manifest": {"splitting": {"split_sizes": rules}}}

    monkeypatch.setattr(config_document, "_MOST_EXPRESSIONS", 6)
    config = config_document.from_document(saved(3))
    assert config_document.from_document(config_document.to_document(config)) == config
    with pytest.raises(FormatError, match=r"at most 6 regular expressions, got 8") as caught:
        config_document.from_document(saved(4))
    assert caught.value.kind is frazil.ErrorKind.CONFIG_DESERIALIZATION
    monkeypatch.setattr(config_document, "_MOST_EXPRESSIONS", 5)
    with pytest.raises(frazil.InvalidInputError, match="expected at most 5 regular expressions"):
        config_document.to_document(config)


@pytest.mark.parametrize(
    "change",
    [{"inputs": 5}, {"inputs": [{}]}, {"outputs": [1]}, {"parameters": "x"}, {"metrics": []}, {"name": 3}],
)
def test_a_damaged_record_of_a_job_is_refused(change: dict[str, Any]) -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    session = repo.writable_session("main")
    id_ = session.commit("m", metadata={"frazil_job": {"name": "n", **change}}, allow_empty=True)
    for question in (lineage_graph, job_metrics, lineage):
        with pytest.raises(FormatError, match=f"snapshot {id_}: the record of a job"):
            question(repo)


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [("url", (1 << 40,), "string"), ("size", (3,), "i8"), ("fingerprint", (0, 9), "u1")],
)
def test_a_damaged_ledger_is_refused(name: str, shape: tuple[int, ...], dtype: str) -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    save_ledger(session, "/", EMPTY, EMPTY)
    zarr.create_array(
        session.store,
        name=f".frazil/{name}",
        shape=shape,
        chunks=tuple(max(1, each >> 20) for each in shape),
        dtype=dtype,
        overwrite=True,
    )
    with pytest.raises(FormatError, match=r"/\.frazil: "):
        load_ledger(session, "/")

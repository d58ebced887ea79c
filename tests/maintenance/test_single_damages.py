"""Every single damage of every kind of file, at every level: the table of docs/verify.md.

A cell has the lowest level that sees the damage, or None. The table is exact: what a lower level does not see
must not be seen there, and nothing else than the damaged file is a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import zarr
import zarr.codecs
import zstandard
from tests.maintenance.test_verification import keys
from tests.repository.version_1 import copy_of

import frazil
from frazil.format.envelope import HEADER_BYTES
from frazil.format.ids import ids_to_text
from frazil.format.repo_info import decode_repo_info
from frazil.maintenance.verification.findings import LEVELS
from frazil.storage.base import Storage
from frazil.storage.memory import MemoryStorage

M, E, C, D = LEVELS


@cache
def template(
    spec_version: int, deduplicate: bool = False, packs: bool = False, checksums: bool = True
) -> MemoryStorage:
    storage = MemoryStorage()
    config = frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=packs),
        num_updates_per_repo_info_file=2,
        chunks=frazil.ChunksConfig(deduplicate=deduplicate, checksums=checksums),
    )
    repo = frazil.Repository.create(storage, config, spec_version=spec_version)
    repo.save_config()
    for value in range(3):
        with repo.transaction("main", message=f"{value}") as store:
            if not value:
                codec = zarr.codecs.ZstdCodec(checksum=True)
                for name, codecs in (("raw", None), ("zstd", codec)):
                    zarr.create_array(
                        store, name=name, shape=(64,), chunks=(32,), dtype="i8", compressors=codecs
                    )
            for name in ("raw", "zstd"):
                zarr.open_array(store, path=name)[:] = np.arange(64) * (value + 3) + 1000 * (name == "zstd")
    repo.create_tag("v", repo.lookup_branch("main"))
    return storage


def content(data: bytes) -> bytes:
    """What a reader gets from a file: of metadata, the decompressed buffer."""
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data[HEADER_BYTES:])
    except zstandard.ZstdError:
        return data


def flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = min(int(at * len(data)), len(data) - 1)
        return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]

    return flip


#: Not in the header of a metadata file, where a bit may be in the name of the writer.
FLIPS: list[Callable[[bytes], bytes | None]] = [flipped(at) for at in (0.0, 0.55, 0.7, 0.85, 1.0)]
#: The ways of damage; a way may be several changes, each of which counts alone.
WAYS: dict[str, list[Callable[[bytes], bytes | None]]] = {
    "deleted": [lambda data: None],
    "cut": [lambda data: data[:-1]],
    "half": [lambda data: data[: len(data) // 2]],
    "empty": [lambda data: b""],
    "bit": FLIPS,
    "longer": [lambda data: data + bytes(9)],
    "zeros": [lambda data: bytes(len(data))],
}

_METADATA: dict[str, str | None] = dict.fromkeys(WAYS, M)
_CHECKED: dict[str, str | None] = {
    "deleted": E,
    "cut": C,
    "half": E,
    "empty": E,
    "bit": C,
    "longer": C,
    "zeros": C,
}
_PLAIN = dict.fromkeys(("deleted", "cut", "half", "empty"), E)
#: Kind of file -> way -> the lowest level that sees it.
SEEN: dict[str, dict[str, str | None]] = {
    "repo": _METADATA,
    **{
        f"{kind}{version}": {**_METADATA, "exchanged": M}
        for kind in ("snapshot", "manifest", "log")
        for version in ("", " v1")
    },
    "chain backup": {**_METADATA, "exchanged": C},
    "backup": {**dict.fromkeys(WAYS, C), "deleted": None, "exchanged": C},
    "raw chunk": {**_CHECKED, "exchanged": C},
    "raw chunk without checksum": {**_PLAIN, "bit": None, "longer": None, "zeros": None, "exchanged": None},
    "zstd chunk without checksum": {**_PLAIN, "bit": D, "zeros": D},
    "zstd chunk": _CHECKED,
    "pack": _CHECKED,
    "deduplicated chunk": {way: level for way, level in _CHECKED.items() if way != "longer"}
    | {"exchanged": C},
    "ref v1": {"empty": M, "zeros": M},
    "config v1": {"deleted": None, "zeros": M},
}


def listed(storage: MemoryStorage, folder: str) -> list[str]:
    return [key for key in keys(storage, folder) if "1CECHNKREP0F1RSTCMT0" not in key]


def chunks_of(repo: frazil.Repository, name: str) -> list[str]:
    table = repo.readonly_session("main").chunk_table(f"/{name}")
    return [f"chunks/{text}" for text in ids_to_text(table.chunk_ids)]


def chain_of(repo: frazil.Repository) -> list[str]:
    names, info = [], decode_repo_info(repo.storage.get("repo"), "repo")
    while info.repo_before_updates is not None:
        names.append(f"overwritten/{info.repo_before_updates}")
        info = decode_repo_info(repo.storage.get(names[-1]), names[-1])
    return names


def prepared(kind: str) -> tuple[frazil.Repository, list[str]]:
    """A repository, and two keys of files of a kind, or one."""
    version = 1 if kind.endswith("v1") else 2
    storage = copy_of(template(version, kind.startswith("dedup"), kind == "pack", "without" not in kind))
    repo = frazil.Repository.open(storage)
    match kind.removesuffix(" v1").removesuffix(" without checksum"):
        case "repo":
            keys = ["repo"]
        case "snapshot" | "manifest":
            keys = listed(storage, f"{kind.removesuffix(' v1')}s")
        case "log":
            keys = listed(storage, "transactions")
        case "chain backup":
            keys = chain_of(repo)
        case "backup":
            keys = [key for key in listed(storage, "overwritten") if key not in chain_of(repo)]
        case "raw chunk" | "deduplicated chunk" | "pack":
            keys = chunks_of(repo, "raw")
        case "zstd chunk":
            keys = chunks_of(repo, "zstd")
        case "ref":
            keys = ["refs/tag.v/ref.json"]
        case _:
            keys = ["config.yaml"]
    return repo, keys[-2:]


def harm(storage: Storage, key: str, change: Callable[[bytes], bytes | None]) -> None:
    after = change(bytes(storage.get(key)))
    storage.delete([key]) if after is None else storage.put(key, after)


def damages(storage: Storage, keys: list[str], way: str) -> Iterator[set[str]]:
    """Yields the damaged keys, once for each single damage, which is undone afterwards."""
    before = {key: bytes(storage.get(key)) for key in keys}
    if way == "exchanged":
        one, other = keys
        storage.put(one, before[other])
        storage.put(other, before[one])
        yield set(keys)
    else:
        for change in WAYS[way]:
            data = before[keys[0]]
            after = change(data)
            if after is not None and len(after) == len(data) and content(after) == content(data):
                continue  # zstd has several forms of the same content: nothing is damaged
            storage.delete(keys[:1]) if after is None else storage.put(keys[0], after)
            yield {keys[0]}
    for key, data in before.items():
        storage.put(key, data)


FIRST = [
    (kind, next(way for way, level in ways.items() if level is not None and way != "deleted"), (M, D))
    for kind, ways in SEEN.items()
]
CELLS = [(kind, way, LEVELS) for kind, ways in SEEN.items() for way in ways]


@pytest.mark.sample(1, 11)
@pytest.mark.parametrize(
    ("kind", "way", "levels"), [*FIRST, *(pytest.param(*cell, marks=pytest.mark.deep) for cell in CELLS)]
)
def test_each_damage_is_seen_at_its_level(kind: str, way: str, levels: tuple[Any, ...]) -> None:
    repo, keys = prepared(kind)
    lowest = SEEN[kind][way]
    for damaged in damages(repo.storage, keys, way):
        for level in levels:
            expected = lowest is not None and LEVELS.index(lowest) <= LEVELS.index(level)
            problems = {each.key for each in repo.upkeep.verify(level).problems}
            assert bool(problems & damaged) == expected, (level, problems)
            assert problems <= damaged or way == "exchanged" or kind in ("snapshot v1", "ref v1")
    assert repo.upkeep.verify("decode").ok


@pytest.mark.parametrize("change", [change for way in WAYS.values() for change in way])
def test_all_files_damaged_at_once_are_findings(change: Callable[[bytes], bytes | None]) -> None:
    repo = frazil.Repository.open(copy_of(template(2)))
    for folder in ("snapshots", "transactions", "manifests", "chunks", "overwritten", "repo"):
        for key in keys(repo.storage, folder) if folder != "repo" else ["repo"]:
            harm(repo.storage, key, change)
    assert not repo.upkeep.verify("checksum").ok

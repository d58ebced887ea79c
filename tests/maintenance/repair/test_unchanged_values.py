"""No repair changes what reads right: random repositories with equal chunks, undamaged and damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.format.chunk_trailer import SINGLE_TRAILER_BYTES
from frazil.format.ids import ids_to_text
from frazil.format.manifest import ChunkKind
from frazil.maintenance.verification.findings import LEVELS

icechunk = pytest.importorskip("icechunk")

CHUNK = 8
COUNT = 5
NAMES = ("a", "b", "c")

type Blocks = dict[tuple[str, str, int], bytes]


def block(number: int) -> Any:
    """One of few blocks, so that arrays have equal chunks."""
    return np.random.default_rng(number).random(CHUNK)


def config(rng: Random) -> frazil.RepositoryConfig:
    return frazil.RepositoryConfig(
        inline_chunk_threshold_bytes=0,
        packing=frazil.PackingConfig(enabled=rng.random() < 0.5),
        chunks=frazil.ChunksConfig(deduplicate=rng.random() < 0.5, checksums=rng.random() < 0.5),
    )


def write(store: Any, rng: Random) -> None:
    group = zarr.open_group(store, mode="a")
    for name in rng.choices(NAMES, k=rng.randint(1, 2)):
        if name not in group:
            fills: list[dict[str, Any]] = [{}, {"attributes": {"_FillValue": -1.0}}, {"fill_value": np.nan}]
            options = {"compressors": rng.choice([None, "auto"]), **rng.choice(fills)}
            group.create_array(name, shape=(COUNT * CHUNK,), chunks=(CHUNK,), dtype="f8", **options)
        array: Any = group[name]
        start = rng.randint(0, COUNT - 2)
        for at in range(start, COUNT):
            array[at * CHUNK : (at + 1) * CHUNK] = block(rng.randint(1, 3))


def fill_root(root: Path, rng: Random) -> None:
    """Commits of both libraries in turns."""
    frazil.Repository.create(
        frazil.local_filesystem_storage(str(root)),
        frazil.RepositoryConfig(inline_chunk_threshold_bytes=0),
        spec_version=rng.choice([1, 2]),
    ).save_config()
    for number in range(rng.randint(2, 4)):
        message = str(number)
        if rng.randint(0, 2):
            repo = frazil.Repository.open(frazil.local_filesystem_storage(str(root)), config(rng))
            repo.save_config()
            session = repo.writable_session("main")
            write(session.store, rng)
            session.commit(message)
        else:
            other = icechunk.Repository.open(icechunk.local_filesystem_storage(str(root)))
            theirs = other.writable_session("main")
            write(theirs.store, rng)
            theirs.commit(message)


def blocks(storage: Any, ids: list[str]) -> Blocks:
    """The chunks that can be read, by version, array and number."""
    repo = frazil.Repository.open(storage)
    answer: Blocks = {}
    for id_ in ids:
        try:
            group = zarr.open_group(repo.readonly_session(snapshot_id=id_).store, mode="r")
            arrays = dict(group.arrays())
        except Exception:  # a damaged file
            continue
        for name, array in arrays.items():
            for at in range(COUNT):
                try:
                    answer[id_, name, at] = np.asarray(array[at * CHUNK : (at + 1) * CHUNK]).tobytes()
                except Exception:  # the same
                    continue
    return answer


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]


#: Ways of damage of one chunk file. Each must have a finding if the file has, or must have, a trailer.
DAMAGES: dict[str, Callable[[bytes, bytes], bytes | None]] = {
    "missing": lambda data, other: None,
    "short": lambda data, other: data[: len(data) // 2],
    "first byte": lambda data, other: flipped(data, 0),
    "last byte": lambda data, other: flipped(data, len(data) - 1),
    "zeros": lambda data, other: bytes(len(data)),
    "without end": lambda data, other: data[:-SINGLE_TRAILER_BYTES] + bytes(SINGLE_TRAILER_BYTES),
    "half zeros": lambda data, other: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
    "other": lambda data, other: other,
}


def damage(root: Path, rng: Random) -> Iterator[str]:
    """Damage one or two chunk files, or exchange two. Yield the keys whose damage must be a finding."""
    files = sorted((root / "chunks").iterdir(), key=lambda each: each.read_bytes()[:64])
    for path in rng.sample(files, min(len(files), rng.randint(1, 2))):
        data = path.read_bytes()
        another = rng.choice(files)
        other = another.read_bytes() if another.exists() else data
        way = rng.choice(sorted(DAMAGES))
        # A file with the chunks of another file may read right by chance.
        if way == "other" and other[:64] == data[:64]:
            continue
        changed = DAMAGES[way](data, other)
        has_trailer = data.endswith(b"]:FRAZIL")
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
        if way == "other" and not other.endswith(b"]:FRAZIL"):
            continue  # the file is then like one of another writer
        if way in ("missing", "short") or (has_trailer and changed != data):
            yield f"chunks/{path.name}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(60))
def test_a_repair_keeps_what_reads_right(seed: int, tmp_path: Path) -> None:
    require_equal_values(tmp_path, Random(seed), seed % 4 > 0)


def require_equal_values(folder: Path, rng: Random, is_damaged: bool) -> None:
    root = folder / "repo"
    fill_root(root, rng)
    storage = frazil.local_filesystem_storage(str(root))
    repo = frazil.Repository.open(storage)
    ids = [each.id for each in repo.ancestry(branch="main")][:-1]
    right = blocks(storage, ids)
    keys = list(damage(root, rng)) if is_damaged else []
    before = blocks(storage, ids)
    level = rng.choice(LEVELS[2:])
    problems = {each.key for each in repo.upkeep.verify(level).problems}
    assert is_damaged or not problems, repo.upkeep.verify(level).rows()
    needed = used_files(repo, ids)
    assert problems >= {key for key in keys if key in needed}, (problems, keys)
    choice: Any = rng.choice(["keep", "fill", "previous"])
    repaired = folder / "repaired"
    shutil.copytree(root, repaired)
    target = frazil.local_filesystem_storage(str(repaired))
    plan = frazil.Repository.upkeep.repair(target, level=rng.choice(LEVELS[1:]), lost=choice).apply()
    assert is_damaged or plan.ok
    tip = frazil.Repository.open(target).lookup_branch("main")
    after = blocks(target, [*ids, tip])
    for (id_, name, at), value in before.items():
        if value == right[id_, name, at]:
            assert after.get((id_, name, at)) == value, (id_, name, at, str(plan))
            if id_ == ids[0]:
                assert after.get((tip, name, at)) == value, (name, at, str(plan))


def used_files(repo: frazil.Repository, ids: list[str]) -> set[str]:
    """The chunk files that a version needs."""
    keys = set()
    for id_ in ids:
        session = repo.readonly_session(snapshot_id=id_)
        for name, _ in zarr.open_group(session.store, mode="r").arrays():
            table = session.chunk_table(f"/{name}")
            used = np.unique(table.source[table.kind == ChunkKind.NATIVE])
            keys |= {f"chunks/{each}" for each in ids_to_text(table.chunk_ids[used])}
    return keys

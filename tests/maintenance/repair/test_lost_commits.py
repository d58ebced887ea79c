"""Chunks that are lost for good: the plan says which, and a commit without them is made only on demand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import zarr
from tests.maintenance.test_verification import config, small
from zarr.core.buffer.cpu import Buffer

import frazil
from frazil.errors import InvalidInputError
from frazil.format.ids import id_to_text
from frazil.format.manifest import NativeRef
from frazil.storage.memory import MemoryStorage

repair = frazil.Repository.upkeep.repair


def chunk_of(repo: frazil.Repository, path: str, coords: tuple[int, ...]) -> str:
    ref = repo.readonly_session("main").workspace.ref(path, coords)
    assert isinstance(ref, NativeRef)
    return f"chunks/{id_to_text(ref.chunk_id)}"


def values(repo: frazil.Repository, **version: Any) -> list[int]:
    session = repo.readonly_session(**version) if version else repo.readonly_session("main")
    array: list[int] = zarr.open_array(session.store, path="a", mode="r")[:].tolist()  # type: ignore[union-attr]
    return array


def damaged() -> tuple[frazil.Repository, str]:
    """A repository whose chunk (1,) of array `a` is lost in its newest version."""
    repo = small()
    key = chunk_of(repo, "/a", (1,))
    repo.storage.delete([key])
    return repo, key


def test_the_plan_describes_lost_chunks() -> None:
    repo, key = damaged()
    plan = repair(repo.storage)
    (row,) = plan.lost_rows()
    assert row == {
        "key": key,
        "path": "/a",
        "coordinates": [1],
        "versions": [repo.lookup_branch("main")],
        "previous": repo.lookup_tag("v2"),
    }
    assert not plan.steps
    assert all(text in str(plan) for text in ("1 chunk of /a", "fill: 1 chunk", "previous: 1 chunk"))


@pytest.mark.sample(1)
@pytest.mark.parametrize(("choice", "expected"), [("fill", [30, 31, 0, 0]), ("previous", [30, 31, 22, 23])])
def test_a_commit_without_the_lost_chunk(choice: Any, expected: list[int]) -> None:
    repo, key = damaged()
    before = repo.lookup_branch("main")
    plan = repair(repo.storage, lost=choice)
    assert [(each.action, each.keys) for each in plan.steps] == [("commit", (key,))]
    assert repo.lookup_branch("main") == before
    plan.apply()
    repo = frazil.Repository.open(repo.storage)
    assert values(repo) == expected
    (commit, parent, *_) = repo.ancestry(branch="main")
    assert parent.id == before
    assert commit.metadata["__frazil"] == {"repair": {"lost": [key]}}
    assert not repair(repo.storage, lost=choice).steps
    # The older version still has the damage.
    assert [each.key for each in repo.upkeep.verify("exists").findings] == [key]


def test_a_branch_that_moves_meanwhile() -> None:
    repo, _ = damaged()
    plan = repair(repo.storage, lost="fill")
    with repo.transaction("main", message="other") as store:
        zarr.open_array(store, path="a")[2:] = 5
    plan.apply()  # the chunk is not lost at the new tip
    assert values(frazil.Repository.open(repo.storage)) == [30, 31, 5, 5]
    assert next(iter(repo.ancestry(branch="main"))).message == "other"


def test_another_choice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="keep, fill or previous"):
        repair(small().storage, lost="guess")  # type: ignore[arg-type]


@pytest.mark.sample(4)
@pytest.mark.parametrize("shards", [None, (4,)])
@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        ("i2", {"attributes": {"_FillValue": -9}}, -9),
        ("i2", {"attributes": {"missing_value": -9}, "fill_value": 3}, -9),
        ("i2", {"attributes": {"_FillValue": 0, "scale_factor": 0.5}}, 0),
        ("i2", {"fill_value": 7}, 7),
        ("f4", {}, np.nan),
        ("f4", {"attributes": {"_FillValue": 1e20}}, np.float32(1e20)),
    ],
)
def test_lost_chunks_read_as_missing_values(dtype: str, options: Any, expected: Any, shards: Any) -> None:
    """The element that a CF decoder reads as missing; the fill value of zarr if there is no such element."""
    repo = frazil.Repository.create(MemoryStorage(), config())
    with repo.transaction("main", message="an array") as store:
        array = zarr.create_array(
            store, name="a", shape=(10,), chunks=(2,), shards=shards, dtype=dtype, **options
        )
        array[:] = np.arange(10) + 1
    size = 4 if shards else 2
    for chunk in (1, (10 - 1) // size):
        repo.storage.delete([chunk_of(repo, "/a", (chunk,))])
    plan = repair(repo.storage, lost="fill").apply()
    has_element = dtype == "f4" or "attributes" in options
    assert ("as missing values" in plan.steps[0].why) == has_element
    stored = zarr.open_array(frazil.Repository.open(repo.storage).readonly_session("main").store, path="a")
    want = np.arange(10).astype(dtype) + np.array(1, dtype)
    for start in (size, (10 - 1) // size * size):
        want[start : start + size] = expected
    np.testing.assert_array_equal(stored[:], want)


@pytest.mark.parametrize("choice", ["fill", "previous"])
def test_an_unreadable_manifest_leaves_a_plan(choice: Any) -> None:
    """The chunk is lost in an older version too, whose manifest can be read."""
    repo = small()
    storage = repo.storage
    chunk = chunk_of(repo, "/a", (0,))
    with repo.transaction("main", message="newer") as store:
        zarr.open_array(store, path="a")[2:] = 5
    tip = repo.readonly_session("main").workspace.require_array("/a")
    assert tip.array is not None
    (manifest,) = [f"manifests/{id_to_text(each.id)}" for each in tip.array.manifests]
    storage.delete([chunk])
    storage.put(manifest, b"no manifest")
    plan = repair(storage, lost=choice)
    assert {each.key for each in plan.findings} == {chunk, manifest}
    assert not plan.complete
    assert [each.key for each in plan.lost] == [chunk]
    assert not [each for each in plan.steps if each.action == "commit"]


def test_a_good_chunk_in_the_file_of_a_lost_chunk_stays() -> None:
    """Each of two packs has one damaged chunk. The same coordinates lead to both packs, in two versions."""
    repo = frazil.Repository.create(MemoryStorage(), frazil.RepositoryConfig(inline_chunk_threshold_bytes=0))
    for value in (10, 20):
        with repo.transaction("main", message=str(value)) as store:
            if value == 10:
                zarr.create_array(store, name="a", shape=(4,), chunks=(1,), dtype="i8", compressors=None)
            array: Any = zarr.open_array(store, path="a")
            array[:] = np.arange(4) + value
    for message, chunk in (("10", 3), ("20", 1)):
        (version,) = [each.id for each in repo.ancestry(branch="main") if each.message == message]
        ref = repo.readonly_session(snapshot_id=version).workspace.ref("/a", (chunk,))
        assert isinstance(ref, NativeRef)
        key = f"chunks/{id_to_text(ref.chunk_id)}"
        data = bytearray(repo.storage.get(key))
        data[ref.offset] ^= 4
        repo.storage.put(key, data)
    repair(repo.storage, level="checksum", lost="fill").apply()
    assert values(frazil.Repository.open(repo.storage)) == [20, 0, 22, 23]


@pytest.mark.parametrize(
    "change",
    [
        {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]},
        {"data_type": "uint64"},
        {"fill_value": 7},
        {"attributes": {"scale_factor": 0.1}},
        {"attributes": {"add_offset": 5}},
        {"attributes": {"_FillValue": 3}},
        {"attributes": {"units": "days since 2000-01-01"}},
        {"attributes": {"title": "no change of the meaning"}},
    ],
    ids=str,
)
def test_bytes_of_another_meaning_are_no_offer(change: dict[str, Any]) -> None:
    repo = small()
    key, tip = "a/zarr.json", repo.lookup_branch("main")
    with repo.transaction("main", message="other metadata") as store:
        stored = store.get_sync(key)
        assert stored is not None
        document = json.loads(stored.to_bytes())
        store.set_sync(key, Buffer.from_bytes(json.dumps(document | change).encode()))
        store.set_sync("a/c/1", Buffer.from_bytes(bytes(range(16))))
    repo.storage.delete([chunk_of(repo, "/a", (1,))])
    plan = repair(repo.storage, lost="previous")
    is_same = "title" in str(change)
    assert [each["previous"] for each in plan.lost_rows()] == [tip if is_same else None]
    assert len(plan.steps) == is_same

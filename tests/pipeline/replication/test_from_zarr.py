"""Copies of the bytes of Zarr stores: the same chunks, by both libraries, resumed and additive."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import ErrorKind, IcechunkError
from frazil.pipeline import Target, from_zarr

INLINE: Any = {"engine": "inline"}


def store(folder: Path) -> frazil.Storage:
    """A hierarchy with shards, a scalar, missing chunks, other chunk keys, and consolidated metadata."""
    root = zarr.create_group(folder, attributes={"title": "a store"})
    a = root.create_array("a", shape=(10, 6), chunks=(3, 2), dtype="f4", dimension_names=["t", "x"])
    a[:7] = np.random.default_rng(1).random((7, 6))
    root.create_array("g/shards", shape=(8, 8), chunks=(2, 2), shards=(4, 4), dtype="i2")[:] = 3
    root.create_array("g/scalar", shape=(), dtype="i4")[...] = 5
    keys: Any = {"name": "v2", "separator": "."}
    root.create_array("old", shape=(4,), chunks=(2,), dtype="i4", chunk_key_encoding=keys)[:] = [1, 2, 3, 4]
    with pytest.warns(zarr.errors.ZarrUserWarning, match="Consolidated metadata"):
        zarr.consolidate_metadata(str(folder))
    return frazil.local_filesystem_storage(folder)


def same(repo: frazil.Repository, folder: Path, group: str = "") -> bool:
    """Whether all arrays of a store are in the repository, by both libraries."""
    stores: list[Any] = [repo.readonly_session("main").store]
    if find_spec("icechunk") is not None and repo.storage.is_local:
        import icechunk

        path = repo.storage.label().rpartition(" ")[2]
        stores.append(
            icechunk.Repository.open(icechunk.local_filesystem_storage(path)).readonly_session("main").store
        )
    wanted = zarr.open_group(folder, mode="r", use_consolidated=False)
    for each in stores:
        got = zarr.open_group(each, path=group, mode="r")
        assert dict(got.attrs) == dict(wanted.attrs)
        for name, array in wanted.members(max_depth=None):
            if isinstance(array, zarr.Array):
                copied = got[name]
                assert isinstance(copied, zarr.Array)
                np.testing.assert_array_equal(np.asarray(copied[...]), np.asarray(array[...]))
                assert copied.metadata.codecs == array.metadata.codecs  # type: ignore[union-attr]
    return True


def test_chunks_keep_their_bytes(tmp_path: Path) -> None:
    source = store(tmp_path / "plain")
    repo = frazil.Repository.create(tmp_path / "ice")
    plan = from_zarr(source, Target(repo), dry_run=True, **INLINE)
    assert not list(repo.readonly_session("main").workspace.node_table().paths_list())[1:]
    copied = from_zarr(source, Target(repo), **INLINE)
    assert (copied.objects, copied.existing) == (3 * 3 + 4 + 1 + 2, 0) == (plan.objects, plan.existing)
    assert same(repo, tmp_path / "plain")
    table, session = repo.readonly_session("main").chunk_table("/g/shards"), repo.readonly_session("main")
    refs = [ref for row in range(len(table)) if (ref := table.ref(row)) is not None]
    stored = [bytes(session.workspace.read_ref(ref)) for ref in refs]
    files = [tmp_path / "plain" / "g" / "shards" / "c" / f"{i}" / f"{j}" for i in (0, 1) for j in (0, 1)]
    assert stored == [file.read_bytes() for file in files]
    again = from_zarr(source, Target(repo), **INLINE)
    assert (again.objects, again.existing) == (0, copied.objects)
    assert len(list(repo.ancestry(branch="main"))) == 2


def test_a_copy_continues_after_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = store(tmp_path / "plain")
    repo = frazil.Repository.create(tmp_path / "ice")
    reads: list[str] = []
    get = type(source).get

    def failing(self: Any, key: str, *args: Any, **settings: Any) -> Any:
        if key.startswith("g/shards/c/1"):
            raise OSError("the network is down")
        reads.append(key)
        return get(self, key, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(type(source), "get", failing)
        with pytest.raises(IcechunkError, match="the network is down"):
            from_zarr(source, Target(repo), checkpoint=60, **INLINE)
    before = len(list(repo.ancestry(branch="main")))
    assert before > 3
    rest = from_zarr(source, Target(repo), checkpoint=60, **INLINE)
    assert rest.existing >= 9
    assert rest.objects + rest.existing == 16
    assert same(repo, tmp_path / "plain")


def test_a_store_that_has_grown_and_other_groups(tmp_path: Path) -> None:
    source = store(tmp_path / "plain")
    repo = frazil.Repository.create(tmp_path / "ice")
    to = Target(repo, group="in/here")
    from_zarr(source, to, **INLINE)
    array = zarr.open_array(tmp_path / "plain", path="a", mode="r+")
    array.resize((15, 6))
    array[12:] = 9
    grown = from_zarr(source, to, **INLINE)
    assert grown.objects == 3
    assert same(repo, tmp_path / "plain", "in/here")
    array.resize((5, 6))
    with pytest.raises(IcechunkError, match="`/in/here/a`, got one with other metadata") as error:
        from_zarr(source, to, **INLINE)
    assert error.value.kind == ErrorKind.NOT_ALLOWED


def test_a_store_of_version_2_is_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "old", name="a", shape=(2,), dtype="i4", zarr_format=2)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with pytest.raises(IcechunkError, match="version 2, which an ingest reads"):
        from_zarr(frazil.local_filesystem_storage(tmp_path / "old"), Target(repo), **INLINE)

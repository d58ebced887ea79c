"""The adoption of Zarr stores: the same arrays and values, and no copied chunk."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import frazil
from frazil.cli.main import main

Run = Callable[..., str]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with arrays of all forms: sharded, scalar, sparse, shrunk, with other chunk keys."""
    monkeypatch.chdir(tmp_path)
    group = zarr.create_group("a b.zarr", attributes={"title": "plain"})
    group.create_array("sub/t", shape=(5, 4), chunks=(2, 2), dtype="f4", dimension_names=["time", "x"])[:] = (
        np.arange(20).reshape(5, 4)
    )
    group.create_array("scalar", shape=(), dtype="i4")[...] = 7
    group.create_array("shards", shape=(8,), chunks=(2,), shards=(4,), dtype="i4")[:4] = [1, 2, 3, 4]
    keys: Any = {"name": "v2", "configuration": {"separator": "."}}
    group.create_array("dots", shape=(4, 4), chunks=(2, 2), dtype="i2", chunk_key_encoding=keys)[:] = 5
    group.create_array("sparse", shape=(40,), chunks=(1,), dtype="i2")[[3, 39]] = [1, 2]
    group.create_array("empty", shape=(4,), dtype="i2", fill_value=9)
    shrunk = group.create_array("shrunk", shape=(6,), chunks=(2,), dtype="i2")
    shrunk[:] = range(6)
    document = json.loads((tmp_path / "a b.zarr/shrunk/zarr.json").read_text())
    (tmp_path / "a b.zarr/shrunk/zarr.json").write_text(json.dumps({**document, "shape": [3]}))
    with warnings.catch_warnings(action="ignore"):
        zarr.consolidate_metadata("a b.zarr")
    return tmp_path / "a b.zarr"


def adopted(store: Path) -> frazil.Repository:
    prefix = f"file://{store.parent}/a%20b.zarr/"
    access = frazil.containers_credentials({prefix: frazil.credentials.Credentials.LocalFileSystemAccess()})
    storage = frazil.local_filesystem_storage(str(store.parent / "ice"))
    return frazil.Repository.open(storage, authorize_virtual_chunk_access=access)


def test_all_arrays_have_their_values(store: Path) -> None:
    assert main(["adopt", "a b.zarr", "ice", "-m", "Adopt"]) == 0
    repo = adopted(store)
    session = repo.readonly_session("main")
    plain = zarr.open_group(str(store), mode="r", use_consolidated=False)
    group = zarr.open_group(session.store, mode="r")
    assert dict(group.attrs) == {"title": "plain"}
    ours, theirs = (dict[str, Any](each.members(max_depth=None)) for each in (group, plain))
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        if not isinstance(array, zarr.Group):
            assert np.array_equal(ours[name][...], array[...]), name
            assert ours[name].metadata.dimension_names == array.metadata.dimension_names
    # no chunk file: all native bytes are metadata
    assert not (store.parent / "ice" / "chunks").exists()
    assert len(session.all_virtual_chunk_locations()) == 16


def test_a_changed_object_is_noticed(store: Path) -> None:
    assert main(["adopt", "a b.zarr", "ice"]) == 0
    os.utime(store / "scalar/c", (4e9, 4e9))
    array = zarr.open_array(adopted(store).readonly_session("main").store, path="scalar", mode="r")
    with pytest.raises(frazil.IcechunkError, match=r"modified|changed"):
        array[...]


def test_the_command(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["adopt", "a b.zarr", "ice", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would adopt 7 arrays, 16 chunks (")
    assert not Path("ice").exists()
    assert main(["adopt", "a b.zarr", "ice"]) == 0
    assert main(["cat", "ice:sub/t", "0"]) == 1
    assert "Name the container in the variable FRAZIL_VIRTUAL_ACCESS" in capsys.readouterr().err
    monkeypatch.setenv("FRAZIL_VIRTUAL_ACCESS", f"file://{store.parent}/a%20b.zarr/")
    assert main(["cat", "ice:sub/t", "0"]) == 0
    assert capsys.readouterr().out == "0.0 1.0 2.0 3.0\n"
    assert main(["repair", "ice"]) == 0
    os.utime(store / "scalar/c", (4e9, 4e9))
    capsys.readouterr()
    assert main(["repair", "ice"]) == 1
    output = capsys.readouterr().out
    assert "virtual-modified" in output
    assert "virtual-unauthorized" not in output
    pattern = f"file://{store.parent}/a b.zarr/sub/*"
    assert main(["forget", "ice", "--all-versions", "--source", pattern, "--dry-run"]) == 0
    assert "a%20b.zarr/sub/t" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("zarr_format", "message"), [(2, "of version 2, which an ingest reads"), (None, "got no zarr.json")]
)
def test_other_stores_are_errors(
    zarr_format: int | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    if zarr_format == 2:
        zarr.create_group(str(tmp_path / "other"), zarr_format=2)
    assert main(["adopt", str(tmp_path / "other"), str(tmp_path / "ice")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "ice").exists()

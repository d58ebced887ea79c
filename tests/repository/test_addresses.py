"""Addresses of a version and a node: ``open_address``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import zarr

import frazil
from frazil.errors import IcechunkError
from frazil.handle.addresses import open_address


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository whose tag has the value 1, and whose branch main has the value 2."""
    repo = frazil.Repository.create(tmp_path / "ice")
    for value in (1, 2):
        with repo.transaction("main", message=f"{value}") as store:
            zarr.create_array(store, name="g/t", data=np.array([value]), overwrite=True)
        if value == 1:
            repo.create_tag("v1", snapshot_id=repo.lookup_branch("main"))
    return tmp_path / "ice"


def value(address: str | Path, **options: object) -> int:
    session, path = open_address(address, **options)  # type: ignore[arg-type]
    return int(frazil.read(session, "g/t" if path == "/" else path)[0])


def test_a_version_is_in_the_address_or_in_arguments(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert value(folder) == value(f"{folder}:g/t") == value(f"file://{folder}", branch="main") == 2
    assert value(f"{folder}@v1:g/t") == value(folder, tag="v1") == value(f"{folder}@main~1") == 1
    past = datetime(2000, 1, 1, tzinfo=UTC)
    for options in ({"tag": "v1"}, {"branch": "main"}, {"as_of": past}):
        with pytest.raises(IcechunkError, match="not in both"):
            value(f"{folder}@v1", **options)
    with pytest.raises(IcechunkError, match="2000"):
        value(folder, as_of=past)
    monkeypatch.setenv("FRAZIL_PROFILE_PROD", str(folder))
    assert value("prod@v1") == 1


def test_a_path_object_is_a_folder(folder: Path) -> None:
    other = folder.rename(folder.with_name("ice@v1"))
    assert value(other) == 2

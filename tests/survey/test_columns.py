"""Columns of the objects of a folder: their memory is that of the columns, for any number of objects."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from frazil import local_filesystem_storage
from frazil.format.ids import ids_to_text
from frazil.survey import columns
from frazil.survey.columns import list_objects

_FILES = 300


def test_a_listing_has_the_names_of_files_and_columns_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the status of each file, it was 1,100 bytes for each."""
    monkeypatch.setattr(columns, "_BATCH", 25)
    folder = tmp_path / "transactions"
    folder.mkdir()
    ids = np.random.default_rng(7).integers(0, 256, (_FILES, 12), dtype=np.uint8)
    for name in ids_to_text(ids):
        (folder / name).touch()
    storage = local_filesystem_storage(str(tmp_path))
    assert len(list_objects(storage, "transactions")) == _FILES
    tracemalloc.start()
    try:
        list_objects(storage, "transactions")
        assert tracemalloc.get_traced_memory()[1] < 300 * _FILES
    finally:
        tracemalloc.stop()

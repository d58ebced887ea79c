"""A fixture that tells reads in bulk from reads of zarr."""

from __future__ import annotations

import pytest

import frazil


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a read fail that zarr takes."""

    def refused(store: frazil.IcechunkStore, path: str) -> None:
        pytest.fail(f"zarr reads {path}")

    monkeypatch.setattr("frazil.arrays.array.open_array", refused)
    monkeypatch.setattr("frazil.arrays.box_reading.open_array", refused)

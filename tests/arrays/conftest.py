"""A fixture that tells reads in bulk from reads of zarr."""

from __future__ import annotations

import pytest

import frazil


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a read fail that zarr takes."""

    def refused(session: frazil.Session, path: str) -> None:
        pytest.fail(f"zarr reads {path}")

    monkeypatch.setattr("frazil.arrays.array.zarr_array", refused)
    monkeypatch.setattr("frazil.arrays.box_reading.zarr_array", refused)

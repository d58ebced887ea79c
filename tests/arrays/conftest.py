"""A fixture that tells reads in bulk from reads of zarr."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zarr

import frazil


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a read or a write fail that zarr takes."""

    def refused(session: frazil.Session, path: str, mode: str) -> None:
        pytest.fail(f"zarr reads or writes {path}: {mode}")

    monkeypatch.setattr("frazil.arrays.array.array_at", refused)


@pytest.fixture(autouse=True)
def zarr_pipeline() -> Iterator[None]:
    """zarr's own pipeline, with which the tests compare."""
    with zarr.config.set({"codec_pipeline.path": "zarr.core.codec_pipeline.BatchedCodecPipeline"}):
        yield

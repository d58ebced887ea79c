"""What a session says about single chunks."""

from __future__ import annotations

import pytest
import zarr

import frazil


def test_only_arrays_have_chunks() -> None:
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    zarr.create_group(session.store, path="g")
    with pytest.raises(frazil.InvalidInputError) as error:
        session.chunk_type("/g", [0])
    assert error.value.kind == frazil.ErrorKind.NOT_AN_ARRAY
    with pytest.raises(frazil.NodeNotFoundError):
        session.chunk_type("/none", [0])

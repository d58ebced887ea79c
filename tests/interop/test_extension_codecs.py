"""Codecs of the Zarr extensions: what one implementation writes, the other one reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import zarr
from zarr.codecs import ScaleOffset

import frazil

VALUES = np.arange(10.0) * 10 + 5


def test_scale_offset(tmp_path: Path) -> None:
    repo = frazil.Repository.create(str(tmp_path / "ice"))
    theirs = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "ice")))
    for name, each in (("ours", repo), ("theirs", theirs)):
        session = each.writable_session("main")
        array = zarr.create_array(
            session.store, name=name, shape=10, chunks=4, dtype="f8", filters=ScaleOffset(offset=5, scale=0.1)
        )
        array[:] = VALUES
        session.commit(name)
    readonly = repo.readonly_session("main")
    for name in ("ours", "theirs"):
        for store in (readonly.store, theirs.readonly_session("main").store):
            assert np.allclose(zarr.open_array(store, path=name, mode="r")[:], VALUES)
        assert np.allclose(frazil.read(readonly, name), VALUES)
        # the codec is in the stored bytes: without it, the elements are others
        packed: Any = zarr.open_array(readonly.store, path=name, mode="r").metadata.to_dict()["codecs"]
        assert [codec["name"] for codec in packed][:2] == ["scale_offset", "bytes"]

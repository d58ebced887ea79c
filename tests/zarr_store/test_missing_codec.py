"""A codec of a package that is not installed."""

from __future__ import annotations

import json
import sys

import pytest
import zarr
from zarr.core.buffer import cpu
from zarr.errors import UnknownCodecError

import frazil
from frazil import extras
from frazil.errors import MissingExtraError
from frazil.zarr_store.arrays import array_at


@pytest.mark.parametrize(
    ("codec", "error"), [("gribberish_of_a_test", MissingExtraError), ("nobody", UnknownCodecError)]
)
def test_the_extra_is_named(codec: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRA_OF", {"gribberish_of_a_test": "grib"})
    monkeypatch.setitem(sys.modules, "gribberish_of_a_test", None)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="an array") as store:
        zarr.create_array(store, name="t", shape=(2,), chunks=(2,), dtype="f4")
        document = json.loads(store.get_sync("t/zarr.json").to_bytes())
        document["codecs"] = [{"name": codec}]
        store.set_sync("t/zarr.json", cpu.Buffer.from_bytes(json.dumps(document).encode()))
    with pytest.raises(error, match=codec):
        array_at(repo.readonly_session("main"), "t")

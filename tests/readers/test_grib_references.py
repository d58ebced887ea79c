"""References to messages of GRIB, which the codec of gribberish decodes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.ingest.test_references import Pair
from tests.readers.comparing import read_all, same, same_by_references, sample_files, why_not
from tests.readers.gribs import LAMBERT, field, message

from frazil.errors import MissingExtraError
from frazil.readers.base_reader import ChunkReferences
from frazil.readers.registry import open_source

gribberish = pytest.importorskip("gribberish")

VALUES = np.random.default_rng(1).normal(280, 20, 24)
NOTHING: dict[str, Any] = {"bitmapPresent": 1, "missingValue": 9999, "values": np.full(24, 9999.0)}


def packed(kind: str, bits: int, **keys: Any) -> bytes:
    return message(2, shortName="t", packing=kind, bitsPerValue=bits, **keys)


@pytest.mark.parametrize("path", sample_files(".grib2"))
def test_samples(path: Path) -> None:
    with open_source(str(path)) as reader:
        same_by_references(reader, "t")


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "bitmap"])
@pytest.mark.parametrize("bits", [0, 12, 24])
@pytest.mark.parametrize(
    "kind", ["grid_simple", "grid_ccsds", "grid_jpeg", "grid_complex", "grid_complex_spatial_differencing"]
)
def test_packings(kind: str, bits: int, missing: bool, tmp_path: Path) -> None:
    values = VALUES.copy()
    keys: dict[str, Any] = {"bitsPerValue": bits} if bits else {}
    if missing:
        values[::5] = 9999
        keys |= {"bitmapPresent": 1, "missingValue": 9999}
    path = tmp_path / "a.grib2"
    levels = (1000, 850, 500)
    path.write_bytes(
        b"".join(
            message(2, packing=kind, shortName="t", level=level, values=values, **keys) for level in levels
        )
    )
    with open_source(str(path)) as reader:
        references = reader.references("t")
        if isinstance(references, ChunkReferences):
            assert references.chunks == (1, 4, 6)
            same_by_references(reader, "t")
        else:
            assert "gribberish" in references.reason
        assert np.isnan(read_all(reader, "t")).any() == missing


def test_a_hypercube_with_gaps(tmp_path: Path) -> None:
    path = tmp_path / "a.grib2"
    messages = [message(2, shortName="t", step=step, level=level) for step, level in ((0, 1000), (6, 500))]
    path.write_bytes(b"".join(messages))
    with open_source(str(path)) as reader:
        assert len(same_by_references(reader, "t").offset) == 2


def several_fields() -> bytes:
    """A message with sections 4 to 7 twice."""
    one = message(2, shortName="t")
    at, starts = 16, dict[int, int]()
    while at < len(one) - 4:
        starts.setdefault(one[at + 4], at)
        at += int.from_bytes(one[at : at + 4], "big")
    again = bytearray(one[starts[4] : -4])
    again[10] = 1 - again[10]  # another parameter
    whole = bytearray(one[:-4] + again + b"7777")
    whole[8:16] = len(whole).to_bytes(8, "big")
    return bytes(whole)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(message(1, shortName="t"), "edition 1", id="edition 1"),
        pytest.param(several_fields(), "2 fields in one message|several fields", id="several fields"),
        pytest.param(message(2, shortName="t", packing="grid_ieee"), "template 5.4", id="ieee"),
        pytest.param(packed("grid_jpeg", 12, **NOTHING), "without any value", id="empty"),
        pytest.param(packed("grid_ccsds", 25, values=VALUES), "25 bits", id="bits"),
        pytest.param(
            message(2, shortName="t", jPointsAreConsecutive=1), "jPointsAreConsecutive=1", id="mode"
        ),
        pytest.param(message(2, **LAMBERT, alternativeRowScanning=1), "alternativeRowScanning=1", id="rows"),
    ],
)
def test_what_has_no_references(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.grib2"
    path.write_bytes(data)
    with open_source(str(path)) as reader:
        name = next(name for name, each in reader.schema().variables.items() if not each.coordinate)
        assert re.search(reason, why_not(reader, name))


def test_another_decoding_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.grib2"
    path.write_bytes(message(2, shortName="t"))
    monkeypatch.setattr(gribberish, "parse_grib_array", lambda data, *_: np.zeros((4, 6)))
    with open_source(str(path)) as reader:
        assert why_not(reader, "t") == "gribberish decodes other values than eccodes"


def test_without_gribberish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.grib2"
    path.write_bytes(message(2, shortName="t"))
    monkeypatch.setitem(sys.modules, "gribberish", None)
    with open_source(str(path)) as reader, pytest.raises(MissingExtraError, match=r"gribberish: pip install"):
        reader.references("t")


@pytest.mark.deep
def test_an_archive_of_references_is_the_copy(tmp_path: Path) -> None:
    paths = [tmp_path / f"{day}.grib2" for day in (1, 2, 3)]
    for day, path in enumerate(paths, 1):
        keys: dict[str, Any] = {"dataDate": 20200100 + day}
        fields = [field("2t", 2, **keys), field("10u", 10, values=VALUES, **keys)]
        fields += [
            message(2, shortName="t", level=level, values=VALUES + day + level, **keys)
            for level in (1000, 500)
        ]
        path.write_bytes(b"".join(fields))
    whole, daily = (Pair(tmp_path / name) for name in ("whole", "daily"))
    dataset = whole.ingest(paths)
    for path in paths:
        grown = daily.ingest(path, mode="append")
    assert grown.identical(dataset)
    assert dataset.t.dims == ("time", "isobaricInhPa", "latitude", "longitude")
    assert set(whole.session.all_virtual_chunk_locations()) == {path.as_uri() for path in paths}
    same(dataset.t2m.values[0].squeeze(), np.arange(24, dtype="f4").reshape(4, 6))

"""Arrays whose data type or codec needs another package: with it, without it, in a group with others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.codecs import BytesCodec
from zarr.core.buffer import cpu

import frazil
import frazil.arrow
from frazil import extras
from frazil.cli import main
from frazil.errors import InvalidInputError, MissingExtraError, UnreadableArrayWarning
from frazil.loader import TrainingWindows
from frazil.zarr_store.arrays import array_at

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CAST = {"name": "cast_value", "configuration": {"data_type": "int8"}}
#: Changes of the metadata of an array, the error of its reads, and what the error names.
UNREADABLE: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "data type": ({"data_type": "number_of_nobody"}, InvalidInputError, "number_of_nobody"),
    "codec": ({"codecs": [BYTES, {"name": "nobody"}]}, InvalidInputError, "nobody"),
    "codec of a URL": (
        {"codecs": [BYTES, {"name": "https://codec.invalid/x"}]},
        InvalidInputError,
        "https://codec.invalid/x",
    ),
    "codec to ignore": (
        {"codecs": [BYTES, {"name": "nobody", "must_understand": False}]},
        InvalidInputError,
        "nobody",
    ),
    "package of an extra": ({"codecs": [{"name": "codec_of_a_test"}]}, MissingExtraError, "codec_of_a_test"),
    "package of zarr": ({"codecs": [CAST, BYTES]}, MissingExtraError, "cast-value-rs"),
    "package of a data type": ({"data_type": "bfloat16"}, MissingExtraError, "ml_dtypes"),
    "transformer": ({"storage_transformers": [{"name": "nobody"}]}, InvalidInputError, "nobody"),
}


def change(store: Any, path: str, changes: dict[str, Any]) -> None:
    """Change the metadata of an array, as another program writes them."""
    document = json.loads(store.get_sync(f"{path}/zarr.json").to_bytes()) | changes
    store.set_sync(f"{path}/zarr.json", cpu.Buffer.from_bytes(json.dumps(document).encode()))


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_array_that_no_package_reads_does_not_spoil_its_group(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, error, part = UNREADABLE[name]
    monkeypatch.setattr(extras, "EXTRA_OF", {**extras.EXTRA_OF, "codec_of_a_test": "grib"})
    for module in ("ml_dtypes", "codec_of_a_test"):
        monkeypatch.setitem(sys.modules, module, None)
    repo = frazil.Repository.create(tmp_path / "ice")
    with repo.transaction("main", message="arrays") as store:
        for each in ("good", "bad"):
            zarr.create_array(
                store, name=each, data=np.ones(4, "f4"), chunks=(2,), dimension_names=["x"], compressors=None
            )
        change(store, "bad", changes)
    session = repo.readonly_session("main")
    for read in (
        lambda: array_at(session, "bad"),
        lambda: frazil.Array(session, "/bad")[:],
        lambda: frazil.reduce(frazil.Array(session, "/bad")),
        lambda: frazil.where(frazil.Array(session, "/bad"), "> 0"),
        lambda: frazil.arrow.dataset(session, variables=["bad"]),
        lambda: TrainingWindows(session, ["bad"], window=1),
        lambda: repo.upkeep.build_statistics("main", ["/bad"]),
    ):
        with pytest.raises(error, match=part) as raised:
            read()
        assert raised.value.kind in ("unsupported-array", "missing-extra")  # type: ignore[attr-defined]
    assert frazil.arrow.dataset(session, variables=["good"]).to_table()["good"].to_pylist() == [1] * 4
    assert len(list(TrainingWindows(session, ["good"], window=1, batch_size=4))) == 1
    with pytest.warns(UnreadableArrayWarning, match=part):
        assert frazil.arrow.dataset(session).count_rows() == 4
    with pytest.warns(UnreadableArrayWarning, match=part):
        assert repo.upkeep.build_statistics("main").chunks_read == 2
    address = str(tmp_path / "ice")
    for command in (["sql", address, "select sum(good) from t"], ["stats", address, "--build"]):
        assert main(command) == 0
        note = capsys.readouterr().err
        assert part in note
        assert note.count("`/bad`") == 1
    assert main(["cat", f"{address}:bad"]) == 1
    assert part in capsys.readouterr().err
    assert main(["cat", f"{address}:good"]) == 0


SMALL = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint2")


@pytest.mark.parametrize("name", SMALL)
def test_numbers_of_ml_dtypes_are_read(name: str) -> None:
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name))
    values = np.array([1, 2, 1, 1, 2, 2, 1]).astype(dtype)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    options: list[dict[str, Any]] = [{}, {"compressors": None}, {"shards": (4,)}]
    if dtype.itemsize > 1:
        options.append({"serializer": BytesCodec(endian="big")})
    with repo.transaction("main", message="arrays") as store:
        for number, each in enumerate(options):
            array = zarr.create_array(
                store,
                name=f"a{number}",
                shape=(9,),
                chunks=(2,),
                dtype=dtype,
                fill_value=1,
                dimension_names=["x"],
                **each,
            )
            array[:7] = values
    session = repo.readonly_session("main")
    expected = np.append(values, np.ones(2, dtype)).astype("f8")
    with pytest.raises(InvalidInputError, match=name):
        frazil.arrow.dataset(session, variables=["a0"])
    with pytest.raises(InvalidInputError, match=name):
        frazil.reduce(frazil.Array(session, "/a0"))
    open_dataset: Any = xr.open_dataset  # its annotation has no sessions
    data = open_dataset(session, engine="frazil")
    for number in range(len(options)):
        elements = frazil.Array(session, f"/a{number}")
        reads: tuple[Any, ...] = (
            elements[:],
            zarr.open_array(session.store, path=f"a{number}")[:],
            data[f"a{number}"].values,
        )
        for read in reads:
            assert read.dtype == dtype
            np.testing.assert_array_equal(read.astype("f8"), expected)
        np.testing.assert_array_equal(elements[[7, 0, 4]].astype("f8"), expected[[7, 0, 4]])
        np.testing.assert_array_equal(elements[1:8:3].astype("f8"), expected[1:8:3])


@pytest.mark.parametrize(
    ("name", "fill", "expected"),
    [
        ("bfloat16", "NaN", np.nan),
        ("bfloat16", "-Infinity", -np.inf),
        ("bfloat16", "0x3fc0", 1.5),
        ("float8_e4m3fn", 1.75, 1.75),
        ("int4", -8, -8),
    ],
)
def test_fill_values_of_small_numbers(name: str, fill: Any, expected: float) -> None:
    pytest.importorskip("ml_dtypes")
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    zarr.create_array(session.store, name="t", shape=(2,), chunks=(2,), dtype="f4")
    codecs = [BYTES if name == "bfloat16" else {"name": "bytes"}]
    change(session.store, "t", {"data_type": name, "fill_value": fill, "codecs": codecs})
    array = zarr.open_array(session.store, path="t")
    assert np.array_equal(np.asarray(array[:]).astype("f8"), [expected] * 2, equal_nan=True)
    array[0] = 1
    assert np.asarray(array[:]).astype("f8")[0] == 1


def test_other_arrays_do_not_import_the_package() -> None:
    program = (
        "import sys, numpy as np, zarr, frazil\n"
        "session = frazil.Repository.create(frazil.in_memory_storage()).writable_session('main')\n"
        "zarr.create_array(session.store, name='t', data=np.arange(4.0))\n"
        "frazil.reduce(frazil.Array(session, '/t'))\n"
        "session.discard_changes()\n"
        "raise SystemExit('ml_dtypes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

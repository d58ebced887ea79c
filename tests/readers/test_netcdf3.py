"""NetCDF-3: values, attributes and references from our own reading of the header, against the libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import comparing
from tests.support.examples import examples

from frazil.errors import ErrorKind, FormatError
from frazil.readers.files import SourceFile
from frazil.readers.registry import open_source

netCDF4 = pytest.importorskip("netCDF4")  # noqa: N816
pytestmark = pytest.mark.filterwarnings("ignore:numpy.ndarray size changed")

FORMATS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]
KINDS = ("i1", "i2", "i4", "f4", "f8")
OF_CDF5 = ("u1", "u2", "u4", "i8", "u8")


def write_file(path: Path, format: str, records: int = 3, *, alone: bool = False) -> Path:
    """A file with every type, records of odd lengths (``alone``: one variable only), characters, scalars."""
    kinds = KINDS + (OF_CDF5 if format == "NETCDF3_64BIT_DATA" else ())
    with netCDF4.Dataset(path, "w", format=format) as file:
        file.setncatts(
            {"title": "Prüfung", "numbers": np.array([1.5, -2], "f4"), "one": np.int16(7), "empty": ""}
        )
        for name, size in {"time": None, "x": 5, "letters": 3}.items():
            file.createDimension(name, size)
        if not alone:
            for kind in kinds:
                file.createVariable(f"fixed_{kind}", kind, ("x",))[...] = [0, 1, 2, 3, 100]
                file.createVariable(f"record_{kind}", kind, ("time", "x"))
            file.createVariable("name", "S1", ("x", "letters"))[...] = np.full((5, 3), b"z")
            file.createVariable("scalar", "f8", ()).units = "m"
            file.createVariable("time", "f8", ("time",)).setncatts(
                {"units": "hours since 1970-01-01", "calendar": "360_day"}
            )
        packed = file.createVariable("packed", "i2", ("time", "x"), fill_value=-5)
        packed.setncatts({"scale_factor": np.float32(0.1), "add_offset": 10.0, "missing_value": np.int16(-6)})
        packed.set_auto_maskandscale(False)
        for at in range(records):
            for name, variable in file.variables.items():
                if name == "time":
                    variable[at] = at
                elif name == "packed" or name.startswith("record"):
                    variable[at] = np.arange(5) + at
    return path


def opened(path: Path) -> xr.Dataset:
    return xr.open_dataset(path, decode_cf=False, engine="netcdf4")


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("records", [0, 1, 3])
@pytest.mark.parametrize("format", FORMATS)
def test_features(format: str, records: int, alone: bool, tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.nc", format, records, alone=alone)
    with opened(path) as original, open_source(str(path)) as reader:
        assert reader.schema().format == "netcdf3"
        assert reader.schema().unlimited == {"time"}
        comparing.same_as_xarray(reader, original)
        for name in reader.schema().variables:
            comparing.same_regions(reader, name)
            comparing.same_by_references(reader, name)


@settings(max_examples=examples(20))
@given(
    shapes=st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(1, 5), max_size=3, unique=True)), min_size=1, max_size=5
    ),
    kinds=st.lists(st.sampled_from(KINDS), min_size=5, max_size=5),
    records=st.integers(0, 4),
    data=st.data(),
)
def test_any_layout(
    shapes: list[Any], kinds: list[str], records: int, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("r", None)
        for size in range(1, 6):
            file.createDimension(f"d{size}", size)
        for at, (is_record, sizes) in enumerate(shapes):
            dims = (("r",) if is_record else ()) + tuple(f"d{size}" for size in sizes)
            file.createVariable(f"v{at}", kinds[at], dims)
        for at, (is_record, sizes) in enumerate(shapes):
            shape = (records, *sizes) if is_record else tuple(sizes)
            values = (np.arange(np.prod(shape, dtype=int)) % 100 + at).reshape(shape)
            file[f"v{at}"][(slice(0, records),) if is_record else ...] = values
    with opened(path) as original, open_source(str(path)) as reader:
        comparing.same_as_xarray(reader, original)
        for name, variable in reader.schema().variables.items():
            comparing.same_by_references(reader, name)
            region = tuple(
                slice(*sorted(data.draw(st.tuples(st.integers(0, size), st.integers(0, size)))))
                for size in variable.shape
            )
            comparing.same(reader.read(name, region), original[name].values[region])


def test_records_far_from_each_other_are_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        file.createDimension("x", 100_000)
        file.createVariable("t", "f8", ("t",))
        file.createVariable("v", "f4", ("t", "x"))[:4] = np.arange(400_000).reshape(4, -1)
        file["t"][:] = [1, 2, 3, 4]
    with open_source(str(path)) as reader:
        reader.schema()
        ranges: list[tuple[int, int]] = []
        read = SourceFile.read

        def recorded(file: SourceFile, start: int, stop: int) -> bytes:
            ranges.append((start, stop))
            return read(file, start, stop)

        monkeypatch.setattr(SourceFile, "read", recorded)
        comparing.same(reader.read("t", (slice(1, 4),)), np.array([2, 3, 4], ">f8"))
    assert sum(stop - start for start, stop in ranges) == 24


def test_a_file_that_does_not_know_its_records(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.nc", "NETCDF3_CLASSIC")
    data = bytearray(path.read_bytes())
    data[4:8] = b"\xff" * 4
    path.write_bytes(data)
    with open_source(str(path)) as reader:
        assert reader.schema().dims["time"] == 3


@pytest.mark.parametrize("format", FORMATS)
def test_truncated_files_are_noticed_at_once(format: str, tmp_path: Path) -> None:
    whole = write_file(tmp_path / "a.nc", format).read_bytes()
    cut = tmp_path / "cut.nc"
    for size in [len(whole) - 4, len(whole) // 2, 500, 37, 9, 5]:
        cut.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"truncated|that fit in") as raised:
            open_source(str(cut)).schema()
        assert raised.value.kind == ErrorKind.INVALID_FILE_FORMAT
        assert cut.as_uri() in str(raised.value)


def test_a_header_larger_than_the_first_read(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.history = "x" * 300_000
        file.createVariable("v", "f8", ())[...] = 3
    with open_source(str(path)) as reader:
        assert reader.schema().attrs == {"history": "x" * 300_000}
        assert comparing.read_all(reader, "v") == 3
    path.write_bytes(path.read_bytes()[:200_000])
    with pytest.raises(FormatError, match="that fit in 200000 bytes"):
        open_source(str(path))
    with pytest.raises(FormatError, match="file has no groups"):
        open_source(str(path), group="/a")


def test_more_than_four_gigabytes(tmp_path: Path) -> None:
    """A file with a hole: its last variable begins after five gigabytes."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("y", 5)
        file.createVariable("far", "i4", ("y",))[...] = [1, 2, 3, 4, 5]
    data = path.read_bytes()
    with open_source(str(path)) as reader:
        begin = int(comparing.references_of(reader, "far").offset[0])
    with path.open("r+b") as changed:
        changed.write(data.replace(begin.to_bytes(8, "big"), (5_000_000_000).to_bytes(8, "big")))
        changed.seek(5_000_000_000)
        changed.write(data[begin:])
    with open_source(str(path)) as reader, opened(path) as original:
        assert comparing.references_of(reader, "far").offset.tolist() == [5_000_000_000]
        comparing.same(comparing.read_all(reader, "far"), original["far"].values)
        comparing.same(reader.read("far", (slice(1, 3),)), np.array([2, 3], ">i4"))
    path.unlink()

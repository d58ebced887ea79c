"""What is left out of files is told, and does not make the rest of a file damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]  # it ships no types
import netCDF4
import numpy as np
import pytest
import scipy.io  # type: ignore[import-untyped]  # it ships no types
import xarray as xr
from tests.pipeline.ingest import netcdf_files as nc

import frazil
from frazil.cli.main import main
from frazil.pipeline import Target
from frazil.readers.registry import open_source

pytestmark = pytest.mark.filterwarnings("ignore:numpy.ndarray size changed")
POINT = np.dtype([("level", "i4"), ("unit", "S3")])


def long_float() -> h5py.h5t.TypeFloatID:
    """128 bits, more than any float of numpy has."""
    kind = h5py.h5t.IEEE_F64LE.copy()
    kind.set_size(16)
    kind.set_precision(128)
    kind.set_fields(127, 112, 15, 0, 112)
    kind.set_ebias(16383)
    return kind


def low_level(file: h5py.File, name: str, kind: h5py.h5t.TypeID) -> None:
    h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((2,)))


#: Variables of types that no array can hold, and what is said of them.
TYPES: dict[str, tuple[Callable[[h5py.File, str], Any], str]] = {
    "compound": (lambda file, name: file.create_dataset(name, (2,), POINT), "compound"),
    "opaque": (lambda file, name: file.create_dataset(name, (2,), "V5"), "opaque"),
    "array": (lambda file, name: file.create_dataset(name, (2,), np.dtype(("i4", (3,)))), "array type"),
    "ragged": (lambda file, name: file.create_dataset(name, (2,), h5py.vlen_dtype("i4")), "lengths"),
    "reference": (lambda file, name: file.create_dataset(name, (2,), h5py.ref_dtype), "references"),
    "long double": (lambda file, name: file.create_dataset(name, (2,), "f16"), "long doubles"),
    "long float": (lambda file, name: low_level(file, name, long_float()), "numpy does not have"),
    "time": (lambda file, name: low_level(file, name, h5py.h5t.UNIX_D32LE), "numpy does not have"),
    "null": (lambda file, name: file.create_dataset(name, data=h5py.Empty("f4")), "null dataspace"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TYPES)
def test_one_variable_of_a_type_that_no_array_can_hold(name: str, tmp_path: Path) -> None:
    make, reason = TYPES[name]
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"] = [1.5, 2.5]
        make(file, "odd")
    report = nc.inspect_files(str(path))
    result = nc.ingest(str(path), nc.repository(tmp_path / "repo"))
    assert nc.stored_dataset(result.version).good.values.tolist() == [1.5, 2.5]
    for notes in (report.notes, nc.report_of(result).notes):
        assert [(each.kind, each.fatal, each.url) for each in notes] == [("types", False, str(path))]
        assert "left out: odd (" in notes[0].message
        assert reason in notes[0].message
    assert "note: types (1)" in str(report)
    with pytest.raises(frazil.InvalidInputError, match="got 'odd', which no array can hold: "):
        nc.ingest(str(path), nc.repository(tmp_path / "two"), variables=["good", "odd"])


def test_groups_that_are_left_out(tmp_path: Path) -> None:
    for name in ("a.h5", "b.h5"):
        with h5py.File(tmp_path / name, "w") as file:
            file["above"], file["sub/x/below"] = [1.5], [2.5]
    report = nc.inspect_files(str(tmp_path / "*.h5"), concat_dim="file")
    assert [(each.kind, each.fatal) for each in report.notes] == [("groups", False)]
    assert "left out (2 such files): /sub, /sub/x" in report.notes[0].message
    assert not nc.inspect_files(str(tmp_path / "a.h5"), source_group="/sub/x").notes


def test_a_file_in_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    path, repo = tmp_path / "a.h5", nc.repository(tmp_path / "repo")
    with h5py.File(path, "w") as file:
        file["odd"] = np.zeros(2, POINT)
    with pytest.raises(
        frazil.InvalidInputError, match=r"no variables that an array .*: odd \(a compound"
    ) as error:
        nc.ingest(str(path), repo)
    assert error.value.kind == frazil.ErrorKind.BAD_SOURCE
    with h5py.File(path, "w") as file:
        file["inner/good"] = [1]
    with pytest.raises(frazil.InvalidInputError, match=r"there are groups /inner"):
        nc.ingest(str(path), repo)
    with h5py.File(path, "w") as file:
        file["odd"], file["good"] = np.zeros(2, POINT), [1]
    with pytest.raises(frazil.InvalidInputError, match=r"has none of odd: odd \(a compound"):
        nc.ingest(str(path), repo, variables="odd")


STATION = np.dtype(
    [("name", "S8"), ("at", [("lat", "f8"), ("lon", ">f4")]), ("count", "i2"), ("wind", "f4", (3,))]
)


def test_fields_of_a_compound_type(tmp_path: Path) -> None:
    path, stations = tmp_path / "a.h5", np.zeros(5, STATION)
    stations["name"], stations["count"] = ["Oslo", "Kyoto", "Lima", "Quito", "Bern"], np.arange(5)
    stations["at"]["lat"], stations["at"]["lon"] = np.arange(5) + 0.5, -np.arange(5)
    stations["wind"] = np.arange(15).reshape(5, 3)
    with h5py.File(path, "w") as file:
        file.create_dataset("station", data=stations, chunks=(2,), compression="gzip", maxshape=(None,))
        file["station"].attrs["source"] = "buoys"
        file["plain"], file["station_count"] = np.arange(3), [7]
    assert "the option compound" in nc.inspect_files(str(path)).notes[0].message
    request = ["ingest", str(path), str(tmp_path / "repo"), "--engine", "inline", "--compound", "fields"]
    assert main(request) == 0
    repo = frazil.Repository.open(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    data = xr.open_zarr(repo.readonly_session("main").store, consolidated=False).load()
    assert {*data.variables} == {
        *("station_name", "station_at_lat", "station_at_lon", "station_wind", "plain", "station_count")
    }
    assert data.station_count.values.tolist() == [7]  # a variable of this name keeps it
    assert data.station_name.values.tolist() == ["Oslo", "Kyoto", "Lima", "Quito", "Bern"]
    for name, values in (
        ("at_lat", stations["at"]["lat"]),
        ("at_lon", stations["at"]["lon"]),
        ("wind", stations["wind"]),
    ):
        field = data[f"station_{name}"]
        np.testing.assert_array_equal(field.values, values)
        assert (field.dims[0], field.attrs["source"]) == (data.station_name.dims[0], "buoys")
    with open_source(str(path), compound="fields") as reader:
        assert reader.read("station_wind", (slice(1, 2), slice(1, 3))).tolist() == [[4, 5]]
    containers = [nc.container(tmp_path)]
    with pytest.raises(frazil.InvalidInputError, match=r"virtual: .*a field of a compound type"):
        nc.ingest(
            str(path), nc.repository(tmp_path / "two"), virtual=True, containers=containers,
            compound="fields"
        )  # fmt: skip


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF4"])
def test_masked_characters(form: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("x", 4)
        file.createDimension("letters", 3)
        file.createVariable("values", "f4", ("x",))[:] = np.arange(4)
        flag = file.createVariable("flag", "S1", ("x",), fill_value="b")
        flag.note = "quality"
        flag[:] = np.array([b"a", b"b", b"\xe9", b"b"], "S1")
        file.createVariable("word", "S1", ("x", "letters"), fill_value=" ")[:] = np.array(
            [[*"one"], [*"two"], [*"a  "], [*"   "]], "S1"
        )
    expected = xr.load_dataset(path, engine="netcdf4")
    data = nc.stored_dataset(nc.ingest(str(path), nc.repository(tmp_path / "repo")).version)
    # xarray reads bytes from the file, and text from the store.
    texts = [each if isinstance(each, float) else each.decode("latin-1") for each in expected.flag.values]
    assert [str(each) for each in data.flag.values] == list(map(str, texts)) == ["a", "nan", "é", "nan"]
    assert data.flag.attrs == {"note": "quality"}
    np.testing.assert_array_equal(data.word.values, expected.word.values)
    # Files that follow each other, and references, which keep the characters.
    repo = nc.repository(tmp_path / "more")
    result = nc.ingest(str(path), repo, virtual=True, containers=[nc.container(tmp_path)])
    assert "flag:_FillValue" in nc.report_of(result).notes[0].message


#: Attributes, and what JSON has of them.
ATTRIBUTES: dict[str, tuple[Any, Any]] = {
    "compound": (np.array((1, b"K"), POINT), '{"level": 1, "unit": "K"}'),
    "nested": (
        np.array((((1, b"K")), [1.5, 2]), [("point", POINT), ("pair", "f4", (2,))]),
        '{"point": "{\\"level\\": 1, \\"unit\\": \\"K\\"}", "pair": [1.5, 2.0]}',
    ),
    "opaque": (np.void(b"\x01\xff"), "01ff"),
    "long double": (np.longdouble(1.5), 1.5),
    "complex": (np.complex64(1 + 2j), [1.0, 2.0]),
    "bool": (np.array([True, False]), [True, False]),
    "matrix": (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "text": ("øre", "øre"),
    "bytes": (np.bytes_(b"\xe9"), "é"),
    "null": (h5py.Empty("f4"), []),
}  # fmt: skip


def test_attributes_of_all_types(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"] = [1, 2]
        for node in (file, file["good"]):
            for name, (value, _) in ATTRIBUTES.items():
                node.attrs[name] = value
            ragged = np.empty(2, object)
            ragged[:] = [np.array([1, 2], "i4"), np.array([3], "i4")]
            node.attrs.create("ragged", ragged, dtype=h5py.vlen_dtype("i4"))
            node.attrs.create("refs", [file["good"].ref, file["good"].ref], dtype=h5py.ref_dtype)
            space = h5py.h5s.create(h5py.h5s.SCALAR)
            h5py.h5a.create(node.id, b"unreadable", long_float(), space)
    result = nc.ingest(str(path), nc.repository(tmp_path / "repo"))
    dataset = xr.open_zarr(result.version.session().store, consolidated=False)
    for attrs in (dataset.attrs, dataset.good.attrs):
        assert {name: attrs[name] for name in ATTRIBUTES} == {
            name: expected for name, (_, expected) in ATTRIBUTES.items()
        }
        assert attrs["ragged"] == [[1, 2], 3]
        assert attrs["refs"] == ["<HDF5 object reference>"] * 2
        assert "unreadable" not in attrs
    [note] = nc.report_of(result).notes
    assert ":unreadable (an attribute of a type" in note.message
    assert "good:unreadable (an attribute of a type" in note.message


def station(path: Path, records: int) -> str:
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("record", None)
        for name in ("t", "p"):
            file.createVariable(name, "f4", ("record",))[:records] = np.arange(records)
    return str(path)


def test_references_to_a_few_bytes_get_a_note(tmp_path: Path) -> None:
    path = station(tmp_path / "a.nc", 1_500)
    request: dict[str, Any] = {"virtual": True}
    result = nc.ingest(path, nc.repository(tmp_path / "repo"), containers=[nc.container(tmp_path)], **request)
    for notes in (nc.inspect_files(path, **request).notes, nc.report_of(result).notes):
        assert [(each.kind, each.fatal) for each in notes] == [("references", False)]
        assert "3,000 references to chunks of 4 B: t, p; copies of these variables" in notes[0].message
    assert not nc.inspect_files(path).notes
    assert not nc.inspect_files(station(tmp_path / "b.nc", 900), **request).notes


def test_files_that_have_only_single_steps_in_common_get_a_note(tmp_path: Path) -> None:
    paths = []
    for start, stop in ((0, 4), (4, 9)):
        paths.append(str(tmp_path / f"{start}.nc"))
        with netCDF4.Dataset(paths[-1], "w", format="NETCDF3_CLASSIC") as file:
            file.createDimension("time", stop - start)
            for name in ("time", "p"):
                file.createVariable(name, "f4", ("time",))[:] = np.arange(start, stop)
    notes = nc.inspect_files(paths, virtual=True, concat_dim="time").notes
    assert [(each.kind, each.message) for each in notes] == [
        ("chunks", "p: files of 4 to 5 steps have chunks of one step in common")
    ]
    assert not nc.inspect_files(paths[:1], virtual=True, concat_dim="time").notes


def test_the_command_prints_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["good"], file["odd"] = [1, 2], np.zeros(2, POINT)
    nc.repository(tmp_path / "repo")
    assert main(["ingest", str(path), str(tmp_path / "repo"), "--engine", "inline"]) == 0
    assert f"note: types: {path}: left out: odd (a compound" in capsys.readouterr().out


def test_names_that_no_array_can_have_are_left_out(tmp_path: Path) -> None:
    with scipy.io.netcdf_file(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        for name in ("a/b", "c", "zarr.json"):
            file.createVariable(name, "f4", ("x",))[:] = [1, 2]
    result = nc.ingest(str(tmp_path / "a.nc"), nc.repository(tmp_path / "repo"))
    assert list(nc.stored_dataset(result.version).variables) == ["c"]
    (note,) = nc.report_of(result).notes
    for name in ("a/b", "zarr.json"):
        assert f"{name} (a name that no array can have)" in note.message


def test_a_packing_that_is_not_a_number(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("a", data=[1, 2]).attrs["scale_factor"] = [0.5, 0.5]
    version = nc.ingest(str(tmp_path / "a.h5"), nc.repository(tmp_path / "repo")).version
    assert frazil.read(version.session(), "a").tolist() == [1, 2]
    with pytest.raises(frazil.InvalidInputError, match="of `/a` must be numbers"):
        nc.ingest(str(tmp_path / "a.h5"), nc.repository(tmp_path / "two"), unpack=True)


def test_a_scalar_with_the_name_of_a_dimension(tmp_path: Path) -> None:
    """Files of MINC have the length of a voxel in such scalars."""
    with scipy.io.netcdf_file(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 2)
        file.createVariable("image", "f4", ("x",))[:] = [1, 2]
        file.createVariable("x", "f4", ())
    target = Target(nc.repository(tmp_path / "repo"))
    with pytest.raises(
        frazil.InvalidInputError, match=r"`/x` is a scalar. Ingest one of the two, with variables="
    ):
        nc.ingest(str(tmp_path / "a.nc"), target)
    version = nc.ingest(str(tmp_path / "a.nc"), target, variables={"image"}).version
    assert frazil.read(version.session(), "image").tolist() == [1, 2]


def test_fields_of_other_formats(tmp_path: Path) -> None:
    xr.Dataset({"a": ("x", [1])}).to_zarr(tmp_path / "a.zarr", consolidated=False)
    (problem,) = nc.inspect_files(str(tmp_path / "a.zarr"), compound="fields").problems
    assert problem.message.startswith("compound must be skip for all formats but hdf5")

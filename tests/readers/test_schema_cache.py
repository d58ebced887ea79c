"""How often the metadata of files are read, and what that costs for many variables."""

from __future__ import annotations

import math
import os
from collections import Counter
from functools import partial
from pathlib import Path

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
from tests.counting import python_steps
from tests.pipeline.ingest.netcdf_files import daily_files, ingest, write

import frazil
from frazil.readers import base_reader
from frazil.readers.base_reader import FileSchema, Schemas
from frazil.readers.hdf5 import Hdf5Reader
from frazil.readers.registry import open_source


def wide(path: Path, variables: int, *, inner: bool = False) -> str:
    """A file of variables, each along a dimension of its own; ``inner``: in a group below the dimensions."""
    with h5py.File(path, "w") as file:
        for number in range(variables):
            scale = file.create_dataset(f"x{number}", data=np.arange(3.0))
            scale.make_scale(f"x{number}")
            data = file.create_dataset(f"{'inner/' if inner else ''}v{number}", data=np.arange(3))
            data.dims[0].attach_scale(scale)
            data.attrs.update({"units": "m", "long_name": f"variable {number}"})
    return str(path)


def schema(url: str, group: str = "/") -> FileSchema:
    with open_source(url, group=group) as reader:
        return reader.schema()


@pytest.fixture(autouse=True)
def no_schemas(monkeypatch: pytest.MonkeyPatch) -> Schemas:
    fresh = Schemas()
    monkeypatch.setattr(base_reader, "SCHEMAS", fresh)
    return fresh


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the metadata of each file are read."""
    counts: Counter[str] = Counter()
    read = Hdf5Reader.contents

    def counted(reader: Hdf5Reader) -> base_reader.FileContents:
        counts[reader.file.url] += 1
        return read(reader)

    monkeypatch.setattr(Hdf5Reader, "contents", counted)
    return counts


@pytest.mark.sample(1)
@pytest.mark.parametrize("inner", [False, True], ids=["own", "above"])
def test_a_schema_takes_steps_for_each_variable(
    inner: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is not asked for the name of a scale: it would search the file, once for each dimension."""
    names = 0
    get_name = h5py.h5i.get_name

    def counted(node: h5py.h5i.ObjectID) -> bytes | None:
        nonlocal names
        names += 1
        name: bytes | None = get_name(node)
        return name

    monkeypatch.setattr(h5py.h5i, "get_name", counted)
    steps, group = [], "/inner" if inner else "/"
    for count in (30, 300):
        url = wide(tmp_path / f"{count}.h5", count, inner=inner)
        schema(url, group)
        names = 0
        monkeypatch.setattr(base_reader, "SCHEMAS", Schemas())
        steps.append(python_steps(partial(schema, url, group)))
        assert names <= 10
    assert math.log10(steps[1] / steps[0]) < 1.3
    result = schema(url, group)
    assert [result.variables[f"v{number}"].dims for number in (0, 17, 299)] == [("x0",), ("x17",), ("x299",)]


def test_metadata_are_read_once_for_each_file(tmp_path: Path, parts: Counter[str]) -> None:
    """To find the dimension, to inspect, to plan and to copy."""
    paths = daily_files(tmp_path / "days", 7)
    repo = frazil.Repository.create(frazil.in_memory_storage())
    ingest(paths[:5], repo)
    ingest(paths, repo, mode="upsert")
    assert parts == {Path(path).as_uri(): 1 for path in paths}


@pytest.mark.parametrize("change", ["contents", "time", "group"])
def test_another_state_of_a_file_is_another_schema(change: str, tmp_path: Path, parts: Counter[str]) -> None:
    path = tmp_path / "a.nc"
    url = write(path, range(4))
    assert schema(url).coords["time"].tolist() == [0, 1, 2, 3]
    assert schema(url) is schema(url)
    if change == "contents":
        write(path, range(4, 8))
        assert schema(url).coords["time"].tolist() == [4, 5, 6, 7]
    elif change == "time":
        os.utime(path, (1, 1))
        assert schema(url).modified is not None
    else:
        with h5py.File(path, "a") as file:
            file["inner/x"] = [1]
        assert set(schema(url, "inner").variables) == {"x"}
    assert parts.total() == 2


def test_a_link_to_a_scale_is_not_its_name(tmp_path: Path) -> None:
    path = wide(tmp_path / "a.h5", 2)
    with h5py.File(path, "a") as file:
        file["alias"] = h5py.SoftLink("/x1")
        file["elsewhere/scale"] = np.arange(3.0)
        file["elsewhere/scale"].make_scale("scale")
        file["v0"].dims[0].detach_scale(file["x0"])
        file["v0"].dims[0].attach_scale(file["elsewhere/scale"])
    result = schema(path)
    assert result.variables["v1"].dims == ("x1",)
    assert result.variables["v0"].dims == ("scale",)

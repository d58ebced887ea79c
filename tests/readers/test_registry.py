"""Which reader is for a file, and the ranges in which files are read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import ErrorKind, FormatError, InvalidInputError
from frazil.pipeline import inspect_files
from frazil.readers import files
from frazil.readers.files import BlockStream, SourceFile, find_file
from frazil.readers.registry import ALIASES, FORMATS, open_source, sniff

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)).map(lambda at: (at[0], sum(at))))


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].magic])
def test_first_bytes_say_the_format(name: str, tmp_path: Path) -> None:
    for number, magic in enumerate(FORMATS[name].magic):
        path = tmp_path / f"{number}.txt"  # a name says nothing
        path.write_bytes(magic + bytes(600))
        assert sniff(find_file(str(path))) == name
    assert set(ALIASES.values()) <= set(FORMATS)
    # a block of the user may come before HDF5
    path.write_bytes(bytes(2048) + FORMATS["hdf5"].magic[0] + bytes(100))
    assert sniff(find_file(str(path))) == "hdf5"


@pytest.mark.parametrize("data", [b"", b"\x89", b"CDF\x04", b"RIFF" + bytes(100), b'{"a": 1}'])
def test_what_nobody_knows(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(data)
    with pytest.raises(FormatError, match="begins as one of hdf5, netcdf3, grib, geotiff, zarr") as raised:
        open_source(str(path))
    assert raised.value.kind == ErrorKind.INVALID_FILE_FORMAT
    assert path.as_uri() in str(raised.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PK\3\4" + bytes(100), "is compressed with zip"),
        (b"\x1f\x9d\x90" + bytes(100), "is compressed with compress"),
        (b'{"version": 1, "refs": {".zgroup": ""}}', "import_kerchunk"),
    ],
)
def test_files_that_are_not_damaged(data: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.nc.zip"
    path.write_bytes(data)
    with pytest.raises(InvalidInputError, match=text):
        open_source(str(path))
    (problem,) = inspect_files(str(path), engine="inline").problems
    assert problem.kind == "format"


@given(ahead=RANGES, ranges=RANGES)
def test_prefetched_bytes_are_those_of_the_file(
    ahead: list[tuple[int, int]], ranges: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes"
    data = bytes(range(256)) * 2
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK", 16)
        patch.setattr(files, "CACHED_BLOCKS", 2)
        file = BlockStream(SourceFile("file:///bytes", len(data), path=str(path)))
        file.prefetch(ahead)
        for start, stop in [*ranges, *ranges, (500, 600)]:
            file.seek(start)
            assert file.read(stop - start) == data[start:stop]
        assert file.seek(-4, io.SEEK_END) == len(data) - 4
        assert file.read() == data[-4:]

"""Which files are meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.ingest.netcdf_files import replace_seam

import frazil
from frazil.errors import InvalidInputError
from frazil.pipeline import ConcatDim, FilePattern
from frazil.pipeline.ingest.options import expand
from frazil.storage.base import ALWAYS

KEYS = (
    "era/2000/t_1.nc",
    "era/2000/t_2.nc",
    "era/2001/t_1.nc",
    "era/2001/u_1.nc",
    "era/t_1.nc",
    "x+y/t_1.nc",
)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("era/*/t_?.nc", KEYS[:3]),
        ("era/**/t_1.nc", (KEYS[0], KEYS[2], KEYS[4])),
        ("era/20*/*", KEYS[:4]),
        ("x+y/*.nc", KEYS[5:]),
        ("**.nc", KEYS),
    ],
)
def test_globs_of_buckets(glob: str, expected: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    storage = frazil.in_memory_storage()
    for key in KEYS:
        storage.put(key, b"x", ALWAYS)
    replace_seam(
        monkeypatch,
        "frazil.pipeline.ingest.options.object_storage",
        lambda url, options: (storage, url[len("s3://b/") :]),
    )
    assert expand(f"s3://b/{glob}").urls == tuple(f"s3://b/{key}" for key in expected)


def test_files_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.nc", "a.nc", "in/c.nc", "[1].nc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    paths = [str(tmp_path / name) for name in ("a.nc", "b.nc", "in/c.nc")]
    assert expand("?.nc").urls == tuple(paths[:2])
    assert expand([f"file://{tmp_path}/**/c.nc", Path("a.nc")]).urls == (paths[2], paths[0])
    assert expand("[1].nc").urls == (str(tmp_path / "[1].nc"),)
    nothing: list[str] = []
    for wrong in ("*.grib", nothing):
        with pytest.raises(InvalidInputError, match="at least one file"):
            expand(wrong)
    with pytest.raises(InvalidInputError, match="twice"):
        expand(["a.nc", "?.nc"])
    with pytest.raises(InvalidInputError, match="at most one ConcatDim"):
        FilePattern(str, ConcatDim("x", [1]), ConcatDim("y", [1]))

"""What xarray does with arrays of Cubed, and the table of docs/cubed.md about it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import xarray as xr
from tests.cubed.programs import ONE_CHUNK, OTHERS, PROGRAMS, Program, daily

import cubed
import frazil
import frazil.xarray
from frazil.cubed import Executor

PAGE = Path(__file__).parents[2] / "docs" / "cubed.md"
#: Program -> the error of the table, or nothing.
TABLE = {
    name: error.strip().strip("`")
    for name, error in re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "repo"
    frazil.xarray.FrazilAccessor(daily()).to(path, encoding={"t": {"chunks": (60, 3, 4)}})
    return path


@pytest.fixture(autouse=True)
def spec(tmp_path: Path) -> Iterator[None]:
    with cubed.config.set({"spec.work_dir": str(tmp_path), "spec.allowed_mem": "200MB"}):
        yield


def opened(place: Path, name: str) -> xr.Dataset:
    chunks = dict.fromkeys(ONE_CHUNK.get(name, ()), -1)
    return xr.open_dataset(place, engine="frazil", chunks=chunks, chunked_array_type="cubed")


def require_equal(place: Path, name: str, program: Program) -> None:
    """The program has the same values in memory and with Cubed."""
    computed = program(opened(place, name)).load(executor=Executor("threads"))
    expected = PROGRAMS[name](xr.open_dataset(place, engine="frazil"))
    if name == "rolling":
        expected = expected.isel(time=slice(3, -3))  # the ends have no values
    both = set(computed.coords) & set(expected.coords)
    one, other = (each.drop_vars(set(each.coords) - both) for each in (computed, expected))
    xr.testing.assert_allclose(one, other.transpose(*one["t"].dims), rtol=1e-5, atol=1e-3)


def test_the_table_has_all_programs() -> None:
    assert list(TABLE) == list(PROGRAMS)
    assert {name for name, error in TABLE.items() if error} == set(OTHERS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_unchanged_programs(place: Path, name: str) -> None:
    if not TABLE[name]:
        require_equal(place, name, PROGRAMS[name])
        return
    kind, _, text = TABLE[name].partition(":")
    with pytest.raises(Exception, match=re.escape(text.strip()) or None) as caught:
        PROGRAMS[name](opened(place, name)).load(executor=Executor("threads"))
    assert type(caught.value).__name__ == kind


@pytest.mark.parametrize("name", OTHERS)
def test_programs_with_what_cubed_has(place: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The 'generic' unit", DeprecationWarning)
        require_equal(place, name, OTHERS[name])


LOADED = re.findall(
    r"`(\w+)`", "".join(re.findall(r"^Loaded at once: (.*)$", PAGE.read_text(), re.MULTILINE))
)


@pytest.mark.parametrize("name", ["sum", "mean", "count", "max", "min", "prod", "std", "var", "median"])
def test_reductions_that_load_the_values(place: Path, name: str) -> None:
    reduced = getattr(opened(place, "") / 280, name)("time")
    assert (reduced["t"].chunks is None) == (name in LOADED)

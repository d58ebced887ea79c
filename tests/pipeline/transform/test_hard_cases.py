"""What goes wrong in silence elsewhere: labels of others, functions with a state, mirrors, odd arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from tests.pipeline.transform.shared import (
    coarsen,
    map_blocks,
    materialize,
    pyramid,
    rechunk,
    regrid,
    repository_of,
    select,
)  # fmt: skip

import frazil
import frazil.pipeline as ops
from frazil.pipeline.transform.block_functions import fingerprint

VALUES = np.arange(35.0).reshape(5, 7)


@pytest.fixture
def repo() -> frazil.Repository:
    data = {"t": (("lat", "lon"), VALUES), "u": (("lat", "lon"), VALUES * 2)}
    coords = {
        "lat": ("lat", np.arange(5.0), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(7.0), {"units": "degrees_east"}),
    }
    return repository_of(xr.Dataset(data, coords), encoding={name: {"chunks": (2, 3)} for name in data})


def read(repo: frazil.Repository, group: str) -> xr.Dataset:
    store = repo.readonly_session("main").store
    stored: xr.Dataset = xr.open_zarr(store, group=group, consolidated=False, chunks=None)
    return stored.load()


def test_labels_of_others_are_not_replaced(repo: frazil.Repository) -> None:
    out, engine = ops.Target(repo, group="out"), ops.Inline()
    coarsen(repo, ["t"], {"lat": 2}, boundary="trim", to=out, engine=engine)
    coarsen(repo, ["u"], {"lat": 2}, boundary="trim", to=out, engine=engine)  # the same labels
    assert set(read(repo, "out")) == {"t", "u"}
    refused: list[Callable[[], Any]] = [
        lambda: coarsen(repo, ["t"], {"lat": 4}, boundary="trim", to=out, engine=engine),
        lambda: select(repo, ["t"], isel={"lat": slice(1, 3)}, to=out, engine=engine),
        lambda: select(repo, ["t"], isel={"lat": slice(2, 4)}, to=out, engine=engine),  # whole chunks
        lambda: rechunk(repo, ["t"], (5, 7), to=out, engine=engine),
        lambda: materialize(repo, ["t"], to=out, engine=engine),
        lambda: regrid(repo, ["t"], {"lat": [1, 2], "lon": [1, 2]}, to=out, engine=engine),
    ]
    for call in refused:
        with pytest.raises(frazil.InvalidInputError, match="`/out/u` is labelled with"):
            call()
    coarsen(repo, ["t", "u"], {"lat": 4}, boundary="trim", to=out, engine=engine)  # all that have them
    assert read(repo, "out").sizes["lat"] == 1


def test_a_second_auxiliary_coordinate_of_two_columns_is_no_bounds() -> None:
    dataset = xr.Dataset(
        {"t": (("y", "x"), np.zeros((6, 2)))}, {"lat2": (("y", "x"), np.arange(12.0).reshape(6, 2))}
    )
    repo = repository_of(dataset)
    coarsen(repo, ["t"], {"y": 2}, to=ops.Target(repo, group="c"))
    pyramid(repo, ["t"], factors={"y": 2}, levels=2, to=ops.Target(repo, group="p"))
    expected = dataset["lat2"].coarsen(y=2).mean().values
    assert (read(repo, "c")["lat2"].values == expected).all()
    assert (read(repo, "p/1")["lat2"].values == expected).all()


class Scaled:
    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return values * self.factor

    def times(self, values: np.ndarray) -> np.ndarray:
        return self(values)


FACTOR: Any = 1


def by_a_global(values: np.ndarray) -> np.ndarray:
    return np.array([value * FACTOR for value in values])


def closed_over(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    def times(values: np.ndarray, deep: bool = True) -> np.ndarray:
        return times(values, False) if deep else values * factor

    return times


@pytest.mark.deep
def test_functions_with_other_values_are_others(
    repo: frazil.Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_global(factor: float) -> Callable[[np.ndarray], np.ndarray]:
        monkeypatch.setitem(globals(), "FACTOR", factor)
        return by_a_global

    kinds: list[Any] = [
        Scaled,
        lambda f: Scaled(f).times,
        lambda f: functools.partial(np.multiply, f),
        closed_over,
        with_global,
    ]
    for number, kind in enumerate(kinds):
        to = ops.Target(repo, group=f"f{number}")
        done = [map_blocks(kind(f), repo, ["t"], to=to).done_before for f in (2, 3, 3)]
        assert done == [False, False, True]
        assert (read(repo, to.group)["t"].values == 3 * VALUES).all()


def test_a_function_is_the_same_in_another_process() -> None:
    """Sets have another order there."""
    sources = ["lambda x: x in {'a', 'b', 'c'}", "lambda x: x in {'c', 'b', 'a'}"]
    one, other = (fingerprint(eval(source)) for source in sources)
    assert one == other


def test_shards_go_with_the_new_chunks(repo: frazil.Repository) -> None:
    to = ops.Target(repo, group="out")
    result = rechunk(repo, ["t"], (2, 2), shards={"lat": -1}, to=to)
    output = zarr.open_array(result.version.session().store, path="out/t", mode="r")
    assert (output.chunks, output.shards) == ((2, 2), (6, 2))
    np.testing.assert_array_equal(output[...], VALUES)


HALF, GRID = {"lat": 2, "lon": 2}, {"lat": [1, 2], "lon": [1, 2]}
REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], str]] = [
    (rechunk, ("auto",), {}, "got auto"),
    (rechunk, (7,), {}, "got 7"),
    (rechunk, ((2.5, 1),), {}, r"got \(2.5, 1\)"),
    (rechunk, ((1,),), {"paths": ["nothing"]}, "nothing"),
    (rechunk, ((1,),), {}, "2 lengths .* for `/t`"),
    (rechunk, ((1, 0),), {}, "2 lengths"),
    (rechunk, ({"height": 3},), {}, "'height'"),
    (rechunk, ((2, 2),), {"shards": (3, 4)}, "multiple"),
    (rechunk, ((5, 7),), {"max_mem": 500}, "at least .* Pass max_mem='1MB'"),
    (rechunk, ((5, 7),), {"max_mem": "much"}, "256MB"),
    (rechunk, ({"lat": "x"},), {}, "got {'lat': 'x'}"),
    (ops.recompress, (["zstd"],), {}, "zarr codecs"),
    (ops.recompress, ([{"name": "none"}],), {}, "zarr cannot read"),
    (select, (), {"isel": {"lat": slice(0.5, 2)}}, "whole numbers"),
    (select, (), {"isel": {"height": 1}}, "'height'"),
    (select, (), {"isel": {"lat": 5}}, "5 elements"),
    (select, (), {"isel": {"lat": [0.5]}}, "5 elements"),
    (select, (), {"isel": {"lat": 1}, "sel": {"lat": 1}}, "both"),
    (regrid, ({"lat": [1], "lon": [1, 2]},), {}, "at least two"),
    (regrid, ({"lat": [1, 2]},), {}, "`lat` and `lon`"),
    (regrid, ({"lat": [1, 3, 2], "lon": [1]},), {}, "rise or fall"),
    (regrid, (GRID, "cubic"), {}, "one of|method of"),
    (regrid, (GRID,), {"paths": ["lat"]}, "latitude and a longitude"),
    (regrid, (GRID,), {"max_mem": 100}, "max_mem must be at least"),
    (regrid, (GRID,), {"nan_threshold": 2}, "between 0 and 1"),
    (coarsen, ({"lat": 1},), {"group": "t"}, "`/t` must be a group"),
    (coarsen, ({"height": 2},), {}, "'height'"),
    (coarsen, ({"lat": 0},), {}, "at least 1"),
    (coarsen, ({"lat": 1.5},), {}, "at least 1"),
    (coarsen, ({"lat": 2}, "mode"), {}, "how must be one of"),
    (coarsen, ({"lat": 3},), {"boundary": "exact"}, "multiples.*boundary='trim'.*boundary='pad'"),
    (pyramid, (), {"factors": {}}, "factors must"),
    (pyramid, (), {"factors": HALF, "levels": 0}, "levels must"),
    (pyramid, (), {"factors": HALF, "levels": 9}, "levels must"),
    (pyramid, (), {"factors": HALF, "convention": "mine"}, "convention"),
    (pyramid, (), {"factors": HALF, "how": "std"}, "the level below"),
    (pyramid, (), {"factors": HALF, "convention": "ome", "paths": ["/"]}, "one array"),
    (rechunk, ((2, 2),), {"paths": []}, "paths must name at least one array"),
    (select, (), {"paths": []}, "paths must name at least one array"),
]


@pytest.mark.parametrize(("call", "given", "more", "message"), REFUSED)
def test_what_cannot_be_is_refused(
    repo: frazil.Repository, call: Callable[..., Any], given: Any, more: dict[str, Any], message: str
) -> None:
    tip = repo.lookup_branch("main")
    to = ops.Target(repo, group=more.get("group", "out"))
    options = {name: value for name, value in more.items() if name not in ("group", "paths")}
    with pytest.raises((frazil.InvalidInputError, frazil.NodeNotFoundError), match=message):
        call(repo, more.get("paths", ["t"]), *given, to=to, engine=ops.Inline(), **options)
    assert repo.lookup_branch("main") == tip


def test_a_source_is_not_replaced_by_way_of_a_second_opening(tmp_path: Path, repo: frazil.Repository) -> None:
    storage = frazil.local_filesystem_storage(str(tmp_path))
    one = frazil.Repository.create(storage)
    rechunk(repo, ["t"], (5, 7), to=ops.Target(one))
    other = frazil.Repository.open(frazil.local_filesystem_storage(str(tmp_path)))
    with pytest.raises(frazil.InvalidInputError, match="arrays that the job reads"):
        coarsen(one, ["t"], {"lat": 2}, boundary="trim", to=ops.Target(other))

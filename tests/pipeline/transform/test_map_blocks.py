"""Functions of blocks equal functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.transform.shared import map_blocks, new_repository, read, repository_of

import frazil
from frazil.errors import IcechunkError, InvalidInputError
from frazil.pipeline import Block, Engine, Inline, Target

PADS = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap", 2.5: "constant"}
DEPTHS = st.integers(0, 3) | st.integers(0, 17)  # also wider than blocks and arrays


@pytest.mark.deep
@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(1, 11), st.integers(1, 4), DEPTHS, DEPTHS), min_size=1, max_size=3),
    st.sampled_from(list(PADS)),
    st.integers(1536, 4000),
)
def test_a_halo_hides_the_borders_of_blocks(axes: list[Any], boundary: Any, most: int) -> None:
    shape, chunks = (tuple(each[n] for each in axes) for n in range(2))
    margins = [(low, high) for _, _, low, high in axes]
    data = np.random.default_rng(len(axes)).integers(0, 1000, shape).astype("f8")
    more: dict[str, Any] = {"constant_values": boundary} if boundary == 2.5 else {}
    whole = np.pad(data, margins, mode=PADS[boundary], **more)  # type: ignore[call-overload]
    names = [f"d{n}" for n in range(len(shape))]
    repo = repository_of(data, chunks=chunks, dimension_names=names)

    def look(block_values: np.ndarray, block: Block) -> np.ndarray:
        spans = zip(block.start, block.stop, margins, strict=True)
        region = tuple(slice(start, stop + low + high) for start, stop, (low, high) in spans)
        np.testing.assert_array_equal(block_values, whole[region])  # in a task: the job would fail
        return block_values + 1

    halo: dict[str | int, tuple[int, int]] = dict(zip(names, margins, strict=True))
    target, id_ = Target(repo, group="out"), "a function that is not hashed"
    result = map_blocks(look, repo, ["x"], to=target, halo=halo, boundary=boundary, max_mem=most, job_id=id_)
    np.testing.assert_array_equal(read(result, "out/x")[:], data + 1)  # the halo is cut off again


@pytest.fixture
def wind(tmp_path: Path) -> frazil.Repository:
    repo = new_repository(frazil.local_filesystem_storage(str(tmp_path / "repo")))
    with repo.transaction("main", message="wind") as store:
        dims = ("time", "lat", "lon")
        for number, name in enumerate(("u", "v")):
            data = np.random.default_rng(number).random((4, 6, 5), "f4")
            zarr.create_array(
                store,
                name=name,
                data=data,
                chunks=(2, 3, 5),
                dimension_names=dims,
                attributes={"units": "m s-1"},
            )
        zarr.create_array(store, name="lat", data=np.arange(6.0), chunks=(6,), dimension_names=("lat",))
    return repo


def speed_and_angle(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.hypot(u, v), (np.degrees(np.arctan2(v, u)) + 360).astype("i2")


def test_many_inputs_many_outputs(wind: frazil.Repository) -> None:
    given: dict[str, Any] = {"names": ["speed", "angle"], "dtype": ["f4", "i2"], "chunks": {"lat": 6}}
    to = Target(wind, group="derived")
    result = map_blocks(speed_and_angle, wind, ["u", "v"], to=to, **given)
    u, v = (read(result, name)[:] for name in "uv")
    expected = speed_and_angle(u, v)
    speed, angle = read(result, "derived/speed"), read(result, "derived/angle")
    np.testing.assert_array_equal(speed[:], expected[0])
    np.testing.assert_array_equal(angle[:], expected[1])
    assert (speed.dtype, angle.dtype, speed.chunks) == (np.dtype("f4"), np.dtype("i2"), (2, 6, 5))
    assert speed.metadata.dimension_names == ("time", "lat", "lon")
    assert read(result, "derived/lat")[:].tolist() == list(range(6))
    again = map_blocks(speed_and_angle, wind, ["u", "v"], to=to, **given)
    assert again.done_before
    other = map_blocks(lambda u, v: (u, v), wind, ["u", "v"], to=to, **given)
    assert not other.done_before  # another function


@pytest.mark.sample(1)
def test_a_function_travels(wind: frazil.Repository, engine: Engine) -> None:
    factor = 3

    def more(block: np.ndarray) -> np.ndarray:
        return block * factor

    result = map_blocks(more, wind, ["u"], halo={"lat": 1}, to=Target(wind, group="o"), engine=engine)
    np.testing.assert_array_equal(read(result, "o/u")[:], read(result, "u")[:] * factor)


def test_axes_come_and_go(wind: frazil.Repository) -> None:
    def extremes(block: np.ndarray) -> np.ndarray:
        return np.stack([block.min(axis=0), block.max(axis=0)])

    to = Target(wind)
    result = map_blocks(
        extremes, wind, ["u"], to=to, names=["range"], drop=["time"], new={"bounds": 2}, max_mem=800
    )
    output, u = read(result, "range"), read(result, "u")[:]
    assert output.metadata.dimension_names == ("bounds", "lat", "lon")
    np.testing.assert_array_equal(output[:], np.stack([u.min(axis=0), u.max(axis=0)]))


def test_smaller_arrays_and_the_place_of_a_block(wind: frazil.Repository) -> None:
    def weighted(u: Any, lat: Any, block: Block) -> Any:
        assert lat.shape == (1, u.shape[1], 1)
        assert lat[0, 0, 0] == block.start[1]
        return u * lat

    result = map_blocks(weighted, wind, ["u", "lat"], to=Target(wind), names=["w"], dtype="f8", max_mem=800)
    u = read(result, "u")[:]
    np.testing.assert_array_equal(read(result, "w")[:], u * np.arange(6.0)[:, None])


@pytest.mark.parametrize(
    ("function", "options", "match"),
    [
        (lambda block: block[1:], {"names": ["o"]}, "shape"),
        (lambda block: (block, block), {"names": ["o"]}, "1 arrays"),
        (lambda block: 1 / 0, {"names": ["o"]}, "ZeroDivisionError"),
        (lambda block: block, {}, "got `/u` in both"),
        (lambda block: block, {"names": ["o"], "halo": {"height": 2}}, "'height'"),
        (lambda block: block, {"names": ["o"], "halo": -1}, "at least 0"),
        (lambda block: block, {"names": ["o"], "boundary": "wrap"}, "boundary must be one of"),
        (lambda block: (block, block), {"names": ["p", "p"]}, "own path, got /p, /p"),
        (lambda block: block, {"names": ["o"], "halo": 1, "drop": [0]}, "halo must be 0"),
    ],
)
def test_nothing_is_committed(wind: frazil.Repository, function: Any, options: Any, match: str) -> None:
    tip = wind.lookup_branch("main")
    with pytest.raises(IcechunkError, match=match):
        map_blocks(function, wind, ["u"], to=Target(wind), **options)
    with pytest.raises(InvalidInputError, match="on the grid of"):
        map_blocks(function, wind, ["lat", "u"], to=Target(wind), names=["o"])
    assert wind.lookup_branch("main") == tip


@pytest.fixture
def small() -> frazil.Repository:
    """64 chunks of 400 bytes."""
    data = np.arange(64 * 50.0).reshape(64, 50)
    return repository_of(data, chunks=(1, 50), dimension_names=["y", "x"])


@dataclass(frozen=True)
class Engines(Inline):
    """An engine that says how many tasks it runs at the same time."""

    slot_count: int = 1

    @property
    def slots(self) -> int:
        return self.slot_count


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("tasks", "slots", "expected"), [(None, 1, 32), (None, 40, 64), (1, 40, 1), (4, 1, 4), (1000, 1, 64)]
)
def test_tasks_of_a_function_on_small_arrays(
    small: frazil.Repository, tasks: int | None, slots: int, expected: int
) -> None:
    to = Target(small, group="o")
    result = map_blocks(np.negative, small, ["x"], to=to, tasks=tasks, engine=Engines(slot_count=slots))
    assert result.metrics.tasks == expected
    np.testing.assert_array_equal(read(result, "o/x")[:], -read(result, "x")[:])


@pytest.mark.parametrize(
    ("stored", "values", "fits"),
    [
        ("i2", [1.0, 2.0], True),
        ("i2", [1.5, 2.0], False),
        ("i2", [np.nan, 2.0], False),
        ("i2", np.array([70000, 1]), False),
        ("u1", np.array([-1, 0]), False),
        ("f4", np.array([0.1, np.nan]), True),
        ("f4", np.array([1j, 2]), False),
        ("f4", np.array([None, 2], object), False),
        ("f8", np.array([True, False]), True),
    ],
)
def test_values_that_the_data_type_does_not_hold(stored: str, values: Any, fits: bool) -> None:
    repo = repository_of(np.zeros(2, stored), chunks=(2,), dimension_names=["x"])
    to = Target(repo, group="out")
    values = np.asarray(values)
    if fits:
        result = map_blocks(lambda _: values, repo, ["x"], to=to)
        np.testing.assert_array_equal(read(result, "out/x")[...], values.astype(stored))
        return
    with pytest.raises(IcechunkError, match=f"The values of `/?out/x` must fit into {stored[0]}.*dtype="):
        map_blocks(lambda _: values, repo, ["x"], to=to)
    if values.dtype.kind in "fi":
        asked = map_blocks(lambda _: values, repo, ["x"], to=to, dtype="f8")
        np.testing.assert_array_equal(read(asked, "out/x")[...], values)

"""Frazil and the published icechunk write, move and maintain one repository with statistics of chunks.

Dice decide who does what next. After each step, `frazil.reduce` and `frazil.where` must give what numpy gives
for elements that are read without statistics. Some steps damage, exchange or delete the files of statistics.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import settings

import frazil

pytestmark = pytest.mark.interop

#: Profile of the tests -> steps. 10,000 steps take about a quarter of an hour.
STEPS: Final = {"fuzz": 40_000, "weekly": 10_000}
ON: Final = frazil.RepositoryConfig(
    chunks=frazil.ChunksConfig(statistics=True), inline_chunk_threshold_bytes=8
)
DTYPES: Final = ("f4", "f8", "i2", "i8", "u1")


class Turns:
    """The repository, and the steps."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.storage = frazil.local_filesystem_storage(str(folder))
        frazil.Repository.create(self.storage, config=ON)
        self.arrays = 0
        self.reads = [0, 0]  # the chunks of all reductions, and those that were read
        for _ in range(3):
            self.create()

    def open(self) -> frazil.Repository:
        """Return a handle that writes statistics, or one that does not."""
        return frazil.Repository.open(self.storage, ON if self.dice.random() < 0.8 else None)

    def session(self, branch: str = "main") -> Any:
        """Return a writable session of either library."""
        if self.dice.random() < 0.6:
            return self.open().writable_session(branch)
        place = icechunk.local_filesystem_storage(str(self.folder))
        return icechunk.Repository.open(place).writable_session(branch)

    def names(self, store: Any) -> list[str]:
        return sorted(name for name, _ in zarr.open_group(store, mode="r").arrays())

    def elements(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        if dtype.kind == "f":
            values = self.rng.normal(0, 10, shape).astype(dtype)
            values[self.rng.random(shape) < 0.05] = np.nan
            return values
        limits = np.iinfo(dtype)
        return self.rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)

    # Steps

    def create(self) -> None:
        session = self.session()
        dtype, shape = (
            np.dtype(self.dice.choice(DTYPES)),
            (self.dice.randint(1, 20), self.dice.randint(1, 20)),
        )
        self.arrays += 1
        array = zarr.create_array(
            session.store,
            name=f"a{self.arrays}",
            shape=shape,
            chunks=(self.dice.randint(1, 6), self.dice.randint(1, 6)),
            dtype=dtype,
            attributes={"_FillValue": 3.0} if self.dice.random() < 0.3 else {},
        )
        array[...] = self.elements(dtype, shape)
        session.commit("create")

    def write(self, branch: str = "main") -> None:
        session = self.session(branch)
        for name in self.dice.sample(self.names(session.store), k=1):
            array = zarr.open_array(session.store, path=name)
            box = tuple(slice(*sorted(self.dice.choices(range(n + 1), k=2))) for n in array.shape)
            shape = tuple(each.stop - each.start for each in box)
            array[box] = self.dice.choice([array.fill_value, self.elements(array.dtype, shape)])
        session.commit("write", allow_empty=True)

    def resize(self) -> None:
        session = self.session()
        array = zarr.open_array(session.store, path=self.dice.choice(self.names(session.store)))
        array.resize(tuple(self.dice.randint(1, 22) for _ in array.shape))
        session.commit("resize", allow_empty=True)

    def append(self) -> None:
        session = self.session()
        array = zarr.open_array(session.store, path=self.dice.choice(self.names(session.store)))
        array.append(self.elements(array.dtype, (self.dice.randint(1, 4), array.shape[1])), axis=0)
        session.commit("append")

    def move(self) -> None:
        session = self.open().rearrange_session("main")
        name = self.dice.choice(self.names(self.open().readonly_session("main").store))
        self.arrays += 1
        session.move(f"/{name}", f"/a{self.arrays}")
        session.commit("move")

    def shift(self) -> None:
        session = self.open().writable_session("main")
        name = self.dice.choice(self.names(session.store))
        session.shift_array(f"/{name}", (self.dice.randint(-1, 1), self.dice.randint(-1, 1)))
        session.commit("shift", allow_empty=True)

    def attribute(self) -> None:
        session = self.session()
        array = zarr.open_array(session.store, path=self.dice.choice(self.names(session.store)))
        array.attrs["_FillValue"] = self.dice.choice([0.0, 3.0, 7.0])
        session.commit("attribute", allow_empty=True)

    def replace(self) -> None:
        """Another array at the path of an array."""
        session = self.session()
        name = self.dice.choice(self.names(session.store))
        dtype, shape = (
            np.dtype(self.dice.choice(DTYPES)),
            (self.dice.randint(1, 20), self.dice.randint(1, 20)),
        )
        array = zarr.create_array(
            session.store, name=name, shape=shape, chunks=(4, 4), dtype=dtype, overwrite=True
        )
        array[...] = self.elements(dtype, shape)
        session.commit("replace")

    def merge(self) -> None:
        repo = self.open()
        self.arrays += 1
        repo.create_branch(f"b{self.arrays}", repo.lookup_branch("main"))
        self.write(f"b{self.arrays}")
        self.write()
        solver = frazil.BasicConflictSolver(on_chunk_conflict=frazil.VersionSelection.UseOurs)
        self.open().merge(f"b{self.arrays}", into="main", solver=solver)
        self.open().delete_branch(f"b{self.arrays}")

    def compact(self) -> None:
        self.open().upkeep.compact("compact", branch="main").apply()

    def rewrite(self) -> None:
        self.open().rewrite_manifests("rewrite", branch="main")

    def build(self) -> None:
        repo = frazil.Repository.open(self.storage)
        repo.upkeep.build_statistics()
        assert repo.upkeep.build_statistics().chunks_read == 0

    def expire(self) -> None:
        self.open().expire_snapshots(datetime.now(UTC))

    def collect(self) -> None:
        if self.dice.random() < 0.5:
            self.open().garbage_collect(datetime.now(UTC) + timedelta(seconds=1))
        else:
            place = icechunk.local_filesystem_storage(str(self.folder))
            icechunk.Repository.open(place).garbage_collect(datetime.now(UTC) + timedelta(seconds=1))

    def damage(self) -> None:
        files = sorted((self.folder / "statistics").glob("*"))
        if not files:
            return
        one, other = self.dice.choice(files), self.dice.choice(files)
        data = bytearray(one.read_bytes())
        match self.dice.randrange(4):
            case 0:
                data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
            case 1:
                data = data[: self.dice.randrange(len(data))]
            case 2:
                data = bytearray(other.read_bytes())
            case _:
                one.unlink()
                return
        one.write_bytes(data)

    # The check

    def check(self) -> None:
        session = self.open().readonly_session("main")
        for name in self.dice.sample(self.names(session.store), k=min(2, len(self.names(session.store)))):
            array = frazil.Array(session, f"/{name}")
            box = tuple(slice(*sorted(self.dice.choices(range(n + 1), k=2))) for n in array.shape)
            box = self.dice.choice([box, (slice(None), slice(None))])
            elements = array[box]
            fill = array.attrs.get("_FillValue")
            nan = np.isnan(elements) if elements.dtype.kind == "f" else np.zeros(elements.shape, np.bool_)
            missing = np.zeros_like(nan) if fill is None else elements == fill
            values = elements[~nan & ~missing]
            reduction = frazil.reduce(array, box)
            assert (reduction.count, reduction.nan, reduction.missing) == (
                len(values),
                nan.sum(),
                missing.sum(),
            )
            self.reads = [self.reads[0] + reduction.chunks, self.reads[1] + reduction.chunks_read]
            if not len(values):
                continue
            assert (reduction.min, reduction.max) == (values.min(), values.max())
            if values.dtype.kind == "f":
                assert abs(reduction.sum - values.sum(dtype=np.float64)) <= reduction.error + 1e-12
            else:
                assert reduction.sum == sum(map(int, values))
            bound = self.dice.choice(values.tolist())
            points = np.argwhere((elements > bound) & ~nan & ~missing)
            start = np.array([each.start or 0 for each in box], np.int64)
            assert np.array_equal(frazil.where(array, f"> {bound!r}", box).points(), points + start)


def steps(turns: Turns) -> list[Callable[[], None]]:
    often = [turns.write] * 8 + [turns.append, turns.resize, turns.build] * 2
    return [
        *often,
        *(turns.create, turns.move, turns.shift, turns.attribute, turns.replace, turns.merge, turns.compact),
        *(turns.rewrite, turns.expire, turns.collect, turns.damage),
    ]


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_statistics_never_give_a_wrong_answer(tmp_path: Path) -> None:
    number = STEPS.get(settings.get_current_profile_name(), 300)
    done = 0
    for seed in range(max(1, number // 100)):
        turns = Turns(tmp_path / str(seed), seed)
        choices = steps(turns)
        for _ in range(min(100, number)):
            step = turns.dice.choice(choices)
            step()
            turns.check()
            done += 1
        assert turns.reads[1] < turns.reads[0], "some chunks have statistics"
    assert done >= number

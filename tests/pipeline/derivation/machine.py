"""Random changes of an archive by two libraries, and refreshes of all that is derived from it.

``python -m tests.pipeline.derivation.machine 10000`` does so many steps, in archives of 100 steps each.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import xarray as xr
import zarr
from tests.support.faulty_storage import Fault, FaultyStorage

import frazil
from frazil.jobs.blocks import SLAB
from frazil.pipeline import (
    DerivedArrays,
    DerivedSolver,
    DerivedState,
    Engine,
    Target,
    anomaly,
    climatology,
    coarsen,
    crop,
    derived,
    groupby,
    map_blocks,
    pyramid,
    quantile,
    rechunk,
    recompress,
    reduce,
    refresh,
    regrid,
    resample,
    select,
    zonal_stats,
)
from frazil.pipeline.reductions import plan

type Mask = np.ndarray[Any, np.dtype[np.bool_]]

#: The environment of Sail has no published icechunk: there one library writes.
icechunk: Any = import_module("icechunk") if find_spec("icechunk") else None

HALF: Final = {"lat": 2, "lon": 2}
GRID: Final = {"lat": np.linspace(-60, 60, 5), "lon": np.arange(0, 360, 60.0)}
ZONES: Final = xr.DataArray(np.arange(96).reshape(8, 12) % 5 % 3, dims=("lat", "lon"), name="zone")
HOW: Final = ("mean", "std", "max", "count")
LAT, LON = 8, 12


def negative(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a block with another sign. A definition names the function by its module."""
    return -block


def anomalies(repo: frazil.Repository, path: str, to: Target, engine: Any) -> None:
    """Make a climatology, and a result of both."""
    group = f"{to.group}_base"
    climatology(repo, path, "month", "mean", to=Target(repo, group=group), engine=engine)
    anomaly(repo, path, repo, group=group, to=to, engine=engine)


def weekdays_of_pairs(repo: frazil.Repository, path: str, to: Target, engine: Any) -> None:
    """Make a result of a result, by labels that are a result too."""
    group = f"{to.group}_pairs"
    coarsen(repo, [path], {"time": 2}, boundary="pad", to=Target(repo, group=group), engine=engine)
    groupby(repo, f"{group}/{path}", "time.dayofweek", HOW, to=to, engine=engine)


OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "coarsen": lambda repo, path, **to: coarsen(repo, [path], HALF, **to),
    "trim": lambda repo, path, **to: coarsen(repo, [path], {"time": 3}, "max", boundary="trim", **to),
    "pad": lambda repo, path, **to: coarsen(repo, [path], {"time": 4}, boundary="pad", **to),
    "rechunk": lambda repo, path, **to: rechunk(repo, [path], (5, 4, 4), **to),
    "shards": lambda repo, path, **to: rechunk(repo, [path], (2, 4, 4), shards=(4, 8, 8), **to),
    "recompress": lambda repo, path, **to: recompress(repo, [path], [zarr.codecs.GzipCodec()], **to),
    "pyramid": lambda repo, path, **to: pyramid(repo, [path], factors=HALF, levels=3, **to),
    "box": lambda repo, path, **to: select(repo, [path], sel={"lat": slice(-40, 40)}, **to),
    "positions": lambda repo, path, **to: select(repo, [path], isel={"lat": [1, 5], "lon": 2}, **to),
    "newest": lambda repo, path, **to: select(repo, [path], isel={"time": slice(-3, None)}, **to),
    "crop": lambda repo, path, **to: crop(repo, [path], longitude=(-60, 60), **to),
    "copy": lambda repo, path, **to: select(repo, [path], **to),
    "regrid": lambda repo, path, **to: regrid(repo, [path], GRID, **to),
    "halo": lambda repo, path, **to: map_blocks(
        negative, repo, [path], halo={"time": 1, "lon": 2}, boundary="periodic", **to
    ),
    "mean": lambda repo, path, **to: reduce(repo, path, "time", HOW, **to),
    "plane": lambda repo, path, **to: reduce(repo, path, ["lat", "lon"], HOW, **to),
    "all": lambda repo, path, **to: reduce(repo, path, None, HOW, **to),
    "weights": lambda repo, path, **to: reduce(repo, path, ["time", "lat"], "mean", weights="coslat", **to),
    "months": lambda repo, path, **to: climatology(repo, path, "month", HOW, **to),
    "weekdays": lambda repo, path, **to: groupby(repo, path, "time.dayofweek", HOW, dims="lat", **to),
    "row": lambda repo, path, **to: reduce(repo, path, ["time", "lon"], (*HOW, "first"), **to),
    "bands": lambda repo, path, **to: zonal_stats(repo, path, [-90, 0, 90], HOW, **to),
    "weeks": lambda repo, path, **to: resample(repo, path, "7D", HOW, **to),
    "zones": lambda repo, path, **to: zonal_stats(repo, path, ZONES, "mean", dims="time", **to),
    "anomaly": anomalies,
    "chain": weekdays_of_pairs,
    "median": lambda repo, path, **to: quantile(repo, path, [0.1, 0.5], "time", **to),
}


def _reached_windows(mask: Mask, **factors: int) -> Mask:
    """Return which windows of a mask have a changed element."""
    for axis, dim in enumerate(("time", "lat", "lon")):
        starts = np.arange(0, mask.shape[axis], factors.get(dim, 1))
        mask = np.logical_or.reduceat(mask, starts, axis=axis)
    return mask


def _reached_halo(mask: Mask) -> Mask:
    for axis, margin in ((0, 1), (2, 2)):
        mask = np.logical_or.reduce([np.roll(mask, n, axis) for n in range(-margin, margin + 1)])
    return mask


#: For operations on the grid of the source: the elements of the result that changed elements can change.
REACHES: Final[dict[str, Callable[[Mask], Mask]]] = {
    "coarsen": lambda mask: _reached_windows(mask, **HALF),
    "pad": lambda mask: _reached_windows(mask, time=4),
    "rechunk": lambda mask: mask,
    "shards": lambda mask: mask,
    "recompress": lambda mask: mask,
    "box": lambda mask: mask[:, 2:6],
    "positions": lambda mask: mask[:, [1, 5], 2],
    "copy": lambda mask: mask,
    "regrid": lambda mask: np.repeat(np.repeat(mask.any((1, 2), keepdims=True), 5, axis=1), 6, axis=2),
    "halo": _reached_halo,
}
#: Changes after which the operations above compute no more than that.
LOCAL: Final = {"append", "correct", "clear", "attributes", "nothing"}


def steps(first: int, last: int, seed: int) -> xr.Dataset:
    """Return steps of an archive."""
    dice = np.random.default_rng(seed)
    values = dice.integers(0, 99, (last - first, LAT, LON)).astype("f4")
    values[dice.random(values.shape) < 0.1] = np.nan
    time = np.datetime64("2020-01-01", "ns") + np.arange(first, last) * np.timedelta64(1, "D")
    coords = {"time": time, "lat": np.linspace(-70, 70, LAT), "lon": np.arange(0, 360, 30.0)}
    return xr.Dataset({"t": (("time", "lat", "lon"), values)}, coords)


def _contents(store: Any, group: str) -> dict[str, tuple[Any, Any, bytes]]:
    """Return the arrays below a group: data type, attributes, shape and values."""
    root: Any = zarr.open_group(store, path=group, mode="r")
    return {
        path: (each.dtype, dict(each.attrs), bytes(each.shape) + np.asarray(each[...]).tobytes())
        for path, each in root.members(max_depth=None)
        if isinstance(each, zarr.Array)
    }


@dataclass
class Machine:
    """An archive, what is derived from it, and the steps that change it."""

    seed: int
    folder: Path
    engines: tuple[Engine | str, ...] = ("inline", "threads")
    most: int = 40
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        dice = self.dice = random.Random(self.seed)
        self.storage = frazil.local_filesystem_storage(str(self.folder))
        # Most archives have several manifests for an array.
        rules: Any = {frazil.ManifestSplitDimCondition.Axis(0): self.seed % 4} if self.seed % 4 else {}
        splitting = frazil.ManifestSplittingConfig.from_dict(
            {frazil.ManifestSplitCondition.AnyArray(): rules}
        )
        manifest = frazil.ManifestConfig(splitting=splitting)
        self.repo = frazil.Repository.create(self.storage, frazil.RepositoryConfig(manifest=manifest))
        self.group, self.number, self.length = "data", 0, dice.randint(4, 12)
        encoding = {
            "t": {"chunks": (dice.choice([1, 2, 5]), 4, 12), "fill_value": 0.0},
            "time": {"chunks": (50,), "units": "days since 2019-01-01", "dtype": "i8"},
        }
        with self.repo.transaction("main", message="data") as store:
            data = steps(0, self.length, self.seed)
            data.to_zarr(store, group="data", zarr_format=3, consolidated=False, encoding=encoding)
        #: The operation and the present group of each result.
        self.results = {name: f"out_{name.replace(' ', '_')}" for name in dice.sample(sorted(OPERATIONS), 5)}
        for name, group in self.results.items():
            self._call(name, self.repo, group)
        self.base, self.changes = self.repo.lookup_branch("main"), set[str]()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the engines: a task has a copy of this machine, and cannot have Spark's session."""
        return {**self.__dict__, "engines": ()}

    @property
    def path(self) -> str:
        """The path of the source."""
        return f"{self.group}/t"

    def _call(self, name: str, repo: frazil.Repository, group: str) -> None:
        OPERATIONS[name](repo, self.path, to=Target(repo, group=group), engine="inline")

    @contextmanager
    def _commit(self, message: str) -> Iterator[Any]:
        """Yield a store of one of the libraries, and commit its changes."""
        if icechunk and self.dice.random() < 0.4:
            self.counts["by the reference"] += 1
            reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(self.folder)))
            session: Any = reference.writable_session("main")
        else:
            session = self.repo.writable_session("main")
        yield session.store
        if session.has_uncommitted_changes:
            session.commit(message)
        self.repo = frazil.Repository.open(self.storage)

    # Changes

    def _arrays(self, store: Any) -> tuple[Any, Any]:
        array: Any = zarr.open_array(store, path=self.path)
        return array, zarr.open_array(store, path=f"{self.group}/time")

    def append(self) -> None:
        """Write more steps at the end."""
        more = self.dice.randint(1, 4)
        with self._commit("append") as store:
            array, time = self._arrays(store)
            count, last = array.shape[0], int(time[-1])
            array.resize((count + more, LAT, LON))
            time.resize((count + more,))
            array[count:] = steps(0, more, self.seed + self.number)["t"].values
            time[count:] = np.arange(last + 1, last + 1 + more)

    def correct(self) -> None:
        """Write one step again."""
        with self._commit("correct") as store:
            array, _ = self._arrays(store)
            array[self.dice.randrange(array.shape[0]), :4] = self.dice.random()

    def clear(self) -> None:
        """Write the fill value to one step: its chunks go."""
        with self._commit("clear") as store:
            array, _ = self._arrays(store)
            array[self.dice.randrange(array.shape[0])] = 0

    def crop(self) -> None:
        """Remove steps at the end."""
        with self._commit("crop") as store:
            array, time = self._arrays(store)
            count = max(array.shape[0] - self.dice.randint(1, 3), 4)
            array.resize((count, LAT, LON))
            time.resize((count,))

    def backfill(self) -> None:
        """Insert one step, at a place where a step is missing."""
        with self._commit("backfill") as store:
            array, time = self._arrays(store)
            values, labels = array[...], time[...]
            at = self.dice.randint(0, len(labels))
            label = labels[at - 1] + 1 if at else labels[0] - 1
            labels[at:] += labels[at:].size > 0 and label == labels[at]
            array.resize((len(labels) + 1, LAT, LON))
            time.resize((len(labels) + 1,))
            array[...] = np.insert(values, at, steps(0, 1, self.number)["t"].values[0], axis=0)
            time[...] = np.insert(labels, at, label)

    def shift(self) -> None:
        """Insert or remove steps in front by moving references."""
        session = self.repo.writable_session("main")
        array, time = self._arrays(session.store)
        step, count, labels = array.chunks[0], array.shape[0], time[...]
        is_longer = count < 3 * step or self.dice.random() < 0.5
        if is_longer:
            array.resize((count + step, LAT, LON))
        session.shift_array(f"/{self.path}", (1 if is_longer else -1, 0, 0))
        if is_longer:
            array[:step] = steps(0, step, self.number)["t"].values
            labels = np.concatenate([np.arange(labels[0] - step, labels[0]), labels])
        else:
            array.resize((count - step, LAT, LON))
            labels = labels[step:]
        time.resize(labels.shape)
        time[...] = labels
        session.commit("shift")

    def attributes(self) -> None:
        """Set an attribute."""
        with self._commit("attributes") as store:
            self._arrays(store)[0].attrs["note"] = self.number

    def packing(self) -> None:
        """Change the meaning of all numbers."""
        with self._commit("packing") as store:
            self._arrays(store)[0].attrs["scale_factor"] = self.dice.choice([0.5, 1.0, 2.0])

    def coordinate(self) -> None:
        """Change a label of another axis."""
        with self._commit("coordinate") as store:
            longitude: Any = zarr.open_array(store, path=f"{self.group}/lon")
            longitude[0] = self.dice.choice([0.0, 1.0, 2.0])

    def edit(self) -> None:
        """Change a result."""
        with self._commit("edit") as store:
            group = zarr.open_group(store, path=self.dice.choice(list(self.results.values())), mode="r+")
            arrays: list[Any] = [
                each
                for path, each in group.members(max_depth=None)
                if isinstance(each, zarr.Array) and path.rpartition("/")[2].startswith("t") and each.size
                and not path.endswith("time")
            ]  # fmt: skip
            array = self.dice.choice(arrays)
            array[(0,) * array.ndim] = 5

    def move(self) -> None:
        """Move the source, or the results of an operation."""
        session = self.repo.rearrange_session("main")
        name, again = self.dice.choice(sorted(self.results)), self.dice.random() < 0.2
        if self.dice.random() < 0.5:
            old, self.group = self.group, "moved" if self.group == "data" else "data"
            session.move(f"/{old}", f"/{self.group}")
        else:
            old, self.results[name] = self.results[name], f"out_{name}_{self.number}"
            session.move(f"/{old}", f"/{self.results[name]}")
            again &= name not in ("anomaly", "chain")
        session.commit("move")
        if again and old.startswith("out"):  # the same call again, at the place of its first results
            self._call(name, self.repo, old)

    def merge(self) -> None:
        """Change the source on a branch, and merge it. Both branches may have their results refreshed."""
        self.repo.create_branch("side", self.repo.lookup_branch("main"))
        with self.repo.transaction("side", message="on a branch") as store:
            self._arrays(store)[0][0] = self.dice.random()
        are_fresh, solver = self.dice.random() < 0.5, None
        if are_fresh:
            refresh(self.repo, branch="side", edits="overwrite", engine="inline").apply()
            self.correct()
            refresh(self.repo, edits="overwrite", engine="inline").apply()
            solver = DerivedSolver(frazil.ElementSolver(otherwise=frazil.VersionSelection.UseOurs))
        with self._commit("on main") as store:
            self._arrays(store)[0].attrs["main"] = self.number
        self.repo.merge("side", "main", solver=solver)
        self.repo.delete_branch("side")
        self.counts["merges of fresh results"] += are_fresh
        if are_fresh:
            self.refresh()

    def revert(self) -> None:
        """Revert a correction."""
        self.correct()
        self.repo.revert(self.repo.lookup_branch("main"), "main")

    def reset(self) -> None:
        """Set the branch to an earlier version."""
        tip = self.repo.lookup_branch("main")
        self.correct()
        self.repo.reset_branch("main", tip)

    def amend(self) -> None:
        """Replace the newest version."""
        session = self.repo.writable_session("main")
        self._arrays(session.store)[0][-1] = self.dice.random()
        try:
            session.amend("amend")
        except frazil.SessionStateError:  # the newest version has moved nodes
            session.commit("not amended")

    def squash(self) -> None:
        """Keep one version, and delete the others with their files."""
        self.repo.upkeep.retain(frazil.Retention(last=1)).apply()
        self.repo = frazil.Repository.open(self.storage)
        self.repo.garbage_collect(datetime.now(UTC))

    def expire(self) -> None:
        """Expire old versions, and delete their files."""
        if icechunk and self.dice.random() < 0.5:
            reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(self.folder)))
            reference.expire_snapshots(datetime.now(UTC))
            reference.garbage_collect(datetime.now(UTC))
        else:
            self.repo.expire_snapshots(datetime.now(UTC))
            self.repo.garbage_collect(datetime.now(UTC))
        self.repo = frazil.Repository.open(self.storage)

    # Refreshes and checks

    def kill(self) -> None:
        """Start a refresh that fails at one of its writes."""
        left = self.dice.randint(1, 12)
        fault = self.dice.choice([Fault.LOST, Fault.ANSWER_LOST])

        def choose(key: str, condition: Any) -> Fault | None:
            nonlocal left
            left -= 1
            return fault if left <= 0 else None

        broken = frazil.Repository.open(FaultyStorage(self.storage, choose))
        try:
            refresh(broken, edits="overwrite", engine=self.dice.choice(["inline", "threads"])).apply()
        except frazil.IcechunkError:
            self.counts["killed refreshes"] += 1
        self.repo = frazil.Repository.open(self.storage)

    def race(self) -> None:
        """Refresh, and correct the source while the refresh writes."""
        left = self.dice.randint(1, 8)

        def choose(key: str, condition: Any) -> Fault | None:
            nonlocal left
            left -= 1
            if left == 0:
                self.correct()
            return None

        repo = frazil.Repository.open(FaultyStorage(self.storage, choose))
        refresh(repo, edits="overwrite", engine=self.dice.choice(["inline", "threads"])).apply()
        self.counts["changes during a refresh"] += left <= 0
        self.repo = frazil.Repository.open(self.storage)

    def twice(self) -> None:
        """Start two refreshes at once. The work is done once."""
        before = len(list(self.repo.ancestry(branch="main")))
        with ThreadPoolExecutor(2) as threads:
            list(
                threads.map(
                    lambda _: refresh(self.repo, edits="overwrite", engine="inline").apply(), range(2)
                )
            )
        assert len(list(self.repo.ancestry(branch="main"))) <= before + 1
        self.repo = frazil.Repository.open(self.storage)

    def refresh(self) -> None:
        """Refresh, and compare all results with those from nothing."""
        engine = self.dice.choice(self.engines)
        plan = refresh(self.repo, edits="overwrite", engine=engine)  # type: ignore[arg-type]
        self._require_few(plan.report)
        tip = self.repo.lookup_branch("main")
        plan.apply()
        after = derived(self.repo)
        assert after.is_current, after
        if plan.report.is_current:
            assert self.repo.lookup_branch("main") == tip, self.repo.diff(
                from_snapshot_id=tip, to_branch="main"
            )
        self.check()
        self.base, self.changes = self.repo.lookup_branch("main"), set()
        self.counts["refreshes"] += 1

    def _require_few(self, report: DerivedArrays) -> None:
        """Require that a refresh after local changes computes no more than what the changes reach."""
        if not self.changes <= LOCAL:
            return
        session = self.repo.readonly_session("main")
        array: Any = zarr.open_array(session.store, path=self.path, mode="r")
        before: Any = zarr.open_array(
            self.repo.readonly_session(snapshot_id=self.base).store, path=self.path, mode="r"
        )
        changed = np.zeros(array.shape, np.bool_)
        changed[before.shape[0] :] = True
        for index in self.repo.diff(
            from_snapshot_id=self.base, to_snapshot_id=session.snapshot_id
        ).updated_chunks.get(f"/{self.path}", []):
            changed[
                tuple(slice(n * size, (n + 1) * size) for n, size in zip(index, array.chunks, strict=True))
            ] = True
        for name, reaches in REACHES.items():
            group = self.results.get(name)
            rows = [each for each in report.arrays if each.path == f"/{group}/data/t"]
            if group is None or not rows or rows[0].state == DerivedState.EDITED:
                continue
            result: Any = zarr.open_array(session.store, path=rows[0].path, mode="r")
            most = reaches(changed).copy()  # some return the mask of the source itself
            grid = result.shards or result.chunks
            # A chunk at the end that becomes longer is another chunk.
            length = result.shape[0]
            if most.shape[0] != length:
                most[length - length % grid[0] : length] = True
            for axis, size in enumerate(grid):
                most = np.logical_or.reduceat(most, np.arange(0, most.shape[axis], size), axis=axis)
            assert rows[0].chunks <= most.sum(), (name, rows[0], int(most.sum()), self.changes)
            self.counts["counted results"] += 1

    def check(self) -> None:
        """Require of each result the values from nothing."""
        store = self.repo.readonly_session("main").store
        other = frazil.Repository.create(frazil.in_memory_storage())
        with other.transaction("main", message="copy") as copy:
            source = zarr.open_group(store, path=self.group, mode="r")
            for name, each in source.arrays():
                zarr.from_array(copy, name=f"{self.group}/{name}", data=each, attributes=dict(each.attrs))
        for name, group in self.results.items():
            self._call(name, other, name)
            expected = _contents(other.readonly_session("main").store, name)
            expected = {self._place(path): each for path, each in expected.items()}
            found = {self._place(path): each for path, each in _contents(store, group).items()}
            assert found.keys() == expected.keys(), (name, found.keys() ^ expected.keys())
            for path, content in expected.items():
                assert found[path] == content, (name, path)
            self.counts["compared results"] += 1

    def _place(self, path: str) -> str:
        return "/".join(
            part for part in path.split("/") if part not in ("data", "moved") and not part.endswith("_pairs")
        )

    def step(self) -> None:
        """Do one step."""
        self.number += 1
        names = ["append"] * 4 + ["correct"] * 3 + ["clear", "crop", "backfill", "shift", "attributes"]
        names += ["packing", "coordinate", "edit", "move", "merge", "revert", "reset", "amend"]
        names += ["squash", "expire", "kill", "race", "twice"] + ["refresh"] * 6
        name = self.dice.choice(names)
        array: Any = zarr.open_array(self.repo.readonly_session("main").store, path=self.path, mode="r")
        if array.shape[0] > self.most:
            name = "crop"
        if name != "refresh":
            self.changes.add(name)
        self.counts[name] += 1
        getattr(self, name)()


def run(seeds: range, count: int, engines: tuple[Engine | str, ...] = ("inline", "threads")) -> Counter[str]:
    """Do steps in one archive for each seed. Raise ``AssertionError`` for the first wrong result."""
    counts = Counter[str]()
    for seed in seeds:
        folder = Path(tempfile.mkdtemp(prefix="frazil-machine-"))
        machine = None
        try:
            # Half of the archives have small blocks, whose states are stored.
            slab, stored = (SLAB, plan.STORED_FROM) if seed % 2 else (96, 96)
            with patch.object(plan, "SLAB", slab), patch.object(plan, "STORED_FROM", stored):
                machine = Machine(seed, folder / "repo", engines, counts=counts)
                for _ in range(count):
                    machine.step()
                machine.refresh()
        except Exception as error:
            history = "" if machine is None else f", step {machine.number}, changes {machine.changes}"
            raise AssertionError(f"seed {seed}{history}: {error}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        counts["steps"] += count
    return counts


if __name__ == "__main__":
    total = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(run(range(first, first + -(-total // 100)), 100))

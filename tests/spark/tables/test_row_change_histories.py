"""The table ``row_changes`` beside a model, over random histories of both spec versions.

The model reads the stored elements of a version by zarr, decodes them by itself, and compares two versions as
lists of rows. Each step is a commit of one operation, and a comparison of two versions with random options.
"""

from __future__ import annotations

import itertools
import json
import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import frazil
from frazil.arrow.grid import dims_of
from frazil.spark.tables.data_source_reader import RowChangesReader, RowChangesTable

STEPS = 50

type Row = dict[str, Any]


# The model


def plain(value: Any) -> Any:
    """A value that is equal to all values that row_changes calls equal."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "NaN" if value != value else float(value) + 0.0
    return value


def decoded(array: zarr.Array[Any]) -> np.ndarray[Any, Any]:
    attributes = dict(array.attrs)
    fill = attributes.get("_FillValue")
    units: Any = attributes.get("units")

    def value(raw: Any) -> Any:
        raw = raw.item() if isinstance(raw, np.generic) else raw
        if fill is not None and raw == fill:
            return None
        if units is not None:
            step = {"days": timedelta(days=1), "hours": timedelta(hours=1)}[units.split()[0]]
            return datetime(2000, 1, 1) + raw * step
        if "scale_factor" in attributes:
            raw = raw * attributes["scale_factor"]
        return plain(raw)

    raw = np.asarray(array[...])
    out = np.empty(raw.shape, object)
    for at in np.ndindex(*raw.shape):
        out[at] = value(raw[at])
    return out


class Version:
    """The arrays of one version: dimensions and values by name."""

    def __init__(self, repo: frazil.Repository, snapshot: str, group: str) -> None:
        self.arrays: dict[str, tuple[tuple[str, ...], np.ndarray[Any, Any]]] = {}
        self.coordinates: set[str] = set()
        try:
            node = zarr.open_group(repo.readonly_session(snapshot_id=snapshot).store, path=group, mode="r")
        except FileNotFoundError:
            return
        for name, array in node.arrays():
            self.arrays[name] = (dims_of(array), decoded(array))
            self.coordinates |= set(str(array.attrs.get("coordinates", "")).split())

    def dims(self, names: Sequence[str]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for name in sorted(names, key=lambda each: -len(self.arrays[each][0])):
            dims, values = self.arrays[name]
            sizes |= dict(zip(dims, values.shape, strict=True))
        return sizes

    def columns(self, names: Sequence[str]) -> list[str]:
        """The dimensions, the auxiliary coordinates and the variables of a table."""
        sizes = self.dims(names)
        auxiliary = [
            name
            for name, (dims, values) in self.arrays.items()
            if name in self.coordinates
            and name not in names
            and name not in sizes
            and all(sizes.get(dim) == size for dim, size in zip(dims, values.shape, strict=True))
        ]
        return [*sizes, *auxiliary, *names]

    def rows(
        self, names: Sequence[str], last: Sequence[str], last_dims: Sequence[str], order: Sequence[str]
    ) -> list[Row] | None:
        """The rows in the order of their positions, with the columns ``last``; None without a table.

        ``last_dims`` are the dimensions of the last version, ``order`` those of the later of two versions.
        """
        wanted = [each for each in names if each in self.arrays]
        if not wanted:
            if "v" not in self.arrays or set(self.arrays["v"][0]) != set(last_dims):
                return None
            wanted = ["v"]
        sizes = self.dims(wanted)
        order = order if set(sizes) == set(order) else list(sizes)
        existing = self.columns(wanted)
        if not set(wanted) <= set(names):
            existing = list(self.arrays)  # the table without named variables has all arrays of this test
        out = []
        for cell in itertools.product(*(range(sizes[dim]) for dim in order)):
            at = dict(zip(order, cell, strict=True))
            row: Row = {"dims": tuple(sorted(sizes))}
            for name in dict.fromkeys([*order, *last]):
                if name in sizes:
                    is_label = name in self.arrays and self.arrays[name][0] == (name,)
                    row[name] = self.arrays[name][1][at[name]] if is_label else float(at[name])
                elif name in existing:
                    dims, values = self.arrays[name]
                    row[name] = values[tuple(at[dim] for dim in dims)]
                else:
                    row[name] = None
            out.append(row)
        return out


def compare(op: str, value: Any, literal: float) -> bool:
    if op in ("IS NULL", "IS NOT NULL"):
        return (value is None) == (op == "IS NULL")
    if value is None:
        return False
    number = np.inf if value == "NaN" else value
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b,
    }  # fmt: skip
    return tests[op](number, literal)


def expected(
    one: list[Row] | None, other: list[Row] | None, dims: Sequence[str], names: Sequence[str],
    conditions: Sequence[tuple[str, str, float]],
) -> Counter[Any]:  # fmt: skip
    """The changes from the rows of one version to those of another."""
    one, other = (
        [
            row
            for row in rows or []
            if all(compare(op, row.get(name), literal) for name, op, literal in conditions)
        ]
        for rows in (one, other)
    )
    groups: dict[Any, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((one, other)):
        for row in rows:
            labels = (row["dims"], *(row.get(dim) for dim in (*dims, "x", "y")))
            groups.setdefault(labels, ([], []))[side].append(row)
    changes: Counter[Any] = Counter()

    def add(change: str, row: Row, before: Row | None) -> None:
        values = tuple(row.get(name) for name in (*dims, *names))
        changes[change, values, before and tuple(before.get(name) for name in names)] += 1

    for old, new in groups.values():
        left = []
        for row in new:
            if row in old:
                old.remove(row)
            else:
                left.append(row)
        pairs = min(len(old), len(left))
        for before, row in zip(old[:pairs], left[:pairs], strict=True):
            add("updated", row, before)
        for row in left[pairs:]:
            add("inserted", row, None)
        for row in old[pairs:]:
            add("deleted", row, row)
    return changes


# The histories


class History:
    """A repository with one table in a group, and operations on it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.spec = self.random.choice((1, 2, 2))
        config = frazil.RepositoryConfig(inline_chunk_threshold_bytes=self.random.choice((0, 512)))
        self.repo = frazil.Repository.create(frazil.in_memory_storage(), config, spec_version=self.spec)
        self.group = self.random.choice(("", "g"))
        self.versions: dict[str, Version] = {}
        with self.repo.transaction("main", message="start") as store:
            group = zarr.create_group(store, path=self.group)
            self.create_all(group, self.random.randint(1, 4), self.random.randint(1, 3))
        self.snapshots = [self.repo.lookup_branch("main")]

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        values = np.array(self.random.choices(range(-2, 5), k=int(np.prod(shape))), "f8")
        return values.reshape(shape)

    def labels(self, count: int) -> np.ndarray[Any, Any]:
        special = [0.0, -0.0, float("nan"), -999.0, 1.0]
        distinct = self.random.sample(range(2, 40), count)
        return np.array(
            [self.random.choice(special) if self.random.random() < 0.15 else each for each in distinct]
        )

    def create(self, group: Any, name: str, dims: Sequence[str], data: np.ndarray[Any, Any]) -> None:
        pick = self.random.choice
        kinds: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "x": [("f8", {"_FillValue": -999.0}), ("f4", {"_FillValue": -999.0})],
            "y": [("i4", {}), ("i8", {}), ("f8", {})],
            "t": [("i4", {"units": "days since 2000-01-01"}), ("i8", {"units": "hours since 2000-01-01"})],
        }
        numbers: list[tuple[str, dict[str, Any]]] = [
            ("f8", {"_FillValue": -1.0}), ("f8", {}), ("i4", {"_FillValue": -2}), ("i2", {}),
            ("i2", {"scale_factor": 0.5, "_FillValue": 3}), ("i4", {"scale_factor": 1.0}), ("f4", {}),
        ]  # fmt: skip
        dtype, attributes = pick(kinds.get(name, numbers))
        data = np.asarray(data)
        if name == "t" and dtype == "i8":
            data = data * 24
        if np.dtype(dtype).kind == "i":
            data = np.where(np.isnan(data), 0, data)
        if name in ("v", "w"):
            attributes = {**attributes, "coordinates": "lon lat"}
        array = group.create_array(
            name, shape=data.shape, dtype=dtype, chunks=tuple(pick((1, 2, 3)) for _ in dims), overwrite=True,
            dimension_names=list(dims), fill_value=pick((0, 1)), attributes=attributes,
            compressors=pick((None, "auto")),
        )  # fmt: skip
        array[...] = data.astype(dtype)

    def create_all(self, group: Any, nx: int, ny: int) -> None:
        for name in list(group.array_keys()):
            del group[name]
        flat = self.random.random() < 0.15
        dims = ("x",) if flat else self.random.choice((("x", "y"), ("y", "x")))
        sizes = {"x": nx, "y": ny}
        self.create(group, "v", dims, self.numbers(tuple(sizes[dim] for dim in dims)))
        if self.random.random() < 0.85:
            self.create(group, "x", ("x",), self.labels(nx))
        if not flat and self.random.random() < 0.85:
            self.create(group, "y", ("y",), np.array(self.random.sample(range(9), ny), "f8"))
        for name in ("w", "h", "t", "lon", "lat"):
            if self.random.random() < 0.6:
                self.add(group, name)

    def add(self, group: Any, name: str) -> None:
        own = {"h": ("x",), "t": ("x",), "lon": ("x",)}
        array = group["v"]
        dims = tuple(array.metadata.dimension_names)
        sizes = dict(zip(dims, array.shape, strict=True))
        wanted = own.get(name, dims if self.random.random() < 0.5 else dims[::-1])
        self.create(group, name, wanted, self.numbers(tuple(sizes[dim] for dim in wanted)))

    # Operations: one commit each

    def write(self, group: Any) -> None:
        array = group[self.random.choice(sorted(set(group.array_keys()) - {"x", "y"}))]
        for _ in range(self.random.randint(1, 3)):
            at = tuple(self.random.randrange(size) for size in array.shape)
            array[at] = self.random.randint(-2, 4)

    def relabel(self, group: Any) -> None:
        names = [name for name in ("x", "y") if name in group]
        if not names:
            return
        array = group[self.random.choice(names)]
        old = np.asarray(array[:])
        new = old.copy()
        kind = self.random.choice(
            ("swap", "shift", "sort", "roll", "replace", "duplicate", "zero", "shuffle")
        )
        at, other = (self.random.randrange(len(old)) for _ in range(2))
        if kind == "swap":
            new[[at, other]] = old[[other, at]]
        elif kind == "shift":
            new = old + 1
        elif kind == "sort":
            new = np.sort(old)[:: self.random.choice((1, -1))]
        elif kind == "roll":
            new = np.roll(old, 1)
        elif kind == "replace":
            new[at] = self.random.randrange(9)
        elif kind == "duplicate":
            new[at] = old[other]
        elif kind == "zero":
            new[new == 0] *= -1
            new[at] = new[at] * 0
        else:
            new = old[self.random.sample(range(len(old)), len(old))]
        array[:] = new

    def reshape(self, group: Any) -> None:
        """Append, insert or delete cells along a dimension: all arrays are resized, and written again."""
        dim = self.random.choice(tuple(group["v"].metadata.dimension_names))
        size = group["v"].shape[group["v"].metadata.dimension_names.index(dim)]
        at = self.random.randint(0, size)
        order = list(range(size))
        if size > 1 and self.random.random() < 0.5:
            order.pop(at - 1)
        elif size < 7:
            order[at:at] = [-1] * self.random.randint(1, 2)
        is_whole = self.random.random() < 0.7
        for _, array in group.arrays():
            dims = array.metadata.dimension_names
            if dim not in dims:
                continue
            axis = dims.index(dim)
            old = np.asarray(array[...])
            new = old.take([max(each, 0) for each in order], axis=axis)
            fresh = np.array(order) < 0
            shape = [-1 if each == axis else 1 for each in range(len(dims))]
            values = self.labels(len(order)) if dims == (dim,) else self.numbers(new.shape)
            if dims == (dim,) and array.dtype.kind == "i":
                values = np.nan_to_num(np.abs(values)) + 1
            new = np.where(fresh.reshape(shape), values.astype(new.dtype), new)
            array.resize(new.shape)
            if is_whole:
                array[...] = new

    def recreate(self, group: Any) -> None:
        """Make an array again, with another dtype, grid, codec and packing."""
        name = self.random.choice(sorted(group.array_keys()))
        array = group[name]
        dims = tuple(array.metadata.dimension_names)
        data = np.asarray(array[...]).astype("f8")
        if self.random.random() < 0.3 and name not in ("x", "y"):
            data = self.numbers(array.shape)
        if len(dims) == 2 and self.random.random() < 0.4:
            dims, data = dims[::-1], data.T
        self.create(group, name, dims, data)

    def add_or_drop(self, group: Any) -> None:
        name = self.random.choice(("w", "h", "t", "lon", "lat", "x", "y"))
        dims = group["v"].metadata.dimension_names
        if name in group:
            del group[name]
        elif name in ("x", "y"):
            if name in dims:
                values = self.labels(group["v"].shape[dims.index(name)])
                self.create(group, name, (name,), np.abs(np.nan_to_num(values)) if name == "y" else values)
        else:
            self.add(group, name)

    def start_again(self, group: Any) -> None:
        self.create_all(group, self.random.randint(1, 4), self.random.randint(1, 3))

    def attributes(self, group: Any) -> None:
        """Change what the elements mean: of the array, or of its missing chunks."""
        names = sorted(set(group.array_keys()) - {"x", "y", "t"})
        array = group[self.random.choice(names)]
        kind = self.random.choice(("fill", "scale", "none", "coordinates", "comment"))
        value = self.random.randint(-2, 3)
        if kind == "fill":
            array.attrs["_FillValue"] = float(value) if array.dtype.kind == "f" else value
        elif kind == "scale":
            array.attrs["scale_factor"] = self.random.choice((0.5, 1.0, 2.0))
        elif kind == "none":
            coordinates = {name: each for name, each in array.attrs.items() if name == "coordinates"}
            array.attrs.clear()
            array.attrs.update(coordinates)
        elif kind == "coordinates":
            array.attrs["coordinates"] = self.random.choice(("lon lat", "lon", ""))
        else:
            array.attrs["comment"] = str(value)

    def zarr_fill(self, group: Any) -> None:
        name = self.random.choice(sorted(set(group.array_keys()) - {"x", "y"}))
        store, key = group.store, f"{group.path}/{name}/zarr.json".lstrip("/")
        prototype = default_buffer_prototype()
        document = json.loads(sync(store.get(key, prototype)).to_bytes())
        document["fill_value"] = self.random.randint(0, 3)
        sync(store.set(key, prototype.buffer.from_bytes(json.dumps(document).encode())))

    def same_again(self, group: Any) -> None:
        array = group[self.random.choice(sorted(group.array_keys()))]
        array[...] = np.asarray(array[...])

    def move(self) -> bool:
        """Exchange two arrays of the same dimensions."""
        version = self.version(self.snapshots[-1])
        pairs = [
            (one, other)
            for one, other in itertools.combinations(sorted(set(version.arrays) - {"x", "y", "t"}), 2)
            if set(version.arrays[one][0]) == set(version.arrays[other][0])
        ]
        if self.spec == 1 or not pairs:
            return False
        one, other = (f"{self.group and '/' + self.group}/{name}" for name in self.random.choice(pairs))
        session = self.repo.rearrange_session("main")
        session.move(one, f"{one}_")
        session.move(other, one)
        session.move(f"{one}_", other)
        session.commit("exchange")
        return True

    def step(self) -> str:
        operations = [
            *[self.write] * 3, *[self.relabel] * 5, *[self.reshape] * 3, self.recreate, self.recreate,
            self.add_or_drop, self.add_or_drop, self.attributes, self.attributes, self.zarr_fill,
            self.same_again, self.start_again,
        ]  # fmt: skip
        if self.random.random() < 0.07 and self.move():
            name = "move"
        else:
            operation = self.random.choice(operations)
            name = operation.__name__
            with self.repo.transaction("main", message=name, allow_empty=True) as store:
                operation(zarr.open_group(store, path=self.group, mode="r+"))
        self.snapshots.append(self.repo.lookup_branch("main"))
        return name

    # The comparison

    def version(self, snapshot: str) -> Version:
        if snapshot not in self.versions:
            self.versions[snapshot] = Version(self.repo, snapshot, self.group)
        return self.versions[snapshot]

    def compare(self) -> None:
        pick = self.random.choice
        recent = self.snapshots[-6:]
        start, end = self.random.choice(recent), self.random.choice((recent[-1], pick(recent)))
        last = self.version(end)
        choices = [
            names
            for names in (["v"], ["v", "w"], ["v", "h", "w"], ["w"], ["v", "t"])
            if set(names) <= set(last.arrays)
        ]
        names = pick(choices)
        columns = last.columns(names)
        dims = list(last.dims(names))
        compared = columns[len(dims) :]
        conditions = [
            (
                pick([each for each in columns if each != "t"]),
                pick(("=", "<", ">=", "IS NULL", "IS NOT NULL")),
                pick((0, 1, 2)),
            )
            for _ in range(pick((0, 0, 1, 1, 2)))
        ]
        where = " AND ".join(
            f"{name} {op}" + ("" if "NULL" in op else f" {number}") for name, op, number in conditions
        )
        each_commit = start in self.snapshots[: self.snapshots.index(end) + 1] and self.random.random() < 0.3
        options = {
            "group": self.group or "/", "start": start, "end": end,
            "variables": ",".join(names), "block-rows": str(pick((1, 2, 3, 7, 1000))),
            "partitions": str(pick((1, 2, 5))), "net-changes": str(not each_commit).lower(),
            **({"where": where} if where else {}),
        }  # fmt: skip
        walk = self.snapshots[self.snapshots.index(start) : self.snapshots.index(end) + 1]
        walk = list(dict.fromkeys(walk)) if each_commit else [start, end]
        model: Counter[Any] = Counter()
        for one, other in itertools.pairwise(walk):
            after = self.version(other)
            order = list(after.dims([each for each in names if each in after.arrays] or ["v"]))
            before_rows, rows = (
                self.version(each).rows(names, compared, dims, order) for each in (one, other)
            )
            found = expected(before_rows, rows, dims, compared, conditions)
            for (change, values, before), count in found.items():
                model[other, change, values, before] += count
        changes = Counter(
            (
                row["snapshot_id"],
                row["change"],
                tuple(plain(row[name]) for name in (*dims, *compared)),
                None
                if row["change"] == "inserted"
                else tuple(plain(row[f"before_{name}"]) for name in compared),
            )
            for row in read(self.repo, options)
        )
        assert changes == model, (options, changes - model, model - changes)


def read(repo: frazil.Repository, options: dict[str, str]) -> list[Row]:
    table = RowChangesTable(repo, options)
    reader = RowChangesReader(table, table.schema)
    parts = reader.partitions()
    task = pickle.loads(pickle.dumps(reader))
    return [
        row
        for part in parts
        for batch in task.read(pickle.loads(pickle.dumps(part)))
        for row in batch.to_pylist()
    ]


@pytest.mark.sample(4, 20)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(200))
def test_changes_of_random_histories(seed: int) -> None:
    """Ten thousand steps in the third tier: 50 for each seed."""
    history = History(seed)
    steps = []
    for _ in range(STEPS):
        steps.append(history.step())
        try:
            history.compare()
        except Exception as error:
            error.add_note(f"seed {seed}, operations {steps[-8:]}")
            raise

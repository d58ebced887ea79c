"""The merge of chunks element by element, against a model in numpy and against the reference."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

import icechunk
import numcodecs.zarr3
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support.examples import examples

import frazil
from frazil.conflicts import ConflictType, DiscardedValues, ElementSolver, VersionSelection
from frazil.repository.history import element_solver

OURS, THEIRS = VersionSelection.UseOurs, VersionSelection.UseTheirs

DTYPES = ("u1", "i2", "f4", "f8", "c16", "M8[ns]", "bool", "S3", "U2", "str", "u4,f8")
#: Codecs of zarr, by name: arguments of `create_array`.
CODECS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {"compressors": zarr.codecs.ZstdCodec(level=1)},
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "blosc": {"compressors": zarr.codecs.BloscCodec(shuffle="bitshuffle")},
    "crc": {"compressors": zarr.codecs.Crc32cCodec()},
    "transposed": {"filters": zarr.codecs.TransposeCodec(order=(1, 0))},
    "shards": {"shards": (4, 6), "chunks": (2, 2)},
}


def values_of(dtype: str, numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Numbers of 0 to 7 as values of a dtype. 0 is the fill value, others have special bits."""
    if dtype == "str":
        texts = np.array(["", "a", "b", "süß", "long text", "aa", " ", "0"], np.dtypes.StringDType())
        return texts[numbers]
    if dtype == "u4,f8":
        result = np.zeros(numbers.shape, dtype)
        result["f0"], result["f1"] = numbers % 4, values_of("f8", numbers)
        return result
    if dtype.startswith("f"):
        special = np.array([0.0, -0.0, np.nan, np.inf, 1.5, -np.nan, 3.0, 4.0], dtype)
        return special[numbers]
    if dtype.startswith("M"):
        numbers = np.where(numbers == 0, np.iinfo("i8").min, numbers)  # the fill value is "not a time"
    if dtype[0] in "SU":
        return np.array(["", *"1234567"], dtype)[numbers]
    return numbers.astype("i8").astype(dtype)


def bits(values: NDArray[Any]) -> Any:
    return values.tolist() if values.dtype.kind in "TO" else np.ascontiguousarray(values).tobytes()


@dataclass
class Case:
    """The numbers of the three sides, which may have more or fewer rows than the base."""

    dtype: str
    codec: str
    version: int
    base: NDArray[np.int64]
    ours: NDArray[np.int64]
    theirs: NDArray[np.int64]

    def repository(self) -> frazil.Repository:
        repo = frazil.Repository.create(frazil.in_memory_storage(), spec_version=self.version)
        options = {"chunks": (4, 6), **CODECS[self.codec]}
        with repo.transaction("main", message="base") as store:
            array = zarr.create_array(
                store, name="a", shape=self.base.shape, dtype=self.zarr_dtype, **options
            )
            array[:] = values_of(self.dtype, self.base)
        repo.create_branch("dev", repo.lookup_branch("main"))
        for branch, side in (("main", self.theirs), ("dev", self.ours)):
            session = repo.writable_session(branch)
            write(session, self.dtype, self.base, side)
            session.commit(branch, allow_empty=True)
        return repo

    @property
    def zarr_dtype(self) -> Any:
        return str if self.dtype == "str" else self.dtype


def write(session: frazil.Session, dtype: str, base: NDArray[np.int64], side: NDArray[np.int64]) -> None:
    """Write what differs from the base, cell by cell; chunks of the fill value are deleted."""
    array = zarr.open_array(session.store, path="a")
    if side.shape != base.shape:
        array.resize(side.shape)
    before = grown(base, side.shape)
    new = values_of(dtype, side)
    for at in zip(*np.nonzero(before != side), strict=True):
        array[at] = new[at]


def grown(numbers: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """The numbers in another shape; cells beyond are 0."""
    result = np.zeros(shape, np.int64)
    common = tuple(map(slice, map(min, shape, numbers.shape)))
    result[common] = numbers[common]
    return result


def sides() -> st.SearchStrategy[Case]:
    """Cases in which at most one side has another number of rows."""

    @st.composite
    def case(draw: Any) -> Case:
        rows, columns = draw(st.integers(1, 9)), 7
        dtype = draw(st.sampled_from(DTYPES))
        codec = draw(st.sampled_from(sorted(CODECS)))
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        high = 2 if dtype == "bool" else 8
        base = rng.integers(0, high, (rows, columns)) * rng.integers(0, 2)  # also sparse
        edited = []
        more = draw(st.sampled_from([0, 0, 1, 3, 5]))
        for _ in range(2):
            side = grown(base, (rows + more, columns))
            more = 0
            cells = rng.random(side.shape) < draw(st.sampled_from([0.02, 0.2, 0.9]))
            if draw(st.booleans()):
                cells &= rng.random(side.shape[1]) < 0.4  # few columns, so that conflicts are rarer
            side[cells] = rng.integers(0, high, side.shape)[cells] if draw(st.booleans()) else 0
            edited.append(side)
        if draw(st.booleans()):
            edited.reverse()
        if draw(st.booleans()):  # no element is changed on both sides
            both = [grown(base, each.shape) for each in edited]
            common = (slice(rows),)
            mine = edited[0][common] != both[0][common]
            edited[1][common] = np.where(mine, both[1][common], edited[1][common])
        return Case(dtype, codec, draw(st.sampled_from([1, 2])), base, *edited)

    return case()


def merged(case: Case, otherwise: VersionSelection) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The model: each element is from the side that changed it; and where both changed differently."""
    shape = tuple(map(max, case.ours.shape, case.theirs.shape))
    base, ours, theirs = (grown(each, shape) for each in (case.base, case.ours, case.theirs))
    by_ours, by_theirs = ours != base, theirs != base
    clash = by_ours & by_theirs & (ours != theirs)
    result = np.where(by_theirs & (~by_ours | (otherwise is THEIRS)), theirs, ours)
    return result, clash


@given(sides())
def test_each_element_is_from_the_side_that_changed_it(case: Case) -> None:
    repo = case.repository()
    for otherwise in (VersionSelection.Fail, OURS, THEIRS):
        repo.create_branch(otherwise.name, repo.lookup_branch("main"))
        solver = ElementSolver(otherwise=otherwise)
        expected, clash = merged(case, otherwise)
        if otherwise is VersionSelection.Fail and clash.any():
            with pytest.raises(frazil.RebaseFailedError) as error:
                repo.merge("dev", otherwise.name, solver=solver)
            assert repo.lookup_branch(otherwise.name) == repo.lookup_branch("main")
            (conflict,) = error.value.conflicts
            assert f" {int(clash.sum())} element" in conflict.reason
            assert str([int(i) for i in np.argwhere(clash)[0]]) in conflict.reason or clash.sum() > 3
            continue
        repo.merge("dev", otherwise.name, solver=solver)
        store = repo.readonly_session(otherwise.name).store
        result = zarr.open_array(store, path="a", mode="r")
        assert result.shape == expected.shape
        assert bits(result[:]) == bits(values_of(case.dtype, expected))
        discarded = {each.side: each.values for each in solver.discarded}
        assert discarded == ({THEIRS if otherwise is OURS else OURS: int(clash.sum())} if clash.any() else {})

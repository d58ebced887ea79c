"""The merge of chunks element by element, against a model in numpy and against the reference."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from zarr.abc.codec import ArrayArrayCodec

import frazil
from frazil.arrays import element_solver
from frazil.conflicts import ConflictType, DiscardedValues, ElementSolver, VersionSelection

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
        assert bits(np.asarray(result[:])) == bits(values_of(case.dtype, expected))
        discarded = {each.side: each.values for each in solver.discarded}
        assert discarded == ({THEIRS if otherwise is OURS else OURS: int(clash.sum())} if clash.any() else {})


# ---- single cases -----------------------------------------------------------------------------------


def two_branches(*, shape: tuple[int, ...] = (6,), **options: Any) -> frazil.Repository:
    """A repository with the array ``a``, full of ones in one chunk, on the branches main and dev."""
    repo = frazil.Repository.create(frazil.in_memory_storage())
    options = {"chunks": shape, "dtype": "f4", **options}
    with repo.transaction("main", message="base") as store:
        zarr.create_array(store, name="a", shape=shape, **options)[...] = 1
    repo.create_branch("dev", repo.lookup_branch("main"))
    return repo


def put(repo: frazil.Repository, branch: str, at: Any, value: Any, **attributes: Any) -> str:
    session = repo.writable_session(branch)
    array = zarr.open_array(session.store, path="a")
    array[at] = value
    array.attrs.update(attributes) if attributes else None
    return session.commit(f"put {at}")


def append(repo: frazil.Repository, branch: str, values: list[float]) -> str:
    session = repo.writable_session(branch)
    zarr.open_array(session.store, path="a").append(np.array(values, "f4"))
    return session.commit("append")


def values(repo: frazil.Repository, branch: str = "main") -> Any:
    return np.asarray(zarr.open_array(repo.readonly_session(branch).store, path="a", mode="r")).tolist()


def reason(error: pytest.ExceptionInfo[frazil.RebaseFailedError]) -> str:
    (conflict,) = error.value.conflicts
    assert conflict.reason in str(error.value)
    assert pickle.loads(pickle.dumps(conflict)).reason == conflict.reason
    return str(conflict.reason)


def test_cells_that_an_earlier_shape_left_in_the_chunk_stay_hidden() -> None:
    repo = two_branches(chunks=(20,))
    session = repo.writable_session("main")
    zarr.open_array(session.store, path="a").resize((3,))  # the chunk still has ones beyond the shape
    session.commit("shorter")
    repo.reset_branch("dev", repo.lookup_branch("main"))
    session = repo.writable_session("main")
    array = zarr.open_array(session.store, path="a")
    array.resize((6,))
    array[3:] = [0, 5, 0]
    session.commit("longer")
    put(repo, "dev", 0, 9)
    repo.merge("dev", solver=ElementSolver())
    assert values(repo) == [9, 1, 1, 0, 5, 0]


def test_scalars() -> None:
    repo = two_branches(shape=(), chunks=())
    put(repo, "main", (), 2)
    put(repo, "dev", (), 3)
    with pytest.raises(frazil.RebaseFailedError):
        repo.merge("dev", solver=ElementSolver())
    repo.merge("dev", solver=ElementSolver(otherwise=OURS))
    assert values(repo) == 3


def test_rectilinear_grids() -> None:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        repo = two_branches(shape=(6, 4), chunks=[[1, 5], [3, 1]])
        session = repo.writable_session("main")
        array = zarr.open_array(session.store, path="a")
        array.resize((9, 4))  # the grid gets one more chunk
        array[4:] = 2
        session.commit("longer")
        put(repo, "dev", (slice(0, 4), 2), 9)
        repo.merge("dev", solver=ElementSolver())
        expected = np.ones((9, 4))
        expected[4:], expected[:4, 2] = 2, 9
        assert values(repo) == expected.tolist()


def test_a_rebase_a_commit_and_a_transaction() -> None:
    repo = two_branches()
    sessions = [repo.writable_session("main") for _ in range(4)]
    for number, session in enumerate(sessions):
        zarr.open_array(session.store, path="a")[number] = 10 + number
    sessions[0].commit("first")
    sessions[1].rebase(ElementSolver())
    sessions[1].commit("second")
    sessions[2].commit("third", rebase_with=ElementSolver())
    sessions[3].commit("fourth", rebase_with=ElementSolver())
    with repo.transaction("main", message="outer", rebase_with=ElementSolver()) as store:
        zarr.open_array(store, path="a")[4] = 14
        put(repo, "main", 5, 15)
    assert values(repo) == [10, 11, 12, 13, 14, 15]


def test_a_rebase_over_an_append_and_over_other_metadata() -> None:
    repo = two_branches(chunks=(20,))
    session, late = (repo.writable_session("main") for _ in range(2))
    for each, at in ((session, 0), (late, 1)):
        zarr.open_array(each.store, path="a")[at] = 9
    append(repo, "main", [2])
    session.commit("after an append", rebase_with=ElementSolver())
    assert values(repo) == [9, 1, 1, 1, 1, 1, 2]
    with repo.transaction("main", message="other units") as store:
        zarr.open_array(store, path="a").attrs["units"] = "K"
    with pytest.raises(frazil.RebaseFailedError):
        late.rebase(ElementSolver())


def test_cherry_pick_and_revert() -> None:
    repo = two_branches()
    put(repo, "dev", 5, 8)
    picked = put(repo, "dev", 0, 9)
    put(repo, "main", 1, 4)
    repo.cherry_pick(picked, solver=ElementSolver())
    assert values(repo) == [9, 4, 1, 1, 1, 1]
    bad = put(repo, "main", slice(0, 3), [6, 6, 6])
    put(repo, "main", 5, 5)
    repo.revert(bad, solver=ElementSolver())
    assert values(repo) == [9, 4, 1, 1, 1, 5]
    put(repo, "main", 1, 3)
    with pytest.raises(frazil.RebaseFailedError) as error:
        repo.revert(bad, solver=ElementSolver())
    assert " 1 element" in reason(error)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
def test_lossy_codecs_that_store_the_merged_elements_exactly() -> None:
    rounding = zarr.codecs.numcodecs.FixedScaleOffset(offset=0, scale=10, dtype="f4", astype="i2")
    repo = two_branches(filters=[rounding])
    put(repo, "main", 0, 3.14159)
    put(repo, "dev", 1, 4)
    repo.merge("dev", solver=ElementSolver())
    assert values(repo) == [np.float32(3.1), 4, 1, 1, 1, 1]


@dataclass(frozen=True)
class Limiting(ArrayArrayCodec):
    """A codec that makes the values of a chunk smaller if their sum is larger than 10."""

    is_fixed_size = True

    @classmethod
    def from_dict(cls, _data: Any) -> Limiting:
        return cls()

    def to_dict(self) -> Any:
        return {"name": "limiting"}

    def compute_encoded_size(self, size: int, _spec: Any) -> int:
        return size

    async def _encode_single(self, chunk: Any, _spec: Any) -> Any:
        values = chunk.as_ndarray_like()
        return chunk.from_ndarray_like(np.minimum(values, 10 - values.sum() + values))

    async def _decode_single(self, chunk: Any, _spec: Any) -> Any:
        return chunk


def test_codecs_that_do_not_store_the_merged_elements_exactly() -> None:
    zarr.registry.register_codec("limiting", Limiting)
    repo = two_branches(filters=[Limiting()])
    put(repo, "main", 0, 3)
    put(repo, "dev", 1, 4)
    with pytest.raises(frazil.RebaseFailedError) as error:
        repo.merge("dev", solver=ElementSolver())
    assert "exactly" in reason(error)
    repo.merge("dev", solver=(solver := ElementSolver(otherwise=OURS)))
    assert values(repo) == [1, 4, 1, 1, 1, 1]
    assert solver.discarded == [DiscardedValues("/a", THEIRS, 1, 1)]


@pytest.mark.parametrize("attribute", [{"scale_factor": 0.1}, {"units": "K"}])
def test_elements_of_another_meaning_are_not_merged(attribute: dict[str, Any]) -> None:
    repo = two_branches()
    put(repo, "main", 0, 3, **attribute)
    put(repo, "dev", 1, 4)
    with pytest.raises(frazil.RebaseFailedError) as error:
        repo.merge("dev", solver=ElementSolver())
    assert next(iter(attribute)) in reason(error)
    solver = ElementSolver(otherwise=THEIRS)
    repo.merge("dev", solver=solver)
    assert values(repo)[:2] == [3, 1]
    assert solver.discarded == [DiscardedValues("/a", OURS, 1, 1)]


def stored(session: frazil.Session, key: str) -> bytes:
    buffer = session.store.get_sync(key)
    assert buffer is not None
    return buffer.to_bytes()


def test_chunks_of_unknown_codecs_are_not_merged() -> None:
    repo = two_branches()
    session = repo.writable_session("main")
    document = json.loads(stored(session, "a/zarr.json"))
    document["codecs"].append({"name": "unknown_codec"})
    frame = zarr.core.buffer.cpu.Buffer.from_bytes
    session.store.set_sync("a/zarr.json", frame(json.dumps(document).encode()))
    session.commit("another codec")
    repo.reset_branch("dev", repo.lookup_branch("main"))
    for branch in ("main", "dev"):
        session = repo.writable_session(branch)
        session.store.set_sync("a/c/0", frame(branch.encode()))
        session.commit(branch)
    with pytest.raises(frazil.RebaseFailedError) as error:
        repo.merge("dev", solver=ElementSolver())
    assert "unknown_codec" in reason(error)
    solver = ElementSolver(otherwise=OURS)
    repo.merge("dev", solver=solver)
    assert stored(repo.readonly_session("main"), "a/c/0") == b"dev"
    assert solver.discarded == [DiscardedValues("/a", THEIRS, None, 1)]


def test_deletions_name_the_values_that_they_discard() -> None:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    with repo.transaction("main", message="base") as store:
        for name in ("a", "g/b"):
            zarr.create_array(store, name=name, shape=(4,), chunks=(2,), dtype="i4")[:] = 1
    repo.create_branch("dev", "main")
    with repo.transaction("main", message="change") as store:
        zarr.open_array(store, path="a")[1:3] = 5
        zarr.create_array(store, name="g/new", shape=(3,), dtype="i4")[:] = 7
    with repo.transaction("dev", message="delete") as store:
        root = zarr.open_group(store)
        del root["a"]
        del root["g"]
    with pytest.raises(frazil.RebaseFailedError) as error:
        repo.merge("dev", solver=ElementSolver())
    assert {each.conflict_type for each in error.value.conflicts} == {
        ConflictType.DeleteOfUpdatedArray,
        ConflictType.DeleteOfUpdatedGroup,
    }
    repo.create_branch("kept", "main")
    repo.merge("dev", "kept", solver=(solver := ElementSolver(otherwise=THEIRS)))
    assert solver.discarded == []
    assert set(dict(zarr.open_group(repo.readonly_session("kept").store, mode="r").members(None))) == {
        *("a", "g", "g/new")
    }
    repo.merge("dev", solver=(solver := ElementSolver(otherwise=OURS)))
    assert solver.discarded == [DiscardedValues("/a", THEIRS, 2, 2), DiscardedValues("/g/new", THEIRS, 3, 1)]


def test_a_smaller_shape_names_the_values_that_it_discards() -> None:
    repo = two_branches(chunks=(2,))
    session = repo.writable_session("dev")
    zarr.open_array(session.store, path="a").resize((2,))
    session.commit("shorter")
    put(repo, "main", slice(3, 5), [5, 6])
    with pytest.raises(frazil.RebaseFailedError):
        repo.merge("dev", solver=ElementSolver())
    repo.merge("dev", solver=(solver := ElementSolver(otherwise=OURS)))
    assert values(repo) == [1, 1]
    assert solver.discarded == [DiscardedValues("/a", THEIRS, 2, 2)]


def test_few_chunks_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of chunks beyond a limit are computed again when they are stored."""
    monkeypatch.setattr(element_solver, "_ENCODED", 2000)
    repo = two_branches(shape=(400,), chunks=(4,), compressors=None)
    rng = np.random.default_rng(1)
    ours, theirs = (rng.random(200).astype("f4") for _ in range(2))
    put(repo, "main", slice(0, 400, 2), theirs)
    put(repo, "dev", slice(1, 400, 2), ours)
    repo.merge("dev", solver=ElementSolver())
    assert values(repo) == np.stack([theirs, ours], axis=1).reshape(-1).tolist()


@pytest.mark.interop
@pytest.mark.parametrize("version", [1, 2])
def test_the_reference_reads_the_result(version: int, tmp_path: Path) -> None:
    repo = frazil.Repository.create(frazil.local_filesystem_storage(str(tmp_path)), spec_version=version)
    expected = np.random.default_rng(2).random((8, 20)).astype("f4")
    with repo.transaction("main", message="base") as store:
        for name, options in CODECS.items():
            options = {"chunks": (4, 6), **options}
            zarr.create_array(store, name=name, shape=expected.shape, dtype="f4", **options)[:] = expected
    repo.create_branch("dev", repo.lookup_branch("main"))
    for branch, row in (("main", 1), ("dev", 3)):
        with repo.transaction(branch, message=branch) as store:
            for name in CODECS:
                zarr.open_array(store, path=name)[row] = -row
        expected[row] = -row
    repo.merge("dev", solver=ElementSolver())
    reference = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path)))
    root = zarr.open_group(reference.readonly_session("main").store, mode="r")
    for name in CODECS:
        assert np.array_equal(np.asarray(root[name]), expected), name

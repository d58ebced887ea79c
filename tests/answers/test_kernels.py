"""The kernels of all statistics: from cells, from statistics of tiles, merged in any order, on every face."""

from __future__ import annotations

import pickle
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import frazil
from frazil.answers import kernels
from frazil.answers.plan import tile_columns
from frazil.arrays.element_statistics import KINDS, Meaning, statistics_of
from frazil.cf import coding_of
from frazil.pipeline import Range, StatisticsAgainst, Target, Version, coarsen, reduce, validate

type Values = NDArray[Any]

#: The data type and the attributes of arrays of all kinds of numbers.
ARRAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "float": ("f4", {}),
    "half": ("f2", {"_FillValue": 7.0}),
    "double": (">f8", {}),
    "packed": ("i2", {"scale_factor": -0.5, "add_offset": 280.0, "missing_value": 3}),
    "unpacked": ("i4", {"_FillValue": 7}),
    "unsigned": ("i1", {"_Unsigned": "true", "_FillValue": 1}),
    "large": ("i8", {}),
    "positive": ("u8", {}),
    "truths": ("?", {}),
}


def elements_of(name: str, seed: int, shape: tuple[int, ...]) -> Values:
    """Return random elements, with gaps if the type has them."""
    rng, dtype = np.random.default_rng(seed), np.dtype(ARRAYS[name][0])
    spread = 2**61 if name in ("large", "positive") else rng.choice([1, 60])
    out = rng.integers(0 if dtype.kind in "ub" else -spread, spread, shape).astype(dtype)
    if dtype.kind == "f":
        out[rng.random(shape) < 0.2] = np.nan
    return out


def kernel_of(how: str, dtype: Any) -> kernels.Kernel:
    return kernels.STATISTICS[how].kernel(np.dtype(dtype), False, 0, None)


def by_numpy(how: str, values: Values) -> Any:
    """Return a statistic of decoded values, or None if numpy has none with this name."""
    valid = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    wide = valid.astype(np.float64) if values.dtype.kind == "f" else valid
    if how in ("any", "all"):
        return getattr(np, how)(values)
    if how == "count" or how == "sum" or len(valid):
        own = {"count": len(valid), "first": valid[:1], "last": valid[-1:]}
        return own[how] if how in own else getattr(np, how)(wide) if hasattr(np, how) else None
    return np.nan


@pytest.mark.parametrize("how", kernels.STATISTICS)
@settings(max_examples=20)
@given(st.sampled_from(list(ARRAYS)), st.integers(0, 999), st.randoms(use_true_random=False))
def test_cells_tiles_and_merged_parts_have_the_statistic(
    how: str, name: str, seed: int, random: Random
) -> None:
    groups, tiles, length = 4, 12, random.randint(1, 9)
    elements = elements_of(name, seed, (tiles, length))
    coding = coding_of(ARRAYS[name][1], elements.dtype, times=False)
    values, codes = coding.decode_with_nan(elements), np.array(random.choices(range(-1, groups), k=tiles))
    kernel, all_codes = kernel_of(how, values.dtype), np.repeat(codes, length)
    whole = kernel.partial_of(
        kernels.cells(values.reshape(-1), all_codes, positions=np.arange(tiles * length))
    )
    result = kernel.finish_fields(whole.fields)
    assert whole.groups.tolist() == sorted({*codes.tolist()} - {-1})
    for group, own in zip(whole.groups.tolist(), result, strict=True):
        expected = by_numpy(how, values[codes == group].reshape(-1))
        if expected is not None:
            np.testing.assert_allclose(own, np.asarray(expected).reshape(()), rtol=1e-9, atol=1e-9)

    borders = [0, *sorted(random.choices(range(tiles * length), k=3)), tiles * length]
    parts = [
        pickle.loads(pickle.dumps(kernel.partial_of(part)))
        for part in (part_of(values.reshape(-1), all_codes, *pair) for pair in pairwise(borders))
        if len(part.groups)
    ]
    random.shuffle(parts)
    total = kernels.empty_partial(kernel, np.arange(groups), ())
    for part in parts:
        kernels.absorb_partial(kernel, total, part)
    merged = [kernels.combine_tree(kernel, parts)] if parts else []
    used = np.isin(total.groups, whole.groups)
    fields = [tuple(each[used] for each in total.fields), *(each.fields for each in merged)]
    if kernel.takes_tiles:
        meaning = Meaning(b"", KINDS[coding.packed_dtype.kind], coding, None)
        columns = tile_columns(coding, statistics_of(meaning, elements), np.full(tiles, length))
        columns |= {each: columns[each].astype(values.dtype) for each in ("low", "high")}
        is_settled = ~kernel.is_open(columns)
        assert is_settled.all() or how == "all"
        if not np.isin(whole.groups, codes[is_settled]).all() or not is_settled[codes >= 0].all():
            return
        known = kernel.partial_of_tiles(kernels.Tiles.of(columns, is_settled, coding.packing, codes=codes))
        assert known.groups.tolist() == whole.groups.tolist()
        fields.append(known.fields)
    for each in fields:
        np.testing.assert_allclose(kernel.finish_fields(each), result, rtol=1e-9, atol=1e-9)


def part_of(values: Values, codes: Values, first: int, stop: int) -> kernels.Cells:
    return kernels.cells(values[first:stop], codes[first:stop], positions=np.arange(first, stop))


def test_exact_kernels_lose_no_digit_of_integers() -> None:
    elements = elements_of("positive", 0, (40, 5))
    meaning = Meaning(b"", "u", coding_of({}, elements.dtype), None)
    columns = tile_columns(meaning.coding, statistics_of(meaning, elements), np.full(40, 5))
    whole = [int(each) for each in elements.reshape(-1)]
    mean, parts = sum(whole) / 200, np.arange(40) % 7
    expected = {
        "sum": sum(whole),
        "mean": mean,
        "var": (200 * sum(n * n for n in whole) - sum(whole) ** 2) / 200**2,
    }
    for how, value in expected.items():
        kernel = kernel_of(how, object)
        partials = [kernel.partial_of_tiles(kernels.Tiles.of(columns, parts == part)) for part in range(7)]
        assert kernel.finish_fields(kernels.combine_tree(kernel, partials).fields)[0] == value


FAR: Values = 1e8 + np.random.default_rng(0).normal(size=10_000)


@pytest.mark.parametrize(
    ("how", "parts", "expected"),
    [
        ("var", np.split(FAR, 100), FAR.var()),
        ("sum", [np.full(3, 2**53 + 1), np.full(3, 2**53 + 1)], 6 * (2**53 + 1)),
        ("mean", [np.array([1.0]), np.array([np.inf]), np.array([np.nan])], np.inf),
        ("std", [np.array([1.0]), np.array([np.inf]), np.array([np.nan])], np.nan),
    ],
)
def test_parts_lose_nothing(how: str, parts: list[Values], expected: float) -> None:
    kernel = kernel_of(how, parts[0].dtype)
    total = kernels.combine_tree(kernel, [kernel.partial_of(kernels.cells(part)) for part in parts])
    (result,) = kernel.finish_fields(total.fields).tolist()
    # The variance is as exact as the values themselves.
    np.testing.assert_allclose(result, expected, rtol=1e-8 if how == "var" else 0)


@pytest.mark.parametrize("statistics", ["without", pytest.param("partial", marks=pytest.mark.deep), "all"])
def test_all_faces_agree_with_numpy(statistics: str) -> None:
    shape, dims = (12, 10), ("y", "x")
    repo = frazil.Repository.create(
        frazil.in_memory_storage(), config=frazil.RepositoryConfig(inline_chunk_threshold_bytes=0)
    )
    arrays = {name: elements_of(name, number, shape) for number, name in enumerate(ARRAYS)}
    with repo.transaction("main", message="arrays") as store:
        for name, (dtype, attributes) in ARRAYS.items():
            layout: dict[str, Any] = {
                "shape": shape,
                "chunks": (4, 5),
                "dimension_names": dims,
                "attributes": attributes,
            }
            zarr.create_array(store, name=f"data/{name}", dtype=dtype, **layout)[...] = arrays[name]
    if statistics != "without":
        repo.upkeep.build_statistics()
    if statistics == "partial":
        with repo.transaction("main", message="a part again, without statistics") as store:
            for name, elements in arrays.items():
                zarr.open_array(store, path=f"data/{name}")[3:6] = elements[3:6]
    data = repo.readonly_session("main")
    paths = [f"data/{name}" for name in ARRAYS]
    reduce(repo, paths, how=list(kernels.STATISTICS), to=Target(repo, group="out"), engine="inline")
    quarter = {"y": 6, "x": 5}
    hows = [how for how in kernels.STATISTICS if how not in ("first", "last")]
    for how in hows if statistics == "partial" else ():
        coarsen(repo, paths, quarter, how, to=Target(repo, group=f"coarse/{how}"), engine="inline")
    rules = [rule for name in ARRAYS for rule in (Range(f"/data/{name}"), StatisticsAgainst(f"/data/{name}"))]
    rows = iter(validate(Version.of(repo, snapshot_id=data.snapshot_id), rules, engine="inline").rows)
    store = repo.readonly_session("main").store

    def read(path: str) -> Values:
        return np.asarray(zarr.open_array(store, path=path, mode="r")[...], float)

    for name, elements in arrays.items():
        values = coding_of(ARRAYS[name][1], elements.dtype, times=False).decode_with_nan(elements)
        summary = frazil.reduce(frazil.Array(data, f"/data/{name}"))
        rtol = {"f2": 2e-3, "f4": 1e-6}.get(values.dtype.str[1:], 1e-9)
        for how in kernels.STATISTICS:
            expected = np.asarray(by_numpy(how, values.reshape(-1))).reshape(())
            answers = [read(f"out/data/{name}_{how}")]
            if statistics == "partial" and how in hows:
                coarse = np.asarray(by_numpy(how, values[6:, :5].reshape(-1)), float)
                answer = read(f"coarse/{how}/data/{name}")[1, 0]
                np.testing.assert_allclose(answer, coarse, rtol, err_msg=f"{name} {how}")
            own = getattr(summary, how, None)
            if own is not None and (how != "sum" or expected.dtype.kind == "f"):
                answers.append(own)
            for answer in answers:
                np.testing.assert_allclose(answer, expected, rtol, err_msg=f"{name} {how}")
        assert summary.chunks_read == {"without": 6, "partial": 4, "all": 0}[statistics]
        if elements.dtype.kind in "iub" and values.dtype.kind != "f":
            assert summary.sum == sum(int(each) for each in elements.reshape(-1))
        valid = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        numbers = coding_of(ARRAYS[name][1], elements.dtype, times=False).number_dtype
        assert next(rows).found == " to ".join(
            str(each.astype(numbers)) for each in (valid.min(), valid.max())
        )
        mean, std = (valid.astype(float).mean(), valid.astype(float).std())
        assert next(rows).found == f"mean {mean:.6g}, std {std:.6g}"

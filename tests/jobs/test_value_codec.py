"""Values of tasks: what comes out is what went in; from a storage nothing but plain values comes out."""

from __future__ import annotations

import pickle
import subprocess
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy._core.multiarray import _reconstruct  # type: ignore[import-not-found,unused-ignore]
from tests.jobs import killed

import frazil.jobs.engine
from frazil.jobs.task_results import _Unpickler, dumped, loaded
from frazil.spark import Outcome, Threads

DTYPES = hnp.scalar_dtypes() | hnp.byte_string_dtypes() | hnp.unicode_string_dtypes() | hnp.array_dtypes()
ARRAYS = hnp.arrays(DTYPES, hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3))


@given(ARRAYS, st.sampled_from([None, killed.__name__]))
def test_arrays_come_back(array: Any, module: str | None) -> None:
    for value in (array, array.T, array[()], array.dtype):
        back = loaded(dumped(value), module)
        assert type(back) is type(value)
        if not isinstance(value, np.dtype):
            assert (back.dtype, back.shape) == (value.dtype, value.shape)
            assert np.asarray(back).tobytes() == np.asarray(value).tobytes()


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x", b"y", (1j, {3}), slice(1, None), bytearray(b"abc")]},
        defaultdict(list, {1: [2]}),
        Outcome(b"x", 3),
        np.array([None, "x", 10**30], object).reshape(3, 1).tolist(),
    ],
    ids=repr,
)
def test_plain_values_come_back(value: Any) -> None:
    for data in (dumped(value), pickle.dumps(value, 3)):
        assert loaded(data, killed.__name__) == value


def test_objects_and_masks_come_back() -> None:
    back = loaded(dumped(np.array([[None, "x"]], object)), "")
    assert (back.dtype, back.tolist()) == (np.dtype(object), [[None, "x"]])
    masked = loaded(dumped(np.ma.masked_array([1.0, 2.0], [True, False], fill_value=9)), "")
    assert (masked.tolist(), masked.fill_value) == ([None, 2.0], 9)


class Pointers:
    """A dtype of objects that says it has none: an array then makes pointers of bytes."""

    def __reduce__(self) -> Any:
        return (np.dtype, ("O8", False, True), (3, "|", None, None, None, -1, -1, 0))


class ArrayOfPointers:
    def __reduce__(self) -> Any:
        return (_reconstruct, (np.ndarray, (0,), b"b"), (1, (1,), Pointers(), False, b"A" * 8))


class Calls:
    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call[0], self._call[1:]


def named(module: str, name: str) -> bytes:
    """The pickle of a name."""
    words = [pickle.SHORT_BINUNICODE + bytes([len(word)]) + word.encode() for word in (module, name)]
    return pickle.PROTO + b"\4" + b"".join(words) + pickle.STACK_GLOBAL + pickle.STOP


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(Pointers()),
        pickle.dumps(ArrayOfPointers()),
        pickle.dumps(Calls(eval, "1")),
        pickle.dumps(Calls(subprocess.run, "true")),
        dumped(lambda: 1),
        named("frazil.jobs.engine", "subprocess.Popen"),
        named("frazil.jobs.staging", "Repository.open"),
        named("frazil.jobs.task_results", "pickle.loads"),
        named("frazil.jobs.task_results", "loaded"),
        named("frazil.repository.catalog.version_info", "SnapshotInfo"),
        named(killed.__name__, "die"),
        named("frazil.sparkling", "x"),
        pickle.dumps(Calls(frazil.jobs.task_results.array_of, "O", (1,), b"A" * 8)),
        pickle.dumps(Calls(frazil.jobs.task_results.array_of, [("x", "O")], (1,), b"A" * 8)),
        pickle.dumps(Calls(frazil.jobs.task_results.array_of, "f8", (1 << 60,), b"A" * 8)),
        pickle.dumps(Calls(frazil.jobs.task_results.array_of, "f8", (-1, -1), b"A" * 8)),
        pickle.dumps(Calls(frazil.jobs.task_results.dtype_of, "f8,O")),
        pickle.dumps(Calls(frazil.jobs.task_results.dtype_of, Threads())),
    ],
)
def test_nothing_else_comes_from_a_storage(data: bytes) -> None:
    with pytest.raises((pickle.UnpicklingError, ValueError)):
        _Unpickler(data, killed.__name__).load()


@pytest.mark.parametrize(
    "data",
    [
        b"cbuiltins\nbytearray\n(I60000000000\ntR.",
        b"cbuiltins\nbytes\n(I60000000000\ntR.",
        b"cbuiltins\nlist\n(cbuiltins\nrange\n(I10000000000\ntRtR.",
        b"cbuiltins\nint\n(cdecimal\nDecimal\n(V1E999999999\ntRtR.",
        b"cfractions\nFraction\n(V1E999999999\ntR.",
    ],
)
def test_a_few_bytes_from_a_storage_do_not_take_gibibytes(data: bytes) -> None:
    with pytest.raises(pickle.UnpicklingError):
        loaded(data, killed.__name__)

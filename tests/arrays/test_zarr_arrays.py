"""Arrays of zarr that read and write boxes in bulk, beside arrays of zarr that do not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.arrays.test_array import arrays, same

import frazil
from frazil.arrays.zarr_arrays import array_at
from frazil.zarr_store.arrays import NamingArray


@pytest.fixture
def session() -> frazil.Session:
    return frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")


def _counted(method: Any, selections: list[Any]) -> Any:
    def call(array: Any, selection: Any = ..., *args: Any, **kwargs: Any) -> Any:
        if isinstance(array, NamingArray):
            selections.append(selection)
        return method(array, selection, *args, **kwargs)

    return call


@pytest.fixture
def of_zarr(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The selections that zarr reads and writes."""
    selections: list[Any] = []
    for kind in ("basic", "orthogonal", "coordinate", "mask", "block"):
        for name in (f"get_{kind}_selection", f"set_{kind}_selection"):
            monkeypatch.setattr(zarr.Array, name, _counted(getattr(zarr.Array, name), selections))
    return selections


@pytest.mark.deep
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_as_zarr(data: st.DataObject) -> None:
    values, options = data.draw(arrays())
    session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    created = zarr.create_array(session.store, name="t", shape=values.shape, dtype=values.dtype, **options)
    spot = tuple(slice(data.draw(st.integers(0, n)), None) for n in values.shape)
    created[spot] = values[spot]
    if data.draw(st.booleans()):
        session.commit("values")
    index = data.draw(hnp.basic_indices(values.shape, allow_ellipsis=True))
    expected, actual = (outcome(each, index) for each in (created, array_at(session, "/t")))
    assert type(actual) is type(expected)
    if isinstance(expected, np.ndarray | np.generic):
        same(actual, expected)


def outcome(array: zarr.Array[Any], index: Any) -> Any:
    try:
        return array[index]
    except Exception as error:
        return error


def test_boxes_are_read_in_bulk(session: frazil.Session, of_zarr: list[Any]) -> None:
    values = np.arange(130, dtype="i4").reshape(10, 13)
    zarr.create_array(session.store, name="t", data=values, chunks=(2, 3))
    array = array_at(session, "t")
    for index in (np.s_[:], np.s_[3:9:2, ::5], np.s_[..., 4], np.s_[7, 2:], np.s_[9:40], np.s_[4:4], 3):
        same(array[index], values[index])
        same(array.oindex[index], values[index])
    assert not of_zarr


def test_other_reads_are_those_of_zarr(session: frazil.Session, of_zarr: list[Any]) -> None:
    values = np.arange(40, dtype="i4")
    zarr.create_array(session.store, name="t", data=values, chunks=(5,))
    array = array_at(session, "/t")
    assert array[7] == 7
    same(array.oindex[[1, 30]], values[[1, 30]])
    with pytest.raises(IndexError):
        array[40]
    with pytest.raises(IndexError):
        array[::-1]
    out = zarr.core.buffer.cpu.NDBuffer.from_numpy_array(np.zeros(40, "i4"))
    array.get_basic_selection(out=out)
    same(out.as_numpy_array(), values)
    assert len(of_zarr) == 5
    texts = np.array(["a", "bc"], "T")
    zarr.create_array(session.store, name="s", data=texts, chunks=(1,))
    assert array_at(session, "/s")[:].tolist() == ["a", "bc"]
    with zarr.config.set({"array.read_missing_chunks": False}):
        zarr.create_array(session.store, name="empty", shape=(5,), dtype="i4")
        with pytest.raises(Exception, match="not found"):
            array_at(session, "/empty")[:]


def test_an_array_with_another_shape_since(session: frazil.Session, of_zarr: list[Any]) -> None:
    """An open array of zarr has the shape of the time when it was opened."""
    created = zarr.create_array(session.store, name="t", data=np.arange(6), chunks=(3,))
    array = array_at(session, "/t")
    created.resize((9,))
    same(array[:], np.arange(6))
    assert len(of_zarr) == 1


def test_boxes_are_written_in_bulk(session: frazil.Session, of_zarr: list[Any]) -> None:
    """The chunks have the same bytes as chunks that zarr writes, and chunks of the fill value are missing."""
    values = np.arange(130, dtype="i4").reshape(10, 13)
    values[:4, :6] = 0
    for name in ("a", "b"):
        zarr.create_array(session.store, name=name, shape=(10, 13), dtype="i4", chunks=(2, 3), fill_value=0)
    of_plain_zarr = zarr.open_array(session.store, path="a", mode="r+")
    array = array_at(session, "b", "r+")
    for index in (np.s_[:], np.s_[2:8], np.s_[..., 3:6], np.s_[8:40, 12], np.s_[4:6, 6:]):
        part = values[index] * 2
        array[index] = of_plain_zarr[index] = part
        array.oindex[index] = part
    assert not of_zarr
    same(array_at(session, "b")[:], of_plain_zarr[:])
    array[1:3] = of_plain_zarr[1:3] = values[1:3]
    assert len(of_zarr) == 1  # chunks that change in part
    assert session.store.get_sync("b/c/0/0") is None


def test_other_writes_are_those_of_zarr(session: frazil.Session, of_zarr: list[Any]) -> None:
    values = np.arange(6, dtype="i4")
    created = zarr.create_array(session.store, name="t", data=values, chunks=(3,))
    array = array_at(session, "t", "r+")
    array[:3] = 5
    array[3:] = np.array([1.9, 2.0, 3.0])
    array.oindex[[0]] = np.array([7], "i4")
    assert created[:].tolist() == [7, 5, 5, 1, 2, 3]
    with pytest.raises(ValueError, match="shape"):
        array[:3] = np.zeros(2, "i4")
    assert len(of_zarr) == 4
    created.resize((9,))
    array[:] = values  # the shape of the time when it was opened
    assert len(of_zarr) == 5
    session.store.set_sync("t/zarr.json", _with_fill(session, 8))
    array_at(session, "t", "r+")[:] = np.full(9, 8, "i4")
    assert len(of_zarr) == 5
    array[:] = values
    assert len(of_zarr) == 6


def _with_fill(session: frazil.Session, fill: int) -> Any:
    prototype = zarr.core.buffer.default_buffer_prototype()
    document = json.loads(session.store.get_sync("t/zarr.json", prototype=prototype).to_bytes())
    return prototype.buffer.from_bytes(json.dumps({**document, "fill_value": fill}).encode())

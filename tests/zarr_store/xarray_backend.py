"""xarray's own tests of its zarr backend, over Frazil's store. Run by test_xarray_backend.py."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import xarray as xr
import zarr
from xarray.tests import test_backends as theirs

import frazil


@contextlib.contextmanager
def target() -> Iterator[frazil.IcechunkStore]:
    repo = frazil.Repository.create(frazil.in_memory_storage())
    yield repo.writable_session("main").store


@pytest.fixture
def default_zarr_format() -> Iterator[None]:
    """Version 3 alone: the format knows no other."""
    with zarr.config.set(default_zarr_format=3):
        yield


@pytest.fixture
def tmp_store() -> Iterator[frazil.IcechunkStore]:
    with target() as store:
        yield store


class Fork(theirs.ZarrBase):
    """Over a fork, which can be pickled. Not collected: for single tests."""

    @contextlib.contextmanager
    def create_zarr_target(self) -> Iterator[frazil.IcechunkStore]:
        with target() as store:
            yield store.session.fork().store


class TestStore(theirs.ZarrBase):
    def create_zarr_target(self) -> contextlib.AbstractContextManager[frazil.IcechunkStore]:
        return target()

    def test_pickle(self) -> None:
        Fork().test_pickle()

    def test_pickle_dataarray(self) -> None:
        Fork().test_pickle_dataarray()

    @pytest.mark.skip(reason="zarr version 3 has no hidden attributes for dimensions")
    def test_hidden_zarr_keys(self) -> None: ...


class TestRegionAuto(theirs.TestZarrRegionAuto):
    def create_zarr_target(self) -> Any:
        return target()


class TestDataArray(theirs.TestDataArrayToZarr):
    pass


class TestEngine(TestStore):
    """The same tests, with the engine ``frazil`` for reads."""

    @contextlib.contextmanager
    def open(self, path: Any, **options: Any) -> Iterator[xr.Dataset]:
        for each in (options, options.get("backend_kwargs", {})):
            each.pop("consolidated", None)
        if isinstance(path, str):  # a plain Zarr store
            with super().open(path, **options) as dataset:
                yield dataset
        else:
            with xr.open_dataset(path, engine="frazil", **options) as dataset:
                yield dataset

"""The examples in the docstrings of the format's shared base run."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from frazil.format import chunk_table, columns, coordinates, envelope, flatbuffer, ids, keys

MODULES = [chunk_table, columns, coordinates, envelope, flatbuffer, ids, keys]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0

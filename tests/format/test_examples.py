"""The examples in the docstrings of the format run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import frazil.format

MODULES = [each.name for each in pkgutil.walk_packages(frazil.format.__path__, "frazil.format.")]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0

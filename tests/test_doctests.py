"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import frazil

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(frazil.__path__, "frazil.")
    if "__main__" not in module.name
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # an example may write files
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_some_examples_exist() -> None:
    assert "frazil.errors" in MODULES
    assert doctest.testmod(importlib.import_module("frazil.errors")).attempted > 0

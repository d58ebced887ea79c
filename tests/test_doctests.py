"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

import pytest
import zarr

import frazil

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(frazil.__path__, "frazil.")
    if "__main__" not in module.name
)


def starts_spark(name: str) -> bool:
    """Whether the examples of a module call `get_spark`."""
    found = importlib.util.find_spec(name)
    text = "" if found is None or found.origin is None else Path(found.origin).read_text()
    return name.startswith("frazil.spark.") and ">>> " in text and "get_spark(" in text


CASES = [pytest.param(name, marks=pytest.mark.spark if starts_spark(name) else ()) for name in MODULES]


@pytest.mark.sample(250)
@pytest.mark.parametrize("name", CASES)
def test_examples_of(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if starts_spark(name):
        request.getfixturevalue("spark")  # `get_spark` in an example returns this session
    monkeypatch.chdir(tmp_path)  # an example may write files
    if name == "frazil.compat":  # it refuses to replace an icechunk that is imported, as in tests of interop
        for imported in [each for each in sys.modules if each.partition(".")[0] == "icechunk"]:
            monkeypatch.delitem(sys.modules, imported)
    # The docstrings of `Repository` do not repeat these two imports.
    names = {"frazil": frazil, "zarr": zarr}
    module = importlib.import_module(name)
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_some_examples_exist() -> None:
    assert "frazil.errors" in MODULES
    assert doctest.testmod(importlib.import_module("frazil.errors")).attempted > 0

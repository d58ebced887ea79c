"""What `from frazil.spark import *` brings."""

from __future__ import annotations

import builtins

import frazil.spark


def test_no_function_of_python_is_replaced() -> None:
    assert not set(frazil.spark.__all__) & set(dir(builtins))
    namespace: dict[str, object] = {}
    exec("from frazil.spark import *\nassert sum([1, 2]) == max(3, min(2, 5)) == 3", namespace)
    assert "mean" in namespace


def test_they_are_there_by_name() -> None:
    assert [getattr(frazil.spark, name).__module__ for name in ("sum", "min", "max")] == [
        frazil.spark.mean.__module__
    ] * 3

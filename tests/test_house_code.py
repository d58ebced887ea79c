"""The code of the house: private names of other rooms, and where errors are."""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Iterator

import pytest
from tests.support.house import PATHS, REPOSITORY, nodes_of, parsed, room

pytestmark = pytest.mark.xdist_group("house")  # one worker parses each module once


def tree_of(module: str) -> ast.Module:
    return parsed(PATHS[module])


def place(module: str, node: ast.AST) -> str:
    return f"{PATHS[module].relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}"


# ---- private names ----------------------------------------------------------------------------------

#: Private names that rooms may use though others define them -> why.
STANDARD_PRIVATE = {
    "_replace": "of named tuples",
    "_asdict": "of named tuples",
    "_fields": "of named tuples",
    "_gateway": "of pyspark's SparkContext: there is no public way to ask whether a JVM runs",
    "_active_spark_context": "of pyspark's SparkContext: there is no public way to ask for it",
    "_meta": "of dask arrays: the only way to the type of their chunks",
    "_write_region": "of xarray's writer of zarr, which has no public form",
    "_validate_encoding": "of xarray's writer of zarr, which has no public form",
    "_validate_and_autodetect_region": "of xarray's writer of zarr, which has no public form",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines: functions, classes, variables, attributes, slots."""
    for node in nodes_of(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                for constant in ast.walk(value):
                    if isinstance(constant, ast.Constant):
                        yield str(constant.value)


@functools.cache
def names_of_rooms() -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for module in PATHS:
        names.setdefault(room(module), set()).update(defined_names(tree_of(module)))
    return names


def foreign_private_names(module: str, tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Private names of other rooms that a module uses."""
    classes = {node.name for node in nodes_of(tree) if isinstance(node, ast.ClassDef)}
    own = names_of_rooms()[room(module)]
    for node in nodes_of(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner)) if owner in {"self", "cls", *classes}:
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=name) if is_private(name):
                if name not in own and name not in STANDARD_PRIVATE:
                    yield node, name
            case ast.ImportFrom(names=aliases, module=source) if (source or "").startswith("frazil"):
                for alias in aliases:
                    if is_private(alias.name) and alias.name not in own:
                        yield node, alias.name


def test_no_private_names_of_other_rooms() -> None:
    offences = [
        f"{place(module, node)}: {name} is private to another room"
        for module in PATHS
        for node, name in foreign_private_names(module, tree_of(module))
    ]
    assert not offences, "give it an inner seam:\n" + "\n".join(offences)


# ---- errors -----------------------------------------------------------------------------------------

_EXCEPTIONS = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException) and not issubclass(value, Warning)
}


def exception_classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    for node in nodes_of(tree):
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            if bases & _EXCEPTIONS or any(base.endswith(("Error", "Exception")) for base in bases):
                yield node


def test_all_errors_are_in_errors() -> None:
    offences = [
        f"{place(module, each)}: {each.name}"
        for module in PATHS
        if room(module) != "errors"
        for each in exception_classes(tree_of(module))
    ]
    assert not offences, "move it to errors, or return a value:\n" + "\n".join(offences)

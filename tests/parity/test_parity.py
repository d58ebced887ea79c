"""What the public surface of the reference has, Frazil's has as well: modules, names, and members.

The reference's surface is every name without an underscore in every public module: what ``__all__`` names,
what the module defines, and what it imports from the reference's other modules. What it imports from other
packages does not count. `test_strict` compares the parameters.
"""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import frazil

#: Packages of the reference whose modules are not for users.
INTERNAL = {"_exceptions", "_icechunk_python", "vendor"}
#: Names that Frazil does not have, with the reason. `*` stands for the rest of a name.
EXCEPTIONS = {
    "repository.IcechunkStore": "the store is a layer above; it is in `store`, `session` and at the top",
    "repository.AsyncCloseableIterator": "the compiled type of an iterator that methods return",
    "repository.Py*": "a compiled half of a class of Python",
    "session.Py*": "a compiled half of a class of Python",
    "store.AsyncCloseableIterator": "the compiled type of an iterator that methods return",
    "store.Py*": "a compiled half of a class of Python",
    "store.BytesLike": "an alias of zarr's",
    "xarray.ForkSession": "imported for a check; it is in `session` and at the top",
    "xarray.LazyArrayWriter": "how the reference collects writes, by private parts of xarray",
    "xarray.has_dask": "whether an optional import of the reference's succeeded",
    "xarray.is_dask_collection": "a stand-in for dask's function of that name where dask is missing",
    "testing.invariants.IcechunkStore": "imported for an annotation",
    "testing.invariants.ModelStore": "imported for an annotation; it is in `testing.models`",
    "testing.invariants.SnapshotInfo": "imported for an annotation",
    "testing.trees.ERR_*": "patterns over texts of the reference's errors",
    "testing.trees.InvalidMoveReason": "the literals of the reference's generator of moves",
    "testing.trees.affix": "a part of other strategies",
    "testing.trees.separators": "a part of other strategies",
}
#: Methods with a syntax of their own that users of the reference use.
OPERATORS = {"__and__", "__or__", "__enter__", "__exit__", "__call__", "__iter__", "__aiter__", "__anext__"}
SHOWN = {"_repr_html_", "_repr_svg_"}
ABSENT = object()


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in SHOWN | OPERATORS


def modules(reference: ModuleType) -> list[str]:
    """Dotted names of the public modules below the package."""
    modules = pkgutil.walk_packages(reference.__path__, f"{reference.__name__}.")
    names = [module.name.partition(".")[2] for module in modules]
    return sorted(name for name in names if name.partition(".")[0] not in INTERNAL)


def is_foreign(name: str, value: Any, reference: ModuleType) -> bool:
    """Whether another package defines it: its own module has it by this name."""
    home = getattr(value, "__module__", None)
    if inspect.ismodule(value) or name == "TYPE_CHECKING":
        return True
    if not isinstance(home, str) or home.partition(".")[0] in (reference.__name__, "builtins"):
        return False  # compiled classes are of `builtins`
    return getattr(sys.modules.get(home), name, ABSENT) is value


def public_names(module: ModuleType, reference: ModuleType) -> list[str]:
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not is_foreign(name, value, reference)
    ]
    return sorted({*own, *getattr(module, "__all__", ())})


def surface(reference: ModuleType) -> dict[str, Any]:
    """Everything public, by dotted name."""
    things: dict[str, Any] = {}
    for name in ["", *modules(reference)]:
        try:
            module = importlib.import_module(f"{reference.__name__}.{name}".rstrip("."))
        except ImportError:  # needs a package that is not installed
            continue
        for key in public_names(module, reference):
            if hasattr(module, key):
                things[f"{name}.{key}".lstrip(".")] = getattr(module, key)
    return things


def resolve(dotted: str) -> Any:
    module, _, name = dotted.rpartition(".")
    if not module:
        return getattr(frazil, name, ABSENT)
    try:
        return getattr(importlib.import_module(f"frazil.{module}"), name, ABSENT)
    except ImportError:
        return ABSENT


def attribute(owner: Any, name: str) -> Any:
    """A member of a class; one that only instances have is found by the constructor that sets it."""
    value = getattr(owner, name, ABSENT)
    if value is ABSENT and isinstance(owner, type):
        for base in owner.__mro__:
            code = getattr(vars(base).get("__init__"), "__code__", None)
            if name in vars(base).get("__annotations__", {}) or (code and name in code.co_names):
                return None
    return value


def missing_below(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    """Names of the reference from ``name`` downwards that Frazil does not have, or not as a function."""
    is_function = isinstance(theirs, type) or inspect.isroutine(theirs)
    if ours is ABSENT or (is_function and not callable(ours)):
        yield name
    elif isinstance(theirs, type):
        for key, member in vars(theirs).items():
            below = None if isinstance(member, theirs) else member  # a member of an enumeration has none
            if is_public(key):
                yield from missing_below(f"{name}.{key}", below, attribute(ours, key))


def missing(reference: ModuleType) -> list[str]:
    return sorted(
        line
        for name, thing in surface(reference).items()
        if not any(fnmatch.fnmatchcase(name, exception) for exception in EXCEPTIONS)
        for line in missing_below(name, thing, resolve(name))
    )


@pytest.mark.interop
def test_nothing_is_missing() -> None:
    assert missing(pytest.importorskip("icechunk")) == []


@pytest.mark.interop
def test_every_exception_is_one() -> None:
    names = surface(pytest.importorskip("icechunk"))
    for exception in EXCEPTIONS:
        excepted = fnmatch.filter(names, exception)
        assert excepted, f"{exception}: the reference has no such name"
        assert [name for name in excepted if resolve(name) is not ABSENT] == []

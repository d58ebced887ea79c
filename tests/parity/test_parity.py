"""What the public surface of the reference has, Frazil's has as well.

The reference's surface is every name without an underscore in every public module: what ``__all__`` names,
what the module defines, and what it imports from the reference's other modules. What it imports from other
packages does not count. Of compiled classes the type stubs say which methods, properties, parameters and
defaults there are, of the others ``inspect`` does. Each thing has a dotted name:

    Repository                              a class, function or alias
    Repository.create                       a method, property, attribute, enumeration member, nested class
    Repository.create.config                a parameter: not accepted by this name, or not at the same
                                            place, or with another default
    storage.azure_store                     what is only in a submodule

Run as a program, this prints what is missing.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib
import inspect
import pkgutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import frazil

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

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
    "xarray.IcechunkStore": "imported for a check; it is in `store` and at the top",
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
# Every class has these, or they are constructors, which are looked at with the class.
ORDINARY = {
    *("__new__", "__init__", "__repr__", "__str__", "__eq__", "__lt__", "__hash__"),
    *("__class_getitem__", "__getstate__", "__setstate__", "__reduce__"),
}
# Users get these from functions: what their constructors take is nobody's business.
NOT_CONSTRUCTED = {"Repository", "Session", "ForkSession", "IcechunkStore"}
SHOWN = {"_repr_html_", "_repr_svg_"}
ABSENT = object()
NO_DEFAULT = object()
#: A default that is an expression: it is not compared.
SOME_DEFAULT = object()


@dataclass
class Parameter:
    name: str
    position: int | None
    default: Any


@dataclass
class Thing:
    """A class, function, property or constant of the reference."""

    callable: bool
    parameters: list[Parameter] | None = None
    members: dict[str, Thing] = field(default_factory=dict)


def is_public(name: str) -> bool:
    if name.startswith("__"):
        return name.endswith("__") and name not in ORDINARY
    return not name.startswith("_") or name in SHOWN


# ------------------------------------------------------------------------- the reference, from stubs


def literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return SOME_DEFAULT


def stub_parameters(node: ast.FunctionDef | ast.AsyncFunctionDef, bound: bool) -> list[Parameter]:
    arguments = node.args
    positional = arguments.posonlyargs + arguments.args
    defaults: list[Any] = [NO_DEFAULT] * (len(positional) - len(arguments.defaults))
    defaults += map(literal, arguments.defaults)
    named = [
        Parameter(a.arg, i - bound, d) for i, (a, d) in enumerate(zip(positional, defaults, strict=True))
    ]
    only = [
        Parameter(a.arg, None, NO_DEFAULT if d is None else literal(d))
        for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    first = len(arguments.posonlyargs)
    return [p for p in named[bound:] if p.position is None or p.position + bound >= first] + only


def stub_class(node: ast.ClassDef) -> Thing:
    thing = Thing(callable=True)
    for item in node.body:
        if isinstance(item, ast.ClassDef):
            thing.members[item.name] = stub_class(item)
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            thing.members[item.target.id] = Thing(callable=False)
        elif isinstance(item, ast.Assign):
            thing.members |= {t.id: Thing(callable=False) for t in item.targets if isinstance(t, ast.Name)}
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(d) for d in item.decorator_list}
            if item.name in ("__new__", "__init__"):
                thing.parameters = stub_parameters(item, bound=True)
            elif "property" in decorators or any(d.endswith(".setter") for d in decorators):
                thing.members[item.name] = Thing(callable=False)
            else:
                parameters = stub_parameters(item, bound="staticmethod" not in decorators)
                thing.members[item.name] = Thing(callable=True, parameters=parameters)
    thing.members = {name: member for name, member in thing.members.items() if is_public(name)}
    return thing


def stubs(reference: ModuleType) -> dict[str, Thing]:
    path = Path(str(reference.__file__)).parent / "_icechunk_python.pyi"
    tree = ast.parse(path.read_text())
    return {node.name: stub_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


# ----------------------------------------------------------------------- the reference, from inspect


def parameters_of(callable_: Any, bound: bool) -> list[Parameter] | None:
    try:
        signature = inspect.signature(callable_)
    except (ValueError, TypeError):
        return None
    named = [
        Parameter(
            p.name,
            None if p.kind is p.KEYWORD_ONLY else i - bound,
            NO_DEFAULT if p.default is p.empty else p.default,
        )
        for i, p in enumerate(signature.parameters.values())
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    return named[bound:]


def live_class(cls: type, stub_classes: dict[str, Thing]) -> Thing:
    thing = Thing(callable=True)
    if "__init__" in vars(cls) and cls.__name__ not in NOT_CONSTRUCTED:
        thing.parameters = parameters_of(vars(cls)["__init__"], bound=True)
    for name, value in vars(cls).items():
        if not is_public(name) or (name.startswith("__") and not callable(value)):
            continue
        if isinstance(value, type):
            thing.members[name] = live_class(value, stub_classes)
        elif isinstance(value, staticmethod):
            thing.members[name] = Thing(callable=True, parameters=parameters_of(value.__func__, bound=False))
        elif isinstance(value, classmethod):
            thing.members[name] = Thing(callable=True, parameters=parameters_of(value.__func__, bound=True))
        elif inspect.isfunction(value):
            thing.members[name] = Thing(callable=True, parameters=parameters_of(value, bound=True))
        else:
            thing.members[name] = Thing(callable=False)
    return thing


def live(value: Any, stub_classes: dict[str, Thing]) -> Thing:
    if isinstance(value, type):
        name = value.__name__
        return stub_classes[name] if name in stub_classes else live_class(value, stub_classes)
    if inspect.isroutine(value):
        return Thing(callable=True, parameters=parameters_of(value, bound=False))
    return Thing(callable=False)


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


def surface(reference: ModuleType) -> dict[str, Thing]:
    """Everything public, by dotted name; of the submodules only what is not at the top as well."""
    stub_classes = stubs(reference)
    things = {
        name: live(getattr(reference, name), stub_classes) for name in public_names(reference, reference)
    }
    for name in modules(reference):
        try:
            module = importlib.import_module(f"{reference.__name__}.{name}")
        except ImportError:  # needs a package that is not installed
            continue
        names = [key for key in public_names(module, reference) if hasattr(module, key)]
        own = {key: live(getattr(module, key), stub_classes) for key in names}
        things |= {
            f"{name}.{key}": thing if key not in things else Thing(False) for key, thing in own.items()
        }
    return things


# --------------------------------------------------------------------------------------------- ours


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


def missing_below(name: str, thing: Thing, ours: Any) -> Iterator[str]:
    absent = ours is ABSENT or (thing.callable and not callable(ours))
    if absent:
        yield name
    yield from missing_parameters(name, thing, ABSENT if absent else ours)
    for key, member in thing.members.items():
        yield from missing_below(f"{name}.{key}", member, ABSENT if absent else attribute(ours, key))


def missing_parameters(name: str, thing: Thing, ours: Any) -> Iterator[str]:
    accepted: dict[str, inspect.Parameter] = {}
    order: list[str] = []
    if ours is not ABSENT and thing.parameters:
        try:
            accepted = dict(inspect.signature(ours).parameters)
        except (ValueError, TypeError):
            return
        order = [p.name for p in accepted.values() if p.kind is not p.KEYWORD_ONLY]
        if order and order[0] in ("self", "cls"):
            order = order[1:]
        if any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
            return
    for parameter in thing.parameters or ():
        mine = accepted.get(parameter.name)
        at = parameter.position
        moved = at is not None and order[at : at + 1] != [parameter.name]
        if mine is None or moved or not same_default(parameter.default, mine):
            yield f"{name}.{parameter.name}"


def same_default(theirs: Any, mine: inspect.Parameter) -> bool:
    if theirs is NO_DEFAULT:  # ours may have one
        return True
    if mine.default is mine.empty:
        return False
    simple = theirs is None or isinstance(theirs, bool | int | float | str | tuple)
    return bool(mine.default == theirs) if simple else True


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


@pytest.mark.interop
def test_the_walk_sees_what_it_should() -> None:
    things = surface(pytest.importorskip("icechunk"))
    config = things["RepositoryConfig"]
    assert config.parameters is not None
    assert config.parameters[0] == Parameter("inline_chunk_threshold_bytes", 0, None)
    assert config.members["merge"].callable
    assert not config.members["caching"].callable
    assert set(things["ChunkType"].members) >= {"native", "virtual", "inline"}
    assert things["S3Credentials"].members["Static"].parameters
    assert things["Repository"].members["create"].parameters
    assert things["credentials.s3_static_credentials"]
    assert things["storage.azure_store"].parameters
    assert {"supported_spec_versions", "config.ManifestSplitValues", "config.from_dict"} <= set(things)
    assert {"session.Diff", "testing.trees.trees", "testing.models.Node"} <= set(
        things
    )  # imports, modules below
    assert {"session.Any", "store.Store", "dask.Version", "config.sys", "storage.datetime"} & set(
        things
    ) == set()
    assert len(things) > 120


class Ours:
    """A class that has some of what the test below asks for."""

    def __init__(self, a: int, b: int = 2) -> None:
        self.a = a

    def method(self, x: int, *, y: int = 1) -> None: ...


def test_each_kind_of_difference_is_detected() -> None:
    theirs = Thing(
        callable=True,
        parameters=[Parameter("b", 0, 3), Parameter("a", 1, NO_DEFAULT), Parameter("c", None, None)],
        members={
            "a": Thing(callable=False),
            "gone": Thing(callable=False),
            "method": Thing(callable=True, parameters=[Parameter("x", 0, NO_DEFAULT), Parameter("y", 1, 1)]),
            "missing": Thing(callable=True, parameters=[Parameter("z", 0, NO_DEFAULT)]),
        },
    )
    assert list(missing_below("Ours", theirs, Ours)) == [
        "Ours.b",
        "Ours.a",
        "Ours.c",
        "Ours.gone",
        "Ours.method.y",
        "Ours.missing",
        "Ours.missing.z",
    ]


if __name__ == "__main__":
    print("\n".join(missing(importlib.import_module("icechunk"))) or "nothing is missing")

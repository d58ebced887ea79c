"""The code of the house: private names, words, sizes of functions and rooms, and where errors are."""

from __future__ import annotations

import ast
import builtins
import functools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.house import PATHS, REPOSITORY, nodes_of, parsed, room, statements_in

pytestmark = pytest.mark.xdist_group("house")  # one worker parses each module once

#: Check -> rooms that do not pass it yet. The table only shrinks, and ends empty.
NOT_YET: dict[str, set[str]] = {}


TESTS = REPOSITORY / "tests"


def tree_of(module: str) -> ast.Module:
    return parsed(PATHS[module])


def place(module: str, node: ast.AST) -> str:
    return f"{PATHS[module].relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}"


def new_offences(check: str, offences: list[tuple[str, str]]) -> str:
    """The offences, each with its room, that ``NOT_YET`` does not excuse."""
    return "\n".join(text for name, text in offences if name not in NOT_YET.get(check, ()))


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
        (room(module), f"{place(module, node)}: {name} is private to another room")
        for module in PATHS
        for node, name in foreign_private_names(module, tree_of(module))
    ]
    assert not (text := new_offences("private names", offences)), f"give it an inner seam:\n{text}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(repo):\n return repo._context_elsewhere", ["_context_elsewhere"]),
        ("def f(repo):\n repo._context_elsewhere = 1", []),  # then it is an attribute of this room
        ("class A:\n def f(self):\n  return self._elsewhere", []),
        ("class A:\n def f(self):\n  return super()._elsewhere", []),
        ("class A: ...\nA._elsewhere", []),
        ("from frazil.storage.base import _elsewhere", ["_elsewhere"]),
        ("pair._replace(x=1)", []),
    ],
)
def test_private_names_are_detected(source: str, expected: list[str], monkeypatch) -> None:
    tree = ast.parse(source)
    monkeypatch.setitem(names_of_rooms(), "storage", set(defined_names(tree)))
    assert [name for _, name in foreign_private_names("frazil.storage.base", tree)] == expected


# ---- words ------------------------------------------------------------------------------------------

#: Participles and pronouns that are not names of things: use the noun.
NO_NOUNS = {
    *("told", "said", "there", "here", "kept", "begun"),
    *("found", "known", "made", "looked", "written", "either"),
}
#: Names that others can see, in files, in pickles, or in the public interface -> why they stay.
PUBLIC_NAMES = {
    "stored_bytes_written": "of the results of jobs",
    "frazil.pipeline.Written": "of frazil.pipeline",
    "was_there": "of the report of an import",
    "frazil.pipeline.validation.report.found": "of the findings of a validation",
    "written_at": "of SnapshotInfo, as the reference names it",
    "bytes_written": "of frazil.pipeline.Outcome, in pickles and in the metadata of commits",
    "known_commits": "of frazil.testing.invariants, as the reference names it",
}
#: The last parts of the public names: attributes that tests may read.
PUBLIC_ATTRIBUTES = {name.rpartition(".")[2] for name in PUBLIC_NAMES}


def words_of(name: str) -> list[str]:
    """``KeptBytes`` is ``kept`` and ``bytes``."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")


def identifiers(tree: ast.Module) -> Iterator[tuple[Any, str]]:
    for node in nodes_of(tree):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield node, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node, name
            case ast.keyword(arg=str(name)):
                yield node, name
            case ast.alias(name=target, asname=name):
                yield node, name or target.rpartition(".")[2]


@functools.cache
def is_no_noun(name: str) -> bool:
    if "not_found" in name.lower() or "NotFound" in name or name in PUBLIC_NAMES:
        return False
    return not NO_NOUNS.isdisjoint(words_of(name))


def test_names_are_nouns() -> None:
    offences = [
        (room(module), f"{place(module, node)}: {name}")
        for module in PATHS
        for node, name in identifiers(tree_of(module))
        if is_no_noun(name) and f"{module}.{name}" not in PUBLIC_NAMES
    ]
    offences += [
        (room(module), f"{place(module, tree_of(module))}: the module itself")
        for module in PATHS
        if is_no_noun(module.rpartition(".")[2])
    ]
    assert not (text := new_offences("names", offences)), f"name the thing:\n{text}"


def test_names_in_tests_are_nouns() -> None:
    """Names of tests are sentences: they may have these words."""
    offences = [
        (str(path.relative_to(TESTS).parent), f"{path.relative_to(REPOSITORY)}:{node.lineno}: {name}")
        for path in sorted(TESTS.rglob("*.py"))
        for node, name in identifiers(parsed(path))
        if is_no_noun(name) and not name.startswith("test_")
        if not (isinstance(node, ast.Attribute) and name in PUBLIC_ATTRIBUTES)
    ]
    assert not (text := new_offences("names in tests", offences)), f"name the thing:\n{text}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("found", True),
        ("_KEPT", True),
        ("KeptBytes", True),
        ("is_there", True),
        ("foundation", False),
        ("OBJECT_NOT_FOUND", False),
        ("SnapshotNotFoundError", False),
        ("written_at", False),
    ],
)
def test_participles_are_detected(name: str, expected: bool) -> None:
    assert is_no_noun(name) == expected


# ---- sizes ------------------------------------------------------------------------------------------

#: Lines of a function's body, without its docstring.
LONGEST_BODY = 60
#: Parameters of a function's own: `self`, `cls` and options that a `TypedDict` lists do not count.
MOST_PARAMETERS = 7
#: Public functions with more -> why.
MANY_PARAMETERS = {
    **dict.fromkeys(
        (
            *("s3_storage", "s3_object_store_storage", "r2_storage", "tigris_storage", "hf_storage"),
            *("gcs_storage", "azure_storage", "s3_credentials", "gcs_credentials", "s3_store"),
            *(f"StorageClassMethods.new_{each}" for each in ("s3", "tigris", "r2", "hf")),
            *("Sessions.transaction", "Upkeep.garbage_collect", "RepositoryConfig.__init__"),
            *("VirtualReferences.set_virtual_refs_arr", "to_icechunk"),
        ),
        "the parameters are those of the reference",
    ),
    "Comparison.diff_values": "two versions, each by branch, tag or snapshot id, as in `diff`",
    "garbage_collect": "the parameters are those of `Repository.garbage_collect`, and the engine",
}
#: The largest room has at most this part of all lines.
LARGEST_ROOM = 0.25

type Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, Function]]:
    """Every function, with its name; a method with that of its class in front."""
    for node in statements_in(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{above}{node.name}", node
        yield from functions(node, f"{node.name}." if isinstance(node, ast.ClassDef) else "")


def body_lines(function: Function) -> int:
    body = function.body
    if ast.get_docstring(function) is not None:
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def own_parameters(function: Function) -> list[str]:
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def test_functions_are_short() -> None:
    offences = [
        (room(module), f"{place(module, function)}: {name} has {lines} lines")
        for module in PATHS
        for name, function in functions(tree_of(module))
        if (lines := body_lines(function)) > LONGEST_BODY
    ]
    assert not (text := new_offences("length", offences)), f"split it:\n{text}"


def test_functions_have_few_parameters() -> None:
    offences = [
        (room(module), f"{place(module, function)}: {name} has {count} parameters")
        for module in PATHS
        for name, function in functions(tree_of(module))
        if (count := len(own_parameters(function))) > MOST_PARAMETERS and name not in MANY_PARAMETERS
    ]
    assert not (text := new_offences("parameters", offences)), f"pass a value:\n{text}"


def test_functions_with_many_parameters_exist() -> None:
    names = {
        name
        for module in PATHS
        for name, function in functions(tree_of(module))
        if len(own_parameters(function)) > MOST_PARAMETERS
    }
    assert set(MANY_PARAMETERS) <= names


def test_no_room_is_most_of_the_house() -> None:
    lines: Counter[str] = Counter()
    for module, path in PATHS.items():
        lines[room(module).partition(".")[0]] += path.read_bytes().count(b"\n")
    name, largest = lines.most_common(1)[0]
    assert largest <= LARGEST_ROOM * lines.total(), f"{name} has {largest} of {lines.total()} lines"


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
        (room(module), f"{place(module, each)}: {each.name}")
        for module in PATHS
        if room(module) != "errors"
        for each in exception_classes(tree_of(module))
    ]
    assert not (text := new_offences("errors", offences)), f"move it to errors, or return a value:\n{text}"

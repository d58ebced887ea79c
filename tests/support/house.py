"""The modules of the house, and the rooms that they are in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
#: The folders with the packages that import rooms.
SOURCES = (REPOSITORY / "src", REPOSITORY / "importer" / "src")


def is_ours(target: str) -> bool:
    return target.partition(".")[0] == "frazil"


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path, source): path for source in SOURCES for path in sorted(source.rglob("*.py"))}


#: Rooms with inner rooms.
WITH_INNER_ROOMS = ("repository", "pipeline", "spark")


def room(module: str) -> str:
    """The room of a module.

    ``frazil.format.ids`` is in ``format``; ``frazil`` itself is ``__init__``. Of rooms with inner rooms,
    ``frazil.repository.catalog.assets`` is in ``repository.catalog``, ``frazil.repository.clock`` in
    ``repository``, and the public names of ``frazil.repository`` are ``repository.__init__``. An operation
    that is one module, such as ``frazil.pipeline.publishing``, is a room of its own.
    """
    if not is_ours(module):
        return module.partition(".")[0]
    names = [*module.split("."), "__init__"]
    if names[1] not in WITH_INNER_ROOMS:
        return names[1]
    inner = (
        names[2] == "__init__" or names[1] == "pipeline" or PATHS[".".join(names[:3])].name == "__init__.py"
    )
    return ".".join(names[1:3]) if inner else names[1]


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. It is shared: do not change it."""
    return ast.parse(path.read_bytes())


@cache
def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """All nodes of a syntax tree. The list is shared."""
    return list(ast.walk(tree))


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """The statements, handlers and cases directly below a statement. Expressions have none."""
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        below = getattr(node, field, None)
        if isinstance(below, list):
            yield from below

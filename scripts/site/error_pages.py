"""A page for each kind of error: its cause, what to do, its classes, and the code that raises it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parents[2] / "src"
PAGE = re.compile(r"\(docs/([\w-]+)\.md(#[\w-]+)?\)")


class Use(NamedTuple):
    """A function (none: a table) that names a kind, and the class of the error that it makes with it."""

    kind: str
    error: str
    module: Path
    function: str


def error_pages(repo_url: str) -> dict[str, str]:
    """Return the pages by their names in `reference/`: an overview, and `errors/<kind>` for each kind."""
    texts = dict(kinds())
    classes = error_classes()
    uses = defaultdict(list)
    for use in all_uses(classes):
        uses[use.kind].append(use)
    rows = []
    pages = {}
    for name, (kind, text) in sorted(texts.items(), key=lambda item: item[1][0]):
        cause, _, remedy = (text if text.endswith(".") else f"{text}.").partition(". ")
        cause = cause.removesuffix(".")
        rows.append(f"| [`{kind}`](errors/{kind}.md) | {linked(cause, '..')} |")
        parts = [f"# {kind}", f"**Cause:** {linked(cause, '../..')}."]
        if remedy:
            parts.append(f"**What to do:** {linked(remedy, '../..')}")
        errors = sorted({use.error for use in uses[name]} & classes.keys() | defaults(classes, name))
        if errors:
            links = ", ".join(f"[`{error}`][frazil.errors.{error}]" for error in errors)
            parts.append(
                f"**Class:** {links}. [Errors](../../errors.md) says what a program can do with each class."
            )
        places: dict[str, list[str]] = defaultdict(list)
        for module, function in sorted({(use.module.as_posix(), use.function) for use in uses[name]}):
            places[module] += [f"`{function}`"] if function else []
        if places:
            parts.append("**Code that raises or handles it:**")
            items = {module: f"- [`{module}`]({repo_url}/blob/main/src/{module})" for module in places}
            parts.append(
                "\n".join(
                    f"{items[module]}: {', '.join(functions)}".removesuffix(": ")
                    for module, functions in places.items()
                )
            )
        pages[f"errors/{kind}"] = "\n\n".join(parts) + "\n"
    overview = (
        "# Kinds of errors\n\nEvery error of Frazil has a `kind`. The page of a kind says what to do,"
        " and names its classes and its code.\n\n| kind | cause |\n|---|---|\n"
    )
    return {"error-kinds": overview + "\n".join(rows) + "\n", **pages}


def linked(text: str, docs: str) -> str:
    """Return a text whose references to pages of docs/ are links."""
    return PAGE.sub(
        lambda match: f"([{match[1].replace('-', ' ')}]({docs}/{match[1]}.md{match[2] or ''}))", text
    )


def kinds() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the name of each member of `ErrorKind`, with its value and the text below it."""
    module = ast.parse((SOURCES / "frazil" / "error_kinds.py").read_text())
    body = next(node for node in module.body if isinstance(node, ast.ClassDef)).body
    for member, text in pairwise(body):
        match member, text:
            case (
                ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(kind))),
                ast.Expr(value=ast.Constant(str(words))),
            ):
                yield name, (kind, " ".join(words.split()))


def error_classes() -> dict[str, str]:
    """Return the classes of `frazil.errors`, with the name of the kind that they have by default."""
    module = ast.parse((SOURCES / "frazil" / "errors.py").read_text())
    classes: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            inherited = next((classes[base] for base in bases if base in classes), "")
            own = [
                line.value.attr
                for line in node.body
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Attribute)
            ]
            if own or inherited:
                classes[node.name] = own[0] if own else inherited
    return classes


def defaults(classes: dict[str, str], kind: str) -> set[str]:
    """Return the classes that have a kind by default."""
    return {name for name, default in classes.items() if default == kind}


def all_uses(classes: dict[str, str]) -> Iterator[Use]:
    """Yield where the sources name a kind, or make an error with the kind of its class."""
    for path in sorted((SOURCES / "frazil").rglob("*.py")):
        if path.name not in {"errors.py", "error_kinds.py"}:
            yield from uses_in(ast.parse(path.read_text()), path.relative_to(SOURCES), "", classes)


def uses_in(
    node: ast.AST, module: Path, function: str, classes: dict[str, str], error: str = ""
) -> Iterator[Use]:
    """Yield the uses in a node of a module."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            function = f"{function}.{node.name}".lstrip(".")
        case ast.Attribute(value=ast.Name("ErrorKind"), attr=kind):
            yield Use(kind, error, module, function)
        case ast.Call(func=ast.Name(name) | ast.Attribute(attr=name)) if name in classes:
            error = name
            if not any(isinstance(part, ast.Name) and part.id == "ErrorKind" for part in ast.walk(node)):
                yield Use(classes[name], name, module, function)
    for child in ast.iter_child_nodes(node):
        yield from uses_in(child, module, function, classes, error)

"""Which public names there are, and what their docstrings lack."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
#: The modules that docs/api.md lists. Their `__all__` is the public interface.
PUBLIC_MODULES = re.findall(r"^\| `(frazil[\w.]*)`", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
LONGEST_SUMMARY = 110


@dataclass(frozen=True, slots=True)
class PublicName:
    """A function, or a method of a class, that users call."""

    name: str
    function: Callable[..., object]
    owner: type | None = None
    is_property: bool = False

    @property
    def module(self) -> str:
        return self.function.__module__

    @property
    def doc(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")


def public_names() -> list[PublicName]:
    """Each public function and method once. A method has the name of the public class that defines it."""
    names: dict[int, PublicName] = {}
    for module_name in PUBLIC_MODULES:
        for name in _names_of(importlib.import_module(module_name)):
            earlier = names.get(id(name.function))
            if earlier is None or (_defines(name) and not _defines(earlier)):
                names[id(name.function)] = name
    return sorted(names.values(), key=lambda name: (name.module, name.name))


def _defines(name: PublicName) -> bool:
    return name.owner is not None and name.function.__qualname__ == ".".join(name.name.split(".")[-2:])


def _names_of(module: ModuleType) -> Iterator[PublicName]:
    listed = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for name in listed:
        value = getattr(module, name)
        if inspect.isfunction(value) and _is_ours(value):
            yield PublicName(f"{module.__name__}.{name}", value)
        elif inspect.isclass(value) and _is_ours(value):
            yield from _methods_of(value, f"{module.__name__}.{name}")


def _methods_of(owner: type, name: str) -> Iterator[PublicName]:
    if issubclass(owner, (BaseException, enum.Enum)):
        return
    for base in reversed([base for base in owner.__mro__ if _is_ours(base)]):
        for attribute, value in vars(base).items():
            function = _function_of(value)
            if attribute.startswith("_") or function is None or not _is_ours(function):
                continue
            if getattr(function, "__override__", False) or getattr(value, "__override__", False):
                continue  # the method that it overrides has the docstring
            yield PublicName(f"{name}.{attribute}", function, owner, isinstance(value, property))


def _function_of(value: object) -> Callable[..., object] | None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    return value if inspect.isfunction(value) else None


def _is_ours(value: object) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "frazil"


def gaps_of(public: PublicName) -> list[str]:
    """What the docstring of one public name lacks."""
    doc = public.doc
    if not doc:
        return ["no docstring"]
    gaps = []
    summary = doc.split("\n\n")[0]
    if "\n" in summary or len(summary) > LONGEST_SUMMARY or not summary.endswith("."):
        gaps.append("the first line is not one sentence on one line")
    if _is_twin(public) or public.is_property:
        return gaps
    signature = inspect.signature(public.function)
    arguments = [
        name for name in signature.parameters if name not in ("self", "cls") and not name.startswith("_")
    ]
    described = _section(doc, "Args")
    gaps += [
        f"no argument {name}"
        for name in arguments
        if not re.search(rf"^\s+\**{name}\b.*:", described, re.MULTILINE)
    ]
    order = [name for name in re.findall(r"^    \**(\w+)\b.*:", described, re.MULTILINE) if name in arguments]
    if order != [name for name in arguments if name in order]:
        gaps.append("arguments are in another order")
    returns = signature.return_annotation not in (None, "None", "NoReturn", inspect.Signature.empty)
    if returns and not re.search(r"^(Returns|Yields):$", doc, re.MULTILINE):
        gaps.append("no Returns:")
    if ">>>" not in doc and not _example_in_class(public):
        gaps.append("no example")
    return gaps


def _is_twin(public: PublicName) -> bool:
    return public.name.endswith("_async") or ".async_" in public.name


def _example_in_class(public: PublicName) -> bool:
    """Whether the example of the class calls the method."""
    if public.owner is None:
        return False
    method = public.name.rsplit(".", 1)[1]
    return any(">>>" in line and f".{method}(" in line for line in (public.owner.__doc__ or "").splitlines())


def _section(doc: str, title: str) -> str:
    match = re.search(rf"^{title}:\n((?:[ \t]+.*\n?|\n)*)", doc, re.MULTILINE)
    return match[1] if match else ""

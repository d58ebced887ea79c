"""Public names of packages that are imported on demand, by PEP 562.

The stub of a package, ``__init__.pyi``, declares its public names once, for type checkers and for
`import_on_demand`, which reads the stub and imports nothing. A module of public names has a stub too. The
first use of a name imports its module, and stores the value in the package. The submodules of a package are
names of the package too.

Python binds a submodule to its package when it loads the submodule. This hides a name of the stub that the
submodule also has: `frazil.pipeline.ingest` is a function, and a package with the module of the function.
Therefore `import_on_demand` loads such a submodule first, and removes its name.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from frazil.extras import installed, needs

#: Package -> its public names -> the module and the name there. An empty name means the module itself.
TABLES: Final[dict[str, dict[str, tuple[str, str]]]] = {}
_PUNCTUATION: Final = str.maketrans("(),", "   ")


def import_on_demand(
    package: str, *, extra: str | None = None, needed: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Make a package import the public names of its stub on first use. Return its ``__all__``.

    ``extra`` installs all packages that the names need. By default, the error for a missing package names the
    extra of this package. ``__all__`` has no names of built-ins: ``import *`` replaces no function of Python.
    It has no names of another distribution that is not installed, nor of a module whose package, in
    ``needed``, is not. Their use raises the error.
    """
    namespace = vars(sys.modules[package])
    names = TABLES[package] = _names_of_stub(package, namespace)
    packages = {name: needed.get(module, module.partition(".")[0]) for name, (module, _) in names.items()}
    present = {each for each in set(packages.values()) if installed(each)}
    listed = {name for name, each in packages.items() if each in present}

    def __getattr__(name: str) -> Any:  # noqa: N807  # of the package
        module, attribute = names.get(name) or (f"{package}.{name}", "")
        if name not in names and not _exists(module):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs(f"{package}.{name}", extra=extra):
            value = importlib.import_module(module)
            if attribute:
                value = getattr(value, attribute)
        namespace[name] = value  # later uses do not call this function
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*namespace, *listed})

    for name, (module, _) in names.items():
        if module.startswith(f"{package}.{name}."):
            importlib.import_module(f"{package}.{name}")
            namespace.pop(name, None)
    namespace.update(__getattr__=__getattr__, __dir__=__dir__)
    return sorted(name for name in listed if not hasattr(builtins, name))


class ModuleOnDemand:
    """A module that is imported when one of its names is used, because most runs use none.

    Type checkers need the import, in ``if TYPE_CHECKING:``; the assignment is in the ``else``.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a look at the object, as doctest does, is no use of the module
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


# Several modules have asynchronous methods, which most processes do not call.
if TYPE_CHECKING:
    import asyncio as asyncio
else:
    asyncio = ModuleOnDemand("asyncio")


def _names_of_stub(package: str, namespace: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the imports of the stub of a package. The loader reads it, so that it may be in an archive."""
    stub = namespace["__file__"].rpartition(".")[0] + ".pyi"
    text = namespace["__spec__"].loader.get_data(stub).decode()
    names: dict[str, tuple[str, str]] = {}
    for statement in f"\n{text}".translate(_PUNCTUATION).split("\nfrom ")[1:]:
        module, _, *aliases = statement.split()
        if aliases == ["*"]:
            importlib.import_module(module)
            names.update((name, (module, name)) for name in TABLES[module])
            continue
        for name, public_name in zip(aliases[::3], aliases[2::3], strict=True):
            names[public_name] = (f"{package}.{name}", "") if module == package else (module, name)
    return names


def _exists(submodule: str) -> bool:
    """Return whether a package has a submodule. Private names are none: tools ask for many."""
    package, _, name = submodule.rpartition(".")
    is_package = "__path__" in vars(sys.modules[package])
    return is_package and not name.startswith("_") and importlib.util.find_spec(submodule) is not None

"""Names of packages that are imported when a program uses them, by PEP 562.

A package has a table from its public names to the modules that define them. Its import runs none of these
modules:

    if TYPE_CHECKING:
        from frazil.errors import ErrorKind

    import_on_demand(__name__, {"ErrorKind": "frazil.errors"})

The import below ``TYPE_CHECKING`` is for type checkers and editors. A test compares it with the table and
with ``__all__``. The first use of a name imports its module, and stores the value in the package. So later
uses cost the same as of any other name. The submodules of a package are names of the package too.

Python binds a submodule to its package when it loads the submodule. This hides a name of the table that the
submodule also has: `frazil.pipeline.ingest` is a function, and a package with the module of the function.
Therefore `import_on_demand` loads such a submodule first, and removes its name. Python does not bind it
again.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from typing import Any, Final

from frazil.extras import needs

#: Package -> the table of its public names.
TABLES: Final[dict[str, Mapping[str, str]]] = {}


def import_on_demand(package: str, names: Mapping[str, str], *, extra: str | None = None) -> None:
    """Make a package import its public names on first use."""
    namespace = vars(sys.modules[package])
    TABLES[package] = names

    def __getattr__(name: str) -> Any:  # noqa: N807  # of the package
        source, submodule = names.get(name), f"{package}.{name}"
        if source is None and not _exists(submodule):
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs(f"{package}.{name}", extra=extra):
            value = value_of(_with_name(source or submodule, name, submodule))
        namespace[name] = value  # later uses do not call this function
        return value

    def __dir__() -> list[str]:  # noqa: N807
        return sorted({*namespace, *names})

    for name, source in names.items():
        if source.startswith(f"{package}.{name}."):
            importlib.import_module(f"{package}.{name}")
            namespace.pop(name, None)
    namespace.update(__getattr__=__getattr__, __dir__=__dir__)


class ModuleOnDemand:
    """A module that is imported when one of its names is used.

    It is for modules of which a program uses nothing in most runs. Type checkers need the import:

        if TYPE_CHECKING:
            import asyncio
        else:
            asyncio = ModuleOnDemand("asyncio")
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


def value_of(source: str) -> Any:
    """Import a module, and return it or one of its names."""
    module_name, _, name = source.partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, name) if name else module


def _with_name(source: str, name: str, submodule: str) -> str:
    """Return an entry of a table as ``"module:name"``. The name of a submodule stands for the submodule."""
    return source if ":" in source or source == submodule else f"{source}:{name}"


def _exists(submodule: str) -> bool:
    """Return whether a package has a submodule. Private names are none: tools ask for many."""
    name = submodule.rpartition(".")[2]
    return not name.startswith("_") and importlib.util.find_spec(submodule) is not None

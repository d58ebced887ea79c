"""The installation of Frazil as ``icechunk``, for libraries that were written for the reference.

    import frazil.compat

    frazil.compat.install_as_icechunk()
    import icechunk  # this is Frazil

The module ``icechunk`` has the version of the reference whose interface Frazil implements. All its other
names are those of ``frazil``, and ``icechunk.session is frazil.session``. Classes and functions keep their
names below ``frazil``, so every process with Frazil can load pickled objects. Names that begin with an
underscore are left out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, Final, override

import frazil
from frazil.errors import SessionStateError

__all__ = ["INTERFACE_VERSION", "install_as_icechunk", "uninstall_as_icechunk"]

#: The release of the reference whose interface Frazil implements. Libraries parse it, so it has only numbers
#: and points.
INTERFACE_VERSION: Final = "2.3.0"

_NAME: Final = "icechunk"

#: The public modules of the reference. ``testing`` has submodules.
_MODULES: Final = frozenset(
    (
        *("config", "conflicts", "credentials", "dask", "distributed", "ops", "repository", "session"),
        *("snapshots", "storage", "store", "testing", "types", "virtual", "xarray"),
    )
)


class _Icechunk(ModuleType):
    """The module ``icechunk``, which is Frazil with another name and version."""

    def __init__(self) -> None:
        super().__init__(_NAME, frazil.__doc__)
        self.__version__ = INTERFACE_VERSION
        self.__file__ = frazil.__file__
        self.__path__: list[str] = []  # no submodule of an installed icechunk is found
        self.__all__ = list(frazil.__all__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(frazil, name)

    def __dir__(self) -> list[str]:
        return sorted({*vars(frazil), *vars(self)})

    def __repr__(self) -> str:
        return f"<module '{_NAME}' {INTERFACE_VERSION}, given by Frazil {frazil.__version__}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (install_as_icechunk, ())


class _Distribution(metadata.Distribution):
    """The metadata of ``icechunk`` for ``importlib.metadata``: its version and summary."""

    @override
    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return (
            f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: {INTERFACE_VERSION}\n"
            f"Summary: Given by Frazil {frazil.__version__}\n"
        )

    @override
    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"Frazil is installed as {_NAME}, which has no files, got {path}")


class _Finder(MetaPathFinder, Loader):
    """The finder of ``icechunk`` and its submodules. It comes before ``sys.path``."""

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, below = fullname.partition(".")
        is_public = top == _NAME and below.partition(".")[0] in _MODULES and "._" not in below
        if fullname != _NAME and not is_public:
            return None
        return spec_from_loader(fullname, self, is_package=fullname == _NAME)

    @override
    def exec_module(self, module: ModuleType) -> None:
        # The import system returns the module in sys.modules: Frazil's own module, with its own spec.
        name = module.__name__
        try:
            ours: ModuleType = importlib.import_module(f"frazil{name.removeprefix(_NAME)}")
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("frazil."):
                raise  # a missing package, such as dask for icechunk.dask
            raise ModuleNotFoundError(f"{name} is not in Frazil {frazil.__version__}", name=name) from error
        sys.modules[name] = ours

    def find_distributions(self, context: Any = None) -> list[metadata.Distribution]:
        """Return the metadata of ``icechunk``, for ``importlib.metadata``."""
        asked = getattr(context, "name", None)
        return [_Distribution()] if asked in (None, _NAME) else []


def _installed() -> tuple[ModuleType | None, list[_Finder]]:
    module = sys.modules.get(_NAME)
    return module, [finder for finder in sys.meta_path if isinstance(finder, _Finder)]


def install_as_icechunk() -> ModuleType:
    """Make later imports of ``icechunk`` and its submodules import Frazil.

    Call this function before any import of icechunk: at the top of a program, of ``conftest.py``, or in the
    workers of a cluster. A second call changes nothing. Afterwards, ``icechunk.__version__`` and
    ``importlib.metadata.version("icechunk")`` are ``INTERFACE_VERSION``. ``frazil.__version__`` stays.

    Returns:
        The module ``icechunk``.

    Raises:
        SessionStateError: The published icechunk was imported before (``not-allowed``). The importing module
            has classes that do not fit Frazil's objects.

    Examples:
        >>> module = install_as_icechunk()
        >>> import icechunk
        >>> icechunk.Repository is frazil.Repository
        True
        >>> uninstall_as_icechunk()
    """
    module, finders = _installed()
    if module is not None and not isinstance(module, _Icechunk):
        raise SessionStateError(
            f"icechunk {getattr(module, '__version__', '')} is already imported from "
            f"{getattr(module, '__file__', None)}. Call install_as_icechunk() earlier, before any import of "
            "a library that uses icechunk"
        )
    if module is None:
        module = _Icechunk()
        finder = _Finder()
        module.__spec__ = spec_from_loader(_NAME, finder, is_package=True)
        module.__loader__ = finder
        sys.modules[_NAME] = module
        sys.meta_path[:] = [finder, *(each for each in sys.meta_path if each not in finders)]
    return module


def uninstall_as_icechunk() -> None:
    """Undo ``install_as_icechunk``, for tests.

    Modules that have imported icechunk before keep Frazil's objects.

    Examples:
        >>> module = install_as_icechunk()
        >>> uninstall_as_icechunk()
        >>> "icechunk" in sys.modules
        False
    """
    module, finders = _installed()
    if isinstance(module, _Icechunk):
        for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
            del sys.modules[name]
    sys.meta_path[:] = [each for each in sys.meta_path if each not in finders]

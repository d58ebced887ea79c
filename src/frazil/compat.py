"""Answer for ``icechunk``: libraries written for the reference run over Frazil, unchanged.

    import frazil.compat

    frazil.compat.install_as_icechunk()
    import icechunk  # this is Frazil

The module ``icechunk`` is one of its own, because it has another version than Frazil: that of the reference's
release whose interface Frazil has. Everything else in it is what ``frazil`` has, and its submodules *are*
Frazil's: ``icechunk.session is frazil.session``. Classes and functions keep their names below ``frazil``, so
what is pickled here is read by any process that has Frazil, installed as icechunk or not. What travels with a
reference to the module itself (cloudpickle sends those with functions) installs it where it arrives.

Names that begin with an underscore are nobody's interface, and are not here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from email.message import Message
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, Final

import frazil
from frazil.errors import ErrorKind, SessionStateError

__all__ = ["INTERFACE_VERSION", "install_as_icechunk", "uninstall_as_icechunk"]

#: The release of the reference whose interface Frazil has. Libraries compare it, as a number with points in
#: it: so it is nothing more than that.
INTERFACE_VERSION: Final = "2.3.0"

_NAME: Final = "icechunk"

#: The reference's public modules. ``testing`` has modules below it.
_MODULES: Final = frozenset(
    (
        *("config", "conflicts", "credentials", "dask", "distributed", "ops", "repository", "session"),
        *("snapshots", "storage", "store", "testing", "types", "virtual", "xarray"),
    )
)


class _Icechunk(ModuleType):
    """The module ``icechunk``: Frazil, under another name and version."""

    def __init__(self) -> None:
        super().__init__(_NAME, frazil.__doc__)
        self.__version__ = INTERFACE_VERSION
        self.__file__ = frazil.__file__
        self.__path__: list[str] = []  # nothing of an installed icechunk is found below it
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
    """What ``importlib.metadata`` says of ``icechunk``: its version, and who gives it."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        headers = Message()
        headers["Metadata-Version"] = "2.1"
        headers["Name"] = _NAME
        headers["Version"] = INTERFACE_VERSION
        headers["Summary"] = f"Given by Frazil {frazil.__version__}"
        return str(headers)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{_NAME} is given by Frazil: it has no files, found a question for {path}")


class _Finder(MetaPathFinder, Loader):
    """Finds ``icechunk`` and its submodules, before anything on ``sys.path``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _NAME and not _is_public(fullname):
            return None
        return spec_from_loader(fullname, self, is_package=fullname == _NAME)

    def exec_module(self, module: ModuleType) -> None:
        # The import system takes what is in sys.modules now: Frazil's own module, with its own spec.
        name = module.__name__
        try:
            ours: ModuleType = importlib.import_module(f"frazil{name.removeprefix(_NAME)}")
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("frazil."):
                raise  # such as dask, for icechunk.dask
            raise ModuleNotFoundError(f"{name} is not in Frazil {frazil.__version__}", name=name) from error
        sys.modules[name] = ours

    def find_distributions(self, context: Any = None) -> list[metadata.Distribution]:
        asked = getattr(context, "name", None)
        return [_Distribution()] if asked in (None, _NAME) else []


def _is_public(fullname: str) -> bool:
    top, _, below = fullname.partition(".")
    return top == _NAME and below.partition(".")[0] in _MODULES and "._" not in below


def _installed() -> tuple[ModuleType | None, list[_Finder]]:
    module = sys.modules.get(_NAME)
    return module, [finder for finder in sys.meta_path if isinstance(finder, _Finder)]


def install_as_icechunk() -> ModuleType:
    """Make later ``import icechunk``, and imports of its submodules, give Frazil; the module ``icechunk``.

    Call it before anything imports icechunk: at the top of a program, of ``conftest.py``, or in the workers
    of a cluster. Doing it again changes nothing. ``icechunk.__version__`` and
    ``importlib.metadata.version("icechunk")`` are ``INTERFACE_VERSION`` then; ``frazil.__version__`` is what
    it was.

    Raises ``SessionStateError`` (``not-allowed``) if the published icechunk was imported before: who did it
    holds classes that Frazil's objects are not of.
    """
    module, finders = _installed()
    if module is not None and not isinstance(module, _Icechunk):
        raise SessionStateError(
            f"expected that nothing has imported icechunk yet, found icechunk "
            f"{getattr(module, '__version__', '')} of {getattr(module, '__file__', None)}: call "
            "install_as_icechunk() earlier, before the libraries that use it are imported",
            ErrorKind.NOT_ALLOWED,
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
    """Take back ``install_as_icechunk``, for tests. What was imported until then stays what it is."""
    module, finders = _installed()
    if isinstance(module, _Icechunk):
        for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
            del sys.modules[name]
    sys.meta_path[:] = [each for each in sys.meta_path if each not in finders]

"""Names of packages that are imported on demand: the stubs, and what an import loads."""

from __future__ import annotations

import builtins
import importlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.house import PATHS
from tests.support.program_runner import WARNINGS

import frazil
import frazil.pipeline
from frazil.lazy_names import TABLES, ModuleOnDemand

#: Packages and modules whose public names are imported on demand.
PACKAGES = sorted(
    module for module, path in PATHS.items() if "\n__all__ = import_on_demand(" in path.read_text()
)


# ---- stubs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", [each for each in PACKAGES if not each.startswith("frazil.spark")])
def test_each_name_is_the_object_of_its_module(package: str) -> None:
    module = importlib.import_module(package)
    assert TABLES[package]
    for name, (source, attribute) in TABLES[package].items():
        value = importlib.import_module(source)
        assert getattr(module, name) is (getattr(value, attribute) if attribute else value)


@pytest.mark.parametrize("package", PACKAGES)
def test_star_imports_have_all_names_but_those_of_built_ins(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) == set(TABLES[package]) - set(dir(builtins))
    assert set(TABLES[package]) <= set(dir(module))
    # Only a submodule that contains the name itself may have its name.
    hidden = {name for name in TABLES[package] if f"{package}.{name}" in PATHS}
    assert all((TABLES[package][name][0] + ".").startswith(f"{package}.{name}.") for name in hidden)
    # A list ``__all__`` without values in a stub hides all of its names from ``import *`` of type checkers.
    stub = PATHS[package].with_suffix(".pyi").read_text()
    for source in re.findall(r"^from (\S+) import \*$", stub, re.MULTILINE):
        assert "__all__" not in PATHS[source].with_suffix(".pyi").read_text()


def test_other_names_are_errors() -> None:
    for name in ("nothing", "_private", "__wrapped__"):
        with pytest.raises(AttributeError, match=rf"^module 'frazil' has no attribute '{name}'$"):
            getattr(frazil, name)
    with pytest.raises(ImportError, match="cannot import name 'nothing' from 'frazil'"):
        exec("from frazil import nothing")


def test_the_module_of_a_name_is_imported_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "package_of_a_test").mkdir()
    stub = "from frazil.errors import (\n    ErrorKind as Kind,\n)\nfrom frazil import errors as errors\n"
    (tmp_path / "package_of_a_test" / "__init__.pyi").write_text(stub)
    (tmp_path / "package_of_a_test" / "__init__.py").write_text(
        "from frazil.lazy_names import import_on_demand\n__all__ = import_on_demand(__name__)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("package_of_a_test")
    calls, load = [], importlib.import_module

    def noted(name: str) -> Any:
        calls.append(name)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", noted)
    assert package.__all__ == ["Kind", "errors"]
    assert package.Kind is package.Kind is frazil.errors.ErrorKind
    assert calls == ["frazil.errors"]
    assert package.errors is frazil.errors
    del sys.modules["package_of_a_test"], TABLES["package_of_a_test"]


def test_a_module_on_demand_is_imported_by_its_first_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    module = ModuleOnDemand("this")
    assert "this" not in sys.modules
    assert module.d["n"] == "a"
    assert "this" in sys.modules


# ---- imports ----------------------------------------------------------------------------------------

#: Packages of others that take long to import.
SLOW = frozenset(
    (
        *("asyncio", "cftime", "cloudpickle", "dask", "datasketches", "email", "fsspec", "h5py"),
        *(
            "importlib.metadata",
            "netCDF4",
            "numpy",
            "obstore",
            "pandas",
            "pyarrow",
            "pyspark",
            "re2",
            "sqlite3",
        ),
        *("ssl", "urllib3", "xarray", "yaml", "zarr"),
    )
)
#: Module -> the slow packages that its import may load. An import of any other slow package is a mistake.
ALLOWED: dict[str, frozenset[str]] = {
    "frazil": frozenset(),
    "frazil.pipeline": frozenset(),
    "frazil.spark": frozenset(),
    "frazil.cli.main": frozenset(),
    # History and upkeep of a repository in local files
    "frazil.storage.local": frozenset(("numpy",)),
    "frazil.handle.repository": frozenset(("numpy",)),
    "frazil.handle.history": frozenset(("numpy",)),
    "frazil.handle.upkeep": frozenset(("numpy",)),
    "frazil.maintenance.collection": frozenset(("numpy",)),
    "frazil.spark.data_source": SLOW
    - {"cftime", "dask", "datasketches", "h5py", "netCDF4", "pandas", "urllib3", "xarray"},
}


_PROGRAM = f"""
import importlib, sys
slow = {sorted(SLOW)!r}
for module, allowed in {[(module, sorted(allowed)) for module, allowed in ALLOWED.items()]!r}:
    importlib.import_module(module)
    print(module, *sorted(set(slow) & set(sys.modules) - set(allowed)))
    if module == "frazil.spark":
        print(*sorted(each for each in sys.modules if each.partition(".")[0] == "frazil"))
import frazil.pipeline.ingest.operation  # Python binds submodules to their packages
print(frazil.pipeline.ingest.__name__, frazil.spark.ingest.__name__, "ingest" in dir(frazil.pipeline))
"""


def test_processes_load_no_other_slow_package() -> None:
    """Not even through packages of others. Each import follows those before it, and each may load more."""
    run = subprocess.run([sys.executable, *WARNINGS, "-c", _PROGRAM], capture_output=True, text=True)
    assert run.stderr == ""
    modules = "frazil frazil.about frazil.error_kinds frazil.errors frazil.extras frazil.lazy_names"
    more = "frazil.pipeline frazil.pipeline.ingest frazil.remedies frazil.spark"
    lines = ["frazil", "frazil.pipeline", "frazil.spark", f"{modules} {more}"]
    lines += [*list(ALLOWED)[3:], "ingest ingest True"]
    assert run.stdout.splitlines() == lines

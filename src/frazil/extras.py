"""The extras of Frazil that install optional packages, and the errors and warnings without a package.

    with needs("frazil.dask", extra="xarray"):
        import dask

A package that is broken or too old is not a missing extra: its errors are not converted.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from frazil.about import PACKAGE_FOLDER
from frazil.errors import IcechunkError, MissingExtraError, UnreadableArrayWarning

#: The smallest extra of ``pyproject.toml`` that installs a package, by its name in an import. Users install a
#: package without an extra themselves.
EXTRA_OF: Final[Mapping[str, str]] = {
    **dict.fromkeys(("xarray", "dask"), "xarray"),
    **dict.fromkeys(("cftime", "cloudpickle", "datasketches", "h5py", "netCDF4"), "pipeline"),
    **dict.fromkeys(("pandas", "pyarrow", "xarray_regrid"), "pipeline"),
    **dict.fromkeys(("cfgrib", "eccodes", "gribberish"), "grib"),
    **dict.fromkeys(("duckdb", "sqlglot"), "arrow"),
    "rasterio": "geotiff",
    "cf_units": "units",
    "cubed": "cubed",
    "pyspark": "spark",
    "pysail": "sail",
    "virtualizarr": "virtualizarr",
    **dict.fromkeys(("grpc", "grpc_status", "google", "google.rpc"), "connect"),
    "opentelemetry": "telemetry",
    "openlineage": "lineage",
    "anywidget": "widget",
    "pystac": "stac",
    "frazil_import": "import",
    **dict.fromkeys(("jax", "ml_dtypes", "torch"), ""),
}

#: Extra -> the folder of the checkout with its distribution, where it is one of Frazil's own.
_FOLDERS: Final = {"import": "importer"}
#: Extra -> the extras that it contains.
_CONTAINED: Final = {
    "pipeline": ("xarray",),
    "grib": ("pipeline",),
    "geotiff": ("pipeline",),
    "units": ("pipeline",),
    "virtualizarr": ("pipeline",),
    "cubed": ("pipeline",),
    "spark": ("pipeline",),
    "connect": ("spark",),
}


@contextmanager
def needs(feature: str, *, extra: str | None = None) -> Iterator[None]:
    """Convert import errors in a block to ``MissingExtraError`` (``missing-extra``).

    ``feature`` is the name that the user knows. ``extra`` is an extra that installs all packages of the
    block; by default it is the extra of the missing package. Packages that are not in ``EXTRA_OF`` raise the
    error of the import. An import of numcodecs that fails raises ``ImportError`` with what to do.
    """
    try:
        yield
    except ImportError as error:
        package = _not_installed(error)
        if package is None or package not in EXTRA_OF:
            raise
        if isinstance(error, MissingExtraError) and extra is not None and not _installs(extra, error.extra):
            raise  # it names a part that needs a larger extra
        raise missing(feature, package, extra) from error
    except ValueError as error:
        if _fails_to_import("numcodecs", error):
            raise ImportError(
                f"{feature} needs numcodecs, but its import fails: {error}. If zfpy or another package of "
                "codecs is installed, uninstall it or install another version of it"
            ) from error
        raise


def _fails_to_import(package: str, error: Exception) -> bool:
    """Return whether an error is from a module of a package that Python could not import."""
    trace, module = error.__traceback__, ""
    while trace is not None:
        module, trace = str(trace.tb_frame.f_globals.get("__name__")), trace.tb_next
    return module.partition(".")[0] == package and package not in sys.modules


def _installs(extra: str, other: str | None) -> bool:
    """Return whether an extra installs the packages of another one."""
    return other == extra or any(_installs(each, other) for each in _CONTAINED.get(extra, ()))


def installed(package: str) -> bool:
    """Return whether a package is installed. This does not import the package."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a finder that refuses it; a module without a specification
        return sys.modules.get(package) is not None


def _not_installed(error: ImportError) -> str | None:
    """Return the missing package. The error of another package can have the import error as its cause."""
    for each in (error, error.__cause__):
        if isinstance(each, ModuleNotFoundError) and each.name is not None:
            if each.name in EXTRA_OF:
                return each.name
            # If the package is installed, only a module of it is missing: the version is wrong.
            package = each.name.partition(".")[0]
            return None if installed(package) else package
    return None


def missing_codec(codec: str) -> MissingExtraError | None:
    """Return the error for a Zarr codec whose package is not installed, or None.

    The package of an extra has the name of the codec.
    """
    if codec not in EXTRA_OF or installed(codec):
        return None
    return missing(f"the codec {codec}", codec)


def missing(feature: str, package: str, extra: str | None = None) -> MissingExtraError:
    """Return the error for a feature whose package is not installed."""
    extra = extra or EXTRA_OF[package] or None
    install = install_command(extra) if extra else f"pip install {package}"
    return MissingExtraError(f"{feature} needs {package}: {install}", name=package, extra=extra)


def install_command(extra: str) -> str:
    """Return the command that installs an extra from the origin of Frazil: a checkout, a URL or the index."""
    try:
        # The import takes 10 ms, and only errors and help texts need it.
        metadata = importlib.import_module("importlib.metadata")
        source = json.loads(metadata.distribution("frazil").read_text("direct_url.json") or "{}")
    except ModuleNotFoundError:  # the source folder is on the path, without an installation
        source = {}
    url, folder, own = source.get("url", ""), source.get("dir_info"), _FOLDERS.get(extra)
    if folder is not None:
        path = unquote(url.removeprefix("file://"))
        if Path(path).is_dir():
            part = f"/{own}" if own else f"[{extra}]"
            return f'pip install {"-e " if folder.get("editable") else ""}"{path}{part}"'
        url = ""  # the checkout is gone
    name = f"frazil[{extra}]"
    if vcs := source.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs.get('requested_revision') or vcs['commit_id']}"
        if own:
            name, url = f"frazil-{extra}", f"{url}#subdirectory={own}"
    return f'pip install "{name}{url and f" @ {url}"}"'


def warn_of_unreadable(path: str, error: IcechunkError) -> None:
    """Warn that an array is left out, because of the error of its metadata."""
    name = "" if f"`{path}`" in str(error) else f"`{path}`: "
    warnings.warn(f"left out: {name}{error}", UnreadableArrayWarning, skip_file_prefixes=(PACKAGE_FOLDER,))

"""Which extra of Frazil installs a package, and the error of one that is not installed.

    with needs("frazil.dask", extra="xarray"):
        import dask

The imports in the block are for ``frazil.dask``. If a package of an extra is not installed, the error is one
`MissingExtraError`. Everything else that an import raises stays as it is: a package that is installed and
broken, or too old, is no missing extra.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from frazil.errors import MissingExtraError

#: Name of a package in an import -> the smallest extra of ``pyproject.toml`` that installs it.
EXTRA_OF: Final[Mapping[str, str]] = {
    "xarray": "xarray",
    "dask": "xarray",
    "cftime": "pipeline",
    "cloudpickle": "pipeline",
    "datasketches": "pipeline",
    "h5py": "pipeline",
    "netCDF4": "pipeline",
    "pandas": "pipeline",
    "pyarrow": "pipeline",
    "xarray_regrid": "pipeline",
    "cfgrib": "grib",
    "eccodes": "grib",
    "gribberish": "grib",
    "rasterio": "geotiff",
    "pyspark": "spark",
    "grpc": "connect",
    "grpc_status": "connect",
    "google": "connect",
    "google.rpc": "connect",
    "opentelemetry": "telemetry",
}


@contextmanager
def needs(feature: str, *, extra: str | None = None) -> Iterator[None]:
    """Imports in this context are for ``feature``, which is how the user calls it.

    ``extra`` is the extra that has all of them; None takes that of the package which is not installed.
    Raises ``MissingExtraError`` (``missing-extra``) for a package of ``EXTRA_OF`` that is not installed.

    >>> with needs("frazil.spark.get_spark"):
    ...     raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
    Traceback (most recent call last):
    frazil.errors.MissingExtraError: frazil.spark.get_spark needs pyspark: pip install "frazil[spark]"
    """
    try:
        yield
    except ImportError as error:
        package = _not_installed(error)
        if package is None or package not in EXTRA_OF:
            raise
        raise missing(feature, package, extra) from error


def installed(package: str) -> bool:
    """Return whether a package can be imported here, as far as can be told without an import of it.

    >>> installed("numpy"), installed("a_package_of_nobody")
    (True, False)
    """
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a finder that refuses it; a module without a specification
        return sys.modules.get(package) is not None


def _not_installed(error: ImportError) -> str | None:
    """Return the package that is not there, also where its user has raised an error of its own for that."""
    for each in (error, error.__cause__):
        if isinstance(each, ModuleNotFoundError) and each.name is not None:
            if each.name in EXTRA_OF:
                return each.name
            # A module of a package that is there is missing in another version of it.
            package = each.name.partition(".")[0]
            return None if installed(package) else package
    return None


def missing_codec(codec: str) -> MissingExtraError | None:
    """Return the error of a Zarr codec whose package (of the same name) is of an extra and not installed.

    >>> missing_codec("a_codec_of_nobody") is None
    True
    """
    if codec not in EXTRA_OF or installed(codec):
        return None
    return missing(f"the codec {codec}", codec)


def missing(feature: str, package: str, extra: str | None = None) -> MissingExtraError:
    """Return the error of a ``feature`` whose ``package`` is not installed; one line.

    >>> print(missing("the format grib", "cfgrib"))
    the format grib needs cfgrib: pip install "frazil[grib]"
    """
    text = f'{feature} needs {package}: pip install "frazil[{extra or EXTRA_OF[package]}]"'
    return MissingExtraError(text, name=package)

"""The table of formats, and the reader of a file: its first bytes decide, never its name.

The module of a reader is imported when its format is used, so that nobody needs the libraries of the others.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, MissingExtraError
from frazil.extras import needs
from frazil.readers.file_errors import damaged
from frazil.readers.files import File, find_file, local_path, object_storage
from frazil.readers.reader import Reader

HDF5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"


class ReaderClass(Protocol):
    """The class of a reader; ``option_names`` are the names of the options that it takes."""

    @property
    def option_names(self) -> tuple[str, ...]: ...

    def __call__(self, source: Any, /, group: str, **options: Any) -> Reader: ...


@dataclass(frozen=True, slots=True)
class Format:
    """One format of files.

    magic        the bytes that a file of this format begins with, one of these; none for directories
    module       the module of its reader in `frazil.readers`
    reader       the class of its reader
    libraries    what the module imports of other people's packages
    extra        the extra of Frazil that installs them; None if the package itself does
    """

    magic: tuple[bytes, ...]
    module: str
    reader: str
    libraries: tuple[str, ...]
    extra: str | None

    def load(self) -> ReaderClass:
        """Import the module, and return the class of its reader.

        Raises ``MissingExtraError`` if a library is not installed, and ``InvalidInputError``
        (``unimplemented``) if it is installed and its import fails.
        """
        try:
            with needs(f"the reader of {self.module} files", extra=self.extra):
                module = importlib.import_module(f"frazil.readers.{self.module}")
        except MissingExtraError:
            raise
        except Exception as error:  # a library that is installed and broken may raise anything
            raise InvalidInputError(
                f"expected {' and '.join(self.libraries)} to read this format, and its import failed with "
                f"{type(error).__name__}: {error}",
                ErrorKind.UNIMPLEMENTED,
            ) from error
        reader: ReaderClass = getattr(module, self.reader)
        return reader


_TIFF: Final = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_CDF: Final = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
#: Name of a format, which its reader has as ``format`` -> magic, module, class, libraries, extra.
FORMATS: Final = {
    "hdf5": Format((HDF5_SIGNATURE,), "hdf5", "Hdf5Reader", ("h5py",), "pipeline"),
    "netcdf3": Format(_CDF, "netcdf3", "NetCdf3Reader", (), None),
    "grib": Format((b"GRIB",), "grib", "GribReader", ("cfgrib", "eccodes"), "grib"),
    "geotiff": Format(_TIFF, "geotiff", "GeoTiffReader", ("rasterio",), "geotiff"),
    "zarr": Format((), "zarr", "ZarrReader", ("zarr", "xarray"), "xarray"),
}
#: Other names that users know a format by.
ALIASES: Final = {
    "netcdf4": "hdf5",
    "h5netcdf": "hdf5",
    "h5": "hdf5",
    "grib2": "grib",
    "grib1": "grib",
    "tiff": "geotiff",
    "cog": "geotiff",
    "zarr2": "zarr",
    "zarr3": "zarr",
}
#: What makes a directory, or a prefix of a bucket, a group or an array of Zarr.
_ZARR_DOCUMENTS: Final = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def open_source(
    url: str,
    format: str | None = None,
    *,
    group: str = "/",
    storage_options: dict[str, Any] | None = None,
    **options: Any,
) -> Reader:
    """Open a file (a path or URL) with the reader of its format.

    ``format`` is one of `FORMATS` or `ALIASES`; None finds it out. ``options`` are for the reader
    of that format. Raises ``FormatError`` (``invalid-file-format``) that names the file if no reader knows
    it or it is damaged, ``StorageError`` if it cannot be read, ``MissingExtraError`` if the library for it is
    not installed, and ``InvalidInputError`` (``unimplemented``) if that library cannot be imported.
    """
    name = require_format(format)
    file = None if name == "zarr" else _file(url, name, storage_options)
    if file is None:
        reader = FORMATS["zarr"].load()
        make = partial(reader, url, group=group, storage_options=storage_options)
    else:
        reader = FORMATS[name or sniff(file)].load()
        make = partial(reader, file, group=group)
    names = reader.option_names
    if unknown := sorted(options.keys() - set(names)):
        raise InvalidInputError(
            f"{url}: expected options of the reader of its format ({', '.join(names) or 'it has none'}), "
            f"found {unknown[0]!r}",
            ErrorKind.INVALID_KEY,
        )
    return make(**options)


def require_format(format: str | None) -> str | None:
    """The name in `FORMATS` of a format. Raises ``InvalidInputError`` (``unimplemented``) for others."""
    name = ALIASES.get(format or "", format)
    if name is not None and name not in FORMATS:
        raise InvalidInputError(
            f"expected a format among {', '.join([*FORMATS, *ALIASES])}, found {format!r}",
            ErrorKind.UNIMPLEMENTED,
        )
    return name


def _file(url: str, name: str | None, storage_options: dict[str, Any] | None) -> File | None:
    """The file; None if the URL is that of a Zarr group. The file is tried first: that is one request."""
    try:
        return find_file(url, storage_options)
    except IcechunkError:
        if name is None and is_zarr(url, storage_options):
            return None
        raise


def is_zarr(url: str, storage_options: dict[str, Any] | None = None) -> bool:
    """Whether there is a group or an array of Zarr at a path or URL."""
    path = local_path(url)
    if path is not None:
        return any(os.path.exists(os.path.join(path, each)) for each in _ZARR_DOCUMENTS)
    storage, key = object_storage(url.rstrip("/"), storage_options)
    inside = f"{key}/" if key else ""
    return any(storage.head(inside + each) is not None for each in _ZARR_DOCUMENTS)


def sniff(file: File) -> str:
    """The format of a file, by its first bytes. Raises ``FormatError`` if it is none of `FORMATS`."""
    head = file.head
    for name, each in FORMATS.items():
        if head.startswith(each.magic):
            return name
    # a user block may come before the signature of HDF5: of 512 bytes, or twice as many, ...
    at = 512
    while at < file.size:
        if file.read(at, min(at + 8, file.size)) == HDF5_SIGNATURE:
            return "hdf5"
        at *= 2
    actual = f"bytes {head[:8]!r}" if head else "an empty file"
    raise damaged(file.url, f"a file that begins as one of {', '.join(FORMATS)}", actual)

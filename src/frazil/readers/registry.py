"""The table of formats, and the choice of the reader of a file by its first bytes, never by its name.

The module of a reader is imported when its format is used, so users need only the libraries of their formats.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, MissingExtraError
from frazil.extras import needs
from frazil.readers.adapters import DatedReader, DatePattern, RenamedReader, TextReader
from frazil.readers.base_reader import Reader
from frazil.readers.files import SourceFile, damaged, decompressed, find_file, local_path, object_storage

HDF5_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Format:
    """One format of files: first bytes (none for directories), reader, and the extra for libraries."""

    magic: tuple[bytes, ...]
    module: str
    reader: str
    libraries: tuple[str, ...]
    extra: str | None


_TIFF: Final = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_CDF: Final = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
#: Name of a format (the ``format`` of its reader) -> magic, module, class, libraries, extra.
FORMATS: Final = {
    "hdf5": Format((HDF5_SIGNATURE,), "hdf5", "Hdf5Reader", ("h5py",), "pipeline"),
    "netcdf3": Format(_CDF, "netcdf3", "NetCdf3Reader", (), None),
    "grib": Format((b"GRIB",), "grib", "GribReader", ("cfgrib", "eccodes"), "grib"),
    "geotiff": Format(_TIFF, "geotiff", "GeoTiffReader", ("rasterio",), "geotiff"),
    "zarr": Format((), "zarr", "ZarrReader", ("zarr", "xarray"), "xarray"),
}
#: Other names of formats.
ALIASES: Final = {
    **dict.fromkeys(("netcdf4", "h5netcdf", "h5"), "hdf5"),
    **dict.fromkeys(("grib2", "grib1"), "grib"),
    **dict.fromkeys(("tiff", "cog"), "geotiff"),
    **dict.fromkeys(("zarr2", "zarr3"), "zarr"),
}
#: The first bytes of a file that a program has compressed as a whole, and that no reader decompresses.
_COMPRESSED: Final = {b"\x1f\x9d": "compress", b"PK\3\4": "zip"}
#: A directory, or a prefix of a bucket, with one of these documents is a group or an array of Zarr.
_ZARR_DOCUMENTS: Final = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def open_source(
    url: str,
    format: str | None = None,
    *,
    group: str = "/",
    storage_options: dict[str, Any] | None = None,
    preprocess: Callable[..., Any] | None = None,
    rename: Mapping[str, str] | None = None,
    dates: Mapping[str, DatePattern] | None = None,
    convert: Mapping[str, str] | None = None,
    texts: Collection[str] = (),
    **options: Any,
) -> Reader:
    """Open a file with the reader of its format.

    ``preprocess`` is a function of its dataset, or of the file. ``rename`` are new names of variables and
    dimensions, ``dates`` new coordinates, and ``convert`` units of variables. Characters along the dimensions
    ``texts`` are texts.
    """
    name = require_format(format)
    function = None if preprocess is None else _module("function", "preprocess", "pipeline")
    changes_file = function is not None and function.takes_paths(preprocess)
    source: Any = url
    arguments = {"group": group, **options}
    if name != "zarr":
        try:
            source = find_file(url, storage_options)  # first, because that is only one request
            source = decompressed(source)
            if function is not None and changes_file:
                source = function.changed_file(source, preprocess)
            name = name or sniff(source)
        except IcechunkError:
            if name is not None or source is not url or not is_zarr(url, storage_options):
                raise
            name = "zarr"
    if source is url:
        arguments["storage_options"] = storage_options
    chosen = FORMATS[name]
    module = _module(chosen.module, f"the reader of {chosen.module} files", chosen.extra, chosen.libraries)
    reader = getattr(module, chosen.reader)
    unknown = sorted(options.keys() - set(reader.option_names))
    if unknown == ["compound"]:
        raise InvalidInputError(
            f"{url}: compound must be skip for all formats but hdf5, and the format of the file is {name}",
            ErrorKind.INVALID_KEY,
        )
    if unknown:
        raise InvalidInputError(
            f"{url}: reader_options must be options of the reader of its format "
            f"({', '.join(reader.option_names) or 'it has none'}), got {unknown[0]!r}",
            ErrorKind.INVALID_KEY,
        )
    opened: Reader = reader(source, **arguments)
    if function is not None and not changes_file:
        opened = function.FunctionReader(opened, preprocess)
    if rename:
        opened = RenamedReader(opened, rename)
    if texts:
        opened = TextReader(opened, texts)
    if dates:
        opened = DatedReader(opened, dates)
    if convert:
        opened = _module("units", "convert", "units").ConvertedReader(opened, convert)
    return opened


def _module(name: str, feature: str, extra: str | None, libraries: tuple[str, ...] = ()) -> ModuleType:
    """Import a module of this room, which needs an extra."""
    try:
        with needs(feature, extra=extra):
            return importlib.import_module(f"frazil.readers.{name}")
    except MissingExtraError:
        raise
    except Exception as error:  # a broken library may raise any error
        raise InvalidInputError(
            f"{feature} needs {' and '.join(libraries) or 'its libraries'}, but the import failed with "
            f"{type(error).__name__}: {error}. Install the library again",
            ErrorKind.UNIMPLEMENTED,
        ) from error


def require_units(convert: Mapping[str, str]) -> None:
    """Raise ``InvalidInputError`` for texts that are no units of UDUNITS."""
    _module("units", "convert", "units").require_units(convert)


@dataclass(frozen=True, slots=True)
class FileAccess:
    """The options that decide how files are opened; see `FileOptions` of an ingest."""

    format: str | None = None
    group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    reader_options: Mapping[str, Any] = field(default_factory=dict)
    preprocess: Callable[..., Any] | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    dates: Mapping[str, DatePattern] = field(default_factory=dict)
    convert: Mapping[str, str] = field(default_factory=dict)
    texts: Collection[str] = ()

    def open(self, url: str) -> Reader:
        """Open a file with the reader of its format."""
        storage_options = None if self.storage_options is None else dict(self.storage_options)
        return open_source(
            url,
            self.format,
            group=self.group,
            storage_options=storage_options,
            preprocess=self.preprocess,
            rename=self.rename,
            dates=self.dates,
            convert=self.convert,
            texts=self.texts,
            **self.reader_options,
        )


def require_format(format: str | None) -> str | None:
    """Return the name of a format in `FORMATS`, or raise ``InvalidInputError`` (``unimplemented``)."""
    name = ALIASES.get(format or "", format)
    if name is not None and name not in FORMATS:
        raise InvalidInputError(
            f"format must be one of {', '.join([*FORMATS, *ALIASES])}, got {format!r}",
            ErrorKind.UNIMPLEMENTED,
        )
    return name


def is_zarr(url: str, storage_options: dict[str, Any] | None = None) -> bool:
    """Return whether there is a group or an array of Zarr at a path or URL."""
    path = local_path(url)
    if path is not None:
        return any(os.path.exists(os.path.join(path, each)) for each in _ZARR_DOCUMENTS)
    storage, key = object_storage(url.rstrip("/"), storage_options)
    inside = f"{key}/" if key else ""
    return any(storage.head(inside + each) is not None for each in _ZARR_DOCUMENTS)


def sniff(file: SourceFile) -> str:
    """Return the format of a file by its first bytes, or raise ``FormatError`` if it is not in `FORMATS`."""
    head = file.head
    for name, each in FORMATS.items():
        if head.startswith(each.magic):
            return name
    # A user block of 512, 1024, 2048, ... bytes may precede the signature of HDF5.
    at = 512
    while at < file.size:
        if file.read(at, min(at + 8, file.size)) == HDF5_SIGNATURE:
            return "hdf5"
        at *= 2
    for magic, program in _COMPRESSED.items():
        if head.startswith(magic):
            raise InvalidInputError(
                f"{file.url}: the file is compressed with {program}. Decompress it, and use the file inside",
                ErrorKind.BAD_SOURCE,
            )
    if head.lstrip()[:1] == b"{" and (b'"refs"' in head or b'".zgroup"' in head or b'/.zarray"' in head):
        raise InvalidInputError(
            f"{file.url}: the file has references of kerchunk. `frazil.pipeline.import_kerchunk` imports "
            "them",
            ErrorKind.BAD_SOURCE,
        )
    actual = f"bytes {head[:8]!r}" if head else "an empty file"
    raise damaged(file.url, f"a file that begins as one of {', '.join(FORMATS)}", actual)

"""References to the messages of a GRIB file. A message is a chunk, which the codec ``gribberish`` decodes.

gribberish decodes the packings below to the same float32 as eccodes (design/031). It does not support rows in
alternating directions, several fields in a message, or spectral coefficients. Variables with these have no
references. Both libraries decode the first message of each packing and grid of a variable. So a version of
gribberish that decodes other values is found when a file is inspected.
"""

from __future__ import annotations

import importlib
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.extras import needs
from frazil.readers.file_errors import damaged
from frazil.readers.grib_messages import Packing, edition, length, packing
from frazil.readers.reader import ChunkReferences, NotVirtual, VariableSchema
from frazil.readers.references import references_to_file

CODEC: Final = "gribberish"
#: Number -> name of the templates of section 5 that both libraries decode to the same values.
PACKINGS: Final = {
    0: "grid_simple",
    2: "grid_complex",
    3: "grid_complex_spatial_differencing",
    40: "grid_jpeg",
    42: "grid_ccsds",
}
#: Indicators of section 6: the message has a bitmap, or none is needed.
_BITMAPS: Final = (0, 255)
#: gribberish 1.9 never returns from a message of this template in which every point is missing.
_JPEG: Final = 40
#: gribberish rounds values of this template differently if they have more bits than `_CCSDS_BITS`.
_CCSDS: Final = 42
_CCSDS_BITS: Final = 24
#: The codec treats variables of these names as coordinates.
_COORDINATES: Final = ("latitude", "longitude")
_SEVERAL: Final = "several fields in one message: the codec gribberish reads the first"


def message_references(
    url: str, path: str, variable: VariableSchema, array: Any
) -> ChunkReferences | NotVirtual:
    """Return references to the messages of ``array``, which is an array on disk of cfgrib.

    ``url`` is the location for the references, ``path`` the present path of the file.
    """
    decode = _decoder()
    rows = [(index, ids[0]) for index, ids in array.field_id_index.items()]
    if any(not isinstance(at, int) for _, at in rows):
        return NotVirtual(_SEVERAL)
    decoded: set[Packing] = set()
    lengths = []
    with open(path, "rb") as stream:
        for index, at in rows:
            head = _bytes(stream, at, 16)
            if edition(head) != 2:
                return NotVirtual("GRIB edition 1: the codec gribberish decodes edition 2")
            size = length(head)
            lengths.append(size)
            coding = packing(stream, at, size)
            if coding is None:
                raise damaged(url, f"sections up to the end of the message at byte {at}", "other lengths")
            if coding in decoded:
                continue
            decoded.add(coding)
            reason = _unsupported(coding) or _other_order(array, at)
            reason = reason or _other_values(decode, _bytes(stream, at, size), array, index, variable)
            if reason is not None:
                return NotVirtual(reason)
    header = len(variable.shape) - array.geo_ndim
    grid_index = np.zeros((len(rows), len(variable.shape)), np.uint32)
    grid_index[:, :header] = np.array([index for index, _ in rows], np.uint32).reshape(len(rows), header)
    name = "values" if variable.name in _COORDINATES else variable.name
    return references_to_file(
        url,
        (1,) * header + variable.shape[header:],
        [{"name": CODEC, "configuration": {"var": name}}],
        variable.dtype,
        np.array(np.nan, variable.dtype)[()],
        grid_index,
        np.array([at for _, at in rows], np.uint64),
        np.array(lengths, np.uint64),
    )


def _decoder() -> Any:
    with needs("a reference to GRIB"):
        return importlib.import_module("gribberish").parse_grib_array


def _bytes(stream: IO[bytes], at: int, size: int) -> bytes:
    stream.seek(at)
    return stream.read(size)


def _unsupported(packing: Packing) -> str | None:
    if packing.fields != 1:
        return _SEVERAL
    if packing.template not in PACKINGS:
        return f"packing template 5.{packing.template}: expected one of {', '.join(PACKINGS.values())}"
    if packing.template == _JPEG and packing.empty:
        return "a field of grid_jpeg without any value: the codec gribberish never returns from it"
    if packing.template == _CCSDS and packing.bits > _CCSDS_BITS:
        return f"grid_ccsds with {packing.bits} bits: gribberish rounds more than 24 bits unlike eccodes"
    if packing.bitmap not in _BITMAPS:
        return f"a bitmap that is not in the message (indicator {packing.bitmap})"
    return None


def _other_order(array: Any, at: int) -> str | None:
    """Return why the codec returns the values of a message in another order; None if it does not."""
    field = array.index.get_field(at)
    return (
        "rows in alternating directions (alternativeRowScanning)"
        if field.get("alternativeRowScanning", 0)
        else None
    )


def _other_values(
    decode: Any, message: bytes, array: Any, index: tuple[int, ...], variable: VariableSchema
) -> str | None:
    """Decode a message with both libraries. Return why the codec cannot be used; None if it can."""
    geography = (slice(None),) * array.geo_ndim
    expected = np.asarray(array[(*(slice(i, i + 1) for i in index), *geography)])
    try:
        values: NDArray[Any] = np.asarray(decode(message, 0, False, False)).astype(variable.dtype)
    except Exception as error:  # the Rust extension may raise any error
        return f"gribberish cannot decode it: {' '.join(str(error).split())}"
    if values.size != expected.size or not np.array_equal(values.ravel(), expected.ravel(), equal_nan=True):
        return "gribberish decodes other values than eccodes"
    return None

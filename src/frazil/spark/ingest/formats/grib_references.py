"""References to the messages of a GRIB file: each is a chunk, which the codec ``gribberish`` decodes.

gribberish decodes to the same float32 as eccodes for the packings below (measured: design/031), but knows nothing of
rows that go back and forth, of several fields in a message, or of spectral coefficients. Such variables are refused.
The first message of each packing of each variable is decoded by both when the file is looked at.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import ErrorKind, InvalidInputError
from frazil.spark.ingest.formats.common import one_location
from frazil.spark.ingest.formats.files import File, damaged
from frazil.spark.ingest.formats.grib_messages import Packing, edition, length, packing
from frazil.spark.ingest.sources import ChunkReferences, NotVirtual, VariableSchema

CODEC: Final = "gribberish"
#: Templates of the data representation that both libraries decode to the same values, by their number.
PACKINGS: Final = {
    0: "grid_simple",
    2: "grid_complex",
    3: "grid_complex_spatial_differencing",
    40: "grid_jpeg",
    41: "grid_png",
    42: "grid_ccsds",
}
#: What a bitmap indicator says: here is one, there is none.
_BITMAPS: Final = (0, 255)
#: The codec takes variables of these names for coordinates.
_COORDINATES: Final = ("latitude", "longitude")


def message_references(file: File, variable: VariableSchema, array: Any) -> ChunkReferences | NotVirtual:
    """References to the messages that cfgrib arranged as ``array``, its array on disk.

    Raises ``InvalidInputError`` (``unimplemented``) without gribberish.
    """
    decode = _decoder()
    places = [(index, ids[0]) for index, ids in array.field_id_index.items()]
    if any(not isinstance(at, int) for _, at in places):
        return NotVirtual("several fields in one message: the codec gribberish reads the first")
    if any(_alternates(array, index) for index, _ in places[:1]):
        return NotVirtual("rows that go back and forth (alternativeRowScanning)")
    known: set[Packing] = set()
    lengths = np.zeros(len(places), np.uint64)
    for row, ((index, at), head) in enumerate(zip(places, _heads(file, places), strict=True)):
        if edition(head) != 2:
            return NotVirtual("GRIB edition 1: the codec gribberish decodes edition 2")
        lengths[row] = length(head)
        message = file.read(at, at + length(head))
        found = packing(message)
        if found is None:
            raise damaged(file.url, f"a message of GRIB edition 2 at byte {at}", "sections of other lengths")
        if (reason := _unsupported(found)) is not None:
            return NotVirtual(reason)
        if found not in known:
            known.add(found)
            if (reason := _differs(decode, message, array, index, variable)) is not None:
                return NotVirtual(reason)
    geography = variable.shape[len(variable.shape) - array.geo_ndim :]
    header = len(variable.shape) - array.geo_ndim
    index_of = np.zeros((len(places), len(variable.shape)), np.uint32)
    for row, (index, _) in enumerate(places):
        index_of[row, :header] = index
    name = "values" if variable.name in _COORDINATES else variable.name
    return one_location(
        file.url,
        (1,) * header + geography,
        [{"name": CODEC, "configuration": {"var": name}}],
        variable.dtype,
        np.array(np.nan, variable.dtype)[()],
        index_of,
        np.array([at for _, at in places], np.uint64),
        lengths,
    )


def _decoder() -> Any:
    try:
        return importlib.import_module("gribberish").parse_grib_array
    except ImportError as error:
        raise InvalidInputError(
            f"expected gribberish, which decodes references to GRIB, found {error}: "
            'pip install "frazil[grib]"',
            ErrorKind.UNIMPLEMENTED,
        ) from error


def _heads(file: File, places: list[tuple[Any, int]]) -> Iterator[bytes]:
    for _, at in places:
        yield file.read(at, min(at + 16, file.size))


def _unsupported(found: Packing) -> str | None:
    if found.fields != 1:
        return f"{found.fields} fields in one message: the codec gribberish reads the first"
    if found.template not in PACKINGS:
        return (
            f"data representation template 5.{found.template}: the codec gribberish is used for "
            f"{', '.join(PACKINGS.values())}"
        )
    if found.bitmap not in _BITMAPS:
        return f"a bitmap that the message does not hold (indicator {found.bitmap})"
    return None


def _alternates(array: Any, index: tuple[int, ...]) -> bool:
    message = array.index.get_field(array.field_id_index[index][0])
    return bool(message.get("alternativeRowScanning", 0))


def _differs(
    decode: Any, message: bytes, array: Any, index: tuple[int, ...], variable: VariableSchema
) -> str | None:
    """Why the codec cannot be used for this message, by decoding it with both libraries."""
    geography = (slice(None),) * array.geo_ndim
    expected = np.asarray(array[(*(slice(i, i + 1) for i in index), *geography)])
    try:
        values: NDArray[Any] = np.asarray(decode(message, 0, False, False)).astype(variable.dtype)
    except Exception as error:  # whatever an extension in Rust raises
        return f"gribberish cannot decode it: {' '.join(str(error).split())}"
    if values.size != expected.size or not np.array_equal(values.ravel(), expected.ravel(), equal_nan=True):
        return "gribberish decodes other values than eccodes"
    return None

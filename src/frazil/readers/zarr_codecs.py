"""Converts the codecs of a Zarr array to codecs of Zarr version 3."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from zarr.abc.codec import ArrayArrayCodec
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from frazil.readers.references import bytes_codec
from frazil.readers.zarr_schema import is_text

_BLOSC_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")


def codecs_of(array: Any) -> list[dict[str, Any]] | str:
    """Return the codecs of an array as codecs of version 3, or the reason why there are none."""
    metadata = array.metadata
    if metadata.zarr_format == 3:
        grid = metadata.to_dict()["chunk_grid"]["name"]
        return list(metadata.to_dict()["codecs"]) if grid == "regular" else f"chunks of a grid {grid!r}"
    dtype = np.dtype(array.dtype)
    before: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    to_bytes = {"name": "vlen-utf8"} if is_text(array) else bytes_codec(dtype)
    if metadata.order == "F" and array.ndim > 1:
        order = list(range(array.ndim))[::-1]
        before.append({"name": "transpose", "configuration": {"order": order}})
    for each in metadata.filters or ():
        config = each.get_config()
        if config["id"] == "vlen-utf8":
            continue
        codec = _codec(config, dtype)
        if isinstance(codec, str):
            return codec
        is_array = issubclass(get_codec_class(codec["name"]), ArrayArrayCodec)
        if is_array and metadata.order == "F" and array.ndim > 1:
            return f"{config['id']} of an array in Fortran order"
        (before if is_array else after).append(codec)
    if metadata.compressor is not None:
        codec = _codec(metadata.compressor.get_config(), dtype)
        if isinstance(codec, str):
            return codec
        after.append(codec)
    return [*before, to_bytes, *after]


def _codec(config: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any] | str:
    """Return a codec of version 2 as a codec of version 3, or the reason why there is none."""
    options = {key: each for key, each in config.items() if key != "id"}
    match config["id"]:
        case "blosc":
            shuffle = options.get("shuffle", 1)
            name = (
                _BLOSC_SHUFFLES[shuffle]
                if shuffle >= 0
                else "bitshuffle"
                if dtype.itemsize == 1
                else "shuffle"
            )
            return {
                "name": "blosc",
                "configuration": {
                    "typesize": max(dtype.itemsize, 1),
                    "cname": options["cname"],
                    "clevel": options["clevel"],
                    "shuffle": name,
                    "blocksize": options.get("blocksize", 0),
                },
            }
        case "gzip":
            return {"name": "gzip", "configuration": {"level": options["level"]}}
        case "zstd":
            settings = {"level": options["level"], "checksum": options.get("checksum", False)}
            return {"name": "zstd", "configuration": settings}
        case name:
            try:
                get_codec_class(f"numcodecs.{name}")
            except UnknownCodecError:
                return f"{name}: no codec in version 3 of Zarr"
            return {"name": f"numcodecs.{name}", "configuration": options}

"""The encoded form of a configuration, which is the same in most versions of ``repo``.

Each commit writes ``repo`` with the configuration, which has many values and rarely changes. So the last
encoded configurations stay in memory, under all their values with their types.
"""

from __future__ import annotations

import marshal
from functools import lru_cache
from typing import Any, Final

from frazil.errors import InvalidMetadataError
from frazil.format import flexbuffer

#: Before this version of ``marshal``, equal values have equal bytes, whatever other references they have.
_WITHOUT_REFERENCES: Final = 2


def encoded_config(config: dict[str, Any]) -> bytes:
    """Return a configuration as a flexbuffer."""
    try:
        return _encoded(marshal.dumps(config, _WITHOUT_REFERENCES))
    except (ValueError, InvalidMetadataError):
        # A value of another type. ``marshal`` stores arrays and numbers of numpy as bytes, which are refused.
        return flexbuffer.dumps(config)


@lru_cache(maxsize=16)
def _encoded(values: bytes) -> bytes:
    return flexbuffer.dumps(marshal.loads(values))

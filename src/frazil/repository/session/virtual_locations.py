"""The normalization of many virtual chunk locations, and the search for their containers."""

from __future__ import annotations

import re
from itertools import compress, repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.chunks.virtual import Container, VirtualSources, normalized

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_./:=,+@~\n-]")


def normalized_locations(
    sources: VirtualSources, locations: list[str], validate: bool
) -> tuple[list[str], NDArray[np.bool_]]:
    """Return the normalized locations, and which of them have a container.

    ``locations`` has no repetitions. Without ``validate``, all of them count as having a container.
    """
    has_container = np.zeros(len(locations), np.bool_)
    for container in sources.containers:
        has_container |= _is_plainly_in(container, locations)
    rest = np.flatnonzero(~has_container).tolist()
    if not rest:
        return locations, has_container
    stored = list(locations)
    others = list(map(normalized, map(locations.__getitem__, rest)))
    for row, location in zip(rest, others, strict=True):
        stored[row] = location
    has_container[rest] = sources.matching(others) if validate else True
    return stored, has_container


def _is_plainly_in(container: Container, locations: list[str]) -> NDArray[np.bool_]:
    """Return which locations are surely normalized and start with the prefix of a container.

    The caller checks the other locations one by one. This function checks millions of locations with a few
    calls. If any location of a file has unusual characters, or a segment that starts with a dot, it returns
    False for all of them.
    """
    prefix = container.url_prefix
    inside = np.zeros(len(locations), np.bool_)
    if "://" not in prefix or not prefix.endswith("/") or prefix != normalized(prefix):
        return inside
    inside[:] = np.fromiter(map(str.startswith, locations, repeat(prefix)), np.bool_, len(locations))
    if container.is_local:
        text = "\n".join(compress(locations, inside.tolist()))
        if "/." in text or _UNUSUAL.search(text):
            inside[:] = False
    return inside

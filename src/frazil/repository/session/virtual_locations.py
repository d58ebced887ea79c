"""The locations of virtual references: normalized, and matched with containers, many at once."""

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
    """Distinct locations as they are stored, and which of them have a container: all, unless ``validate``."""
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
    """Which locations are certainly normalized and start with the prefix of a container. The others need a
    closer look.

    A few calls check millions of locations. Locations of files count only if none of them has unusual
    characters, or a segment that starts with a dot.
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

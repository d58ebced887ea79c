"""The versions of the specification that this library reads and writes."""

from __future__ import annotations

from frazil.repository.catalog.version_info import SpecVersion


def spec_version() -> SpecVersion:
    """Return the version of the format that new repositories get.

    Returns:
        The newest version that this library writes.

    Examples:
        >>> spec_version()
        SpecVersion.v2 (current)
    """
    return SpecVersion.current()


def supported_spec_versions() -> list[SpecVersion]:
    """Return the versions of the format that this library reads and writes.

    Returns:
        The versions, the newest first.

    Examples:
        >>> supported_spec_versions()
        [SpecVersion.v2 (current), SpecVersion.v1]
    """
    return sorted(SpecVersion, key=int, reverse=True)

"""The version of a repository, and the node of it, that an address names: ``LOCATION[@VERSION][:PATH]``.

The engine of xarray, SQL, fsspec and loaders read their addresses with ``open_address``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from os import PathLike, fspath
from typing import Any, Final

from frazil.arguments import checked, wrong_type
from frazil.errors import InvalidInputError
from frazil.format.ids import id_to_text
from frazil.handle.opening import Authorized, HandleOptions, open_current
from frazil.handle.sessions import readonly_session_of
from frazil.repository.catalog.ancestry import version_id
from frazil.repository.session.session import Session
from frazil.repository.settings.config import RepositoryConfig, VirtualChunkContainer
from frazil.repository.target import MAIN, PROTOCOL, Target, parse_target
from frazil.storage.access import environment_access
from frazil.storage.credential_families import AnyCredential
from frazil.storage.profiles import storage_of_location
from frazil.storage.urls import parse_url

#: The variable with the URL prefixes of virtual chunks that may be read, separated by spaces.
VIRTUAL_ACCESS: Final = "FRAZIL_VIRTUAL_ACCESS"


def virtual_access() -> dict[str, AnyCredential] | None:
    """Return the prefixes of virtual chunks that the environment allows, with its credentials; or None."""
    prefixes = os.environ.get(VIRTUAL_ACCESS, "").split()
    return {each: environment_access(each) for each in prefixes} or None


def container_of(prefix: str) -> VirtualChunkContainer:
    """Return the container of virtual chunks for a prefix of URLs."""
    url = parse_url(prefix)
    return VirtualChunkContainer(url.chunk_location.rstrip("/") + "/", url.store_config())


def target_of(address: str | PathLike[str], name: str = "address", *others: str) -> Target:
    """Return the parts of an address: a text, or a path object, which is the folder of a repository.

    The text may begin with ``frazil://``, as for fsspec. Other values are a ``TypeError``, which has the name
    of the argument and the ``others`` that it accepts.
    """
    if isinstance(address, str):
        return parse_target(address.removeprefix(PROTOCOL))
    if isinstance(address, PathLike) and isinstance(location := fspath(address), str):
        return Target(location)
    raise wrong_type(name, address, "str", "PathLike", *others)


@checked
def open_address(
    address: str | PathLike[str],
    *,
    branch: str | None = None,
    tag: str | None = None,
    snapshot_id: str | None = None,
    as_of: datetime | None = None,
    storage_options: Mapping[str, Any] | None = None,
    config: RepositoryConfig | None = None,
    authorize_virtual_chunk_access: Authorized | None = None,
) -> tuple[Session, str]:
    """Open the version of a repository, and the node of it, that an address names.

    Args:
        address: A text ``LOCATION[@VERSION][:PATH]``, or the folder of a repository as a path object. The
            location is a folder, a URL or the name of a profile. A version is a branch, a tag, a part of an
            id or a time, as in the command line.
        branch: Branch to read, if the address has no version. Default: ``main``.
        tag: Tag to read, if the address has no version.
        snapshot_id: Id of the snapshot to read, if the address has no version.
        as_of: A time with a time zone: the newest version of the branch that is not younger.
        storage_options: Options of the storage by name, as in ``storage_from_url``.
        config: Options of this handle.
        authorize_virtual_chunk_access: Containers of virtual chunks to read. Default: those of the variable
            ``FRAZIL_VIRTUAL_ACCESS``.

    Returns:
        A session that reads the version, and the path of the node, which is ``/`` without one.

    Raises:
        InvalidInputError: ``invalid-argument`` for a version in the address and in the arguments.
            ``cannot-parse-url`` for a location that is neither a folder nor a URL.
        RepositoryNotFoundError: There is no repository at the location.

    Examples:
        >>> import frazil, numpy, zarr
        >>> with frazil.Repository.create("ice").transaction("main", message="an array") as store:
        ...     array = zarr.create_array(store, name="air/t", data=numpy.arange(3))
        >>> session, path = frazil.open_address("ice@main:air/t")
        >>> path, frazil.read(session, path).tolist()
        ('/air/t', [0, 1, 2])
    """
    target = target_of(address)
    version = target.version
    if version is not None and (branch, tag, snapshot_id, as_of) != (None,) * 4:
        raise InvalidInputError(
            f"the version must be in the address or in arguments, not in both, got {address!r} "
            f"and {branch or tag or snapshot_id or as_of}"
        )
    access = authorize_virtual_chunk_access
    options = HandleOptions(config, virtual_access() if access is None else access)
    context, info = open_current(storage_of_location(target.location, storage_options), options)
    if version is not None:
        snapshot_id = id_to_text(version_id(info, version))
    elif tag is None and snapshot_id is None:
        branch = branch or MAIN
    session = readonly_session_of(context, info, branch, tag, snapshot_id, as_of)
    return session, target.path or "/"

"""Exports of a version as a virtual dataset of VirtualiZarr: arrays of references, without values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from zarr.core.metadata.v3 import ArrayV3Metadata

from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.jobs.job import Source, Version, takes_versions
from frazil.lazy_names import ModuleOnDemand
from frazil.pipeline.replication.columns import references_of
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session

if TYPE_CHECKING:
    from virtualizarr import manifests
else:
    manifests = ModuleOnDemand("virtualizarr.manifests")


@takes_versions
def virtual_dataset(source: Source, *, group: str = "/") -> xr.Dataset:
    """Return the references of a group as a virtual dataset of VirtualiZarr.

    VirtualiZarr combines such datasets, and writes them as references of other kinds. Native chunks are
    ranges of the chunk files of the repository. The dataset has no values.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to read.
        group: The path of the group. Default: the root group.

    Returns:
        A dataset whose variables are ``ManifestArray``.

    Raises:
        InvalidInputError: An array has native chunks without a URL (``unsupported-array``).
        MissingExtraError: VirtualiZarr is not installed (``missing-extra``).
        NodeNotFoundError: There is no such group.

    Examples:
        >>> import frazil, zarr
        >>> from frazil.pipeline import virtual_dataset
        >>> repo = frazil.Repository.create("ice")
        >>> with repo.transaction("main", message="an array") as store:
        ...     array = zarr.create_array(
        ...         store, name="t", shape=(4,), chunks=(2,), dtype="i4", dimension_names=["x"]
        ...     )
        ...     array[:] = 7
        >>> virtual = virtual_dataset(repo)
        >>> type(virtual["t"].data).__name__, dict(virtual.sizes)
        ('ManifestArray', {'x': 4})
    """
    session, path = Version.of(source).session(), absolute(group)
    workspace = session.workspace
    with needs("frazil.pipeline.virtual_dataset"):
        manifest_group = manifests.ManifestGroup
    paths = (f"{path.rstrip('/')}/{name}" for name in workspace.children(path))
    arrays = {
        each.rpartition("/")[2]: _manifest_array(session, each) for each in paths if workspace.is_array(each)
    }
    attrs = json.loads(workspace.require_node(path).user_data).get("attributes", {})
    dataset: xr.Dataset = manifest_group(arrays, attributes=attrs).to_virtual_dataset()
    return dataset


def _manifest_array(session: Session, path: str) -> manifests.ManifestArray:
    document = json.loads(session.workspace.require_node(path).user_data)
    chunk_grid = document["chunk_grid"]
    if chunk_grid["name"] != "regular":
        raise InvalidInputError(
            f"`{path}` must have a regular chunk grid, got {chunk_grid['name']!r}",
            ErrorKind.UNSUPPORTED_ARRAY,
        )
    steps = chunk_grid["configuration"]["chunk_shape"]
    grid = tuple(-(-n // step) for n, step in zip(document["shape"], steps, strict=True))
    references = references_of(session, path)
    positions = references.positions(grid)
    urls = np.array([*references.urls, "__inlined__"], np.dtypes.StringDType())  # source -1: inline

    def cells(values: NDArray[Any]) -> Any:
        array = np.zeros(grid, values.dtype)
        array.reshape(-1)[positions] = values
        return array

    coordinates = map(tuple, references.index[references.inline_rows()].tolist())
    manifest = manifests.ChunkManifest.from_arrays(
        paths=cells(urls[references.source]),
        offsets=cells(references.offset),
        lengths=cells(references.length),
        validate_paths=False,
        inlined=dict(zip(coordinates, references.inline, strict=True)),
    )
    return manifests.ManifestArray(ArrayV3Metadata.from_dict(document), manifest)

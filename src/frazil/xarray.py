"""xarray's door: write datasets to a session, in parallel where their arrays are dask's.

xarray decides what is written where: it encodes the variables, makes or resizes the arrays, writes what is in
memory, and collects the dask arrays, each with the zarr array and the region that it belongs to.
``frazil.dask`` writes those.

To read, give xarray the store: ``xarray.open_zarr(session.store, consolidated=False)``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, MutableMapping
from typing import Any, Final, Literal

import xarray as xr
from xarray.backends.common import ArrayWriter
from xarray.backends.writers import dump_to_store
from xarray.backends.zarr import ZarrStore

from frazil.arguments import wrong_type
from frazil.dask import store_dask
from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.session import Session

Mode = Literal["w", "w-", "a", "a-", "r+", "r"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None

#: Modes that leave what is there in its place.
_APPENDING: Final[tuple[Mode, ...]] = ("a", "a-")
_IN_PLACE: Final[tuple[Mode, ...]] = ("a", "a-", "r+")
_WRITING: Final[tuple[Mode, ...]] = ("w", "w-", *_IN_PLACE)


def to_icechunk(
    obj: xr.DataArray | xr.Dataset,
    session: Session,
    *,
    group: str | None = None,
    mode: Mode | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region = None,
    encoding: Mapping[Any, Any] | None = None,
    chunkmanager_store_kwargs: MutableMapping[Any, Any] | None = None,
    split_every: int | None = None,
) -> None:
    """Write an xarray object to a group of a writable session, or of a fork. Commit is up to the caller.

    ``mode``, ``append_dim``, ``region``, ``encoding``, ``safe_chunks`` and ``align_chunks`` mean what they
    mean for ``xarray.Dataset.to_zarr``; the mode is ``a`` with ``append_dim``, ``r+`` with ``region``, and
    else ``w-``: nothing may be there yet. ``chunkmanager_store_kwargs`` go to ``dask.compute``, such as
    ``scheduler``. ``split_every`` is how many forks are merged at a time (8 if not given).

    Raises what ``to_zarr`` raises; ``InvalidInputError`` (a ``ValueError``) for a mode that does not go with
    ``append_dim`` or ``region``, and for an empty name; ``ReadOnlyError``; and ``SessionStateError``
    (``merge-failed``) where dask chunks that were not checked (``safe_chunks=False``) share a zarr chunk.

    >>> import frazil, numpy, xarray
    >>> from frazil.xarray import to_icechunk
    >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    >>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(4))}), session)
    >>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(2))}), session, append_dim="x")
    >>> xarray.open_zarr(session.store, consolidated=False)["t"].values.tolist()
    [0, 1, 2, 3, 0, 1]
    """
    if not isinstance(session, Session):
        raise wrong_type("session", session, "Session")
    session.require_writable()
    dataset = _dataset(obj)
    target = ZarrStore.open_group(
        session.store,
        mode=_mode(mode, append_dim, region),
        group=group,
        zarr_format=3,
        consolidated=False,
        consolidate_on_close=False,
        append_dim=append_dim,
        write_region=region,
        safe_chunks=safe_chunks,
        align_chunks=align_chunks,
    )
    # These two are not public, and there is no other way to the region that "auto" means.
    dataset = target._validate_and_autodetect_region(dataset)
    target._validate_encoding(encoding or {})
    writer = ArrayWriter()  # type: ignore[no-untyped-call]  # parts of xarray have no types
    dump_to_store(dataset, target, writer, encoding=dict(encoding or {}))  # type: ignore[no-untyped-call]
    if writer.sources:
        store_dask(
            sources=writer.sources,
            targets=writer.targets,
            regions=writer.regions,
            split_every=split_every,
            **(chunkmanager_store_kwargs or {}),
        )


def _mode(mode: Mode | None, append_dim: Hashable | None, region: Region) -> Mode:
    """Checked before anything is opened: the mode ``w`` deletes what is there."""
    mode = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    may_write = _WRITING if region is None else _IN_PLACE
    allowed = may_write if append_dim is None else _APPENDING
    if mode not in allowed:
        raise InvalidInputError(
            f"expected one of the modes {', '.join(allowed)} with append_dim={append_dim!r} and "
            f"region={region!r}, found {mode!r}",
            ErrorKind.NOT_ALLOWED,
        )
    return mode


def _dataset(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    dataset = _named(obj)
    for name, variable in dataset.variables.items():
        if not isinstance(name, str | None):
            raise TypeError(f"expected names of variables that are text, found {name!r}")
        if name == "":
            raise InvalidInputError("expected names of variables that are not empty", ErrorKind.INVALID_PATH)
        if not variable.size:
            variable.load()  # zarr has no chunks of no elements, dask has
    return dataset


def _named(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    if isinstance(obj, xr.Dataset):
        return obj.copy()
    if not isinstance(obj, xr.DataArray):
        raise TypeError(f"expected an xarray Dataset or DataArray, found {type(obj).__name__}")
    if obj.name is not None and obj.name not in obj.coords and obj.name not in obj.dims:
        return obj.to_dataset()
    # The names that xarray gives, and takes away again when it opens it as a DataArray.
    dataset = obj.to_dataset(name="__xarray_dataarray_variable__")
    return dataset if obj.name is None else dataset.assign_attrs(__xarray_dataarray_name__=obj.name)

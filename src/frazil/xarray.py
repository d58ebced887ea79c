"""xarray's door: write datasets to a session, in parallel where their arrays are dask's.

xarray decides what is written where: it encodes the variables, makes or resizes the arrays, writes what is in
memory, and collects the dask arrays, each with the zarr array and the region that it belongs to.
``frazil.dask`` writes those.

To read, give xarray the store: ``xarray.open_zarr(session.store, consolidated=False)``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, MutableMapping
from typing import Any, Literal

import xarray as xr
from xarray.backends.common import ArrayWriter
from xarray.backends.writers import dump_to_store
from xarray.backends.zarr import ZarrStore

from frazil.dask import store_dask
from frazil.repository.session import Session

Mode = Literal["w", "w-", "a", "a-", "r+", "r"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None


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

    Raises what ``to_zarr`` raises, ``ReadOnlyError``, and ``SessionStateError`` (``merge-failed``) where dask
    chunks that were not checked (``safe_chunks=False``) overlap in a zarr chunk.

    >>> import frazil, numpy, xarray
    >>> from frazil.xarray import to_icechunk
    >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    >>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(4))}), session)
    >>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(2))}), session, append_dim="x")
    >>> xarray.open_zarr(session.store, consolidated=False)["t"].values.tolist()
    [0, 1, 2, 3, 0, 1]
    """
    session.require_writable()
    dataset = _dataset(obj)
    target = ZarrStore.open_group(
        session.store,
        mode=mode or ("a" if append_dim is not None else "r+" if region is not None else "w-"),
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


def _dataset(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    if isinstance(obj, xr.Dataset):
        return obj
    if not isinstance(obj, xr.DataArray):
        raise TypeError(f"expected an xarray Dataset or DataArray, found {type(obj).__name__}")
    if obj.name is None or obj.name in obj.coords or obj.name in obj.dims:
        # The name that xarray gives it, and takes away when it opens it as a DataArray.
        return obj.to_dataset(name="__xarray_dataarray_variable__")
    return obj.to_dataset()

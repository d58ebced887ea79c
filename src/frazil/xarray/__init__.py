"""Write xarray datasets to a session, in parallel where their arrays are dask arrays.

xarray decides what is written where: it encodes the variables, creates or resizes the arrays, writes what is
in memory, and collects the dask arrays, each with the zarr array and the region that it belongs to.
``frazil.dask`` writes those. Before that, ``agreement`` compares the dataset with the group that it goes to.

To read, give xarray the store: ``xarray.open_zarr(session.store, consolidated=False)``.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.repository.session.session import Session

with needs("frazil.xarray", extra="xarray"):
    import xarray as xr

    from frazil.dask import store_dask
    from frazil.xarray.agreement import CHECKS, Check, Writing, require_agreement
    from frazil.xarray.stored_arrays import StoredGroup
    from frazil.xarray.xarray_internals import ArrayWriter, ZarrStore, dump_to_store

__all__ = ["CHECKS", "ZarrWriteModes", "to_icechunk"]

ZarrWriteModes = Literal["w", "w-", "a", "a-", "r+", "r"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None

#: Modes that leave what is there in its place.
_APPENDING: Final[tuple[ZarrWriteModes, ...]] = ("a", "a-")
_IN_PLACE: Final[tuple[ZarrWriteModes, ...]] = ("a", "a-", "r+")
_WRITING: Final[tuple[ZarrWriteModes, ...]] = ("w", "w-", *_IN_PLACE)


def to_icechunk(
    obj: xr.DataArray | xr.Dataset | xr.DataTree,
    session: Session,
    *,
    group: str | None = None,
    mode: ZarrWriteModes | None = None,
    safe_chunks: bool = True,
    align_chunks: bool = False,
    append_dim: Hashable | None = None,
    region: Region = None,
    encoding: Mapping[Any, Any] | None = None,
    chunkmanager_store_kwargs: MutableMapping[Any, Any] | None = None,
    split_every: int | None = None,
    accept: Collection[Check] = (),
) -> None:
    """Write an xarray object to a group of a writable session, or of a fork. Commit is up to the caller.

    ``mode``, ``append_dim``, ``region``, ``encoding``, ``safe_chunks`` and ``align_chunks`` mean what they
    mean for ``xarray.Dataset.to_zarr``; the mode is ``a`` with ``append_dim``, ``r+`` with ``region``, and
    else ``w-``: nothing may be there yet. ``chunkmanager_store_kwargs`` go to ``dask.compute``, such as
    ``scheduler``. ``split_every`` is how many forks are merged at a time (8 if not given). The groups of a
    ``DataTree`` are written one by one, without ``append_dim`` and ``region``; its ``encoding`` maps paths of
    groups to encodings.

    With ``append_dim``, ``region`` and the mode ``a``, xarray writes in the encoding and under the attributes
    that are stored. So the dataset is compared with the group first. If they do not agree, an error says why,
    and nothing is written. ``accept`` has the names of checks to leave out, of ``CHECKS``:

    ============== =====================================================================================
    ``variables``  the dimensions are the same; ``append_dim`` needs all variables along it, and no others
    ``attributes`` units, calendar, standard_name and other attributes that give values a meaning are equal
    ``packing``    the dataset was not read from a file with another scale_factor or add_offset
    ``static``     variables without ``append_dim``, and the labels of a region, are equal
    ``order``      labels along ``append_dim`` are new, and go on in the order of those that are stored
    ``values``     the arrays can hold the values: times in their units, numbers in their type and packing
    ============== =====================================================================================

    Values of dask arrays are checked as they are computed. The session changes after all of them are written.

    Raises what ``to_zarr`` raises; ``InvalidInputError`` (a ``ValueError``) of the kind ``data-mismatch`` if
    the dataset does not agree with the group, and of other kinds for a mode that does not go with
    ``append_dim`` or ``region``, an empty name and an unknown check; ``ReadOnlyError``; and
    ``SessionStateError`` (``merge-failed``) where dask chunks that were not checked (``safe_chunks=False``)
    share a zarr chunk.

    >>> import frazil, numpy, xarray
    >>> from frazil.xarray import to_icechunk
    >>> session = frazil.Repository.create(frazil.in_memory_storage()).writable_session("main")
    >>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(4))}), session)
    >>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(2))}), session, append_dim="x")
    >>> xarray.open_zarr(session.store, consolidated=False)["t"].values.tolist()
    [0, 1, 2, 3, 0, 1]
    >>> to_icechunk(xarray.Dataset({"t": ("x", [0.5])}), session, append_dim="x")
    Traceback (most recent call last):
        ...
    frazil.errors.InvalidInputError: `t`: expected values that the stored array (int64) can hold, found 0.5...
    """
    if not isinstance(session, Session):
        raise wrong_type("session", session, "Session")
    session.require_writable()
    mode = _mode(mode, append_dim, region)
    options = _Options(
        mode, safe_chunks, align_chunks, append_dim, region, _accepted(accept),
        chunkmanager_store_kwargs or {}, split_every,
    )  # fmt: skip
    if isinstance(obj, xr.DataTree):
        _write_tree(obj, session, group, encoding or {}, options)
    else:
        _write(_dataset(obj), session, group, encoding or {}, options)


@dataclass(frozen=True, slots=True)
class _Options:
    """How to write, the same for each group of a tree."""

    mode: ZarrWriteModes
    safe_chunks: bool
    align_chunks: bool
    append_dim: Hashable | None
    region: Region
    accept: frozenset[str]
    compute_options: Mapping[str, Any]
    split_every: int | None


def _write_tree(
    tree: xr.DataTree, session: Session, group: str | None, encoding: Mapping[Any, Any], options: _Options
) -> None:
    if options.append_dim is not None or options.region is not None:
        raise InvalidInputError(
            "expected a Dataset or DataArray with append_dim or region, found a DataTree: write its groups "
            "one by one, to_icechunk(node.to_dataset(), session, group=node.path, ...)",
            ErrorKind.NOT_ALLOWED,
        )
    if unknown := sorted(set(encoding) - set(tree.groups)):
        raise InvalidInputError(
            f"encoding: expected paths of groups ({', '.join(tree.groups)}), found {unknown[0]!r}",
            ErrorKind.INVALID_PATH,
        )
    for path, node in tree.subtree_with_keys:
        # Coordinates that a group inherits are stored in its parent.
        dataset = _dataset(node.to_dataset(inherit=node is tree))
        below = "/".join(part for part in ((group or "").strip("/"), path) if part and part != ".")
        _write(dataset, session, below or None, encoding.get(node.path, {}), options)


def _write(
    dataset: xr.Dataset,
    session: Session,
    group: str | None,
    encoding: Mapping[Any, Any],
    options: _Options,
) -> None:
    changes = options.mode in _IN_PLACE and _is_stored(session, group, options)
    lazy = any(each.chunks is not None for each in dataset.variables.values())
    # What is wrong with lazy values shows when a part is written.
    fork = session.fork() if changes and lazy else None
    target = ZarrStore.open_group(
        (session if fork is None else fork).store,
        # What does not grow is what is stored, or is accepted.
        mode=options.mode if options.append_dim is None or "static" in options.accept else "a-",
        group=group,
        zarr_format=3,
        consolidated=False,
        consolidate_on_close=False,
        append_dim=options.append_dim,
        write_region=options.region,
        safe_chunks=options.safe_chunks,
        align_chunks=options.align_chunks,
    )
    # These two are not public, and there is no other way to the region that "auto" means.
    part = target._validate_and_autodetect_region(dataset)
    target._validate_encoding(encoding)
    if changes and options.accept != frozenset(CHECKS):
        region = target._write_region if isinstance(target._write_region, dict) else {}
        stored = StoredGroup.open(target, set(dataset.variables))
        checked = require_agreement(
            Writing(dataset, stored, options.append_dim, region, options.compute_options, options.accept)
        )
        part = checked.drop_vars(set(checked.variables) - set(part.variables))
    writer = ArrayWriter()  # type: ignore[no-untyped-call]  # parts of xarray have no types
    coordinates = target.zarr_group.attrs.get("coordinates") if changes else None
    dump_to_store(part, target, writer, encoding=dict(encoding))  # type: ignore[no-untyped-call]
    if isinstance(coordinates, str):
        _keep_coordinates(target, coordinates.split(), part)
    if writer.sources:
        store_dask(
            sources=writer.sources,
            targets=writer.targets,
            regions=writer.regions,
            split_every=options.split_every,
            **options.compute_options,
        )
    if fork is not None:
        session.merge(fork)


def _keep_coordinates(target: ZarrStore, names: list[str], dataset: xr.Dataset) -> None:
    """xarray replaces the attributes of the group, among them which variables are coordinates. Those that
    are not written stay what they are.
    """
    present = str(target.zarr_group.attrs.get("coordinates", "")).split()
    others = [name for name in names if name not in present and name not in dataset.variables]
    if others:
        target.zarr_group.update_attributes({"coordinates": " ".join([*present, *others])})


def _is_stored(session: Session, group: str | None, options: _Options) -> bool:
    """Whether the group exists."""
    if session.workspace.nodes.node(f"/{(group or '').strip('/')}") is not None:
        return True
    if options.append_dim is not None or options.region is not None:
        raise InvalidInputError(
            f"expected a group `/{(group or '').strip('/')}` to append to, or to write a region of, found "
            "none: write the first part without append_dim and region",
            ErrorKind.INVALID_PATH,
        )
    return False


def _accepted(accept: Collection[str]) -> frozenset[str]:
    names = frozenset([accept] if isinstance(accept, str) else accept)
    if unknown := sorted(names - set(CHECKS)):
        raise InvalidInputError(
            f"accept: expected names of {', '.join(CHECKS)}, found {unknown[0]!r}", ErrorKind.NOT_ALLOWED
        )
    return names


def _mode(mode: ZarrWriteModes | None, append_dim: Hashable | None, region: Region) -> ZarrWriteModes:
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
        raise TypeError(f"expected an xarray Dataset, DataArray or DataTree, found {type(obj).__name__}")
    if obj.name is not None and obj.name not in obj.coords and obj.name not in obj.dims:
        return obj.to_dataset()
    # The names that xarray gives, and takes away again when it opens it as a DataArray.
    dataset = obj.to_dataset(name="__xarray_dataarray_variable__")
    return dataset if obj.name is None else dataset.assign_attrs(__xarray_dataarray_name__=obj.name)

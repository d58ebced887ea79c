"""Functions that write xarray datasets to a session, in parallel if their arrays are dask arrays.

xarray encodes the variables, creates or resizes the arrays, and writes the values in memory. ``frazil.dask``
writes the dask arrays. xarray reads addresses: ``xarray.open_dataset("ice@v1:air", engine="frazil")``. The
import registers the accessor ``frazil`` of datasets: ``dataset.frazil.to("ice", message="...")``.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, MutableMapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Final, Literal

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.extras import needs
from frazil.repository.handle.repository import Repository
from frazil.repository.session.session import Session
from frazil.repository.target import MAIN, parse_target
from frazil.storage.profiles import storage_of_location

with needs("frazil.xarray", extra="xarray"):
    import xarray as xr

    from frazil.dask import store_dask
    from frazil.xarray.agreement import CHECKS, Check, StoredGroup, Writing, require_agreement
    from frazil.xarray.xarray_internals import ArrayWriter, ZarrStore, dump_to_store

__all__ = ["CHECKS", "FrazilAccessor", "ZarrWriteModes", "to_icechunk"]

ZarrWriteModes = Literal["w", "w-", "a", "a-", "r+", "r"]
Region = Mapping[str, slice | Literal["auto"]] | Literal["auto"] | None

#: Modes that keep the existing arrays.
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
    """Write an xarray object to a group of a session. The caller commits the session.

    With ``append_dim``, ``region`` and the mode ``a``, xarray uses the stored encoding and the stored
    attributes. Therefore the dataset is first compared with the group. If they do not agree, the function
    raises an error that says why, and writes nothing. These are the checks:

    ============== =====================================================================================
    ``variables``  the dimensions are equal; ``append_dim`` needs all variables along it, and no others
    ``attributes`` units, calendar, standard_name and other attributes that define the values are equal
    ``packing``    the dataset was not read from a file with another scale_factor or add_offset
    ``static``     variables without ``append_dim``, and the labels of a region, are equal
    ``order``      labels along ``append_dim`` are new, and continue the order of the stored labels
    ``values``     the arrays can hold the values: times in their units, numbers in their type and packing
    ============== =====================================================================================

    Values of dask arrays are checked when they are computed. The session changes after all of them
    are written.

    The groups of a ``DataTree`` are written one by one.

    Args:
        obj: Object to write. A ``DataTree`` cannot be written with ``append_dim`` or ``region``.
        session: Writable session, or a fork of one.
        group: Path of the group. Default: the root.
        mode: Mode of ``xarray.Dataset.to_zarr``. Default: ``a`` with ``append_dim``, ``r+`` with ``region``,
            otherwise ``w-``, which raises an error for existing data.
        safe_chunks: As in ``to_zarr``: refuse dask chunks that share a zarr chunk. Default: True.
        align_chunks: As in ``to_zarr``: rechunk the dask arrays to the zarr chunks. Default: False.
        append_dim: Dimension along which the arrays grow. Default: none.
        region: Slices by dimension, or ``"auto"``: the part of existing arrays to write. Default: none.
        encoding: Encoding by variable. For a ``DataTree``, encodings by path of the group. Default: none.
        chunkmanager_store_kwargs: Options of ``dask.compute``, for example ``scheduler``. Default: none.
        split_every: Number of forks that are merged at a time. Default: 8.
        accept: Names of checks to skip. Default: none.

    Raises:
        InvalidInputError: ``data-mismatch`` if the dataset does not agree with the group; ``not-allowed`` for
            a mode that cannot be combined with ``append_dim`` or ``region``, for a ``DataTree`` with one of
            them, and for an unknown check; ``invalid-path`` for an empty name or a missing group.
        ReadOnlyError: The session is read only.
        SessionStateError: ``merge-failed`` if dask chunks share a zarr chunk (only with
            ``safe_chunks=False``).
        Exception: Other errors of ``to_zarr``.

    Examples:
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
        frazil.errors.InvalidInputError: `t` must have values that the stored array (int64) can hold, got ...
    """
    if not isinstance(session, Session):
        raise wrong_type("session", session, "Session")
    session.require_writable()
    accepted = frozenset([accept] if isinstance(accept, str) else accept)
    if unknown := sorted(accepted - set(CHECKS)):
        raise InvalidInputError(
            f"accept must contain names of {', '.join(CHECKS)}, got {unknown[0]!r}", ErrorKind.NOT_ALLOWED
        )
    mode = _mode(mode, append_dim, region)
    options = _Options(
        mode, safe_chunks, align_chunks, append_dim, region, accepted,
        chunkmanager_store_kwargs or {}, split_every,
    )  # fmt: skip
    if isinstance(obj, xr.DataTree):
        _write_tree(obj, session, group, encoding or {}, options)
    else:
        _write(_dataset(obj), session, group, encoding or {}, options)


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of a write. They are the same for each group of a tree."""

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
            "obj must be a Dataset or DataArray with append_dim or region, got a DataTree. Write its groups "
            "one by one: to_icechunk(node.to_dataset(), session, group=node.path, ...)",
            ErrorKind.NOT_ALLOWED,
        )
    if unknown := sorted(set(encoding) - set(tree.groups)):
        raise InvalidInputError(
            f"the keys of encoding must be paths of groups ({', '.join(tree.groups)}), got {unknown[0]!r}",
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
    place = f"/{(group or '').strip('/')}"
    is_stored = session.workspace.node(place) is not None
    needs_group = options.append_dim is not None or options.region is not None
    if options.mode in _IN_PLACE and not is_stored and needs_group:
        raise InvalidInputError(
            f"the group `{place}` must exist for append_dim and region, got none. Write the first part "
            "without append_dim and region",
            ErrorKind.INVALID_PATH,
        )
    changes = options.mode in _IN_PLACE and is_stored
    lazy = any(each.chunks is not None for each in dataset.variables.values())
    # Lazy values can fail their checks after a part of them is written.
    fork = session.fork() if changes and lazy else None
    target = ZarrStore.open_group(
        (session if fork is None else fork).store,
        # Variables that do not grow are equal to the stored ones, unless the caller accepts other values.
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
    # These two are not public, but only they find the region for "auto".
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
        # xarray replaces this attribute of the group. Variables that this call does not write stay in it.
        present = str(target.zarr_group.attrs.get("coordinates", "")).split()
        names = [each for each in coordinates.split() if each not in present and each not in part.variables]
        if names:
            target.zarr_group.update_attributes({"coordinates": " ".join([*present, *names])})
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


def _mode(mode: ZarrWriteModes | None, append_dim: Hashable | None, region: Region) -> ZarrWriteModes:
    """Return the mode, checked before anything is opened, because the mode ``w`` deletes existing data."""
    mode = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    may_write = _WRITING if region is None else _IN_PLACE
    allowed = may_write if append_dim is None else _APPENDING
    if mode not in allowed:
        raise InvalidInputError(
            f"mode must be one of {', '.join(allowed)} with append_dim={append_dim!r} and "
            f"region={region!r}, got {mode!r}",
            ErrorKind.NOT_ALLOWED,
        )
    return mode


def _dataset(obj: xr.DataArray | xr.Dataset) -> xr.Dataset:
    if isinstance(obj, xr.Dataset):
        dataset = obj.copy()
    elif not isinstance(obj, xr.DataArray):
        raise TypeError(f"obj must be an xarray Dataset, DataArray or DataTree, got {type(obj).__name__}")
    elif obj.name is not None and obj.name not in obj.coords and obj.name not in obj.dims:
        dataset = obj.to_dataset()
    else:
        # The names that xarray uses, and removes when it opens the data as a DataArray.
        dataset = obj.to_dataset(name="__xarray_dataarray_variable__")
        if obj.name is not None:
            dataset = dataset.assign_attrs(__xarray_dataarray_name__=obj.name)
    for name, variable in dataset.variables.items():
        if not isinstance(name, str | None):
            raise TypeError(f"names of variables must be text, got {name!r}")
        if name == "":
            raise InvalidInputError("names of variables must not be empty", ErrorKind.INVALID_PATH)
        if not variable.size:
            variable.load()  # dask has empty chunks, zarr does not
    return dataset


@xr.register_dataset_accessor("frazil")  # type: ignore[no-untyped-call]
@xr.register_dataarray_accessor("frazil")  # type: ignore[no-untyped-call]
@xr.register_datatree_accessor("frazil")  # type: ignore[no-untyped-call]
class FrazilAccessor:
    """Writes of a dataset, array or tree to a repository, as ``dataset.frazil``.

    Examples:
        >>> import frazil.xarray, numpy, xarray
        >>> days = xarray.Dataset({"t": ("day", numpy.arange(2.0))}, {"day": [1, 2]})
        >>> snapshot_id = days.frazil.to("ice:air", message="two days")
        >>> more = days.assign_coords(day=[3, 4]).frazil.append("ice:air", "day", message="two more")
        >>> xarray.open_dataset("ice:air", engine="frazil").sizes["day"]
        4
    """

    def __init__(self, obj: xr.Dataset | xr.DataArray | xr.DataTree) -> None:
        self._obj = obj

    def to(self, target: Session | str | PathLike[str], *, message: str = "", **options: Any) -> str | None:
        """Write the object to a group, and commit it if the target is an address.

        Args:
            target: An address ``LOCATION[@BRANCH][:GROUP]``; a repository that does not exist is created. Or
                a writable session, which the caller commits.
            message: Message of the commit. Default: a line with the names of the variables.
            **options: Options of `to_icechunk`, for example ``mode`` and ``encoding``.

        Returns:
            The id of the new snapshot; None for a session.

        Raises:
            IcechunkError: The errors of `to_icechunk` and of the commit.
        """
        if isinstance(target, Session):
            to_icechunk(self._obj, target, **options)
            return None
        address = parse_target(str(target))
        group = options.pop("group", None) or address.path
        repo = Repository.open_or_create(storage_of_location(address.location))
        session = repo.writable_session(address.version or MAIN)
        to_icechunk(self._obj, session, group=group, **options)
        return session.commit(message or f"Write {', '.join(map(str, getattr(self._obj, 'data_vars', ())))}")

    def append(
        self, target: Session | str | PathLike[str], dim: Hashable, *, message: str = "", **options: Any
    ) -> str | None:
        """Append the object along a dimension, and commit it if the target is an address.

        Args:
            target: As in ``to``.
            dim: Dimension along which the stored arrays grow.
            message: As in ``to``.
            **options: Options of `to_icechunk`, for example ``accept``.

        Returns:
            The id of the new snapshot; None for a session.

        Raises:
            InvalidInputError: ``data-mismatch`` if the object does not agree with the group.
        """
        return self.to(target, message=message, append_dim=dim, **options)

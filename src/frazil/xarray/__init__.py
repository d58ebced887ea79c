"""Functions that write xarray datasets to a session, in parallel if their arrays are lazy.

xarray encodes the variables, creates or resizes the arrays, and writes the values in memory. ``frazil.dask``
writes the arrays of Dask, and ``frazil.cubed`` those of Cubed. xarray reads addresses:
``xarray.open_dataset("ice@v1:air", engine="frazil")``. The import registers the accessor ``frazil`` of
datasets: ``dataset.frazil.to("ice", message="...")``.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from itertools import chain
from operator import attrgetter
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError, ReadOnlyStoreError, RefNotFoundError
from frazil.extras import needs
from frazil.handle.addresses import target_of
from frazil.handle.repository import Repository
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.session.session import Session
from frazil.repository.target import MAIN, Target, joined_path
from frazil.storage.profiles import storage_of_location
from frazil.zarr_store import IcechunkStore

with needs("frazil.xarray", extra="xarray"):
    import xarray as xr

    from frazil.dask import store_dask
    from frazil.xarray.agreement import (
        CHECKS,
        ArrayWriter,
        Check,
        StoredGroup,
        Writing,
        ZarrStore,
        dump_to_store,
        is_cubed,
        is_lazy,
        require_agreement,
    )

__all__ = ["CHECKS", "FrazilAccessor", "ZarrWriteModes", "to_icechunk"]

if TYPE_CHECKING:
    from frazil import cubed
else:
    cubed = ModuleOnDemand("frazil.cubed")

#: The data of a variable, which ``Variable.data`` would read.
_data: Final = attrgetter("_data")

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

    Values of lazy arrays are checked when they are computed. The session changes after all values are
    written: until then, a dataset that was opened from the session reads the values from before, also with
    the mode ``w``. Open it again afterwards.

    Args:
        obj: Object to write. A ``DataTree`` cannot be written with ``append_dim`` or ``region``.
        session: Writable session, or a fork of one.
        group: Path of the group. Default: the root.
        mode: Mode of ``xarray.Dataset.to_zarr``. Default: ``a`` with ``append_dim``, ``r+`` with ``region``,
            otherwise ``w-``, which raises an error for existing data.
        safe_chunks: As in ``to_zarr``: refuse dask chunks that share a zarr chunk. Default: True. Cubed
            rechunks its arrays instead.
        align_chunks: As in ``to_zarr``: rechunk the dask arrays to the zarr chunks. Default: False.
        append_dim: Dimension along which the arrays grow. Default: none.
        region: Slices by dimension, or ``"auto"``: the part of existing arrays to write. Default: none.
        encoding: Encoding by variable. For a ``DataTree``, encodings by path of the group. Default: none.
        chunkmanager_store_kwargs: Options of ``dask.compute``, for example ``scheduler``, or of
            `frazil.cubed.store_cubed`, for example ``executor``. Default: none.
        split_every: Number of forks that are merged at a time. Default: 8.
        accept: Names of checks to skip. Default: none.

    Raises:
        InvalidInputError: ``data-mismatch`` if the dataset does not agree with the group; ``not-allowed`` for
            a mode that cannot be combined with ``append_dim`` or ``region``, for a ``DataTree`` with one of
            them, and for an unknown check; ``invalid-path`` for an empty name or a missing group.
        ReadOnlyError: The session is read only.
        TaskFailedError: A task of Cubed fails, such as for values that the array cannot hold.
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
    options = _options(
        mode=mode,
        append_dim=append_dim,
        region=region,
        accept=accept,
        safe_chunks=safe_chunks,
        align_chunks=align_chunks,
        chunkmanager_store_kwargs=chunkmanager_store_kwargs,
        split_every=split_every,
        encoding=encoding,
    )
    parts = _parts(obj, group, options)
    replaces = options.mode == "w" and session.workspace.node(joined_path(group)) is not None
    # Lazy values can fail after a part of them is written, and can be those that the session has now.
    if replaces or any(map(is_lazy, chain.from_iterable(part.dataset.variables.values() for part in parts))):
        fork = session.fork()
        _write(parts, fork, options)
        session.merge(fork)
    else:
        _write(parts, session, options)


@dataclass(frozen=True, slots=True)
class _RegionPart:
    """A dataset to write, and its group."""

    path: str
    dataset: xr.Dataset
    encoding: Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class _Options:
    """Options of a write, as ``to_icechunk`` describes them. They are the same for each group of a tree."""

    mode: ZarrWriteModes
    append_dim: Hashable | None
    region: Region
    accept: frozenset[str]
    safe_chunks: bool = True
    align_chunks: bool = False
    chunkmanager_store_kwargs: Mapping[str, Any] = field(default_factory=dict)
    split_every: int | None = None
    encoding: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def needs_group(self) -> bool:
        """Whether the group must exist."""
        return self.append_dim is not None or self.region is not None


def _options(
    *,
    mode: ZarrWriteModes | None = None,
    append_dim: Hashable | None = None,
    region: Region = None,
    accept: Collection[str] = (),
    **others: Any,
) -> _Options:
    """Return options, checked before anything is opened, because the mode ``w`` deletes existing data."""
    accepted = frozenset([accept] if isinstance(accept, str) else accept)
    if unknown := sorted(accepted - set(CHECKS)):
        raise InvalidInputError(
            f"accept must contain names of {', '.join(CHECKS)}, got {unknown[0]!r}", ErrorKind.NOT_ALLOWED
        )
    mode = mode or ("a" if append_dim is not None else "r+" if region is not None else "w-")
    may_write = _WRITING if region is None else _IN_PLACE
    allowed = may_write if append_dim is None else _APPENDING
    if mode not in allowed:
        raise InvalidInputError(
            f"mode must be one of {', '.join(allowed)} with append_dim={append_dim!r} and "
            f"region={region!r}, got {mode!r}",
            ErrorKind.NOT_ALLOWED,
        )
    if unknown := sorted(set(others) - {each.name for each in fields(_Options)}):
        raise TypeError(f"an option must be one of frazil.xarray.to_icechunk, got {unknown[0]!r}")
    more = {name: value for name, value in others.items() if value is not None}
    return _Options(mode, append_dim, region, accepted, **more)


def _parts(
    obj: xr.DataArray | xr.Dataset | xr.DataTree, group: str | None, options: _Options
) -> list[_RegionPart]:
    """Return the datasets to write: one, or one for each group of a tree."""
    if not isinstance(obj, xr.DataTree):
        return [_RegionPart(joined_path(group), _dataset(obj), options.encoding)]
    if options.needs_group:
        raise InvalidInputError(
            "obj must be a Dataset or DataArray with append_dim or region, got a DataTree. Write its groups "
            "one by one: to_icechunk(node.to_dataset(), session, group=node.path, ...)",
            ErrorKind.NOT_ALLOWED,
        )
    if unknown := sorted(set(options.encoding) - set(obj.groups)):
        raise InvalidInputError(
            f"the keys of encoding must be paths of groups ({', '.join(obj.groups)}), got {unknown[0]!r}",
            ErrorKind.INVALID_PATH,
        )
    return [
        _RegionPart(
            joined_path(group, "" if node is obj else path),
            # Coordinates that a group inherits are stored in its parent.
            _dataset(node.to_dataset(inherit=node is obj)),
            options.encoding.get(node.path, {}),
        )
        for path, node in obj.subtree_with_keys
    ]


def _require_group(path: str) -> NoReturn:
    raise InvalidInputError(
        f"the group `{path}` must exist for append_dim and region, got none. Write the first part without "
        "append_dim and region",
        ErrorKind.INVALID_PATH,
    )


def _write(parts: list[_RegionPart], session: Session, options: _Options) -> None:
    for part in parts:
        _write_part(part, session, options)


def _write_part(part: _RegionPart, session: Session, options: _Options) -> None:
    is_stored = session.workspace.node(part.path) is not None
    if options.needs_group and not is_stored:
        _require_group(part.path)
    changes = options.mode in _IN_PLACE and is_stored
    has_cubed = any(is_cubed(_data(each)) for each in part.dataset.variables.values())
    target = ZarrStore.open_group(
        session.store,
        # Variables that do not grow are equal to the stored ones, unless the caller accepts other values.
        mode=options.mode if options.append_dim is None or "static" in options.accept else "a-",
        group=part.path,
        zarr_format=3,
        consolidated=False,
        consolidate_on_close=False,
        append_dim=options.append_dim,
        write_region=options.region,
        safe_chunks=options.safe_chunks and not has_cubed,  # Cubed rechunks what shares a chunk
        align_chunks=options.align_chunks,
    )
    # These two are not public, but only they find the region for "auto".
    dataset = target._validate_and_autodetect_region(part.dataset)
    target._validate_encoding(part.encoding)
    compute_options = options.chunkmanager_store_kwargs
    if changes and options.accept != frozenset(CHECKS):
        region = target._write_region if isinstance(target._write_region, dict) else {}
        stored = StoredGroup.open(target, set(part.dataset.variables))
        checked = require_agreement(
            Writing(part.dataset, stored, options.append_dim, region, compute_options, options.accept)
        )
        dataset = checked.drop_vars(set(checked.variables) - set(dataset.variables))
    writer = ArrayWriter()  # type: ignore[no-untyped-call]  # parts of xarray have no types
    coordinates = target.zarr_group.attrs.get("coordinates") if changes else None
    dump_to_store(dataset, target, writer, encoding=dict(part.encoding))
    if isinstance(coordinates, str):
        # xarray replaces this attribute of the group. Variables that this call does not write stay in it.
        present = str(target.zarr_group.attrs.get("coordinates", "")).split()
        names = [e for e in coordinates.split() if e not in present and e not in dataset.variables]
        if names:
            target.zarr_group.update_attributes({"coordinates": " ".join([*present, *names])})
    if writer.sources:
        where = {"targets": writer.targets, "regions": writer.regions, **compute_options}
        if any(map(is_cubed, writer.sources)):
            cubed.store_cubed(sources=writer.sources, **where)
        else:
            store_dask(sources=writer.sources, split_every=options.split_every, **where)


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
        if name is not None and (not name or "/" in name):
            # With a slash it would be an array of another group, where nobody looks for it.
            raise InvalidInputError(
                f"names of variables must not be empty or contain `/`, got {name!r}", ErrorKind.INVALID_PATH
            )
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

    def to(
        self,
        target: Session | IcechunkStore | Repository | str | PathLike[str],
        *,
        group: str | None = None,
        message: str = "",
        allow_empty: bool = False,
        storage_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> str | None:
        """Write the object to a group, and commit it if the target is an address or a repository.

        Args:
            target: An address ``LOCATION[@BRANCH][:GROUP]``, or the folder of a repository as a path object.
                A repository that does not exist is created. Or a `Repository`, whose branch ``main`` gets
                the commit. Or a writable session or its store: the caller commits.
            group: Path of the group, below the group of the address. Default: that group, or the root.
            message: Message of the commit. Default: a line with the names of the variables.
            allow_empty: Whether to commit if there is nothing to change. Default: False.
            storage_options: Options of the storage of an address, as in `frazil.storage_from_url`.
            **options: Options of `to_icechunk`, for example ``mode`` and ``encoding``.

        Returns:
            The id of the new snapshot; None for a session.

        Raises:
            RefNotFoundError: The branch does not exist.
            TypeError: The target is none of these, or an option is unknown.
            IcechunkError: The errors of `to_icechunk` and of the commit.
        """
        if storage_options is not None and isinstance(target, Session | IcechunkStore | Repository):
            raise InvalidInputError(
                f"storage_options must come with an address, got them with a {type(target).__name__}"
            )
        if isinstance(target, IcechunkStore):
            if target.read_only:
                raise ReadOnlyStoreError("the store must be writable, got a store that was opened read-only")
            target = target.session
        if isinstance(target, Session):
            to_icechunk(self._obj, target, group=group, **options)
            return None
        checked = _options(**options)
        if isinstance(target, Repository):
            parts, branch, repo = _parts(self._obj, group, checked), MAIN, target
        else:
            address = target_of(target, "target", "Repository", "Session", "IcechunkStore")
            parts = _parts(self._obj, joined_path(address.path, group), checked)
            branch, repo = address.version or MAIN, _repository(address, storage_options, parts, checked)
        session = repo.writable_session(branch)
        names = ", ".join(map(str, getattr(self._obj, "data_vars", ())))
        try:
            _write(parts, session, checked)
            return session.commit(message or f"Write {names}", allow_empty=allow_empty)
        finally:
            if not session.read_only:  # nobody else has the session
                session.discard_changes()

    def append(
        self,
        target: Session | IcechunkStore | Repository | str | PathLike[str],
        dim: Hashable,
        *,
        message: str = "",
        **options: Any,
    ) -> str | None:
        """Append the object along a dimension, and commit it if the target is an address or a repository.

        Args:
            target: As in ``to``.
            dim: Dimension along which the stored arrays grow.
            message: As in ``to``.
            **options: Options of ``to`` and `to_icechunk`, for example ``allow_empty`` and ``accept``.

        Returns:
            The id of the new snapshot; None for a session.

        Raises:
            InvalidInputError: ``data-mismatch`` if the object does not agree with the group.
        """
        return self.to(target, message=message, append_dim=dim, **options)


def _repository(
    address: Target, storage_options: Mapping[str, Any] | None, parts: list[_RegionPart], options: _Options
) -> Repository:
    """Return the repository of an address. It is created if the write does not need what it cannot have."""
    storage = storage_of_location(address.location, storage_options)
    if Repository.exists(storage):
        return Repository.open(storage)
    if options.needs_group:
        _require_group(parts[0].path)
    if address.version not in (None, MAIN):
        raise RefNotFoundError(
            f"the branch `{address.version}` must exist, but there is no repository at "
            f"{address.location!r}. Write to `{MAIN}` to create it"
        )
    return Repository.open_or_create(storage)

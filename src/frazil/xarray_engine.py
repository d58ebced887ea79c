"""The engine ``frazil`` of xarray: ``xr.open_dataset("s3://bucket/repo@v1:group", engine="frazil")``.

xarray finds the engine by an entry point, and imports this module for each of its users who have Frazil. So
the module imports little; ``frazil.xarray`` writes datasets. The nodes of a version are in one snapshot, and
the coordinates of all groups are read together: a tree of a thousand groups needs a few requests.

>>> import frazil, numpy, xarray
>>> from frazil.xarray import to_icechunk
>>> session = frazil.Repository.create("ice").writable_session("main")
>>> to_icechunk(xarray.Dataset({"t": ("x", numpy.arange(3.0))}, {"x": [10, 20, 30]}), session, group="air")
>>> snapshot_id = session.commit("write a dataset")
>>> xarray.open_dataset("ice@main:air", engine="frazil")["t"].sel(x=20).item()
1.0
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, override

import numpy as np
from xarray import Dataset, DataTree, Variable
from xarray.backends.common import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint
from xarray.backends.zarr import FillValueCoder
from xarray.coding.strings import create_vlen_dtype
from xarray.core import indexing

import frazil
from frazil.arguments import misfit
from frazil.cf import MEANING
from frazil.extras import warn_of_unreadable
from frazil.lazy_names import ModuleOnDemand
from frazil.repository.target import joined_path
from frazil.threads import thread_errors

if TYPE_CHECKING:
    import dask.base as dask_base
    import zarr
    import zarr.core.metadata as zarr_metadata
    import zarr.storage as zarr_storage
else:
    dask_base = ModuleOnDemand("dask.base")
    zarr = ModuleOnDemand("zarr")
    zarr_metadata = ModuleOnDemand("zarr.core.metadata")
    zarr_storage = ModuleOnDemand("zarr.storage")

__all__ = ["FrazilBackend"]

#: Coordinates of at most this many elements are read together when a dataset is opened.
_MOST_TOGETHER: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class _VariableForm:
    """What arrays with the same metadata have in common: the dtype, and the encoding as xarray names it."""

    dtype: np.dtype[Any]
    encoding: Mapping[str, Any]


@lru_cache(1024)
def _form(document: str) -> _VariableForm:
    """Return the form of arrays by a part of their metadata."""
    metadata = zarr_metadata.ArrayV3Metadata.from_dict(json.loads(document))
    place = zarr_storage.StorePath(zarr_storage.MemoryStore())
    array = zarr.Array(zarr.AsyncArray(metadata=metadata, store_path=place))
    dtype = array.dtype
    serializer = array.serializer
    if dtype.kind != "T" and serializer is not None and serializer.to_dict()["name"] == "vlen-utf8":
        dtype = create_vlen_dtype(str)  # type: ignore[no-untyped-call]
    encoding = {
        "chunks": _lengths(array, "chunks", "read_chunk_sizes"),
        "compressors": array.compressors,
        "filters": array.filters,
        "shards": _lengths(array, "shards", "write_chunk_sizes"),
        "serializer": serializer,
        "fill_value": array.fill_value,
    }
    if dtype.kind == "T":
        encoding["dtype"] = dtype
    return _VariableForm(dtype, encoding)


def _lengths(array: Any, name: str, sizes: str) -> Any:
    """Return the lengths of chunks; for a dimension with chunks of several lengths, all of them."""
    try:
        return getattr(array, name)
    except NotImplementedError:
        along = (tuple(each) for each in getattr(array, sizes))
        return tuple(each[0] if len({*each[:-1]} | {max(each)}) == 1 else each for each in along)


@dataclass(frozen=True, slots=True)
class _VersionArray:
    """An array of a version."""

    path: str
    id: bytes
    document: bytes
    shape: tuple[int, ...]
    names: tuple[str | None, ...]
    attributes: Mapping[str, Any]
    form: _VariableForm

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.path.rpartition("/")[2]

    @classmethod
    def of(cls, path: str, id_: bytes, document: bytes) -> _VersionArray | None:
        """Return an array. One that zarr cannot open here is None, and a warning names it and the cause."""
        metadata = json.loads(document)
        attributes, names = metadata.pop("attributes", {}), metadata.pop("dimension_names", None) or ()
        try:
            form = _form(json.dumps(metadata))
        except Exception as error:  # codecs and types raise errors of any class
            message = f"`{path}` must be an array that zarr opens: {error}"
            warn_of_unreadable(path, frazil.InvalidInputError(message, frazil.ErrorKind.UNSUPPORTED_ARRAY))
            return None
        return cls(path, id_, document, tuple(metadata["shape"]), tuple(names), attributes, form)


@lru_cache(1024)
def _meaning(document: bytes) -> dict[str, Any]:
    """Return the metadata of an array without the attributes that do not define its values."""
    metadata: dict[str, Any] = json.loads(document)
    attributes = metadata.get("attributes", {})
    return {**metadata, "attributes": {name: attributes[name] for name in MEANING & attributes.keys()}}


class _LazyValues(BackendArray):
    """The elements of an array, which are read when xarray needs them.

    A session can change the array later, or create another one at its path.
    """

    __slots__ = ("_array", "_document", "_id", "dtype", "shape")

    def __init__(self, session: frazil.Session, array: _VersionArray) -> None:
        self._array = frazil.Array(session, array.path)
        self._id, self._document = array.id, array.document
        self.shape, self.dtype = array.shape, array.form.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        self._require_same_array()
        support = indexing.IndexingSupport.VECTORIZED
        values = indexing.explicit_indexing_adapter(key, self.shape, support, self._method(key))
        return np.asarray(values, self.dtype) if self.dtype.kind == "T" else values

    def _require_same_array(self) -> None:
        node = self._array.session.workspace.require_array(self._array.path)
        document = node.user_data
        if node.id == self._id and (
            document == self._document or _meaning(document) == _meaning(self._document)
        ):
            return
        raise misfit(
            f"the array `{node.path}` must be the one of the dataset, but the session has changed it or "
            "created it again. Open the dataset again"
        )

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Return the elements, for an event loop."""
        with thread_errors():
            return await asyncio.to_thread(self.__getitem__, key)

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return self._array.__dask_tokenize__()

    def _method(self, key: indexing.ExplicitIndexer) -> Any:
        if isinstance(key, indexing.OuterIndexer):
            return self._array.oindex.__getitem__
        return self._array.__getitem__


#: The data of a variable, which ``Variable.data`` would read.
_data: Final = attrgetter("_data")


class _StoredVariable(Variable):
    """A variable of a version. xarray names Dask arrays after the address, which can have many versions."""

    __slots__ = ()

    @classmethod
    def of(cls, variable: Variable) -> Variable:
        """Return the variable of the version, unless its values are in memory."""
        data = _data(variable)
        if _stored_values(data) is None:
            return variable
        return cls(variable.dims, data, variable.attrs, variable.encoding, fastpath=True)

    @override
    def chunk(self, *args: Any, from_array_kwargs: Any = None, **options: Any) -> Any:
        """Return the variable with a Dask array whose name contains the version. xarray calls this method."""
        values, arguments = _stored_values(_data(self)), dict(from_array_kwargs or {})
        if values is not None and arguments.get("name"):
            head, _, token = arguments["name"].rpartition("-")
            arguments["name"] = f"{head}-{dask_base.tokenize(token, values)}"
        return super().chunk(*args, **options | {"from_array_kwargs": arguments})


def _stored_values(data: Any) -> _LazyValues | None:
    """Return the stored values below the steps that decode and select them."""
    while not isinstance(data, _LazyValues | None):
        data = getattr(data, "array", None)
    return data


class _Group(AbstractDataStore):
    """A group of a version, as xarray reads datasets from its stores."""

    def __init__(self, attributes: dict[str, Any], variables: dict[str, Variable]) -> None:
        self._attributes = attributes
        self._variables = variables

    @override
    def get_attrs(self) -> dict[str, Any]:
        return self._attributes

    @override
    def get_variables(self) -> dict[str, Variable]:
        return self._variables

    @override
    def get_dimensions(self) -> dict[str, int]:
        return {str(dim): n for each in self._variables.values() for dim, n in each.sizes.items()}

    @override
    def get_encoding(self) -> dict[str, Any]:
        return {}


def _groups(session: frazil.Session, root: str, dropped: set[str], *, is_tree: bool) -> dict[str, _Group]:
    """Return the groups at and below a path, parents first, or only the group."""
    node = session.workspace.require_node(root)
    if node.array is not None:
        raise frazil.InvalidInputError(
            f"xarray opens a group, and `{root}` is an array. Name its group, `{_parent(root)}`",
            frazil.ErrorKind.INVALID_PATH,
        )
    attributes = {root: json.loads(node.user_data).get("attributes", {})}
    arrays: dict[str, list[_VersionArray]] = {root: []}
    table = session.workspace.node_table()
    below = table.below(root)
    paths = table.paths_list()[below]
    for row, path, is_array in zip(
        range(*below.indices(len(table))), paths, table.is_array[below], strict=True
    ):
        parent = _parent(path)
        if is_array and parent in arrays and path.rpartition("/")[2] not in dropped:
            stored = _VersionArray.of(path, table.ids[row].tobytes(), bytes(table.user_data.bytes(row)))
            arrays[parent] += [] if stored is None else [stored]
        elif not is_array and is_tree:
            attributes[path] = json.loads(table.user_data.bytes(row)).get("attributes", {})
            arrays[path] = []
    every = chain.from_iterable(arrays.values())
    small = [each.path for each in every if each.names == (each.name,) and each.shape[0] <= _MOST_TOGETHER]
    values = frazil.read_many(session, small)
    return {
        path: _Group(
            attributes[path], {each.name: _variable(session, each, values.get(each.path)) for each in group}
        )
        for path, group in arrays.items()
    }


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _variable(session: frazil.Session, array: _VersionArray, values: Any) -> Variable:
    names, form, attributes = array.names, array.form, dict(array.attributes)
    if len(names) != len(array.shape):
        raise misfit(
            f"the array `{array.path}` must have dimension names for xarray, got none. Leave it out with "
            f"drop_variables={array.name!r}, or set the names with zarr"
        )
    encoding = {**form.encoding, "preferred_chunks": dict(zip(names, form.encoding["chunks"], strict=True))}
    if "_FillValue" in attributes:
        attributes["_FillValue"] = FillValueCoder.decode(attributes["_FillValue"], form.dtype)
    if values is None:
        values = indexing.LazilyIndexedArray(_LazyValues(session, array))
    return Variable(names, values, attributes, encoding)


class FrazilBackend(BackendEntrypoint):
    """The engine ``frazil`` of xarray.

    ``xr.open_dataset``, ``open_datatree``, ``open_groups`` and ``open_mfdataset`` accept with
    ``engine="frazil"``:

    - an address ``LOCATION[@VERSION][:PATH]``, such as ``s3://bucket/repo@v1:era5``; or a `Session`, the
      ``store`` of one, or a `Repository` (the tip of its branch ``main``);
    - ``group``: the path of the group, below the path of the address;
    - ``branch``, ``tag``, ``snapshot_id``, ``as_of``, ``storage_options``, ``config`` and
      ``authorize_virtual_chunk_access``: see `frazil.open_address`;
    - ``use_zarr_fill_value_as_mask``: also mask the fill value of arrays without ``_FillValue``;
    - the options of all engines: ``chunks``, ``drop_variables``, ``mask_and_scale``, ``decode_times`` and
      others.

    Values are read when they are needed. The encoding, and the chunks that Dask prefers, are those of the
    engine ``zarr``.
    """

    description = "Open repositories of Frazil and Icechunk"
    url = "https://github.com/frazil/frazil"
    supports_groups = True
    open_dataset_parameters = (
        "filename_or_obj",
        *("group", "branch", "tag", "snapshot_id", "as_of"),
        *("storage_options", "config", "authorize_virtual_chunk_access", "use_zarr_fill_value_as_mask"),
        *("drop_variables", "mask_and_scale", "decode_times", "concat_characters", "decode_coords"),
        *("use_cftime", "decode_timedelta"),
    )

    @override
    def open_dataset(self, filename_or_obj: Any, **options: Any) -> Dataset:
        """Return the dataset of a group. xarray calls this method."""
        (dataset,) = self._datasets(filename_or_obj, is_tree=False, **options).values()
        return dataset

    @override
    def open_groups_as_dict(self, filename_or_obj: Any, **options: Any) -> dict[str, Dataset]:
        """Return the datasets of a group and of all groups below it, by path. xarray calls this method."""
        return self._datasets(filename_or_obj, is_tree=True, **options)

    def _datasets(
        self,
        source: Any,
        *,
        is_tree: bool,
        group: str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        snapshot_id: str | None = None,
        as_of: datetime | None = None,
        storage_options: Mapping[str, Any] | None = None,
        config: frazil.RepositoryConfig | None = None,
        authorize_virtual_chunk_access: Any = None,
        use_zarr_fill_value_as_mask: bool = False,
        drop_variables: str | Iterable[str] | None = None,
        **decoding: Any,
    ) -> dict[str, Dataset]:
        """Return the datasets of a group, and of the groups below it for a tree, by path."""
        version = {"branch": branch, "tag": tag, "snapshot_id": snapshot_id, "as_of": as_of}
        access = {
            "storage_options": storage_options,
            "config": config,
            "authorize_virtual_chunk_access": authorize_virtual_chunk_access,
        }
        session, root = _opened(source, group, version, access)
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        stores = _groups(session, root, dropped, is_tree=is_tree)
        if use_zarr_fill_value_as_mask:
            for store in stores.values():
                for variable in store.get_variables().values():
                    variable.attrs.setdefault("_FillValue", variable.encoding.pop("fill_value"))
        datasets = {}
        for path, store in stores.items():
            dataset = StoreBackendEntrypoint().open_dataset(store, **decoding)
            variables = {name: _StoredVariable.of(each) for name, each in dataset.variables.items()}
            datasets["/" + path.removeprefix(root).lstrip("/")] = dataset._replace(variables)
        return datasets

    @override
    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """Return a group and all groups below it as a tree. xarray calls this method."""
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _opened(
    source: Any, group: str | None, version: Mapping[str, Any], access: Mapping[str, Any]
) -> tuple[frazil.Session, str]:
    """Return the session that reads a version, and the path of the group."""
    if isinstance(source, frazil.Repository):
        branch = version["branch"] or (None if version["tag"] or version["snapshot_id"] else "main")
        session, root = source.readonly_session(**{**version, "branch": branch}), "/"
    elif isinstance(source, frazil.Session | frazil.IcechunkStore):
        named = [name for name, value in version.items() if value is not None]
        if named:
            raise frazil.InvalidInputError(
                f"a session reads one version: leave out {named[0]}, or pass the address",
                frazil.ErrorKind.INVALID_ARGUMENT,
            )
        session, root = source if isinstance(source, frazil.Session) else source.session, "/"
    else:
        session, root = frazil.open_address(source, **version, **access)
    return session, joined_path(root, group)

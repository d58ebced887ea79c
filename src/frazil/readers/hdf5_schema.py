"""The schema of one group of an HDF5 file: its variables, dimensions and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import h5py  # type: ignore[import-untyped]  # it ships no types
import numpy as np

from frazil.readers.base_reader import FileContents
from frazil.readers.file_errors import damaged, no_group
from frazil.readers.files import File
from frazil.readers.hdf5_chunks import filters_of
from frazil.readers.hdf5_dimensions import NOT_A_COORDINATE, Scopes, is_scale
from frazil.readers.hdf5_types import (
    CompoundField,
    attributes,
    compound_fields,
    dtype_of,
    fill_value,
    is_compound,
    text_attribute,
)
from frazil.readers.reader import VariableSchema

#: The attribute NAME of a scale that is not a variable begins with this text.
_NOT_A_VARIABLE: Final = "This is a netCDF dimension but not a netCDF variable"


def read_group(file: File, root: h5py.File, path: str, *, with_fields: bool) -> FileContents:
    """Return the contents of the group at ``path``. ``with_fields``: with the fields of compound types."""
    group = root.get(path)
    if not isinstance(group, h5py.Group):
        raise no_group(file.url, path, f"the file has the groups {_group_paths(root)}")
    members = list(_datasets(file, group))
    scopes = Scopes(group, [(each.key, each.dataset) for each in members if each.is_hard_link])
    attrs, unreadable = attributes(group)
    schema = _GroupSchema(file, scopes, with_fields, frozenset(group))
    schema.skipped = {f":{name}": reason for name, reason in unreadable.items()}
    schema.skipped |= dict.fromkeys(
        [key for key in group if group.get(key) is None], "a link without a target"
    )
    for member in members:
        schema.add_dataset(member)
    return schema.contents(attrs, tuple(_group_paths(group)))


@dataclass(frozen=True, slots=True)
class _Member:
    """A dataset of a group. ``is_hard_link``: it is a member of the group, not the target of a soft link."""

    key: str
    dataset: h5py.Dataset
    is_hard_link: bool

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.key.removeprefix(NOT_A_COORDINATE)

    @property
    def is_dimension_only(self) -> bool:
        """Whether the dataset is a dimension scale without a variable."""
        return is_scale(self.dataset) and text_attribute(self.dataset, "NAME").startswith(_NOT_A_VARIABLE)


@dataclass(slots=True)
class _GroupSchema:
    """Collects the variables and dimensions of one group. ``names`` are the names of its members."""

    file: File
    scopes: Scopes
    with_fields: bool
    names: frozenset[str]
    variables: list[VariableSchema] = field(default_factory=list)
    dims: dict[str, int] = field(default_factory=dict)
    unlimited: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)

    def add_dataset(self, member: _Member) -> None:
        """Add a dataset as a variable, a dimension, or a skipped name."""
        name, dataset = member.name, member.dataset
        if member.is_dimension_only:
            self.dims[name] = dataset.shape[0]
            self.unlimited.update([name] if dataset.maxshape[0] is None else [])
            return
        dtype = dtype_of(dataset)
        if self.with_fields and is_compound(dataset):
            self._add_fields(member)
            return
        if isinstance(dtype, str):
            self.skipped[name] = dtype
            return
        dims, attrs = self._dims_and_attributes(name, dataset)
        self.variables.append(_variable_schema(name, dataset, dtype, dims, attrs))

    def _dims_and_attributes(
        self, name: str, dataset: h5py.Dataset
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the dimensions and the attributes of a dataset, and add its dimensions to the group."""
        _require_data_in_file(self.file, name, dataset)
        dims = self.scopes.dims(name, dataset)
        for dim, size, largest in zip(dims, dataset.shape, dataset.maxshape, strict=True):
            self.dims[dim] = max(size, self.dims.get(dim, 0))
            self.unlimited.update([dim] if largest is None else [])
        attrs, unreadable = attributes(dataset)
        self.skipped |= {f"{name}:{each}": reason for each, reason in unreadable.items()}
        return dims, attrs

    def _add_fields(self, member: _Member) -> None:
        """Add each field of a compound type as a variable with the attributes of the dataset."""
        dims, attrs = self._dims_and_attributes(member.name, member.dataset)
        attrs.pop("_FillValue", None)  # a compound value
        for name, each in _fields_by_name(member.name, member.dataset.dtype):
            reason = each.dtype if isinstance(each.dtype, str) else ""
            if name in self.names or any(name == variable.name for variable in self.variables):
                reason = "another variable has this name"
            if isinstance(each.dtype, str) or reason:
                self.skipped[name] = reason
                continue
            inner = tuple(f"{name}_dim_{at}" for at in range(len(each.shape)))
            self.dims |= dict(zip(inner, each.shape, strict=True))
            shape = (*member.dataset.shape, *each.shape)
            self.variables.append(VariableSchema(name, (*dims, *inner), shape, each.dtype, dict(attrs)))

    def contents(self, attrs: dict[str, Any], groups: tuple[str, ...]) -> FileContents:
        """Return the contents of the group, after all datasets were added."""
        sizes = {dim: max(size, self.scopes.sizes.get(dim, 0)) for dim, size in self.dims.items()}
        used = {dim for each in self.variables for dim in each.dims}
        return FileContents(
            [self._with_whole_dimensions(each, sizes) for each in self.variables],
            attrs,
            {dim: size for dim, size in sizes.items() if dim in used or dim in self.unlimited or size},
            frozenset(self.unlimited),
            groups,
            self.skipped,
        )

    def _with_whole_dimensions(self, variable: VariableSchema, sizes: dict[str, int]) -> VariableSchema:
        """Return the variable with the full length of its unlimited dimensions."""
        shape = tuple(
            sizes[dim] if dim in self.unlimited else size
            for dim, size in zip(variable.dims, variable.shape, strict=True)
        )
        for dim, size in zip(variable.dims, shape, strict=True):
            if sizes[dim] != size:
                expected = f"{sizes[dim]} values of {variable.name!r} along {dim!r}, as in other variables"
                raise damaged(self.file.url, expected, size)
        return replace(variable, shape=shape)


def _fields_by_name(name: str, dtype: np.dtype[Any]) -> Iterator[tuple[str, CompoundField]]:
    """Yield the fields of a compound type with the names of their variables."""
    for each in compound_fields(dtype):
        yield "_".join((name, *each.path)), each


def fields_of(group: h5py.Group) -> dict[str, tuple[str, CompoundField]]:
    """Return the key of the dataset and the field of each variable that is a field of a compound type."""
    fields: dict[str, tuple[str, CompoundField]] = {}
    for key in group:
        member = group.get(key)
        if isinstance(member, h5py.Dataset) and is_compound(member):
            for name, each in _fields_by_name(key.removeprefix(NOT_A_COORDINATE), member.dtype):
                if name not in group:
                    fields.setdefault(name, (key, each))
    return fields


def _datasets(file: File, group: h5py.Group) -> Iterator[_Member]:
    """Yield the datasets of a group. Raises ``FormatError`` for a link to another file."""
    for key in group:
        link = group.get(key, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise damaged(
                file.url,
                "all data in this file",
                f"{key!r}, a link to {link.path!r} in {link.filename!r}: ingest that file",
            )
        member = group.get(key)  # None for a link without a target
        if isinstance(member, h5py.Dataset):
            yield _Member(key, member, isinstance(link, h5py.HardLink))


def _require_data_in_file(file: File, name: str, dataset: h5py.Dataset) -> None:
    """Raise ``FormatError`` if data of a dataset are in another file, or beyond the end of this file.

    HDF5 itself finds most truncated files when it opens them, but not a dataset beyond the end.
    """
    plist = dataset.id.get_create_plist()
    layout = plist.get_layout()
    if plist.get_external_count() or layout == h5py.h5d.VIRTUAL:
        raise damaged(file.url, "all data in this file", f"{name!r}, whose data are in other files")
    if layout == h5py.h5d.CONTIGUOUS and (size := dataset.id.get_storage_size()):
        require_size(file, name, dataset.id.get_offset() + size)


def require_size(file: File, name: str, end: int) -> None:
    """Raise ``FormatError`` if the file is shorter than ``end`` bytes, where the variable ``name`` ends."""
    if end > file.size:
        raise damaged(
            file.url, f"at least {end} bytes ({name!r} ends there)", f"{file.size}: it is truncated"
        )


def _variable_schema(
    name: str, dataset: h5py.Dataset, dtype: np.dtype[Any], dims: tuple[str, ...], attrs: dict[str, Any]
) -> VariableSchema:
    filters = filters_of(dataset)
    names = h5py.check_enum_dtype(dataset.dtype)
    if names and dtype.kind != "b":
        attrs.setdefault("flag_values", list(names.values()))
        attrs.setdefault("flag_meanings", " ".join(each.replace(" ", "_") for each in names))
    return VariableSchema(
        name,
        dims,
        dataset.shape,
        dtype,
        attrs,
        fill_value(dataset, dtype),
        dataset.chunks,
        ", ".join(each.words for each in filters) or None,
    )


def _group_paths(group: h5py.Group) -> list[str]:
    """Return the paths of all groups below a group."""
    paths: list[str] = []
    group.visititems(lambda _, each: paths.append(each.name) if isinstance(each, h5py.Group) else None)
    return paths

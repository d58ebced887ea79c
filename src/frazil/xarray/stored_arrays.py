"""The arrays of a group, in the form in which xarray opens them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from xarray.conventions import decode_cf_variables

from frazil.xarray.lossless import ArrayForm
from frazil.xarray.xarray_internals import ZarrStore


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The stored variables of a group, read on demand.

    Attributes:
        variables: Variables as they are stored, without decoding.
        dims: Dimensions of all variables.
        forms: Forms of the variables that will be written.
        sizes: Sizes of all dimensions.
    """

    variables: Mapping[str, xr.Variable]
    dims: Mapping[str, tuple[Hashable, ...]]
    forms: Mapping[str, ArrayForm]
    sizes: Mapping[Hashable, int]

    @classmethod
    def open(cls, target: ZarrStore, names: Collection[Hashable]) -> StoredGroup:
        """Return the group to which xarray will write variables of these names."""
        variables = {}
        for name in target.array_keys():
            with suppress(KeyError):  # no names of dimensions: not an array of xarray
                variables[name] = target.open_store_variable(name)  # type: ignore[no-untyped-call]  # xarray
        # xarray finds its encoding for appends in the same way. It changes its arguments.
        decoded, _, _ = decode_cf_variables(
            {name: each.copy(deep=False) for name, each in variables.items() if name in names}, {}
        )
        forms = {name: ArrayForm.of(name, variables[name], each) for name, each in decoded.items()}
        present = {**variables, **decoded}
        sizes = {dim: size for each in present.values() for dim, size in each.sizes.items()}
        return cls(variables, {name: each.dims for name, each in present.items()}, forms, sizes)

    def with_dim(self, dim: Hashable) -> set[str]:
        """Return the names of the variables with a dimension."""
        return {name for name, dims in self.dims.items() if dim in dims}

    def numbers(self, name: str, region: Mapping[Any, slice]) -> np.ndarray[Any, Any]:
        """Return the stored values of a variable or of a region of it, without decoding."""
        variable = self.variables[name]
        return np.asarray(variable.isel({dim: region[dim] for dim in variable.dims if dim in region}).values)

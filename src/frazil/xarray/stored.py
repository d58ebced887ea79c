"""The arrays of a group, as xarray opens them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends.zarr import ZarrStore
from xarray.conventions import decode_cf_variables

from frazil.xarray.lossless import ArrayForm


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Variables as they are stored, read on demand, and the dimensions of each once it is decoded."""

    variables: Mapping[str, xr.Variable]
    dims: Mapping[str, tuple[Hashable, ...]]
    forms: Mapping[str, ArrayForm]
    sizes: Mapping[Hashable, int]

    @classmethod
    def open(cls, target: ZarrStore) -> StoredGroup:
        """The group that xarray is about to write to."""
        # parts of xarray have no types
        variables = {name: target.open_store_variable(name) for name in target.array_keys()}  # type: ignore[no-untyped-call]
        # As xarray finds the encoding that it appends with. It changes what it is given.
        decoded, _, _ = decode_cf_variables({k: v.copy(deep=False) for k, v in variables.items()}, {})
        sizes = {dim: size for each in decoded.values() for dim, size in each.sizes.items()}
        forms = {name: ArrayForm.of(name, each, decoded[name]) for name, each in variables.items()}
        return cls(variables, {name: each.dims for name, each in decoded.items()}, forms, sizes)

    def with_dim(self, dim: Hashable) -> set[str]:
        """The names of the variables that have a dimension."""
        return {name for name, dims in self.dims.items() if dim in dims}

    def numbers(self, name: str, region: Mapping[Any, slice]) -> np.ndarray[Any, Any]:
        """The values of a variable as they are stored, or a part of them."""
        variable = self.variables[name]
        return np.asarray(variable.isel({dim: region[dim] for dim in variable.dims if dim in region}).values)

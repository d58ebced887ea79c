"""Finds the coordinates among the variables of a file, by the CF conventions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from frazil.readers.reader import VariableSchema

#: Attributes that name coordinates, by the CF conventions.
_NAMES_COORDINATES: Final = ("coordinates", "bounds", "climatology", "grid_mapping")
#: Attributes that name other variables (CF and UGRID): scalars among these variables are not data.
_NAMES_OTHERS: Final = ("formula_terms", "cell_measures", "ancillary_variables", "mesh", "geometry")


def coordinate_names(variables: Iterable[VariableSchema], attrs: Mapping[str, Any]) -> set[str]:
    """Return the names of the variables that are not data, by their attributes and dimensions.

    ``attrs`` are the attributes of the group.
    """
    named: set[str] = set(_words_in(attrs, ("coordinates",)))
    others: set[str] = set()
    scalars: set[str] = set()
    for each in variables:
        named.update(_words_in(each.attrs, _NAMES_COORDINATES))
        others.update(_words_in(each.attrs, _NAMES_OTHERS))
        if each.dims == (each.name,):
            named.add(each.name)
        if not each.dims:
            scalars.add(each.name)
    return named | (scalars & others)


def _words_in(attrs: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    texts = (attrs[name] for name in names if isinstance(attrs.get(name), str))
    return chain.from_iterable(text.replace(":", " ").split() for text in texts)

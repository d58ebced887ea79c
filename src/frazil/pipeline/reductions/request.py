"""One call of a reduction: arrays, statistics, dimensions, groups, and the allowed targets of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xarray as xr

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.jobs.blocks import parse_bytes
from frazil.jobs.versions import Target, Version, same_storage
from frazil.pipeline.reductions.fields import Field
from frazil.pipeline.reductions.groups import Grouping, digest_of
from frazil.repository.session.session import Session

#: The options whose values are recorded unchanged, if the caller passes them.
_RECORDED: Final = ("skipna", "min_count", "ddof", "decode", "valid_range", "keep_attrs", "k")


@dataclass(frozen=True, slots=True)
class GroupingRule:
    """How the cells of an array are grouped. ``labels`` are the coordinates that `grouping_of` reads."""

    grouping_of: Callable[[Session, Field], Grouping]
    labels: tuple[str, ...] = ()


def names_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple. Raise ``InvalidInputError`` for other values.

    >>> names_of("t"), names_of(["u", "v"])
    (('t',), ('u', 'v'))
    """
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(each, str) for each in names):
        raise InvalidInputError(
            f"paths, dims and how must be text, got {given!r}", ErrorKind.INVALID_ARGUMENT
        )
    return names


def recorded_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the caller passes, for the parameters of the job."""
    """Return the options of the caller that change the result, as JSON."""
    out: dict[str, Any] = {name: value for name, value in options.items() if name in _RECORDED}
    if "q" in options:
        out["q"] = np.asarray(options["q"]).tolist()
    if "exact_below" in options:
        out["exact_below"] = parse_bytes(options["exact_below"])
    if (weights := options.get("weights")) is not None:
        out["weights"] = _recorded_weights(weights)
    return out


def _recorded_weights(weights: Any) -> Any:
    if isinstance(weights, xr.DataArray):
        return {",".join(map(str, weights.dims)): digest_of(weights.values)}
    if isinstance(weights, Mapping):
        return {dim: digest_of(np.asarray(values)) for dim, values in weights.items()}
    return weights


def target_or_group(version: Version, to: Target | None, name: str) -> Target:
    """Return the target ``to``; without it, the group ``name`` on the branch that the job reads.

    Raises ``InvalidInputError`` (``not-on-branch``) for a version that is not on a branch.
    """
    if to is not None:
        if not isinstance(to, Target):
            raise wrong_type("to", to, "Target", "None")
        return to
    if version.branch is None:
        raise InvalidInputError(
            "to must be a target if the source is not on a branch, got None. Pass "
            "`to=Target(repo, branch, group)`",
            ErrorKind.NOT_ON_BRANCH,
        )
    return Target(version.repo, version.branch, f"/{name}")


def require_free_targets(
    version: Version, target: Target, writes: Sequence[str], fields: Sequence[Field]
) -> None:
    """Raise ``InvalidInputError`` if a result would replace an array that it is computed from."""
    if len(set(writes)) < len(writes):
        raise InvalidInputError(
            f"Each result must have its own path, got {', '.join(writes)}", ErrorKind.CONFLICTING_ARGUMENTS
        )
    same = sorted({field.path for field in fields} & set(writes)) if same_storage(version, target) else []
    if same:
        raise InvalidInputError(
            f"to must not contain arrays that the job reads, got `{same[0]}` in both. Pass another group, "
            f"`to=Target(repo, group='/{target.group.strip('/') or 'results'}')`",
            ErrorKind.CONFLICTING_ARGUMENTS,
        )

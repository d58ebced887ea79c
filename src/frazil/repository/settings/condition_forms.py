"""The saved forms of conditions: which manifests to preload, how to split them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frazil.repository.settings.conditions import (
    ManifestPreloadCondition,
    ManifestSplitDimCondition,
    PreloadAnd,
    PreloadFalse,
    PreloadNameMatches,
    PreloadNumRefs,
    PreloadOr,
    PreloadPathMatches,
    PreloadTrue,
    SplitAnd,
    SplitAnyArray,
    SplitNameMatches,
    SplitOr,
    SplitPathMatches,
)
from frazil.repository.settings.forms import (
    Form,
    Variant,
    as_list,
    as_map,
    as_text,
    single_field,
    unexpected,
    variants,
)


def regex_condition(build: Callable[[str], Any]) -> Form:
    """Return the form of a condition with a regular expression."""
    return Form(
        lambda value: {"regex": value.regex},
        lambda value: build(as_text(as_map(value).get("regex"))),
    )


def several_conditions(build: Callable[[tuple[Any, ...]], Any], one: Callable[[], Form]) -> Form:
    """Return the form of a condition that combines several conditions."""
    return Form(
        lambda value: [one().write(condition) for condition in value.conditions],
        lambda value: build(tuple(one().read(condition) for condition in as_list(value))),
    )


def _read_bound(side: Any, tag: str) -> int | None:
    """Read one end of a range.

    Frazil writes a range with an included start and an excluded end, and reads other ranges as well.
    """
    if side == "Unbounded":
        return None
    if isinstance(side, dict) and len(side) == 1:
        side_tag, number = next(iter(side.items()))
        if side_tag in ("Included", "Excluded") and isinstance(number, int):
            bound: int = number + int(side_tag != tag)
            return bound
    raise unexpected(f"expected Unbounded, Included or Excluded, got {side!r:.80}")


NUM_REFS: Final = Form(
    lambda value: {
        "from": "Unbounded" if value.from_refs is None else Variant(Included=value.from_refs),
        "to": "Unbounded" if value.to_refs is None else Variant(Excluded=value.to_refs),
    },
    lambda value: ManifestPreloadCondition.num_refs(
        _read_bound(as_map(value).get("from"), "Included"), _read_bound(value.get("to"), "Excluded")
    ),
)

PRELOAD_CONDITION: Final[Form] = variants(
    {
        "or": (PreloadOr, several_conditions(PreloadOr, lambda: PRELOAD_CONDITION)),
        "and": (PreloadAnd, several_conditions(PreloadAnd, lambda: PRELOAD_CONDITION)),
        "path_matches": (PreloadPathMatches, regex_condition(PreloadPathMatches)),
        "name_matches": (PreloadNameMatches, regex_condition(PreloadNameMatches)),
        "num_refs": (PreloadNumRefs, NUM_REFS),
        "true": (PreloadTrue, None),
        "false": (PreloadFalse, None),
    }
)

SPLIT_CONDITION: Final[Form] = variants(
    {
        "or": (SplitOr, several_conditions(SplitOr, lambda: SPLIT_CONDITION)),
        "and": (SplitAnd, several_conditions(SplitAnd, lambda: SPLIT_CONDITION)),
        "path_matches": (SplitPathMatches, regex_condition(SplitPathMatches)),
        "name_matches": (SplitNameMatches, regex_condition(SplitNameMatches)),
        "any_array": (SplitAnyArray, None),
    }
)

DIM_CONDITION: Final = variants(
    {
        "Axis": (ManifestSplitDimCondition.Axis, single_field(ManifestSplitDimCondition.Axis, "axis")),
        "DimensionName": (
            ManifestSplitDimCondition.DimensionName,
            Form(
                lambda value: value.regex,
                lambda value: ManifestSplitDimCondition.DimensionName(as_text(value)),
            ),
        ),
        "Any": (ManifestSplitDimCondition.Any, None),
    }
)


def _write_dim(pair: tuple[Any, int]) -> dict[str, Any]:
    condition, size = pair
    return {"condition": DIM_CONDITION.write(condition), "num_chunks": size}


def _read_dim(value: Any) -> tuple[Any, Any]:
    size = as_map(value)
    return DIM_CONDITION.read(size.get("condition")), size.get("num_chunks")


def _read_rule(value: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    rule = as_list(value)
    if len(rule) != 2:
        raise unexpected(f"expected a condition and a list of sizes, got {len(rule)} values")
    return SPLIT_CONDITION.read(rule[0]), [_read_dim(size) for size in as_list(rule[1])]


SPLIT_SIZES: Final = Form(
    lambda rules: [
        [SPLIT_CONDITION.write(array), [_write_dim(size) for size in sizes]] for array, sizes in rules
    ],
    lambda value: [_read_rule(rule) for rule in as_list(value)],
)

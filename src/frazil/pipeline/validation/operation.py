"""`validate`: the driver checks rules about metadata, tasks summarize the values of arrays in one pass."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.answers.conditions import ALWAYS, Predicate, ValueComparison, ValueRanges, joined, parse
from frazil.answers.kernels import STATISTICS, Kernel, Partial, Tiles, cells, combine_partials, empty_partial
from frazil.answers.tiles import Box
from frazil.arguments import misfit
from frazil.cf import Coding, coding_of
from frazil.cf_times import Mask
from frazil.errors import IcechunkError, InternalError, InvalidInputError, NodeNotFoundError
from frazil.handle.repository import Repository
from frazil.jobs.blocks import Limits, blocks, regular_grid, slabs
from frazil.jobs.engine import Engine, EngineName, engine_of, task_bytes
from frazil.jobs.job import Source, Version
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    Field,
    coordinate,
    coordinates_of,
    dimensions,
    open_array,
    open_field,
    region_plan,
)
from frazil.pipeline.validation.rules import (
    Condition,
    Dims,
    DType,
    Finite,
    Monotonic,
    NanShare,
    Range,
    Report,
    Row,
    Rule,
    StatisticsAgainst,
    Units,
    require_sound,
    rules_from,
)
from frazil.repository.session.session import Session

#: The condition that a value is neither NaN nor missing.
_NO_NAN: Final = ValueComparison("=", math.nan, negated=True, nan_is_largest=True)
#: Integers up to this one are floating-point numbers too.
_MOST_EXACT: Final = 1 << 53
_STD: Final = STATISTICS["std"].kernel(np.dtype(np.float64), False, 0, None)
#: The extremes of values of any type, as numbers of Python.
_EXTREMES: Final = tuple(STATISTICS[name].kernel(np.dtype(object), False, 0, None) for name in ("min", "max"))
_SINGLE: Final = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class Offence:
    """The first value in the order of the array that breaks a limit, and the number of such values."""

    count: int = 0
    index: tuple[int, ...] = ()
    value: int | float = np.nan


@dataclass(frozen=True, slots=True)
class Limit:
    """A condition on decoded values; other values are offences.

    ``is_share``: offences are allowed up to a share, so that chunks whose statistics count them need not be
    read.
    """

    condition: Predicate
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class ValueSummary:
    """The summary of some values.

    ``nan`` of ``size`` values are NaN. ``moments`` are those of finite values, ``extremes`` those of all
    values that are not NaN.
    """

    size: int
    nan: int
    moments: Partial
    extremes: tuple[Partial, ...]
    offences: tuple[Offence, ...]

    @property
    def mean(self) -> float:
        """The mean of the finite values, NaN without any."""
        return float(self.moments.fields[2][0]) if self.moments.fields[0][0] else np.nan

    @property
    def std(self) -> float:
        """The standard deviation of the finite values, NaN without any."""
        return float(_STD.finish_fields(self.moments.fields)[0])

    @property
    def range(self) -> str:
        """The smallest and the largest value, as a text. Integers are exact."""
        pairs = zip(_EXTREMES, self.extremes, strict=True)
        return " to ".join(str(kernel.finish_fields(part.fields).tolist()[0]) for kernel, part in pairs)


def summarize_block(values: NDArray[Any], null: Mask | None, offences: tuple[Offence, ...]) -> ValueSummary:
    """Return the summary of a block of an array, with its offences. ``null`` are the missing values."""
    flat = values.ravel()
    missing = np.zeros(flat.shape, np.bool_) if null is None else null.ravel().copy()
    if flat.dtype.kind == "f":
        missing |= np.isnan(flat)
    finite = np.isfinite(flat) & ~missing if flat.dtype.kind == "f" else ~missing
    moments = _partial(_STD, flat[finite])
    extremes = tuple(_partial(kernel, flat[~missing]) for kernel in _EXTREMES)
    return ValueSummary(len(flat), int(missing.sum()), moments, extremes, offences)


def _partial(kernel: Kernel, values: NDArray[Any]) -> Partial:
    return kernel.partial_of(cells(values)) if len(values) else empty_partial(kernel, _SINGLE, ())


def combine_summaries(a: ValueSummary, b: ValueSummary) -> ValueSummary:
    """Return the summary of the values of both."""
    offences = []
    for pair in zip(a.offences, b.offences, strict=True):
        first = min((each for each in pair if each.count), key=lambda each: each.index, default=Offence())
        offences.append(replace(first, count=sum(each.count for each in pair)))
    return ValueSummary(
        a.size + b.size,
        a.nan + b.nan,
        combine_partials(_STD, a.moments, b.moments),
        tuple(map(combine_partials, _EXTREMES, a.extremes, b.extremes)),
        tuple(offences),
    )


@dataclass(frozen=True, slots=True)
class ArrayScan:
    """An array to scan, and the limits of its values."""

    session: Session
    field: Field
    limits: tuple[Limit, ...]

    @staticmethod
    def of(session: Session, path: str, limits: Sequence[Limit]) -> ArrayScan:
        """Return the scan of an array. Raises ``InvalidInputError`` if a limit does not fit its values."""
        scan = ArrayScan(session, open_field(session, path), ())
        dtype, name = scan.coding.number_dtype, f"`{scan.field.path}`"
        typed = (replace(each, condition=each.condition.typed(dtype, name=name)) for each in limits)
        return replace(scan, limits=tuple(typed))

    @property
    def coding(self) -> Coding:
        """How elements become values: times stay numbers."""
        return coding_of(self.field.attributes, self.field.raw, times=False)

    def summary(self, raw: NDArray[Any], start: Sequence[int]) -> ValueSummary:
        """Return the summary of a block of elements that starts at ``start``."""
        values, null = self.coding.decode(raw)
        offences = tuple(
            _first_offence(values, null, ~each.condition.holds(values, null), start) for each in self.limits
        )
        return summarize_block(values, null, offences)

    def exact_extremes(
        self, low: NDArray[Any], high: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], Mask]:
        """Return decoded extremes of chunks in the type of the values, and where they are exact."""
        dtype = self.coding.number_dtype
        is_exact = np.ones(low.shape, np.bool_)
        if dtype.kind in "iu" and low.dtype.kind == "f":  # integers that can be missing
            is_exact = (np.abs(low) < _MOST_EXACT) & (np.abs(high) < _MOST_EXACT)
            low, high = (np.where(is_exact, each, 0).astype(dtype) for each in (low, high))
        return low, high, is_exact

    def proven(
        self, low: NDArray[Any], high: NDArray[Any], is_exact: Mask, count: NDArray[Any], gaps: NDArray[Any]
    ) -> Mask:
        """Return which chunks keep all limits, by their extremes and the numbers of values and of NaN.

        NaN is also a missing value here.
        """
        ranges = ValueRanges(low, high, count > 0, gaps > 0, gaps > 0, is_exact)
        rules = (each.condition for each in self.limits if not each.is_share)
        return joined([ALWAYS, *rules], is_all=True).must_hold(ranges)


def _first_offence(
    values: NDArray[Any], null: Mask | None, is_offence: Mask, start: Sequence[int]
) -> Offence:
    """Return the first offence among the values of a block, and their number."""
    count = int(np.count_nonzero(is_offence))
    if not count:
        return Offence()
    position = np.unravel_index(int(np.argmax(is_offence)), values.shape)
    index = tuple(int(at) + int(low) for at, low in zip(position, start, strict=True))
    return Offence(count, index, np.nan if null is not None and null[position] else values[position].item())


def scan_arrays(scans: Sequence[ArrayScan], engine: Engine, *, task: int, block: int) -> list[ValueSummary]:
    """Scan all arrays, by tasks of about ``task`` bytes that read about ``block`` bytes at once."""
    items: list[bytes] = []
    numbers: list[int] = []
    for number, scan in enumerate(scans):
        field = scan.field
        size = math.prod(field.shape) * field.raw.itemsize
        starts, stops = blocks(field.shape, field.grid, field.raw.itemsize, task_bytes(size, task, engine))
        corners = zip(starts.tolist(), stops.tolist(), strict=True)
        array_items = [pickle.dumps((number, start, stop, block)) for start, stop in corners]
        items += array_items
        numbers += [number] * len(array_items)
    summaries: dict[int, ValueSummary] = {}
    results = engine.run(scan_block, items, pickle.dumps(tuple(scans))) if items else iter(())
    for number, result in zip(numbers, results, strict=True):
        summary: ValueSummary = pickle.loads(result)
        summaries[number] = combine_summaries(summaries[number], summary) if number in summaries else summary
    empty = [summarize_block(np.zeros((0,)), None, (Offence(),) * len(scan.limits)) for scan in scans]
    return [summaries.get(number, empty[number]) for number in range(len(scans))]


def scan_block(shared: bytes, item: bytes) -> bytes:
    """Summarize one block, which is read in pieces of bounded size: the task."""
    number, start, stop, size = pickle.loads(item)
    scan = _scans(shared)[number]
    array = open_array(scan.session, scan.field.path)
    shape = tuple(np.subtract(stop, start).tolist())
    columns = (
        (column + np.array(start, np.int64)).tolist()
        for column in blocks(shape, scan.field.grid, scan.field.raw.itemsize, size)
    )
    pieces = [tuple(zip(low, high, strict=True)) for low, high in zip(*columns, strict=True)]
    summary, unread = _known_summary(scan, tuple(zip(start, stop, strict=True)), pieces)
    for piece in unread:
        raw = np.asarray(array[tuple(slice(*side) for side in piece)])
        for slab in slabs(raw.shape, raw.itemsize):
            slab_start = [low + inside.start for (low, _), inside in zip(piece, slab, strict=True)]
            part = scan.summary(raw[slab], slab_start)
            summary = part if summary is None else combine_summaries(summary, part)
    return pickle.dumps(summary)


def _known_summary(
    scan: ArrayScan, region: Box, pieces: Sequence[Box]
) -> tuple[ValueSummary | None, Sequence[Box]]:
    """Return the summary of the chunks whose statistics prove that they keep all limits, and what is left."""
    plan = region_plan(scan.session, scan.field, region)
    if plan is None:
        return None, pieces
    low, high, is_exact = scan.exact_extremes(plan.columns["low"], plan.columns["high"])
    columns = {**plan.columns, "low": low, "high": high}
    unread = ~(plan.is_known & scan.proven(low, high, is_exact, columns["count"], columns["gaps"]))
    if unread.all():
        return None, pieces
    left = [box for piece in pieces for box in plan.boxes_to_read(unread, piece)]
    proven = ~unread
    count, nan = (int(columns[name].sum(where=proven)) for name in ("count", "gaps"))
    tiles = Tiles.of(columns, proven, plan.packing)
    extremes = tuple(kernel.partial_of_tiles(tiles) for kernel in _EXTREMES)
    offences = tuple(Offence() for _ in scan.limits)
    return ValueSummary(count + nan, nan, _STD.partial_of_tiles(tiles), extremes, offences), left


@lru_cache(maxsize=2)
def _scans(shared: bytes) -> tuple[ArrayScan, ...]:
    scans: tuple[ArrayScan, ...] = pickle.loads(shared)
    return scans


#: Whether the rule holds, what it expects, what the version has, and where the first offence is.
type Verdict = tuple[bool, str, str, str]
#: The values of an array, and the offences of the rule among them.
type ScanResult = tuple[ValueSummary, Offence]


@dataclass(frozen=True, slots=True)
class CheckedRule:
    """A rule about a version, and the results of the scans of its array and of the other version's."""

    session: Session
    rule: Any
    result: ScanResult | None = None
    other_result: ScanResult | None = None

    def array(self) -> zarr.Array[Any]:
        """Return the array of the rule. Raises ``NodeNotFoundError``."""
        return open_array(self.session, self.rule.path)

    def scanned(self) -> ScanResult:
        """Return the result of the scan. Raises as `ArrayScan.of` if the array was not scanned."""
        if self.result is None:
            ArrayScan.of(self.session, self.rule.path, [_limit_of(self.rule)])
            raise InternalError(f"`{self.rule.path}` was not scanned")
        return self.result

    def coordinate(self, end: int | None = None) -> NDArray[Any]:
        """Return the values of a coordinate up to ``end``, as stored; fill values are NaN."""
        array = self.array()
        if array.ndim != 1:
            raise misfit(f"`{self.rule.path}` must have one dimension, got {array.ndim}")
        values = np.asarray(array[slice(end)])
        if array.dtype.kind not in "biuf":
            return values
        return open_field(self.session, self.rule.path).decoded(values)

    def where(self, offence: Offence) -> str:
        """Return the index of an offence, and its labels."""
        if not offence.count:
            return ""
        field = open_field(self.session, self.rule.path)
        coordinates = coordinates_of(field, ArrayLookup(self.session), field.dims)
        labels = [
            f"{dim}={coordinate(self.session, field.parent, dim).values[at]!s}"
            for dim, at in zip(field.dims, offence.index, strict=True)
            if dim in coordinates and coordinates[dim].ndim == 1
        ]
        return ", ".join([f"index {offence.index}", *labels])


def _exists(checked: CheckedRule) -> Verdict:
    kind, path = checked.rule.kind, checked.rule.path.strip("/")
    try:
        node = zarr.open(checked.session.store, path=path, mode="r", zarr_format=3)
    except FileNotFoundError:
        return False, f"an {kind}" if kind == "array" else f"a {kind}", "nothing", ""
    actual = "array" if isinstance(node, zarr.Array) else "group"
    return actual == kind, kind, actual, ""


def _shape(checked: CheckedRule) -> Verdict:
    actual, expected = checked.array().shape, tuple(checked.rule.shape)
    ok = len(actual) == len(expected) and all(
        length is None or length == n for length, n in zip(expected, actual, strict=True)
    )
    return ok, str(expected), str(actual), ""


def _attributes(checked: CheckedRule) -> Verdict:
    expected = dict(checked.rule.attributes)
    attrs = dict(checked.array().attrs)
    actual = {name: attrs.get(name) for name in expected}
    ok = all(name in attrs and (value is None or attrs[name] == value) for name, value in expected.items())
    return ok, str(expected), str(actual), ""


def _filled(checked: CheckedRule) -> Verdict:
    array = checked.array()
    grid = regular_grid(array)
    chunks = math.prod(-(-n // max(step, 1)) for n, step in zip(array.shape, grid, strict=True))
    stored = len(checked.session.chunk_table("/" + checked.rule.path.strip("/")))
    share = stored / chunks if chunks else 1.0
    return share >= checked.rule.share, f"{checked.rule.share:.1%} of chunks", f"{stored} of {chunks}", ""


def _monotonic(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    words = f"{'strictly ' if rule.strictly else ''}{'increasing' if rule.increasing else 'decreasing'}"
    verdict: Verdict = True, words, "", ""
    # Only values show where the order ends, whatever statistics say.
    for end in dict.fromkeys((_end_of_disorder(checked), None)):
        if verdict[0]:
            values = checked.coordinate(end)
            if values.dtype.kind in "cV":
                raise _unordered(values)
            verdict = _steps_verdict(values, _in_order(rule, values[:-1], values[1:]), words)
    return verdict


def _in_order(rule: Monotonic, before: NDArray[Any], after: NDArray[Any]) -> NDArray[np.bool_]:
    # Values are compared, not subtracted: differences of large integers are not exact, strings have none.
    lower, upper = (before, after)[:: 1 if rule.increasing else -1]
    return np.asarray(lower < upper if rule.strictly else lower <= upper)


def _end_of_disorder(checked: CheckedRule) -> int | None:
    """Return the end of the first chunk whose statistics prove that the order ends in it or before it.

    Statistics prove no order, because they say nothing about the order in a chunk.
    """
    array, rule = checked.array(), checked.rule
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        return None
    field = open_field(checked.session, rule.path)
    plan = region_plan(checked.session, field, [(0, array.shape[0])])
    if plan is None:
        return None
    numbers = np.flatnonzero(plan.is_known & (plan.columns["count"] > 0))
    low, high = (plan.columns[name][numbers] for name in ("low", "high"))
    before = np.maximum.accumulate(high) if rule.increasing else np.minimum.accumulate(low)
    good = _in_order(rule, before[:-1], (low if rule.increasing else high)[1:])
    return None if good.all() else int(plan.bounds[0][1][numbers[1 + np.argmin(good)]])


def _regular(checked: CheckedRule) -> Verdict:
    rule, values = checked.rule, checked.coordinate()
    steps = _steps(values)
    step = rule.step if rule.step is not None else float(steps[0]) if len(steps) else 0.0
    return _steps_verdict(values, np.abs(steps - step) <= rule.tolerance * abs(step), f"steps of {step:g}")


def _steps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return differences, exact for integers and times."""
    if values.dtype.kind not in "biufmM":
        raise _unordered(values)
    if values.dtype.kind in "biu" and len(values):
        values = values.astype(np.uint64) - values.min().astype(np.uint64)  # modulo 2**64
        values = values.view(np.int64)
    return np.asarray(np.diff(values.view(np.int64) if values.dtype.kind in "mM" else values), np.float64)


def _unordered(values: NDArray[Any]) -> InvalidInputError:
    return misfit(f"the type {values.dtype}")


def _steps_verdict(values: NDArray[Any], good: NDArray[np.bool_], words: str) -> Verdict:
    if good.all():
        return True, words, f"{len(values)} values", ""
    at = int(np.argmin(good))
    return False, words, f"{values[at]} then {values[at + 1]}", f"index ({at + 1},)"


def _no_duplicates(checked: CheckedRule) -> Verdict:
    values = checked.coordinate()
    _, first, which, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    if (counts == 1).all():
        return True, "no duplicates", f"{len(values)} values", ""
    at = int(first[counts > 1].min())
    again = int(np.flatnonzero(which == which[at])[1])  # also for NaN
    return False, "no duplicates", f"{values[at]} at {at} and {again}", f"index ({again},)"


def _range(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    summary, offence = checked.scanned()
    expected = f"{'' if rule.min is None else rule.min} to {'' if rule.max is None else rule.max}".strip()
    actual = summary.range
    if offence.count:
        actual = f"{offence.count} outside, {actual}; first {offence.value}"
    return not offence.count, expected, actual, checked.where(offence)


def _nan_share(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    summary, offence = checked.scanned()
    share = summary.nan / summary.size if summary.size else 0.0
    ok = rule.min <= share <= rule.max
    expected = f"NaN at most {rule.max:.3%}" + (f", at least {rule.min:.3%}" if rule.min else "")
    return ok, expected, f"{share:.3%}", "" if ok else checked.where(offence)


def _finite(checked: CheckedRule) -> Verdict:
    _, offence = checked.scanned()
    expected = "finite values" + (" or NaN" if checked.rule.nan else "")
    return not offence.count, expected, f"{offence.count} others", checked.where(offence)


def _condition(checked: CheckedRule) -> Verdict:
    summary, offence = checked.scanned()
    actual = summary.range
    if offence.count:
        actual = f"{offence.count} others, {actual}; first {offence.value}"
    return not offence.count, checked.rule.holds, actual, checked.where(offence)


def _statistics(checked: CheckedRule) -> Verdict:
    rule = checked.rule
    summary, _ = checked.scanned()
    actual = f"mean {summary.mean:.6g}, std {summary.std:.6g}"
    if checked.other_result is None:
        return True, "nothing to compare with", actual, ""
    other = checked.other_result[0]
    deviations = []  # each with the largest that is allowed
    if rule.sigma is not None:
        deviations.append((abs(summary.mean - other.mean), rule.sigma * other.std))
    if rule.relative is not None:
        deviations.append((abs(summary.mean - other.mean), rule.relative * abs(other.mean)))
        deviations.append((abs(summary.std - other.std), rule.relative * other.std))
    limits = [] if rule.sigma is None else [f"{rule.sigma:g} sigma"]
    limits += [] if rule.relative is None else [f"{rule.relative:.1%}"]
    expected = f"mean {other.mean:.6g}, std {other.std:.6g} within {' and '.join(limits)}"
    # NaN in both versions is equal; NaN in only one is not.
    same = math.isnan(summary.mean) == math.isnan(other.mean)
    return same and not any(deviation > most for deviation, most in deviations), expected, actual, ""


def _equal(checked: CheckedRule) -> Verdict:
    expected, actual = EQUALITIES[type(checked.rule)](checked.rule, checked.array())
    return actual == expected, str(expected), str(actual), ""


#: What a rule expects, and what an array has, for rules about equal values.
EQUALITIES: Final[Mapping[type, Callable[[Any, zarr.Array[Any]], tuple[Any, Any]]]] = {
    DType: lambda rule, array: (np.dtype(rule.dtype), array.dtype),
    Dims: lambda rule, array: (tuple(rule.dims), dimensions(array)),
    Units: lambda rule, array: (rule.units, array.attrs.get("units")),
}

#: The check of each kind of rule.
CHECKS: Final[Mapping[str, Callable[[CheckedRule], Verdict]]] = {
    "Exists": _exists,
    "Shape": _shape,
    "DType": _equal,
    "Dims": _equal,
    "Units": _equal,
    "Attributes": _attributes,
    "Filled": _filled,
    "Monotonic": _monotonic,
    "Regular": _regular,
    "NoDuplicates": _no_duplicates,
    "Range": _range,
    "Condition": _condition,
    "NanShare": _nan_share,
    "Finite": _finite,
    "StatisticsAgainst": _statistics,
}


def validate(
    source: Source,
    rules: Sequence[Rule] | str | Path,
    *,
    against: Source | None = None,
    engine: Engine | EngineName | None = None,
    limits: Limits | None = None,
) -> Report:
    """Check rules about a version, without writing.

    If an array does not exist, all rules about it fail. Rules about the values of one array are checked in
    one pass over the array.

    Args:
        source: The `Repository` (the tip of its branch ``main``) or the `Version` to check.
        rules: A sequence of rules, or rules in YAML or JSON as a text or a file, see `rules_from`.
        against: The version that `StatisticsAgainst` compares with if the rule does not name one. The
            default, None, is the parent snapshot of the source.
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"threads"``, ``"processes"``, ``"spark"`` or
            ``"sail"``. The default, None, is Spark where Spark is in use, else processes of this machine
            (`default_engine`).
        limits: `Limits`, in bytes: how much a task reads. The default, None, is ``Limits()``.

    Returns:
        The `Report`, with one row for each rule.

    Raises:
        InvalidInputError: A rule is not a rule, or has a value of another type, such as ``Range("/t", "0")``
            (``invalid-argument``).

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Range, validate
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> with repo.transaction("main", message="temperature") as store:
        ...     t = zarr.create_array(store, name="t", data=np.array([280.0, 290.0, 999.0]), chunks=(2,),
        ...                           dimension_names=("time",))
        >>> report = validate(repo, [Range("/t", 180, 340)], engine="inline")
        >>> report.ok, report.rows[0].found, report.rows[0].where
        (False, '1 outside, 280.0 to 999.0; first 999.0', 'index (2,)')
    """
    version = Version.of(source)
    all_rules = tuple(rules_from(rules) if isinstance(rules, str | Path) else map(require_sound, rules))
    other = partial(_other_session, version, against)
    return Report(version.snapshot_id, check_rules(version.session(), all_rules, other, engine, limits))


def check_rules(
    session: Session,
    rules: Sequence[Rule],
    other_of: Callable[[str | None], Session | None] = lambda name: None,
    engine: Engine | EngineName | None = None,
    limits: Limits | None = None,
) -> tuple[Row, ...]:
    """Return a row for each rule about a session that can be pickled: see `validate`.

    ``other_of`` returns the session that a rule compares with, by the version that the rule names.
    """
    arrays: dict[_ArrayKey, tuple[Session, list[Limit]]] = {}  # each version of an array is scanned once
    places: dict[_RuleKey, tuple[_ArrayKey, int]] = {}
    for number, rule in enumerate(rules):
        compared = [session] if isinstance(rule, _VALUE_RULES) and _is_scanned(session, rule) else []
        if compared and isinstance(rule, StatisticsAgainst):
            other = other_of(rule.against)
            compared += [other] if other is not None and _is_scanned(other, rule) else []
        for is_other, each in enumerate(compared):
            key = (each.snapshot_id, rule.path.strip("/"))
            of_array = arrays.setdefault(key, (each, []))[1]
            places[number, bool(is_other)] = (key, len(of_array))
            of_array.append(_limit_of(rule))
    bounds = limits or Limits()
    scans = [ArrayScan.of(each, path, of_array) for (_, path), (each, of_array) in arrays.items()]
    engine = engine_of(engine) if scans else None
    summaries = [] if engine is None else scan_arrays(scans, engine, task=bounds.task, block=bounds.block)
    by_array = dict(zip(arrays, summaries, strict=True))
    results = {key: (by_array[array], by_array[array].offences[at]) for key, (array, at) in places.items()}
    # Chunks with NaN are read only if a report must say where the first one is.
    unplaced = [
        (key, arrays[array][0], rule)
        for key, (array, _) in places.items()
        if isinstance(rule := rules[key[0]], NanShare)
        and not _nan_share(CheckedRule(session, rule, (by_array[array], Offence())))[0]
        and results[key][1].count < by_array[array].nan
    ]
    if engine is not None and unplaced:
        scans = [ArrayScan.of(each, rule.path, [Limit(_NO_NAN)]) for _, each, rule in unplaced]
        summaries = scan_arrays(scans, engine, task=bounds.task, block=bounds.block)
        results |= {
            key: (results[key][0], summary.offences[0])
            for (key, _, _), summary in zip(unplaced, summaries, strict=True)
        }
    return tuple(
        _row(CheckedRule(session, rule, results.get((number, False)), results.get((number, True))))
        for number, rule in enumerate(rules)
    )


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """Rules as the check of a version, for `Repository.history.bisect`. Each check runs in this process.

    Attributes:
        repo: The `Repository`.
        rules: The rules.

    Examples:
        >>> import frazil, numpy as np, zarr
        >>> from frazil.pipeline import Range, RuleCheck
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> for name, value in (("good", 280.0), ("bad", 999.0)):
        ...     with repo.transaction("main", message=name) as store:
        ...         array = zarr.create_array(store, name="t", data=np.array([value]), overwrite=True)
        >>> check = RuleCheck(repo, [Range("/t", 180, 340)])
        >>> good = list(repo.ancestry(branch="main"))[1].id
        >>> repo.history.bisect(check, good=good).first_bad.message
        'bad'
    """

    repo: Repository
    rules: Sequence[Rule]

    @property
    def paths(self) -> tuple[str, ...]:
        """The nodes that decide. Empty if a rule compares versions: its answer can always change."""
        compares = any(isinstance(rule, StatisticsAgainst) for rule in self.rules)
        return () if compares else tuple(rule.path for rule in self.rules)

    def __call__(self, session: Session) -> Report:
        """Return the report of one version."""
        return validate(Version.of(self.repo, snapshot_id=session.snapshot_id), self.rules, engine="inline")


def _other_session(version: Version, against: Source | None, name: str | None) -> Session | None:
    """Return the session that a rule compares with: of its branch, tag or snapshot, or of ``against``."""
    repo = version.repo
    if name is not None:
        if name in repo.list_branches():
            return repo.readonly_session(name)
        is_tag = name in repo.list_tags()
        return repo.readonly_session(tag=name) if is_tag else repo.readonly_session(snapshot_id=name)
    if against is not None:
        return Version.of(against).session()
    parent = repo.lookup_snapshot(version.snapshot_id).parent_id
    return None if parent is None else repo.readonly_session(snapshot_id=parent)


#: Rules about values.
_VALUE_RULES: Final = (Range, Condition, NanShare, Finite, StatisticsAgainst)
#: An array of a version: snapshot id and path.
type _ArrayKey = tuple[str, str]
#: The number of a rule, and whether the array is that of the other version.
type _RuleKey = tuple[int, bool]


def _is_scanned(session: Session, rule: Rule) -> bool:
    try:
        ArrayScan.of(session, rule.path, [_limit_of(rule)])
    except IcechunkError:  # the row of the rule has the message
        return False
    return True


def _limit_of(rule: Rule) -> Limit:
    if isinstance(rule, Range):
        limits = ((">", rule.max), ("<", rule.min))
        bounds = [ValueComparison(op, +value, negated=True) for op, value in limits if value is not None]
        inside = joined(bounds, is_all=True) if bounds else ALWAYS
        return Limit(joined([inside, ValueComparison("null")], is_all=False))
    if isinstance(rule, Condition):
        return Limit(parse(rule.holds))
    if isinstance(rule, Finite):
        is_finite = ValueComparison("in", (math.inf, -math.inf), negated=True)
        other = ValueComparison("null") if rule.nan else _NO_NAN
        return Limit(joined([is_finite, other], is_all=not rule.nan))
    is_share = isinstance(rule, NanShare)
    return Limit(_NO_NAN if is_share else ALWAYS, is_share)


def _row(rule: CheckedRule) -> Row:
    """Return the row of a rule. A rule fails if its array does not exist or does not fit the rule."""
    name, path = type(rule.rule).__name__, "/" + rule.rule.path.strip("/")
    try:
        ok, expected, actual, where = CHECKS[name](rule)
    except InternalError:
        raise
    except NodeNotFoundError:
        return Row(name, path, False, "an array", "none")
    except IcechunkError as error:
        return Row(name, path, False, "an array that fits the rule", error.message)
    return Row(name, path, ok, expected, actual, where)

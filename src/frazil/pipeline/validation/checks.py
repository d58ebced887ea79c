"""Checking rules: what needs metadata on the driver, what needs data in one pass on the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.errors import ErrorKind, IcechunkError, InvalidInputError, NotFoundError
from frazil.jobs.blocks import regular_grid
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.engines import engine_of
from frazil.jobs.memory import Limits
from frazil.jobs.versions import Source, Version
from frazil.pipeline.reductions.fields import (
    ArrayLookup,
    coordinate,
    coordinates_of,
    dimensions,
    open_array,
    open_field,
)
from frazil.pipeline.validation.report import Report, Row
from frazil.pipeline.validation.rules import (
    Attributes,
    Dims,
    DType,
    Exists,
    Filled,
    Finite,
    Monotonic,
    NanShare,
    NoDuplicates,
    Range,
    Regular,
    Rule,
    Shape,
    StatisticsAgainst,
    Units,
    require_sound,
    rules_from,
)
from frazil.pipeline.validation.scan import Limit, Offence, Pass, Seen, look_at
from frazil.repository.session.session import Session

type Verdict = tuple[bool, str, str, str]  # ok, expected, found, where


def validate(
    source: Source,
    rules: Sequence[Rule] | str | Path,
    *,
    against: Source | None = None,
    engine: Engine | EngineName | None = None,
    limits: Limits | None = None,
) -> Report:
    """Check rules; nothing is written. Rules in YAML or JSON are taken too: see `rules_from`.

    ``against``: the version that `StatisticsAgainst` compares with where the rule names none; the version
    before the source's unless told. An array that is not there fails all rules about it. Raises
    ``InvalidInputError`` for what is no rule, or makes no sense (``Range("/t", "0")``).

    >>> import frazil, numpy as np, zarr
    >>> from frazil.spark import Inline, Range, validate
    >>> repo = frazil.Repository.create(frazil.in_memory_storage())
    >>> with repo.transaction("main", message="temperature") as store:
    ...     t = zarr.create_array(store, name="t", data=np.array([280.0, 290.0, 999.0]), chunks=(2,),
    ...                           dimension_names=("time",))
    >>> report = validate(repo, [Range("/t", 180, 340)], engine=Inline())
    >>> report.ok, report.rows[0].found, report.rows[0].where
    (False, '1 outside, 280.0 to 999.0; first 999.0', 'index (2,)')
    """
    version = Version.of(source)
    session = version.session()
    wanted = tuple(rules_from(rules) if isinstance(rules, str | Path) else map(require_sound, rules))
    before = _against(version, against)
    passes, place = _passes(session, wanted, before)
    sizes = limits or Limits()
    seen = look_at(passes, engine_of(engine), task=sizes.task, block=sizes.block) if passes else []
    known = {key: (number_limit[1], seen[number_limit[0]]) for key, number_limit in place.items()}
    rows = tuple(_row(session, rule, number, known) for number, rule in enumerate(wanted))
    return Report(version.snapshot_id, rows)


def _against(version: Version, given: Source | None) -> Callable[[str | None], Session | None]:
    """The session that a rule compares with."""

    def find(name: str | None) -> Session | None:
        if name is not None:
            repo = version.repo
            if name in repo.list_branches():
                return repo.readonly_session(name)
            if name in repo.list_tags():
                return repo.readonly_session(tag=name)
            return repo.readonly_session(snapshot_id=name)
        if given is not None:
            return Version.of(given).session()
        parent = version.repo.lookup_snapshot(version.snapshot_id).parent_id
        return None if parent is None else version.repo.readonly_session(snapshot_id=parent)

    return find


_DATA: Final = (Range, NanShare, Finite, StatisticsAgainst)
#: (rule's number, is it the other version) -> (which of the limits, what was seen)
type Known = Mapping[tuple[int, bool], tuple[int, Seen]]


def _passes(
    session: Session, rules: Sequence[Rule], before: Callable[[str | None], Session | None]
) -> tuple[list[Pass], dict[tuple[int, bool], tuple[int, int]]]:
    """One pass for each array and version, and for each rule which pass and which of its limits."""
    limits: dict[tuple[str, str], list[Limit]] = {}
    sessions: dict[tuple[str, str], Session] = {}
    place: dict[tuple[int, bool], tuple[tuple[str, str], int]] = {}
    for number, rule in enumerate(rules):
        if not isinstance(rule, _DATA) or not _is_numbers(session, rule.path):
            continue
        wanted = [(False, session)]
        if isinstance(rule, StatisticsAgainst):
            other = before(rule.against)
            if other is not None and _is_numbers(other, rule.path):
                wanted.append((True, other))
        for is_other, which in wanted:
            key = (which.snapshot_id, rule.path.strip("/"))
            sessions[key] = which
            mine = limits.setdefault(key, [])
            place[number, is_other] = (key, len(mine))
            mine.append(_limit(rule))
    keys = list(limits)
    numbers = {key: number for number, key in enumerate(keys)}
    passes = [Pass(sessions[key], open_field(sessions[key], key[1]), tuple(limits[key])) for key in keys]
    return passes, {which: (numbers[key], limit) for which, (key, limit) in place.items()}


def _is_numbers(session: Session, path: str) -> bool:
    try:
        open_field(session, path)
    except IcechunkError:  # its rules fail, with these words
        return False
    return True


def _limit(rule: Rule) -> Limit:
    if isinstance(rule, Range):
        low = -math.inf if rule.min is None else rule.min
        return Limit(low, math.inf if rule.max is None else rule.max)
    if isinstance(rule, Finite):
        return Limit(infinite=True, nan=not rule.nan)
    return Limit(nan=isinstance(rule, NanShare))


def _row(session: Session, rule: Rule, number: int, known: Known) -> Row:
    name, path = type(rule).__name__, "/" + rule.path.strip("/")
    try:
        check = _CHECKS[type(rule)]
        ok, expected, found, where = check(_Case(session, rule, number, known))
    except NotFoundError as error:
        itself = error.message == f"expected an array at `{path}`, found none"
        return Row(name, path, False, "an array", "none" if itself else f"none: {error.message}")
    except IcechunkError as error:
        return Row(name, path, False, "an array of numbers", error.message)
    return Row(name, path, ok, expected, found, where)


@dataclass(frozen=True, slots=True)
class _Case:
    session: Session
    rule: Any
    number: int
    known: Known

    def array(self) -> zarr.Array[Any]:
        return open_array(self.session, self.rule.path)

    def seen(self) -> tuple[Seen, Offence]:
        """What the pass found. Raises as `open_field` where there was none."""
        found = self.known.get((self.number, False))
        if found is None:
            open_field(self.session, self.rule.path)
            raise NotFoundError(f"`{self.rule.path}` was not looked at")
        limit, seen = found
        return seen, seen.offences[limit]

    def coordinate(self) -> NDArray[Any]:
        """The values of a coordinate, as stored; fill values are NaN."""
        array = self.array()
        if array.ndim != 1:
            raise NotFoundError(f"expected one dimension at `{self.rule.path}`, found {array.ndim}")
        if array.dtype.kind not in "biuf":
            return np.asarray(array[...])
        return open_field(self.session, self.rule.path).decoded(np.asarray(array[...]))

    def where(self, offence: Offence) -> str:
        """An index, and the labels that the coordinates have there."""
        if not offence.count:
            return ""
        field = open_field(self.session, self.rule.path)
        there = coordinates_of(field, ArrayLookup(self.session), field.dims)
        labels = [
            f"{dim}={coordinate(self.session, field.parent, dim).values[at]!s}"
            for dim, at in zip(field.dims, offence.index, strict=True)
            if dim in there and there[dim].ndim == 1
        ]
        return ", ".join([f"index {offence.index}", *labels])


def _exists(case: _Case) -> Verdict:
    kind, path = case.rule.kind, case.rule.path.strip("/")
    try:
        node = zarr.open(case.session.store, path=path, mode="r", zarr_format=3)
    except FileNotFoundError:
        return False, f"an {kind}" if kind == "array" else f"a {kind}", "nothing", ""
    found = "array" if isinstance(node, zarr.Array) else "group"
    return found == kind, kind, found, ""


def _shape(case: _Case) -> Verdict:
    found, expected = case.array().shape, tuple(case.rule.shape)
    ok = len(found) == len(expected) and all(
        want is None or want == have for want, have in zip(expected, found, strict=True)
    )
    return ok, str(expected), str(found), ""


def _dtype(case: _Case) -> Verdict:
    found = case.array().dtype
    return found == np.dtype(case.rule.dtype), str(np.dtype(case.rule.dtype)), str(found), ""


def _dims(case: _Case) -> Verdict:
    found = dimensions(case.array())
    return found == tuple(case.rule.dims), str(tuple(case.rule.dims)), str(found), ""


def _units(case: _Case) -> Verdict:
    found = case.array().attrs.get("units")
    return found == case.rule.units, case.rule.units, str(found), ""


def _attributes(case: _Case) -> Verdict:
    expected = dict(case.rule.attributes)
    there = dict(case.array().attrs)
    found = {name: there.get(name) for name in expected}
    ok = all(name in there and (value is None or there[name] == value) for name, value in expected.items())
    return ok, str(expected), str(found), ""


def _filled(case: _Case) -> Verdict:
    array = case.array()
    grid = regular_grid(array)
    chunks = math.prod(-(-n // max(step, 1)) for n, step in zip(array.shape, grid, strict=True))
    there = len(case.session.chunk_table("/" + case.rule.path.strip("/")))
    share = there / chunks if chunks else 1.0
    return share >= case.rule.share, f"{case.rule.share:.1%} of chunks", f"{there} of {chunks}", ""


def _monotonic(case: _Case) -> Verdict:
    rule, values = case.rule, case.coordinate()
    # No differences: those of large integers are not exact as floats, strings have none.
    smaller, larger = (values[:-1], values[1:])[:: 1 if rule.increasing else -1]
    if values.dtype.kind in "cV":
        raise _without_order(values)
    good = np.asarray(smaller < larger if rule.strictly else smaller <= larger)
    words = f"{'strictly ' if rule.strictly else ''}{'increasing' if rule.increasing else 'decreasing'}"
    return _of_steps(values, good, words)


def _regular(case: _Case) -> Verdict:
    rule, values = case.rule, case.coordinate()
    steps = _steps(values)
    step = rule.step if rule.step is not None else float(steps[0]) if len(steps) else 0.0
    return _of_steps(values, np.abs(steps - step) <= rule.tolerance * abs(step), f"steps of {step:g}")


def _steps(values: NDArray[Any]) -> NDArray[np.float64]:
    """Differences, exact for integers and times."""
    if values.dtype.kind not in "biufmM":
        raise _without_order(values)
    if values.dtype.kind in "biu" and len(values):
        values = values.astype(np.uint64) - values.min().astype(np.uint64)  # modulo 2**64
        values = values.view(np.int64)
    return np.asarray(np.diff(values.view(np.int64) if values.dtype.kind in "mM" else values), np.float64)


def _without_order(values: NDArray[Any]) -> InvalidInputError:
    return InvalidInputError(f"the type {values.dtype}", ErrorKind.INVALID_ARRAY_METADATA)


def _of_steps(values: NDArray[Any], good: NDArray[np.bool_], words: str) -> Verdict:
    if good.all():
        return True, words, f"{len(values)} values", ""
    at = int(np.argmin(good))
    return False, words, f"{values[at]} then {values[at + 1]}", f"index ({at + 1},)"


def _no_duplicates(case: _Case) -> Verdict:
    values = case.coordinate()
    _, first, which, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    if (counts == 1).all():
        return True, "no duplicates", f"{len(values)} values", ""
    at = int(first[counts > 1].min())
    again = int(np.flatnonzero(which == which[at])[1])  # NaN too
    return False, "no duplicates", f"{values[at]} at {at} and {again}", f"index ({again},)"


def _range(case: _Case) -> Verdict:
    rule = case.rule
    seen, offence = case.seen()
    expected = f"{'' if rule.min is None else rule.min} to {'' if rule.max is None else rule.max}".strip()
    found = f"{seen.least} to {seen.most}"
    if offence.count:
        found = f"{offence.count} outside, {found}; first {offence.value}"
    return not offence.count, expected, found, case.where(offence)


def _nan_share(case: _Case) -> Verdict:
    rule = case.rule
    seen, offence = case.seen()
    share = seen.nan / seen.size if seen.size else 0.0
    ok = rule.min <= share <= rule.max
    expected = f"NaN at most {rule.max:.3%}" + (f", at least {rule.min:.3%}" if rule.min else "")
    return ok, expected, f"{share:.3%}", "" if ok else case.where(offence)


def _finite(case: _Case) -> Verdict:
    _, offence = case.seen()
    expected = "finite values" + (" or NaN" if case.rule.nan else "")
    return not offence.count, expected, f"{offence.count} others", case.where(offence)


def _statistics(case: _Case) -> Verdict:
    rule = case.rule
    seen, _ = case.seen()
    other = case.known.get((case.number, True))
    found = f"mean {seen.mean:.6g}, std {seen.std:.6g}"
    if other is None:
        return True, "nothing to compare with", found, ""
    was = other[1]
    allowed = []
    if rule.sigma is not None:
        allowed.append((abs(seen.mean - was.mean), rule.sigma * was.std))
    if rule.relative is not None:
        allowed.append((abs(seen.mean - was.mean), rule.relative * abs(was.mean)))
        allowed.append((abs(seen.std - was.std), rule.relative * was.std))
    limits = [] if rule.sigma is None else [f"{rule.sigma:g} sigma"]
    limits += [] if rule.relative is None else [f"{rule.relative:.1%}"]
    expected = f"mean {was.mean:.6g}, std {was.std:.6g} within {' and '.join(limits)}"
    # NaN on both sides is the same; NaN on one is not.
    same = math.isnan(seen.mean) == math.isnan(was.mean)
    return same and not any(off > most for off, most in allowed), expected, found, ""


_CHECKS: Final[Mapping[type, Callable[[_Case], Verdict]]] = {
    Exists: _exists,
    Shape: _shape,
    DType: _dtype,
    Dims: _dims,
    Units: _units,
    Attributes: _attributes,
    Filled: _filled,
    Monotonic: _monotonic,
    Regular: _regular,
    NoDuplicates: _no_duplicates,
    Range: _range,
    NanShare: _nan_share,
    Finite: _finite,
    StatisticsAgainst: _statistics,
}

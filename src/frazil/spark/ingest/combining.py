"""What files are of one dataset, in which order, and what is wrong with the others.

    family     files with the same data variables: one after the other along the dimension. Two families with
               different variables are merged.
    axis       the labels of all files, each once, in order

What most files of a family are like is right; the others differ from it. Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.spark.ingest.inspection import Looked, Problem
from frazil.spark.ingest.layout import PACKING, Layout, Own, differences, meaning, other_attributes, with_own
from frazil.spark.ingest.pattern import Expanded
from frazil.spark.ingest.sources import NotVirtual, VariableSchema
from frazil.spark.ingest.units import SAME, Linear, finest, is_time, moved, rebase, shown

#: Labels are regular if at least this share of their distances is within a fifth of the median...
REGULAR: Final = 0.8
#: ... and a hole is a distance of more than so many medians.
HOLE: Final = 1.5


@dataclass(frozen=True, slots=True)
class Family:
    """Files with the same data variables.

    ``layout`` and ``own`` are those of its first file of the usual kind; ``files`` are numbers of good files.
    """

    layout: Layout
    own: Own
    files: NDArray[np.int64]

    def variable(self, name: str) -> VariableSchema:
        return with_own(self.layout.variables[name], self.own)


@dataclass(frozen=True, slots=True)
class Combined:
    """``labels`` (of all files, as `Looked` has them) and ``axis`` are in ``units``; None without labels.

    ``moves`` tells by code of `Looked.owns` how times of a file become times in the units of the dataset.
    ``position`` is the first step of each file, where there are no labels. ``targets`` are the variables with
    the units that they will have.
    """

    dim: str | None
    families: tuple[Family, ...]
    labels: NDArray[Any] | None
    axis: NDArray[Any] | None
    descending: bool
    length: int
    position: NDArray[np.int64] | None
    units: str | None
    calendar: str
    targets: dict[str, VariableSchema]
    moves: dict[int, dict[str, Linear]]
    problems: tuple[Problem, ...]


def combine(
    looked: Looked,
    files: Expanded,
    dim: str | None,
    *,
    unpack: bool = False,
    only: NDArray[np.bool_] | None = None,
    units: dict[str, str] | None = None,
) -> Combined:
    """Put the files together; those with a fatal problem are left out.

    ``only`` says which files count. ``units`` are those that times have in the repository already.
    """
    problems: list[Problem] = []
    good = looked.layout >= 0
    if only is not None:
        good &= only
    families: list[Family] = []
    for members in _families(looked, good):
        family = _usual(looked, members, problems, good, unpack)
        if family is not None:
            families.append(family)
    targets, moves = _times(looked, families, good, units or {}, problems)
    families = _still(families, good)
    if not families or dim is None:
        families = _one_each(looked, families, good, problems) if dim is None else families
        return Combined(
            dim,
            tuple(families),
            None,
            None,
            False,
            0,
            None,
            None,
            "standard",
            targets,
            moves,
            tuple(problems),
        )
    variable = targets.get(dim)
    labels, target = _labels(looked, files, dim, variable, moves, good, problems)
    if target is not None:
        targets[dim] = target
        variable = target
    said = None if variable is None else variable.attrs.get("units")
    calendar = "standard" if variable is None else str(variable.attrs.get("calendar", "standard"))
    families = _still(families, good)
    if labels is None:
        position, length = _positions(looked, files, families, problems)
        return Combined(
            dim,
            tuple(families),
            None,
            None,
            False,
            length,
            position,
            said,
            calendar,
            targets,
            moves,
            tuple(problems),
        )
    descending = _ordered(looked, labels, good, problems)
    families = _still(families, good)
    for family in families:
        _overlaps(looked, labels, family, good, problems, said, calendar)
    families = _still(families, good)
    axis = _axis(looked, labels, good, descending)
    _missing(looked, labels, axis, families, problems, said, calendar)
    return Combined(
        dim,
        tuple(families),
        labels,
        axis,
        descending,
        len(axis),
        None,
        said,
        calendar,
        targets,
        moves,
        tuple(problems),
    )


def _still(families: Sequence[Family], good: NDArray[np.bool_]) -> list[Family]:
    left = [replace(family, files=family.files[good[family.files]]) for family in families]
    return [family for family in left if len(family.files)]


# Families


def _families(looked: Looked, good: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Files by what data variables they have: sets with a variable in common are one family."""
    groups: list[tuple[set[str], list[int]]] = []
    for code in np.unique(looked.layout[good]).tolist():
        names, codes = set(looked.layouts[code].data), [code]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, codes = names | group[0], codes + group[1]
        groups.append((names, codes))
    members = [np.flatnonzero(good & np.isin(looked.layout, codes)) for _, codes in groups]
    return sorted(members, key=lambda files: int(files[0]))


def _usual(
    looked: Looked,
    members: NDArray[np.int64],
    problems: list[Problem],
    good: NDArray[np.bool_],
    unpack: bool,
) -> Family | None:
    """The family of these files; those that are not of the usual kind are no longer good."""
    codes, first, counts = np.unique(looked.layout[members], return_index=True, return_counts=True)
    by_meaning: dict[Any, list[int]] = {}
    for i, code in enumerate(codes.tolist()):
        by_meaning.setdefault(meaning(looked.layouts[code]), []).append(i)
    usual = max(by_meaning.values(), key=lambda rows: (counts[rows].sum(), -first[rows].min()))
    chosen = min(usual, key=lambda row: first[row])
    layout = looked.layouts[codes[chosen]]
    for i, code in enumerate(codes.tolist()):
        if i == chosen:
            continue
        where = members[looked.layout[members] == code]
        other = looked.layouts[code]
        if i not in usual:
            said = differences(other, layout) or [("variables", "differs from the others")]
            kind, text = said[0][0], "; ".join(text for _, text in said)
            good[where] = False
            problems += [Problem(kind, text, looked.urls[file]) for file in where.tolist()]
        elif names := other_attributes(other, layout):
            listed = ", ".join(names[:10])
            text = f"{len(where)} file(s) have other values of {listed}; the first file's are kept"
            problems.append(Problem("attributes", text, looked.urls[int(where[0])], fatal=False))
    left = members[good[members]]
    for name, each in (layout.virtual or {}).items():
        if isinstance(each, NotVirtual):
            text = f"{name} cannot be referred to: {each.reason}; copy it, or leave it out"
            problems.append(Problem("virtual", text, looked.urls[int(left[0])]))
    own_codes, own_first, own_counts = np.unique(looked.own[left], return_index=True, return_counts=True)
    if not unpack:
        by_packing: dict[Own, list[int]] = {}
        for i, code in enumerate(own_codes.tolist()):
            by_packing.setdefault(_packing(looked.owns[code]), []).append(i)
        packed = max(by_packing.values(), key=lambda rows: (own_counts[rows].sum(), -own_first[rows].min()))
        for rows in by_packing.values():
            if rows is not packed:
                where = left[np.isin(looked.own[left], own_codes[rows])]
                good[where] = False
                text = (
                    f"packed with {_said(looked.owns[own_codes[rows[0]]])} and not "
                    f"{_said(looked.owns[own_codes[packed[0]]])}"
                )
                problems += [Problem("packing", text, looked.urls[file]) for file in where.tolist()]
    left = members[good[members]]
    usual_codes = codes[usual]
    start = left[np.isin(looked.layout[left], usual_codes)]
    if not len(start):
        return None
    return Family(looked.layouts[looked.layout[start[0]]], looked.owns[looked.own[start[0]]], left)


def _packing(own: Own) -> Own:
    return tuple(each for each in own if each[1] in PACKING)


def _said(own: Own) -> str:
    return ", ".join(f"{name}.{attribute} {value!r}" for name, attribute, value in _packing(own)) or "nothing"


def _one_each(
    looked: Looked, families: list[Family], good: NDArray[np.bool_], problems: list[Problem]
) -> list[Family]:
    """Without a dimension that goes on a family is one file."""
    kept = []
    for family in families:
        for file in family.files[1:].tolist():
            good[file] = False
            text = "has the variables of an earlier file, and no dimension goes on"
            problems.append(Problem("overlap", text, looked.urls[file]))
        kept.append(replace(family, files=family.files[:1]))
    return kept


# Times


def _times(
    looked: Looked,
    families: Sequence[Family],
    good: NDArray[np.bool_],
    given: dict[str, str],
    problems: list[Problem],
) -> tuple[dict[str, VariableSchema], dict[int, dict[str, Linear]]]:
    """The variables with the units they get, and what that does to the times of each kind of file."""
    targets: dict[str, VariableSchema] = {}
    moves: dict[int, dict[str, Linear]] = {}
    for family in families:
        codes, first = np.unique(looked.own[family.files], return_index=True)
        codes = codes[np.argsort(first)]
        units = {
            code: {name: str(value) for name, attribute, value in looked.owns[code] if attribute == "units"}
            for code in codes.tolist()
        }
        for name in family.layout.variables:
            variable = family.variable(name)
            mine = list(dict.fromkeys(units[code].get(name, "") for code in codes.tolist()))
            if is_time(variable.attrs.get("units")):
                variable = _with_units(variable, mine, given.get(name))
            targets.setdefault(name, variable)
        for code in codes.tolist():
            lines = {}
            for name, text in units[code].items():
                if not is_time(text):
                    continue
                target = targets[name]
                calendar = str(target.attrs.get("calendar", "standard"))
                line = rebase(text, str(target.attrs["units"]), calendar)
                if line is None:
                    where = family.files[looked.own[family.files] == code]
                    good[where] = False
                    said = f"{name} is in {text!r}, which cannot be made {target.attrs['units']!r}"
                    problems += [Problem("units", said, looked.urls[file]) for file in where.tolist()]
                elif line != SAME:
                    lines[name] = line
                    bounds = target.attrs.get("bounds")
                    if bounds in family.layout.variables and bounds not in units[code]:
                        lines[bounds] = line
            if lines:
                moves[code] = lines
    return targets, moves


def _with_units(variable: VariableSchema, units: list[str], given: str | None) -> VariableSchema:
    if given is not None:
        return replace(variable, attrs={**variable.attrs, "units": given})
    if len(units) == 1 or variable.dtype.kind not in "iu":
        return replace(variable, attrs={**variable.attrs, "units": units[0]})
    calendar = str(variable.attrs.get("calendar", "standard"))
    chosen = finest(units, calendar) or units[0]
    dtype = variable.dtype if chosen == units[0] else np.dtype(np.int64)
    return replace(variable, attrs={**variable.attrs, "units": chosen}, dtype=dtype)


# Labels


def _labels(
    looked: Looked,
    files: Expanded,
    dim: str,
    variable: VariableSchema | None,
    moves: dict[int, dict[str, Linear]],
    good: NDArray[np.bool_],
    problems: list[Problem],
) -> tuple[NDArray[Any] | None, VariableSchema | None]:
    """Labels of all files in the units of the dataset, and their variable if it is made from keys."""
    counts = np.diff(looked.label_start)
    if variable is None or not counts[good].any():
        if files.keys and files.position is not None and (looked.length[good] == 1).all():
            return _from_keys(looked, files, dim)
        return None, None
    for file in np.flatnonzero(good & (counts != looked.length)).tolist():
        good[file] = False
        text = f"{dim} has {counts[file]} labels for {looked.length[file]} steps"
        problems.append(Problem("dims", text, looked.urls[file]))
    labels = looked.labels.astype(variable.dtype) if looked.labels.dtype != variable.dtype else looked.labels
    labels = labels.copy()
    own = np.repeat(looked.own, counts)
    for code, lines in moves.items():
        if dim not in lines:
            continue
        where = own == code
        there = moved(looked.labels[where], lines[dim], variable.dtype)
        if there is None:
            bad = np.flatnonzero(good & (looked.own == code))
            good[bad] = False
            text = f"its {dim} is not a whole number of {variable.attrs['units']!r}"
            problems += [Problem("units", text, looked.urls[file]) for file in bad.tolist()]
        else:
            labels[where] = there
    return labels, None


def _from_keys(looked: Looked, files: Expanded, dim: str) -> tuple[NDArray[Any], VariableSchema]:
    keys, attrs = list(files.keys), {}
    if all(isinstance(key, date) for key in keys):
        moments = [
            key if isinstance(key, datetime) else datetime(key.year, key.month, key.day) for key in keys
        ]
        attrs = {"units": f"seconds since {moments[0]}", "calendar": "proleptic_gregorian"}
        keys = [round((moment - moments[0]).total_seconds()) for moment in moments]
    values = np.asarray(keys)
    if values.dtype.kind in "UO":
        values = np.array([str(key) for key in keys], np.dtypes.StringDType())
    # A task gives no labels for these files: they are one each, and the labels of `Looked` are not used.
    looked.label_start[:] = np.arange(len(looked.urls) + 1)
    labels = values[files.position] if files.position is not None else values
    return labels, VariableSchema(dim, (dim,), (-1,), values.dtype, attrs, coordinate=True)


def _positions(
    looked: Looked, files: Expanded, families: Sequence[Family], problems: list[Problem]
) -> tuple[NDArray[np.int64], int]:
    """Where each file starts, if there are no labels: one after the other."""
    start = np.zeros(len(looked.urls), np.int64)
    lengths = []
    for family in families:
        order = family.files
        if files.position is not None:
            order = order[np.argsort(files.position[order], kind="stable")]
        ends = np.cumsum(looked.length[order])
        start[order] = ends - looked.length[order]
        lengths.append(int(ends[-1]))
    if len(set(lengths)) > 1:
        text = f"variables have {sorted(set(lengths))} steps, and no labels tell which are missing"
        problems.append(Problem("hole", text))
    return start, max(lengths, default=0)


def _ordered(looked: Looked, labels: NDArray[Any], good: NDArray[np.bool_], problems: list[Problem]) -> bool:
    """Whether labels go down. Files in which they go the other way, or both, are no longer good."""
    if labels.dtype.kind not in "iuf" or len(labels) < 2:
        return False
    file = np.repeat(np.arange(len(looked.urls)), np.diff(looked.label_start))
    inside = (file[1:] == file[:-1]) & good[file[1:]]
    up, down = labels[1:] > labels[:-1], labels[1:] < labels[:-1]
    descending = bool((down & inside).sum() > (up & inside).sum())
    wrong = np.unique(file[1:][inside & ~(down if descending else up)])
    good[wrong] = False
    text = f"labels do not all go {'down' if descending else 'up'}"
    problems += [Problem("unordered", text, looked.urls[each]) for each in wrong.tolist()]
    unknown = np.unique(file[~(labels == labels) & good[file]])
    good[unknown] = False
    problems += [
        Problem("unordered", "labels are not numbers", looked.urls[each]) for each in unknown.tolist()
    ]
    return descending


def _overlaps(
    looked: Looked,
    labels: NDArray[Any],
    family: Family,
    good: NDArray[np.bool_],
    problems: list[Problem],
    units: str | None,
    calendar: str,
) -> None:
    """A file with a label that an earlier one has is no longer good."""
    counts = np.diff(looked.label_start)
    member = np.zeros(len(looked.urls), np.bool_)
    member[family.files] = True
    file = np.repeat(np.arange(len(looked.urls)), counts)
    rows = np.flatnonzero(member[file])
    _, codes, times = np.unique(labels[rows], return_inverse=True, return_counts=True)
    shared = times[codes] > 1
    if not shared.any():
        return
    owner: dict[int, int] = {}
    for each in np.unique(file[rows][shared]).tolist():
        mine = codes[(file[rows] == each) & shared].tolist()
        taken = [code for code in mine if code in owner]
        if not taken:
            owner.update(dict.fromkeys(mine, each))
            continue
        earlier = owner[taken[0]]
        at = labels[rows][codes == taken[0]][0]
        same = (looked.contents[each] == looked.contents[earlier]).all()
        label, other = shown(at, units, calendar), looked.urls[earlier]
        text = f"has {len(taken)} of its {counts[each]} labels ({label}) with {other}"
        kind = "duplicate" if same else "overlap"
        good[each] = False
        problems.append(
            Problem(kind, f"{text}, {'and the same contents' if same else 'in common'}", looked.urls[each])
        )


def _axis(looked: Looked, labels: NDArray[Any], good: NDArray[np.bool_], descending: bool) -> NDArray[Any]:
    mine = labels[np.repeat(good, np.diff(looked.label_start))]
    if mine.dtype.kind in "iuf":
        axis = np.unique(mine)
        return axis[::-1] if descending else axis
    _, first = np.unique(mine, return_index=True)
    return mine[np.sort(first)]


def _missing(
    looked: Looked,
    labels: NDArray[Any],
    axis: NDArray[Any],
    families: Sequence[Family],
    problems: list[Problem],
    units: str | None,
    calendar: str,
) -> None:
    """Labels that only some variables have."""
    if len(families) < 2:
        return
    counts = np.diff(looked.label_start)
    for family in families:
        member = np.zeros(len(looked.urls), np.bool_)
        member[family.files] = True
        missing = ~np.isin(axis, labels[np.repeat(member, counts)])
        if missing.any():
            names = ", ".join(sorted(family.layout.data))
            first = shown(axis[np.argmax(missing)], units, calendar)
            problems.append(
                Problem("hole", f"{missing.sum()} labels, from {first} on, are missing for {names}")
            )


def holes(
    axis: NDArray[Any] | None,
    units: str | None,
    calendar: str,
    old: NDArray[Any] | None = None,
) -> list[Problem]:
    """The gaps of an axis; not those between two ``old`` labels."""
    if axis is None:
        return []
    is_old = np.zeros(len(axis), np.bool_) if old is None else np.isin(axis, old)
    return [
        Problem(
            "hole", f"nothing between {shown(axis[i], units, calendar)} and {shown(axis[j], units, calendar)}"
        )
        for i, j in gaps(axis)
        if not (is_old[i] and is_old[j])
    ]


def gaps(axis: NDArray[Any]) -> list[tuple[int, int]]:
    """The labels before and after each gap of an axis that is regular elsewhere.

    >>> gaps(np.array([0, 31, 59, 90, 151, 181]))
    [(3, 4)]
    >>> gaps(np.array([1, 10, 100, 1000]))
    []
    """
    if len(axis) < 4 or axis.dtype.kind not in "iuf":
        return []
    distances = np.abs(np.diff(axis.astype(np.float64)))
    median = np.median(distances)
    regular = np.abs(distances - median) <= 0.2 * median
    if regular.mean() < min(REGULAR, 1 - 1.5 / len(distances)):
        return []
    return [(i, i + 1) for i in np.flatnonzero(distances > HOLE * median).tolist()]

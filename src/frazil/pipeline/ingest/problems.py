"""What can be wrong with files, which of it can be tolerated, and what helps.

A problem has a kind of the table. Files with a fatal problem cannot be in the dataset. ``allow`` tolerates a
kind only where the dataset then holds all that the files hold, in a way that the table names; the other kinds
need another call, or leave files out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError

#: Problems that an error lists; `Report` has all of them.
_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a file, or with all of them if ``url`` is None.

    ``kind`` is one of ``KINDS``. One that is not ``fatal`` is a note and stops nothing.
    """

    kind: str
    message: str
    url: str | None = None
    fatal: bool = True

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.message}" if self.url is None else f"{self.kind}: {self.url}: {self.message}"
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: its meaning, what ``allow`` does ("" if it cannot be tolerated), what else helps."""

    meaning: str
    allowed: str = ""
    remedy: str = ""


TABLE: Final[dict[str, Kind]] = {
    "damaged": Kind("not a file of a known format, truncated, or cannot be decoded"),
    "unreadable": Kind("the storage gives no file of this name"),
    "options": Kind(
        "this call does not open it: another group, options of its reader, or a missing library",
        remedy="source_group= (--source-group) chooses a group, reader_options= one of several datasets",
    ),
    "variables": Kind(
        "other variables than the others",
        remedy="variables=[...] (--variables) takes those that all files have",
    ),
    "dims": Kind(
        "other dimensions, or another length of one that is fixed",
        remedy="concat_dim= (--concat-dim) names the dimension in which files follow each other; files with "
        "other variables can have a group of their own (--group)",
    ),
    "dtype": Kind("another dtype"),
    "units": Kind("other units or another calendar, which mean other numbers"),
    "attributes": Kind("other attributes; fatal where they change what numbers mean"),
    "packing": Kind(
        "another scale or offset: the packed numbers cannot be in one array",
        remedy="unpack=True (--unpack) stores the values",
    ),
    "values": Kind(
        "other values of a variable that all files share, such as latitudes",
        allowed="keeps those of the first file, or of the repository",
        remedy="files with other variables can have a group of their own (--group)",
    ),
    "chunks": Kind(
        "chunks or codecs that cannot be in one array (virtual only)",
        remedy="a copy (without virtual=True, --virtual) can have any",
    ),
    "virtual": Kind(
        "a variable that cannot be referred to where it is (virtual only)",
        remedy="a copy (without virtual=True, --virtual), or other variables=[...] (--variables)",
    ),
    "unordered": Kind(
        "labels that do not go one way",
        allowed="keeps the steps of each file in the order that they have there",
    ),
    "overlap": Kind("labels that an earlier file has", allowed="takes the steps of the later file"),
    "duplicate": Kind("the same contents as an earlier file", allowed="takes the steps of the later file"),
    "hole": Kind(
        "a gap in regular times, or labels that only some variables have",
        allowed="leaves the gap",
    ),
    "changed": Kind(
        "was ingested before, with other contents",
        remedy="on_change='rewrite' (--on-change rewrite) replaces the values, 'ignore' keeps them",
    ),
    "types": Kind("variables or attributes of types that no array can hold: they are left out"),
    "references": Kind("references to a few bytes each (virtual only)"),
    "target": Kind("does not fit to what is in the repository"),
}
#: What can be wrong: a sentence for each kind.
KINDS: Final[dict[str, str]] = {name: kind.meaning for name, kind in TABLE.items()}
#: The kinds that ``allow`` tolerates.
TOLERABLE: Final = tuple(name for name, kind in TABLE.items() if kind.allowed)


def require_tolerable(allow: Collection[str]) -> frozenset[str]:
    """Raises ``InvalidInputError`` (``unknown-choice``) for a kind that cannot be tolerated.

    >>> sorted(require_tolerable({"hole", "values"}))
    ['hole', 'values']
    """
    for name in sorted(set(map(str, allow)).difference(TOLERABLE)):
        other = TABLE[name].remedy if name in TABLE else ""
        helps = f"{other}; " if other else ""
        raise InvalidInputError(
            f"allow: expected one of {', '.join(TOLERABLE)}, found {name!r}: {helps}on_problem='skip' "
            "(--on-problem skip) leaves out files with other problems",
            ErrorKind.UNKNOWN_CHOICE,
        )
    return frozenset(allow)


def refusal(problems: Sequence[Problem], files: int) -> InvalidInputError:
    """The error of the policy "fail", with what helps against each kind."""
    named = len({each.url for each in problems if each.url is not None})
    some = f"{named:,} of " if named else ""
    summary = f"{counted(len(problems), 'problem')} in {some}{counted(files, 'file')}"
    lines = [f"expected files of one dataset, found {summary}; nothing was written"]
    lines += [f"  {each}" for each in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"  and {len(problems) - _LISTED:,} more: inspect_files(...) (--inspect) lists them")
    lines += [f"  {helps}" for helps in map(_helps, Counter(each.kind for each in problems)) if helps]
    if named:
        lines.append(
            "  on_problem='skip' (--on-problem skip) leaves these files out; 'quarantine' also remembers them"
        )
    return InvalidInputError("\n".join(lines), ErrorKind.BAD_SOURCE)


def _helps(name: str) -> str:
    kind = TABLE[name]
    allowed = f"allow={{{name!r}}} (--allow {name}) {kind.allowed}" if kind.allowed else ""
    helps = "; ".join(filter(None, [allowed, kind.remedy]))
    return f"{name}: {helps}" if helps else ""

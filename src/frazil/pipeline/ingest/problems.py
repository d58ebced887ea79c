"""The problems of files: their kinds, the kinds that ``allow`` tolerates, and the remedies.

The kinds are in a table. Files with a fatal problem cannot be in the dataset. ``allow`` can tolerate a kind
only if the dataset then still represents all files, in the way that the table describes. The other kinds need
other options, or leave files out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError

#: The number of problems that an error lists. `Report` has all of them.
_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of one file, or of all files together.

    Attributes:
        kind: The kind of the problem, a key of ``KINDS``.
        message: What is wrong, in words.
        url: The URL of the file. None: the problem concerns all files.
        fatal: Whether the file cannot be ingested. If False, the problem is a note.
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
    """A kind of problem: its meaning, the effect of ``allow`` ("" if not tolerable), and another remedy."""

    meaning: str
    allowed: str = ""
    remedy: str = ""


TABLE: Final[dict[str, Kind]] = {
    "damaged": Kind("not a file of a known format, truncated, or cannot be decoded"),
    "unreadable": Kind("the storage has no file with this name"),
    "options": Kind(
        "this call cannot open the file: wrong group or reader options, or a library that fails to import",
        remedy="source_group= (--source-group) chooses a group, reader_options= one of several datasets",
    ),
    "variables": Kind(
        "other variables than the other files",
        remedy="variables=[...] (--variables) chooses the variables that all files have",
    ),
    "dims": Kind(
        "other dimensions, or another length of a dimension that does not grow",
        remedy="concat_dim= (--concat-dim) names the dimension in which files follow each other; "
        "ingest files with other variables into another group (--group)",
    ),
    "dtype": Kind("another dtype"),
    "units": Kind("other units or another calendar, which change the meaning of the numbers"),
    "attributes": Kind("other attributes; fatal if they change the meaning of the numbers"),
    "packing": Kind(
        "another scale or offset: the packed numbers cannot be in one array",
        remedy="unpack=True (--unpack) stores the unpacked values",
    ),
    "values": Kind(
        "other values of a variable that all files share, such as latitudes",
        allowed="keeps the values of the first file, or of the repository",
        remedy="ingest files with other variables into another group (--group)",
    ),
    "chunks": Kind(
        "chunks or codecs that cannot be in one array (virtual only)",
        remedy="a copy (without virtual=True, --virtual) can have any chunks and codecs",
    ),
    "virtual": Kind(
        "a variable whose chunks have no references (virtual only)",
        remedy="a copy (without virtual=True, --virtual), or other variables=[...] (--variables)",
    ),
    "unordered": Kind(
        "labels that neither all increase nor all decrease",
        allowed="keeps the steps of each file in the order of the file",
    ),
    "overlap": Kind("labels that an earlier file has too", allowed="takes the steps of the later file"),
    "duplicate": Kind("the same contents as an earlier file", allowed="takes the steps of the later file"),
    "hole": Kind(
        "a gap in regular times, or labels that only some variables have",
        allowed="leaves the gap",
    ),
    "changed": Kind(
        "a file that was ingested before, with other contents or another modification time",
        remedy="on_change='rewrite' (--on-change rewrite) replaces the values, 'ignore' keeps them",
    ),
    "types": Kind("variables or attributes of types that no array can hold: they are left out"),
    "references": Kind("references to a few bytes each (virtual only)"),
    "target": Kind("a file that does not fit the group in the repository"),
}
#: The meaning of each kind of problem.
KINDS: Final[dict[str, str]] = {name: kind.meaning for name, kind in TABLE.items()}
#: The kinds that ``allow`` tolerates.
TOLERABLE: Final = tuple(name for name, kind in TABLE.items() if kind.allowed)


def require_tolerable(allow: Collection[str]) -> frozenset[str]:
    """Return the kinds of ``allow`` as a set.

    Raises:
        InvalidInputError: ``unknown-choice`` for a kind that cannot be tolerated.

    >>> sorted(require_tolerable({"hole", "values"}))
    ['hole', 'values']
    """
    for name in sorted(set(map(str, allow)).difference(TOLERABLE)):
        other = TABLE[name].remedy if name in TABLE else ""
        helps = f"{other}; " if other else ""
        raise InvalidInputError(
            f"allow must be one of {', '.join(TOLERABLE)}, got {name!r}. Instead: {helps}on_problem='skip' "
            "(--on-problem skip) leaves out files with other problems",
            ErrorKind.UNKNOWN_CHOICE,
        )
    return frozenset(allow)


def refusal(problems: Sequence[Problem], files: int) -> InvalidInputError:
    """Return the error for ``on_problem="fail"``, with the remedies for each kind."""
    named = len({each.url for each in problems if each.url is not None})
    some = f"{named:,} of " if named else ""
    summary = f"{counted(len(problems), 'problem')} in {some}{counted(files, 'file')}"
    lines = [f"the files are not one dataset: {summary}. Nothing was written"]
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

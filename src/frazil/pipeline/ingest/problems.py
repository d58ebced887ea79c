"""The problems of files: their kinds, the kinds that ``allow`` tolerates, and the remedies.

The kinds are in a table. Files with a fatal problem cannot be in the dataset. ``allow`` can tolerate a kind
only if the dataset then still represents all files, in the way that the table describes. The other kinds need
other options, or leave files out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from frazil.display import counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.remedies import Remedy, argument, joined

#: The number of problems that an error lists. `Report` has all of them.
_LISTED: Final = 10
_SKIP: Final = argument(on_problem="skip")


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
class FileProblem:
    """A problem of one file, which is given by its number."""

    file: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: its meaning, the effect of ``allow`` ("" if not tolerable), and another remedy."""

    meaning: str
    allowed: str = ""
    remedy: Remedy | None = None


#: The remedy of files that cannot be in the group.
OTHER_GROUP: Final = "Ingest the files into another group"

TABLE: Final[dict[str, Kind]] = {
    "damaged": Kind("not a file of a known format, truncated, or cannot be decoded"),
    "unreadable": Kind("the storage has no file with this name"),
    "options": Kind(
        "this call cannot open the file: wrong group or reader options, or a library that fails to import",
        remedy=Remedy(
            "{} chooses a group, {} one of several datasets",
            (argument(source_group=...), argument(reader_options=...)),
        ),
    ),
    "variables": Kind(
        "other variables than the other files",
        remedy=Remedy("{} chooses the variables that all files have", (argument(variables=...),)),
    ),
    "dims": Kind(
        "other dimensions, or another length of a dimension that does not grow",
        remedy=Remedy(
            "{} names the dimension in which files follow each other; ingest files with other variables into "
            "another group",
            (argument(concat_dim=...),),
        ),
    ),
    "dtype": Kind("another dtype"),
    "units": Kind("other units or another calendar, which change the meaning of the numbers"),
    "attributes": Kind("other attributes; fatal if they change the meaning of the numbers"),
    "packing": Kind(
        "another scale or offset: the packed numbers cannot be in one array",
        remedy=Remedy("{} stores the unpacked values", (argument(unpack=True),)),
    ),
    "values": Kind(
        "other values of a variable that all files share, such as latitudes",
        allowed="keeps the values of the first file, or of the repository",
        remedy=Remedy("ingest files with other variables into another group"),
    ),
    "chunks": Kind(
        "chunks or codecs that cannot be in one array (virtual only)",
        remedy=Remedy(
            "Ingest a copy, without {}: it can have any chunks and codecs", (argument(virtual=True),)
        ),
    ),
    "virtual": Kind(
        "a variable whose chunks have no references (virtual only)",
        remedy=Remedy(
            "Ingest a copy, without {}, or other {}", (argument(virtual=True), argument(variables=...))
        ),
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
        remedy=Remedy("{} replaces the values, 'ignore' keeps them", (argument(on_change="rewrite"),)),
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
    """Return the kinds of ``allow`` as a set."""
    for name in sorted(set(map(str, allow)).difference(TOLERABLE)):
        error = InvalidInputError(
            f"allow must be one of {', '.join(TOLERABLE)}, got {name!r}", ErrorKind.UNKNOWN_CHOICE
        )
        other = TABLE[name].remedy if name in TABLE else None
        skip = Remedy("{} leaves out files with other problems", (_SKIP,))
        error.remedy = joined("; ", [skip] if other is None else [other, skip])
        raise error
    return frozenset(allow)


def refusal(problems: Sequence[Problem], files: int) -> InvalidInputError:
    """Return the error for ``on_problem="fail"``, with the remedies for each kind."""
    named = len({each.url for each in problems if each.url is not None})
    some = f"{named:,} of " if named else ""
    summary = f"{counted(len(problems), 'problem')} in {some}{counted(files, 'file')}"
    lines = [f"the files are not one dataset: {summary}. Nothing was written"]
    lines += [f"  {each}" for each in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"  and {len(problems) - _LISTED:,} more: an inspection lists them")
    remedies = [helps for name in Counter(each.kind for each in problems) for helps in _helps(name)]
    if named:
        remedies.append(Remedy("{} leaves these files out; 'quarantine' also remembers them", (_SKIP,)))
    error = InvalidInputError("\n".join(lines), ErrorKind.BAD_SOURCE)
    error.remedy = joined("\n  ", remedies) if remedies else None
    return error


def _helps(name: str) -> Iterator[Remedy]:
    """Yield the remedy of a kind of problem, if it has one."""
    kind = TABLE[name]
    allowed = Remedy(f"{{}} {kind.allowed}", (argument(allow={name}),)) if kind.allowed else None
    if helps := [each for each in (allowed, kind.remedy) if each is not None]:
        yield joined("", [Remedy(f"{name}: "), joined("; ", helps)])

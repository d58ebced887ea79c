"""The generations of the format before spec version 1, as tables of their differences.

    name  written by        refs              ids             metadata files
    D     nobody (a draft)  r/<branch>/       16 bytes        JSON
    M0    0.1.0a1           refs/branch:<b>/  text            MessagePack
    M1    0.1.0a2 to a4     refs/branch.<b>/  text            ; nodes are numbered
    M2    0.1.0a5 to a7     same              text            ; node ids of 8 bytes, transaction logs
    M3    0.1.0a8           same              text            ; config.yaml, checksums of virtual chunks
    M4    0.1.0a9           same              text            ; manifests compressed
    M5    0.1.0a10          same              text            ; header of 39 bytes, everything compressed
    M6    0.1.0a11, a12     same              [bytes, []]     ; references by node
    M7    0.1.0a13 to a15   same              [bytes, []]     ; extents
    M8    0.1.0 to 0.1.3    same              [bytes, []]     ; parent ids, tags can be deleted

The names of the refs determine the *layout* of a repository. Each file shows the other differences itself:
whether it has a header, how many fields its outermost array has, and the type of its ids. So a reader does
not need the generation. It is determined for messages only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a repository has its files.

    Attributes:
        probe: The folder of the branch ``main``, where every repository has files.
        branch: The beginning of the path of a branch, up to its name.
        tag: The beginning of the path of a tag, up to its name.
        snapshots: The folder of snapshots.
        manifests: The folder of manifests.
        transactions: The folder of transaction logs, or None.
        chunks: The folder of chunks.
        suffixes: The suffixes of snapshots and manifests, in the order in which readers look.
    """

    probe: str
    branch: str
    tag: str
    snapshots: str = "snapshots"
    manifests: str = "manifests"
    transactions: str | None = "transactions"
    chunks: str = "chunks"
    suffixes: tuple[str, ...] = ("",)

    @property
    def refs(self) -> str:
        """The folder of all refs."""
        return self.branch.partition("/")[0]


DRAFT: Final = Layout(
    "r/main", "r/", "r/", "s", "m", None, "c", (".json", "", ".msgpack")
)  # a tag is a file beside the folders of branches
COLON: Final = Layout("refs/branch:main", "refs/branch:", "refs/tag:")
DOT: Final = Layout("refs/branch.main", "refs/branch.", "refs/tag.")

#: The layouts, in the order in which a reader looks for them.
LAYOUTS: Final = (DOT, COLON, DRAFT)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The properties of a snapshot file that distinguish the generations.

    Attributes:
        has_header: Whether it begins with the header of 39 bytes.
        fields: The number of fields of its outermost value.
        file_fields: The number of fields of an entry in its list of manifests; None without manifests.
        text_ids: Whether its ids are text.
        numbered: Whether the ids of its nodes are numbers; None without nodes.
        has_config: Whether the repository has a config.yaml.
    """

    has_header: bool
    fields: int
    file_fields: int | None
    text_ids: bool
    numbered: bool | None
    has_config: bool


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation. None in one of the last six fields fits any value (see ``Evidence``)."""

    name: str
    writers: str
    layout: Layout
    has_header: bool | None = None
    fields: int | None = None
    file_fields: int | None = None
    text_ids: bool | None = None
    numbered: bool | None = None
    has_config: bool | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.writers}"

    def fits(self, seen: Evidence) -> bool:
        """Return whether a snapshot file may be of this generation."""
        pairs = (
            (self.has_header, seen.has_header),
            (self.fields, seen.fields),
            (self.file_fields, seen.file_fields),
            (self.text_ids, seen.text_ids),
            (self.numbered, seen.numbered),
            (self.has_config, seen.has_config),
        )
        return all(wanted is None or actual is None or wanted == actual for wanted, actual in pairs)


def _alpha(versions: str) -> str:
    return f"as written by icechunk {versions}"


GENERATIONS: Final = (
    Generation("D", "the draft of 2024", DRAFT),
    Generation("M0", _alpha("0.1.0a1"), COLON),
    Generation("M1", _alpha("0.1.0a2 to 0.1.0a4"), DOT, False, 11, 2, True, True, False),
    Generation("M2", _alpha("0.1.0a5 to 0.1.0a7"), DOT, False, 11, 2, True, False, False),
    Generation("M3", _alpha("0.1.0a8"), DOT, False, 11, 2, True, False, True),
    Generation("M4", _alpha("0.1.0a9"), DOT, False, 11, 3, True, False),
    Generation("M5", _alpha("0.1.0a10"), DOT, True, 9, 3, True, False),
    Generation("M6", _alpha("0.1.0a11 and 0.1.0a12"), DOT, True, 9, 3, False, False),
    Generation("M7", _alpha("0.1.0a13 to 0.1.0a15"), DOT, True, 9, 4, False, False),
    Generation("M8", _alpha("0.1.0 to 0.1.3"), DOT, True, 8, 3, False, False),
)


def generations_of(layout: Layout, seen: Evidence | None = None) -> tuple[Generation, ...]:
    """Return the possible generations of a repository, oldest first; several if they do not differ.

    >>> [each.name for each in generations_of(DOT, Evidence(True, 8, None, False, None, True))]
    ['M8']
    """
    return tuple(each for each in GENERATIONS if each.layout is layout and (seen is None or each.fits(seen)))


def described(candidates: Iterable[Generation]) -> str:
    """Return a text for messages: one generation, or the first and the last one.

    >>> described(GENERATIONS[1:3])
    'M0 to M1, as written by icechunk 0.1.0a1, or 0.1.0a2 to 0.1.0a4'
    """
    some = list(candidates)
    if len(some) == 1:
        return str(some[0])
    writers = ", or ".join(each.writers.removeprefix(_alpha("")) for each in some)
    return f"{some[0].name} to {some[-1].name}, {_alpha(writers)}"

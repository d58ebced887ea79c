"""The limits and the report of a compaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from frazil.arguments import check_fields, wrong_type
from frazil.display import Record, Shown, counted
from frazil.errors import ErrorKind, InvalidInputError
from frazil.format.columns import I64, U8
from frazil.format.ids import OBJECT_ID_BYTES, id_keys, ids_to_text

#: The number of files whose texts are made at a time.
_ROWS: Final = 10_000
#: The largest pack. A reader may have to fetch a whole pack.
_MAX_PACK: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """Which chunk files and manifests a compaction writes again. Sizes are in bytes.

    Attributes:
        live_fraction: A chunk file is written again if less than this fraction of its bytes is live, which
            means that the newest version of a chosen branch refers to them. 0 chooses no file. Default: 0.5.
        small_size: Chunk files below this size are merged into packs, if that makes four files or more into
            one. 0 merges no files. Default: 1 MiB.
        pack_size: The largest size of a new pack. Default: 16 MiB.
        arrays: Path patterns of the arrays whose chunks are moved, as in ``fnmatch``: ``*`` matches any text.
            A file is only written again if no other array needs it. Default: all arrays.
        manifests: Whether manifests are written again with the splitting of the configuration, as
            ``rewrite_manifests`` does. Default: None, which means if the branch has four times as many
            manifests as it needs.

    Raises:
        InvalidInputError: ``invalid-argument`` for a value outside of its range.
        TypeError: For a value of another type.

    Examples:
        >>> import frazil
        >>> frazil.CompactionLimits(live_fraction=0.3).small_size
        1048576
    """

    live_fraction: float = 0.5
    small_size: int = 1 << 20
    pack_size: int = 16 << 20
    arrays: tuple[str, ...] = ("*",)
    manifests: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.live_fraction <= 1:
            raise _bad_limit("live_fraction", "from 0 to 1", self.live_fraction)
        if self.small_size < 0:
            raise _bad_limit("small_size", "at least 0", self.small_size)
        if not 1 <= self.pack_size <= _MAX_PACK:
            raise _bad_limit("pack_size", f"from 1 to {_MAX_PACK}", self.pack_size)
        if not all(isinstance(pattern, str) for pattern in self.arrays):
            raise wrong_type("arrays", self.arrays, "tuple[str, ...]")


def _bad_limit(name: str, expected: str, value: float) -> InvalidInputError:
    return InvalidInputError(f"{name} must be {expected}, got {value}", ErrorKind.INVALID_ARGUMENT)


@dataclass(frozen=True, slots=True, eq=False)
class LiveFiles:
    """k chunk files with their sizes and live bytes, as columns sorted by id.

    Attributes:
        ids: uint8 of shape (k, 12).
        sizes: The sizes of the files in bytes, int64 of shape (k,).
        live: The live bytes of the files, int64 of shape (k,).
    """

    ids: U8 = field(default_factory=lambda: np.zeros((0, OBJECT_ID_BYTES), np.uint8))
    sizes: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    live: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.sizes)

    def select_files(self, rows: NDArray[np.bool_]) -> LiveFiles:
        """Return some of the files."""
        return LiveFiles(self.ids[rows], self.sizes[rows], self.live[rows])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a dictionary for each file."""
        for start in range(0, len(self), _ROWS):
            part = slice(start, start + _ROWS)
            names, sizes = ids_to_text(self.ids[part]), self.sizes[part].tolist()
            for name, size, live in zip(names, sizes, self.live[part].tolist(), strict=True):
                fraction = live / size if size else 0.0
                yield {"file": name, "size": size, "live_bytes": live, "live_fraction": fraction}

    @staticmethod
    def union(parts: Sequence[LiveFiles]) -> LiveFiles:
        """Return the files of several parts, each once."""
        whole = [LiveFiles(), *parts]
        ids = np.concatenate([part.ids for part in whole])
        first = np.unique(id_keys(ids), return_index=True)[1]
        sizes, live = (
            np.concatenate([getattr(part, name) for part in whole])[first] for name in ("sizes", "live")
        )
        return LiveFiles(ids[first], sizes, live)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class CompactionReport(Record):
    """The plan or the result of a compaction. Sizes are in bytes.

    Attributes:
        files: The chunk files that are written again, with sizes and live bytes. ``rows`` lists them.
        new_files: The number of new chunk files.
        bytes_moved: The number of bytes that are read from old files and written to new ones.
        bytes_freed: The size of the old files, which garbage collection can delete when no older version, and
            no other branch or tag, needs them.
        manifests: The number of manifests of the branches before the compaction.
        new_manifests: The number of manifests that are written.
        snapshots: The new snapshot of each branch. Empty for a plan, and if there was nothing to do.
    """

    files: LiveFiles = field(default_factory=LiveFiles)
    new_files: int = 0
    bytes_moved: int = 0
    bytes_freed: int = 0
    manifests: int = 0
    new_manifests: int = 0
    snapshots: Mapping[str, str] = field(default_factory=dict)

    shown_as: ClassVar[str] = "CompactionReport"

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (len(self.files) or self.new_manifests or self.snapshots)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return one dictionary for each chunk file that is written again, for example for a data frame.

        Returns:
            The values ``file``, ``size``, ``live_bytes`` and ``live_fraction``.

        Examples:
            >>> list(CompactionReport().rows())
            []
        """
        return self.files.rows()

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        yield "state", "done" if self.snapshots else "nothing to do" if self.is_empty else "plan"
        yield "files", f"{counted(len(self.files), 'file')} -> {counted(self.new_files, 'file')}"
        yield "bytes_moved", f"{self.bytes_moved:,}"
        yield "bytes_freed", f"{self.bytes_freed:,}"
        yield "manifests", f"{self.manifests:,} before, {self.new_manifests:,} new"
        for branch, id_ in self.snapshots.items():
            yield f"branch {branch}", id_

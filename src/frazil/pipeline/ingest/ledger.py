"""The ledger of a group.

    url            strings
    fingerprint    uint8, (files, 16)
    contents       uint8, (files, 16): the fingerprint without the time of a local file; 0: not known
    size           int64, bytes
    quarantined    bool: a file with a problem, which was not ingested

They are plain Zarr arrays, which every Zarr library can read. An `xarray.Dataset` of the group does not show
them. Half a million files take a few megabytes. The attributes of the hidden group name the dimension in
which files follow each other, and the unlimited dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final, Literal

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.arrays.zarr_arrays import array_at
from frazil.errors import FormatError
from frazil.pipeline.ingest.arrays import read_labels
from frazil.pipeline.ingest.dataset import Dataset
from frazil.pipeline.ingest.existing import ExistingGroup
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.options import IngestRequest
from frazil.pipeline.ingest.steps import positions
from frazil.repository.paths import HIDDEN
from frazil.repository.session.session import Session

#: Files in a chunk. Each append rewrites the last chunk.
_CHUNK: Final = 1 << 12
#: Kinds of dtypes and further dimensions of each column.
_FORMS: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "url": ("TO", ()),
    "fingerprint": ("u", (16,)),
    "contents": ("u", (16,)),
    "size": ("i", ()),
    "quarantined": ("b", ()),
}
_COLUMNS: Final = tuple(_FORMS)
#: The memory of a ledger is 57 bytes for each file, and its URL.
_MOST_FILES: Final = 1 << 26


@dataclass(frozen=True, slots=True)
class Ledger:
    """The files that were ingested into a group.

    ``concat_dim`` is the dimension in which they follow each other, ``unlimited`` are the unlimited
    dimensions of the files. ``variables`` are the data variables that were ingested from each file, None for
    all.
    """

    url: NDArray[Any]
    fingerprint: NDArray[np.uint8]
    contents: NDArray[np.uint8]
    size: NDArray[np.int64]
    quarantined: NDArray[np.bool_]
    concat_dim: str | None = None
    unlimited: tuple[str, ...] = ()
    variables: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self.url)

    def rows_of(self, urls: Sequence[str]) -> NDArray[np.int64]:
        """Return the row of each URL, -1 for URLs that the ledger does not have."""
        rows = dict(zip(self.url.tolist(), range(len(self.url)), strict=True))
        return np.fromiter(map(rows.get, urls, repeat(-1)), np.int64, len(urls))

    def has_any(
        self, column: Literal["fingerprint", "contents"], digests: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        """Return a mask of the digests (uint8, (n, 16)) that belong to ingested files with any name."""
        ingested = np.ascontiguousarray(getattr(self, column)[~self.quarantined]).view("V16").ravel()
        return np.isin(np.ascontiguousarray(digests).view("V16").ravel(), ingested)

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprints as hexadecimal text, by URL."""
        digests = self.fingerprint.tobytes().hex()
        return {url: digests[32 * i : 32 * i + 32] for i, url in enumerate(self.url.tolist())}

    def covers(self, variables: frozenset[str] | None) -> bool:
        """Return whether these variables (None: all) were ingested from each file."""
        return self.variables is None or (variables is not None and variables.issubset(self.variables))

    def with_files(
        self,
        urls: Sequence[str],
        fingerprint: NDArray[np.uint8],
        contents: NDArray[np.uint8],
        size: NDArray[np.int64],
        quarantined: NDArray[np.bool_],
    ) -> Ledger:
        """Return the ledger with these files. Files that it already has get their new state."""
        rows = self.rows_of(urls)
        new = rows < 0
        count = len(self.url)
        rows[new] = np.arange(count, count + int(new.sum()))
        total = count + int(new.sum())
        url = np.empty(total, np.dtypes.StringDType())
        url[:count] = self.url
        url[rows] = np.array(urls, np.dtypes.StringDType())

        def updated(old: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
            column = np.zeros((total, *old.shape[1:]), old.dtype)
            column[:count] = old
            column[rows] = values
            return column

        return replace(
            self,
            url=url,
            fingerprint=updated(self.fingerprint, fingerprint),
            contents=updated(self.contents, contents),
            size=updated(self.size, size),
            quarantined=updated(self.quarantined, quarantined),
        )

    def with_variables(self, urls: Sequence[str], variables: frozenset[str] | None) -> Ledger:
        """Return the ledger after an ingest of ``variables`` (None: all) from these files.

        Its ``variables`` are those that were ingested from every file.
        """
        if not len(self.url):
            return replace(self, variables=variables)
        every = bool((self.rows_of(urls) >= 0).sum() == len(self.url))
        if variables is None or self.variables is None:
            smaller = self.variables if variables is None else variables
            return replace(self, variables=None if every else smaller)
        both = variables | self.variables if every else variables & self.variables
        return replace(self, variables=both)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the hidden group."""
        attrs: dict[str, Any] = {"concat_dim": self.concat_dim, "unlimited": sorted(self.unlimited)}
        return attrs if self.variables is None else {**attrs, "variables": sorted(self.variables)}


EMPTY: Final = Ledger(
    np.empty(0, np.dtypes.StringDType()),
    np.empty((0, 16), np.uint8),
    np.empty((0, 16), np.uint8),
    np.empty(0, np.int64),
    np.empty(0, np.bool_),
)


@dataclass(frozen=True, slots=True)
class LedgerVersion:
    """A ledger, and the snapshot from which it was loaded."""

    snapshot_id: str
    ledger: Ledger

    @classmethod
    def load(cls, session: Session, group: str) -> LedgerVersion:
        """Load the ledger of a group from the snapshot of a session."""
        return cls(session.snapshot_id, load_ledger(session, group))

    def ledger_in(self, session: Session, group: str) -> Ledger:
        """Return the ledger in a session. It is loaded again only if the session is on another snapshot."""
        if session.snapshot_id == self.snapshot_id and not session.has_uncommitted_changes:
            return self.ledger
        return load_ledger(session, group)


def _path(group: str) -> str:
    return "/".join(filter(None, [group.strip("/"), HIDDEN]))


def load_ledger(session: Session, group: str) -> Ledger:
    """Return the ledger of a group; `EMPTY` if the group has none."""
    path = _path(group)
    if session.workspace.node(f"/{path}") is None:
        return EMPTY
    arrays = {name: array_at(session, f"{path}/{name}") for name in _COLUMNS if name != "contents"}
    shape = arrays["url"].shape
    count = shape[0] if shape else 0
    if session.workspace.node(f"/{path}/contents") is not None:
        contents = array_at(session, f"{path}/contents")
        if contents.shape[:1] == shape:  # earlier releases do not write this column
            arrays["contents"] = contents
    _require_form(path, arrays, count)
    attrs: Mapping[str, Any] = dict(zarr.open_group(session.store, path=path, mode="r").attrs)
    return ledger_of({name: np.asarray(array[:]) for name, array in arrays.items()}, attrs, path)


def ledger_of(columns: Mapping[str, NDArray[Any]], attrs: Mapping[str, Any], path: str) -> Ledger:
    """Return the ledger with these columns and the attributes of its group ``path``."""
    concat_dim, unlimited, variables = map(attrs.get, ("concat_dim", "unlimited", "variables"))
    for name, value, valid in (
        ("concat_dim", concat_dim, concat_dim is None or isinstance(concat_dim, str)),
        ("unlimited", unlimited, unlimited is None or _is_texts(unlimited)),
        ("variables", variables, variables is None or _is_texts(variables)),
    ):
        if not valid:
            raise _damaged(path, f"the attribute {name} must be as Frazil writes it, got {str(value)[:80]}")
    return Ledger(
        url=columns["url"],
        fingerprint=columns["fingerprint"],
        contents=columns.get("contents", np.zeros_like(columns["fingerprint"])),
        size=columns["size"],
        quarantined=columns["quarantined"],
        concat_dim=concat_dim,
        unlimited=tuple(unlimited or ()),
        variables=None if variables is None else frozenset(variables),
    )


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _require_form(path: str, arrays: Mapping[str, zarr.Array[Any]], count: int) -> None:
    """Check the shapes and types before the values are read, because any session can write these arrays."""
    if count > _MOST_FILES:
        raise _damaged(path, f"a ledger must have at most {_MOST_FILES} files, got {count}")
    for name, array in arrays.items():
        kinds, more = _FORMS[name]
        kind = np.dtype(array.dtype).kind
        if array.shape != (count, *more) or kind not in kinds:
            raise _damaged(
                path,
                f"the array {name} must have shape {(count, *more)} and a dtype of kind {kinds}, got "
                f"{array.shape} and {array.dtype}",
            )


def _damaged(path: str, text: str) -> FormatError:
    return FormatError(
        f"/{path}: {text}. Another program changed the ledger. Restore it from an earlier snapshot",
    )


def save_ledger(session: Session, group: str, before: Ledger, after: Ledger) -> None:
    """Replace the ledger ``before`` with ``after``, and write only the rows from the first change on."""
    hidden = zarr.open_group(session.store, path=_path(group), mode="a", zarr_format=3)
    attrs = after.attributes()
    if dict(hidden.attrs) != attrs:
        hidden.attrs.put(attrs)
    for name in _COLUMNS:
        old, values = getattr(before, name), getattr(after, name)
        if name not in hidden:
            dtype = "string" if name == "url" else values.dtype
            chunks = (_CHUNK, *values.shape[1:])
            # xarray needs names of dimensions, and other names than in the dataset above, which it inherits.
            dims = ("frazil_file", "frazil_byte")[: values.ndim]
            hidden.create_array(name, shape=values.shape, dtype=dtype, chunks=chunks, dimension_names=dims)
            old = old[:0]
        array = hidden[name]
        assert isinstance(array, zarr.Array)
        if array.shape != values.shape:
            array.resize(values.shape)
        start = len(old) if (values[: len(old)] == old).all() else 0
        array[start:] = values[start:]


@dataclass(frozen=True, slots=True)
class LedgerMatch:
    """Masks with an entry for each file.

    ``unchanged`` files were ingested with their present contents, ``changed`` files with other contents.
    ``touched`` files are those of the changed files that differ only in their modification time, as far as
    their size and both ends show: they were copied, or changed in the middle.
    """

    unchanged: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    touched: NDArray[np.bool_]


def match_ledger(
    request: IngestRequest, inspection: Inspection, ledger: Ledger, existing: ExistingGroup
) -> LedgerMatch:
    """Compare the files of a call with the ledger of the group."""
    rows = ledger.rows_of(inspection.urls)
    recorded, opened = rows >= 0, inspection.layout >= 0
    unchanged, changed, touched = (np.zeros_like(recorded) for _ in range(3))
    if recorded.any():
        same = recorded & (ledger.fingerprint[rows] == inspection.fingerprint).all(axis=1)
        changed = recorded & ~same & ~ledger.quarantined[rows] & opened
        touched = changed & (ledger.contents[rows] == inspection.contents).all(axis=1)
        unchanged = same if ledger.covers(request.variables) else unchanged
    candidates = ~recorded & opened
    # References have to follow a moved file, but copies do not.
    if len(ledger) and not request.virtual:
        moved = candidates & ledger.has_any("fingerprint", inspection.fingerprint)
        moved = _with_stored_labels(inspection, moved, existing)
        # Other modes write stored labels again.
        is_append = request.mode == "append"
        copied = candidates & ~moved & is_append & ledger.has_any("contents", inspection.contents)
        copied = _with_stored_labels(inspection, copied, existing)
        unchanged, changed, touched = unchanged | moved, changed | copied, touched | copied
    return LedgerMatch(unchanged, changed, touched)


def _with_stored_labels(
    inspection: Inspection, files: NDArray[np.bool_], existing: ExistingGroup
) -> NDArray[np.bool_]:
    """Return a mask of those of ``files`` (a mask) whose labels the group has; of all without labels."""
    if not files.any() or inspection.dim is None:
        return files
    dataset = Dataset.labelled(inspection, files, existing.stored_variables())
    steps = dataset.steps
    if steps.labels is None:
        return files & dataset.good
    if inspection.dim not in existing.arrays:
        return np.zeros_like(files)
    stored = positions(read_labels(existing.arrays[inspection.dim]), steps.labels) >= 0
    before = np.concatenate(([0], np.cumsum(stored)))
    complete = before[steps.start[1:]] - before[steps.start[:-1]] == steps.counts
    matches: NDArray[np.bool_] = files & complete & dataset.good
    return matches

"""Metadata of snapshots and of the repository: JSON-like values by name.

Each value is encoded separately: as FlexBuffers in files of spec version 2, as MessagePack in version 1. A
column stores the bytes and decodes those of one row when they are needed.

Specification: *Common Types*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import contains
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.errors import InvalidMetadataError
from frazil.format import flexbuffer, msgpack
from frazil.format.columns import I64, Ragged
from frazil.format.envelope import reading
from frazil.format.flatbuffer import Layout, Tables, Writer, link
from frazil.format.flexbuffer_column import load_values
from frazil.format.row_vectors import (
    concat_numbered,
    insert_row,
    numbered,
    require,
    unshared,
    writable,
)

_NO_ITEMS: Final = np.zeros(0, np.int64)
_ITEM: Final = Layout({0: "u4", 1: "u4"}, slots=2)
_LOADERS: Final = {1: msgpack.loads_json, 2: flexbuffer.loads}
_COLUMN_LOADERS: Final[dict[int, Callable[[Ragged], list[Any]]]] = {
    1: lambda values: list(map(msgpack.loads_json, values.blobs())),
    2: load_values,
}
_DUMPERS: Final = {1: msgpack.dumps, 2: flexbuffer.dumps}


@dataclass(frozen=True, slots=True, eq=False)
class MetadataColumn:
    """The metadata of n rows.

    ``rows`` contains numbers of items. An item is a row of ``names`` and of ``values`` (encoded).

    >>> column = MetadataColumn.of([{"b": 1, "a": [True]}, {}])
    >>> column.load(0)
    {'a': [True], 'b': 1}
    """

    rows: Ragged
    names: Ragged
    values: Ragged
    spec_version: int = 2
    source: str = "metadata"

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: list[Mapping[str, Any]], spec_version: int = 2) -> MetadataColumn:
        """Create a column of encoded values, with items sorted by name."""
        if not all(map(isinstance, chain.from_iterable(rows), repeat(str))):
            wrong = next(name for row in rows for name in row if not isinstance(name, str))
            raise InvalidMetadataError(f"names of metadata must be str, got {wrong!r}")
        dumps = _DUMPERS[spec_version]
        try:
            items = [item for row in rows for item in sorted(row.items())]
            names = Ragged.of_text([name for name, _ in items])
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidMetadataError(
                f"names of metadata must be text that UTF-8 can encode, got {error}"
            ) from None
        values = Ragged.of_bytes([_encoded(dumps, name, value) for name, value in items])
        return cls(numbered(np.array([len(row) for row in rows], np.int64)), names, values, spec_version)

    def having(self, name: str, text: str = "") -> NDArray[np.bool_]:
        """Return which rows have an item of this name whose bytes contain ``text``. Nothing is decoded."""
        items = self._items()
        wanted = np.array(list(map(name.encode().__eq__, self.names.take(items).blobs())), bool)
        if text:
            named = np.flatnonzero(wanted)
            blobs = self.values.take(items[named]).blobs()
            wanted[named] = list(map(contains, blobs, repeat(text.encode())))
        before = np.concatenate(([0], np.cumsum(wanted)))
        ends = np.cumsum(self.rows.lengths)
        has_item: NDArray[np.bool_] = before[ends] > before[ends - self.rows.lengths]
        return has_item

    def load(self, row: int) -> dict[str, Any]:
        """Return the decoded metadata of one row. Raise ``FormatError`` if a value is damaged."""
        loads = _LOADERS[self.spec_version]
        with reading(self.source, check="metadata-values"):
            items = self.rows.row(row)
            unshared(self.names.take(items), "names of metadata")
            unshared(self.values.take(items), "metadata")
            return {self.names.text(item): loads(self.values.bytes(item)) for item in items.tolist()}

    def is_shared(self) -> bool:
        """Return whether rows share so many bytes that all rows together are larger than the file."""
        items = self._items()
        names, values = self.names.take(items), self.values.take(items)
        return names.total() > len(names.values) or values.total() > len(values.values)

    def load_all(self) -> list[dict[str, Any]]:
        """Return the decoded metadata of every row.

        Do not use this method for rows that share bytes (``is_shared``).
        """
        with reading(self.source, check="metadata-values"):
            items = self._items()
            names = self.names.take(items).texts()
            values = _COLUMN_LOADERS[self.spec_version](self.values.take(items))
            pairs = zip(names, values, strict=True)
            return list(map(dict, map(islice, repeat(pairs), self.rows.lengths.tolist())))

    def _items(self) -> Any:
        """Return the numbers of the items of all rows."""
        return self.rows.compact().values

    def take(self, rows: Any) -> MetadataColumn:
        """Return some of the rows, which share the items."""
        return MetadataColumn(self.rows.take(rows), self.names, self.values, self.spec_version, self.source)

    def inserted(self, at: int, metadata: Mapping[str, Any]) -> MetadataColumn:
        """Return the column with the metadata of one more row before row ``at``."""
        if not metadata:
            rows = insert_row(self.rows, at, _NO_ITEMS)
            return MetadataColumn(rows, self.names, self.values, 2, self.source)
        more = MetadataColumn.of([metadata])
        numbers = np.arange(len(more.names)) + len(self.names)
        names, values = (self.names, self.values)
        if len(numbers):
            names, values = Ragged.concat([names, more.names]), Ragged.concat([values, more.values])
        return MetadataColumn(insert_row(self.rows, at, numbers), names, values, 2, self.source)

    @staticmethod
    def concat(parts: list[MetadataColumn]) -> MetadataColumn:
        """Return the rows of all parts, one part after the other. All parts must have spec version 2."""
        return MetadataColumn(
            concat_numbered([part.rows for part in parts], [len(part.names) for part in parts]),
            Ragged.concat([part.names for part in parts]),
            Ragged.concat([part.values for part in parts]),
        )


def _encoded(dumps: Callable[[Any], bytes], name: str, value: Any) -> bytes:
    try:
        return dumps(value)
    except InvalidMetadataError as error:
        raise InvalidMetadataError(f"metadata `{name}`: {error.message}") from None


def read_metadata(tables: Tables, slot: int, source: str, spec_version: int = 2) -> MetadataColumn:
    """Read the vectors of MetadataItem in a slot of n tables."""
    items, counts = tables.children(slot)
    require(items, "metadata item", "metadata-values", name=0, value=1)
    return MetadataColumn(numbered(counts), items.vectors(0), items.vectors(1), spec_version, source)


def write_metadata(writer: Writer, column: MetadataColumn) -> I64:
    """Write the items of n rows. Return the positions of their vectors."""
    vectors = writer.offset_vectors(column.rows.lengths)
    flat = column.rows.compact().values
    if len(flat):
        items, places = writer.tables(_ITEM, len(flat))
        vectors.fill(places)
        link(items, _ITEM, 0, places, writer.strings(writable(column.names.take(flat))))
        link(items, _ITEM, 1, places, writer.vectors(writable(column.values.take(flat))))
    return vectors.positions


def write_row(writer: Writer, metadata: Mapping[str, Any], spec_version: int = 2) -> int:
    """Write the metadata that belong to the root table. Return the position of the vector."""
    if not metadata:
        return writer.no_elements()
    return int(write_metadata(writer, MetadataColumn.of([metadata], spec_version))[0])

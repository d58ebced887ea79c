"""The findings of a verification until now, and which of them still hold at its end."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from frazil.format.columns import U8
from frazil.format.ids import id_keys, id_matrix, ids_among
from frazil.maintenance.verification.findings import Affected, Finding
from frazil.maintenance.verification.state import State

#: Findings that a garbage collection can cause in versions without a branch or tag.
_COLLECTED: Final = frozenset({"missing", "short"})


@dataclass(slots=True)
class Evidence:
    """The findings until now, by the version or manifest that led to them."""

    by_version: list[tuple[bytes, Finding]] = field(default_factory=list)
    by_manifest: list[tuple[bytes, Finding]] = field(default_factory=list)
    manifests_of: dict[bytes, U8] = field(default_factory=dict)
    bytes_read: int = 0
    native_chunks: int = 0
    compared_chunks: int = 0
    _row_of: dict[bytes, int] = field(default_factory=dict)

    def findings(self, before: State, after: State) -> list[Finding]:
        """Return the findings of needed files, each once, with the versions that they affect."""
        unreadable = after.info is None and not after.versions
        alive = self._bits(before.needed if unreadable else after.needed)
        # For versions without a ref, only damage is reported.
        detached = self._bits({version.id for version in before.versions if not version.is_needed})
        gone = {each.key for each in before.findings} - {each.key for each in after.findings}
        users = self._users()
        every = [(each, 0) for each in before.findings if each.key not in gone]
        for id_, each in self.by_version:
            if (ids := self._bits({id_})) & (alive | detached):
                every.append((each, ids))
        for id_, each in self.by_manifest:
            if (ids := users[id_]) & alive or (ids & detached and each.check not in _COLLECTED):
                every.append((each, ids))
        once: dict[tuple[str, str, bytes, bytes], tuple[Finding, int]] = {}
        for each, ids in every:
            key = each.check, each.key, each.node, each.coordinates.tobytes() + each.offsets.tobytes()
            once[key] = each, ids | (once[key][1] if key in once else 0)
        return [replace(each, affected=self._affected(ids & alive, after)) for each, ids in once.values()]

    def _affected(self, ids: int, state: State) -> Affected:
        """Return the branches and tags on some versions, and their number. ``ids`` has a bit for each."""
        branches, tags = (
            tuple(sorted(name for name, tip in refs.items() if self._bits({tip}) & ids))
            for refs in (state.branches, state.tags)
        )
        return Affected((), branches, tags, ids.bit_count())

    def _bits(self, ids: Set[bytes]) -> int:
        """Return a number with one bit for each version of a set."""
        if len(ids) == 1:
            return 1 << row if (row := self._rows.get(next(iter(ids)))) is not None else 0
        return _number(np.fromiter((id_ in ids for id_ in self._rows), bool, len(self._rows)))

    @property
    def _rows(self) -> dict[bytes, int]:
        """The number of each version."""
        if len(self._row_of) != len(self.manifests_of):
            self._row_of = {id_: row for row, id_ in enumerate(self.manifests_of)}
        return self._row_of

    def _users(self) -> dict[bytes, int]:
        """Return the versions that use each manifest with findings, as a number with one bit for each."""
        suspects = list({id_ for id_, _ in self.by_manifest})
        if not suspects:
            return {}
        keys = id_keys(id_matrix(suspects))
        lists = list(self.manifests_of.values())
        every = np.concatenate(lists)
        owners = np.repeat(np.arange(len(lists)), list(map(len, lists)))
        hits = ids_among(every, id_matrix(suspects))
        order = np.argsort(keys)
        which = order[keys[order].searchsorted(id_keys(every[hits]))]
        users = owners[hits]
        answer: dict[bytes, int] = {}
        for row, id_ in enumerate(suspects):
            bits = np.zeros(len(lists), bool)
            bits[users[which == row]] = True
            answer[id_] = _number(bits)
        return answer


def _number(bits: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")

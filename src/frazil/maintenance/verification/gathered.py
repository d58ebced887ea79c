"""What a verification has gathered until now, and which findings still hold at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from frazil.format.columns import U8
from frazil.format.ids import id_keys, id_list, id_matrix
from frazil.maintenance.verification.state import State
from frazil.repository.catalog.findings import Finding

#: Findings that a garbage collection can cause in versions without a branch or tag.
_COLLECTED: Final = frozenset({"missing", "short"})


@dataclass(slots=True)
class Gathered:
    """The findings until now, by the version or manifest that led to them."""

    by_version: list[tuple[bytes, Finding]] = field(default_factory=list)
    by_manifest: list[tuple[bytes, Finding]] = field(default_factory=list)
    manifests_of: dict[bytes, U8] = field(default_factory=dict)
    references: int = 0
    manifests: int = 0
    bytes_read: int = 0
    native_chunks: int = 0
    compared_chunks: int = 0

    def findings(self, before: State, after: State) -> list[Finding]:
        """Return the findings of needed files, each once."""
        # For versions without a ref, only damage is reported.
        detached = {version.id for version in before.versions if not version.is_needed}
        unreadable = after.info is None and not after.versions
        alive = before.needed if unreadable else after.needed
        used, used_by_detached = self._used(alive), self._used(detached)
        gone = {each.key for each in before.findings} - {each.key for each in after.findings}
        every = [
            *(each for each in before.findings if each.key not in gone),
            *(each for id_, each in self.by_version if id_ in alive | detached),
            *(
                each
                for id_, each in self.by_manifest
                if id_ in used or (id_ in used_by_detached and each.check not in _COLLECTED)
            ),
        ]
        once = {(each.check, each.key, each.node, each.coordinates.tobytes()): each for each in every}
        return list(once.values())

    def _used(self, alive: set[bytes]) -> set[bytes]:
        """Return the manifests with findings that versions in ``alive`` use."""
        suspects = list({id_ for id_, _ in self.by_manifest})
        if not suspects:
            return set()
        lists = [ids for version, ids in self.manifests_of.items() if version in alive]
        ids = id_matrix(suspects)
        return set(id_list(ids[np.isin(id_keys(ids), id_keys(np.concatenate([ids[:0], *lists])))]))

"""The search for another copy of each damaged file.

every file       the same key in a copy of the repository, and in quarantine
metadata files   also another file of the same folder that contains the id of the damaged file. Such a
and packs        file has the name of another file: two files were exchanged
chunk files      also another chunk file whose hash is the id of the damaged file (deduplication)
logs             also the rebuild from the snapshots
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Final

import numpy as np

from frazil.errors import IcechunkError
from frazil.format.chunk_check import check_file
from frazil.format.chunk_trailer import SINGLE_TRAILER_BYTES
from frazil.format.ids import OBJECT_ID_BYTES, id_from_text, id_list, id_matrix, is_id_text
from frazil.format.keys import CHUNKS, OVERWRITTEN, TRANSACTIONS, chunk_key
from frazil.maintenance.listing import listed
from frazil.maintenance.repair.chunk_uses import chunk_uses, version_files
from frazil.maintenance.repair.logs import RebuildLog
from frazil.maintenance.repair.quarantine import QUARANTINE, copies_in_quarantine, read_present
from frazil.maintenance.repair.repair_plan import Certainty
from frazil.maintenance.repair.steps import KINDS, CopyFiles, Origin, Site, Step, check_content
from frazil.maintenance.verification.findings import Finding
from frazil.maintenance.verification.state import state_of
from frazil.storage.base import Storage
from frazil.storage.outages import skip_damage
from frazil.threads import Purpose, map_bounded

#: The largest number of files of one folder that are read to find exchanged files.
_READ: Final = 1000
_SAME_HASH: Final = "a file with the same hash"
_EXCHANGED: Final = "the file of another name"
#: Reasons that all files of an origin share. Exchanged files must be in the same step, which reads all of
#: them before it writes.
_REASONS: Final = {_EXCHANGED: "files were exchanged"}


@dataclass(slots=True)
class FileSearch:
    """The search for copies, and the keys that have no further candidates.

    storage  the storage of the repository, not an overlay
    tried    pairs of a damaged key and an origin that an earlier round has used
    """

    storage: Storage
    copies: Sequence[Storage]
    tried: set[tuple[str, str, str]] = field(default_factory=set)
    rebuilt: set[str] = field(default_factory=set)

    def steps(self, site: Site, findings: Iterable[Finding]) -> list[Step]:
        """Return the steps that repair files with findings, as far as there are copies.

        A file that the storage did not return may be good, and stays as it is.
        """
        every = list(findings)
        may_be_good = {each.key for each in every if each.check == "unavailable"}
        why = {each.key: each.detail or str(each) for each in every if each.key not in may_be_good}
        chunks = sorted(key for key in why if key.startswith(f"{CHUNKS}/"))
        files = sorted(key for key in why if key.split("/")[0] in {*KINDS, OVERWRITTEN})
        aside = copies_in_quarantine(self.storage) if chunks or files else {}
        steps: list[Step] = []
        ends = self._ends(site, chunks)
        copies = self._copies([*files, *chunks], aside, ends)
        steps += self._grouped(copies, why, ends)
        missing = [key for key in files if key not in copies and key.startswith(f"{TRANSACTIONS}/")]
        return steps + self._rebuilds(site, missing, why)

    def _ends(self, site: Site, keys: Sequence[str]) -> Mapping[str, int]:
        """Return the number of bytes that references need of each chunk file."""
        if not keys:
            return {}
        ids = id_matrix([_id_of(key) for key in keys])
        uses = chunk_uses(site.context, version_files(site.context), ids)
        return dict(zip(map(chunk_key, id_list(uses.files)), uses.ends.tolist(), strict=True))

    def _copies(
        self, keys: Sequence[str], aside: Mapping[str, list[str]], ends: Mapping[str, int]
    ) -> dict[str, tuple[Origin, Certainty]]:
        """Return an origin with a good content for each key that has one."""
        elsewhere = self._elsewhere(keys, aside, ends)

        def search(key: str) -> tuple[Origin, Certainty] | None:
            best: tuple[Origin, Certainty] | None = None
            for origin in self._origins(key, aside, elsewhere):
                if (key, origin.label, origin.key) in self.tried:
                    continue
                with suppress(IcechunkError):
                    data = origin.read()
                    certainty = check_content(key, data, ends.get(key, 0))
                    present = read_present(self.storage, key)
                    if present is None or memoryview(present[0]) != memoryview(data):
                        if certainty == "proved":
                            return origin, certainty
                        best = best or (origin, certainty)
            return best

        results = zip(keys, map_bounded(Purpose.FILE_COPIES, search, list(keys)), strict=True)
        good = {key: result for key, result in results if result is not None}
        self.tried |= {(key, origin.label, origin.key) for key, (origin, _) in good.items()}
        return good

    def _origins(
        self, key: str, aside: Mapping[str, list[str]], elsewhere: Mapping[str, Origin]
    ) -> Iterator[Origin]:
        yield from (Origin(copy.label(), copy, key) for copy in self.copies)
        yield from (Origin(QUARANTINE, self.storage, name) for name in aside.get(key, ()))
        if key in elsewhere:
            yield elsewhere[key]

    def _elsewhere(
        self, keys: Sequence[str], aside: Mapping[str, list[str]], ends: Mapping[str, int]
    ) -> dict[str, Origin]:
        """Return files that have the content of a damaged file under another name."""
        answer: dict[str, Origin] = {}
        for folder in (*KINDS, CHUNKS):
            damaged = [key for key in keys if key.startswith(f"{folder}/")]
            names = [name for key, names in aside.items() if key.startswith(f"{folder}/") for name in names]
            if damaged and len(names) + len(damaged) > 1:
                answer |= self._by_id(folder, damaged, [*damaged, *names][:_READ])
        return answer | self._by_hash([key for key in keys if key in ends], aside, ends)

    def _by_id(self, folder: str, damaged: Sequence[str], names: Sequence[str]) -> dict[str, Origin]:
        def key_inside(name: str) -> str | None:
            with skip_damage():
                data = self.storage.get(name)
                if folder in KINDS:
                    return KINDS[folder].key(KINDS[folder].decode(data, name).id)
                trailer = check_file(_id_of(name), data).trailer
                return None if trailer is None else chunk_key(trailer.id)
            return None

        inside = zip(map_bounded(Purpose.FILE_COPIES, key_inside, list(names)), names, strict=True)
        pairs = [(key, name) for key, name in inside if key in damaged and key != name]
        return {key: Origin(_EXCHANGED, self.storage, name) for key, name in pairs if key}

    def _by_hash(
        self, damaged: Sequence[str], aside: Mapping[str, list[str]], ends: Mapping[str, int]
    ) -> dict[str, Origin]:
        """Return chunk files whose hash is the id of a damaged file. Only files of the same size are read."""
        sizes = sorted({ends[key] for key in damaged} - {0})
        if not sizes:
            return {}
        files = listed(self.storage, CHUNKS)
        wanted = np.array([size + more for size in sizes for more in (0, SINGLE_TRAILER_BYTES)], np.int64)
        rows = np.isin(files.sizes, wanted)
        names = files.select_files(rows).keys() if rows.sum() <= _READ else []
        names += [name for key, names in aside.items() if key.startswith(f"{CHUNKS}/") for name in names]

        def origins(name: str) -> list[tuple[str, Origin]]:
            with skip_damage():
                data = memoryview(self.storage.get(name))
                return [
                    (key, Origin(_SAME_HASH, self.storage, name, size))
                    for size in sizes
                    if size <= len(data)
                    if (key := chunk_key(sha256(data[:size]).digest()[:OBJECT_ID_BYTES])) != name
                ]
            return []

        pairs = chain.from_iterable(map_bounded(Purpose.FILE_COPIES, origins, names[:_READ]))
        return {key: origin for key, origin in pairs if key in damaged}

    def _grouped(
        self,
        copies: Mapping[str, tuple[Origin, Certainty]],
        why: Mapping[str, str],
        ends: Mapping[str, int],
    ) -> Iterator[Step]:
        """Yield one step for all files with the same origin, reason and certainty."""
        groups: dict[tuple[str, str, Certainty], list[tuple[str, Origin]]] = {}
        for key, (origin, certainty) in copies.items():
            reason = _REASONS.get(origin.label, why[key])
            if key.startswith(f"{CHUNKS}/"):
                reason = "the chunk file is missing or damaged"
            groups.setdefault((origin.label, reason, certainty), []).append((key, origin))
        for (_, reason, certainty), origins in groups.items():
            needs = {key: ends[key] for key, _ in origins if key in ends}
            yield CopyFiles(tuple(origins), reason, certainty, needs)

    def _rebuilds(self, site: Site, keys: Sequence[str], why: Mapping[str, str]) -> list[Step]:
        """Return steps that rebuild transaction logs whose two versions can be read."""
        versions = {each.id: each for each in state_of(site.context).versions} if keys else {}
        steps: list[Step] = []
        for key in keys:
            version = versions.get(_id_of(key))
            if version is None or key in self.rebuilt:
                continue
            parent = _parent_of(site, version.id)
            step = RebuildLog(version.id, parent, why[key])
            with skip_damage():  # one of the versions is damaged
                step.perform(site)
                self.rebuilt.add(key)
                steps.append(step)
        return steps


def _parent_of(site: Site, id_: bytes) -> bytes | None:
    """Return the parent that the repository lists now. It may be an ancestor, after an expiration."""
    snapshots = site.context.catalog.full_repo_info().snapshots
    return snapshots.entry(snapshots.find_snapshot(id_)).parent


def _id_of(key: str) -> bytes:
    name = key.rpartition("/")[2]
    return id_from_text(name) if is_id_text(name) else bytes(OBJECT_ID_BYTES)

"""The files of an ingest as a source of lost chunks, for ``frazil.Repository.upkeep.repair``.

The source ingests the files again into a scratch storage, and takes the chunks from there. Three conditions
make this more than a guess. Only ingests have written the chunk. The files have the fingerprints of
the ledger. And the chunk has exactly the length of the lost one, which the repair compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import NDArray

from frazil.changes.node_changes import in_both
from frazil.errors import IcechunkError, StorageError
from frazil.format.columns import U32
from frazil.format.ids import id_from_text, id_list
from frazil.jobs.engines import engine_of
from frazil.jobs.versions import Target
from frazil.maintenance.repair.repair_plan import LostChunks, SourceChunk
from frazil.pipeline.ingest.arrays import read_labels
from frazil.pipeline.ingest.axis import positions
from frazil.pipeline.ingest.dimension import NO_GROWTH
from frazil.pipeline.ingest.existing import ExistingGroup, dims_of
from frazil.pipeline.ingest.inspection import Inspection
from frazil.pipeline.ingest.ledger import Ledger, LedgerVersion
from frazil.pipeline.ingest.operation import INGEST, run_ingest
from frazil.pipeline.ingest.options import IngestRequest, Settings
from frazil.pipeline.ingest.problems import TOLERABLE
from frazil.pipeline.ingest.reconcile import labels_of_files
from frazil.pipeline.ingest.source_inspection import inspect_request
from frazil.repository.handle.interior import context_of
from frazil.repository.handle.repository import Repository
from frazil.repository.paths import HIDDEN
from frazil.storage.base import Storage

_BRANCH: Final = "frazil-repair"


@dataclass(frozen=True, slots=True)
class IngestedFiles:
    """The files that were ingested into a repository, as a source of lost chunks.

    Pass the options of the ingest that decide how files are opened, if it had any.

    Attributes:
        format: The format of all files. None: detected for each file.
        source_group: The path of the group in the files.
        storage_options: Options of the storage of the files.
        reader_options: Options of the reader of the format.
        unpack: Whether the ingest stored the values of packed data.

    Examples:
        >>> import frazil, numpy, xarray
        >>> from frazil.pipeline import IngestedFiles, ingest
        >>> data = xarray.Dataset({"t": ("x", numpy.random.default_rng(1).random(500))})
        >>> data.to_netcdf("t.nc", engine="h5netcdf")
        >>> repo = frazil.Repository.create(frazil.in_memory_storage())
        >>> result = ingest("t.nc", repo, engine="inline")
        >>> repo.storage.delete([each.key for each in repo.storage.list("chunks")])
        >>> plan = frazil.Repository.upkeep.repair(repo.storage, sources=[IngestedFiles()], dry_run=False)
        >>> xarray.open_zarr(repo.readonly_session("main").store, consolidated=False).equals(data)
        True
    """

    format: str | None = None
    source_group: str = "/"
    storage_options: Mapping[str, Any] | None = None
    reader_options: Mapping[str, Any] | None = None
    unpack: bool = False

    def label(self) -> str:
        """Return the name of the source.

        Returns:
            The name.

        Examples:
            >>> IngestedFiles().label()
            'the ingested files'
        """
        return "the ingested files"

    def read_chunks(self, scratch: Storage, lost: Sequence[LostChunks]) -> Iterator[SourceChunk]:
        """Yield the bytes of lost chunks that an ingest wrote from unchanged files.

        Args:
            scratch: A storage that shows the repository. The source writes to it.
            lost: The lost chunks.

        Yields:
            The chunks.

        Examples:
            >>> import frazil
            >>> list(IngestedFiles().read_chunks(frazil.in_memory_storage(), []))
            []
        """
        if not lost:
            return
        repo = Repository.open(scratch)
        for (version, group), parts in _by_group(repo, lost).items():
            with suppress(IcechunkError):  # files that are gone or changed: their chunks stay lost
                yield from _SecondIngest(self, repo, version, group, parts).chunks()


def _settings(files: IngestedFiles, ledger: Ledger) -> Settings:
    """Return the options of the second ingest of the files of a ledger."""
    return Settings(
        concat_dim=ledger.concat_dim,
        mode="upsert",
        variables=ledger.variables,
        allow=TOLERABLE,
        unpack=files.unpack,
        format=files.format,
        source_group=files.source_group,
        storage_options=files.storage_options,
        reader_options=files.reader_options,
        engine="inline",
    )


def _by_group(repo: Repository, lost: Sequence[LostChunks]) -> dict[tuple[str, str], list[LostChunks]]:
    """Return the lost chunks by the newest version that needs them, and by the group with their ledger."""
    groups: dict[tuple[str, str], list[LostChunks]] = {}
    for each in lost:
        if each.path is None or not each.versions:
            continue
        nodes = repo.readonly_session(snapshot_id=each.versions[0]).workspace.nodes
        group = each.path.rpartition("/")[0]
        while nodes.node(f"{group}/{HIDDEN}") is None and group:
            group = group.rpartition("/")[0]
        if nodes.node(f"{group}/{HIDDEN}") is not None:
            groups.setdefault((each.versions[0], group or "/"), []).append(each)
    return groups


@dataclass(frozen=True, slots=True)
class _SecondIngest:
    """A second ingest of the files that cover some lost chunks of a group at a version."""

    options: IngestedFiles
    repo: Repository
    version: str
    group: str
    lost: Sequence[LostChunks]

    def chunks(self) -> Iterator[SourceChunk]:
        """Yield the chunks that the ingest writes again."""
        wanted = [(each, self._ingested(each)) for each in self.lost]
        wanted = [(each, coordinates) for each, coordinates in wanted if len(coordinates)]
        session = self.repo.readonly_session(snapshot_id=self.version)
        ledger = LedgerVersion.load(session, self.group).ledger
        files = self._covering_files(ledger, wanted)
        if not files:
            return
        branch = f"{_BRANCH}-{self.version}-{len(self.repo.list_branches())}"
        self.repo.create_branch(branch, self.version)
        with self.repo.transaction(branch, message="without the ledger") as store:
            del zarr.open_group(store, path=self.group.strip("/"))[HIDDEN]
        settings = _settings(self.options, ledger)
        request = IngestRequest.of(files, settings)
        result = run_ingest(request, Target(self.repo, branch, self.group), settings.run)
        again = result.version.session().workspace
        for each, coordinates in wanted:
            for at in map(tuple, coordinates.tolist()):
                assert each.path is not None
                with suppress(StorageError):  # no file has the chunk: its reference is the lost one
                    data = again.chunks.read(each.path, at)
                    if data is not None:
                        yield SourceChunk(each.node, at, bytes(data))

    def _ingested(self, lost: LostChunks) -> U32:
        """Return the coordinates of chunks that only ingests have written, since the array was created.

        An ingest keeps the old steps of a chunk that it writes in part. So one other commit in the whole
        history of a chunk is enough to change its values. An expired commit may be such a commit.
        """
        clean = lost.coordinates
        context = context_of(self.repo)
        snapshots = context.catalog.full_repo_info().snapshots
        for info in self.repo.ancestry(snapshot_id=self.version):
            id_ = id_from_text(info.id)
            log = context.assets.transaction_log(id_)
            logged = log.updated_chunks.get(lost.node)
            if logged is not None and INGEST not in info.metadata:
                clean = clean[~in_both(clean, logged)]
            if lost.node in id_list(log.new_arrays):
                return clean if INGEST in info.metadata else clean[:0]
            if snapshots.entry(snapshots.find_snapshot(id_)).pruned_ancestor_tx_logs:
                break
        return clean[:0]

    def _covering_files(self, ledger: Ledger, wanted: Sequence[tuple[LostChunks, U32]]) -> list[str]:
        """Return the unchanged files of the ledger that have values of the chunks."""
        urls = ledger.url[~ledger.quarantined].tolist()
        if not urls or not wanted:
            return []
        settings = _settings(self.options, ledger)
        request = IngestRequest.of(urls, settings)
        inspection = inspect_request(request, engine_of("inline"), NO_GROWTH)
        rows = ledger.rows_of(inspection.urls)
        same = (ledger.fingerprint[rows] == inspection.fingerprint).all(axis=1) & (inspection.layout >= 0)
        return inspection.chosen_urls(same & self._overlaps(inspection, same, wanted))

    def _overlaps(
        self, inspection: Inspection, files: NDArray[np.bool_], wanted: Sequence[tuple[LostChunks, U32]]
    ) -> NDArray[np.bool_]:
        """Return which files have steps in the chunks. All files, if this cannot be told from labels."""
        every = np.ones(len(inspection.urls), bool)
        dim = inspection.dim
        existing = ExistingGroup(self.repo.readonly_session(snapshot_id=self.version), self.group)
        if dim is None or dim not in existing.arrays:
            return every
        steps, _ = labels_of_files(inspection, files, existing.stored_variables())
        if steps is None or steps.labels is None:
            return every
        labels = read_labels(existing.arrays[dim])
        needed = np.zeros(len(labels) + 1, bool)
        for each, coordinates in wanted:
            assert each.path is not None
            array = existing.arrays.get(each.path.rpartition("/")[2])
            if array is None or dim not in dims_of(array):
                return every
            axis = dims_of(array).index(dim)
            size = array.shards[axis] if array.shards else array.chunks[axis]
            for at in np.unique(coordinates[:, axis]).tolist():
                needed[at * size : (at + 1) * size] = True
        hit = needed[positions(labels, steps.labels)] & (positions(labels, steps.labels) >= 0)
        before = np.concatenate(([0], np.cumsum(hit)))
        overlaps: NDArray[np.bool_] = before[steps.start[1:]] > before[steps.start[:-1]]
        return overlaps

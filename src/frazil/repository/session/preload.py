"""The preload of manifests, in the background, when a session opens.

It happens if the configuration has ``manifest.preload`` and the storage is remote. Local manifests are fast
to read later. The preload scans up to ``max_arrays_to_scan`` arrays in the order of their paths. It loads the
manifests of an array if the condition holds, up to ``max_total_refs`` references in total. Errors are only
logged: the read that needs the manifest raises its error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from frazil.repository.asynchronous import begin

if TYPE_CHECKING:
    from frazil.repository.session.workspace import Workspace

_log: Final = logging.getLogger(__name__)


def preload(workspace: Workspace) -> None:
    """Begin to load the manifests that the configuration selects."""
    context = workspace.context
    manifest = context.config.manifest
    if manifest is not None and manifest.preload is not None and not context.storage.is_local:
        begin(_load, workspace)


def _load(workspace: Workspace) -> None:
    context, settings = workspace.context, workspace.context.settings
    try:
        snapshot = workspace.snapshot
        counts = dict(
            zip(map(bytes, snapshot.manifests.ids), snapshot.manifests.num_chunk_refs.tolist(), strict=True)
        )
        wanted: dict[bytes, int] = {}
        rows = np.flatnonzero(snapshot.nodes.is_array)[: settings.preload_max_arrays_to_scan]
        for node in map(snapshot.nodes.node, rows.tolist()):
            if node.array is None:
                continue
            ids = {ref.id: counts.get(ref.id, 0) for ref in node.array.manifests}
            total = sum((wanted | ids).values())
            if total <= settings.preload_max_total_refs and settings.preloads(node.path, sum(ids.values())):
                wanted |= ids
        context.assets.manifests(list(wanted), settings.concurrent_manifest_fetches)
    except Exception as error:
        _log.debug("manifests were not preloaded: %s", error)

"""A preview: files of other formats as a repository in a temporary folder, for the page of `frazil ui`.

The repository has references to the bytes of the files, as after ``frazil ingest --virtual``. Files whose
bytes the page cannot decode are copied into the folder, up to `LARGEST_COPY`. A Zarr store of version 3 is
adopted, with all its groups.

The server can read whole folders of files. The page gets only the ranges that references name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from frazil.chunks.virtual import ForeignObject, VirtualSources
from frazil.cli.arguments import container
from frazil.cli.opening import OpenTarget
from frazil.display import counted
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.format.chunk_table import ChunkKind, VirtualRef
from frazil.handle.repository import Repository, context_of
from frazil.handle.upgrade import ZarrStore, adopt, read_zarr_store
from frazil.jobs.engine import engine_of
from frazil.jobs.job import Target as Destination
from frazil.pipeline.ingest.operation import (
    GroupDimensions,
    inspect_request,
    inspection_report,
    run_ingest,
    with_containers,
)
from frazil.pipeline.ingest.options import IngestRequest, expand, is_small, public_name, refusal
from frazil.readers.files import find_file
from frazil.readers.registry import sniff
from frazil.repository.session.workspace import Workspace
from frazil.repository.target import MAIN, Target
from frazil.storage.local import local_filesystem_storage
from frazil.storage.urls import parse_url, storage_from_url
from frazil.ui.server import Site

#: The largest sum of the sizes of files that a preview copies.
LARGEST_COPY: Final = 1 << 30
#: Kinds of problems of files that can be copied, but not referenced.
_NOT_VIRTUAL: Final = frozenset({"virtual", "chunks"})
#: The number of files that the command of an ingest names.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """What a server shows, the command that stores the same data, and notes on the files."""

    site: Site
    command: str
    notes: tuple[str, ...] = ()


def preview(
    targets: Sequence[Target], folder: Path, options: Mapping[str, Any], words: Sequence[str], progress: Any
) -> Preview:
    """Write a repository with the data of files into an empty folder.

    The path of the targets is the group in the files. ``options`` are those of an `IngestRequest`, and
    ``words`` the same as options of the command line.
    """
    sources = [each.location for each in targets]
    groups = {each.path or "/" for each in targets}
    if len(groups) > 1 or any(each.version for each in targets):
        raise InvalidInputError(
            f"files must have one group, and no version, got {', '.join(map(str, targets))}. Write @@ and :: "
            "for the characters @ and : in the name of a file"
        )
    group = groups.pop()
    if group != "/":
        options = {**options, "source_group": group}
        words = [*words, f"--source-group={shlex.quote(group)}"]
    urls = expand(sources).urls
    store = None if words or len(urls) > 1 else _zarr_store(urls[0])
    name = public_name(sources[0]) if len(sources) == 1 else counted(len(sources), "file")
    few = [*map(shlex.quote, sources[:_NAMED]), *["..."] * (len(sources) > _NAMED)]
    command = " ".join(["frazil", "adopt" if store else "ingest", *few, "REPOSITORY", *words])
    message = f"Preview of {name}. The command to store the data: {command}"
    repo = Repository.create(local_filesystem_storage(str(folder), flush=False))
    if store is None:
        notes = _ingest(repo, urls, options, message, progress)
    else:
        repo = with_containers(repo, [container(_folder(urls[0]))])
        session = repo.writable_session(MAIN)
        adopt(session, store, parse_url(urls[0]).chunk_location.rstrip("/"))
        session.commit(message)
        notes = ()
    opened = OpenTarget(Target(str(folder)))
    virtual = OnlyReferences(context_of(repo).virtual, _ranges(opened.workspace))
    version = int(opened.info.spec_version)
    return Preview(
        Site(opened.target, opened.storage, version, virtual, label=f"{name} (preview)"), command, notes
    )


def _zarr_store(url: str) -> ZarrStore | None:
    """Return a Zarr store of version 3 that can be listed, else None."""
    with suppress(IcechunkError):
        storage = storage_from_url(url)
        return None if storage.head("zarr.json") is None else read_zarr_store(storage)
    return None


def _ingest(
    repo: Repository, urls: Sequence[str], options: Mapping[str, Any], message: str, progress: Any
) -> tuple[str, ...]:
    """Ingest files as references if the page can decode them, else as copies. Return notes on them."""
    prefixes = dict.fromkeys(_folder(url) for url in urls)
    request = IngestRequest(
        urls,
        virtual=not _is_grib(urls[0]),
        containers=list(map(container, prefixes)),
        engine="inline" if is_small(urls) else "processes",
        message=message,
        progress=progress,
        **options,
    )
    engine = engine_of(request.engine)
    inspection = inspect_request(request, engine, GroupDimensions())
    problems = inspection_report(request, inspection).fatal()
    is_copy = not request.virtual
    if problems and {each.kind for each in problems} <= _NOT_VIRTUAL:
        is_copy = True
    if is_copy and inspection.size.sum() > LARGEST_COPY:
        raise InvalidInputError(
            f"a preview copies files whose bytes the page cannot decode, up to {LARGEST_COPY >> 30} GiB, "
            f"got {inspection.size.sum():,} bytes. Ingest the files into a repository",
            ErrorKind.BAD_SOURCE,
        )
    if is_copy and request.virtual:
        request = replace(request, virtual=False, containers=())
        inspection = inspect_request(request, engine, GroupDimensions())
        problems = inspection_report(request, inspection).fatal()
    if problems:
        raise refusal(problems, len(urls))
    report = run_ingest(request, Destination(repo), inspection).report
    copied = ("the files are copied into a temporary folder, because the page cannot decode them in place",)
    return (copied if is_copy else ()) + tuple(map(str, report.notes if report else ()))


def _is_grib(url: str) -> bool:
    """Return whether the page could not decode references to a file, because its codec is a library."""
    with suppress(IcechunkError):
        return sniff(find_file(url)) == "grib"
    return False


def _folder(url: str) -> str:
    """Return the prefix of the folder or bucket in which a file is."""
    return parse_url(url).chunk_location.rstrip("/").rpartition("/")[0] + "/"


# Ranges

#: The first bytes of ranges of a file, ascending, and the bytes after their ends.
type Ranges = tuple[NDArray[np.int64], NDArray[np.int64]]


class OnlyReferences(VirtualSources):
    """Containers of which only ranges inside of the references of one version are readable."""

    def __init__(self, sources: VirtualSources, ranges: Mapping[str, Ranges]) -> None:
        super().__init__(sources.containers, sources.credentials)
        self._ranges = ranges

    def locate(self, ref: VirtualRef) -> ForeignObject:
        """Return the object of a range. Raises ``InvalidInputError`` for a range without references."""
        if ref.location in self._ranges:
            starts, stops = self._ranges[ref.location]
            row = int(np.searchsorted(starts, ref.offset, "right")) - 1
            if row >= 0 and ref.offset + ref.length <= stops[row]:
                return super().locate(ref)
        raise InvalidInputError(
            "a preview gives only the bytes that a chunk refers to, got another range",
            ErrorKind.UNAUTHORIZED_VIRTUAL_CHUNK_CONTAINER,
        )


def _ranges(workspace: Workspace) -> dict[str, Ranges]:
    """Return the ranges that the references of a version name, by location. Ranges that touch are one."""
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for path in filter(workspace.is_array, workspace.node_table().paths_list()):
        table = workspace.ref_table(path)
        rows = np.flatnonzero(table.kind == ChunkKind.VIRTUAL)
        if not len(rows):
            continue
        rows = rows[np.argsort(table.source[rows], kind="stable")]
        first = table.offset[rows].astype(np.int64)
        pairs = np.stack((first, first + table.length[rows].astype(np.int64)), axis=1)
        sources, begins = np.unique(table.source[rows], return_index=True)
        for source, part in zip(sources.tolist(), np.split(pairs, begins[1:]), strict=True):
            parts.setdefault(table.foreign.locations.text(source), []).append(part)
    return {location: _joined(np.concatenate(each)) for location, each in parts.items()}


def _joined(pairs: NDArray[np.int64]) -> Ranges:
    starts, stops = pairs[np.argsort(pairs[:, 0])].T
    reach = np.maximum.accumulate(stops)
    new = np.flatnonzero(np.append(True, starts[1:] > reach[:-1]))
    return starts[new], reach[np.append(new[1:] - 1, len(starts) - 1)]

"""One repository on the local file system, seen by Frazil and by the published icechunk.

Their public names are the same, so that one function describes what either of them sees.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import icechunk
import zarr
from tests.expected import (
    ancestry_of,
    diff_text,
    digest_of,
    flags_of,
    history_of,
    ops_of,
    refs_of,
    status_text,
)
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import frazil
import frazil.credentials

Json = dict[str, Any]
ROOT = "1CECHNKREP0F1RSTCMT0"


@dataclass(eq=False)
class Side:
    """One of the two implementations, with a repository opened."""

    name: str
    package: Any
    path: Path
    virtual: Path | None = None
    repo: Any = None
    spec: int = 2

    def storage(self) -> Any:
        return self.package.local_filesystem_storage(str(self.path))

    @property
    def access(self) -> Json:
        """Leave to read the files in ``virtual``."""
        return {} if self.virtual is None else {self.prefix: self.package.credentials.LocalFileSystemAccess}

    @property
    def prefix(self) -> str:
        return f"file://{self.virtual}/"

    def config(self, **settings: Any) -> Any:
        """A configuration, with a container for the files in ``virtual``."""
        config = self.package.RepositoryConfig(**settings)
        if self.virtual is not None:
            store = self.package.local_filesystem_store(str(self.virtual))
            container = self.package.VirtualChunkContainer(self.prefix, store, name="files")
            config.set_virtual_chunk_container(container)
        return config

    def create(self, config: Any = None) -> Side:
        self.repo = self.package.Repository.create(
            self.storage(), config, self.access, spec_version=self.spec
        )
        return self

    def open(self) -> Side:
        self.repo = self.package.Repository.open(self.storage(), None, self.access)
        return self


def sides(path: Path, virtual: Path | None = None, spec: int = 2) -> tuple[Side, Side]:
    """Frazil and the published icechunk, nothing opened yet."""
    return (
        Side("frazil", frazil, path, virtual, spec=spec),
        Side("icechunk", icechunk, path, virtual, spec=spec),
    )


def copies(source: Path, folder: Path, virtual: Path | None = None) -> tuple[Side, Side]:
    """Two copies of one repository, one for each side."""
    for side in (pair := sides(folder, virtual)):
        side.path = folder / side.name
        shutil.copytree(source, side.path)
        side.open()
    return pair


def log_of(side: Side, id_: str) -> Json:
    """The transaction log, as the reference reads it, without its header."""
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(side.path)))
    return {name: value for name, value in repo.inspect_transaction_log(id_).items() if name != "header"}


def splitting(package: Any, size: int) -> Any:
    """Manifests of ``size`` chunks along each dimension."""
    rules = {package.ManifestSplitCondition.AnyArray(): {package.ManifestSplitDimCondition.Any(): size}}
    splitting = package.ManifestSplittingConfig.from_dict(rules)
    return package.ManifestConfig(splitting=splitting)


def state_of(repo: Any) -> Json:
    """All but the content of snapshots."""
    both = {"refs": refs_of(repo), "history": history_of(repo)}
    if str(repo.spec_version).endswith("1"):
        return both
    return {
        **both,
        "ops": ops_of(repo),
        "metadata": repo.get_metadata(),
        "status": status_text(repo.get_status()),
        "flags": flags_of(repo),
    }


def manifests_of(repo: Any, snapshot: str) -> list[tuple[str, int, int]]:
    files = repo.list_manifest_files(snapshot)
    return sorted((file.id, file.size_bytes, file.num_chunk_refs) for file in files)


def content_of(session: Any) -> Json:
    """By path: the stored document, and for arrays all references and a digest of the values."""
    out: Json = {}
    for path, document in sync(documents_of(session)).items():
        out[path] = {"id": session.get_node_id(path), "document": document}
        if b'"array"' in document and not _is_group(document):
            out[path] |= {
                "chunks": sync(references_of(session, path)),
                "values": digest_of(zarr.open_array(session.store, path=path.strip("/"), mode="r")),
            }
    return out


def _is_group(document: bytes) -> bool:
    return b'"node_type":"group"' in document.replace(b" ", b"").replace(b"\n", b"")


async def documents_of(session: Any) -> dict[str, bytes]:
    """``zarr.json`` of all nodes, in the order in which the store lists them."""
    keys = [key async for key in session.store.list() if key.endswith("zarr.json")]
    prototype = default_buffer_prototype()
    return {
        "/" + key.removesuffix("zarr.json").rstrip("/"): (await session.store.get(key, prototype)).to_bytes()
        for key in keys
    }


async def references_of(session: Any, path: str) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = []
    async for at, kinds, locations, offsets, lengths, inlined in session.store.array_chunk_iterator(path):
        for row, index in enumerate(at.tolist()):
            kind = int(kinds[row])
            where = bytes(inlined[row]) if kind == 3 else (locations[row], int(offsets[row]))
            out.append((tuple(index), kind, where, int(lengths[row])))
    return sorted(out, key=lambda each: each[0])


def diff_of(repo: Any, before: str, after: str) -> Json:
    return diff_text(repo.diff(from_snapshot_id=before, to_snapshot_id=after))


def check_same(ours: Side, theirs: Side) -> Json:
    """Both see the same refs, history, ops log, settings, and content in every snapshot of the history.

    Gives what they see: the state, and the content by snapshot.
    """
    state = state_of(ours.repo)
    assert state == state_of(theirs.repo)
    seen: Json = {}
    for chain in state["history"].values():
        for entry in chain:
            id_, parent = entry["id"], entry["parent_id"]
            if id_ not in seen:
                seen[id_] = check_same_snapshot(ours, theirs, id_)
                if parent is not None:
                    assert diff_of(ours.repo, parent, id_) == diff_of(theirs.repo, parent, id_)
    return {**state, "content": seen}


def check_same_snapshot(ours: Side, theirs: Side, id_: str) -> Json:
    mine, yours = (content_of(side.repo.readonly_session(snapshot_id=id_)) for side in (ours, theirs))
    assert list(mine) == list(yours)
    assert mine == yours
    manifests = manifests_of(ours.repo, id_)
    assert manifests == manifests_of(theirs.repo, id_)
    # The reference asks storage for exactly as many bytes.
    folder = ours.path / "manifests"
    assert all((folder / name).stat().st_size == size for name, size, _ in manifests)
    assert ancestry_of(ours.repo, snapshot_id=id_) == ancestry_of(theirs.repo, snapshot_id=id_)
    return mine


OPENED = {"snapshots": "inspect_snapshot", "manifests": "inspect_manifest"}
LOGS = {"transactions": "inspect_transaction_log"}


def answer_of(call: Callable[..., Any], *arguments: str) -> Any:
    try:
        return call(*arguments)
    except Exception as error:
        return type(error).__name__, getattr(error, "kind", None)


def in_order(document: Any) -> Any:
    """The reference shows nodes in the order of the file, Frazil always by path."""
    if isinstance(document, dict) and "nodes" in document:
        return {**document, "nodes": sorted(document["nodes"], key=lambda node: node["path"])}
    return document


def check_same_files(ours: Side, theirs: Side) -> None:
    """``inspect_*`` says the same of every file."""
    if ours.spec > 1:
        assert ours.repo.inspect_repo_info() == theirs.repo.inspect_repo_info()
    for folder, method in (OPENED | LOGS).items():
        for name in sorted(file.name for file in (ours.path / folder).glob("*")):
            mine = answer_of(getattr(ours.repo, method), name)
            assert in_order(mine) == in_order(answer_of(getattr(theirs.repo, method), name))

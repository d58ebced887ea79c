"""The adapter of libraries with the interface of icechunk: `python kit/adapters/python_api.py frazil`."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from icechunk_kit.adapter import serve
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

library: Any = importlib.import_module(sys.argv[1])
#: The most special class first.
KINDS = {
    "RebaseFailedError": "rebase",
    "ConflictError": "conflict",
    "NotFoundError": "not-found",
    "AlreadyExistsError": "exists",
    "ReadOnlyError": "read-only",
    "InvalidInputError": "invalid",
    "SessionStateError": "state",
    "FormatError": "format",
    "StorageError": "storage",
}
#: What the messages of errors hold, for releases without these classes: icechunk 1.
TEXTS = {
    "not found|doesn't exist|does not exist": "not-found",
    "already exists": "exists",
    "read.?only": "read-only",
    "no changes|main branch": "state",
    "has been modified|checksum|etag": "modified",
    "invalid": "invalid",
}

type Location = dict[str, Any]
type Ref = dict[str, str]


def kind(error: Exception) -> str:
    if getattr(error, "kind", None) == "virtual-chunk-modified":
        return "modified"
    for name, word in KINDS.items():
        if isinstance(error, getattr(library, name, ())):
            return word
    texts = {} if hasattr(library, "NotFoundError") else TEXTS
    return next((word for text, word in texts.items() if re.search(text, str(error))), "other")


def storage(location: Location) -> Any:
    if "path" in location:
        return library.local_filesystem_storage(location["path"])
    s3 = location["s3"]
    return library.s3_storage(
        bucket=s3["bucket"],
        prefix=s3["prefix"],
        region=s3["region"],
        endpoint_url=s3["endpoint"],
        access_key_id=s3["access_key"],
        secret_access_key=s3["secret_key"],
        allow_http=True,
        force_path_style=True,
    )


def repository(location: Location) -> Any:
    prefixes = location.get("containers", [])
    if not prefixes:
        return library.Repository.open(storage(location))
    config = library.Repository.fetch_config(storage(location)) or library.RepositoryConfig.default()
    access = {prefix: container(prefix, location) for prefix in prefixes}
    for prefix in set(prefixes) - set(config.virtual_chunk_containers or {}):
        config.set_virtual_chunk_container(library.VirtualChunkContainer(prefix, access[prefix][0]))
    return library.Repository.open(
        storage(location), config, {prefix: access[prefix][1] for prefix in prefixes}
    )


def container(prefix: str, location: Location) -> tuple[Any, Any]:
    """Return the store of a container and the right to read it. Objects are in that of the repository."""
    if prefix.startswith("file://"):
        store = library.local_filesystem_store(prefix.removeprefix("file://"))
        return store, library.Credentials.LocalFileSystemAccess()
    s3 = location["s3"]
    place = {"region": s3["region"], "endpoint_url": s3["endpoint"]}
    keys = {"access_key_id": s3["access_key"], "secret_access_key": s3["secret_key"]}
    store = library.s3_store(**place, allow_http=True, force_path_style=True)
    return store, library.Credentials.S3(library.s3_credentials(**keys))


def get(store: Any, key: str) -> bytes | None:
    buffer = sync(store.get(key.strip("/"), default_buffer_prototype()))
    return None if buffer is None else bytes(buffer.to_bytes())


def session(location: Location, ref: Ref) -> Any:
    return repository(location).readonly_session(**ref)


def refs(location: Location) -> Any:
    repo = repository(location)
    branches = {name: repo.lookup_branch(name) for name in repo.list_branches()}
    return {"branches": branches, "tags": {name: repo.lookup_tag(name) for name in repo.list_tags()}}


def log(location: Location, ref: Ref) -> Any:
    infos = repository(location).ancestry(**ref)
    return [{"id": each.id, "message": each.message, "time": microseconds(each.written_at)} for each in infos]


def microseconds(time: datetime) -> int:
    return round(time.timestamp() * 1e6)


def properties(location: Location, ref: Ref) -> Any:
    return next(iter(repository(location).ancestry(**ref))).metadata


def metadata(location: Location, ref: Ref, path: str) -> Any:
    data = get(session(location, ref).store, f"{path}/zarr.json")
    if data is None:
        raise library.NotFoundError(path)
    return json.loads(data)


def list_nodes(location: Location, ref: Ref) -> Any:
    store = session(location, ref).store

    async def names(prefix: str) -> list[str]:
        return [name async for name in store.list_dir(prefix)]

    def walk(path: str) -> Iterator[dict[str, str]]:
        data = get(store, f"{path}/zarr.json")
        if data is not None:
            type_ = json.loads(data)["node_type"]
            yield {"path": path or "/", "type": type_}
            if type_ == "group":
                for name in sync(names(path.strip("/"))):
                    if name != "zarr.json":
                        yield from walk(f"{path}/{name}")

    return sorted(walk(""), key=lambda node: node["path"].encode())


def read(location: Location, ref: Ref, path: str, chunks: list[list[int]]) -> Any:
    store = session(location, ref).store
    values = (get(store, "/".join([path, "c", *map(str, index)])) for index in chunks)
    return [None if value is None else value.hex() for value in values]


def count(location: Location, ref: Ref, path: str) -> int:
    opened = session(location, ref)

    async def total() -> int:
        return len([0 async for _ in opened.chunk_coordinates(path)])

    return int(sync(total()))


def diff(location: Location, to: str, **start: str) -> Any:
    result = repository(location).diff(from_snapshot_id=start["from"], to_snapshot_id=to)
    both = {
        what: sorted([*getattr(result, f"{what}_groups"), *getattr(result, f"{what}_arrays")])
        for what in ("new", "deleted", "updated")
    }
    chunks = {path: sorted(map(list, indexes)) for path, indexes in result.updated_chunks.items()}
    return both | {"chunks": chunks, "moved": sorted(map(list, getattr(result, "moved_nodes", [])))}


def updates(location: Location) -> Any:
    log = repository(location).ops_log()
    return [
        {"kind": f"{type(each.kind).__name__}Update", "time": microseconds(each.updated_at)} for each in log
    ]


#: The sessions of this process by their names.
sessions: dict[str, Any] = {}


def create(location: Location, version: str) -> None:
    if hasattr(library, "upgrade_icechunk_repository"):
        library.Repository.create(storage(location), spec_version=int(version))
    elif version == "1":
        library.Repository.create(storage(location))
    else:
        raise NotImplementedError


def begin(location: Location, branch: str = "", ref: Ref | None = None, rearrange: bool = False) -> str:
    name, repo = f"session {len(sessions)}", repository(location)
    if ref is not None:
        sessions[name] = repo.readonly_session(**ref)
    else:
        sessions[name] = repo.rearrange_session(branch) if rearrange else repo.writable_session(branch)
    return name


def set_key(store: Any, key: str, data: str) -> None:
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(bytes.fromhex(data))))


def delete(store: Any, key: str) -> None:
    is_chunk = "/c/" in f"/{key}/"
    sync(store.delete(key) if is_chunk else store.delete_dir(key))


def get_key(store: Any, key: str) -> str | None:
    data = get(store, key)
    return None if data is None else data.hex()


def virtual(store: Any, path: str, index: list[int], url: str, **reference: Any) -> None:
    modified = reference.pop("modified", None)
    checksum = reference.pop("etag", None) if modified is None else moment(modified * 1_000_000)
    key = "/".join([path.strip("/"), "c", *map(str, index)])
    store.set_virtual_ref(key, url, checksum=checksum, **reference)


def commit(session: Any, message: str, properties: Any = None, empty: bool = False) -> Any:
    options = {"allow_empty": True} if empty else {}  # an option that icechunk 1 does not have
    return session.commit(message, properties, **options)


def amend(session: Any, message: str) -> Any:
    if not hasattr(session, "amend"):
        raise NotImplementedError
    return session.amend(message)


def rebase(session: Any, solver: str | None) -> None:
    choice = {"ours": library.VersionSelection.UseOurs, "theirs": library.VersionSelection.UseTheirs}
    if solver is None:
        session.rebase(library.ConflictDetector())
    else:
        session.rebase(library.BasicConflictSolver(on_chunk_conflict=choice[solver]))


def moment(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


def expire(repo: Any, before: int, delete_branches: bool = False, delete_tags: bool = False) -> list[str]:
    return sorted(
        repo.expire_snapshots(
            moment(before), delete_expired_branches=delete_branches, delete_expired_tags=delete_tags
        )
    )


def reset(repo: Any, name: str, snapshot: str, **start: str) -> None:
    repo.reset_branch(name, snapshot, from_snapshot_id=start.get("from"))


def collect(repo: Any, before: int) -> None:
    repo.garbage_collect(moment(before))


def status(repo: Any, value: str) -> None:
    repo.set_status(library.RepoStatus(getattr(library.RepoAvailability, value.replace("-", "_"))))


def upgrade(repo: Any) -> None:
    if not hasattr(library, "upgrade_icechunk_repository"):
        raise NotImplementedError
    library.upgrade_icechunk_repository(repo, dry_run=False)


def on_session(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda location, session, **request: operation(sessions[session], **request)


def on_store(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda location, session, **request: operation(sessions[session].store, **request)


def on_repository(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda location, **request: operation(repository(location), **request)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "refs": refs,
    "log": log,
    "properties": properties,
    "list": list_nodes,
    "metadata": metadata,
    "read": read,
    "count": count,
    "diff": diff,
    "updates": updates,
    "create": create,
    "session": begin,
    "set": on_store(set_key),
    "delete": on_store(delete),
    "get": on_store(get_key),
    "virtual": on_store(virtual),
    "move": on_session(lambda session, **paths: session.move(paths["from"], paths["to"])),
    "commit": on_session(commit),
    "amend": on_session(amend),
    "rebase": on_session(rebase),
    "branch-create": on_repository(lambda repo, name, snapshot: repo.create_branch(name, snapshot)),
    "branch-reset": on_repository(reset),
    "branch-delete": on_repository(lambda repo, name: repo.delete_branch(name)),
    "tag-create": on_repository(lambda repo, name, snapshot: repo.create_tag(name, snapshot)),
    "tag-delete": on_repository(lambda repo, name: repo.delete_tag(name)),
    "expire": on_repository(expire),
    "collect": on_repository(collect),
    "upgrade": on_repository(upgrade),
    "flag": on_repository(lambda repo, name, value: repo.set_feature_flag(name, value)),
    "status": on_repository(status),
}

if __name__ == "__main__":
    serve(OPERATIONS, kind)

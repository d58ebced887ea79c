"""The adapter of zarrista, which reads the session of an icechunk that shares its format of sessions.

pip install zarrista==0.1.0 "icechunk==2.1.2"
"""

from __future__ import annotations

import asyncio
from typing import Any

import icechunk
import zarrista
from icechunk_kit.adapter import serve


def session(location: dict[str, Any], ref: dict[str, str]) -> Any:
    if "path" not in location or "containers" in location:
        raise NotImplementedError
    storage = icechunk.local_filesystem_storage(location["path"])
    return icechunk.Repository.open(storage).readonly_session(**ref)  # type: ignore[arg-type]  # a branch, a tag or an id


def read(location: dict[str, Any], ref: dict[str, str], path: str, chunks: list[list[int]]) -> Any:
    async def stored() -> list[str | None]:
        array = await zarrista.AsyncArray.open(session(location, ref), path)
        results = [await array.retrieve_encoded_chunk(index) for index in chunks]
        return [result and bytes(result.buffer).hex() for result in results]

    return asyncio.run(stored())


def metadata(location: dict[str, Any], ref: dict[str, str], path: str) -> Any:
    async def document() -> Any:
        try:
            return (await zarrista.AsyncArray.open(session(location, ref), path)).metadata
        except Exception:
            return (await zarrista.AsyncGroup.open(session(location, ref), path)).metadata

    return asyncio.run(document())


def nodes(location: dict[str, Any], ref: dict[str, str]) -> Any:
    async def rows() -> list[dict[str, str]]:
        group = await zarrista.AsyncGroup.open(session(location, ref), "/")
        kinds = {group.path: "group"}
        for node in await group.traverse():
            kinds[node.path] = "array" if isinstance(node, zarrista.AsyncArray) else "group"
        return [{"path": path, "type": kinds[path]} for path in sorted(kinds, key=str.encode)]

    return asyncio.run(rows())


def kind(error: Exception) -> str:
    return (
        "not-found" if "metadata is missing" in str(error) or "NotFound" in type(error).__name__ else "other"
    )


if __name__ == "__main__":
    serve({"read": read, "metadata": metadata, "list": nodes}, kind)

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
    if "path" not in location:
        raise NotImplementedError
    return icechunk.Repository.open(icechunk.local_filesystem_storage(location["path"])).readonly_session(
        **ref
    )


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
        paths = [(path, "group") for path in ["/", *await group.child_group_paths(recursive=True)]]
        paths += [(path, "array") for path in await group.child_array_paths(recursive=True)]
        return [{"path": path, "type": kind} for path, kind in sorted(paths, key=lambda row: row[0].encode())]

    return asyncio.run(rows())


if __name__ == "__main__":
    serve({"read": read, "metadata": metadata, "list": nodes}, lambda error: "other")

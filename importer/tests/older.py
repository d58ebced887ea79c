"""Older repositories among the fixtures, and what their ``expected.json`` says, in one form for all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.expected import array_at, digest_of
from tests.fixtures import fixture_folders, fixture_path
from tests.support.object_server import Conditions, ObjectServer

from frazil.format.ids import id_to_text
from frazil.format.manifest import ChunkRef, InlineRef, NativeRef, VirtualRef

Json = dict[str, Any]
FOLDERS = [*fixture_folders("s2-draft-json/*"), *fixture_folders("s3-msgpack/*")]
FILES = "file:///srv/icechunk-fixtures/_virtual/"
BUCKET = "s3://testbucket/"


def named(folder: Path) -> str:
    return "/".join(folder.parts[-2:])


def expected_of(folder: Path) -> Json:
    expected: Json = json.loads((folder / "expected.json").read_text())
    return expected


def copy_of(folder: Path, to: Path) -> Path:
    """A copy that can be written to."""
    shutil.copytree(folder / "repo", to)
    for path in [to, *to.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return to


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@contextmanager
def virtual_objects(folder: Path, to: Path) -> Iterator[dict[str, Any]]:
    """URL prefixes to arguments of ``virtual_config``: where the virtual chunks of a fixture are served."""
    files = Path(shutil.copytree(fixture_path("_virtual"), to / "virtual"))
    zstd = '"zstd"' in json.dumps(expected_of(folder)) and folder.name != "handmade-v01"
    data = (files / "testbucket" / f"chunk-1-{'zstd' if zstd else 'raw'}.bin").read_bytes()
    with ObjectServer(Conditions.QUOTED_ETAG) as server:
        server.make_bucket("testbucket")
        for key in ("path/to/python/chunk-1", "can_read_old/chunk-1"):
            urlopen(Request(f"{server.url}/testbucket/{key}", data, method="PUT")).close()
        yield {FILES: str(files), BUCKET: f"http://127.0.0.1:{server.port}"}


def virtual_config(package: Any, places: dict[str, str], prefixes: tuple[str, ...]) -> tuple[Any, Json]:
    """Configuration and authorisation, for Frazil or the reference."""
    config = package.RepositoryConfig()
    access: Json = {}
    for prefix in prefixes:
        if prefix == BUCKET:
            store = package.s3_store(
                region="us-east-1",
                endpoint_url=places[BUCKET],
                allow_http=True,
                s3_compatible=True,
                force_path_style=True,
            )
            access |= package.containers_credentials(
                {BUCKET: package.s3_credentials(access_key_id="a", secret_access_key="b")}
            )
        else:
            store = package.local_filesystem_store(places.get(prefix, prefix.removeprefix("file://")))
            access[prefix] = package.credentials.LocalFileSystemAccess
        config.set_virtual_chunk_container(package.VirtualChunkContainer(prefix, store))
    return config, access


def document_of(node: Json) -> Json:
    """The ``zarr.json`` that a node of ``expected.json`` means."""
    if "zarr_json" in node:
        document = dict(node["zarr_json"])
    else:
        meta = node.get("zarr") or dict(zip(LEGACY, node.get("zarr_legacy") or (), strict=False))
        document = {"zarr_format": 3, "node_type": node["type"], "attributes": node["attributes"] or {}}
        if meta:
            ((kind, fill),) = meta["fill_value"].items()
            codecs = [
                {"name": c["name"], "configuration": c.get("configuration")}
                if isinstance(c, dict)
                else {"name": c[0], "configuration": c[1]}
                for c in meta["codecs"]
            ]
            document |= {
                "shape": meta["shape"],
                "data_type": meta["data_type"],
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": meta["chunk_shape"]}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": "NaN" if fill != fill else fill,
                "codecs": [{k: v for k, v in codec.items() if v is not None} for codec in codecs],
                "storage_transformers": [],
                "dimension_names": meta["dimension_names"],
            }
            assert kind.lower() == meta["data_type"]
    if document.get("dimension_names", 0) is None:
        del document["dimension_names"]
    return document


LEGACY = (
    "shape",
    "data_type",
    "chunk_shape",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "storage_transformers",
    "dimension_names",
)


def reference_of(ref: ChunkRef | None) -> Json:
    """A reference in the words of ``expected.json``."""
    match ref:
        case InlineRef(data):
            return {"kind": "inline", "inline": data.hex()}
        case NativeRef(id_, offset, length):
            return {"kind": "native", "chunk_id": id_to_text(id_), "offset": offset, "length": length}
        case VirtualRef(location, offset, length, etag, modified):
            out = {"kind": "virtual", "location": location, "offset": offset, "length": length}
            return out | {
                name: value
                for name, value in {"etag": etag, "last_modified": modified}.items()
                if value is not None
            }
        case None:
            raise AssertionError("no reference")


def is_too_long(node: Json) -> bool:
    """Whether a virtual reference goes beyond its object: two repositories were written so."""
    chunks = node["chunks"] if isinstance(node.get("chunks"), list) else []
    zstd = '"zstd"' in json.dumps(node["zarr_json"]) if chunks else False
    return any(chunk["kind"] == "virtual" and chunk["length"] == 100 and zstd for chunk in chunks)


def check_array(session: Any, node: Json) -> None:
    """The content of an array, as either implementation reads it."""
    digest = digest_of(array_at(session, node["path"]))
    assert digest == {name: value for name, value in node["array"].items() if name in digest}, node["path"]


def open_imported(package: Any, root: Path, places: dict[str, str], prefixes: tuple[str, ...]) -> Any:
    config, access = virtual_config(package, places, prefixes)
    return package.Repository.open(package.local_filesystem_storage(str(root)), config, access)

"""The saved forms of virtual chunk containers and of their object stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from frazil.repository.settings.forms import (
    PLAIN,
    Form,
    as_map,
    as_text,
    enumeration,
    read_optional,
    single_field,
    struct,
    variants,
)
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.object_store_config import ChecksumAlgorithm, ObjectStoreConfig, S3Options

CHECKSUM: Final = enumeration(
    {
        ChecksumAlgorithm.Crc32: "crc32",
        ChecksumAlgorithm.Crc32c: "crc32c",
        ChecksumAlgorithm.Crc64Nvme: "crc64_nvme",
        ChecksumAlgorithm.Sha1: "sha1",
        ChecksumAlgorithm.Sha256: "sha256",
    }
)

S3_OPTIONS: Final = struct(
    S3Options,
    {
        "allow_http": PLAIN,
        "anonymous": PLAIN,
        "checksum_algorithm": CHECKSUM,
        "endpoint_url": PLAIN,
        "force_path_style": PLAIN,
        "network_stream_timeout_seconds": PLAIN,
        "region": PLAIN,
        "requester_pays": PLAIN,
    },
)


def _read_options(value: Any) -> dict[str, str]:
    return {key: as_text(text) for key, text in as_map(value).items()}


def _options(build: Callable[[Any], Any]) -> Form:
    return Form(lambda value: dict(value.opts or {}), lambda value: build(_read_options(value) or None))


def _write_http(value: ObjectStoreConfig.Http) -> dict[str, Any]:
    headers = {"headers": dict(value.headers)} if value.headers else {}
    return {**(value.opts or {}), **headers}


def _read_http(value: Any) -> ObjectStoreConfig.Http:
    options = dict(as_map(value))
    headers = options.pop("headers", None)
    return ObjectStoreConfig.Http(
        _read_options(options) or None, _read_options(headers) or None if headers is not None else None
    )


STORE: Final = variants(
    {
        "in_memory": (ObjectStoreConfig.InMemory, None),
        "local_file_system": (
            ObjectStoreConfig.LocalFileSystem,
            single_field(ObjectStoreConfig.LocalFileSystem, "path"),
        ),
        "s3_compatible": (
            ObjectStoreConfig.S3Compatible,
            single_field(ObjectStoreConfig.S3Compatible, "options", S3_OPTIONS),
        ),
        "s3": (ObjectStoreConfig.S3, single_field(ObjectStoreConfig.S3, "options", S3_OPTIONS)),
        "gcs": (ObjectStoreConfig.Gcs, _options(ObjectStoreConfig.Gcs)),
        "azure": (ObjectStoreConfig.Azure, _options(ObjectStoreConfig.Azure)),
        "tigris": (ObjectStoreConfig.Tigris, single_field(ObjectStoreConfig.Tigris, "opts", S3_OPTIONS)),
        "http": (ObjectStoreConfig.Http, Form(_write_http, _read_http)),
    }
)

_CONTAINER: Final = struct(VirtualChunkContainer, {"name": PLAIN, "store": STORE, "url_prefix": PLAIN})


def _read_container(value: Any) -> VirtualChunkContainer:
    """Read a container that a repository has saved, and mark it as such."""
    container: VirtualChunkContainer = _CONTAINER.read(value)
    container.from_repository = True
    return container


CONTAINER: Final = Form(_CONTAINER.write, _read_container)

CONTAINERS: Final = Form(
    lambda value: {prefix: CONTAINER.write(container) for prefix, container in value.items()},
    lambda value: {
        prefix: read_optional(CONTAINER, prefix, container if container is not None else {})
        for prefix, container in as_map(value).items()
    },
)

"""Secrets in a configuration: everybody who can read a repository can read its saved configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from frazil.errors import ErrorKind, InvalidInputError
from frazil.repository.settings.config import RepositoryConfig
from frazil.repository.settings.config_document import to_document
from frazil.repository.settings.virtual_containers import VirtualChunkContainer
from frazil.storage.object_store_config import ObjectStoreConfig, S3Options
from frazil.storage.option_names import secret_headers, secret_options, shown_url


def document_to_save(
    config: RepositoryConfig,
    store_secrets: bool = False,
    saved: Callable[[], RepositoryConfig | None] = lambda: None,
) -> dict[str, Any]:
    """Return the configuration in the form in which it is saved.

    ``saved`` returns the saved configuration of the repository. Its containers may be saved again. It is
    called only if the configuration has secrets.
    """
    document = to_document(config)
    if store_secrets:
        return document
    containers = config.virtual_chunk_containers or {}
    secrets = {prefix: names for prefix, each in containers.items() if (names := [*_secrets(each)])}
    if secrets:
        earlier = _containers(to_document(saved() or RepositoryConfig()))
        secrets = {
            prefix: names
            for prefix, names in secrets.items()
            if earlier.get(prefix) != _containers(document)[prefix]
        }
    offences = [
        f"{option} of the container {shown_url(prefix)!r}"
        for prefix, options in secrets.items()
        for option in options
    ]
    if offences:
        raise InvalidInputError(
            f"the configuration may hold secrets: {', '.join(offences)}. Everybody who can read the "
            "repository could read them",
            ErrorKind.SECRET_IN_CONFIG,
        ).with_remedy(
            "Pass credentials with authorize_virtual_chunk_access instead, or pass store_secrets=True to "
            "save them",
            shell="Leave them out: readers take credentials from their environment",
        )
    return document


def _containers(document: dict[str, Any]) -> dict[str, Any]:
    return document["virtual_chunk_containers"] or {}


def _secrets(container: VirtualChunkContainer) -> Iterator[str]:
    if shown_url(container.url_prefix) != container.url_prefix:
        yield "the user name in the URL"
    match container.store:
        case (
            ObjectStoreConfig.S3(options)
            | ObjectStoreConfig.S3Compatible(options)
            | ObjectStoreConfig.Tigris(options)
        ):
            yield from _of_s3(options)
        case ObjectStoreConfig.Gcs(opts) | ObjectStoreConfig.Azure(opts):
            yield from _options(opts)
        case ObjectStoreConfig.Http(opts, headers):
            yield from _options(opts)
            yield from (f"header `{name}`" for name in secret_headers(headers or {}))
        case _:
            pass


def _of_s3(options: S3Options) -> Iterator[str]:
    if options.endpoint_url is not None:
        yield from _options({"endpoint_url": options.endpoint_url})


def _options(options: Mapping[str, str] | None) -> Iterator[str]:
    return (f"option `{name}`" for name in secret_options(options or {}))

"""The storage that a URL names. Python, the command line, SQL options and ingests use this module.

``frazil.storage.url_parts`` lists the URLs, and ``frazil.storage.url_options`` lists the options.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from frazil.arguments import checked
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage import object_store_config
from frazil.storage.base import Storage
from frazil.storage.class_methods import PUBLIC
from frazil.storage.local import local_filesystem_storage
from frazil.storage.url_options import constructor_arguments, plain_options
from frazil.storage.url_parts import UrlParts, parse_parts

if TYPE_CHECKING:
    from frazil.storage.object_store_config import AnyObjectStoreConfig
    from frazil.storage.settings import StorageSettings

#: Options by name.
type Options = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class StorageUrl(UrlParts):
    """A URL of a storage or of an object."""

    def storage(self, options: Options = None, settings: StorageSettings | None = None) -> Storage:
        """Return the storage whose objects have names that begin with ``key``."""
        arguments = self._arguments(plain_options(options or {}))
        storage = self._construct(self.key.strip("/"), arguments)
        return storage if settings is None else storage.with_settings(settings)

    def _arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if self.scheme == "az" and options.get("account", self.account) != self.account:
            raise InvalidInputError(
                f"the option `account` must be the account of the URL, {self.account!r} in {self.url!r}, "
                f"got {options['account']!r}. URLs of Azure are az://account/container/prefix",
                ErrorKind.NOT_ALLOWED,
            )
        return constructor_arguments(self.family, options)

    def _construct(self, prefix: str, arguments: dict[str, Any]) -> Storage:
        if self.is_local:
            return local_filesystem_storage(self.path)
        place: dict[str, Any] = {"bucket": self.bucket, "prefix": prefix}
        if self.family == "az":
            place = {"account": self.account, "container": self.bucket, "prefix": prefix}
        elif self.family == "http":
            place = {"base_url": self.url}
        constructors = {"s3": "s3_storage", "gs": "gcs_storage", "az": "azure_storage"}
        storage: Storage = getattr(PUBLIC, constructors.get(self.family, "http_storage"))(
            **place, **arguments
        )
        return storage

    def split_key(self) -> tuple[StorageUrl, str]:
        """Return the URL of the bucket, folder or server, and the key of the object in it."""
        if self.is_local:
            folder, name = os.path.split(self.path)
            return replace(self, key=folder), name
        key = unquote(self.key).strip("/") if self.family == "http" else self.key
        return replace(self, key=""), key

    def store_config(self, options: Options = None) -> AnyObjectStoreConfig:
        """Return the store of a virtual chunk container with this URL, without credentials."""
        values = plain_options(options or {})
        arguments = self._arguments(values)
        store: AnyObjectStoreConfig
        match self.scheme:
            case "file":
                store = object_store_config.local_filesystem_store(self.path)
            case "s3":
                names = ("region", "endpoint_url", "allow_http", "force_path_style")
                store = object_store_config.s3_store(
                    **{name: arguments[name] for name in names},
                    anonymous=values.get("anonymous", False),
                    s3_compatible=arguments["endpoint_url"] is not None,
                )
            case "gs":
                store = object_store_config.gcs_store(arguments["config"])
            case "az":
                store = object_store_config.azure_store(account=self.account, config=arguments["config"])
            case "http" | "https":
                store = object_store_config.http_store(arguments.get("opts"), arguments.get("headers"))
        return store


def parse_url(text: str | PathLike[str]) -> StorageUrl:
    """Return the URL of a URL text or path. ``frazil.storage.url_parts`` lists the possible forms."""
    parts = parse_parts(text)
    return StorageUrl(parts.scheme, parts.bucket, parts.key, parts.account, parts.query)


@checked
def storage_from_url(
    url: str | PathLike[str], options: Mapping[str, Any] | None = None, **named_options: Any
) -> Storage:
    """Return the storage that a URL names.

    ``frazil.storage.url_parts`` lists the URLs, and ``frazil.storage.url_options`` lists the options. Without
    credentials in the options, the storage uses the credentials of the environment.

    Args:
        url: URL or path, for example ``s3://bucket/prefix`` or ``~/ice``.
        options: Options by name. Default: none.
        **named_options: More options by name. They override ``options``.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``cannot-parse-url`` for a text that does not name a storage; ``not-allowed`` for
            options that do not belong to the URL.

    Examples:
        >>> storage_from_url("s3://ice/a/b", region="eu-west-1", anonymous=True)
        <frazil.Storage>
        type: S3 (native)
        bucket: ice
        prefix: a/b
        region: eu-west-1
        anonymous: True
        <BLANKLINE>
    """
    return parse_url(url).storage({**(options or {}), **named_options})

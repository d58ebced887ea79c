"""The reader for the objects of one virtual chunk container."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.access import anonymous_access, require_scheme
from frazil.storage.credentials import AnyCredential, Credentials
from frazil.storage.foreign.base import ForeignObjects, credentials_mismatch
from frazil.storage.foreign.files import ForeignFiles
from frazil.storage.foreign.object_store import ForeignStore
from frazil.storage.foreign.web import ForeignWeb
from frazil.storage.object_store_config import AnyObjectStoreConfig, ObjectStoreConfig
from frazil.storage.settings import StorageSettings
from frazil.storage.web.client import WebClient
from frazil.storage.web.options import web_options


def open_foreign(
    config: AnyObjectStoreConfig,
    credentials: AnyCredential | None,
    url_prefix: str,
    settings: StorageSettings | None = None,
    *,
    user_agent: str | None = None,
) -> ForeignObjects:
    """A reader for the objects whose URLs begin with ``url_prefix``.

    Of a local file system the URL says where a file is. What is not there is looked for below the path that
    ``config`` has: where the files of ``url_prefix`` are on this machine, if it has one.

    Without ``credentials`` requests are anonymous. Raises ``InvalidInputError`` for a store that cannot hold
    such URLs (``invalid-virtual-ref``), and for credentials of another kind of store
    (``invalid-credentials``).
    """
    if credentials is None:
        credentials = anonymous_access(url_prefix)
    match config:
        case ObjectStoreConfig.LocalFileSystem(path):
            require_scheme(config, url_prefix)
            if not isinstance(credentials, Credentials.LocalFileSystemAccess):
                raise credentials_mismatch(credentials, config)
            return ForeignFiles(url_prefix, path)
        case ObjectStoreConfig.InMemory():
            raise InvalidInputError(
                "virtual chunks cannot be in memory: expected a container in S3, GCS, Azure, on the web or "
                "in local files",
                ErrorKind.STORAGE_CONFIG,
            )
        case ObjectStoreConfig.Http(opts, headers):
            require_scheme(config, url_prefix)
            if not isinstance(credentials, Credentials.HttpAccess):
                raise credentials_mismatch(credentials, config)
            options = web_options(opts or {}, settings or StorageSettings(), user_agent)
            return ForeignWeb(url_prefix, WebClient(options, headers or {}))
        case _:
            require_scheme(config, url_prefix)
            return ForeignStore(url_prefix, config, credentials, settings or StorageSettings(), user_agent)

"""The function that opens the objects of one virtual chunk container."""

from __future__ import annotations

from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.access import anonymous_access, require_scheme
from frazil.storage.credential_families import AnyCredential, Credentials
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
    """Return a reader for the objects whose URLs begin with a prefix.

    Args:
        config: Kind of store, and its options. If its kind is a local file system, a file that does not exist
            at the path of its URL is searched below ``config.path``. This path is the place of the prefix's
            files on this machine.
        credentials: Credentials for the store. None means requests without credentials.
        url_prefix: Prefix of the URLs of all objects.
        settings: Time-outs and retries. Default: ``StorageSettings()``.
        user_agent: Value of the header ``User-Agent``. Default: name and version of Frazil.

    Returns:
        The reader. No request is sent.

    Raises:
        InvalidInputError: ``invalid-virtual-ref`` for a store that cannot hold such URLs;
            ``invalid-credentials`` for credentials of another kind of store; ``storage-config`` for a
            store in memory.

    Examples:
        >>> from frazil.storage import open_foreign, s3_store
        >>> objects = open_foreign(s3_store(region="eu-west-1", anonymous=True), None, "s3://bucket/data/")
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
                "a virtual chunk container must be in S3, GCS, Azure, on a web server or in local files, "
                "got a store in memory",
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

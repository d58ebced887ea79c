"""Storages in cloud services, and URLs of storages and objects with the options that go with them.

``s3_storage`` and similar functions have the names, arguments and defaults of the reference. They make
options and credentials of their arguments, and call the class methods of ``Storage``. Python, SQL and ingests
use the same URLs and options.

The forms are ``s3://bucket/prefix`` (also ``s3a:``, ``s3n:``), ``gs://bucket/prefix`` (also ``gcs:``),
``az://account/container/prefix`` (also ``abfs://container@account.dfs.core.windows.net/prefix`` and
``abfss:``), ``http://host/path``, ``https://host/path``, ``file:///path`` with percent codes, and a path. The
page ``docs/storage.md`` has the tables of URLs and options, with the environment variables of the defaults.

In a bucket, all characters after the bucket's name belong to the prefix or the key without any decoding,
because names of objects may contain ``?``, ``#`` and ``%``. The locations of virtual chunks have no account:
``az://container/key`` (``StorageUrl.chunk_location``).

Names of options may contain hyphens (``endpoint-url``), and values may be text (``true``). In Python, the
other arguments of ``s3_storage``, ``gcs_storage``, ``azure_storage`` and ``http_storage`` are also options.
The region, the endpoint and the flags are ignored for other kinds of URLs. Credentials of another cloud raise
an error. For files, all options are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack
from urllib.parse import unquote

from frazil.argument_docs import with_keywords
from frazil.arguments import checked, wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.lazy_names import ModuleOnDemand
from frazil.storage import object_store_config, system
from frazil.storage.base import Storage
from frazil.storage.credentials import (
    AzureKeywords,
    GcsKeywords,
    HfKeywords,
    R2Keywords,
    S3CredentialOptions,
    S3Keywords,
    S3ObjectStoreKeywords,
    azure_credentials,
    gcs_credentials,
    s3_credentials,
)
from frazil.storage.local import local_filesystem_storage
from frazil.storage.object_store_config import AnyObjectStoreConfig, S3Options
from frazil.storage.option_names import address_parts, shown_url

if TYPE_CHECKING:
    from frazil.storage import disk_cache
    from frazil.storage.settings import StorageSettings
else:
    disk_cache = ModuleOnDemand("frazil.storage.disk_cache")

#: It imports this module.
_web_storages: Final = ModuleOnDemand("frazil.storage.web_storages")

_CREDENTIAL_OPTIONS: Final = S3CredentialOptions.__annotations__.keys()
_OPTIONS: Final = {field.name for field in fields(S3Options)}
#: Seconds. The default of the reference for all services with the protocol of S3.
_TIMEOUT: Final = 60


def _s3_arguments(keywords: Mapping[str, Any], timeout: int | None = _TIMEOUT) -> dict[str, Any]:
    """Return the arguments of ``Storage.new_s3`` for the keywords of ``s3_storage`` and similar functions."""
    keywords = {"network_stream_timeout_seconds": timeout, **keywords}
    options = {name: value for name, value in keywords.items() if name in _OPTIONS}
    options["anonymous"] = bool(keywords.get("anonymous"))
    ways = {name: value for name, value in keywords.items() if name in _CREDENTIAL_OPTIONS}
    others = {name: value for name, value in keywords.items() if name not in _OPTIONS | _CREDENTIAL_OPTIONS}
    return {"config": S3Options(**options), "credentials": s3_credentials(**ways), **others}


@checked
@with_keywords(S3Keywords, S3Options, Storage.new_s3, network_stream_timeout_seconds=_TIMEOUT)
def s3_storage(*, bucket: str, prefix: str | None, **options: Unpack[S3Keywords]) -> Storage:
    """Return a storage in S3, or in a server with the same protocol.

    For another server, pass ``endpoint_url``. At most one way of authorisation may be passed: an access key
    (``access_key_id`` and ``secret_access_key``), ``anonymous``, ``from_env`` or ``get_credentials``.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation or
            an incomplete one; ``unimplemented`` for ``legacy_rooted_keys=True``; ``storage-config`` for
            headers that HTTP does not allow.

    Examples:
        >>> s3_storage(bucket="ice", prefix="a/b", region="eu-west-1", anonymous=True)
        <frazil.Storage>
        type: S3 (native)
        bucket: ice
        prefix: a/b
        region: eu-west-1
        anonymous: True
        <BLANKLINE>
    """
    return Storage.new_s3(bucket=bucket, prefix=prefix, **_s3_arguments(options))


@checked
@with_keywords(S3ObjectStoreKeywords, s3_storage)
def s3_object_store_storage(
    *, bucket: str, prefix: str | None, **options: Unpack[S3ObjectStoreKeywords]
) -> Storage:
    """Return a storage in S3, as ``s3_storage``. The reference has a second client for S3.

    Returns:
        The storage. No request is sent.

    Examples:
        >>> s3_object_store_storage(bucket="ice", prefix="a", region="eu-west-1", anonymous=True).label()
        's3://ice/a'
    """
    return Storage.new_s3_object_store(bucket=bucket, prefix=prefix, **_s3_arguments(options, None))


@checked
@with_keywords(R2Keywords, s3_storage, network_stream_timeout_seconds=_TIMEOUT)
def r2_storage(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    account_id: str | None = None,
    **options: Unpack[R2Keywords],
) -> Storage:
    """Return a storage in Cloudflare R2.

    Pass ``account_id`` or ``endpoint_url``. Authorisation and errors are the same as in ``s3_storage``.

    Args:
        bucket: Name of the bucket. Default: the first part of ``prefix``.
        prefix: Prefix of the names of all objects. None means the whole bucket.
        account_id: Id of the account, which Cloudflare shows for R2. Not needed with ``endpoint_url``.
        endpoint_url: URL of the server. Default: ``https://<account_id>.r2.cloudflarestorage.com``.
        region: Region. Default: ``auto``.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``storage-config`` without a bucket, and without ``account_id`` and ``endpoint_url``.

    Examples:
        >>> r2_storage(bucket="ice", prefix="a", account_id="abc", anonymous=True).label()
        's3://ice/a at https://abc.r2.cloudflarestorage.com'
    """
    return Storage.new_r2(bucket=bucket, prefix=prefix, account_id=account_id, **_s3_arguments(options))


@checked
@with_keywords(R2Keywords, s3_storage, network_stream_timeout_seconds=_TIMEOUT)
def tigris_storage(
    *, bucket: str, prefix: str | None, use_weak_consistency: bool = False, **options: Unpack[R2Keywords]
) -> Storage:
    """Return a storage in Tigris, which is fully consistent in one region.

    Authorisation and errors are the same as in ``s3_storage``.

    Args:
        region: Region of the bucket. Required unless ``use_weak_consistency`` is True.
        endpoint_url: URL of the server. Default: ``https://t3.storage.dev``.
        use_weak_consistency: True reads the nearest copy, which may be old, and makes the storage read only.
            Default: False.

    Returns:
        The storage. No request is sent.

    Raises:
        StorageError: ``storage-other`` without a region, unless ``use_weak_consistency`` is True.

    Examples:
        >>> tigris_storage(bucket="ice", prefix="a", use_weak_consistency=True).is_read_only
        True
    """
    place: dict[str, Any] = {"bucket": bucket, "prefix": prefix, "use_weak_consistency": use_weak_consistency}
    return Storage.new_tigris(**place, **_s3_arguments(options))


@checked
@with_keywords(HfKeywords, s3_storage, network_stream_timeout_seconds=_TIMEOUT)
def hf_storage(*, bucket: str, prefix: str | None, namespace: str, **options: Unpack[HfKeywords]) -> Storage:
    """Return a storage in a Hugging Face storage bucket.

    Authorisation and errors are the same as in ``s3_storage``, without ``anonymous``.

    Args:
        namespace: Name of the user or organisation that owns the bucket.
        access_key_id: Id of an access key of the S3 gateway of Hugging Face. An access token does not work.

    Returns:
        The storage. No request is sent.

    Examples:
        >>> hf_storage(bucket="ice", prefix="a", namespace="me", from_env=True).label()
        's3://ice/a at https://s3.hf.co/me'
    """
    return Storage.new_hf(bucket=bucket, prefix=prefix, namespace=namespace, **_s3_arguments(options))


@checked
@with_keywords(GcsKeywords, s3_storage)
def gcs_storage(*, bucket: str, prefix: str | None, **options: Unpack[GcsKeywords]) -> Storage:
    """Return a storage in Google Cloud Storage.

    At most one way of authorisation may be passed.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation;
            ``storage-config`` for headers that HTTP does not allow.

    Examples:
        >>> gcs_storage(bucket="ice", prefix="a", bearer_token="secret").label()
        'gs://ice/a'
    """
    kinds = ("config", "headers", "read_headers", "write_headers")
    others: dict[str, Any] = {name: value for name, value in options.items() if name in kinds}
    ways: dict[str, Any] = {name: value for name, value in options.items() if name not in kinds}
    return Storage.new_gcs(bucket, prefix, gcs_credentials(**ways), **others)


@checked
@with_keywords(AzureKeywords)
def azure_storage(*, account: str, container: str, prefix: str, **options: Unpack[AzureKeywords]) -> Storage:
    """Return a storage in Azure blob storage.

    At most one way of authorisation may be passed.

    Args:
        account: Name of the storage account.
        container: Name of the container.
        prefix: Prefix of the names of all objects. The empty string means the whole container.

    Returns:
        The storage. No request is sent.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the arguments name more than one way of authorisation.

    Examples:
        >>> azure_storage(account="me", container="ice", prefix="a", anonymous=True).label()
        'az://me/ice/a'
    """
    ways: dict[str, Any] = {name: value for name, value in options.items() if name != "config"}
    credentials = azure_credentials(**ways)
    return Storage.new_azure_blob(account, container, prefix, credentials, config=options.get("config"))


type Scheme = Literal["file", "s3", "gs", "az", "http", "https"]

#: The most common URLs, for the help of commands.
COMMON_URLS: Final = "a folder, or s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix"
#: All URLs, for messages.
_EXPECTED_URL: Final = f"{COMMON_URLS}, http://host/path, https://host/path or file:///path"

#: Scheme in the text -> scheme.
_SCHEMES: Final[Mapping[str, Scheme]] = {
    "file": "file",
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "https",
}
_HADOOP_SCHEMES: Final = frozenset({"abfs", "abfss"})
_HADOOP_AZURE: Final = re.compile(r"([^@/]+)@([^.@/]+)\.(?:dfs|blob)\.core\.windows\.net")
#: A scheme has at least two characters. Without a slash after the colon, it must consist of letters, because
#: names of files may contain colons, for example ``run-2024-05-01T00:00.nc``.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?=:/)|((?i:s3[an]?)|[A-Za-z]{2,})(?=:)")


#: Arguments of a constructor by name.
type Arguments = dict[str, Any]
#: Options by name.
type Options = Mapping[str, Any] | None

_FLAGS: Final = frozenset({"allow_http", "force_path_style", "anonymous"})
#: Options for the credentials of one cloud only.
_CREDENTIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("access_key_id", "secret_access_key", "session_token"),
    "gs": ("service_account_file", "service_account_key", "application_credentials", "bearer_token"),
    "az": ("account_key", "sas_token", "bearer_token"),
    "http": (),
}
_CREDENTIAL_NAMES: Final = frozenset(name for names in _CREDENTIALS.values() for name in names)
#: The options whose values are text or flags.
OPTION_NAMES: Final = _CREDENTIAL_NAMES | _FLAGS | {"region", "endpoint_url", "account"}
#: The options that contain a secret. Frazil never saves their values.
SECRET_OPTION_NAMES: Final = _CREDENTIAL_NAMES - {"service_account_file", "application_credentials"}
#: Arguments of constructors that are options only in Python, because their values are not text.
_FURTHER: Final[Mapping[str, frozenset[str]]] = {
    "s3": frozenset(S3Keywords.__annotations__) - OPTION_NAMES,
    "gs": frozenset(GcsKeywords.__annotations__) - OPTION_NAMES,
    "az": frozenset(AzureKeywords.__annotations__) - OPTION_NAMES,
    "http": frozenset({"headers", "opts"}),
}
#: The client's option for the endpoint, and its environment variables.
_ENDPOINTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "s3": ("endpoint_url", ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")),
    "gs": ("base_url", ("GOOGLE_BASE_URL",)),
    "az": ("endpoint", ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
}


def plain_options(options: Mapping[str, Any]) -> Arguments:
    """Return options by their plain names, checked. An option that is None has its default."""
    values: Arguments = {}
    for option, value in options.items():
        if not isinstance(option, str):
            raise wrong_type("the name of an option", option, "str")
        name = option.replace("-", "_")
        # Another name of this option is an argument of ``azure_storage``.
        name = "account_key" if name == "access_key" else name
        if value is None:
            continue
        if name not in OPTION_NAMES and not any(name in names for names in _FURTHER.values()):
            raise InvalidInputError(
                f"a storage option must be one of {', '.join(sorted(OPTION_NAMES))}, got {option!r}",
                ErrorKind.NOT_ALLOWED,
            )
        if name in _FLAGS:
            text = str(value).lower()
            if text not in ("true", "false"):
                raise InvalidInputError(
                    f"option `{option}` must be true or false, got {value!r}", ErrorKind.NOT_ALLOWED
                )
            value = text == "true"
        elif name in OPTION_NAMES and not isinstance(value, str):
            raise wrong_type(f"option `{option}`", value, "str")
        values[name] = value
    return values


def _environment(*names: str) -> str | None:
    """Return the first of these environment variables that is not empty."""
    return next((value for name in names if (value := os.environ.get(name))), None)


@dataclass(frozen=True, slots=True)
class StorageUrl:
    """A URL of a storage or of an object.

    ``bucket`` is also the container of Azure or the server of a web URL. ``key`` is a prefix of a storage or
    the key of an object; for files it is the path, and for the web the path of the URL with its percent
    codes.
    """

    scheme: Scheme
    bucket: str
    key: str
    account: str = ""
    query: str = ""

    @property
    def family(self) -> str:
        """The scheme; ``http`` stands for ``https``, too."""
        return "http" if self.scheme == "https" else self.scheme

    @property
    def is_local(self) -> bool:
        """Whether the URL names files of this machine."""
        return self.scheme == "file"

    @property
    def path(self) -> str:
        """The absolute path of a file URL. Empty for other URLs."""
        return os.path.abspath(self.key) if self.is_local else ""

    @property
    def url(self) -> str:
        """The URL itself. Aliases of schemes are replaced."""
        if self.is_local:
            return system.files.file_url(self.path)
        parts = "/".join(filter(None, (self.account, self.bucket, self.key)))
        return f"{self.scheme}://{parts}{self.query and f'?{self.query}'}"

    @property
    def chunk_location(self) -> str:
        """The URL in the form of locations of virtual chunks, without the account."""
        return f"az://{self.bucket}/{self.key}" if self.scheme == "az" else self.url

    def storage(self, options: Options = None, settings: StorageSettings | None = None) -> Storage:
        """Return the storage whose objects have names that begin with ``key``."""
        arguments = self._arguments(options)
        bucket, prefix = self.bucket, self.key.strip("/")
        match self.scheme:
            case "file":
                storage = local_filesystem_storage(self.path)
            case "s3":
                storage = s3_storage(bucket=bucket, prefix=prefix, **arguments)
            case "gs":
                storage = gcs_storage(bucket=bucket, prefix=prefix, **arguments)
            case "az":
                account = self.account
                storage = azure_storage(account=account, container=bucket, prefix=prefix, **arguments)
            case "http" | "https":
                storage = _web_storages.http_storage(self.url, **arguments)
        return storage if settings is None else storage.with_settings(settings)

    def _arguments(self, options: Options) -> Arguments:
        """Return the arguments of the constructor for this URL, except its place."""
        values, family = plain_options(options or {}), self.family
        if self.scheme == "az" and values.get("account", self.account) != self.account:
            raise InvalidInputError(
                f"the option `account` must be the account of the URL, {self.account!r} in {self.url!r}, "
                f"got {values['account']!r}. URLs of Azure are az://account/container/prefix",
                ErrorKind.NOT_ALLOWED,
            )
        if self.is_local:
            return {}
        further = {name: value for name, value in values.items() if name not in OPTION_NAMES}
        offences = [name for name in values if name in _CREDENTIAL_NAMES and name not in _CREDENTIALS[family]]
        offences += [name for name in further if name not in _FURTHER[family]]
        if offences:
            raise InvalidInputError(
                f"{family}:// URLs must not have {', '.join(sorted(offences))}", ErrorKind.NOT_ALLOWED
            )
        if family == "http":
            return further
        arguments: Arguments = {name: values.get(name) for name in _CREDENTIALS[family]}
        anonymous = values.get("anonymous") or None
        has_way = anonymous or "get_credentials" in values or any(arguments.values())
        arguments |= {"anonymous": anonymous, "from_env": None if has_way else True, **further}
        config = dict(further.get("config") or {})
        option, variables = _ENDPOINTS[family]
        endpoint = values.get("endpoint_url") or config.get(option) or _environment(*variables)
        allow_http = values.get("allow_http", endpoint is not None and endpoint.startswith("http://"))
        if family == "s3":
            region = values.get("region") or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
            path_style = values.get("force_path_style", endpoint is not None)
            own = {"region": region, "allow_http": allow_http, "force_path_style": path_style}
            return {**arguments, **own, "endpoint_url": endpoint}
        # For GCS and Azure, the endpoint is an option of the client.
        config |= {} if endpoint is None else {option: endpoint}
        config |= {"allow_http": "true"} if allow_http else {}
        if family == "az":
            arguments["access_key"] = arguments.pop("account_key")
        return {**arguments, "config": config or None}

    def split_key(self) -> tuple[StorageUrl, str]:
        """Return the URL of the bucket, folder or server, and the key of the object in it."""
        if self.is_local:
            folder, name = os.path.split(self.path)
            return replace(self, key=folder), name
        key = unquote(self.key).strip("/") if self.family == "http" else self.key
        return replace(self, key=""), key

    def store_config(self, options: Options = None) -> AnyObjectStoreConfig:
        """Return the store of a virtual chunk container with this URL, without credentials."""
        arguments = self._arguments(options)
        match self.scheme:
            case "file":
                return object_store_config.local_filesystem_store(self.path)
            case "s3":
                names = ("region", "endpoint_url", "allow_http", "force_path_style")
                return object_store_config.s3_store(
                    **{name: arguments[name] for name in names},
                    anonymous=bool(arguments["anonymous"]),
                    s3_compatible=arguments["endpoint_url"] is not None,
                )
            case "gs":
                return object_store_config.gcs_store(arguments["config"])
            case "az":
                return object_store_config.azure_store(account=self.account, config=arguments["config"])
            case "http" | "https":
                return object_store_config.http_store(arguments.get("opts"), arguments.get("headers"))


def parse_url(text: str | PathLike[str]) -> StorageUrl:
    """Return the URL of a URL text or path. The module's docstring lists the possible forms."""
    text = os.fspath(text)
    if not isinstance(text, str):
        raise wrong_type("url", text, "str")
    prefix = _SCHEME.match(text)
    if prefix is None and text and "\0" not in text:
        return StorageUrl("file", "", os.path.expanduser(text))
    alias, rest = ("", "") if prefix is None else (prefix[0].lower(), text[prefix.end() + 1 :])
    scheme, has_server = _SCHEMES.get(alias), rest.startswith("//")
    server, slash, key = rest[2:].partition("/") if has_server else ("", "/", rest.removeprefix("/"))
    if scheme == "file":
        path = unquote(f"/{key}")
        is_reached = server in ("", "localhost") or system.files.has_remote_files
        if slash and is_reached and (has_server or rest[:1] == "/") and "\0" not in path:
            return StorageUrl("file", "", system.files.path_of_url(server, path))
    elif scheme is not None and has_server:
        if scheme in ("http", "https"):
            if (parts := address_parts(text)) is not None:
                return StorageUrl(scheme, parts.netloc, parts.path.removeprefix("/"), query=parts.query)
        elif alias in _HADOOP_SCHEMES:
            if (hadoop := _HADOOP_AZURE.fullmatch(server)) is None:
                raise InvalidInputError(
                    "an abfs URL must be abfs://container@account.dfs.core.windows.net/prefix, "
                    f"got {shown_url(text)!r}. Or write az://account/container/prefix",
                    ErrorKind.CANNOT_PARSE_URL,
                )
            return StorageUrl("az", hadoop[1], key, hadoop[2])
        else:
            account = server if scheme == "az" else ""
            bucket, _, key = key.partition("/") if scheme == "az" else (server, "", key)
            if bucket and server:
                return StorageUrl(scheme, bucket, key, account)
    raise InvalidInputError(
        f"url must be {_EXPECTED_URL}, got {shown_url(text)!r}", ErrorKind.CANNOT_PARSE_URL
    )


@checked
def storage_from_url(
    url: str | PathLike[str], options: Mapping[str, Any] | None = None, **named_options: Any
) -> Storage:
    """Return the storage that a URL names.

    The docstring of ``frazil.storage.urls`` lists the URLs. Without credentials in the options, the storage
    uses the credentials of the environment. With the environment variable ``FRAZIL_CACHE``, the storage has a
    cache on disk: see ``cached_storage``.

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
        >>> storage_from_url("s3://ice/a/b", region="eu-west-1", anonymous=True).label()
        's3://ice/a/b'
    """
    storage = parse_url(url).storage({**(options or {}), **named_options})
    folder = _environment("FRAZIL_CACHE")
    if folder is None or storage.is_local:
        return storage
    return disk_cache.cached_storage(storage, folder)

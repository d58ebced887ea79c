"""URLs of storages and objects, and the options that go with them. Python, SQL and ingests use the same.

=====================================================  ======================================================
``s3://bucket/prefix``                                 S3, and servers with its protocol. Also ``s3a:``,
                                                       ``s3n:``
``gs://bucket/prefix``                                 Google Cloud Storage. Also ``gcs:``
``az://account/container/prefix``                      Azure blob storage
``abfs://container@account.dfs.core.windows.net/prefix``  the same, as Hadoop writes it. Also ``abfss:``
``http://host/path``, ``https://host/path``            a web server, read only
``file:///path``                                       a folder of this machine; percent codes are decoded
``/data/ice``, ``ice``, ``~/ice``                      the same
=====================================================  ======================================================

In a bucket, all characters after the bucket's name belong to the prefix or the key without any decoding,
because names of objects may contain ``?``, ``#`` and ``%``.

The locations of virtual chunks are URLs of the Icechunk format, which have no account:
``az://container/key``. ``UrlParts.chunk_location`` converts a URL to this form.

==========================================================  ==========  =====================================
``region``                                                  S3          ``AWS_REGION``, ``AWS_DEFAULT_REGION``
``endpoint_url``                                            S3          ``AWS_ENDPOINT_URL_S3``,
                                                                        ``AWS_ENDPOINT_URL``
``endpoint_url``                                            GCS         ``GOOGLE_BASE_URL``
``endpoint_url``                                            Azure       ``AZURE_STORAGE_ENDPOINT``,
                                                                        ``AZURE_ENDPOINT``
``allow_http``                                              all three   true for an ``http://`` endpoint
``force_path_style``                                        S3          true where there is an endpoint
``anonymous``                                               all three   requests without credentials
``access_key_id``, ``secret_access_key``,                   S3          the environment, in the variables of
``session_token``                                                       the cloud's own tools
``service_account_file``, ``service_account_key``,          GCS         the same
``application_credentials``
``account_key``, ``sas_token``                              Azure       the same
``account``                                                 Azure       the account in the URL, or an error
``bearer_token``                                            GCS, Azure  the same
==========================================================  ==========  =====================================

The last column is the default. Names may contain hyphens (``endpoint-url``), and values may be text
(``true``). In Python, the other arguments of ``s3_storage``, ``gcs_storage``, ``azure_storage`` and
``http_storage`` are also options. The region, the endpoint and the flags are ignored for other kinds of URLs.
Credentials of another cloud raise an error. For files, all options are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote, unquote, urlsplit

from frazil.arguments import checked, wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage import object_store_config
from frazil.storage.base import Storage
from frazil.storage.class_methods import PUBLIC
from frazil.storage.credentials import AzureKeywords, GcsKeywords, S3Keywords
from frazil.storage.local import local_filesystem_storage
from frazil.storage.option_names import shown_url

if TYPE_CHECKING:
    from frazil.storage.object_store_config import AnyObjectStoreConfig
    from frazil.storage.settings import StorageSettings


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


@dataclass(frozen=True, slots=True)
class UrlParts:
    """The parts of a URL of a storage or of an object.

    Attributes:
        scheme: One of ``file``, ``s3``, ``gs``, ``az``, ``http`` and ``https``.
        bucket: Bucket, container of Azure, or server of a web URL. Empty for files.
        key: Prefix of a storage or key of an object. Empty for a whole bucket. For files it is the path, and
            for the web the path of the URL with its percent codes.
        account: Storage account of Azure. Empty for other URLs.
        query: Query of a web URL. Empty for other URLs.
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
            return f"file://{quote(self.path)}"
        parts = "/".join(filter(None, (self.account, self.bucket, self.key)))
        return f"{self.scheme}://{parts}{self.query and f'?{self.query}'}"

    @property
    def chunk_location(self) -> str:
        """The URL in the form of locations of virtual chunks, without the account."""
        return f"az://{self.bucket}/{self.key}" if self.scheme == "az" else self.url


def parse_parts(text: str | os.PathLike[str]) -> UrlParts:
    """Return the parts of a URL or path. The module's docstring lists the possible forms."""
    text = os.fspath(text)
    if not isinstance(text, str):
        raise wrong_type("url", text, "str")
    match = _SCHEME.match(text)
    if match is None:
        if not text or "\0" in text:
            raise _cannot_parse(text)
        return UrlParts("file", "", os.path.expanduser(text))
    alias, rest = match[0].lower(), text[match.end() + 1 :]
    scheme = _SCHEMES.get(alias)
    if scheme is None:
        raise _cannot_parse(text)
    if scheme == "file":
        return _parse_file(text, rest)
    if not rest.startswith("//"):
        raise _cannot_parse(text)
    if scheme in ("http", "https"):
        return _parse_web(text, scheme)
    bucket, _, key = rest[2:].partition("/")
    account = ""
    if alias in _HADOOP_SCHEMES:
        account, bucket = _parse_hadoop(text, bucket)
    elif scheme == "az":
        account, (bucket, _, key) = bucket, key.partition("/")
        if not account:
            raise _cannot_parse(text)
    if not bucket:
        raise _cannot_parse(text)
    return UrlParts(scheme, bucket, key, account)


def _parse_file(text: str, rest: str) -> UrlParts:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise _cannot_parse(text)
        rest = f"/{path}"
    path = unquote(rest)
    if not path.startswith("/") or "\0" in path:
        raise _cannot_parse(text)
    return UrlParts("file", "", path)


def _parse_web(text: str, scheme: Scheme) -> UrlParts:
    try:
        parts = urlsplit(text)
        is_address = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise _cannot_parse(text)
    return UrlParts(scheme, parts.netloc, parts.path.removeprefix("/"), query=parts.query)


def _parse_hadoop(text: str, authority: str) -> tuple[str, str]:
    """Return account and container of ``container@account.dfs.core.windows.net``."""
    match = _HADOOP_AZURE.fullmatch(authority)
    if match is None:
        raise InvalidInputError(
            "an abfs URL must be abfs://container@account.dfs.core.windows.net/prefix, "
            f"got {shown_url(text)!r}. Or write az://account/container/prefix",
            ErrorKind.CANNOT_PARSE_URL,
        )
    return match[2], match[1]


def _cannot_parse(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"url must be {_EXPECTED_URL}, got {shown_url(text)!r}", ErrorKind.CANNOT_PARSE_URL
    )


#: Arguments of a constructor by name.
type Arguments = dict[str, Any]

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
_CLIENT_ENDPOINTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
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
            value = _as_flag(option, value)
        elif name in OPTION_NAMES and not isinstance(value, str):
            raise wrong_type(f"option `{option}`", value, "str")
        values[name] = value
    return values


def constructor_arguments(family: str, options: Mapping[str, Any]) -> Arguments:
    """Return the arguments of the constructor for a family of URLs, except bucket and prefix."""
    if family == "file":
        return {}
    further = {name: value for name, value in options.items() if name not in OPTION_NAMES}
    offences = [name for name in options if name in _CREDENTIAL_NAMES and name not in _CREDENTIALS[family]]
    offences += [name for name in further if name not in _FURTHER[family]]
    if offences:
        raise InvalidInputError(
            f"options for {family}:// URLs must not include {', '.join(sorted(offences))}. Remove them",
            ErrorKind.NOT_ALLOWED,
        )
    if family == "s3":
        endpoint = options.get("endpoint_url") or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        arguments: Arguments = {
            "region": options.get("region") or _environment("AWS_REGION", "AWS_DEFAULT_REGION"),
            "endpoint_url": endpoint,
            "allow_http": options.get("allow_http", _is_plain_http(endpoint)),
            "force_path_style": options.get("force_path_style", endpoint is not None),
        }
        return {**arguments, **_credentials(family, options), **further}
    return further if family == "http" else _client_arguments(family, options, further)


def _credentials(family: str, options: Mapping[str, Any]) -> Arguments:
    arguments: Arguments = {name: options.get(name) for name in _CREDENTIALS[family]}
    anonymous = options.get("anonymous") or None
    has_way = anonymous or "get_credentials" in options or any(arguments.values())
    return {**arguments, "anonymous": anonymous, "from_env": None if has_way else True}


def _client_arguments(family: str, options: Mapping[str, Any], further: Arguments) -> Arguments:
    """Return arguments for GCS and Azure, where the endpoint is an option of the client."""
    config = dict(further.get("config") or {})
    option, variables = _CLIENT_ENDPOINTS[family]
    endpoint = options.get("endpoint_url") or config.get(option) or _environment(*variables)
    if endpoint is not None:
        config[option] = endpoint
    if options.get("allow_http", _is_plain_http(endpoint)):
        config["allow_http"] = "true"
    arguments = {**_credentials(family, options), **further, "config": config or None}
    if family == "az":
        arguments["access_key"] = arguments.pop("account_key")
    return arguments


def _is_plain_http(endpoint: str | None) -> bool:
    return endpoint is not None and endpoint.startswith("http://")


def _as_flag(name: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise InvalidInputError(
            f"option `{name}` must be true or false, got {value!r}", ErrorKind.NOT_ALLOWED
        )
    return text == "true"


def _environment(*names: str) -> str | None:
    """Return the first of these environment variables that is not empty."""
    return next((value for name in names if (value := os.environ.get(name))), None)


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
    """Return the URL of a URL text or path. ``frazil.storage.urls`` lists the possible forms."""
    parts = parse_parts(text)
    return StorageUrl(parts.scheme, parts.bucket, parts.key, parts.account, parts.query)


@checked
def storage_from_url(
    url: str | PathLike[str], options: Mapping[str, Any] | None = None, **named_options: Any
) -> Storage:
    """Return the storage that a URL names.

    ``frazil.storage.urls`` lists the URLs and the options. Without
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

"""Options of a storage that a URL names. Python, SQL and ingests use the same names.

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
from collections.abc import Mapping
from typing import Any, Final

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError
from frazil.storage.constructor_keywords import AzureKeywords, GcsKeywords, S3Keywords

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

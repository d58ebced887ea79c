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
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from frazil.arguments import wrong_type
from frazil.errors import ErrorKind, InvalidInputError

#: Arguments of a constructor by name.
type Arguments = dict[str, Any]

#: Options for the credentials of one cloud only.
_CREDENTIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("access_key_id", "secret_access_key", "session_token"),
    "gs": ("service_account_file", "service_account_key", "application_credentials", "bearer_token"),
    "az": ("account_key", "sas_token", "bearer_token"),
    "http": (),
}
#: Arguments of constructors that are options only in Python, because their values are not text.
_CONSTRUCTOR_ARGUMENTS: Final[Mapping[str, frozenset[str]]] = {
    "s3": frozenset(
        {
            "checksum_algorithm",
            "expires_after",
            "from_env",
            "get_credentials",
            "headers",
            "legacy_rooted_keys",
            "network_stream_timeout_seconds",
            "read_headers",
            "requester_pays",
            "scatter_initial_credentials",
            "write_headers",
        }
    ),
    "gs": frozenset(
        {
            "config",
            "from_env",
            "get_credentials",
            "headers",
            "read_headers",
            "scatter_initial_credentials",
            "write_headers",
        }
    ),
    "az": frozenset({"config", "from_env"}),
    "http": frozenset({"headers", "opts"}),
}
#: The client's option for the endpoint, and its environment variables.
_CLIENT_ENDPOINTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "gs": ("base_url", ("GOOGLE_BASE_URL",)),
    "az": ("endpoint", ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")),
}
#: Another name of an option, which is an argument of ``azure_storage``.
_ALIASES: Final = {"access_key": "account_key"}


@dataclass(frozen=True, slots=True)
class UrlOptions:
    """Options of a storage that a URL names. The module's docstring has the table of them.

    ``further`` holds other arguments of the constructor.
    """

    region: str | None = None
    endpoint_url: str | None = None
    allow_http: bool | None = None
    force_path_style: bool | None = None
    anonymous: bool = False
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    service_account_file: str | None = None
    service_account_key: str | None = field(default=None, repr=False)
    application_credentials: str | None = None
    account: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    bearer_token: str | None = field(default=None, repr=False)
    further: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Self:
        """Return options by their names. An option that is None has its default."""
        values: dict[str, Any] = {}
        further: dict[str, Any] = {}
        for option, value in options.items():
            if not isinstance(option, str):
                raise wrong_type("the name of an option", option, "str")
            name = option.replace("-", "_")
            name = _ALIASES.get(name, name)
            if value is None:
                continue
            if name in OPTION_NAMES:
                values[name] = _as_flag(option, value) if name in _FLAGS else _as_text(option, value)
            elif any(name in names for names in _CONSTRUCTOR_ARGUMENTS.values()):
                further[name] = value
            else:
                raise InvalidInputError(
                    f"a storage option must be one of {', '.join(sorted(OPTION_NAMES))}, got {option!r}",
                    ErrorKind.NOT_ALLOWED,
                )
        return cls(**values, further=further)

    def arguments(self, family: str) -> Arguments:
        """Return the arguments of the constructor for a family of URLs, except bucket and prefix."""
        if family == "file":
            return {}
        self._require_family(family)
        match family:
            case "s3":
                return self._s3_arguments()
            case "gs" | "az":
                return self._client_arguments(family)
        return dict(self.further)

    def _require_family(self, family: str) -> None:
        names = [name for name in _CREDENTIAL_NAMES if getattr(self, name) is not None]
        offences = [name for name in names if name not in _CREDENTIALS[family]]
        offences += [name for name in self.further if name not in _CONSTRUCTOR_ARGUMENTS[family]]
        if offences:
            raise InvalidInputError(
                f"options for {family}:// URLs must not include {', '.join(sorted(offences))}. Remove them",
                ErrorKind.NOT_ALLOWED,
            )

    def _credentials(self, family: str) -> Arguments:
        arguments: Arguments = {name: getattr(self, name) for name in _CREDENTIALS[family]}
        anonymous = self.anonymous or None
        has_way = anonymous or "get_credentials" in self.further or any(arguments.values())
        return {**arguments, "anonymous": anonymous, "from_env": None if has_way else True}

    def _s3_arguments(self) -> Arguments:
        endpoint = self.endpoint_url or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        is_plain_http = endpoint is not None and endpoint.startswith("http://")
        arguments: Arguments = {
            "region": self.region or _environment("AWS_REGION", "AWS_DEFAULT_REGION"),
            "endpoint_url": endpoint,
            "allow_http": is_plain_http if self.allow_http is None else self.allow_http,
            "force_path_style": (
                endpoint is not None if self.force_path_style is None else self.force_path_style
            ),
        }
        return {**arguments, **self._credentials("s3"), **self.further}

    def _client_arguments(self, family: str) -> Arguments:
        """Return arguments for GCS and Azure, where the endpoint is an option of the client."""
        config = dict(self.further.get("config") or {})
        option, variables = _CLIENT_ENDPOINTS[family]
        endpoint = self.endpoint_url or config.get(option) or _environment(*variables)
        if endpoint is not None:
            config[option] = endpoint
        is_plain_http = endpoint is not None and endpoint.startswith("http://")
        if is_plain_http if self.allow_http is None else self.allow_http:
            config["allow_http"] = "true"
        arguments = {**self._credentials(family), **self.further, "config": config or None}
        if family == "az":
            arguments["access_key"] = arguments.pop("account_key")
        return arguments


_FLAGS: Final = frozenset({"allow_http", "force_path_style", "anonymous"})
_CREDENTIAL_NAMES: Final = tuple(sorted({name for names in _CREDENTIALS.values() for name in names}))
#: The options whose values are text or flags.
OPTION_NAMES: Final = frozenset(each.name for each in fields(UrlOptions)) - {"further"}
#: The options that contain a secret. Frazil never saves their values.
SECRET_OPTION_NAMES: Final = frozenset(_CREDENTIAL_NAMES) - {
    "service_account_file",
    "application_credentials",
}


def _as_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong_type(f"option `{name}`", value, "str")
    return value


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

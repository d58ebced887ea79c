"""Temporary keys for the buckets of NASA Earthdata, from the endpoint ``/s3credentials`` of a data centre.

The endpoint accepts the bearer token of a user. Without a token, it redirects to the login server, which
accepts a name and a password and redirects back. The token is only sent to the endpoint's server, and the
password only to the login server. The keys live for an hour.
"""

from __future__ import annotations

import json
import netrc
import os
from base64 import b64encode
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from frazil.arguments import checked
from frazil.errors import ErrorKind, StorageError, UnreachableError
from frazil.storage.credential_families import S3Credentials, S3StaticCredentials, wrong_credentials
from frazil.storage.credentials import s3_refreshable_credentials
from frazil.storage.option_names import shown_url
from frazil.storage.settings import StorageSettings
from frazil.storage.web_client import WebClient, join_url, origin_of, reason_of, web_options

_LOGIN: Final = "https://urs.earthdata.nasa.gov"
_REDIRECTS: Final = 10


@dataclass(frozen=True, slots=True)
class EarthdataLogin:
    """The function that gets new keys. Storages pickle it for their workers, with the user's secrets."""

    endpoint: str
    login_server: str
    token: str | None = field(repr=False)
    user: tuple[str, str] | None = field(repr=False)

    def __call__(self) -> S3StaticCredentials:
        """Return new keys."""
        try:
            status, body = self._answer()
        except UnreachableError as error:
            reason = reason_of(error, self.endpoint)[1]
            raise StorageError(f"no Earthdata keys from {shown_url(self.endpoint)}: {reason}") from error
        try:
            keys: Any = json.loads(body) if status == 200 else None
            end = datetime.fromisoformat(keys["expiration"])
            end = end if end.tzinfo else end.replace(tzinfo=UTC)
            return S3StaticCredentials(
                keys["accessKeyId"], keys["secretAccessKey"], keys["sessionToken"], end
            )
        except (KeyError, TypeError, ValueError):
            raise StorageError(
                f"{shown_url(self.endpoint)} must answer with temporary keys, got status {status}. Check the "
                "token or the password, and that your Earthdata profile has approved this data centre and "
                "accepted its terms",
                ErrorKind.CREDENTIALS_REFUSED,
            ) from None

    def _answer(self) -> tuple[int, bytes]:
        """Return the status and the body of the endpoint's answer after the login."""
        client = WebClient(web_options({}, StorageSettings()), {})
        cookies: defaultdict[tuple[str, str, int], dict[str, str]] = defaultdict(dict)
        url = self.endpoint
        for _ in range(_REDIRECTS):
            server, headers = origin_of(url), {}
            if self.token is not None and server == origin_of(self.endpoint):
                headers["authorization"] = f"Bearer {self.token}"
            elif self.user is not None and server == origin_of(self.login_server):
                headers["authorization"] = f"Basic {b64encode(':'.join(self.user).encode()).decode()}"
            if cookies[server]:
                headers["cookie"] = "; ".join(f"{name}={value}" for name, value in cookies[server].items())
            answer = client.request("GET", url, headers, redirects=0)
            for line in answer.headers.get("set-cookie", "").splitlines():
                name, _, value = line.partition(";")[0].partition("=")
                cookies[server][name.strip()] = value.strip()
            target = answer.headers.get("location")
            if target is None or not 300 <= answer.status < 400:
                return answer.status, answer.body
            url = join_url(url, target)
        raise UnreachableError(f"the login redirects more than {_REDIRECTS} times")


@checked
def earthdata_credentials(
    daac: str,
    *,
    token: str | None = None,
    username: str | None = None,
    password: str | None = None,
    login_server: str = _LOGIN,
    scatter_initial_credentials: bool = False,
) -> S3Credentials.Refreshable:
    """Return credentials for the buckets of a data centre of NASA Earthdata, which Frazil refreshes.

    The buckets can be read in the AWS region ``us-west-2`` only. The user is that of the arguments, else of
    the variable ``EARTHDATA_TOKEN``, else of ``EARTHDATA_USERNAME`` and ``EARTHDATA_PASSWORD``, else of the
    file ``~/.netrc`` (or ``NETRC``). Pickles contain the token or the password, so that workers get new keys.

    Args:
        daac: Name of the data centre in ``https://data.NAME.earthdatacloud.nasa.gov/s3credentials``, such as
            ``"lpdaac"``, or the URL of another endpoint.
        token: Bearer token of the user.
        username: Name of the user, with ``password``.
        password: Password of the user.
        login_server: URL of the server that may get the password. Default: the server of Earthdata.
        scatter_initial_credentials: Whether to get the first keys now, and to store them in every pickle.

    Returns:
        The credentials, for `containers_credentials`.

    Raises:
        InvalidInputError: ``invalid-credentials`` if there is no user, or the endpoint is not a URL with
            https. Loopback addresses may have http.

    Examples:
        >>> from frazil.storage.credentials import containers_credentials
        >>> keys = earthdata_credentials("lpdaac", token="...")
        >>> access = containers_credentials({"s3://lp-prod-protected/": keys})
    """
    endpoint = daac if "://" in daac else f"https://data.{daac}.earthdatacloud.nasa.gov/s3credentials"
    for url in (endpoint, login_server):
        scheme, host, _ = origin_of(url)
        if scheme != "https" and host not in ("127.0.0.1", "localhost"):
            raise wrong_credentials(f"Earthdata endpoints must have https, got {shown_url(url)}")
    user = None if username is None or password is None else (username, password)
    if token is None and user is None:
        token = os.environ.get("EARTHDATA_TOKEN") or None
        user = _environment_user(login_server) if token is None else None
    if token is None and user is None:
        raise wrong_credentials(
            "Earthdata needs a user, got neither a token nor a name with a password"
        ).with_remedy(
            "Pass token=, or set EARTHDATA_TOKEN, or write a line for the login server into ~/.netrc",
            shell="Set EARTHDATA_TOKEN, or write a line for urs.earthdata.nasa.gov into ~/.netrc",
        )
    login = EarthdataLogin(endpoint, login_server, token, user)
    return s3_refreshable_credentials(login, scatter_initial_credentials)


def _environment_user(login_server: str) -> tuple[str, str] | None:
    """Return the user of the environment or of the netrc file, or None."""
    name, password = os.environ.get("EARTHDATA_USERNAME"), os.environ.get("EARTHDATA_PASSWORD")
    if name and password:
        return name, password
    with suppress(OSError, netrc.NetrcParseError):
        entry = netrc.netrc(os.environ.get("NETRC")).authenticators(origin_of(login_server)[1])
        if entry is not None:
            return entry[0], entry[2] or ""
    return None

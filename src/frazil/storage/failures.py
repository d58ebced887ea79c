"""Why a request to an object store failed: what the client says, as a cause and a remedy.

obstore gives one class and one long text for nearly everything. An ``Answer`` is that text taken apart: the
request, the status and the code of the server, or the network error. Two tables and one more for the network
lead from there to a ``Cause``. Only these parts are looked at, never the whole text: names of objects and
messages of servers may contain any word. A text that no row recognises stays as the client gave it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from frazil.errors import ErrorKind, StorageError

_log: Final = logging.getLogger(__name__)

#: Where the machine or its cloud would offer credentials: asked only if there are none elsewhere.
_METADATA: Final = re.compile(
    r"/latest/api/token|/latest/meta-data/|/computeMetadata/|/metadata/identity/|/msi/token"
)
_REQUEST: Final = re.compile(r"Error performing [A-Z]+ (\S+) in ")
_STATUS: Final = re.compile(r"Server returned non-2xx status code: (\d{3})[^:]*: ?(.*)", re.DOTALL)
_CODE: Final = re.compile(r'<Code>\s*([^<]+?)\s*</Code>|"(?:reason|error)"\s*:\s*"([^"]+)"')
_MESSAGE: Final = re.compile(
    r'<Message>\s*(.+?)\s*</Message>|"(?:message|error_description)"\s*:\s*"([^"]+)"', re.DOTALL
)
_PROVIDER: Final = re.compile(r"path External \w+ credential provider: (.*)", re.DOTALL)
_NETWORK: Final = re.compile(r"inner: Http\((.*)", re.DOTALL)
_TOKEN: Final = "Error performing token request"
_REDIRECT: Final = "Received redirect without LOCATION"
_DEBUG: Final = "\n\nDebug source"
_GENERIC: Final = re.compile(r"^Generic \w+ error: ")
_SECRETS: Final = re.compile(r"(?i)\b(sig|signature|x-\w+-signature|x-\w+-security-token|token)=[^&\s\"')]+")
_USERS: Final = re.compile(r"(?i)\b(https?://)[^/?#\s\"'@]*@")
#: A client that cannot decode a file of credentials quotes what it found there.
_CONTENT: Final = re.compile(
    r'(?s)((?:invalid (?:type|value): [a-z ]+|unknown (?:variant|field)) )(?:".*"|`[^`]*`)(?=, expected)'
)
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class ErrorParts:
    """A text of the client, taken apart; what it does not say is empty."""

    url: str = ""
    status: str = ""
    code: str = ""
    message: str = ""
    network: str = ""

    @classmethod
    def of(cls, text: str) -> ErrorParts:
        head, _, debug = text.partition(_DEBUG)
        request, status, network = _REQUEST.search(head), _STATUS.search(head), _NETWORK.search(debug)
        body = status[2] if status else ""
        return cls(
            request[1] if request else "",
            status[1] if status else "",
            _group(_CODE.search(body)),
            _short(_group(_MESSAGE.search(body))),
            network[1] if network else "",
        )

    @property
    def server(self) -> str:
        """Scheme, host and port that were asked. Never the query, which may hold a signature."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class MessageTerms:
    """What messages call a bucket, and which arguments its user would change.

    ``name`` is such as "bucket 'ice'", ``service`` such as "S3"; ``advice`` says how to give credentials,
    ``plain_http`` how to allow requests without encryption.
    """

    name: str
    service: str
    advice: str
    plain_http: str
    is_anonymous: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the tables: the kind, what happened, and what to do.

    Both texts may name the fields of the terms, the ``{server}`` that was asked, and the ``{status}``
    and ``{code}`` of its answer.
    """

    kind: ErrorKind
    event: str
    remedy: str


_NO_CREDENTIALS: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING,
    "no credentials for {service}: none were given, and this machine and its environment have none",
    "{advice}",
)
_NEEDED: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING, "{server} gives {name} only to requests with credentials", "{advice}"
)
_REFUSED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} refuses the credentials ({code})",
    "check the key, secret or token that was given, or that the environment has",
)
_UNAUTHORIZED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} needs credentials, or does not accept those of this request ({code})",
    "check the key, secret or token that was given, or that the environment has",
)
_EXPIRED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "the credentials have expired ({code})",
    "get new ones, or give a function that gets them as `get_credentials`",
)
_CLOCK: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "the clocks of this machine and of {server} differ too much ({code})",
    "set the clock of this machine",
)
_NOT_EXCHANGED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED, "{server} gives no token for the credentials ({code})", "check them"
)
_DENIED: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "no permission for this request in {name} ({code})",
    "give credentials that have it, or ask the owner of {name} for it. (For a missing object, S3 says the "
    "same to credentials that may not list the bucket)",
)
_FORBIDDEN: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "{server} refuses this request ({code})",
    "check that the credentials are right, and that they may do this in {name}",
)
_NO_BUCKET: Final = Cause(
    ErrorKind.BUCKET_NOT_FOUND, "no such {name} at {server}", "create it, or correct its name"
)
_NO_OBJECT: Final = Cause(
    ErrorKind.OBJECT_NOT_FOUND, "{name} has no such object", "it was moved or deleted, or its name is wrong"
)
_NO_PLACE: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "{server} answers a write with 404 (not found)",
    "check that {name} exists, and that the endpoint is one of {service}",
)
_REGION: Final = Cause(
    ErrorKind.STORAGE_CONFIG,
    "{name} is in another region, or at another endpoint, than the one that was asked",
    "give the right `region` or `endpoint_url`",
)
_BAD_NAME: Final = Cause(
    ErrorKind.STORAGE_CONFIG, "{server} does not accept the name of {name} ({code})", "correct the name"
)
_BUSY: Final = Cause(
    ErrorKind.THROTTLED,
    "{server} has too many requests ({code})",
    "try again later, or with fewer requests at once",
)
_FULL: Final = Cause(
    ErrorKind.STORAGE_FULL, "{name} at {server} has no space left ({code})", "free some, or raise its quota"
)
_SERVER_FAILED: Final = Cause(ErrorKind.OBJECT_STORE, "{server} failed ({code})", "try again later")
_PAST_END: Final = Cause(
    ErrorKind.OBJECT_STORE, "the range of bytes starts past the end of the object ({code})", "read less"
)
_PLAIN_HTTP: Final = Cause(
    ErrorKind.STORAGE_CONFIG,
    "{server} is not encrypted, and requests without encryption are not allowed",
    "give {plain_http}, or an https:// endpoint",
)

_OTHER: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "{server} refuses the request (HTTP {status}, {code})",
    "see the documentation of {service} for this code",
)

_BY_CODE: Final = {
    code: cause
    for codes, cause in (
        ("NoSuchBucket ContainerNotFound", _NO_BUCKET),
        (
            "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken InvalidSecurity AuthenticationFailed",
            _REFUSED,
        ),
        ("InvalidAuthenticationInfo AuthorizationHeaderMalformed authError", _REFUSED),
        ("AccessDenied AllAccessDisabled AccountIsDisabled AuthorizationFailure", _DENIED),
        ("AuthorizationPermissionMismatch InsufficientAccountPermissions PublicAccessNotPermitted", _DENIED),
        ("ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired", _EXPIRED),
        ("RequestTimeTooSkewed", _CLOCK),
        ("NoAuthenticationInformation MissingSecurityHeader MissingAuthenticationToken", _NEEDED),
        ("InvalidBucketName InvalidResourceName", _BAD_NAME),
        ("PermanentRedirect IllegalLocationConstraintException", _REGION),
        ("SlowDown ServerBusy TooManyRequests RequestLimitExceeded ThrottlingException", _BUSY),
        ("QuotaExceeded XMinioStorageFull InsufficientStorage", _FULL),
    )
    for code in codes.split()
}
_BY_STATUS: Final = {
    "401": _UNAUTHORIZED,
    "403": _FORBIDDEN,
    "416": _PAST_END,
    "429": _BUSY,
    "500": _SERVER_FAILED,
    "502": _SERVER_FAILED,
    "503": _BUSY,
    "504": _SERVER_FAILED,
    "507": _FULL,
}
#: Words in the network error that a client dumps, in the order in which they are looked for.
_BY_NETWORK: Final = tuple(
    (re.compile(words), Cause(kind, event, remedy))
    for words, kind, event, remedy in (
        ("BadScheme", _PLAIN_HTTP.kind, _PLAIN_HTTP.event, _PLAIN_HTTP.remedy),
        (
            '"dns error"',
            ErrorKind.STORAGE_UNREACHABLE,
            "the name of the host of {server} is not known (DNS)",
            "check the endpoint, the region and the name of {name}, and the network of this machine",
        ),
        (
            "ConnectionRefused",
            ErrorKind.STORAGE_UNREACHABLE,
            "connection refused: nothing listens at {server}",
            "check the endpoint, and that the server runs",
        ),
        (
            "InvalidCertificate",
            ErrorKind.STORAGE_UNREACHABLE,
            "the TLS certificate of {server} is not valid for this machine",
            "check the host name of the endpoint, or let this machine trust the certificate",
        ),
        (
            r"InvalidMessage|InvalidContentType|AlertReceived|PeerIncompatible",
            ErrorKind.STORAGE_UNREACHABLE,
            "{server} does not answer with TLS",
            "if the server speaks plain HTTP, give an http:// endpoint and `allow_http=True`",
        ),
        (
            "NetworkUnreachable|HostUnreachable|NetworkDown|AddrNotAvailable",
            ErrorKind.STORAGE_UNREACHABLE,
            "there is no route to {server}",
            "check the network of this machine",
        ),
        (
            "kind: Timeout|TimedOut|deadline has elapsed",
            ErrorKind.STORAGE_TIMEOUT,
            "{server} did not answer in time",
            "try again, or raise the timeouts in `StorageSettings`",
        ),
        (
            "IncompleteMessage|ConnectionReset|BrokenPipe|UnexpectedEof|ConnectionAborted|ChannelClosed",
            ErrorKind.OBJECT_STORE,
            "{server} closed the connection before its answer was complete",
            "try again later",
        ),
    )
)


def storage_error(error: BaseException, terms: MessageTerms, key: str) -> StorageError:
    """What the client raised while it asked for ``key``, as an error with the cause first."""
    kind, reason = reason_of(error, terms, missing=_NO_PLACE)
    shorten(error)
    return StorageError(f"{reason} (object {key!r} in {terms.name})", kind)


def reason_of(
    error: BaseException, terms: MessageTerms, *, missing: Cause = _NO_OBJECT
) -> tuple[ErrorKind, str]:
    """The kind of an error of the client; the cause, what to do, and what the server says.

    ``missing`` is the cause if the server found nothing, and did not say that it is the bucket.
    """
    text = str(error)
    provider = _PROVIDER.search(text.partition(_DEBUG)[0])
    if provider is not None:
        problem = f"the function that gets the credentials of {terms.service} failed: {_short(provider[1])}"
        return ErrorKind.INVALID_CREDENTIALS, problem
    parts = ErrorParts.of(text)
    cause = _cause(text, parts, terms)
    if cause is None and isinstance(error, FileNotFoundError):
        cause = missing
    if cause is None and parts.code:
        cause = _OTHER
    if cause is None:
        return ErrorKind.OBJECT_STORE, _short(first_line(error))
    return _sentence(cause, parts, terms)


def reason_of_answer(parts: ErrorParts, terms: MessageTerms) -> tuple[ErrorKind, str] | None:
    """``reason_of`` for an answer of which the parts are known; None if no row recognises it."""
    cause = _NO_OBJECT if parts.status in ("404", "410") else _cause("", parts, terms)
    return None if cause is None else _sentence(cause, parts, terms)


def _sentence(cause: Cause, parts: ErrorParts, terms: MessageTerms) -> tuple[ErrorKind, str]:
    words = {
        "server": parts.server,
        "status": parts.status,
        "code": parts.code or f"HTTP {parts.status}",
        "name": terms.name,
        "service": terms.service,
        "advice": terms.advice,
        "plain_http": terms.plain_http,
    }
    sentence = f"{cause.event}: {cause.remedy}".format(**words)
    says_more = parts.message and cause is not _NO_CREDENTIALS
    return cause.kind, f"{sentence}. The server says: {parts.message!r}" if says_more else sentence


def shorten(error: BaseException) -> None:
    """Leave the dump of the client's internals, and secrets, out of a traceback; a log has the dump."""
    _log.debug("the client of the object store says: %s", _masked(str(error)))
    error.args = (first_line(error),)


def is_missing_bucket(error: BaseException) -> bool:
    """Whether an object was not found because its bucket was not."""
    return _is_missing_bucket(ErrorParts.of(str(error)))


def _is_missing_bucket(parts: ErrorParts) -> bool:
    is_named = "specified bucket does not exist" in parts.message
    return _BY_CODE.get(parts.code) is _NO_BUCKET or (is_named and parts.status == "404")


def _cause(text: str, parts: ErrorParts, terms: MessageTerms) -> Cause | None:
    if _METADATA.search(parts.url):
        return _NO_CREDENTIALS
    if text.partition(_DEBUG)[0].find(_TOKEN) >= 0 and parts.status in ("400", "401", "403"):
        return _NOT_EXCHANGED
    if _is_missing_bucket(parts):
        return _NO_BUCKET
    if _REDIRECT in text or (parts.code == "AuthorizationHeaderMalformed" and "region" in parts.message):
        return _REGION
    cause = _BY_CODE.get(parts.code) or _BY_STATUS.get(parts.status)
    if cause in (_DENIED, _FORBIDDEN, _UNAUTHORIZED) and terms.is_anonymous:
        return _NEEDED
    if cause is None and parts.network:
        return next((row for words, row in _BY_NETWORK if words.search(parts.network)), None)
    return cause


def first_line(error: BaseException) -> str:
    """The message of a client's error without dumps of internals, secrets of URLs, and content of files."""
    return _GENERIC.sub("", _masked(str(error).partition(_DEBUG)[0].strip()))


def _masked(text: str) -> str:
    return _CONTENT.sub(r"\1****", _USERS.sub(r"\1****@", _SECRETS.sub(r"\1=****", text)))


def _group(match: re.Match[str] | None) -> str:
    return "" if match is None else next(filter(None, match.groups()), "")


def _short(text: str) -> str:
    """On one line, and not longer than a reader bears."""
    line = _masked(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."

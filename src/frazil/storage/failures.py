"""The cause and the remedy of a failed request to an object store, from the error text of the client.

obstore raises the same class with one long text for nearly all failures. ``ErrorParts`` has the parts of this
text: the request, the status and the code of the server, or the network error. They lead to a ``Cause``. The
rest of the text is not searched, because names of objects and messages of servers may contain any word. A
text without a cause stays as it is.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from frazil.errors import ErrorKind, StorageError
from frazil.remedies import Remedy


@dataclass(frozen=True, slots=True)
class Cause:
    """The kind of an error, what happened, and what to do, with the codes and words that lead to it.

    Both texts may contain the fields of ``MessageTerms``, the ``{server}`` that received the request, and the
    ``{status}`` and ``{code}`` of its answer. ``codes`` has spaces between the codes and statuses, and
    ``network`` is a regular expression for the debug text of a network error.
    """

    kind: ErrorKind
    event: str
    remedy: str = ""
    codes: str = ""
    network: str = ""


NO_CREDENTIALS: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING,
    "no credentials for {service}: the caller passed none, and this machine and its environment have none",
)
NEEDED: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING,
    "{server} requires credentials for {name}",
    codes="NoAuthenticationInformation MissingSecurityHeader MissingAuthenticationToken",
)
UNAUTHORIZED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} requires credentials, or refuses the credentials of this request ({code})",
    "check the key, secret or token in the arguments or the environment",
    "401",
)
NOT_EXCHANGED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} did not return a token for the credentials ({code})",
    "check the credentials",
)
DENIED: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "no permission for this request in {name} ({code})",
    "use credentials with this permission, or ask the owner of {name} for it. (S3 also sends this answer "
    "for a missing object if the credentials may not list the bucket)",
    "AccessDenied AllAccessDisabled AccountIsDisabled AuthorizationFailure AuthorizationPermissionMismatch "
    "InsufficientAccountPermissions PublicAccessNotPermitted",
)
FORBIDDEN: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "{server} refuses this request ({code})",
    "check that the credentials are correct, and that they have the permission for this request in {name}",
    "403",
)
NO_BUCKET: Final = Cause(
    ErrorKind.BUCKET_NOT_FOUND,
    "{name} does not exist at {server}",
    "create it, or correct its name",
    "NoSuchBucket ContainerNotFound",
)
NO_OBJECT: Final = Cause(
    ErrorKind.OBJECT_NOT_FOUND,
    "{name} has no such object",
    "check its name, and whether it was moved or deleted",
)
NO_TARGET: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "{server} answers a write with 404 (not found)",
    "check that {name} exists, and that the endpoint belongs to {service}",
)
REGION: Final = Cause(
    ErrorKind.STORAGE_CONFIG,
    "{name} is in another region or at another endpoint than the request",
    "correct the option `region` or `endpoint_url`",
    "PermanentRedirect IllegalLocationConstraintException",
)
OTHER: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "{server} refuses the request (HTTP {status}, {code})",
    "see the documentation of {service} for this code",
)

#: The causes with codes or words. Words are searched in this order.
_CAUSES: Final = (
    *(NEEDED, UNAUTHORIZED, DENIED, FORBIDDEN, NO_BUCKET, REGION),
    Cause(
        ErrorKind.CREDENTIALS_REFUSED,
        "{server} refuses the credentials ({code})",
        "check the key, secret or token in the arguments or the environment",
        "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken InvalidSecurity AuthenticationFailed "
        "InvalidAuthenticationInfo AuthorizationHeaderMalformed authError",
    ),
    Cause(
        ErrorKind.CREDENTIALS_REFUSED,
        "the credentials have expired ({code})",
        "get new credentials, or name a function that gets them (`get_credentials`)",
        "ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired",
    ),
    Cause(
        ErrorKind.CREDENTIALS_REFUSED,
        "the clocks of this machine and of {server} differ too much ({code})",
        "set the clock of this machine",
        "RequestTimeTooSkewed",
    ),
    Cause(
        ErrorKind.STORAGE_CONFIG,
        "{server} does not accept the name of {name} ({code})",
        "correct the name",
        "InvalidBucketName InvalidResourceName",
    ),
    Cause(
        ErrorKind.THROTTLED,
        "{server} has too many requests ({code})",
        "try again later, or send fewer requests at the same time",
        "SlowDown ServerBusy TooManyRequests RequestLimitExceeded ThrottlingException 429 503",
    ),
    Cause(
        ErrorKind.STORAGE_FULL,
        "{name} at {server} has no space left ({code})",
        "free some space, or raise its quota",
        "QuotaExceeded XMinioStorageFull InsufficientStorage 507",
    ),
    Cause(ErrorKind.OBJECT_STORE, "{server} failed ({code})", "try again later", "500 502 504"),
    Cause(
        ErrorKind.OBJECT_STORE,
        "the range of bytes starts after the end of the object ({code})",
        "read a range inside the object",
        "416",
    ),
    Cause(
        ErrorKind.STORAGE_CONFIG,
        "{server} is not encrypted, and requests without encryption are not allowed",
        "allow plain HTTP with the option `allow_http`, or use an https:// endpoint",
        network="BadScheme",
    ),
    Cause(
        ErrorKind.STORAGE_UNREACHABLE,
        "the host name of {server} is not known (DNS)",
        "check the endpoint, the region and the name of {name}, and the network of this machine",
        network='"dns error"',
    ),
    Cause(
        ErrorKind.STORAGE_UNREACHABLE,
        "connection refused: no server listens at {server}",
        "check the endpoint, and that the server runs",
        network="ConnectionRefused",
    ),
    Cause(
        ErrorKind.STORAGE_UNREACHABLE,
        "the TLS certificate of {server} is not valid for this machine",
        "check the host name of the endpoint, or let this machine trust the certificate",
        network="InvalidCertificate",
    ),
    Cause(
        ErrorKind.STORAGE_UNREACHABLE,
        "{server} does not answer with TLS",
        "if the server uses plain HTTP, use an http:// endpoint and the option `allow_http`",
        network="InvalidMessage|InvalidContentType|AlertReceived|PeerIncompatible",
    ),
    Cause(
        ErrorKind.STORAGE_UNREACHABLE,
        "there is no route to {server}",
        "check the network of this machine",
        network="NetworkUnreachable|HostUnreachable|NetworkDown|AddrNotAvailable",
    ),
    Cause(
        ErrorKind.STORAGE_TIMEOUT,
        "{server} did not answer in time",
        "try again, or raise the timeouts in `StorageSettings`",
        network="kind: Timeout|TimedOut|deadline has elapsed",
    ),
    Cause(
        ErrorKind.OBJECT_STORE,
        "{server} closed the connection before its answer was complete",
        "try again later",
        network="IncompleteMessage|ConnectionReset|BrokenPipe|UnexpectedEof|ConnectionAborted|ChannelClosed",
    ),
)
_BY_CODE: Final = {code: cause for cause in _CAUSES for code in cause.codes.split()}
_BY_NETWORK: Final = tuple((re.compile(cause.network), cause) for cause in _CAUSES if cause.network)


_log: Final = logging.getLogger(__name__)

#: Addresses that offer credentials of the machine. The client asks them only if it has no other credentials.
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
#: A client that cannot decode a file of credentials quotes the content of the file.
_CONTENT: Final = re.compile(
    r'(?s)((?:invalid (?:type|value): [a-z ]+|unknown (?:variant|field)) )(?:".*"|`[^`]*`)(?=, expected)'
)
_LONGEST: Final = 300


@dataclass(frozen=True, slots=True)
class ErrorParts:
    """The parts of an error text of the client. A part is empty if the text does not have it."""

    url: str = ""
    status: str = ""
    code: str = ""
    message: str = ""
    network: str = ""

    @classmethod
    def from_text(cls, text: str) -> ErrorParts:
        """Return the parts of a text."""
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
        """The scheme, host and port of the request. Never its query, which may contain a signature."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class MessageTerms:
    """The words of messages for one bucket, such as "bucket 'ice'" and "S3".

    ``advice`` is how to pass credentials; None if the caller of ``reason_of`` adds it.
    """

    name: str
    service: str
    advice: Remedy | None = None
    is_anonymous: bool = False


def wrong_setup(text: str) -> StorageError:
    """Return the error (``storage-config``) for options and credentials that no client accepts."""
    return StorageError(text, ErrorKind.STORAGE_CONFIG)


def storage_error(error: BaseException, terms: MessageTerms, key: str) -> StorageError:
    """Return the error for an exception of the client during a request for ``key``, with the cause first."""
    kind, reason = reason_of(error, terms, missing=NO_TARGET)
    shorten(error)
    failure = StorageError(f"{reason} (object {key!r} in {terms.name})", kind)
    failure.remedy = terms.advice if kind is ErrorKind.CREDENTIALS_MISSING else None
    return failure


def reason_of(
    error: BaseException, terms: MessageTerms, *, missing: Cause = NO_OBJECT
) -> tuple[ErrorKind, str]:
    """Return the kind of an error of the client, and a text with the cause and the remedy.

    The text ends with the message of the server, if it sent one. ``missing`` is the cause if the server did
    not find the object and did not say that the bucket is missing.
    """
    text = str(error)
    provider = _PROVIDER.search(text.partition(_DEBUG)[0])
    if provider is not None:
        problem = f"the function `get_credentials` for {terms.service} failed: {_short(provider[1])}"
        return ErrorKind.INVALID_CREDENTIALS, problem
    parts = ErrorParts.from_text(text)
    cause = _cause(text, parts, terms)
    if cause is None and isinstance(error, FileNotFoundError):
        cause = missing
    if cause is None and parts.code:
        cause = OTHER
    if cause is None:
        return ErrorKind.OBJECT_STORE, _short(first_line(error))
    return _sentence(cause, parts, terms)


def reason_of_answer(parts: ErrorParts, terms: MessageTerms) -> tuple[ErrorKind, str] | None:
    """Return the result of ``reason_of`` for an answer with known parts; None if no row matches."""
    cause = NO_OBJECT if parts.status in ("404", "410") else _cause("", parts, terms)
    return None if cause is None else _sentence(cause, parts, terms)


def _sentence(cause: Cause, parts: ErrorParts, terms: MessageTerms) -> tuple[ErrorKind, str]:
    words = {
        "server": parts.server,
        "status": parts.status,
        "code": parts.code or f"HTTP {parts.status}",
        "name": terms.name,
        "service": terms.service,
    }
    sentence = ": ".join(filter(None, [cause.event, cause.remedy])).format(**words)
    says_more = parts.message and cause is not NO_CREDENTIALS
    return cause.kind, f"{sentence}. The server sent: {parts.message!r}" if says_more else sentence


def shorten(error: BaseException) -> None:
    """Remove the client's debug text and all secrets from an exception. The debug log gets the full text."""
    _log.debug("error of the object store client: %s", _masked(str(error)))
    error.args = (first_line(error),)


def is_missing_bucket(parts: ErrorParts) -> bool:
    """Return whether an object was not found because its bucket does not exist."""
    is_named = "specified bucket does not exist" in parts.message
    return _BY_CODE.get(parts.code) is NO_BUCKET or (is_named and parts.status == "404")


def _cause(text: str, parts: ErrorParts, terms: MessageTerms) -> Cause | None:
    if _METADATA.search(parts.url):
        return NO_CREDENTIALS
    if text.partition(_DEBUG)[0].find(_TOKEN) >= 0 and parts.status in ("400", "401", "403"):
        return NOT_EXCHANGED
    if is_missing_bucket(parts):
        return NO_BUCKET
    if _REDIRECT in text or (parts.code == "AuthorizationHeaderMalformed" and "region" in parts.message):
        return REGION
    cause = _BY_CODE.get(parts.code) or _BY_CODE.get(parts.status)
    if cause in (DENIED, FORBIDDEN, UNAUTHORIZED) and terms.is_anonymous:
        return NEEDED
    if cause is None and parts.network:
        return next((row for words, row in _BY_NETWORK if words.search(parts.network)), None)
    return cause


def first_line(error: BaseException) -> str:
    """Return the message of a client's error without debug text, secrets of URLs, and contents of files."""
    return _GENERIC.sub("", _masked(str(error).partition(_DEBUG)[0].strip()))


def _masked(text: str) -> str:
    return _CONTENT.sub(r"\1****", _USERS.sub(r"\1****@", _SECRETS.sub(r"\1=****", text)))


def _group(match: re.Match[str] | None) -> str:
    return "" if match is None else next(filter(None, match.groups()), "")


def _short(text: str) -> str:
    """Return the text on one line, with at most ``_LONGEST`` characters."""
    line = _masked(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."

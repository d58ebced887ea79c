"""Tables of causes for failed requests to object stores.

The tables lead from codes, statuses and network errors to a cause, a kind of error, and a remedy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from frazil.errors import ErrorKind


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the tables: the kind of error, what happened, and what to do.

    Both texts may contain the fields of ``MessageTerms``, the ``{server}`` that received the request, and the
    ``{status}`` and ``{code}`` of its answer. ``MessageTerms.advice`` is the remedy of missing credentials.
    """

    kind: ErrorKind
    event: str
    remedy: str = ""


NO_CREDENTIALS: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING,
    "no credentials for {service}: the caller passed none, and this machine and its environment have none",
)
NEEDED: Final = Cause(ErrorKind.CREDENTIALS_MISSING, "{server} requires credentials for {name}")
REFUSED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} refuses the credentials ({code})",
    "check the key, secret or token in the arguments or the environment",
)
UNAUTHORIZED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} requires credentials, or refuses the credentials of this request ({code})",
    "check the key, secret or token in the arguments or the environment",
)
EXPIRED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "the credentials have expired ({code})",
    "get new credentials, or name a function that gets them (`get_credentials`)",
)
CLOCK: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "the clocks of this machine and of {server} differ too much ({code})",
    "set the clock of this machine",
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
)
FORBIDDEN: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "{server} refuses this request ({code})",
    "check that the credentials are correct, and that they have the permission for this request in {name}",
)
NO_BUCKET: Final = Cause(
    ErrorKind.BUCKET_NOT_FOUND, "{name} does not exist at {server}", "create it, or correct its name"
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
)
BAD_NAME: Final = Cause(
    ErrorKind.STORAGE_CONFIG, "{server} does not accept the name of {name} ({code})", "correct the name"
)
BUSY: Final = Cause(
    ErrorKind.THROTTLED,
    "{server} has too many requests ({code})",
    "try again later, or send fewer requests at the same time",
)
FULL: Final = Cause(
    ErrorKind.STORAGE_FULL,
    "{name} at {server} has no space left ({code})",
    "free some space, or raise its quota",
)
SERVER_FAILED: Final = Cause(ErrorKind.OBJECT_STORE, "{server} failed ({code})", "try again later")
PAST_END: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "the range of bytes starts after the end of the object ({code})",
    "read a range inside the object",
)
PLAIN_HTTP: Final = Cause(
    ErrorKind.STORAGE_CONFIG,
    "{server} is not encrypted, and requests without encryption are not allowed",
    "allow plain HTTP with the option `allow_http`, or use an https:// endpoint",
)

OTHER: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "{server} refuses the request (HTTP {status}, {code})",
    "see the documentation of {service} for this code",
)

BY_CODE: Final = {
    code: cause
    for codes, cause in (
        ("NoSuchBucket ContainerNotFound", NO_BUCKET),
        (
            "InvalidAccessKeyId SignatureDoesNotMatch InvalidToken InvalidSecurity AuthenticationFailed",
            REFUSED,
        ),
        ("InvalidAuthenticationInfo AuthorizationHeaderMalformed authError", REFUSED),
        ("AccessDenied AllAccessDisabled AccountIsDisabled AuthorizationFailure", DENIED),
        ("AuthorizationPermissionMismatch InsufficientAccountPermissions PublicAccessNotPermitted", DENIED),
        ("ExpiredToken ExpiredTokenException TokenRefreshRequired RequestExpired", EXPIRED),
        ("RequestTimeTooSkewed", CLOCK),
        ("NoAuthenticationInformation MissingSecurityHeader MissingAuthenticationToken", NEEDED),
        ("InvalidBucketName InvalidResourceName", BAD_NAME),
        ("PermanentRedirect IllegalLocationConstraintException", REGION),
        ("SlowDown ServerBusy TooManyRequests RequestLimitExceeded ThrottlingException", BUSY),
        ("QuotaExceeded XMinioStorageFull InsufficientStorage", FULL),
    )
    for code in codes.split()
}
BY_STATUS: Final = {
    "401": UNAUTHORIZED,
    "403": FORBIDDEN,
    "416": PAST_END,
    "429": BUSY,
    "500": SERVER_FAILED,
    "502": SERVER_FAILED,
    "503": BUSY,
    "504": SERVER_FAILED,
    "507": FULL,
}
#: Words in the debug text of a network error, in the order of the search.
BY_NETWORK: Final = tuple(
    (re.compile(words), Cause(kind, event, remedy))
    for words, kind, event, remedy in (
        ("BadScheme", PLAIN_HTTP.kind, PLAIN_HTTP.event, PLAIN_HTTP.remedy),
        (
            '"dns error"',
            ErrorKind.STORAGE_UNREACHABLE,
            "the host name of {server} is not known (DNS)",
            "check the endpoint, the region and the name of {name}, and the network of this machine",
        ),
        (
            "ConnectionRefused",
            ErrorKind.STORAGE_UNREACHABLE,
            "connection refused: no server listens at {server}",
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
            "if the server uses plain HTTP, use an http:// endpoint and the option `allow_http`",
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

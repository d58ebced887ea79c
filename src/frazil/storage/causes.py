"""Why requests to object stores fail: from codes, statuses and network errors to causes and remedies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from frazil.errors import ErrorKind


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the tables: the kind, what happened, and what to do.

    Both texts may name the fields of the terms, the ``{server}`` that was asked, and the ``{status}``
    and ``{code}`` of its answer.
    """

    kind: ErrorKind
    event: str
    remedy: str


NO_CREDENTIALS: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING,
    "no credentials for {service}: none were given, and this machine and its environment have none",
    "{advice}",
)
NEEDED: Final = Cause(
    ErrorKind.CREDENTIALS_MISSING, "{server} gives {name} only to requests with credentials", "{advice}"
)
REFUSED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} refuses the credentials ({code})",
    "check the key, secret or token that was given, or that the environment has",
)
UNAUTHORIZED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "{server} needs credentials, or does not accept those of this request ({code})",
    "check the key, secret or token that was given, or that the environment has",
)
EXPIRED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "the credentials have expired ({code})",
    "get new ones, or give a function that gets them as `get_credentials`",
)
CLOCK: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED,
    "the clocks of this machine and of {server} differ too much ({code})",
    "set the clock of this machine",
)
NOT_EXCHANGED: Final = Cause(
    ErrorKind.CREDENTIALS_REFUSED, "{server} gives no token for the credentials ({code})", "check them"
)
DENIED: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "no permission for this request in {name} ({code})",
    "give credentials that have it, or ask the owner of {name} for it. (For a missing object, S3 says the "
    "same to credentials that may not list the bucket)",
)
FORBIDDEN: Final = Cause(
    ErrorKind.STORAGE_PERMISSION,
    "{server} refuses this request ({code})",
    "check that the credentials are right, and that they may do this in {name}",
)
NO_BUCKET: Final = Cause(
    ErrorKind.BUCKET_NOT_FOUND, "no such {name} at {server}", "create it, or correct its name"
)
NO_OBJECT: Final = Cause(
    ErrorKind.OBJECT_NOT_FOUND, "{name} has no such object", "it was moved or deleted, or its name is wrong"
)
NO_TARGET: Final = Cause(
    ErrorKind.OBJECT_STORE,
    "{server} answers a write with 404 (not found)",
    "check that {name} exists, and that the endpoint is one of {service}",
)
REGION: Final = Cause(
    ErrorKind.STORAGE_CONFIG,
    "{name} is in another region, or at another endpoint, than the one that was asked",
    "give the right `region` or `endpoint_url`",
)
BAD_NAME: Final = Cause(
    ErrorKind.STORAGE_CONFIG, "{server} does not accept the name of {name} ({code})", "correct the name"
)
BUSY: Final = Cause(
    ErrorKind.THROTTLED,
    "{server} has too many requests ({code})",
    "try again later, or with fewer requests at once",
)
FULL: Final = Cause(
    ErrorKind.STORAGE_FULL, "{name} at {server} has no space left ({code})", "free some, or raise its quota"
)
SERVER_FAILED: Final = Cause(ErrorKind.OBJECT_STORE, "{server} failed ({code})", "try again later")
PAST_END: Final = Cause(
    ErrorKind.OBJECT_STORE, "the range of bytes starts past the end of the object ({code})", "read less"
)
PLAIN_HTTP: Final = Cause(
    ErrorKind.STORAGE_CONFIG,
    "{server} is not encrypted, and requests without encryption are not allowed",
    "give {plain_http}, or an https:// endpoint",
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
#: Words in the network error that a client dumps, in the order in which they are looked for.
BY_NETWORK: Final = tuple(
    (re.compile(words), Cause(kind, event, remedy))
    for words, kind, event, remedy in (
        ("BadScheme", PLAIN_HTTP.kind, PLAIN_HTTP.event, PLAIN_HTTP.remedy),
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

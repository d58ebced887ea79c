"""Why a request to an object store failed: the text of the client, as a cause and a remedy.

obstore raises one class with one long text for nearly everything. ``ErrorParts`` has the parts of that text:
the request, the status and the code of the server, or the network error. The tables of
``frazil.storage.causes`` lead from these parts to a ``Cause``. The rest of the text does not count, because
names of objects and messages of servers may contain any word. A text that no row recognises stays as it is.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from frazil.errors import ErrorKind, StorageError
from frazil.storage import causes
from frazil.storage.causes import Cause

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
    """The parts of an error text of the client. A part that the text does not have is empty."""

    url: str = ""
    status: str = ""
    code: str = ""
    message: str = ""
    network: str = ""

    @classmethod
    def from_text(cls, text: str) -> ErrorParts:
        """The parts of a text."""
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


def storage_error(error: BaseException, terms: MessageTerms, key: str) -> StorageError:
    """What the client raised while it asked for ``key``, as an error with the cause first."""
    kind, reason = reason_of(error, terms, missing=causes.NO_TARGET)
    shorten(error)
    return StorageError(f"{reason} (object {key!r} in {terms.name})", kind)


def reason_of(
    error: BaseException, terms: MessageTerms, *, missing: Cause = causes.NO_OBJECT
) -> tuple[ErrorKind, str]:
    """The kind of an error of the client; the cause, what to do, and what the server says.

    ``missing`` is the cause if the server found nothing, and did not say that it is the bucket.
    """
    text = str(error)
    provider = _PROVIDER.search(text.partition(_DEBUG)[0])
    if provider is not None:
        problem = f"the function that gets the credentials of {terms.service} failed: {_short(provider[1])}"
        return ErrorKind.INVALID_CREDENTIALS, problem
    parts = ErrorParts.from_text(text)
    cause = _cause(text, parts, terms)
    if cause is None and isinstance(error, FileNotFoundError):
        cause = missing
    if cause is None and parts.code:
        cause = causes.OTHER
    if cause is None:
        return ErrorKind.OBJECT_STORE, _short(first_line(error))
    return _sentence(cause, parts, terms)


def reason_of_answer(parts: ErrorParts, terms: MessageTerms) -> tuple[ErrorKind, str] | None:
    """``reason_of`` for an answer of which the parts are known; None if no row recognises it."""
    cause = causes.NO_OBJECT if parts.status in ("404", "410") else _cause("", parts, terms)
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
    says_more = parts.message and cause is not causes.NO_CREDENTIALS
    return cause.kind, f"{sentence}. The server says: {parts.message!r}" if says_more else sentence


def shorten(error: BaseException) -> None:
    """Leave the dump of the client's internals, and secrets, out of a traceback; a log has the dump."""
    _log.debug("the client of the object store says: %s", _masked(str(error)))
    error.args = (first_line(error),)


def is_missing_bucket(error: BaseException) -> bool:
    """Whether an object was not found because its bucket was not."""
    return _is_missing_bucket(ErrorParts.from_text(str(error)))


def _is_missing_bucket(parts: ErrorParts) -> bool:
    is_named = "specified bucket does not exist" in parts.message
    return causes.BY_CODE.get(parts.code) is causes.NO_BUCKET or (is_named and parts.status == "404")


def _cause(text: str, parts: ErrorParts, terms: MessageTerms) -> Cause | None:
    if _METADATA.search(parts.url):
        return causes.NO_CREDENTIALS
    if text.partition(_DEBUG)[0].find(_TOKEN) >= 0 and parts.status in ("400", "401", "403"):
        return causes.NOT_EXCHANGED
    if _is_missing_bucket(parts):
        return causes.NO_BUCKET
    if _REDIRECT in text or (parts.code == "AuthorizationHeaderMalformed" and "region" in parts.message):
        return causes.REGION
    cause = causes.BY_CODE.get(parts.code) or causes.BY_STATUS.get(parts.status)
    if cause in (causes.DENIED, causes.FORBIDDEN, causes.UNAUTHORIZED) and terms.is_anonymous:
        return causes.NEEDED
    if cause is None and parts.network:
        return next((row for words, row in causes.BY_NETWORK if words.search(parts.network)), None)
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

"""The cause and the remedy of a failed request to a web server."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from frazil.errors import ErrorKind
from frazil.storage.failures import ErrorParts, MessageTerms, reason_of_answer
from frazil.storage.option_names import shown_url

#: Errors of the network, and their words in the table for clients of object stores.
_NETWORK: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (ssl.SSLCertVerificationError, "InvalidCertificate"),
    (socket.gaierror, '"dns error"'),
    (ConnectionRefusedError, "ConnectionRefused"),
    (TimeoutError, "TimedOut"),
    (ConnectionError, "ConnectionReset"),
)


def reason_of_status(status: int, url: str) -> tuple[ErrorKind, str]:
    """Return the kind of error for an unexpected status, and a text with the cause and the remedy."""
    reason = reason_of_answer(ErrorParts(url, str(status)), _terms(url))
    return reason or (ErrorKind.OBJECT_STORE, f"the server answered with status {status}")


def reason_of(error: BaseException, url: str) -> tuple[ErrorKind, str]:
    """Return the kind of an error of the client, and a text with the cause and the remedy.

    The function also searches the causes of the error. Without a known cause, the text is the
    error's message.
    """
    cause: BaseException | None = error
    while cause is not None:
        words = next((words for of, words in _NETWORK if isinstance(cause, of)), "")
        if words and (reason := reason_of_answer(ErrorParts(url, network=words), _terms(url))):
            return reason
        cause = cause.__cause__ or cause.__context__
    return ErrorKind.OBJECT_STORE, str(error)


def _terms(url: str) -> MessageTerms:
    return MessageTerms(repr(shown_url(url)), "HTTP")

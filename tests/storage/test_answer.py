from __future__ import annotations

import pytest

from frazil.storage.web_client import Answer


@pytest.mark.parametrize("number", ["", "-1", "x", "²", "1" * 5000, "1_0", " 1"])
def test_numbers_that_no_server_should_send(number: str) -> None:
    answer = Answer(206, {"content-range": f"bytes {number}-/{number}", "content-length": number}, b"")
    assert (answer.start, answer.size, answer.length) == (0, 0, None)


def test_numbers() -> None:
    answer = Answer(206, {"content-range": "bytes 8-15/99", "content-length": "8"}, bytes(8))
    assert (answer.start, answer.size, answer.length) == (8, 99, 8)
    assert Answer(200, {"content-range": "bytes 8-15/99"}, bytes(8)).start == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Thu, 01 Jan 1970 00:00:08 GMT", 8),
        ("yesterday", 0),
        ("", 0),
        ("Fri, 31 Dec 99999999999 1:1:1 GMT", 0),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert Answer(200, {"last-modified": text}, b"").modified == seconds
    assert Answer(200, {}, b"").modified == 0

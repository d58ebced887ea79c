"""The bar on a terminal; its lines in a log are in the docstring."""

from __future__ import annotations

import io

import pytest

from frazil.spark import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_line_fits_and_is_drawn_over(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    clock = iter(range(0, 1000, 10))
    with Progress("writing", 4, out, clock=lambda: next(clock)) as bar:
        for _ in range(4):
            bar.advance(rows=1_000_000, chunks=1234, bytes=10**9)
    drawn = out.getvalue().removesuffix("\n").split("\r")[1:]
    assert len(drawn) == 5
    assert "\n" not in "".join(drawn)
    lines = [line.removesuffix("\x1b[K") for line in drawn]
    assert max(map(len, lines)) < columns
    if columns >= 80:
        assert "1/4 tasks  1,000,000 rows  1,234 chunks  1.0 GB  60 s left" in lines[1]
        assert [line.count("━") > 0 for line in lines] == [False, True, True, True, True]
        assert lines[-1].endswith("in 50.0 s")
        assert "─" not in lines[-1]

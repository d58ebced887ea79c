"""The bar on a terminal; its lines in a log are in the docstring."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

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


class Cell:
    """What IPython gives for an output that can be updated."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


def test_a_notebook_shows_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Cell()
    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=lambda data, *, raw, display_id: cell)
    fake = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    clock = iter(range(100))
    with Progress("a<b", 0, clock=lambda: next(clock) / 10) as bar:
        bar.expect(20)
        bar.expect(20)
        for _ in range(40):
            bar.advance(rows=2, chunks=1, bytes=1000)
    texts = [data["text/plain"] for data in cell.shown]
    assert texts[-1].startswith("a<b 100%  40/40 tasks  80 rows  40 chunks  40.0 kB  in ")
    assert 5 < len(texts) < 40  # not at every task
    assert 'value="1.0000"' in cell.shown[-1]["text/html"]
    assert "a&lt;b" in cell.shown[-1]["text/html"]
    assert capsys.readouterr().err == ""
    # and a terminal with IPython is a terminal
    shell.kernel = None
    with Progress("c", 1) as bar:
        bar.advance()
    assert capsys.readouterr().err.startswith("c 100%  1/1 tasks")

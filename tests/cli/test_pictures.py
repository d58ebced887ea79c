"""Pictures in the terminal and as PNG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import frazil
from frazil.cli.output import Output
from frazil.cli.pictures import lines_of_picture, png_of


def pixels(png: bytes) -> np.ndarray:
    """The pixels of a PNG file without filters, after a check of all its parts."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    parts, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        parts[kind] = data
        at += 12 + length
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, 1 + 4 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 4)


def test_a_png_has_a_pixel_for_each_value() -> None:
    values = np.array([[0.0, 1.0, 2.0], [np.nan, 1.0, np.inf]])
    image = pixels(png_of(values))
    assert image.shape == (2, 3, 4)
    assert image[..., 3].tolist() == [[255, 255, 255], [0, 255, 0]]
    brightness = image[0, :, :3].astype(int).sum(-1)
    assert (np.diff(brightness) > 0).all()
    assert image[0, 1].tolist() == image[1, 1].tolist()


def test_lines_without_colours() -> None:
    values = np.array([[0.0, np.nan], [1.0, 2.0]])
    assert list(lines_of_picture(Output(), values)) == [".", "+@", "0 to 2, 2 x 2 values"]


def test_lines_with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "has_colours", True)
    *lines, last = lines_of_picture(Output(), np.array([[0.0, 2.0], [2.0, 0.0], [1.0, np.nan]]))
    assert [line.count("▀") for line in lines] == [2, 1]
    assert lines[0].startswith("\x1b[38;2;13;8;60m\x1b[48;2;252;255;164m▀")
    assert last == "0 to 2, 3 x 2 values"


def test_a_large_matrix_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "20")
    lines = list(lines_of_picture(Output(), np.ones((500, 1000))))
    assert len(lines) <= 18
    assert max(map(len, lines[:-1])) <= 40


def test_cat_draws(own: Path, run: Callable[..., str]) -> None:
    repo = frazil.Repository.open(frazil.local_filesystem_storage("ice"))
    with repo.transaction("main", message="words") as store:
        zarr.create_array(store, name="words", shape=(2,), dtype="U4")
    lines = run("cat ice@v1:era5/t --plot").splitlines()
    assert lines == [".::", "-=+", "+*#", "%%@", "0 to 11, 4 x 3 values"]
    run("cat ice:era5/t --png t.png")
    assert pixels((own / "t.png").read_bytes()).shape == (4, 3, 4)
    assert "a picture needs numbers with one or two dimensions" in run("cat ice:words --plot", 2)

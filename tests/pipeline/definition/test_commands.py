"""The commands `frazil pipeline`: their output, and exit statuses that say what happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.definition.feed import DEFINITION, damaged, day, feed, is_up_to_date

from frazil.cli.main import main


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has a definition, and the files of two days."""
    for number in range(2):
        day(tmp_path, number)
    feed(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> int:
    verb, *others = arguments
    return main(["pipeline", verb, "feed.toml", *others])


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    command(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_exit_statuses(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("plan") == 0
    assert command("run") == 0
    assert command("run") == command("plan") == 5
    damaged(archive, 2)
    assert command("run") == 4
    assert command("run") == 5
    day(archive, 2, offset=200)
    assert command("run") == 6
    assert "validation-failed" in capsys.readouterr().err
    day(archive, 2)
    (archive / "feed.toml").write_text(DEFINITION.replace('"quarantine"', '"fail"'))
    (archive / "t2m_3.nc").write_bytes(b"nothing")
    assert command("run") == command("plan") == 7
    message = capsys.readouterr().err
    assert "--on-problem" not in message  # the option is in the file
    assert "on_problem='skip'" in message
    (archive / "t2m_3.nc").unlink()
    assert command("run") == 0
    is_up_to_date(archive, 0, 1, 2)
    (archive / "feed.toml").write_text("name = 3")
    assert command("run") == 1
    assert main(["pipeline", "run"]) == 2


def test_json(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = document(capsys, "plan")
    assert (len(plan["ingest"][0]["new"]), plan["seconds"]) == (2, None)
    assert [each["state"] for each in plan["derived"]] == ["behind", "behind"]
    run = document(capsys, "run")
    assert (run["outcome"], run["files"]) == ("published", 2)
    status = document(capsys, "status")
    assert status["snapshot_id"] == run["snapshot_id"] == status["runs"][0]["snapshot_id"]
    graph = document(capsys, "show")
    assert graph["steps"][0] == [["t2m_*.nc"], "ingest", "/weather"]


def test_texts(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("show")
    assert capsys.readouterr().out.startswith("t2m_*.nc -> ingest -> /weather\n")
    command("plan")
    assert "/weather: 2 new, 0 changed, 0 known" in capsys.readouterr().out
    command("run")
    assert "2 files ingested, 2 derived arrays computed, 1 rules hold" in capsys.readouterr().out
    command("status")
    assert "newest in /weather: 2026-01-02 18:00:00" in capsys.readouterr().out


def test_flowchart(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups that others read have no arrow to the publication, and labels have no characters of HTML."""
    rain = """
[[ingest]]
files = ["rain_<1>.nc", 'x";y.nc']
group = "/rain"

[[derived]]
operation = "coarsen"
sources = ["/rain/r", "/static/mask"]
factors = {time = 2}
to = "/half"
"""
    (archive / "feed.toml").write_text(DEFINITION + rain)
    command("show", "--mermaid")
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "flowchart LR"
    assert [line.strip() for line in lines] == [
        'n0[/"t2m_#42;.nc"/]',
        'n1["/weather"]',
        'n0 -- "ingest" --> n1',
        'n2[/"rain_#60;1#62;.nc<br>x#34;#59;y.nc"/]',
        'n3["/rain"]',
        'n2 -- "ingest" --> n3',
        'n4["/daily"]',
        'n1 -- "coarsen" --> n4',
        'n5["/climatology"]',
        'n4 -- "climatology" --> n5',
        'n6["/static/mask"]',
        'n7["/half"]',
        'n3 -- "coarsen" --> n7',
        'n6 -- "coarsen" --> n7',
        'n8{{"publish, 1 rules"}}',
        "n5 --> n8",
        "n7 --> n8",
        'n9(["branch main"])',
        "n8 --> n9",
    ]
    assert document(capsys, "show", "--mermaid") == document(capsys, "show")


def test_backfill(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command("run")
    assert command("backfill", "--from", "2026-01-02", "--to", "2026-01-02T06:00") == 0
    assert "1 file ingested" in capsys.readouterr().out
    assert command("backfill", "--from", "2027-01-02", "--to", "2027-01-03") == 5
    assert command("backfill", "--from", "soon", "--to", "2027-01-03") == 2
    assert command("backfill", "--from", "1", "--to", "2") == 1
    is_up_to_date(archive, 0, 1)

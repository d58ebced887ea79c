"""What all commands have in common: help, exit status, errors, and what a shell completes."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from tests.cli.examples import RUNS, examples_of

from frazil import Repository, local_filesystem_storage
from frazil.cli import history
from frazil.cli.command import VERBS
from frazil.cli.main import frazil, main

Captured = pytest.CaptureFixture[str]


def test_no_arguments_are_wrong_usage(capsys: Captured) -> None:
    assert main([]) == 2
    assert "Usage: frazil" in capsys.readouterr().err


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(frazil)
    for name in VERBS:
        command = frazil.get_command(context, name)
        assert command is not None
        yield name, command


def test_every_command_has_examples_and_the_common_options(capsys: Captured) -> None:
    for name, command in commands():
        assert main([name, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--json" in text
        assert "--debug" in text
        assert f"Examples:\n  frazil {name}" in text
        assert command.name == name
        assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", VERBS)
def test_examples_are_right(
    name: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Examples are parsed. Those of the repository `ice` also run, each on a new copy of it.

    The commits of a command have the author of the environment, and only such a command has the option.
    """
    monkeypatch.setenv("FRAZIL_AUTHOR", "Grace Hopper")
    before = versions(template / "ice")
    authors: set[object] = set()
    for number, arguments in enumerate(examples_of(name)):
        shutil.copytree(template / "ice", tmp_path / str(number) / "ice")
        monkeypatch.chdir(tmp_path / str(number))
        Path("rules.yaml").write_text("- {rule: Exists, path: /era5/t}")
        if name in RUNS and not any("://" in each for each in arguments):
            expected = 1 if "--exit-code" in arguments else 0
            assert main(arguments) == expected, (arguments, capsys.readouterr())
            after = versions(Path("ice"))
            authors |= {after[id_].get("author") for id_ in after.keys() - before.keys()}
        else:
            command = frazil.get_command(click.Context(frazil), name)
            assert command is not None
            command.make_context(name, arguments[len(name.split()) :])
    has_option = any(each.name == "author" for each in dict(commands())[name].params)
    assert authors <= ({"Grace Hopper"} if has_option else set())
    assert bool(authors) == (has_option and name in RUNS and name != "compact")  # has nothing to do here


def versions(folder: Path) -> dict[str, dict[str, object]]:
    """The metadata of all versions of the branches."""
    repo = Repository.open(local_filesystem_storage(str(folder)))
    return {
        each.id: dict(each.metadata)
        for branch in repo.list_branches()
        for each in repo.ancestry(branch=branch)
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lgo ice", "no command `lgo`. Did you mean `log`?"),
        ("gc ice", "no command `gc`. Did you mean `collect`?"),
        ("jobs ice", "Did you mean `job status`?"),
        ("cat ice:era5/t time=0:2", "Write a range of labels as time=FIRST..LAST"),
        ("log ice --nmber 3", "No such option"),
        ("log ice -n 0", "-n"),
        ("log ice@", "a version must follow `@`"),
        ("refs ice@v1", "a whole repository"),
        ("log ice --since 7y", "7d"),
        ("tag ice", "Usage: frazil tag [OPTIONS]"),
        ("rm ice:/", "LOCATION[@BRANCH]:PATH"),
        ("attrs ice:era5 --unset nothing", "has no attribute nothing"),
        ("attrs ice:era5 nothing", "KEY=VALUE"),
        ("verify", "LOCATION is missing"),
        ("verify ice --level all", "--level"),
        ("repair ice --lost guess", "--lost"),
        ("ingest ice 'files/*.nc'", "the last argument must be the repository"),
    ],
)
def test_wrong_usage_has_status_2(line: str, message: str, beside: object, capsys: Captured) -> None:
    assert main(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_an_error_is_one_line(beside: object, capsys: Captured) -> None:
    assert main(["log", "ice@nope"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("got `nope` [ref-not-found]\n")
    assert main(["log", "ice@nope", "--json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["kind"], "`nope`" in error["message"]) == ("ref-not-found", True)


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (BrokenPipeError(), 141)])
def test_interruptions(
    error: BaseException, status: int, beside: object, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    def fail(_target: object) -> None:
        raise error

    monkeypatch.setattr(history, "OpenTarget", fail)
    with os.fdopen(os.dup(1), "w") as output:  # the process puts another file below standard output
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["refs", "ice"]) == status
    assert "Traceback" not in capfd.readouterr().err


def test_output_of_any_encoding_and_without_a_reader(beside: object, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, "ascii"))
    assert main(["tree", "ice"]) == 0
    assert "├──" in buffer.getvalue().decode()
    for closed in ("stdout", "stderr"):
        monkeypatch.setattr(sys, closed, None)
    assert main(["tree", "ice"]) == 0
    assert main(["log", "ice@nope"]) == 1


@pytest.mark.parametrize(
    ("command", "status", "kind", "part"),
    [
        ("expire ice --newer-than never --json", 2, "usage", "a time must be a day"),  # before --json
        ("clone nowhere copy --json", 1, "repository-not-found", "frazil init nowhere"),  # not copy
    ],
)
def test_an_error_names_what_was_wrong_in_json(
    command: str, status: int, kind: str, part: str, capsys: Captured
) -> None:
    assert main(command.split()) == status
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["kind"] == kind
    assert part in error["message"]


def completed(*words: str) -> list[str]:
    """What the shell offers for the last word."""
    items = ShellComplete(frazil, {}, "frazil", "_FRAZIL_COMPLETE").get_completions(
        list(words[:-1]), words[-1]
    )
    return [item.value if item.type == "plain" else f"{item.type}:{item.value}" for item in items]


def test_commands_and_options(beside: Path) -> None:
    assert completed("che") == ["cherry-pick"]
    assert "--graph" in completed("log", "--g")


def test_versions_and_paths(beside: Path) -> None:
    assert completed("log", "ic") == ["file:ic"]
    assert completed("log", "ice@") == ["ice@dev", "ice@main", "ice@v1", "ice@v2"]
    assert completed("log", "ice@v") == ["ice@v1", "ice@v2"]
    assert completed("cat", "ice:er") == ["ice:/era5"]
    assert completed("cat", "ice@dev:era5/") == ["ice@dev:/era5/p", "ice@dev:/era5/t", "ice@dev:/era5/time"]
    assert completed("merge", "ice", "d") == ["dev"]
    assert completed("branch", "ice", "--delete", "m") == ["main"]
    assert completed("diff", "ice@v1", "v") == ["v1", "v2"]


def test_nothing_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("absent@", "absent:", "@@@", "absent@x:y"):
        assert completed("log", word) == []
    assert completed("merge", "absent", "m") == []


def test_a_target_is_one_word_in_bash(run: Callable[..., str]) -> None:
    program = run("completion bash")
    assert "COMP_WORDBREAKS" not in run("completion zsh")
    script = f"COMP_WORDBREAKS=' @:='; {program}\nprintf %s \"$COMP_WORDBREAKS\""
    answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == " ="

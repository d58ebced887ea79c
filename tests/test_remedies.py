"""Remedies: each is a call of Python for a program, and a command for the command line."""

from __future__ import annotations

import copy
import pickle
import shlex
from datetime import UTC, datetime
from functools import reduce

import click
import pytest

import frazil
from frazil.cli.main import frazil as group
from frazil.jobs.task_failures import failure_of, task_error
from frazil.remedies import OPERATIONS, Remedy, argument, call


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_has_both_spellings(name: str) -> None:
    operation = OPERATIONS[name]
    names = operation.python.partition("(")[0].removeprefix("frazil.").split(".")
    start: object = frazil
    if names[0] == "Repository":  # `repo.upkeep` is a property
        start, names = frazil.Repository.create(frazil.in_memory_storage()), names[1:]
    assert callable(reduce(getattr, names, start))
    required = {"delete_object_older_than": datetime(2026, 11, 1, tzinfo=UTC)}
    arguments = required if name == "garbage_collect" else {}
    _, verb, *words = shlex.split(call(name, **arguments).command("ice"))
    with click.Context(group) as outer:
        command = group.get_command(outer, verb)
        assert command is not None
        assert command.make_context(verb, words, parent=outer).params


def test_arguments_are_options() -> None:
    when = datetime(2026, 11, 1, tzinfo=UTC)
    collect = call("garbage_collect", delete_object_older_than=when)
    assert "older_than=datetime.fromisoformat('2026-11-01T00:00:00+00:00')" in str(collect)
    assert collect.command("a b") == "frazil collect 'a b' --older-than 2026-11-01T00:00:00+00:00"
    assert call("protect_branch", pattern="rel-*").command("ice") == "frazil protect ice 'rel-*'"
    both = argument(concat_dim="my time", virtual=True)
    assert (str(both), both.command()) == (
        "concat_dim='my time', virtual=True",
        "--concat-dim 'my time' --virtual",
    )
    assert argument(reader_options=...).command() == "--reader-option ..."


@pytest.mark.parametrize(
    "error",
    [
        frazil.StorageError("broken", "io"),
        frazil.ConflictError("A", "B"),
        frazil.RebaseFailedError("A", [], "Ask Ann"),
        frazil.ValidationFailedError("wrong", {"rule": 1}),
        frazil.MissingExtraError("no dask", "dask"),
        frazil.OutcomeUnknownError("lost", "A"),
    ],
)
def test_a_remedy_travels_with_its_error(error: frazil.IcechunkError) -> None:
    raised = error.with_remedy("Look at `{}` of {{}}", call("ops_log"))
    for each in (raised, copy.copy(raised), pickle.loads(pickle.dumps(raised))):
        assert type(each) is type(error)
        assert str(each).endswith("Look at `Repository.ops_log` of {}")
        assert each.for_shell("ice").endswith("Look at `frazil ops ice` of {}")
        assert each.kind == error.kind


def test_the_error_of_a_task_has_the_remedy_of_its_cause() -> None:
    cause = frazil.StorageError("full").with_remedy("See `{}`", call("ops_log"))
    for failure in (failure_of(cause), pickle.loads(pickle.dumps(failure_of(cause)))):
        error = task_error(failure, 0, 2)
        assert "Repository.ops_log" in str(error)
        assert "Repository" not in error.for_shell("ice")
        assert "frazil ops ice" in error.for_shell("ice")


def test_a_remedy_without_a_command() -> None:
    error = frazil.StorageError("gone").with_remedy("Use Repository.x", shell="")
    assert error.for_shell() == "gone"
    assert Remedy("a {", shell="b").for_shell() == "b"

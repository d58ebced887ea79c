"""Declarations of derived arrays: operations by the names of their functions, before they are computed.

The function of an operation makes the `ArrayOperation` of its arguments. For a declaration it stops there. So
a declaration has the checks and the defaults of the function, and is compared with the definitions that
results have.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from frazil.arguments import checked, named_function
from frazil.display import suggest
from frazil.errors import ErrorKind, IcechunkError, InvalidInputError
from frazil.handle.repository import Repository
from frazil.jobs.job import BoundedRunOptions, RunOptions, Target, Version
from frazil.pipeline.derivation.definition import fields_from_json, fields_to_json
from frazil.pipeline.derivation.digest_table import ChunkHashes
from frazil.pipeline.derivation.operation import (
    ArrayOperation,
    BlockRun,
    DeclaredOperation,
    DeclaredTarget,
    SourceView,
)
from frazil.pipeline.derivation.refresh import OPERATION_MODULES, DerivedArray, DerivedState, definitions
from frazil.pipeline.transform.arrays import arrays_below
from frazil.repository.paths import absolute
from frazil.repository.session.session import Session
from frazil.storage.memory import in_memory_storage

#: The arguments of functions that a declaration has under other names, or not at all.
_OTHERS: Final = {"source", "paths", "to", "limits", *RunOptions.__annotations__}


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that compute derived arrays, by their public names."""
    functions_of = {}
    for module in OPERATION_MODULES:
        for name, each in vars(module).items():
            is_own = inspect.isfunction(each) and each.__module__ == module.__name__
            if is_own and {"source", "paths", "to"} <= inspect.signature(each).parameters.keys():
                functions_of[name] = each
    return functions_of


@functools.cache
def _nowhere() -> Version:
    return Version.of(Repository.create(in_memory_storage()))


@dataclass(frozen=True, slots=True)
class Declaration:
    """An operation with its arguments, the options of its runs, and the group of its results."""

    operation: ArrayOperation
    options: BoundedRunOptions
    group: str

    @staticmethod
    def of(name: str, sources: Sequence[str], group: str, parameters: Mapping[str, Any]) -> Declaration:
        """Return the declaration of a call. Parameters are arguments, or their JSON as in a definition.

        Raises ``InvalidInputError`` or ``TypeError`` for an unknown name, and for what the function refuses.
        """
        function = functions().get(name)
        if function is None:
            raise InvalidInputError(
                f"`operation` must be one of {', '.join(sorted(functions()))}, got {name!r}"
                f"{suggest(name, functions())}",
                ErrorKind.UNKNOWN_CHOICE,
            )
        accepted = inspect.signature(function).parameters
        names = sorted(accepted.keys() - _OTHERS)
        if unknown := sorted(parameters.keys() - set(names)):
            raise InvalidInputError(
                f"`{unknown[0]}` must be an argument of `{name}`: {', '.join(names)}"
                f"{suggest(unknown[0], names)}",
                ErrorKind.UNKNOWN_CHOICE,
            )
        here = _nowhere()
        arguments = fields_from_json(
            {
                key: named_function(each)
                if isinstance(each, str) and ":" in each and "Callable" in str(accepted[key].annotation)
                else each
                for key, each in parameters.items()
            }
        )
        others = {key: here for key in names if "Source" in str(accepted[key].annotation)}
        to = DeclaredTarget(here.repo, "main", group)
        try:
            checked(function)(**{"source": here, "paths": tuple(sources), "to": to, **others, **arguments})
        except DeclaredOperation as declared:
            return Declaration(declared.operation, declared.options, to.path(""))
        raise AssertionError(f"{name} has no operation")

    def state(self, session: Session) -> tuple[DerivedState | None, tuple[str, ...]]:
        """Return whether the results in a session have this definition, and the paths of others.

        None: the group has no results of a definition. ``BEHIND``: it has results of another one.
        """
        stored = [(each, paths) for each, paths in definitions(session) if each.target == self.group]
        if not stored:
            return None, ()
        expected = self._arguments(fields_to_json(self.operation))
        paths = {each.path for each in arrays_below(session, self.operation.paths)}
        for definition, _ in stored:
            sources = {absolute(each) for each in definition.arguments.get("paths", ())}
            is_same = self._arguments(definition.arguments) == expected and sources == paths
            if definition.operation == self.operation.name and is_same and len(stored) == 1:
                return DerivedState.CURRENT, ()
        return DerivedState.BEHIND, tuple(path for _, results in stored for path in results)

    @staticmethod
    def _arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if name != "paths"}

    def preview(
        self, session: Session, hashes: ChunkHashes, target: Target, reason: str
    ) -> list[DerivedArray]:
        """Return the results that a first run would compute. It creates them in a session for plans."""
        target = replace(target, group=self.group)
        view = SourceView(Version(target.repo, session.snapshot_id, target.branch), session)
        name = self.operation.job_name
        try:
            plan = self.operation.plan(view, target, self.options)
            run = BlockRun(self.operation, plan, view, target, self.options.get("engine"))
            run.is_dry, run.hashes = True, {id(session): hashes}
            run.prepare(session)
        except IcechunkError as error:
            broken = DerivedState.BROKEN
            return [DerivedArray(self.group, name, self.operation.paths, "", broken, reason=str(error))]
        for number in range(1, run.rounds + 1):
            run.prepare_round(number, session, [])
        sources, results = tuple(each.path for each in plan.inputs), run.results()
        size = sum(math.prod(each.shape) * each.itemsize for each in plan.inputs) // max(len(results), 1)
        behind = (sources, "", DerivedState.BEHIND)
        return [
            DerivedArray(each.path, name, *behind, each.chunks, each.of_chunks, size, reason)
            for each in results
        ]

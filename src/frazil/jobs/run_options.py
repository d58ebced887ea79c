"""The run options, which all operations have in common, and how operations accept them.

A `TypedDict` is the one declaration of the names, types and descriptions of options. An operation declares
``**options: Unpack[RunOptions]`` (`BoundedRunOptions` adds ``max_mem``), and passes them on as they are. The
decorator `with_options` adds them to the signature and their descriptions to the docstring, and refuses
unknown options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any, TypedDict

from frazil.argument_docs import Decorator, complete_doc
from frazil.arguments import require_progress
from frazil.display import suggest
from frazil.jobs.engine import Engine, EngineName
from frazil.jobs.memory import MaxMem
from frazil.jobs.progress import Progress


class RunOptions(TypedDict, total=False):
    """The options of every operation. All of them are optional.

    Attributes:
        engine: Where tasks run: an `Engine`, or ``"inline"``, ``"local"`` or ``"spark"``. The default, None,
            is Spark where Spark is in use, else processes of this machine (`default_engine`).
        job_id: The id of the job. A call with the id of an earlier job continues that job if it was
            interrupted, and returns its result if it was committed. The default, None, is a hash of the
            operation, its arguments, its inputs and its target.
        message: The message of the commit. The default, None, is a message that names the operation.
        progress: A `Progress`, which shows how many tasks are done. The default, None, shows nothing.
    """

    engine: Engine | EngineName | None
    job_id: str | None
    message: str | None
    progress: Progress | None


class BoundedRunOptions(RunOptions, total=False):
    """The run options of operations whose tasks hold blocks of arrays in memory.

    Attributes:
        max_mem: The most memory for the values that one task holds, in bytes: a number, or a text such as
            ``"1GB"``. The default, None, is 256 MB, or more where one chunk needs more.
    """

    max_mem: MaxMem


@dataclass(frozen=True, slots=True)
class Run:
    """The options of one run with their defaults; see `RunOptions` and `BoundedRunOptions`."""

    engine: Engine | EngineName | None = None
    job_id: str | None = None
    message: str | None = None
    progress: Progress | None = None
    max_mem: MaxMem = None


def with_options(options: type, defaults: type | Mapping[str, Any] = MappingProxyType({})) -> Decorator:
    """Return a decorator that lists the options of ``**options: Unpack[options]`` in the signature.

    ``defaults`` are the defaults that are not None, or a dataclass with a field for each option.

    In the docstring, the descriptions of the options replace the entry ``**options:``.
    The decorated function raises ``TypeError`` for an option that ``options`` does not have.

    >>> @with_options(RunOptions)
    ... def copy(source, **options): ...
    >>> print(inspect.signature(copy))  # doctest: +NORMALIZE_WHITESPACE
    (source, *, engine: 'Engine | EngineName | None' = None, job_id: 'str | None' = None,
     message: 'str | None' = None, progress: 'Progress | None' = None)
    >>> copy("a", enigne="local")
    Traceback (most recent call last):
    TypeError: copy() got an unexpected keyword argument 'enigne'. Did you mean `engine`?
    """
    if isinstance(defaults, type):
        values = {each.name: ... if each.default is MISSING else each.default for each in fields(defaults)}
    else:
        values = dict(defaults)
    names: Mapping[str, Any] = _annotations(options)

    def decorate[**P, R](function: Callable[P, R], /) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=values.get(name), annotation=annotation
            )
            for name, annotation in names.items()
        ]

        @functools.wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> R:
            accepted = {each.name for each in own} | names.keys()
            for name in given.keys() - accepted:
                raise TypeError(
                    f"{function.__name__}() got an unexpected keyword argument {name!r}"
                    f"{suggest(name, sorted(accepted))}"
                )
            require_progress(given.get("progress"), "expect", "advance")
            return function(*args, **given)

        listed = signature.replace(parameters=[*own, *shown])
        call.__signature__ = listed  # type: ignore[attr-defined]
        call.__doc__ = complete_doc(function.__doc__, listed.parameters, [options])
        return call

    return decorate


def _annotations(options: type) -> dict[str, Any]:
    """Return the annotations by name, as text if the module defers annotations."""
    return {
        name: getattr(annotation, "__forward_arg__", annotation)
        for name, annotation in options.__annotations__.items()
    }

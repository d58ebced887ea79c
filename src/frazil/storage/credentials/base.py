"""The base of credentials of all clouds: values without visible secrets, and the choice of one way."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from frazil.arguments import check_fields
from frazil.display import PACKAGE, Numbered, Record, Shown, literal
from frazil.errors import ErrorKind, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class Credential(Numbered, Record):
    """A frozen value that prints its secret fields as stars."""

    __slots__ = ()
    _secret: ClassVar[frozenset[str]] = frozenset()

    def _title(self) -> str:
        return f"{PACKAGE}.credentials.{type(self).__qualname__}"

    def __post_init__(self) -> None:
        check_fields(self)
        expires = getattr(self, "expires_after", None)
        if expires is not None and expires.tzinfo is None:
            raise TypeError(
                f"expires_after must be a datetime with a time zone, got {expires.isoformat()} without one"
            )

    def _rows(self) -> Iterable[tuple[str, Shown]]:
        for f in fields(self):  # type: ignore[arg-type]  # every subclass is a dataclass
            yield f.name, self._masked(f.name, getattr(self, f.name))

    def _masked(self, name: str, value: Any) -> str | Record:
        if isinstance(value, Record):
            return value
        if value is not None and name in self._secret:
            return "****"
        return literal(value)


def call_refresh(pickled_function: bytes, expected: type) -> Any:
    """Call a pickled function and return the credentials that it returns.

    Raises:
        InvalidInputError: ``invalid-credentials`` if the result is not an instance of ``expected``.
    """
    answer = pickle.loads(pickled_function)()
    if not isinstance(answer, expected):
        raise InvalidInputError(
            f"the function that refreshes credentials must return {expected.__name__}, "
            f"got {type(answer).__name__}",
            ErrorKind.INVALID_CREDENTIALS,
        )
    return answer


def pickle_function(function: Callable[[], Any]) -> bytes:
    """Return the pickle of a function that gets credentials.

    Raises:
        InvalidInputError: ``invalid-credentials`` if it cannot be pickled.
    """
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            "get_credentials must be a picklable function, because it is sent to other processes, got "
            f"{function!r} ({error}). Define the function at the top level of a module",
            ErrorKind.INVALID_CREDENTIALS,
        ) from error


def choose_way(function: str, **ways: bool) -> str | None:
    """Return the name of the only way that the user passed, or None.

    Raises:
        InvalidInputError: ``invalid-credentials`` for more than one way.
    """
    chosen = [name for name, is_given in ways.items() if is_given]
    if len(chosen) > 1:
        raise InvalidInputError(
            f"{function}: the arguments must contain only one of {', '.join(ways)}, got "
            f"{' and '.join(chosen)}. Pass only one",
            ErrorKind.INVALID_CREDENTIALS,
        )
    return chosen[0] if chosen else None


def incomplete(function: str, expected: str) -> InvalidInputError:
    """Return the error for arguments of ``function`` that are not a complete credential."""
    return InvalidInputError(
        f"{function}: the arguments must contain {expected}", ErrorKind.INVALID_CREDENTIALS
    )


def build_static_variant[T](function: str, ways: Mapping[str, tuple[str | None, Callable[[str], T]]]) -> T:
    """Return the variant for the only argument that the user passed."""
    way = choose_way(function, **{name: value is not None for name, (value, _) in ways.items()})
    value, build = ways[way] if way is not None else (None, None)
    if value is None or build is None:
        raise incomplete(function, f"one of {', '.join(ways)}, got none")
    return build(value)


@dataclass(frozen=True, slots=True)
class CredentialFactory:
    """Creates a variant of one cloud's family. ``function`` is the public function, for messages."""

    function: str
    family: Any

    def build(
        self,
        static: Mapping[str, bool],
        build_static: Callable[[], Any],
        anonymous: bool | None,
        from_env: bool | None,
        get_credentials: Callable[[], Any] | None,
        scatter_initial_credentials: bool,
    ) -> Any:
        """Return the variant for the only way that the user passed. The default is the environment.

        ``static`` says for each static way whether the user passed it. ``build_static`` creates its value.
        """
        way = choose_way(
            self.function,
            **static,
            anonymous=bool(anonymous),
            from_env=bool(from_env),
            get_credentials=get_credentials is not None,
        )
        if way in static:
            return self.family.Static(build_static())
        if way == "anonymous":
            return self.family.Anonymous()
        if get_credentials is not None:
            return self.build_refreshable(get_credentials, scatter_initial_credentials)
        return self.family.FromEnv()

    def build_refreshable(self, get_credentials: Callable[[], Any], scatter_initial_credentials: bool) -> Any:
        """Return credentials from a function.

        Args:
            get_credentials: Picklable function without arguments that returns credentials.
            scatter_initial_credentials: True calls ``get_credentials`` once now and stores the result in
                every pickle, so that many workers do not call it at the same time. Default: False.

        Returns:
            The credentials, which contain the function as a pickle.
        """
        current = get_credentials() if scatter_initial_credentials else None
        return self.family.Refreshable(pickle_function(get_credentials), current)

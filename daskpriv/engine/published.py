"""Values that many units of work need: known everywhere by their digest, brought to each process at most once."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from daskpriv.engine.cache import BLOCKS

T = TypeVar("T")
Fetch = Callable[[str], bytes]
_ABSENT: Any = object()
_FETCH: dict[str, Fetch] = {}


class Published(Generic[T]):
    """A value by its digest.

    Where it was published it holds the value. A copy that arrives in another process holds the digest alone, and asks
    the `home` it came from when the value is first needed.
    """

    __slots__ = ("_value", "digest", "home")

    def __init__(self, digest: str, home: str, value: T = _ABSENT) -> None:
        self.digest, self.home = digest, home
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return Published, (self.digest, self.home)

    def __repr__(self) -> str:
        return f"Published({self.digest[:8]})"

    def get(self) -> T:
        """The value."""
        if self._value is _ABSENT:
            return BLOCKS.get(("published", self.digest), self._fetched)
        return self._value

    def _fetched(self) -> T:
        return cast(T, pickle.loads(_FETCH[self.home](self.digest)))  # noqa: S301  (from the run's own client)


def fetch_from(home: str, fetch: Fetch) -> None:
    """Where copies from this home find their values."""
    _FETCH[home] = fetch


def no_longer_from(home: str) -> None:
    """The home is closed."""
    _FETCH.pop(home, None)


def digest_of(data: bytes) -> str:
    """A name for these bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def value_of(thing: Any) -> Any:
    """The value of something published, anything else as it is."""
    return thing.get() if isinstance(thing, Published) else thing

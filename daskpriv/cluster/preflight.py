"""Checks before a run: daskpriv is everywhere, in one version."""

from __future__ import annotations

from typing import Any

from daskpriv.errors import InputError
from daskpriv.version import __version__


def _probe() -> dict[str, Any]:
    """Versions in another process. Travels by value: the process may lack daskpriv."""
    import importlib.util
    import platform
    from importlib import metadata

    found: dict[str, Any] = {"python": platform.python_version()}
    for name in ("dask", "distributed", "numpy", "numba", "pyarrow", "pandas", "cloudpickle", "msgpack"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    found["daskpriv"] = None
    if importlib.util.find_spec("daskpriv") is not None:
        from daskpriv.version import __version__ as here

        found["daskpriv"] = here
    return found


# cloudpickle sends a function of the main module by value.
_probe.__module__ = "__main__"
_probe.__qualname__ = "_probe"
probe = _probe


def check_scheduler(found: dict[str, Any]) -> None:
    """Refuse a scheduler that cannot load our units, before anything is sent."""
    if found["daskpriv"] is None:
        raise InputError(
            "the scheduler lacks daskpriv (Dask loads every task there); install the same version on it, or use --ship."
        )
    if found["daskpriv"] != __version__:
        raise InputError(
            f"the scheduler runs daskpriv {found['daskpriv']}, the client {__version__}; install one version "
            "everywhere."
        )

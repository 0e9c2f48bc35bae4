"""What can go wrong, told in one sentence to the person who can mend it.

    DaskprivError
    |-- InputError      a table, file, schema or option is unusable      exit code 2
    |   `-- PlanError   the work does not fit the memory it was given    exit code 2
    `-- RunError        the run itself failed                            exit code 3

Messages name the table, the column and the remedy. They never quote a cell.
"""

from __future__ import annotations

_LONGEST = 1000


class DaskprivError(Exception):
    """Base of every error that daskpriv raises on purpose; a message made endless by a name loses its middle."""

    def __init__(self, message: str = "") -> None:
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]} ... {message[-_LONGEST // 3 :]}"
        super().__init__(message)


class InputError(DaskprivError):
    """A table, a file, a schema or an option cannot be used as given."""


class PlanError(InputError):
    """The work asked for does not fit the memory it was given."""


class RunError(DaskprivError):
    """The run failed although its input was accepted."""

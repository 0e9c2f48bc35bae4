"""Bringing this package to a cluster that lacks it: one zip file, to the scheduler and every worker, late ones too."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from distributed import Client

from daskpriv.errors import RunError


def ship(client: Client) -> None:
    """Upload daskpriv; what it needs (numba, pyarrow, ...) has to be there."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="daskpriv-ship-") as folder:
        path = Path(folder) / "daskpriv.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(root.rglob("*")):
                inside = file.relative_to(root)
                if file.is_file() and "__pycache__" not in inside.parts and inside.parts[0] != "data":
                    archive.write(file, Path("daskpriv") / inside)
        try:
            client.upload_file(str(path))
        except Exception as error:
            raise RunError(
                f"daskpriv cannot be shipped to the cluster ({type(error).__name__}); install it there."
            ) from None

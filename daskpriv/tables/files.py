"""From what a user typed (path, directory, glob, URL, list) to the data files behind it, through fsspec."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

import fsspec
from fsspec.core import url_to_fs

from daskpriv.errors import InputError

_PARQUET = (".parquet", ".parq", ".pq")
_CSV = (".csv", ".csv.gz")
_SECRET = re.compile(r"(password|passwd|secret|token|signature|sig|key)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class File:
    """One data file: a URL any worker can open, its size, and its `key=value` directories."""

    url: str
    size: int
    partition: tuple[tuple[str, str], ...] = ()

    @property
    def is_csv(self) -> bool:
        """True for CSV, by its name."""
        return self.url.lower().endswith(_CSV)

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return repr(self.url.rsplit("/", 1)[-1])


def find_files(what: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], name: str) -> list[File]:
    """All data files behind a path, directory, glob, URL or a list of them; in name order within each.

    Hidden files, `_SUCCESS` and the like are passed over. Raises `InputError` when nothing is there.
    """
    if isinstance(what, (str, os.PathLike)):
        return _find(os.fspath(what), name)
    files = [f for item in what for f in _find(os.fspath(item), name)]
    if not files:
        raise InputError(f"{name}: the list of files is empty; give at least one path.")
    return files


def _find(url: str, name: str) -> list[File]:
    if not url.strip():
        raise InputError(f"{name}: the path is empty; give a file, a directory, a glob or a URL.")
    _refuse_secrets(url, name)
    try:
        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        hint = f" ({error})" if isinstance(error, ImportError) else ""
        raise InputError(
            f"{name}: no file system for {url!r}{hint}; install the matching extra, such as daskpriv[s3]."
        ) from None
    if "\x00" in url:
        raise InputError(f"{name}: the path holds a NUL character; check it.")
    try:
        return _list(fs, path, url, name)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{name}: {url!r} does not exist; check the path.") from None
    except PermissionError:
        raise InputError(
            f"{name}: no permission to read {url!r}; check its access rights or your credentials."
        ) from None
    except Exception as error:
        raise InputError(
            f"{name}: {url!r} cannot be listed ({type(error).__name__}); check the URL, the credentials "
            "and the endpoint."
        ) from None


def _list(fs: fsspec.AbstractFileSystem, path: str, url: str, name: str) -> list[File]:
    if any(c in path for c in "*?[") and not fs.exists(path):
        found = sorted(p for p in fs.glob(path) if _is_data(p, path.split("*", maxsplit=1)[0]))
        found = [p for p in found if not fs.isdir(p)]
        if not found:
            raise InputError(f"{name}: no file matches {url!r}; check the pattern.")
        root = os.path.dirname(path.split("*", maxsplit=1)[0].split("?", maxsplit=1)[0].split("[", maxsplit=1)[0])
    elif fs.isdir(path):
        found = sorted(p for p in fs.find(path) if _is_data(p, path) and p.lower().endswith(_PARQUET + _CSV))
        if not found:
            raise InputError(f"{name}: directory {url!r} holds no Parquet or CSV file; point at the files themselves.")
        root = path
    else:
        if not fs.exists(path):
            raise InputError(f"{name}: {url!r} does not exist; check the path.")
        found, root = [path], os.path.dirname(path)
    files = [
        File(fs.unstrip_protocol(p) if not _is_local(fs) else p, int(fs.size(p) or 0), _partition(p, root))
        for p in found
    ]
    if len({f.is_csv for f in files}) > 1:
        raise InputError(f"{name}: {url!r} mixes CSV and Parquet files; keep one format.")
    return files


def _is_local(fs: fsspec.AbstractFileSystem) -> bool:
    return "file" in (fs.protocol if isinstance(fs.protocol, (tuple, list)) else (fs.protocol,))


def _is_data(path: str, root: str) -> bool:
    tail = path[len(root) :] if path.startswith(root) else os.path.basename(path)
    return not any(p.startswith((".", "_")) for p in tail.split("/") if p and "=" not in p)


def _partition(path: str, root: str) -> tuple[tuple[str, str], ...]:
    folders = path[len(root) :].split("/")[:-1] if path.startswith(root) else []
    return tuple((k, v) for k, sep, v in (f.partition("=") for f in folders) if sep and k)


def _refuse_secrets(url: str, name: str) -> None:
    if "://" not in url:
        return
    try:
        parts = urlsplit(url)
        secret = parts.password is not None or bool(_SECRET.search(parts.query))
    except ValueError:
        raise InputError(f"{name}: the URL is malformed; check it.") from None
    if secret:
        raise InputError(
            f"{name}: the URL carries a credential; remove it and use the environment or a credentials file instead."
        )

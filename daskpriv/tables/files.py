"""From what a user typed (path, directory, glob, URL, list) to the data files behind it, through fsspec."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec
from fsspec.core import url_to_fs

from daskpriv.errors import InputError

_PARQUET = (".parquet", ".parq", ".pq")
_CSV = (".csv", ".csv.gz")
_SECRET = re.compile(r"(password|passwd|secret|token|signature|sig|key)=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class File:
    """One data file: a URL any worker can open, its size and version stamp, and its `key=value` directories."""

    url: str
    size: int
    stamp: str = ""
    partition: tuple[tuple[str, str | None], ...] = ()

    @property
    def is_csv(self) -> bool:
        """True for CSV, by its name."""
        return self.url.lower().endswith(_CSV)

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return repr(self.url.rsplit("/", 1)[-1])


@contextmanager
def opened(file: File, name: str, compression: str | None = None) -> Iterator[Any]:
    """Open a file for reading; refuse it when it is no longer the file that was listed."""
    fs, path = url_to_fs(file.url)
    info = fs.info(path)
    if (int(info.get("size") or 0), _stamp(info)) != (file.size, file.stamp):
        raise InputError(f"{name}: file {file.label} changed while it was read; run again on files that stay still.")
    with fsspec.open(file.url, "rb", compression=compression) as handle:
        yield handle


def _stamp(info: Mapping[str, Any]) -> str:
    """What tells two versions of a file apart, where the file system says."""
    keys = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated")
    return next((str(info[k]) for k in keys if info.get(k)), "")


def shown(url: str) -> str:
    """A URL for people: without credentials and without the query string."""
    if "://" not in url:
        return url
    scheme, rest = url.rsplit("://", 1)
    rest = rest.split("?", 1)[0]
    host, slash, path = rest.partition("/")
    keeps = scheme.endswith(("abfs", "abfss", "az", "adl"))
    return f"{scheme.rsplit('::', 1)[-1]}://{host if keeps else host.rpartition('@')[2]}{slash}{path}"


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
        hint = " (a package is missing)" if isinstance(error, ImportError) else ""
        raise InputError(
            f"{name}: no file system for {shown(url)!r}{hint}; install what it needs, such as daskpriv[s3], "
            "daskpriv[gcs] or daskpriv[azure]."
        ) from None
    if "\x00" in url:
        raise InputError(f"{name}: the path holds a NUL character; check it.")
    try:
        return _list(fs, path, url, name)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{name}: {shown(url)!r} does not exist; check the path.") from None
    except PermissionError:
        raise InputError(
            f"{name}: no permission to read {shown(url)!r}; check its access rights or your credentials."
        ) from None
    except Exception as error:
        raise InputError(
            f"{name}: {shown(url)!r} cannot be listed ({type(error).__name__}); check the URL, the credentials "
            "and the endpoint."
        ) from None


def _list(fs: fsspec.AbstractFileSystem, path: str, url: str, name: str) -> list[File]:
    if any(c in path for c in "*?[") and not fs.exists(path):
        found = sorted(p for p in fs.glob(path) if _is_data(p, path.split("*", maxsplit=1)[0]))
        found = [p for p in found if not fs.isdir(p)]
        if not found:
            raise InputError(f"{name}: no file matches {shown(url)!r}; check the pattern.")
        root = os.path.dirname(path.split("*", maxsplit=1)[0].split("?", maxsplit=1)[0].split("[", maxsplit=1)[0])
    elif fs.isdir(path):
        found = sorted(p for p in fs.find(path) if _is_data(p, path) and p.lower().endswith(_PARQUET + _CSV))
        if not found:
            raise InputError(
                f"{name}: directory {shown(url)!r} holds no Parquet or CSV file; point at the files themselves."
            )
        root = path
    else:
        if not fs.exists(path):
            raise InputError(f"{name}: {shown(url)!r} does not exist; check the path.")
        found, root = [path], os.path.dirname(path)
    files = [_file(fs, p, root) for p in found]
    if len({f.is_csv for f in files}) > 1:
        raise InputError(f"{name}: {shown(url)!r} mixes CSV and Parquet files; keep one format.")
    return files


def _file(fs: fsspec.AbstractFileSystem, path: str, root: str) -> File:
    info = fs.info(path)
    url = path if _is_local(fs) else fs.unstrip_protocol(path)
    return File(url, int(info.get("size") or 0), _stamp(info), _partition(path, root))


def _is_local(fs: fsspec.AbstractFileSystem) -> bool:
    return "file" in (fs.protocol if isinstance(fs.protocol, (tuple, list)) else (fs.protocol,))


def _is_data(path: str, root: str) -> bool:
    tail = path[len(root) :] if path.startswith(root) else os.path.basename(path)
    return not any(p.startswith((".", "_")) for p in tail.split("/") if p and "=" not in p)


def _partition(path: str, root: str) -> tuple[tuple[str, str | None], ...]:
    folders = path[len(root) :].split("/")[:-1] if path.startswith(root) else []
    pairs = [f.partition("=") for f in folders]
    return tuple((unquote(k), _hive_value(v)) for k, sep, v in pairs if sep and k)


def _hive_value(text: str) -> str | None:
    return None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)


def _refuse_secrets(url: str, name: str) -> None:
    for link in url.split("::"):
        if "://" not in link:
            continue
        try:
            parts = urlsplit(link)
            web = parts.scheme in ("http", "https", "ftp", "sftp", "ssh")
            secret = (
                parts.password is not None or (web and parts.username is not None) or bool(_SECRET.search(parts.query))
            )
        except ValueError:
            raise InputError(f"{name}: the URL is malformed; check it.") from None
        if secret:
            raise InputError(
                f"{name}: the URL carries a credential; remove it and use the environment or a "
                "credentials file instead."
            )

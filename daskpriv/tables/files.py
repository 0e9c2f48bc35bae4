"""From what a user typed (path, directory, glob, URL, list) to the data files behind it, through fsspec."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import fsspec

from daskpriv.errors import InputError
from daskpriv.tables.retry import retrying
from daskpriv.tables.stores import bucket_missing, details, filesystem, is_local, service, told

_PARQUET = (".parquet", ".parq", ".pq")
_CSV = (".csv", ".csv.gz")
_LOG = "_delta_log"
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
        return shown(self.url).lower().endswith(_CSV)

    @property
    def is_gzip(self) -> bool:
        """True for compressed CSV, by its name."""
        return shown(self.url).lower().endswith(".gz")

    @property
    def is_local(self) -> bool:
        """True for a plain path."""
        return "://" not in self.url

    @property
    def label(self) -> str:
        """What to call it in messages."""
        return repr(shown(self.url).rsplit("/", 1)[-1])


def stamp(info: Mapping[str, Any]) -> str:
    """What tells two versions of a file apart, where the file system says."""
    keys = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "Last-Modified")
    return next((str(info[k]).strip('"') for k in keys if info.get(k)), "")


def shown(url: str) -> str:
    """A URL for people: without credentials and without the query string."""
    if "://" not in url:
        return url
    scheme, rest = url.rsplit("://", 1)
    rest = rest.split("?", 1)[0]
    host, slash, path = rest.partition("/")
    keeps = scheme.endswith(("abfs", "abfss", "az", "adl"))
    return f"{scheme.rsplit('::', 1)[-1]}://{host if keeps else host.rpartition('@')[2]}{slash}{path}"


@dataclass(frozen=True)
class Found:
    """The data files behind what was typed.

    Attributes
    ----------
    files : list of File
        In name order; for a Delta table all Parquet files of its folder, also those that it no longer uses.
    shown : str
        What was typed, for people.
    names : list of str
        Their paths below the folder of a Delta table.
    log : dict of str to File
        The log of a Delta table, by paths below `_delta_log`; else empty.
    """

    files: list[File]
    shown: str = ""
    names: list[str] = field(default_factory=list)
    log: dict[str, File] = field(default_factory=dict)


def find_files(what: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], name: str) -> Found:
    """All data files behind a path, directory, glob, URL or a list of them; in name order within each.

    Hidden files, `_SUCCESS` and the like are passed over. Raises `InputError` when nothing is there.
    """
    if isinstance(what, (str, os.PathLike)):
        return _find(os.fspath(what), name)
    urls = [os.fspath(item) for item in what]
    if not urls:
        raise InputError(f"{name}: the list of files is empty; give at least one path.")
    if len(urls) == 1:
        return _find(urls[0], name)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda url: _find(url, name), urls))
    delta = next((one for one in found if one.log), None)
    if delta is not None:
        raise InputError(f"{name}: {delta.shown!r} is a Delta table, which cannot stand in a list; give it alone.")
    return Found([file for one in found for file in one.files])


def _find(url: str, name: str) -> Found:
    if not url.strip():
        raise InputError(f"{name}: the path is empty; give a file, a directory, a glob or a URL.")
    if "\x00" in url:
        raise InputError(f"{name}: the path holds a NUL character; check it.")
    refuse_secrets(url, name)
    try:
        # Few attempts: an endpoint that is not there should say so within half a minute.
        return retrying(lambda: _list(url, name), attempts=4, patience=15.0)
    except InputError:
        raise
    except ImportError:
        raise InputError(
            f"{name}: no file system for {shown(url)!r} (a package is missing); install what it needs, such as "
            "daskpriv[s3], daskpriv[gcs], daskpriv[azure] or daskpriv[http]."
        ) from None
    except Exception as error:
        reason = told(error, name, repr(shown(url)), url, begun=False)
        if reason is None and isinstance(error, ValueError) and "rotocol" in str(error):
            reason = InputError(f"{name}: no file system for {shown(url)!r}; check the part before '://'.")
        raise reason or InputError(
            f"{name}: {shown(url)!r} cannot be listed ({type(error).__name__}); check the URL, the credentials "
            "and the endpoint."
        ) from None


def _list(url: str, name: str) -> Found:
    began = time.monotonic()
    fs, path = filesystem(url)
    if service(url) == "http":
        return Found([_web_file(fs, url, name)])
    path = path.rstrip("/") or path
    # To look for credentials may have taken a while: half a minute is for both.
    here = details(fs, path, max(10.0, 25.0 - (time.monotonic() - began)))
    if here is not None and here.get("type") == "directory":
        below = _below(fs, path)
        if any(f"/{_LOG}/" in p[len(path) :] for p in below):
            return _delta(fs, path, below, url, name)
        found = {p: info for p, info in below.items() if _is_data(p, path)}
        found = {p: info for p, info in found.items() if p.lower().endswith(_PARQUET + _CSV)}
        if not found:
            raise InputError(
                f"{name}: directory {shown(url)!r} holds no Parquet or CSV file; point at the files themselves."
            )
        root = path
    elif here is not None:
        found, root = {path: here}, os.path.dirname(path)
    elif any(c in path for c in "*?["):
        start = re.split(r"[*?\[]", path, maxsplit=1)[0]
        found = {p: info for p, info in _matching(fs, path).items() if _is_data(p, start)}
        if not found:
            _check_bucket(fs, path, url, name)
            raise InputError(f"{name}: no file matches {shown(url)!r}; check the pattern.")
        root = os.path.dirname(start)
    else:
        _check_bucket(fs, path, url, name)
        raise FileNotFoundError
    files = _files(fs, found, root, url)
    if len({f.is_csv for f in files}) > 1:
        raise InputError(f"{name}: {shown(url)!r} mixes CSV and Parquet files; keep one format.")
    return Found(files)


def _delta(fs: fsspec.AbstractFileSystem, path: str, below: dict[str, dict[str, Any]], url: str, name: str) -> Found:
    """The files of a Delta table and its log."""
    head = f"{path}/{_LOG}/"
    log = {p: info for p, info in below.items() if p.startswith(head) and info.get("size")}
    if not log:
        raise InputError(f"{name}: {shown(url)!r} holds Delta tables in folders; point at one of them.")
    data = {p: info for p, info in below.items() if f"/{_LOG}/" not in p}
    names = [p[len(path) + 1 :] for p in sorted(data)]
    by_name = dict(zip((p[len(head) :] for p in sorted(log)), _files(fs, log, path, url), strict=True))
    return Found(_files(fs, data, path, url), shown(url), names, by_name)


def _files(fs: fsspec.AbstractFileSystem, found: dict[str, dict[str, Any]], root: str, url: str) -> list[File]:
    if is_local(fs):
        # A local listing describes links, not what they point to.
        found = {p: fs.info(p) for p in found}
    return [_file(fs, p, info, root, url) for p, info in sorted(found.items()) if info.get("type") != "directory"]


def _check_bucket(fs: fsspec.AbstractFileSystem, path: str, url: str, name: str) -> None:
    if service(url) and bucket_missing(fs, path):
        kind = "container" if service(url) == "azure" else "bucket"
        raise InputError(f"{name}: the {kind} of {shown(url)!r} does not exist; check its name and the endpoint.")


def _below(fs: fsspec.AbstractFileSystem, path: str) -> dict[str, dict[str, Any]]:
    """All files below a folder with what the listing says of them: no request for each file."""
    return {p: i for p, i in fs.find(path, detail=True).items() if i.get("type") != "directory"}


def _matching(fs: fsspec.AbstractFileSystem, pattern: str) -> dict[str, dict[str, Any]]:
    try:
        found = fs.glob(pattern, detail=True)
    except FileNotFoundError:
        return {}
    return {p: i for p, i in found.items() if i.get("type") != "directory"}


def _web_file(fs: fsspec.AbstractFileSystem, url: str, name: str) -> File:
    """One file of a web server, which has no folders that could be listed."""
    path = url.split("?", 1)[0].split("#", 1)[0]
    if path.endswith("/") or any(c in path for c in "*["):
        raise InputError(f"{name}: {shown(url)!r} is a folder or a pattern, which http cannot list; list the files.")
    info = details(fs, url)
    if info is None:
        raise FileNotFoundError
    if info.get("mimetype") == "text/html" or str(info.get("url", "")).endswith("/"):
        raise InputError(f"{name}: {shown(url)!r} is a folder or a web page, not a file; give the URL of each file.")
    if info.get("size") is None:
        raise InputError(f"{name}: the server does not say how long {shown(url)!r} is; copy the file to a disk.")
    return File(url, int(info["size"]), stamp(info))


def _file(fs: fsspec.AbstractFileSystem, path: str, info: Mapping[str, Any], root: str, url: str) -> File:
    there = path if is_local(fs) else _url(fs, path, url)
    return File(there, int(info.get("size") or 0), stamp(info), _partition(path, root))


def _url(fs: fsspec.AbstractFileSystem, path: str, url: str) -> str:
    """The URL of a file found behind a URL: an account name or the rest of a chain stays in it."""
    links = url.split("::")
    at = next((i for i, link in enumerate(links) if "://" in link), 0)
    scheme, _, rest = links[at].partition("://")
    host = rest.partition("/")[0]
    if "@" in host:
        path = f"{host}/{path.partition('/')[2]}"
    elif host.endswith(".core.windows.net"):
        path = f"{host}/{path}"
    links[at] = f"{scheme}://{path}" if len(links) > 1 or service(url) else str(fs.unstrip_protocol(path))
    return "::".join(links)


def _is_data(path: str, root: str) -> bool:
    tail = path[len(root) :] if path.startswith(root) else os.path.basename(path)
    return not any(p.startswith((".", "_")) for p in tail.split("/") if p and "=" not in p)


def _partition(path: str, root: str) -> tuple[tuple[str, str | None], ...]:
    folders = path[len(root) :].split("/")[:-1] if path.startswith(root) else []
    pairs = [f.partition("=") for f in folders]
    return tuple((unquote(k), _hive_value(v)) for k, sep, v in pairs if sep and k)


def _hive_value(text: str) -> str | None:
    return None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)


def refuse_secrets(url: str, name: str) -> None:
    """Refuse a URL that carries a password, key or signature."""
    for link in url.split("::"):
        if "://" not in link:
            continue
        try:
            parts = urlsplit(link)
            bare = parts.scheme in ("http", "https", "ftp", "sftp", "ssh", "s3", "s3a", "gs", "gcs")
            query = f"{parts.query}&{parts.fragment}"
            secret = parts.password is not None or (bare and parts.username is not None) or _SECRET.search(query)
        except ValueError:
            raise InputError(f"{name}: the URL is malformed; check it.") from None
        if secret:
            raise InputError(
                f"{name}: the URL carries a credential; remove it and use the environment or a "
                "credentials file instead."
            )

"""File systems behind URLs: one connection pool per process, time limits, and what their errors mean to a person."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import fsspec
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.core import url_to_fs

from daskpriv.errors import DaskprivError, InputError, RunError
from daskpriv.tables.retry import http_status, is_transient, kinds, retrying

_CONNECT, _READ = 5.0, 30.0
_KEPT = 8
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "GCS", "STORAGE_", "FSSPEC_", "HTTP_PROXY", "HTTPS_PROXY")
_FAMILY = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), "azure"),
    **dict.fromkeys(("http", "https"), "http"),
}
_LOGIN = {
    "s3": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "azure": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and a key or login",
}
_NO_LOGIN = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ProfileNotFound",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
        "TokenRetrievalError",
        "DefaultCredentialsError",
        "RefreshError",
        "CredentialUnavailableError",
    }
)
# Nobody configured logging: Python would print these packages' warnings, tracebacks and all, beside our one sentence.
for _package in ("azure", "gcsfs"):
    logging.getLogger(_package).addHandler(logging.NullHandler())
_instances: OrderedDict[tuple[Any, ...], fsspec.AbstractFileSystem] = OrderedDict()
_lock = threading.Lock()


def service(url: str) -> str:
    """Which of "s3", "gs", "azure" and "http" a URL belongs to; empty for anything else, such as local files."""
    return "" if "::" in url else _FAMILY.get(url.partition("://")[0].lower(), "") if "://" in url else ""


def filesystem(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system behind a URL and the path on it.

    fsspec keeps one instance for every thread, each with its own connections and login; this one is shared by all
    threads of the process, remembers no listings, and is made anew when credentials in the environment change.
    """
    family = service(url)
    if not family:
        other: tuple[fsspec.AbstractFileSystem, str] = url_to_fs(url)
        return other
    kind = fsspec.get_filesystem_class(url.partition("://")[0].lower())
    given = kind._get_kwargs_from_urls(url)
    login = tuple(sorted((k, v) for k, v in os.environ.items() if k.upper().startswith(_ENVIRONMENT)))
    key = (os.getpid(), family, tuple(sorted(given.items())), hash(login))
    with _lock:
        fs = _instances.get(key)
        if fs is None:
            options = {**_options(family), **given, "use_listings_cache": False, "skip_instance_cache": True}
            fs = _instances[key] = kind(**options)
        _instances.move_to_end(key)
        while len(_instances) > _KEPT:
            _instances.popitem(last=False)
    return fs, kind._strip_protocol(url)


def _options(family: str) -> dict[str, Any]:
    """Limits without which an endpoint that does not answer hangs for minutes; fsspec's own configuration wins."""
    ours: dict[str, Any] = {}
    if family == "s3":
        ours["config_kwargs"] = {"connect_timeout": _CONNECT, "read_timeout": _READ, "max_pool_connections": 32}
        if "AWS_MAX_ATTEMPTS" not in os.environ:
            ours["config_kwargs"]["retries"] = {"total_max_attempts": 2}
    elif family in {"gs", "http"}:
        import aiohttp

        limit = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_READ)
        ours = {"requests_timeout": limit} if family == "gs" else {"client_kwargs": {"timeout": limit}}
    elif family == "azure":
        ours = {"connection_timeout": int(_CONNECT), "read_timeout": int(_READ)}
    schemes = [scheme for scheme, of in _FAMILY.items() if of == family]
    return {k: v for k, v in ours.items() if not any(k in fsspec.config.conf.get(s, {}) for s in schemes)}


def details(fs: fsspec.AbstractFileSystem, path: str, limit: float = 25.0) -> dict[str, Any] | None:
    """What is at the path, None for nothing; a service that does not answer in `limit` seconds raises TimeoutError."""
    try:
        if isinstance(fs, AsyncFileSystem) and not fs.asynchronous:
            found: dict[str, Any] = sync(fs.loop, fs._info, path, timeout=limit)
        else:
            found = fs.info(path)
    except FileNotFoundError as error:
        # http calls every failure a missing file.
        if (error.__cause__ is not None and http_status(error) not in {None, 404}) or is_transient(error):
            raise
        return None
    return found


def knock(url: str) -> None:
    """Raise when the service behind a URL does not answer within half a minute; any answer will do."""
    if service(url):
        try:
            retrying(lambda: details(*filesystem(url)), attempts=3, patience=5.0)
        except Exception as error:
            if is_transient(error) or kinds(error) & _NO_LOGIN or isinstance(error, (ImportError, ValueError)):
                raise


def await_answer(url: str, wait: float, late: Callable[[], None]) -> None:
    """Knock at the service behind a URL until it answers, for `wait` seconds; `late` is called when it must wait.

    Nothing is raised: who opens the URL afterwards says what is wrong with it.
    """
    end, told = time.monotonic() + wait, False
    while time.monotonic() < end:
        try:
            knock(url)
            return
        except Exception as error:
            if not is_transient(error):
                return
        if not told:
            late()
        told = True
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))


def bucket_missing(fs: fsspec.AbstractFileSystem, path: str) -> bool:
    """True when a service says that the bucket (or container) of this path does not exist."""
    try:
        return details(fs, path.partition("/")[0]) is None
    except Exception:
        return False


def protocols(fs: fsspec.AbstractFileSystem) -> tuple[str, ...]:
    """The names a file system goes by."""
    return tuple(fs.protocol) if isinstance(fs.protocol, (tuple, list)) else (fs.protocol,)


def is_local(fs: fsspec.AbstractFileSystem) -> bool:
    """True for files of this machine (or mounted on it)."""
    return "file" in protocols(fs)


def told(error: BaseException, name: str, what: str, url: str, begun: bool = True) -> DaskprivError | None:
    """An error of a file system as one sentence, without the text of the error; None when it says nothing of access.

    `begun` is false before anything of the table has been seen: then it is the address that may be wrong.
    """
    if isinstance(error, DaskprivError):
        return error
    family, status, names = service(url), http_status(error), kinds(error)
    if names & _NO_LOGIN or (family == "azure" and isinstance(error, ValueError) and status is None):
        return InputError(
            f"{name}: no usable credentials for {what} were found; set {_LOGIN.get(family, 'them')} in the environment."
        )
    if family and (status in {401, 403} or isinstance(error, PermissionError) or _forbidden(error)):
        login = f"the credentials ({_LOGIN[family]})" if family in _LOGIN else "the URL (no credentials are sent)"
        return InputError(f"{name}: access to {what} was refused; check {login} and the access rights.")
    if isinstance(error, PermissionError):
        return InputError(f"{name}: no permission to read {what}; check its access rights.")
    if is_transient(error):
        silent = "no answer" if isinstance(error, TimeoutError) else type(_cause(error)).__name__
        cause = f"HTTP {status}" if status else silent
        if begun or status:
            return RunError(f"{name}: {what} cannot be reached just now ({cause}); run again.")
        network = "the network, the credentials" if family in _LOGIN else "the network"
        return InputError(f"{name}: {what} cannot be reached ({cause}); check the URL, {network} and the endpoint.")
    if isinstance(error, FileNotFoundError) or status == 404:
        return InputError(f"{name}: {what} does not exist; check the path.")
    return None


def _forbidden(error: BaseException) -> bool:
    """True for gcsfs's way to tell of status 403: a plain OSError without a number."""
    return type(error) is OSError and error.errno is None and str(error).startswith("Forbidden")


def _cause(error: BaseException) -> BaseException:
    return error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ is not None else error

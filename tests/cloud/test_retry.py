"""Which errors pass, and small files on the local disk and in memory."""

from __future__ import annotations

import errno
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from daskpriv.errors import InputError
from daskpriv.report.model import check_writable, write_atomically
from daskpriv.tables import sinks
from daskpriv.tables.retry import http_status, is_transient, retrying
from daskpriv.tables.sinks import get, join, listing, put, remove
from tests.cloud.test_clouds import sentence


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


def boto(code: str, status: int) -> BaseException:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")


def aio(status: int) -> BaseException:
    from aiohttp import ClientResponseError, RequestInfo
    from multidict import CIMultiDict, CIMultiDictProxy
    from yarl import URL

    headers: Any = CIMultiDictProxy(CIMultiDict())
    return ClientResponseError(RequestInfo(URL("http://x/"), "GET", headers), (), status=status)


def azure(status: int, code: str = "") -> BaseException:
    from azure.core.exceptions import HttpResponseError

    error = HttpResponseError("x")
    error.status_code = status
    if code:
        error.error_code = code
    return error


def from_packages() -> dict[str, tuple[BaseException, bool]]:
    import aiohttp
    import botocore.exceptions as bo
    import requests.exceptions as re
    from azure.core import exceptions as az
    from fsspec.exceptions import FSTimeoutError
    from gcsfs.retry import ChecksumError, HttpError
    from google.auth.exceptions import DefaultCredentialsError, TransportError

    return {
        "s3 503": (boto("ServiceUnavailable", 503), True),
        "s3 slow down": (raised(OSError(errno.EBUSY, "x"), boto("SlowDown", 503)), True),
        "s3 400 timeout": (boto("RequestTimeout", 400), True),
        "s3 400 wrapped": (raised(OSError(errno.EIO, "x"), boto("Odd", 400)), False),
        "s3 403": (raised(PermissionError("x"), boto("AccessDenied", 403)), False),
        "s3 no credentials": (bo.NoCredentialsError(), False),
        "s3 no endpoint": (bo.EndpointConnectionError(endpoint_url="x"), True),
        "s3 read timeout": (bo.ReadTimeoutError(endpoint_url="x"), True),
        "s3 broken line": (bo.ConnectionClosedError(endpoint_url="x"), True),
        "s3 certificate": (bo.SSLError(endpoint_url="x", error="x"), False),
        "http 429": (aio(429), True),
        "http 404": (raised(FileNotFoundError("x"), aio(404)), False),
        "http 503 called missing": (raised(FileNotFoundError("x"), aio(503)), True),
        "http no line called missing": (raised(FileNotFoundError("x"), aiohttp.ClientConnectionError()), True),
        "http payload": (aiohttp.ClientPayloadError("x"), True),
        "http disconnected": (aiohttp.ServerDisconnectedError(), True),
        "gcs 500": (HttpError({"code": 500}), True),
        "gcs 408 text": (HttpError({"code": "408"}), True),
        "gcs 400": (HttpError({"code": 400}), False),
        "gcs checksum": (ChecksumError(), True),
        "gcs 502": (re.ProxyError(), True),
        "gcs credentials": (DefaultCredentialsError("x"), False),
        "gcs transport": (TransportError("x"), True),
        "azure 503": (azure(503), True),
        "azure 403": (azure(403), False),
        "azure 409 busy": (azure(409, "ServerBusy"), True),
        "azure request": (az.ServiceRequestError("x"), True),
        "azure response": (az.ServiceResponseError("x"), True),
        "azure login": (az.ClientAuthenticationError("x"), False),
        "fsspec timeout": (FSTimeoutError(), True),
    }


def from_the_system() -> dict[str, tuple[BaseException, bool]]:
    found: dict[str, tuple[BaseException, bool]] = {
        name: (OSError(getattr(errno, name), "x"), True)
        for name in ("EINTR", "EAGAIN", "EIO", "ESTALE", "ETIMEDOUT", "ECONNRESET", "EPIPE", "EBUSY", "ENETUNREACH")
    }
    missing = ("ENOENT", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "EROFS", "EISDIR", "ENOTDIR", "ENAMETOOLONG", "EMFILE")
    found |= {name: (OSError(getattr(errno, name), "x"), False) for name in missing}
    return found | {
        "asyncio timeout": (TimeoutError(), True),
        "name server busy": (socket.gaierror(socket.EAI_AGAIN, "x"), True),
        "no such host": (socket.gaierror(socket.EAI_NONAME, "x"), False),
        "certificate": (ssl.SSLCertVerificationError("x"), False),
        "tls cut": (ssl.SSLEOFError("x"), True),
        "value": (ValueError("x"), False),
        "plain": (OSError("x"), False),
    }


def test_is_transient() -> None:
    wrong = {k: t for k, (e, t) in {**from_packages(), **from_the_system()}.items() if is_transient(e) is not t}
    assert wrong == {}
    assert http_status(raised(FileNotFoundError("x"), aio(403))) == 403
    assert http_status(ValueError("x")) is None


def test_retrying(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("daskpriv.tables.retry._pause", pauses.append)
    answers = iter([TimeoutError(), ConnectionResetError(), "done"])

    def call() -> str:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    assert retrying(call) == "done"
    assert len(pauses) == 2 and 0.1 <= pauses[0] <= 0.2 <= pauses[1] <= 0.4

    calls: list[int] = []

    def fails(error: Exception) -> None:
        calls.append(1)
        raise error

    pauses.clear()
    with pytest.raises(TimeoutError):
        retrying(lambda: fails(TimeoutError()))
    assert len(calls) == 6 and len(pauses) == 5 and max(pauses) <= 8
    calls.clear()
    with pytest.raises(FileNotFoundError):
        retrying(lambda: fails(FileNotFoundError()))
    assert len(calls) == 1
    calls.clear()
    with pytest.raises(TimeoutError):
        retrying(lambda: fails(TimeoutError()), patience=0.0)
    assert len(calls) == 1


@pytest.fixture(params=["disk", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"disk": f"{tmp_path}", "file": f"file://{tmp_path}", "memory": f"memory://{tmp_path}"}[request.param] + "/a"


def test_small_files(place: str) -> None:
    assert listing(place) == {}
    put(join(place, "x", "y.bin"), b"12")
    put(join(place, "x", "y.bin"), b"123")
    put(join(place, ".z.part"), b"a killed writer left this")
    assert get(join(place, "x", "y.bin")) == b"123"
    assert listing(place) == {"x/y.bin": 3}
    remove(join(place, "x", "y.bin"))
    remove(join(place, "x", "y.bin"))
    with pytest.raises(FileNotFoundError):
        get(join(place, "x", "y.bin"))


def test_join() -> None:
    assert join("s3://b/c/", "d", "e") == "s3://b/c/d/e"
    assert join("/", "a") == "/a" and join("", "a") == "a" and join("a", "b") == "a/b"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(str(tmp_path / "report.json"), b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sinks.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        put(str(tmp_path / "report.json"), b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]
    assert get(str(tmp_path / "report.json")) == b"old"
    text = sentence(lambda: write_atomically(tmp_path / "report.json", "new"), InputError)
    assert text.endswith("(No space left on device); choose another directory.")


def test_a_flaky_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskpriv.tables.retry._pause", lambda seconds: None)
    errors = iter([OSError(errno.ESTALE, "x"), OSError(errno.EIO, "x"), None])
    monkeypatch.setattr(sinks.os, "fsync", lambda handle: (_ for _ in ()).throw(e) if (e := next(errors)) else None)
    put(str(tmp_path / "x"), b"x")
    assert listing(str(tmp_path)) == {"x": 1}


def test_places_that_take_no_report(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "choose another directory" in sentence(lambda: check_writable(tmp_path / "file"))
    assert "choose another directory" in sentence(lambda: check_writable("/proc/none"))
    assert "choose another directory" in sentence(lambda: check_writable("unknown://x/y"))
    check_writable(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []

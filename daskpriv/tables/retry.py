"""Trying again what fails for a moment: resets, timeouts, throttled or restarting servers.

Errors of cloud packages are told apart by their HTTP status, their error code or the names of their classes,
so that none of these packages has to be installed.
"""

from __future__ import annotations

import errno
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
_pause = time.sleep

# fmt: off
_ERRNO = frozenset(getattr(errno, name) for name in (
    "EINTR", "EAGAIN", "EWOULDBLOCK", "EBUSY", "ESTALE", "ETIMEDOUT", "ECONNRESET", "ECONNABORTED", "ECONNREFUSED",
    "EPIPE", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH", "EREMOTEIO", "ENOLINK", "ECOMM",
) if hasattr(errno, name))
_STATUS = frozenset({408, 425, 429})
_NEVER = frozenset({501, 505, 507, 508, 510, 511})
# Codes that servers send with a status that does not say so (400, 403, 409).
_CODES = frozenset({
    "RequestTimeout", "RequestTimeoutException", "Throttling", "ThrottlingException", "ThrottledException",
    "TooManyRequests", "TooManyRequestsException", "RequestLimitExceeded", "RequestThrottled",
    "RequestThrottledException", "BandwidthLimitExceeded", "SlowDown", "ServiceUnavailable", "InternalError",
    "InternalServerError", "OperationAborted", "PriorRequestNotComplete", "ServerBusy", "OperationTimedOut",
    "rateLimitExceeded", "userRateLimitExceeded",
})
# Classes of botocore, aiohttp, azure.core, google.auth, requests and urllib3 that tell of a broken line.
_CLASSES = frozenset({
    "EndpointConnectionError", "ConnectionClosedError", "ConnectTimeoutError", "ReadTimeoutError",
    "ProxyConnectionError", "HTTPClientError", "ResponseStreamingError", "IncompleteReadError",
    "ClientConnectionError", "ClientPayloadError", "ServerTimeoutError", "ServiceRequestError",
    "ServiceResponseError", "ServiceRequestTimeoutError", "ServiceResponseTimeoutError", "TransportError",
    "ChunkedEncodingError", "ConnectTimeout", "ReadTimeout", "ProtocolError", "IncompleteRead", "RetryError",
    "ConnectionError", "Timeout", "ChecksumError",
})
# fmt: on
_REFUSED = frozenset({"SSLError", "ClientSSLError", "ClientConnectorCertificateError"})
_FINAL = (FileNotFoundError, PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)


def is_transient(error: BaseException) -> bool:
    """True for an error that may be gone a moment later; False for missing files, refused access, a full disk."""
    perhaps = False
    for link in _chain(error):
        said = _verdict(link)
        if said is not None:
            return said
        # s3fs wraps every answer it does not know into EIO: the cause, where there is one, knows better.
        perhaps = perhaps or (isinstance(link, OSError) and link.errno == errno.EIO)
    return perhaps


def retrying(
    call: Callable[[], T], attempts: int = 6, first: float = 0.2, longest: float = 8.0, patience: float = 60.0
) -> T:
    """What `call` returns; after a transient error it is called again, with growing pauses, `attempts` times in all.

    No new attempt begins `patience` seconds after the first one: packages below have retries of their own.

    Raises
    ------
    BaseException
        The last error, as it was raised.
    """
    began = time.monotonic()
    for attempt in range(1, attempts):
        try:
            return call()
        except Exception as error:
            if not is_transient(error) or time.monotonic() - began > patience:
                raise
        _pause(min(longest, first * 2 ** (attempt - 1)) * (0.5 + 0.5 * _jitter()))
    return call()


def http_status(error: BaseException) -> int | None:
    """The HTTP status of the answer that an error tells of, if any."""
    return next((s for s in map(_status, _chain(error)) if s is not None and s >= 400), None)


def kinds(error: BaseException) -> set[str]:
    """Names of the classes of an error and of what it was raised from."""
    return {kind.__name__ for link in _chain(error) for kind in type(link).__mro__}


def _jitter() -> float:
    """A number in [0, 1) that differs between processes, threads and moments: they must not come back together."""
    mixed = (time.time_ns() ^ threading.get_ident() ^ (os.getpid() << 20)) * 0x9E3779B97F4A7C15
    return (mixed >> 32) % 2**32 / 2**32


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it was raised from or, where nobody said so, during the handling of what."""
    link: BaseException | None = error
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _verdict(error: BaseException) -> bool | None:
    """Whether this very error is transient; None when it does not tell."""
    if _code(error) in _CODES:
        return True
    status = _status(error)
    if status is not None and status >= 400:
        return status in _STATUS or (status >= 500 and status not in _NEVER)
    if isinstance(error, _FINAL):
        # fsspec's http calls every failure a missing file, and says from what it was raised.
        return None if isinstance(error, FileNotFoundError) and error.__cause__ is not None else False
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & _REFUSED:
        return False
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, (TimeoutError, ConnectionError, http.client.IncompleteRead)):
        return True
    if names & _CLASSES:
        return True
    if isinstance(error, OSError) and error.errno is not None and error.errno != errno.EIO:
        return error.errno in _ERRNO
    return None


def _status(error: BaseException) -> int | None:
    """The HTTP status an error carries: botocore, aiohttp, azure.core, gcsfs, requests or urllib."""
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, dict):
        return _number(answer.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    for holder, name in ((error, "status_code"), (error, "status"), (error, "code"), (answer, "status_code")):
        found = _number(getattr(holder, name, None))
        if found is not None:
            return found
    return None


def _code(error: BaseException) -> str | None:
    """The error code of a storage service, such as SlowDown."""
    answer: Any = getattr(error, "response", None)
    found = answer.get("Error", {}).get("Code") if isinstance(answer, dict) else getattr(error, "error_code", None)
    return str(getattr(found, "value", found)) if found is not None else None


def _number(value: Any) -> int | None:
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    return int(text) if text.isdigit() and len(text) == 3 else None

"""Reading byte ranges of a data file, wherever it is: retried, complete, and of the version that was listed."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
from fsspec.asyn import AsyncFileSystem

from daskpriv.errors import DaskprivError, InputError
from daskpriv.tables.files import File, stamp
from daskpriv.tables.retry import is_transient, retrying
from daskpriv.tables.stores import filesystem, told

T = TypeVar("T")
Range = tuple[int, int]

_GAP, _LONGEST, _MOST = 64 << 10, 16 << 20, 256 << 20
# Some web servers ignore ranges and send whole files: these are kept for the ranges still to come.
_WHOLE = 256 << 20
_whole: OrderedDict[File, bytes] = OrderedDict()
_lock = threading.Lock()


class RangeFile(io.RawIOBase):
    """A data file as a seekable stream; every read is one request, or none where `held` has the bytes."""

    def __init__(self, file: File, name: str, held: Sequence[tuple[int, bytes]] = ()):
        self._file, self._name, self._held, self._at = file, name, held, 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next `size` bytes, fewer only at the end of the file."""
        start = min(self._at, self._file.size)
        stop = self._file.size if size is None or size < 0 else min(start + size, self._file.size)
        self._at = stop
        for first, data in self._held:
            if first <= start and stop <= first + len(data):
                return data[start - first : stop - first]
        return fetch(self._file, self._name, start, stop)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, as `gzip` and `io` want it."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def fetch(file: File, name: str, start: int, stop: int) -> bytes:
    """The bytes [start, stop) of a file; the error of the last attempt as one sentence."""
    return _accessed(file, name, lambda: retrying(lambda: _bytes(file, name, start, stop))) if stop > start else b""


def fetch_all(file: File, name: str, ranges: Sequence[Range]) -> list[tuple[int, bytes]]:
    """Several ranges at once, joined where they are close, as (start, bytes); none when they are too much to hold."""
    joined = _joined(ranges)
    if not joined or sum(stop - start for start, stop in joined) > _MOST:
        return []
    requests = [(at, min(at + _LONGEST, stop)) for start, stop in joined for at in range(start, stop, _LONGEST)]
    answers = dict(zip(requests, _at_once(file, name, requests), strict=True))
    return [
        (start, b"".join(data for (at, _), data in answers.items() if start <= at < stop)) for start, stop in joined
    ]


def _at_once(file: File, name: str, requests: Sequence[Range]) -> list[bytes]:
    fs, path = _accessed(file, name, lambda: filesystem(file.url))
    first: list[Any] = [None] * len(requests)
    if len(requests) > 1 and isinstance(fs, AsyncFileSystem):
        starts, stops = (list(side) for side in zip(*requests, strict=True))
        first = fs.cat_ranges([path] * len(requests), starts, stops, on_error="return")
    # What failed or came short is read once more by itself, with retries.
    return [
        data if isinstance(data, bytes) and len(data) == stop - start else fetch(file, name, start, stop)
        for (start, stop), data in zip(requests, first, strict=True)
    ]


def native(file: File, name: str, use: Callable[[Any], T]) -> T:
    """What `use` makes of a local file opened by Arrow itself, which is faster than through Python."""

    def once() -> T:
        with pa.OSFile(file.url) as handle:
            return use(handle)

    return _accessed(file, name, lambda: retrying(once))


@contextmanager
def standing_still(file: File, name: str) -> Iterator[None]:
    """Refuse a file that changed meanwhile, also in place of an error that a mixture of two versions may cause."""
    try:
        yield
    except DaskprivError:
        raise
    except Exception:
        check_still(file, name)
        raise
    check_still(file, name)


def check_still(file: File, name: str) -> None:
    """Refuse a file that is no longer the one that was listed."""
    fs, path = _accessed(file, name, lambda: filesystem(file.url))
    try:
        info = retrying(lambda: fs.info(path))
    except Exception as error:
        gone = isinstance(error, FileNotFoundError) and not is_transient(error)
        raise _changed(file, name) if gone else told(error, name, f"file {file.label}", file.url) or error from None
    if (int(info.get("size") or 0), stamp(info)) != (file.size, file.stamp):
        raise _changed(file, name) from None


def _changed(file: File, name: str) -> InputError:
    return InputError(f"{name}: file {file.label} changed while it was read; run again on files that stay still.")


def _accessed(file: File, name: str, call: Callable[[], T]) -> T:
    """The result of `call`; where a file cannot be reached, the reason as one sentence."""
    try:
        return call()
    except DaskprivError:
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not is_transient(error):
            raise _changed(file, name) from None
        reason = told(error, name, f"file {file.label}", file.url)
        if reason is None:
            raise
        raise reason from None


def _bytes(file: File, name: str, start: int, stop: int) -> bytes:
    with _lock:
        whole = _whole.get(file)
    if whole is not None:
        return whole[start:stop]
    fs, path = filesystem(file.url)
    data: bytes = fs.cat_file(path, start=start, end=stop)
    if len(data) == stop - start:
        return data
    if len(data) == file.size:
        _keep(file, data)
        return data[start:stop]
    check_still(file, name)
    raise ConnectionError("an answer of another length than asked for")


def _keep(file: File, data: bytes) -> None:
    with _lock:
        _whole[file] = data
        while len(_whole) > 1 and sum(map(len, _whole.values())) > _WHOLE:
            _whole.popitem(last=False)


def _joined(ranges: Sequence[Range]) -> list[Range]:
    """Ranges in order, joined over gaps that cost less than a request."""
    out: list[Range] = []
    for start, stop in sorted(ranges):
        if out and start - out[-1][1] <= _GAP:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out

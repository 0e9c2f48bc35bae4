"""An HTTP proxy in front of a storage server: it writes down every request and, as told, spoils answers."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BUSY = b"<?xml version='1.0'?><Error><Code>ServiceUnavailable</Code><Message>busy</Message></Error>"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    start: int
    stop: int

    @property
    def lists(self) -> bool:
        return self.method == "GET" and "list-type=" in self.path


@dataclass
class Proxy:
    """`fault(number, request)` names what happens to a request: "", "503", "403", "cut", "reset" or "slow"."""

    upstream: int
    fault: Callable[[int, Request], str] = lambda number, request: ""
    seen: list[Request] = field(default_factory=list)
    spoiled: list[tuple[str, Request]] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.Lock)

    def __enter__(self) -> Proxy:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that goes away is no news here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def met(self, request: Request) -> str:
        """What happens to it; requests come at once, and each has a number of its own."""
        with self._lock:
            self.seen.append(request)
            fault = self.fault(len(self.seen), request)
            if fault:
                self.spoiled.append((fault, request))
            return fault

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, method: str) -> int:
        return sum(r.method == method and not r.lists for r in self.seen)

    @property
    def bytes_read(self) -> int:
        return sum(r.stop - r.start for r in self.seen if r.method == "GET" and not r.lists)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _answer(self) -> None:
        body = self._body()
        bounds = self.headers.get("Range", self.headers.get("x-ms-range", "")).removeprefix("bytes=").split("-")
        start, stop = (int(bounds[0]), int(bounds[1]) + 1) if len(bounds) == 2 and all(bounds) else (0, 0)
        request = Request(self.command, self.path, start, stop)
        fault = self.owner.met(request)
        if fault == "reset":
            # Linger for 0 seconds: the kernel sends RST instead of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.close_connection = True
            self.connection.close()
            return
        if fault in {"503", "403"}:
            code = b"AccessDenied" if fault == "403" else b"ServiceUnavailable"
            self._send(int(fault), [("Content-Type", "application/xml")], BUSY.replace(b"ServiceUnavailable", code))
            return
        if fault == "slow":
            time.sleep(0.3)
        status, headers, data = self._forward(body)
        self._send(status, headers, data, cut=fault == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        line = http.client.HTTPConnection("127.0.0.1", self.owner.upstream, timeout=30)
        try:
            skipped = ("transfer-encoding", "content-length", "connection", "accept-encoding")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in skipped}
            line.request(self.command, self.path, body, headers)
            answer = line.getresponse()
            data = answer.read()
            kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding")]
            return answer.status, kept, data
        finally:
            line.close()

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        if "content-length" not in {k.lower() for k, _ in headers}:
            headers = [*headers, ("Content-Length", str(len(data)))]
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

"""The studio on the loopback interface.

Only files of the site are served, and only to the browser that was given the token: the address
that the command prints has it, and the first answer moves it into a cookie. The names under which
the server is called are checked, so that no other site can reach it through a name of its own.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from pocketune.errors import PocketuneError
from pocketune.studio.site import INDEX, Site

LOOPBACK = "127.0.0.1"

POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; "
    "style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page loads from its own address alone. It evaluates no text; WebAssembly needs its word."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",  # these two give the page shared memory, which
    "Cross-Origin-Embedder-Policy": "require-corp",  # the runtime's threads need
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}

TYPES = {
    "css": "text/css; charset=utf-8",
    "gz": "application/gzip",  # the page unpacks it, so there is no Content-Encoding
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "wasm": "application/wasm",
    "webmanifest": "application/manifest+json",
    "zip": "application/zip",
}
_OTHER = "application/octet-stream"
_NONE: Mapping[str, str] = {}


class StudioServer(ThreadingHTTPServer):
    """Serves a site on 127.0.0.1.

    Args:
        site: The files.
        port: 0 for any that is free.

    Raises:
        PocketuneError: The port is taken or not allowed.

    Attributes:
        token: What the address must have before anything is served.
    """

    daemon_threads = True
    # On Windows, this would let another program take over the port.
    allow_reuse_address = not hasattr(socket, "SO_EXCLUSIVEADDRUSE")

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PocketuneError(
                f"port {port} cannot be used ({reason}); choose another, or 0 for any that is free"
            ) from error

    @property
    def url(self) -> str:
        """The address to open, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names under which the page may be called."""
        return tuple(f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost"))

    @property
    def cookie(self) -> str:
        """The cookie's name. Cookies ignore ports, and two studios may be open at once."""
        return f"pocketune-{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a browser that closes a connection is not an error."""


class _Handler(BaseHTTPRequestHandler):
    server: StudioServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "pocketune", ""
    timeout: ClassVar[float] = 60

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def send_error(self, code: int, *_: object, **__: object) -> None:
        """Refuse what the base class would answer by a page of its own, without these headers.

        It closes the connection: a body that came with the request is not read.
        """
        self.close_connection = True
        other = code == HTTPStatus.NOT_IMPLEMENTED  # a method of which there is no `do_`
        said = "This studio answers GET and HEAD only." if other else "This request is not HTTP."
        allowed = {"Allow": "GET, HEAD"} if other else {}
        status = HTTPStatus.METHOD_NOT_ALLOWED if other else HTTPStatus(code)
        self._refuse(status, said, {"Connection": "close", **allowed})

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the address has the token."""

    def _answer(self, *, body: bool) -> None:
        host = self.headers.get("Host", "")
        origin = self.headers.get("Origin")
        if host not in self.server.hosts or origin not in (None, f"http://{host}"):
            self._refuse(HTTPStatus.FORBIDDEN, "This studio answers only its own page.")
            return
        asked = urlsplit(self.path)
        given = parse_qs(asked.query).get("token", [""])[0]
        if asked.path == "/" and self._is_token(given):
            self._move_token()
        elif not self._is_token(self._cookie()):
            said = "Open the address that pocketune studio has printed; it has a token."
            self._refuse(HTTPStatus.FORBIDDEN, said)
        else:
            self._serve(unquote(asked.path).lstrip("/") or INDEX, body=body)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.server.token.encode())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return found.value if found else ""

    def _move_token(self) -> None:
        """Set the cookie, and go to the address without the token."""
        self.send_response(HTTPStatus.SEE_OTHER)
        kept = f"{self.server.cookie}={self.server.token}; HttpOnly; SameSite=Strict; Path=/"
        self._head({"Location": "/", "Set-Cookie": kept, "Content-Length": "0"})

    def _serve(self, address: str, *, body: bool) -> None:
        if address not in self.server.site.files:  # which holds files only: no folder is listed
            self._refuse(HTTPStatus.NOT_FOUND, "The studio has no such file.")
            return
        tag = f'"{self.server.site.hashes[address]}"'
        if self.headers.get("If-None-Match") == tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self._head({"ETag": tag})
            return
        try:
            data = self.server.site.read(address)
        except PocketuneError:
            self._refuse(HTTPStatus.NOT_FOUND, "This file has gone; start the studio again.")
            return
        kind = TYPES.get(address.rpartition(".")[2], _OTHER)
        self.send_response(HTTPStatus.OK)
        self._head({"Content-Type": kind, "Content-Length": str(len(data)), "ETag": tag})
        if body:
            self.wfile.write(data)

    def _refuse(self, status: HTTPStatus, said: str, headers: Mapping[str, str] = _NONE) -> None:
        data = f"{said}\n".encode()
        self.send_response(status)
        self._head({"Content-Type": TYPES["txt"], "Content-Length": str(len(data)), **headers})
        if self.command != "HEAD":
            self.wfile.write(data)

    def _head(self, headers: dict[str, str]) -> None:
        for name, value in {**HEADERS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

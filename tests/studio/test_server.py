"""The server answers its own page, in the browser that was given the token, and nobody else."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator

import pytest

from pocketune.errors import PocketuneError
from pocketune.studio import Site, StudioServer
from pocketune.studio.server import LOOPBACK, POLICY

from .conftest import PAGE

Ask = Callable[..., http.client.HTTPResponse]


@pytest.fixture(scope="module")
def server(site: Site) -> Iterator[StudioServer]:
    with StudioServer(site) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def ask(server: StudioServer) -> Iterator[Ask]:
    """`ask("/page.js")` with the cookie; `headers` replace its headers."""
    connection = http.client.HTTPConnection(LOOPBACK, server.server_port, timeout=10)

    def asked(path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
        cookie = {"Cookie": f"other=1; {server.cookie}={server.token}"}
        connection.request(method, path, headers={**cookie, **headers})
        return connection.getresponse()

    yield asked
    connection.close()


def test_it_listens_on_the_loopback_interface_alone(server: StudioServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def test_the_token_moves_into_a_cookie(server: StudioServer, ask: Ask) -> None:
    answer = ask(f"/?token={server.token}", Cookie="")
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = str(answer.getheader("Set-Cookie"))
    assert cookie == f"{server.cookie}={server.token}; HttpOnly; SameSite=Strict; Path=/"
    assert answer.read() == b""
    assert ask("/", Cookie=cookie.split(";")[0]).read() == PAGE["index.html"]
    assert server.url.endswith(f"/?token={server.token}")


@pytest.mark.parametrize(
    ("path", "cookie"),
    [
        ("/", ""),
        ("/page.js", "pocketune=1"),
        ("/?token=", ""),
        ("/?token=wrong", ""),
        ("/?token=%C3%A9", ""),
        ("/", "NAME=wrong"),
        ("/", "NAME"),
        ("/missing.js", ""),
    ],
)
def test_without_the_token_nothing_is_served(
    server: StudioServer, ask: Ask, path: str, cookie: str
) -> None:
    answer = ask(path, Cookie=cookie.replace("NAME", server.cookie))
    assert answer.status == 403
    assert b"Open the address that pocketune studio has printed" in answer.read()


def test_the_token_opens_only_the_page(server: StudioServer, ask: Ask) -> None:
    answer = ask(f"/page.js?token={server.token}", Cookie="")
    assert answer.status == 403
    answer.read()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:PORT", "127.0.0.1", "localhost:1"])
def test_another_name_of_this_machine_is_refused(server: StudioServer, ask: Ask, host: str) -> None:
    answer = ask("/", Host=host.replace("PORT", str(server.server_port)))
    assert (answer.status, answer.read()) == (403, b"This studio answers only its own page.\n")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:PORT"])
def test_another_origin_is_refused(server: StudioServer, ask: Ask, origin: str) -> None:
    answer = ask("/", Origin=origin.replace("PORT", str(server.server_port)))
    assert answer.status == 403
    answer.read()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_its_own_names_are_answered(server: StudioServer, ask: Ask, name: str) -> None:
    host = f"{name}:{server.server_port}"
    assert ask("/", Host=host, Origin=f"http://{host}").read() == PAGE["index.html"]


def test_the_page_is_isolated_and_evaluates_nothing(ask: Ask) -> None:
    answer = ask("/")
    headers = dict(answer.getheaders())
    answer.read()
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert headers["X-Content-Type-Options"] == "nosniff"
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self' 'wasm-unsafe-eval';")
    assert "'unsafe-eval'" not in policy
    assert "unsafe-inline" not in policy
    assert "http" not in policy
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/ort/runtime.wasm.gz", "application/gzip"),
        ("/kits/my-flowers.zip", "application/zip"),
        ("/site.json", "application/json"),
    ],
)
def test_files_have_their_types_and_bytes(site: Site, ask: Ask, path: str, kind: str) -> None:
    answer = ask(path)
    assert (answer.status, answer.getheader("Content-Type")) == (200, kind)
    assert answer.getheader("Content-Encoding") is None  # packed files are served as they are
    assert answer.read() == site.read(path[1:] or "index.html")


def test_a_head_has_no_body(ask: Ask) -> None:
    answer = ask("/page.js", "HEAD")
    assert (answer.status, answer.read()) == (200, b"")
    assert answer.getheader("Content-Length") == str(len(PAGE["page.js"]))


def test_what_the_browser_has_is_not_sent_again(ask: Ask) -> None:
    first = ask("/page.js")
    first.read()
    again = ask("/page.js", **{"If-None-Match": str(first.getheader("ETag"))})
    assert (again.status, again.read()) == (304, b"")
    other = ask("/page.js", **{"If-None-Match": '"other"'})
    assert other.read() == PAGE["page.js"]


@pytest.mark.parametrize(
    "path",
    ["/ort", "/ort/", "/kits/", "/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "/.DS_Store"],
)
def test_no_folder_is_listed_and_none_is_left(ask: Ask, path: str) -> None:
    answer = ask(path)
    assert (answer.status, answer.read()) == (404, b"The studio has no such file.\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(ask: Ask, method: str) -> None:
    answer = ask("/", method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD")
    assert answer.getheader("Content-Security-Policy") == POLICY
    assert answer.read() == b"This studio answers GET and HEAD only.\n"


def test_a_port_that_is_taken_is_one_sentence(server: StudioServer, site: Site) -> None:
    taken = server.server_port
    with pytest.raises(PocketuneError, match=f"port {taken} cannot be used .*; choose another"):
        StudioServer(site, taken)

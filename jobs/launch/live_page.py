"""One page served on this machine's loopback address, and replaced while it is served."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from pipelines.errors import BadInput

LOOPBACK = "127.0.0.1"
# The host names that are answered. Under another name a page of another site could have the browser fetch this one.
OWN_NAMES = (LOOPBACK, "localhost")


class LivePage:
    """A page at `/` and its version number at `/version`, by which the page knows when to load itself again."""

    def __init__(self, port: int) -> None:
        """Raises BadInput for a port that is taken."""
        self.shown = 0
        self._page = b""
        try:
            self._server = ThreadingHTTPServer((LOOPBACK, port), _handler_of(self))
        except OSError as failure:
            raise BadInput(
                f"port {port} of {LOOPBACK} cannot be used ({failure.strerror}): name another --port, "
                "or leave it out for a free one"
            ) from failure
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}/"

    @property
    def next_version(self) -> str:
        return str(self.shown + 1)

    def show(self, page: str) -> None:
        """Serve this page from now on."""
        self._page = page.encode()
        self.shown += 1

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """The content type and bytes at a path; None where there is nothing."""
        if path == "/version":
            return "text/plain", str(self.shown).encode()
        return ("text/html; charset=utf-8", self._page) if path == "/" else None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler_of(live: LivePage) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            found = live.answer(self.path.partition("?")[0]) if host in OWN_NAMES else None
            if found is None:
                self.send_error(404)
                return
            kind, content = found
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: requests are the page's own."""

    return Handler

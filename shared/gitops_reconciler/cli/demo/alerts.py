"""The receiver of the demo's alerts: takes signed POSTs on a loopback port and keeps those whose signature is right."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LARGEST_BODY = 1 << 20

Verify = Callable[[dict[str, str], bytes], bool]
"""Whether the headers (names in lower case) sign the body."""


@dataclass(slots=True)
class Alerts:
    """What arrived so far."""

    url: str
    received: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0

    def of(self, event: str, target: str) -> dict[str, Any] | None:
        """Return the first alert about this event of this target."""
        matching = (alert for alert in self.received if (alert.get("event"), alert.get("target")) == (event, target))
        return next(matching, None)


@contextmanager
def receiving_alerts(verify: Verify) -> Iterator[Alerts]:
    """Receive alerts on a free port until the end of the block."""
    alerts = Alerts(url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _LARGEST_BODY))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if verify(headers, body):
                alerts.received.append(json.loads(body))
                self.send_response(204)
            else:
                alerts.refused += 1
                self.send_response(401)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Stay silent: the demo tells the story."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        alerts.url = f"http://127.0.0.1:{server.server_port}/alerts"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield alerts
        finally:
            server.shutdown()
            thread.join()

"""Ports for what listens: the one that is asked for, or a free one."""

from __future__ import annotations

import errno
import socket

from gitops_reconciler.errors import SettingsError

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # names for "all", and what to open


def claim_port(host: str, port: int, option: str) -> int:
    """Return the port, or a free one for 0, after a look whether it can be had.

    Raises:
        SettingsError: it can't; names the port, why, and the option that chooses another one.

    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "is in use" if taken else f"can't be had: {error.strerror or error}"
        raise SettingsError(f"port {port} of {host} {why}; choose another with {option} (0: any free one)") from error


def url_of(host: str, port: int) -> str:
    """Return an address that opens in a browser of this machine."""
    shown = _EVERYWHERE.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"

"""Where a Terraform state really is: one text per state, the same from every host and for every target that names it.

Only what addresses a state is taken from a backend's settings, never what proves who may read it. What an environment
variable or the provider's own configuration adds is not known here, except where a backend has nothing else to go by; a
state of unknown address has none, and is not refused to anybody: the engine's own lock is the last word.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

Settings = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAddress:
    """All that an address is made of, besides the backend's settings."""

    workdir: Path
    workspace: str
    host: str
    env: Mapping[str, str]

    def of(self, kind: str, settings: Settings) -> str:
        """Return the address of the state of a configured backend; empty when it is not known."""
        find = _FINDERS.get(kind)
        place = find(self, settings) if find is not None else ""
        if not place:
            return ""
        shown = "" if kind in _NAMING_WORKSPACES or self.workspace == "default" else f" workspace {self.workspace}"
        return f"{kind} state {place}{shown}"


def _local(about: StateAddress, settings: Settings) -> str:
    path = Path(_text(settings, "path") or "terraform.tfstate")
    if about.workspace != "default":  # these lie in a folder of their own, whatever `path` says
        folder = Path(_text(settings, "workspace_dir") or "terraform.tfstate.d")
        path = folder / about.workspace / "terraform.tfstate"
    return f"{about.host}:{os.path.realpath(about.workdir / path)}"


def _http(about: StateAddress, settings: Settings) -> str:
    return _plain_url(_text(settings, "address") or about.env.get("TF_HTTP_ADDRESS", ""))


def _s3(about: StateAddress, settings: Settings) -> str:
    """A bucket's name is its own everywhere, so that the region, which often comes from outside, says nothing."""
    endpoints = settings.get("endpoints")
    endpoint = _text(endpoints, "s3") if isinstance(endpoints, Mapping) else ""
    place = _joined(settings, "bucket", "key")
    prefix = _text(settings, "workspace_key_prefix")
    if place and prefix and about.workspace != "default":
        place = f"{place} prefix {prefix}"
    at = _plain_url(endpoint or _text(settings, "endpoint"))
    return f"{place} at {at}" if place and at else place


def _pg(about: StateAddress, settings: Settings) -> str:
    database = _database(_text(settings, "conn_str") or about.env.get("PG_CONN_STR", ""))
    schema = _text(settings, "schema_name") or about.env.get("PG_SCHEMA_NAME", "") or "terraform_remote_state"
    return f"{database} schema {schema}" if database else ""


def _consul(about: StateAddress, settings: Settings) -> str:
    address = _text(settings, "address") or about.env.get("CONSUL_HTTP_ADDR", "")
    path = _text(settings, "path")
    return f"{_plain_url(address)} {path}" if address and path else ""


def _remote(about: StateAddress, settings: Settings) -> str:
    workspaces = settings.get("workspaces")
    named = _first(workspaces)
    name = _text(named, "name") or f"{_text(named, 'prefix')}{about.workspace}"
    organization = _text(settings, "organization") or about.env.get("TF_CLOUD_ORGANIZATION", "")
    hostname = _text(settings, "hostname") or about.env.get("TF_CLOUD_HOSTNAME", "") or "app.terraform.io"
    return f"{hostname}/{organization}/{name}" if organization else ""


def _kubernetes(_about: StateAddress, settings: Settings) -> str:
    cluster = _text(settings, "host") or _text(settings, "config_context")
    suffix = _text(settings, "secret_suffix")
    namespace = _text(settings, "namespace") or "default"
    return f"{cluster} {namespace}/{suffix}" if cluster and suffix else ""


def _bucket(*names: str) -> Callable[[StateAddress, Settings], str]:
    return lambda _address, settings: _joined(settings, *names)


_FINDERS: dict[str, Callable[[StateAddress, Settings], str]] = {
    "local": _local,
    "http": _http,
    "s3": _s3,
    "pg": _pg,
    "consul": _consul,
    "remote": _remote,
    "cloud": _remote,
    "kubernetes": _kubernetes,
    "gcs": _bucket("bucket", "prefix?"),
    "azurerm": _bucket("storage_account_name", "container_name", "key"),
    "oss": _bucket("bucket", "prefix?", "key?"),
    "cos": _bucket("bucket", "prefix?", "key?"),
}
_NAMING_WORKSPACES = frozenset({"local", "remote", "cloud"})
"""Backends whose address has the workspace in it."""


def _text(settings: object, name: str) -> str:
    value = settings.get(name) if isinstance(settings, Mapping) else None
    return value if isinstance(value, str) else ""


def _first(block: object) -> object:
    """Return the settings of a nested block, which some versions write as a list of one."""
    return block[0] if isinstance(block, list) and block else block


def _joined(settings: Settings, *names: str) -> str:
    """Return these settings as a path; empty when one is missing that is not optional (`?`)."""
    parts = [(_text(settings, name.removesuffix("?")), name.endswith("?")) for name in names]
    if any(not part and not is_optional for part, is_optional in parts):
        return ""
    return "/".join(part.strip("/") for part, _ in parts if part)


def _plain_url(url: str) -> str:
    """Return a URL without user, password and query; of the query, which may tell two states apart, a digest stays."""
    if not url:
        return ""
    parts = urlsplit(url if "//" in url else f"//{url}")
    host = parts.netloc.rpartition("@")[2].lower()
    digest = f" query {hashlib.sha256(parts.query.encode()).hexdigest()[:12]}" if parts.query else ""
    return f"{parts.scheme}://{host}{parts.path}{digest}" if parts.scheme else f"{host}{parts.path}{digest}"


def _database(connection: str) -> str:
    """Return host, port and database of a PostgreSQL connection, a URL or `name=value` pairs; no user, no password."""
    if "://" in connection:
        parts = urlsplit(connection)
        query = parse_qs(parts.query)
        host = parts.netloc.rpartition("@")[2].lower() or query.get("host", [""])[0]
        return f"{host}/{parts.path.strip('/') or query.get('dbname', [''])[0]}"
    try:
        pairs = dict(pair.split("=", 1) for pair in shlex.split(connection) if "=" in pair)
    except ValueError:
        return ""
    host = ":".join(part for part in (pairs.get("host") or pairs.get("hostaddr", ""), pairs.get("port", "")) if part)
    return f"{host.lower()}/{pairs.get('dbname', '')}" if pairs else ""

"""Every knob of the product: prefix GITOPS_, checked at start, documented in docs/configuration.md."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from gitops_reconciler.errors import SettingsError
from gitops_reconciler.layout import Layout, default_state_dir
from gitops_reconciler.redis_address import BROKER_SCHEMES, STORE_SCHEMES, check_address

_OUR_VARIABLES = ("GITOPS_SECRET_", "GITOPS_RUN", "GITOPS_TARGET", "GITOPS_SPEC", "GITOPS_INPUTS", "GITOPS_COMMAND")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"^\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)\s*$")

_LEASE_SLACK = timedelta(seconds=2)  # what a run's order leaves of the lease once an interrupted run is gone


def parse_duration(text: object) -> timedelta:
    """Return `500ms`, `60s`, `10m`, `1h`, `3d` as a timedelta; a bare number is seconds.

    Raises ValueError that says what is allowed.
    """
    if isinstance(text, timedelta):
        return text
    if isinstance(text, int | float) and not isinstance(text, bool) and text >= 0:
        return timedelta(seconds=text)
    if isinstance(text, str):
        if match := _DURATION.match(text):
            return timedelta(seconds=float(match["number"]) * _UNITS[match["unit"]])
        if re.fullmatch(r"\d+(\.\d+)?", text.strip()):
            return timedelta(seconds=float(text))
    message = f"'{text}' is no duration (allowed: a number with ms, s, m, h or d, as in 500ms, 60s, 10m, 1h)"
    raise ValueError(message)


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]


def _words(value: object) -> object:
    return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value


def _aliases(name: str, *more: str) -> AliasChoices:
    return AliasChoices(f"GITOPS_{name}", *more)


class Settings(BaseSettings):
    """All settings of all roles; wrong ones stop the program at start with one clear line each."""

    model_config = SettingsConfigDict(
        env_prefix="GITOPS_",
        extra="ignore",
        frozen=True,
        enable_decoding=False,
        populate_by_name=True,
        env_ignore_empty=True,
    )

    state_dir: Path = Field(
        default_factory=default_state_dir, validation_alias=_aliases("STATE_DIR", "GRID_CONFIG_ROOT")
    )
    redis_url: SecretStr | None = None
    broker_url: SecretStr | None = None
    server: str | None = None
    token: SecretStr | None = None
    pools: Annotated[tuple[str, ...], BeforeValidator(_words)] = ("*",)
    interval: Duration = timedelta(minutes=10)
    lease_ttl: Duration = timedelta(seconds=60)
    lease_renewal: Duration = timedelta(seconds=10)
    lease_grace: Duration = timedelta(seconds=25)
    sweep_interval: Duration = timedelta(milliseconds=500)
    run_deadline: Duration = timedelta(hours=1)
    run_history: int = Field(default=50, ge=1, le=10_000)
    run_retention: Duration = timedelta(days=30)
    pool_dead_after: Duration = timedelta(seconds=60)
    worker_slots: int = Field(default=16, ge=1, le=512)
    worker_grace: Duration = timedelta(seconds=25)
    worker_watchdog: Duration = timedelta(seconds=30)

    repo_url: str | None = Field(default=None, validation_alias=_aliases("REPO_URL", "GRID_GITOPS_REPO_URL"))
    repo_branch: str = Field(default="main", validation_alias=_aliases("REPO_BRANCH", "GRID_GITOPS_BRANCH"))
    repo_path: str = Field(default="gitops/", validation_alias=_aliases("REPO_PATH", "GRID_GITOPS_PATH"))
    sync_interval_sec: int = Field(
        default=600, ge=0, validation_alias=_aliases("SYNC_INTERVAL_SEC", "GRID_GITOPS_SYNC_INTERVAL_SEC")
    )
    git_credentials_file: Path | None = None
    git_allow_local: Path | None = None
    git_timeout: Duration = timedelta(minutes=2)

    secrets_dir: Path | None = None
    webhook_secrets_dir: Path | None = None
    webhook_body_limit_mib: int = Field(default=25, ge=1, le=100)
    notify: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    notify_secret: str | None = None

    host: str = "127.0.0.1"
    port: int = Field(default=8420, ge=0, le=65535)
    flower_port: int = Field(default=0, ge=0, le=65535)
    log_format: str = Field(default="console", pattern="^(console|json)$")
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")

    @field_validator("redis_url")
    @classmethod
    def _is_a_store(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_address(url.get_secret_value(), STORE_SCHEMES)
        return url

    @field_validator("broker_url")
    @classmethod
    def _is_a_broker(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_address(url.get_secret_value(), BROKER_SCHEMES)
        return url

    @field_validator("state_dir", "git_allow_local", "git_credentials_file", "secrets_dir", "webhook_secrets_dir")
    @classmethod
    def _is_absolute(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            message = f"'{path}' must be an absolute path"
            raise ValueError(message)
        return path

    @field_validator("repo_path")
    @classmethod
    def _stays_inside(cls, path: str) -> str:
        parts = path.replace("\\", "/").split("/")
        if path.startswith(("/", "\\")) or ".." in parts:
            message = f"'{path}' must be a relative path without '..'"
            raise ValueError(message)
        return "/".join(part for part in parts if part not in {"", "."})

    @model_validator(mode="after")
    def _grace_fits(self) -> Self:
        if self.lease_grace > self.lease_ttl / 2:
            message = (
                f"GITOPS_LEASE_GRACE ({self.lease_grace.total_seconds():g}s) may be at most half of "
                f"GITOPS_LEASE_TTL ({self.lease_ttl.total_seconds():g}s), or an interrupted run outlives its lease"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _renewal_fits(self) -> Self:
        window = self.lease_ttl - self.lease_grace - _LEASE_SLACK
        if self.lease_renewal >= window:
            message = (
                f"GITOPS_LEASE_RENEWAL ({self.lease_renewal.total_seconds():g}s) must be shorter than "
                f"{window.total_seconds():g}s: GITOPS_LEASE_TTL ({self.lease_ttl.total_seconds():g}s) less "
                f"GITOPS_LEASE_GRACE ({self.lease_grace.total_seconds():g}s) and "
                f"{_LEASE_SLACK.total_seconds():g}s of slack"
            )
            raise ValueError(message)
        return self

    @property
    def layout(self) -> Layout:
        """The state folder's paths."""
        return Layout(self.state_dir)


def load_settings(**overrides: Any) -> Settings:  # any field of Settings
    """Return the settings of this process' environment.

    Raises:
        SettingsError: one line per wrong setting: its name, the value where it is no secret, what is allowed.

    """
    misspelt = misspelt_settings(os.environ)
    if misspelt:
        raise SettingsError("; ".join(misspelt))
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = [(_setting_name(item["loc"]), item["msg"].removeprefix("Value error, ")) for item in error.errors()]
        lines = [f"{name}: {problem}" if name else problem for name, problem in problems]
        raise SettingsError("; ".join(lines)) from None


def misspelt_settings(environ: Mapping[str, str]) -> list[str]:
    """Return a line for each variable that is none of ours but looks as if it were meant to be one."""
    known = [f"GITOPS_{name.upper()}" for name in Settings.model_fields]
    lines = []
    for name in sorted(environ):
        if name.startswith("GITOPS_") and name not in known and not name.startswith(_OUR_VARIABLES):
            close = get_close_matches(name, known, n=1, cutoff=0.85)
            lines += [f"{name}: there is no such setting (did you mean {close[0]}?)"] if close else []
    return lines


def _setting_name(location: tuple[int | str, ...]) -> str:
    if not location:
        return ""  # about several at once: the message names them
    name = str(location[0])
    return name if name.isupper() else f"GITOPS_{name.upper()}"

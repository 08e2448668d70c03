"""Which channels the settings ask for."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from gitops_reconciler.clock import Clock, SystemClock
from gitops_reconciler.notify.base import Channel
from gitops_reconciler.notify.log import LogChannel
from gitops_reconciler.notify.webhook import WebhookChannel
from gitops_reconciler.secrets import ReferencedSecrets, is_reference
from gitops_reconciler.settings import Settings

LOG_CHANNEL = "log"


def build_channels(
    settings: Settings, *, environ: Mapping[str, str] = os.environ, clock: Clock | None = None
) -> dict[str, Channel]:
    """Return a channel for each entry of GITOPS_NOTIFY by a name that tells no secret; without any, the log."""
    secrets = ReferencedSecrets(folder=settings.secrets_dir, environ=environ)
    channels: dict[str, Channel] = {}
    for place in settings.notify:
        name = channel_name(place)
        channels[name] = WebhookChannel(
            name=name, place=place, secret=settings.notify_secret, secrets=secrets, clock=clock or SystemClock()
        )
    return channels or {LOG_CHANNEL: LogChannel()}


def channel_name(place: str) -> str:
    """Return the name of a channel: its reference, or for a plain URL a digest, since paths of webhooks are secrets."""
    return place if is_reference(place) else f"url-{hashlib.sha256(place.encode()).hexdigest()[:12]}"

"""Secrets are taken out by value, whatever they are made of."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from gitops_reconciler.redaction import Redactor, printable, redact_url
from gitops_reconciler.secrets import ReferencedSecrets
from gitops_reconciler.settings import load_settings
from gitops_reconciler.wiring import run_parts


def test_a_secret_of_any_bytes_is_masked_also_as_part_of_a_url(tmp_path: Path) -> None:
    raw = b"\xff\xfe key \x80\x81"
    (tmp_path / "key").write_bytes(raw)
    redactor = Redactor()
    value = ReferencedSecrets(folder=tmp_path, environ={}, redactor=redactor).resolve("file:key")
    assert redactor.text(f"<{value}>") == "<***>"
    assert redactor.text(f"<{quote(raw, safe='')}>") == "<***>"


@pytest.mark.parametrize(
    "url",
    ["redis://:p%40ss%2Fword@redis.example/0", "unix:///run/redis.sock?db=0&password=p%40ss%2Fword"],
)
def test_the_password_of_the_store_is_masked_as_written_and_as_meant(url: str, state_dir: Path) -> None:
    redactor = run_parts(load_settings(redis_url=SecretStr(url)), {}).redactor
    assert redactor.text("AUTH p@ss/word, AUTH p%40ss%2Fword") == "AUTH ***, AUTH ***"


def test_a_long_line_costs_no_more_than_its_length() -> None:
    for text in ("a" * 20_000_000, "://" * 2_000_000, "http://" + "u" * 5_000_000):
        assert len(redact_url(text)) == len(text)


@pytest.mark.parametrize(
    ("said", "kept"), [("\x1b[31mred\x1b[0m", "red"), ("a\x1b[2Kb\rc", "abc"), ("tab\there", "tab\there")]
)
def test_colours_and_control_characters_are_dropped_whole(said: str, kept: str) -> None:
    assert printable(said) == kept

"""What services log: one event per line, with no secret in any part of it."""

from __future__ import annotations

import json
import logging

import pytest

from gitops_reconciler.logs import set_up_logging
from gitops_reconciler.redaction import Redactor

SECRET = "correct-horse-battery"
URL = f"https://ann:{SECRET[:7]}@git.example/infra"


def logged(log_format: str, capsys: pytest.CaptureFixture[str]) -> str:
    set_up_logging(log_format, "INFO", redactor=Redactor([SECRET]))
    try:
        raise ValueError(f"token {SECRET} refused by {URL}\x07")
    except ValueError as error:
        fields = {"target": "web", "url": URL, "why": error, "nested": {"token": [SECRET]}, "number": 7}
        logging.getLogger("a.library").exception("failed with %s at %s\x07", SECRET, URL, extra=fields)
    return capsys.readouterr().err


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_no_part_of_a_line_shows_a_secret_or_a_login(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = logged(log_format, capsys)
    assert SECRET not in text
    assert "ann:" not in text
    assert "\x07" not in text
    assert "Traceback" in text
    assert text.count("https://***@git.example/infra") >= 3


def test_a_line_of_json_keeps_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    entry = json.loads(logged("json", capsys))
    assert (entry["target"], entry["number"], entry["nested"]) == ("web", 7, {"token": ["***"]})
    assert entry["url"] == "https://***@git.example/infra"
    assert "token *** refused by https://***@git.example/infra" in entry["exception"]

"""A git `post-receive` hook for the demo's remote: it tells a receiver of each push as GitHub does, signed."""

from __future__ import annotations

import shlex
from pathlib import Path

_START = """\
#!/bin/sh
exec {python} -I {script}
"""
_SCRIPT = '''\
"""Post a GitHub-like, signed push event for each branch that was pushed; git calls this after a push."""

import hashlib
import hmac
import json
import sys
import urllib.request
import uuid

URL = {url!r}
REPOSITORY = {repository!r}
SECRET_FILE = {secret_file!r}


def post(old, new, ref):
    event = {{
        "ref": ref,
        "before": old,
        "after": new,
        "created": not old.strip("0"),
        "deleted": not new.strip("0"),
        "repository": {{"full_name": "demo/infra", "clone_url": REPOSITORY}},
        "pusher": {{"name": "demo"}},
    }}
    body = json.dumps(event).encode()
    with open(SECRET_FILE, encoding="utf-8") as file:
        secret = file.readline().strip().encode()
    request = urllib.request.Request(URL, data=body, method="POST")
    request.add_header("Content-Type", "application/json")
    request.add_header("X-GitHub-Event", "push")
    request.add_header("X-GitHub-Delivery", str(uuid.uuid4()))
    request.add_header("X-Hub-Signature-256", "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    with opener.open(request, timeout=10) as answer:
        print("webhook answered", answer.status)


for line in sys.stdin:
    try:
        post(*line.split())
    except OSError as error:
        print("webhook not delivered:", error)
'''


def write_hook(bare: Path, *, python: str, url: str, secret_file: Path) -> None:
    """Make the remote post its pushes to this URL, signed with the first line of the secret file."""
    folder = bare / "hooks"
    folder.mkdir(exist_ok=True)
    script = folder / "post_push.py"
    text = _SCRIPT.format(url=url, repository=str(bare), secret_file=str(secret_file))
    script.write_text(text, encoding="utf-8")
    hook = folder / "post-receive"
    hook.write_text(_START.format(python=shlex.quote(python), script=shlex.quote(str(script))), encoding="utf-8")
    hook.chmod(0o755)

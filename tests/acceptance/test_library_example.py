"""The example of the README, as it stands there, in a fresh virtual environment with only the core installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.git_repos import GitUpstream, git
from tests.support.tools import missing

ROOT = Path(__file__).parents[2]
MODULE = 'resource "terraform_data" "network" {\n  input = "v1"\n}\n'
HEAVY = ("celery", "fastapi", "boto3", "pulumi", "docker", "asyncssh")


def example(infra: Path) -> str:
    """The README's code, with its folder moved into the test's."""
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    return code[1].replace("/srv/infra", str(infra))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and its core dependencies."""
    folder = tmp_path_factory.mktemp("core")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=True)
    interpreter = folder / "venv" / "bin" / "python"
    installed = subprocess.run(
        [str(interpreter), "-m", "pip", "install", "--quiet", str(wheel)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if installed.returncode:
        missing("a package index", f"allow pip to reach one ({installed.stderr.strip().splitlines()[-1]})")
    return interpreter


@pytest.mark.timeout(600)
@pytest.mark.req("R0.10", "R0.5", "R0.31")
def test_the_example_applies_a_real_stack_and_then_confirms_it(python: Path, terraform: Path, tmp_path: Path) -> None:
    upstream = GitUpstream.create(tmp_path, "infra")
    upstream.publish({"network/main.tf": MODULE}, "first")
    infra = tmp_path / "srv"
    git(tmp_path, "clone", "--quiet", str(upstream.bare), str(infra))
    environ = {
        "PATH": f"{terraform.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GITOPS_STATE_DIR": str(tmp_path / "state"),
        "GITOPS_GIT_ALLOW_LOCAL": str(tmp_path),
    }
    check = f"\nimport sys\nassert not [name for name in {HEAVY!r} if name in sys.modules]\n"
    results = []
    for _ in range(2):
        done = subprocess.run(
            [str(python), "-c", example(infra) + check],
            cwd=tmp_path,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        results.append(json.loads((tmp_path / "state" / "targets" / "prod-network.json").read_text()))
    assert [result["result"] for result in results] == ["changed", "no_change"]
    assert results[1]["sha"] == upstream.head

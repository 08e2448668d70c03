"""What git gets to know: an environment from nothing (hazards G05, G13 to G16, G22, G92, G93)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gitops_reconciler.clock import Deadline
from gitops_reconciler.git.command import Access, Git
from gitops_reconciler.processes import Finished, OnLine

HOSTILE = {
    "PATH": "/opt/git/bin:/bin",
    "HOME": "/home/jane",
    "XDG_CONFIG_HOME": "/home/jane/.config",
    "LANG": "de_DE.UTF-8",
    "https_proxy": "http://proxy.example:3128",
    "GITOPS_SECRET_X": "t0ken",
    "AWS_SECRET_ACCESS_KEY": "t0ken",
    **dict.fromkeys(
        (
            "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_EXEC_PATH",
            "GIT_TEMPLATE_DIR", "GIT_SSH", "GIT_PROXY_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_TRACE_CURL", "SSH_AUTH_SOCK",
        ),
        "/evil",
    ),
    "GIT_CONFIG_PARAMETERS": "'core.hooksPath'='/evil'",
    "GIT_CONFIG_COUNT": "1",
    "GIT_SSL_NO_VERIFY": "1",
    "GIT_TRACE_REDACT": "0",
    "GIT_ALLOW_PROTOCOL": "ext",
}  # fmt: skip


class Recorder:
    """A runner that starts nothing."""

    def __init__(self) -> None:
        self.argv: tuple[str, ...] = ()
        self.env: dict[str, str] = {}
        self.pass_fds: tuple[int, ...] = ()

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        deadline: Deadline,
        stdin: bytes = b"",
        on_line: OnLine | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Finished:
        self.argv, self.env, self.pass_fds = tuple(argv), dict(env), tuple(pass_fds)
        return Finished(argv=self.argv, returncode=0, stdout="", stderr="")


def ran(access: Access | None = None) -> Recorder:
    recorder = Recorder()
    git = Git(runner=recorder, folder=Path("/state"), environ=HOSTILE)
    git.run(
        "status",
        git_dir=Path("/state/x.git"),
        work_tree=Path("/state/tree"),
        access=access or Access(),
        deadline=Deadline(),
        lock_fd=7,
    )
    return recorder


def config_of(env: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for number in range(int(env["GIT_CONFIG_COUNT"])):
        found.setdefault(env[f"GIT_CONFIG_KEY_{number}"], []).append(env[f"GIT_CONFIG_VALUE_{number}"])
    return found


def test_nothing_of_the_callers_environment_reaches_git_but_how_to_get_out() -> None:
    env = ran().env
    assert "/evil" not in env.values()
    assert "t0ken" not in env.values()
    assert not any(name.startswith("GIT_TRACE") for name in env)
    assert "GIT_CONFIG_PARAMETERS" not in env
    assert "GIT_SSL_NO_VERIFY" not in env
    assert env["PATH"] == "/opt/git/bin:/bin"
    assert env["https_proxy"] == "http://proxy.example:3128"
    assert env["HOME"] == "/dev/null"
    assert env["LC_ALL"] == "C.UTF-8"


def test_no_configuration_but_ours_counts() -> None:
    env = ran().env
    config = config_of(env)
    assert env["GIT_CONFIG_NOSYSTEM"] == "1"
    assert env["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert config["core.hooksPath"] == ["/dev/null"]
    assert config["http.followRedirects"] == ["false"]
    assert config["credential.helper"] == [""]


def test_the_folders_are_always_explicit_and_the_lock_is_inherited() -> None:
    recorder = ran()
    assert recorder.argv == ("git", "--git-dir=/state/x.git", "--work-tree=/state/tree", "status")
    assert recorder.env["GIT_CEILING_DIRECTORIES"] == "/state"
    assert recorder.pass_fds == (7,)


def test_without_access_no_protocol_is_allowed() -> None:
    assert ran().env["GIT_ALLOW_PROTOCOL"] == ""


def test_a_lent_login_comes_after_the_clean_slate() -> None:
    env = ran(Access(protocol="https", config=(("credential.helper", "!ours"),))).env
    assert env["GIT_ALLOW_PROTOCOL"] == "https"
    assert config_of(env)["credential.helper"] == ["", "!ours"]

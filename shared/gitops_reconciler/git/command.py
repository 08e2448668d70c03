"""The only way in which git is started: an environment made from nothing, no configuration but ours, explicit folders.

What the settings are good for is said in docs/decisions/0002-git-runs-as-a-process.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from gitops_reconciler.clock import Deadline
from gitops_reconciler.processes import Finished, Runner, popen
from gitops_reconciler.processes.starting import PIPE

_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/dev/null",  # nobody's: no .netrc, no .gitconfig, no .config/git
    "LC_ALL": "C.UTF-8",
    "LANGUAGE": "",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "/bin/false",
    "GIT_SSH_COMMAND": "/bin/false",
    "GIT_SSH_VARIANT": "ssh",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_DEFAULT_REF_FORMAT": "files",
}
# What a machine needs to reach the outside, and where temporary files go. Anything else of the caller stays outside.
_PASSED_ON = (
    "PATH", "TMPDIR",
    "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
)  # fmt: skip

# Old repositories carry these faults, which harm nobody; all others are refused (G40).
_HARMLESS_FAULTS = (
    "badTimezone", "missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail",
    "zeroPaddedDate", "zeroPaddedFilemode",
)  # fmt: skip

_CONFIG: tuple[tuple[str, str], ...] = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.symlinks", "true"),
    ("core.autocrlf", "false"),
    ("core.protectNTFS", "true"),
    ("core.protectHFS", "true"),
    ("core.logAllRefUpdates", "false"),
    ("core.fsync", "committed,reference"),
    ("core.quotePath", "false"),
    ("safe.bareRepository", "explicit"),
    ("fetch.fsckObjects", "true"),
    *((f"fetch.fsck.{fault}", "ignore") for fault in _HARMLESS_FAULTS),
    ("fetch.recurseSubmodules", "false"),
    ("submodule.recurse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("http.followRedirects", "false"),
    ("http.lowSpeedLimit", "1000"),
    ("http.lowSpeedTime", "30"),
    ("http.sslVerify", "true"),
    ("credential.helper", ""),  # an empty one forgets those before it
    ("credential.useHttpPath", "true"),
    ("advice.detachedHead", "false"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one command may reach: the one protocol, and the configuration that carries a login."""

    protocol: str = ""
    config: tuple[tuple[str, str], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


OFFLINE = Access()


@dataclass(frozen=True, slots=True)
class Pipes:
    """A command under way: what it reads, what it answers, and a file of what it says on stderr."""

    questions: IO[bytes]
    answers: IO[bytes]
    said: IO[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Git:
    """Runs git. Nothing of `environ` but proxies, certificates, PATH and TMPDIR reaches it."""

    runner: Runner
    folder: Path
    """Where commands start, and where a search for a repository upwards would end: never inside content."""
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        *arguments: str,
        git_dir: Path,
        work_tree: Path | None = None,
        access: Access = OFFLINE,
        deadline: Deadline,
        lock_fd: int | None = None,
    ) -> Finished:
        """Run one command to its end, whatever its exit code.

        `lock_fd` is inherited, so that the lock lives as long as anything of the command does.

        Raises:
            DeadlineExceededError: it took too long and was ended, with all its children.

        """
        return self.runner.run(
            _command(arguments, git_dir, work_tree),
            cwd=self.folder,
            env=self.environment(access),
            deadline=deadline,
            pass_fds=() if lock_fd is None else (lock_fd,),
        )

    @contextmanager
    def talk(self, *arguments: str, git_dir: Path) -> Iterator[Pipes]:
        """Talk to a command over pipes while the block runs. It ends when its stdin is closed, so also when we die."""
        with tempfile.TemporaryFile() as said:
            process = popen(
                _command(arguments, git_dir, None),
                cwd=self.folder,
                env=self.environment(OFFLINE),
                stdin=PIPE,
                stdout=PIPE,
                stderr=said,
            )
            if process.stdin is None or process.stdout is None:
                raise AssertionError("pipes were asked for")
            try:
                yield Pipes(process.stdin, process.stdout, said)
            finally:
                for pipe in (process.stdin, process.stdout):
                    with suppress(BrokenPipeError):
                        pipe.close()
                process.kill()  # it only reads: nothing is left half done
                process.wait()

    def environment(self, access: Access) -> dict[str, str]:
        """Return all that git gets to know."""
        passed = {name: self.environ[name] for name in _PASSED_ON if self.environ.get(name)}
        config = (*_CONFIG, *access.config)
        return {
            **_ENVIRONMENT,
            **passed,
            "GIT_ALLOW_PROTOCOL": access.protocol,
            "GIT_CEILING_DIRECTORIES": str(self.folder),
            # Not `-c`: a command line is public on its machine (G91).
            "GIT_CONFIG_COUNT": str(len(config)),
            **{f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(config)},
            **{f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(config)},
            **access.env,
        }


def _command(arguments: Sequence[str], git_dir: Path, work_tree: Path | None) -> list[str]:
    # Explicit folders: git must never find another repository above a damaged one (G15, G16, G23).
    where = [f"--git-dir={git_dir}"] if work_tree is None else [f"--git-dir={git_dir}", f"--work-tree={work_tree}"]
    return ["git", *where, *arguments]

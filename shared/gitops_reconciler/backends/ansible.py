"""Ansible: a playbook is as idempotent as it is written; what changed is the sum of what its hosts say changed."""

from __future__ import annotations

import configparser
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from gitops_reconciler.backends.ansible_recap import Recap
from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.local import config_of, local_tools
from gitops_reconciler.backends.messages import head, listed, tail
from gitops_reconciler.clock import Deadline
from gitops_reconciler.errors import ReconcileError, ToolMissingError, UnreachableError
from gitops_reconciler.models import DRY_RUN_WOULD_CHANGE, AnsibleConfig, ApplyResult, ChangeCounts, Status
from gitops_reconciler.processes import Finished, find_executable

_PLAYBOOK = "ansible-playbook"
_TIDY_SECONDS = 5  # beyond the run's own deadline, which may be over
_LONGEST_FOLDER_OF_SOCKETS = 70  # of the 108 bytes of a socket's path, 28 are ssh's
_UNPRINTABLE = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_TEMPLATE = re.compile(r"\{[{%#]")
_EVENTS = Path(__file__).parent / "ansible_events"
_LOCAL_INTERPRETER = """\
all:
  vars:
    ansible_python_interpreter: >-
      {{ ansible_playbook_python if (ansible_connection | default('ssh')) == 'local' else 'auto' }}
"""
"""The weakest of all inventories, so that it is a default: tasks on this machine run in the Python that runs Ansible.

Discovery picks any `python3.x` it finds, also one that cannot run a module.
"""


class AnsibleBackend:
    """One playbook on one inventory."""

    kind: ClassVar[str] = "ansible"
    config_type: ClassVar[type[AnsibleConfig]] = AnsibleConfig

    def __init__(self, config: AnsibleConfig | None = None, tools: Tools | None = None, **fields: Any) -> None:
        self._config = config_of(self.config_type, config, fields)
        self._tools = tools or local_tools()
        self._outputs: dict[str, Any] = {}

    def apply(self) -> Status:
        """Run the playbook; with `dry_run` in check mode.

        Raises:
            UnreachableError: a host did not answer, and nothing else went wrong.

        """
        return self._play(self._config.playbook, "apply")

    def destroy(self) -> Status:
        """Run the teardown playbook; there is no other way to undo what a playbook did."""
        if self._config.destroy_playbook is None:
            message = "ansible has no generic destroy: write a teardown playbook and name it in destroy_playbook"
            return Status(result=ApplyResult.FAILED, message=message)
        status = self._play(self._config.destroy_playbook, "destroy")
        self._outputs = {}
        return status

    def get_outputs(self) -> dict[str, Any]:
        """Return what the playbook of this object's last apply gave to `set_stats`; `{}` before that.

        With several hosts it needs `run_once` or `aggregate: false` there: by default Ansible adds the values up.
        """
        return dict(self._outputs)

    def resource_key(self) -> str:
        """Return nothing: many playbooks may work on one host, and what each of them owns there it does not say."""
        return ""

    def _play(self, playbook: Path, phase: str) -> Status:
        self._tools.log.phase(phase)
        playbook = playbook.absolute()
        with TemporaryDirectory(prefix="gitops-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            recap = Recap(self._tools.log)
            env = self._environment(folder)
            argv = [self._executable(env, playbook.parent), *self._arguments(folder, env, playbook)]
            try:
                finished = self._tools.runner.run(
                    argv, cwd=playbook.parent, env=env, deadline=self._tools.deadline, on_line=recap.line
                )
            finally:
                self._end_connections(folder, env)
            recap.read_numbers(folder / "numbers.json")
        if not self._config.dry_run:
            self._outputs = recap.outputs
        return self._status(finished, recap)

    def _executable(self, env: Mapping[str, str], cwd: Path) -> str:
        """Return the tool from PATH, else the one that was installed together with us."""
        try:
            return find_executable(_PLAYBOOK, cwd=cwd, env=env)
        except ToolMissingError as error:
            beside = Path(sys.executable).parent / _PLAYBOOK
            if beside.is_file():
                return str(beside)
            raise ToolMissingError(f"{error}; or beside us: pip install 'gitops-reconciler[ansible]'") from None

    def _arguments(self, folder: Path, env: Mapping[str, str], playbook: Path) -> Iterable[str]:
        if not _names_an_interpreter(env, playbook.parent):
            defaults = folder / "defaults.yml"
            defaults.write_text(_LOCAL_INTERPRETER, encoding="utf-8")
            yield from ("-i", str(defaults))
        yield from ("-i", _inventory(self._config.inventory))
        if self._config.extra_vars:
            extra = folder / "extra.yml"
            extra.touch(mode=0o600)
            extra.write_text(literal_yaml(self._config.extra_vars), encoding="utf-8")
            yield from ("--extra-vars", f"@{extra}")
        if self._config.limit is not None:
            yield from ("--limit", self._config.limit)
        if self._config.dry_run:
            yield "--check"
        yield str(playbook)

    def _environment(self, folder: Path) -> dict[str, str]:
        given = {**self._tools.env, **self._config.env}
        plugins = [str(_EVENTS), given.get("ANSIBLE_CALLBACK_PLUGINS", "")]
        sockets = folder / "cp"
        env = {
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_RETRY_FILES_ENABLED": "0",
            **(
                {} if given.keys() & {"LC_ALL", "LC_CTYPE", "LANG"} else {"LANG": "C.UTF-8"}
            ),  # Ansible insists on UTF-8
            **given,
            "ANSIBLE_CALLBACK_PLUGINS": ":".join(path for path in plugins if path),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "GITOPS_EVENTS_FILE": str(folder / "numbers.json"),
        }
        if len(str(sockets)) <= _LONGEST_FOLDER_OF_SOCKETS:
            # Connections of our own: a shared one would end under another target's run.
            env["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str(sockets)
        return env

    def _end_connections(self, folder: Path, env: Mapping[str, str]) -> None:
        """End the ssh masters that Ansible leaves waiting for a next run."""
        for socket in (folder / "cp").glob("*"):
            with suppress(ReconcileError):  # without it they end by themselves after a minute
                argv = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "gitops"]
                self._tools.runner.run(argv, cwd=folder, env=env, deadline=Deadline.after(_TIDY_SECONDS))

    def _status(self, finished: Finished, recap: Recap) -> Status:
        if finished.returncode != 0:
            return self._failed(finished, recap)
        if not recap.is_known:
            message = "the playbook ended well but did not say what it did: is its stdout_callback the default one?"
            return Status(result=ApplyResult.FAILED, message=message)
        if not recap.changed:
            message = (
                f"no host took part: inventory '{self._config.inventory}' has none that the playbook's plays match"
            )
            return Status(result=ApplyResult.FAILED, message=message)
        counts = ChangeCounts(changed=recap.total_changed)
        if self._config.dry_run:
            message = f"{DRY_RUN_WOULD_CHANGE} {recap.summary}" if recap.total_changed else "dry-run: no changes"
            return Status(result=ApplyResult.NO_CHANGE, message=message, counts=counts)
        result = ApplyResult.CHANGED if recap.total_changed else ApplyResult.NO_CHANGE
        return Status(result=result, message=recap.summary, counts=counts)

    def _failed(self, finished: Finished, recap: Recap) -> Status:
        dark = ", ".join(recap.dark_hosts)
        troubles = [trouble for trouble in recap.failures if trouble.host in recap.failed_hosts]
        if recap.dark_hosts and not recap.failed_hosts:
            why = "; ".join(dict.fromkeys(trouble.why for trouble in recap.unreachable))
            others = f"; {recap.summary}" if recap.total_changed else ""
            raise UnreachableError(
                head(f"unreachable: {dark}: {why}{others}" if why else f"unreachable: {dark}{others}")
            )
        why = listed([str(trouble) for trouble in troubles]) or self._complaint(finished)
        unreachable = f"; unreachable: {dark}" if dark else ""
        return Status(result=ApplyResult.FAILED, message=f"{head(why)}{unreachable}")

    @staticmethod
    def _complaint(finished: Finished) -> str:
        """Return what Ansible said about a playbook that it could not run at all."""
        return tail(finished.stderr) or tail(finished.stdout) or f"{_PLAYBOOK} exited {finished.returncode}"


def _inventory(inventory: Path | str) -> str:
    """Return the argument: hosts as they are, a path made absolute since the playbook's folder is the working one."""
    if isinstance(inventory, str) and inventory.endswith(","):
        return inventory
    return str(Path(inventory).absolute())


def _names_an_interpreter(env: Mapping[str, str], folder: Path) -> bool:
    """Whether the environment or the ansible.cfg that Ansible will find says which Python hosts have."""
    if "ANSIBLE_PYTHON_INTERPRETER" in env:
        return True
    home = Path(env.get("HOME", "/nonexistent"))
    places = [
        Path(env.get("ANSIBLE_CONFIG", "")),
        folder / "ansible.cfg",
        home / ".ansible.cfg",
        Path("/etc/ansible/ansible.cfg"),
    ]
    found = next((path for path in places if path.is_file()), None)
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    with suppress(OSError, configparser.Error, UnicodeDecodeError):
        if found is not None:
            parser.read_string(found.read_text(encoding="utf-8"))
    return parser.has_option("defaults", "interpreter_python")


def literal_yaml(values: Mapping[str, Any]) -> str:
    """Return variables as YAML in which what looks like a template is tagged `!unsafe`: data, never code.

    What another target put out must not become an expression that Ansible evaluates on this machine.
    """
    return "".join(f"{_text(name)}: {_literal(value)}\n" for name, value in values.items())


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(str(name))}: {_literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(_literal(item) for item in value) + "]"
    if isinstance(value, str):
        # Not on every text: Ansible guesses the type of a tagged one again, in spite of its quotes (1.5 for "1.50").
        return f"!unsafe {_text(value)}" if _TEMPLATE.search(value) else _text(value)
    return json.dumps(value)


def _text(text: str) -> str:
    """Return a quoted scalar: JSON's escapes are YAML's too, except for surrogate pairs, so these stay characters."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))

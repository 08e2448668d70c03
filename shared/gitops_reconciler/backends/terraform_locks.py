"""Terraform's own lock of a state: which state it is, whether a lock may be broken here, and what is said of one."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.http_locks import Held, HttpLocks
from gitops_reconciler.backends.state_locks import Lock, StateLocks, Verdict
from gitops_reconciler.backends.terraform_module import Module
from gitops_reconciler.backends.terraform_stream import plain_errors
from gitops_reconciler.errors import EngineLockedError, EngineLockLeftError
from gitops_reconciler.processes import Finished

_LOCKED_BY_THE_KERNEL = frozenset({None, "local"})
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]*")
_PLACES = frozenset(
    {"TF_HTTP_ADDRESS", "TF_HTTP_LOCK_ADDRESS", "TF_HTTP_UNLOCK_ADDRESS"}
    | {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_S3_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"}
)
"""Variables that say which state it is where the backend's settings don't."""
_LOCK_SWITCH = re.compile(r"(^|\s)--?lock=")
_A_PERSON_AT_WORK = timedelta(minutes=15)
"""So long a lock of somebody else is nothing to tell people of."""


@dataclass(frozen=True, slots=True)
class TerraformLocks:
    """The lock of the state that an initialised module has."""

    module: Module
    tools: Tools
    env: Mapping[str, str]
    """Of the engine."""

    @property
    def notes(self) -> StateLocks:
        """What this host noted on it."""
        places = {name: value for name, value in self.env.items() if name in _PLACES}
        workspace = self.module.workspace_variable()
        address = [str(self.module.workdir), self.module.backend, self._settings, workspace, places]
        is_noted = not self._is_left_to_people and not _may_not_lock(self.env)
        return StateLocks(
            root=self.tools.engine_locks if is_noted else None,
            state=hashlib.sha256(json.dumps(address, sort_keys=True, default=str).encode()).hexdigest()[:32],
            who=self._who,
            engines=frozenset({Path(self.module.binary).name, "terraform", "tofu"}),
            run=self.tools.env.get("GITOPS_RUN", ""),
        )

    @property
    def _settings(self) -> Mapping[str, object]:
        settings = self.module.configured_backend.get("config")
        return settings if isinstance(settings, dict) else {}

    @property
    def _who(self) -> str:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = self.env.get("USER", "")
        return f"{user}@{socket.gethostname()}"

    @property
    def _is_left_to_people(self) -> bool:
        """Whether this was never tried, or the lock ends with its holder anyway."""
        is_tried = self.module.backend == "http" or (self.module.backend == "s3" and self._settings.get("use_lockfile"))
        return not is_tried or bool(self._settings.get("dynamodb_table"))

    def look(self, told: Mapping[str, str]) -> Held:
        """Return who holds the lock, given what the engine told of it when it was refused."""
        known = Lock.of(told)
        server = HttpLocks.of(self._settings, self.env, self._who) if self.module.backend == "http" else None
        return Held(known) if server is None else server.look(known, self.tools.clock.now())

    def judge(self, lock: Lock) -> Verdict:
        """Tell whose lock it is; only that of a dead command of this host may be broken."""
        if self.module.backend in _LOCKED_BY_THE_KERNEL:
            return Verdict(is_live=True, why="a process holds it, for this lock ends with its process")
        if self._is_left_to_people:
            return Verdict(why=f"such locks of a '{self.module.backend}' backend are left to people")
        if not _ID.fullmatch(lock.id):
            return Verdict(why="its id is none that we would hand to a command")
        return self.notes.judge(lock)

    def free(self, held: Held, lock: Lock, run: Callable[[Sequence[str]], Finished]) -> str:
        """Break exactly this lock; returns why that did not work, else nothing.

        The s3 backend compares the id before it deletes. The http backend would not even send it, so there we do what
        the holder itself would have done at its end, and the server compares.
        """
        if self.module.backend == "http":
            server = HttpLocks.of(self._settings, self.env, self._who)
            is_free = server is not None and bool(held.description) and server.release(held.description)
            return "" if is_free else "the server refused to free it, or did not answer"
        finished = run(["force-unlock", "-force", lock.id])
        return "" if finished.returncode == 0 else plain_errors(finished.stderr)

    def refusal(self, told: Mapping[str, str]) -> EngineLockedError | EngineLockLeftError:
        """Return what a run ends with that was kept out, with all that a person needs to know."""
        lock = self.look(told).lock
        if lock is None:
            return EngineLockedError("the state was locked, and is free by now: asked again")
        verdict = self.judge(lock)
        what = f"the state is locked by {lock}"
        if verdict.is_live:
            return EngineLockedError(f"{what}: {verdict.why}; asked again")
        if verdict.orphan_of is not None:
            return EngineLockedError(f"{what}: {verdict.orphan_of} left it and is dead; the next run breaks it")
        message = (
            f"{what}, and that is not provably a dead run of this host: {verdict.why}. Nothing was changed, and it is "
            f"asked again. Once nobody works there, free it on {socket.gethostname()}: {self._unlock_command(lock)}"
        )
        made = lock.created_at
        is_young = made is not None and self.tools.clock.now() - made < _A_PERSON_AT_WORK
        return EngineLockedError(message) if is_young else EngineLockLeftError(message)

    def _unlock_command(self, lock: Lock) -> str:
        variables = [f"{name}={value}" for name, value in self.module.workspace_variable().items()]
        return shlex.join(
            [*variables, self.module.binary, f"-chdir={self.module.workdir}", "force-unlock", lock.id or "?"]
        )


def _may_not_lock(env: Mapping[str, str]) -> bool:
    """Whether the engine is told elsewhere to lock or not to lock: then its words prove nothing."""
    return any(name.startswith("TF_CLI_ARGS") and _LOCK_SWITCH.search(value) for name, value in env.items())

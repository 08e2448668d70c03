"""Terraform and OpenTofu: the engine is asked at every tick, and its own numbers say whether anything changed."""

from __future__ import annotations

import json
import logging
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.local import config_of, local_tools
from gitops_reconciler.backends.messages import head, listed, tail
from gitops_reconciler.backends.terraform_address import StateAddress
from gitops_reconciler.backends.terraform_locks import TerraformLocks
from gitops_reconciler.backends.terraform_module import Module, variables
from gitops_reconciler.backends.terraform_stream import LONGEST_MESSAGE, Stream, plain_errors
from gitops_reconciler.errors import (
    DeadlineExceededError,
    InterruptedRunError,
    MaxRemovalsError,
    ReconcileError,
)
from gitops_reconciler.models import (
    DRY_RUN_WOULD_CHANGE,
    ApplyResult,
    DriftReport,
    OpenTofuConfig,
    Status,
    TerraformConfig,
)
from gitops_reconciler.processes import Finished

_PLAN_HAS_CHANGES = 2
_ENDED_BY_ITSELF = frozenset({0, 1, _PLAN_HAS_CHANGES})
_OWN_VARIABLES = frozenset({"TF_WORKSPACE"})  # ours to say, whatever the environment brings along

_log = logging.getLogger("gitops_reconciler.run")


class TerraformBackend:
    """One root module in one workspace."""

    kind: ClassVar[str] = "terraform"
    config_type: ClassVar[type[TerraformConfig | OpenTofuConfig]] = TerraformConfig

    def __init__(
        self, config: TerraformConfig | OpenTofuConfig | None = None, tools: Tools | None = None, **fields: Any
    ) -> None:
        self._config = config_of(self.config_type, config, fields)
        self._tools = tools or local_tools()
        self._env = {
            **{name: value for name, value in self._tools.env.items() if name not in _OWN_VARIABLES},
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
            **dict(variables(self._config.variables)),
            **self._config.env,
        }
        workdir = self._config.workdir.absolute()
        self._module = Module(
            workdir=workdir,
            data_dir=workdir / self._env.get("TF_DATA_DIR", ".terraform"),
            state_dir=self._config.state_dir,
            workspace=self._config.workspace,
            backend_config=self._config.backend_config,
            binary=self._config.binary,
        )
        self._locks = TerraformLocks(self._module, self._tools, self._env)
        self._broken_locks: list[str] = []
        self.sensitive_outputs: frozenset[str] = frozenset()
        """Names of the outputs that the last `get_outputs` returned and that nobody may see."""

    def apply(self) -> Status:
        """Apply; with `dry_run` only plan, with `max_removals` plan first and apply exactly that plan."""
        if self._config.dry_run:
            return self._dry_run([])
        if self._config.max_removals is not None:
            return self._initialised(lambda: self._apply_plan_within(self._config.max_removals or 0))
        return self._change("apply")

    def destroy(self) -> Status:
        """Destroy what the state holds, with the same variables and workspace as apply."""
        if self._config.dry_run:
            return self._dry_run(["-destroy"])
        return self._change("destroy")

    def get_outputs(self) -> dict[str, Any]:
        """Return the outputs by name; `{}` when there is no state, or it cannot be read."""
        self._tools.log.phase("outputs")
        if self._init_if_needed() is not None:
            return {}
        finished = self._run(["output", "-json", "-no-color", *self._module.state_flag()])
        if finished.returncode != 0:
            self._tools.log.line(tail(finished.stderr))
            return {}
        outputs = _object(finished, self._config.binary)
        self.sensitive_outputs = frozenset(name for name, output in outputs.items() if output.get("sensitive"))
        return {name: output.get("value") for name, output in outputs.items()}

    def resource_key(self) -> str:
        """Return the address of the state, for which the folder has to be initialised; a state kept here is ours alone.

        Raises:
            ReconcileError: the init failed.

        """
        failed = self._init_if_needed()
        if failed is not None:
            raise ReconcileError(failed.message)
        backend = self._module.configured_backend
        if not backend and self._config.state_dir is not None:
            return ""
        address = StateAddress(
            workdir=self._module.workdir, workspace=self._config.workspace, host=platform.node(), env=self._env
        )
        settings = backend.get("config")
        return address.of(str(backend.get("type", "local")), settings if isinstance(settings, Mapping) else {})

    def detect_drift(self) -> DriftReport:
        """Compare the real things with the state; nothing is changed, not even the state, and no lock is taken."""
        failed = self._init_if_needed()
        if failed is not None:
            return DriftReport(drifted=None, message=failed.message)
        self._tools.log.phase("plan")
        stream, finished = self._stream(
            ["plan", "-refresh-only", "-detailed-exitcode", "-no-color", "-input=false", "-json", "-lock=false"]
        )
        if finished.returncode not in {0, _PLAN_HAS_CHANGES}:
            return DriftReport(drifted=None, message=self._why(stream, finished))
        changes = tuple(str(change) for change in stream.drifted)
        message = f"drifted: {listed(changes)}" if changes else "no drift"
        return DriftReport(drifted=bool(changes), message=message, changes=changes)

    def _change(self, verb: str) -> Status:
        flags = [verb, "-auto-approve", "-no-color", "-input=false", "-json"]
        return self._initialised(lambda: self._ended(*self._engine(verb, flags)))

    def _dry_run(self, more: Sequence[str]) -> Status:
        return self._initialised(lambda: self._planned(*self._plan(more)))

    def _apply_plan_within(self, most: int) -> tuple[Stream, Status]:
        with TemporaryDirectory(prefix="gitops-") as folder:
            plan = Path(folder) / "plan"
            stream, finished = self._plan([f"-out={plan}"])
            if finished.returncode != _PLAN_HAS_CHANGES:
                return self._ended(stream, finished)
            removals = [change for change in stream.planned if change.action in {"delete", "replace"}]
            if len(removals) > most:
                raise MaxRemovalsError(
                    f"the plan would destroy or replace {len(removals)} resources, and max_removals is {most}: "
                    f"{listed([str(change) for change in removals])}; nothing was changed"
                )
            self._tools.log.phase("apply")
            flags = ["apply", "-no-color", "-input=false", "-json"]
            applied, finished = self._locking(flags, last=[str(plan)], with_variables=False)
            applied.planned, applied.outputs_change = stream.planned, stream.outputs_change
            return self._ended(applied, finished)

    def _plan(self, more: Sequence[str]) -> tuple[Stream, Finished]:
        flags = ["plan", "-detailed-exitcode", "-no-color", "-input=false", "-json"]
        return self._engine("plan", [*flags, *more])

    def _engine(self, phase: str, flags: Sequence[str]) -> tuple[Stream, Finished]:
        self._tools.log.phase(phase)
        return self._locking(flags)

    def _planned(self, stream: Stream, finished: Finished) -> tuple[Stream, Status]:
        if finished.returncode == 0:
            return stream, Status(result=ApplyResult.NO_CHANGE, message="dry-run: no changes")
        if finished.returncode != _PLAN_HAS_CHANGES:
            return self._ended(stream, finished)
        counts = stream.change_counts
        names = listed([str(change) for change in stream.planned] or ["outputs"])
        message = f"{DRY_RUN_WOULD_CHANGE} {counts}: {names}"
        return stream, Status(result=ApplyResult.NO_CHANGE, message=message, counts=counts)

    def _ended(self, stream: Stream, finished: Finished) -> tuple[Stream, Status]:
        """Return what became of an apply or a destroy, by the engine's own numbers."""
        counts = stream.change_counts
        if finished.returncode != 0:
            return stream, Status(result=ApplyResult.FAILED, message=self._why(stream, finished))
        if stream.changes_something:
            return stream, Status(result=ApplyResult.CHANGED, message=stream.summary, counts=counts)
        return stream, Status(result=ApplyResult.NO_CHANGE, message="no changes", counts=counts)

    def _why(self, stream: Stream, finished: Finished) -> str:
        """Return why a command failed, and what it had done by then.

        Raises:
            EngineLockedError: somebody holds the state's lock; nothing was done.
            EngineLockLeftError: the same, for so long that a person should look.

        """
        if stream.lock:
            raise self._locks.refusal(stream.lock)
        errors = head("\n".join(str(error) for error in stream.errors), LONGEST_MESSAGE)
        why = errors or plain_errors(finished.stderr) or f"{self._config.binary} exited {finished.returncode}"
        return f"{why}\n{_done(stream)}" if stream.applied else why

    def _initialised(self, command: Callable[[], tuple[Stream, Status]]) -> Status:
        """Run a command in an initialised folder; init again, once, when it says that this is what is missing."""
        failed = self._init_if_needed()
        if failed is not None:
            return failed
        stream, status = command()
        is_needed = any(error.asks_for_init for error in stream.errors) and not stream.applied
        if status.result is ApplyResult.FAILED and is_needed:
            self._module.forget_init()
            status = self._init_if_needed() or command()[1]
        return status.model_copy(update={"message": "; ".join([status.message, *self._broken_locks])})

    def _init_if_needed(self) -> Status | None:
        """Initialise the folder unless it is; a Status says why that failed."""
        if self._module.is_initialised:
            return None
        self._tools.log.phase("init")
        settings = [f"-backend-config={name}={value}" for name, value in self._config.backend_config.items()]
        argv = [self._config.binary, "init", "-input=false", "-no-color", *settings]
        finished = self._tools.runner.run(
            argv,
            cwd=self._module.workdir,
            env={**self._env, **self._module.workspace_variable_of_init()},
            deadline=self._tools.deadline,
            on_line=lambda _, text: self._tools.log.line(text),
        )
        if finished.returncode == 0:
            self._module.mark_initialised()
            return None
        why = plain_errors(finished.stderr) or tail(finished.stdout)
        return Status(result=ApplyResult.FAILED, message=f"init failed: {why}")

    def _locking(
        self, flags: Sequence[str], *, last: Sequence[str] = (), with_variables: bool = True
    ) -> tuple[Stream, Finished]:
        """Run a command that takes the state's lock; one that a dead run of this host left is broken before, once.

        Where such a run is known of, the lock is not waited for at first: it would never be given back.
        """
        notes = self._locks.notes

        def attempt(patience_seconds: int) -> tuple[Stream, Finished]:
            with notes.noting(self._tools.clock.now()) as holding:
                stream = Stream(self._tools.log, self.kind, on_locked=holding.held)
                more = [*flags, f"-lock-timeout={patience_seconds}s"]
                finished = self._told(stream, more, last=last, with_variables=with_variables, fds=holding.fds)
                holding.is_over = finished.returncode in _ENDED_BY_ITSELF and not stream.leaves_lock
            return stream, finished

        if notes.knows_of_dead:
            stream, finished = attempt(0)
            if not stream.lock:
                return stream, finished
            self._break_left(stream.lock)
        return attempt(self._config.lock_timeout_seconds)

    def _break_left(self, told: Mapping[str, str]) -> None:
        held = self._locks.look(told)
        lock = held.lock
        left = self._locks.judge(lock).orphan_of if lock is not None else None
        if lock is None or left is None:
            return
        self._tools.log.phase("unlock")
        why_not = self._locks.free(held, lock, self._run)
        if why_not:
            self._tools.log.line(f"the lock {lock.id} was not broken: {why_not}")
            return
        said = f"broke the lock {lock.id} that {left} left on this state when it was killed"
        self._broken_locks.append(said)
        self._tools.log.line(said)
        _log.warning("%s (locked since %s)", said, lock.created)

    def _stream(self, flags: Sequence[str]) -> tuple[Stream, Finished]:
        """Run a command that speaks JSON and takes no lock."""
        stream = Stream(self._tools.log, self.kind)
        return stream, self._told(stream, flags)

    def _told(
        self,
        stream: Stream,
        flags: Sequence[str],
        *,
        last: Sequence[str] = (),
        with_variables: bool = True,
        fds: Sequence[int] = (),
    ) -> Finished:
        """Run a command and read what it says. What is an option comes before what is a file."""
        var_file = self._config.var_file if with_variables else None
        files = [] if var_file is None else ["-var-file", str(var_file.absolute())]
        try:
            return self._run([*flags, *self._module.state_flag(), *files, *last], stream, fds)
        except (DeadlineExceededError, InterruptedRunError) as error:
            if not stream.applied:
                raise
            raise type(error)(f"{error}; {_done(stream)}") from error

    def _run(self, arguments: Sequence[str], stream: Stream | None = None, fds: Sequence[int] = ()) -> Finished:
        return self._tools.runner.run(
            [self._config.binary, *arguments],
            cwd=self._module.workdir,
            env={**self._env, **self._module.workspace_variable()},
            deadline=self._tools.deadline,
            on_line=None if stream is None else stream.line,
            pass_fds=fds,
        )


class OpenTofuBackend(TerraformBackend):
    """The same, run by `tofu`."""

    kind = "opentofu"
    config_type = OpenTofuConfig


def _done(stream: Stream) -> str:
    return f"done before that: {listed([str(change) for change in stream.applied])}"


def _object(finished: Finished, tool: str) -> dict[str, dict[str, Any]]:
    if finished.is_cut:
        raise ReconcileError(f"the outputs of '{tool}' are larger than is read")
    try:
        outputs = json.loads(finished.data)
    except ValueError as error:
        raise ReconcileError(f"the outputs of '{tool}' are no JSON: {error}") from None
    return {str(name): output for name, output in outputs.items()}

"""Kinds that users declare themselves: small bash scripts that say by their exit code whether anything changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from gitops_reconciler.backends.base import Tools
from gitops_reconciler.backends.local import config_of, local_tools
from gitops_reconciler.backends.messages import head, tail
from gitops_reconciler.errors import DeadlineExceededError, ReconcileError
from gitops_reconciler.models import ApplyResult, DeclaredConfig, Status
from gitops_reconciler.processes import Finished

_RESULTS = {0: ApplyResult.NO_CHANGE, 3: ApplyResult.CHANGED}
_NOT_A_NAME = re.compile(r"[^A-Z0-9_]")


class DeclaredBackend:
    """One target of a declared kind."""

    kind: ClassVar[str] = "declared"
    config_type: ClassVar[type[DeclaredConfig]] = DeclaredConfig

    def __init__(self, config: DeclaredConfig | None = None, tools: Tools | None = None, **fields: Any) -> None:
        self._config = config_of(self.config_type, config, fields)
        self._tools = tools or local_tools()

    def apply(self) -> Status:
        """Run the apply script: 0 is no change, 3 changed, anything else failed."""
        return self._status(self._run("apply", self._config.scripts.apply))

    def destroy(self) -> Status:
        """Run the destroy script, by the same exit codes."""
        if self._config.scripts.destroy is None:
            message = f"kind '{self._config.declared_kind}' declares no destroy script: nothing was destroyed"
            return Status(result=ApplyResult.FAILED, message=message)
        return self._status(self._run("destroy", self._config.scripts.destroy))

    def get_outputs(self) -> dict[str, Any]:
        """Return the JSON object that the outputs script prints; `{}` without a script, or when it fails.

        Raises:
            ReconcileError: it ended well and printed something else.

        """
        if self._config.scripts.outputs is None:
            return {}
        finished = self._run("outputs", self._config.scripts.outputs)
        return _object(finished, self._config.declared_kind) if finished.returncode == 0 else {}

    def resource_key(self) -> str:
        """Return nothing: only the scripts know what they work on, and a manifest has no word for it."""
        return ""

    def _run(self, name: str, script: str) -> Finished:
        self._tools.log.phase(name)
        own = self._config.timeout_seconds
        try:
            return self._tools.runner.run(
                ["bash", "--noprofile", "--norc", "-c", script, f"{name}.sh"],  # the last one is what bash calls it
                cwd=self._config.workdir.absolute(),
                env=self._environment(),
                deadline=self._tools.deadline.sooner(own),
                stdin=self._input(),
                on_line=lambda _, text: self._tools.log.line(text),
            )
        except DeadlineExceededError as error:
            if self._tools.deadline.is_over:
                raise
            message = f"script '{name}' of kind '{self._config.declared_kind}' timed out after {own:g} s"
            raise DeadlineExceededError(message) from error

    def _input(self) -> bytes:
        document = {
            "kind": self._config.declared_kind,
            "name": self._tools.env.get("GITOPS_TARGET", ""),
            "spec": dict(self._config.spec),
            "inputs": dict(self._config.inputs),
        }
        return json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"

    def _environment(self) -> dict[str, str]:
        spec = {f"SPEC_{_variable(name)}": _text(value) for name, value in self._config.spec.items()}
        return {
            **self._tools.env,
            **spec,
            "GITOPS_SPEC": json.dumps(dict(self._config.spec), ensure_ascii=False),
            "GITOPS_INPUTS": json.dumps(dict(self._config.inputs), ensure_ascii=False),
            **self._config.env,
        }

    def _status(self, finished: Finished) -> Status:
        result = _RESULTS.get(finished.returncode, ApplyResult.FAILED)
        if result is not ApplyResult.FAILED:
            return Status(result=result, message=tail(finished.stdout))
        end = f"signal {-finished.returncode}" if finished.returncode < 0 else f"exit {finished.returncode}"
        said = "\n".join(part for part in (tail(finished.stdout), tail(finished.stderr)) if part)
        return Status(
            result=result, message=f"{tail(said)} ({end})" if said else f"the script ended with {end} and said nothing"
        )


def _variable(name: str) -> str:
    return _NOT_A_NAME.sub("_", name.upper())


def _text(value: Any) -> str:
    """Return a scalar as people write it (nothing for null), and anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(dict(value) if isinstance(value, Mapping) else value, ensure_ascii=False)


def _object(finished: Finished, kind: str) -> dict[str, Any]:
    try:
        value = json.loads(finished.data)
    except ValueError as error:
        why = f"{error}; it printed: {head(finished.stdout, 200) or 'nothing'}"
        raise ReconcileError(f"the outputs script of kind '{kind}' must print a JSON object: {why}") from None
    if not isinstance(value, dict):
        raise ReconcileError(
            f"the outputs script of kind '{kind}' must print a JSON object, not {type(value).__name__}"
        )
    return value

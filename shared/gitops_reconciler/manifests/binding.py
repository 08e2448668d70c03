"""A document and a checkout become the config of a backend: paths absolute, secrets resolved, defaults of the kind set.

This happens in the run and only there (DESIGN section 2): no secret stands in a document, a message or a record.
"""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gitops_reconciler.errors import NotBuiltError, SpecError
from gitops_reconciler.manifests.documents import ManifestDocument, ProviderConfigDocument, ResourceDocument
from gitops_reconciler.manifests.problems import complaints_of, shown
from gitops_reconciler.manifests.references import secret_complaints
from gitops_reconciler.manifests.specs import (
    KINDS_NOT_BUILT,
    SPECS,
    AnsibleSpec,
    Spec,
    TerraformSpec,
    is_inline_inventory,
    merged,
)
from gitops_reconciler.models import (
    AnsibleConfig,
    BackendConfig,
    DeclaredConfig,
    OpenTofuConfig,
    TerraformConfig,
)
from gitops_reconciler.secrets import ReferencedSecrets, Secrets, is_reference


def bind(
    document: ResourceDocument,
    providerconfig: ProviderConfigDocument | None,
    checkout: Path,
    *,
    manifest: ManifestDocument | None = None,
    home: Path | None = None,
    secrets: Secrets | None = None,
) -> BackendConfig:
    """Return the config that the document's backend is built of.

    `checkout` is the root of the repository that the document names. `manifest` declares the kind where it is not built
    in. `home` is kept on this host and outside of any checkout: local Terraform state lies there. Without `secrets` a
    reference to one is an error.

    Raises:
        SpecError: a path leaves the repository or is not there, or the documents do not fit together.
        NotBuiltError: the kind comes later.
        SecretError: a secret is not to be had on this worker.

    """
    _check_fit(document, providerconfig, manifest)
    settings = dict(providerconfig.config) if providerconfig is not None else {}
    environment = settings.pop("env", {})
    spec = SPECS.get(document.kind) if manifest is None else None
    whole = merged(settings, document.spec)
    _check_secrets(document, whole, environment, spec)
    reader = secrets or ReferencedSecrets(folder=None, environ={})
    binding = _Binding(
        document=document,
        checkout=Path(os.path.abspath(checkout)),  # noqa: PTH100  # `absolute` keeps `..`, `resolve` follows symlinks
        home=home,
        env=_resolved(environment, reader),
        secrets=reader,
    )
    if manifest is not None:
        return _declared(binding, manifest, whole)
    if spec is None:
        message = f"{document.origin}: kind {shown(document.kind)} is not built in this version"
        raise NotBuiltError(message)
    return _BINDERS[document.kind](binding, _checked(document, spec, whole))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binding:
    """What the builders of all kinds need."""

    document: ResourceDocument
    checkout: Path
    home: Path | None
    env: Mapping[str, str]
    secrets: Secrets

    def folder(self) -> Path:
        """Return the document's `path`."""
        path = self._inside("path", self.document.path, self.document.path)
        if not path.is_dir():
            raise self.error(f"'path': {shown(self.document.path)} is not a folder of the repository at this revision")
        return path

    def file(self, name: str, value: str) -> Path:
        """Return a path of the spec, which is relative to the document's `path`."""
        path = self._inside(f"spec.{name}", value, posixpath.join(self.document.path, value))
        if not path.exists():
            raise self.error(f"'spec.{name}': {shown(value)} is not in the repository at this revision")
        return path

    def optional_file(self, name: str, value: str | None) -> Path | None:
        """Return a path of the spec, if there is one."""
        return None if value is None else self.file(name, value)

    def resolved(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values with their secrets in place."""
        resolved: dict[str, Any] = _resolved(values, self.secrets)
        return resolved

    def error(self, message: str) -> SpecError:
        """Return an error that says where the document is."""
        return SpecError(f"{self.document.origin}: {message}")

    def _inside(self, name: str, value: str, relative: str) -> Path:
        """Return an absolute path that lies in the checkout, also when all symlinks on the way are followed."""
        path = self.checkout / posixpath.normpath(relative)
        try:
            real, root = path.resolve(), self.checkout.resolve()
            inside = real.relative_to(root).parts
        except (OSError, RuntimeError, ValueError):
            raise self.error(f"'{name}': {shown(value)} leaves the repository") from None
        if ".git" in {part.lower() for part in inside}:
            raise self.error(f"'{name}': {shown(value)} leads into git's own folder")
        return path


def _check_fit(
    document: ResourceDocument, config: ProviderConfigDocument | None, manifest: ManifestDocument | None
) -> None:
    message = ""
    if config is None and document.provider_config is not None:
        message = f"provider config {shown(document.provider_config)} of kind {shown(document.kind)} is missing"
    elif config is not None and (config.kind, config.name) != (document.kind, document.provider_config or config.name):
        message = f"provider config {shown(config.name)} of kind {shown(config.kind)} is not the one that it names"
    elif manifest is not None and manifest.kind != document.kind:
        message = f"manifest {shown(manifest.kind)} does not declare its kind {shown(document.kind)}"
    elif manifest is None and document.kind not in SPECS and document.kind not in KINDS_NOT_BUILT:
        message = f"the manifest of kind {shown(document.kind)} is missing"
    if message:
        raise SpecError(f"{document.origin}: {message}")


def _check_secrets(
    document: ResourceDocument, whole: Mapping[str, Any], environment: Any, spec: type[Spec] | None
) -> None:
    may_refer = None if spec is None else spec.SECRET_FIELDS
    found = [
        *secret_complaints(dict(whole), ("spec",), may_refer),
        *secret_complaints(dict(environment), ("config", "env")),
    ]
    if found:
        raise SpecError("; ".join(f"{document.origin}: {complaint.message}" for complaint in found))


def _checked(document: ResourceDocument, spec: type[Spec], whole: Mapping[str, Any]) -> Spec:
    """Return the spec with its references unresolved, so that no message can hold what they stand for."""
    try:
        return spec.model_validate(whole)
    except ValidationError as error:
        found = complaints_of(error, spec, ("spec",))
        raise SpecError("; ".join(f"{document.origin}: {complaint.message}" for complaint in found)) from None


def _resolved(value: Any, secrets: Secrets) -> Any:
    if isinstance(value, Mapping):
        return {key: _resolved(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_resolved(item, secrets) for item in value]
    return secrets.resolve(value) if is_reference(value) else value


def _declared(binding: _Binding, manifest: ManifestDocument, whole: Mapping[str, Any]) -> DeclaredConfig:
    return DeclaredConfig(
        declared_kind=manifest.kind,
        scripts=manifest.scripts,
        spec=binding.resolved(whole),
        env=binding.env,
        workdir=binding.folder(),
        timeout_seconds=manifest.timeout.total_seconds(),
    )


def _module(binding: _Binding, spec: TerraformSpec) -> dict[str, Any]:
    return {
        "workdir": binding.folder(),
        "var_file": binding.optional_file("var_file", spec.var_file),
        "workspace": spec.workspace,
        "backend_config": binding.resolved(spec.backend_config),
        "variables": binding.resolved(spec.variables),
        "env": binding.env,
        "dry_run": spec.dry_run,
        "max_removals": spec.max_removals,
        "lock_timeout_seconds": math.ceil(spec.lock_timeout.total_seconds()),
        "state_dir": binding.home,
    }


def _terraform(binding: _Binding, spec: Any) -> TerraformConfig:
    return TerraformConfig(**_module(binding, spec))


def _opentofu(binding: _Binding, spec: Any) -> OpenTofuConfig:
    return OpenTofuConfig(**_module(binding, spec))


def _ansible(binding: _Binding, spec: AnsibleSpec) -> AnsibleConfig:
    inventory = spec.inventory
    return AnsibleConfig(
        playbook=binding.file("playbook", spec.playbook),
        inventory=inventory if is_inline_inventory(inventory) else binding.file("inventory", inventory),
        extra_vars=binding.resolved(spec.extra_vars),
        env=binding.env,
        limit=spec.limit,
        destroy_playbook=binding.optional_file("destroy_playbook", spec.destroy_playbook),
        dry_run=spec.dry_run,
    )


_BINDERS: Final[Mapping[str, Callable[[_Binding, Any], BackendConfig]]] = {
    "ansible": _ansible,
    "opentofu": _opentofu,
    "terraform": _terraform,
}

"""The tree that the demo's repository declares: two kinds made of shell scripts, and real tools where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_SCOPE = """\
app: demo
"""
_FILE_KIND = """\
type: manifest
kind: file
schema:
  type: object
  required: [path, text]
  properties: {path: {type: string}, text: {type: string}}
scripts:
  apply: |
    set -eu
    applied="$(dirname "$SPEC_PATH")/.$(basename "$SPEC_PATH").applied"   # what we wrote last
    actual="$(cat "$SPEC_PATH" 2>/dev/null || true)"
    if [ -e "$SPEC_PATH" ] && [ "$actual" = "$SPEC_TEXT" ]; then echo "as declared"; exit 0; fi
    if [ ! -e "$applied" ]; then why="added to desired"
    elif [ ! -e "$SPEC_PATH" ]; then why="removed out of band"
    elif [ "$(cat "$applied")" = "$SPEC_TEXT" ]; then why="drifted: expected '$SPEC_TEXT', actual '$actual'"
    else why="changed in git: '$actual' -> '$SPEC_TEXT'"; fi
    printf '%s\\n' "$SPEC_TEXT" > "$SPEC_PATH"
    printf '%s\\n' "$SPEC_TEXT" > "$applied"
    echo "$why"
    exit 3
  destroy: |
    [ -e "$SPEC_PATH" ] || exit 0
    rm -f "$SPEC_PATH" && exit 3
  outputs: |
    printf '{"path": "%s", "bytes": %d}\\n' "$SPEC_PATH" "$(wc -c < "$SPEC_PATH")"
timeout: 20s
"""
_SLOW_KIND = """\
type: manifest
kind: rollout
schema:
  type: object
  required: [folder, version]
  properties: {folder: {type: string}, version: {type: string}, seconds: {type: integer}}
scripts:
  apply: |
    set -eu
    mkdir -p "$SPEC_FOLDER"
    at="$(cat "$SPEC_FOLDER/version" 2>/dev/null || true)"
    if [ "$at" = "$SPEC_VERSION" ]; then echo "at version $at"; exit 0; fi
    # The work is done by a grandchild, as real tools do it.
    bash -c 'echo "start $SPEC_VERSION" >> "$SPEC_FOLDER/log"
             sleep "${SPEC_SECONDS:-0}"
             echo "stop $SPEC_VERSION" >> "$SPEC_FOLDER/log"' &
    wait $!
    echo "$SPEC_VERSION" > "$SPEC_FOLDER/version"
    echo "rolled out version $SPEC_VERSION"
    exit 3
timeout: 60s
"""
_FILE = """\
type: resource
kind: file
name: {name}
interval: {interval}
spec:
  path: {path}
  text: {text}
"""
_ROLLOUT = """\
type: resource
kind: rollout
name: slow
interval: off
spec:
  folder: {folder}
  version: "{version}"
  seconds: {seconds}
"""
_TERRAFORM = """\
type: resource
kind: terraform
name: network
path: stacks/network
spec:
  variables: {cidr: 10.0.0.0/16}
"""
_STACK = """\
variable "cidr" { type = string }

resource "terraform_data" "network" {
  input = var.cidr
}

output "cidr" { value = terraform_data.network.output }
"""
_ANSIBLE = """\
type: resource
kind: ansible
name: host
path: ansible
spec:
  playbook: site.yml
  inventory: "localhost,"
  extra_vars: {{world: {world}}}
"""
_PLAYBOOK = """\
- hosts: all
  connection: local
  gather_facts: false
  vars:
    ansible_remote_tmp: "{{ world }}/.ansible"  # else it is below the home that the user's account has
  tasks:
    - name: Note of the playbook
      ansible.builtin.copy:
        content: "managed by ansible\\n"
        dest: "{{ world }}/ansible.txt"
        mode: "0644"
"""

MOTD, BANNER, NOTE, SLOW = "motd", "banner", "note", "slow"


def path_of(name: str) -> str:
    """Return where a target's document lies in the repository."""
    return f"gitops/{name}.yaml"


def file_document(name: str, path: Path, text: str, *, interval: str = "1m") -> str:
    """Return a target of kind `file`."""
    return _FILE.format(name=name, path=path, text=text, interval=interval)


def rollout_document(folder: Path, version: str, *, takes_seconds: int) -> str:
    """Return the slow target."""
    return _ROLLOUT.format(folder=folder, version=version, seconds=takes_seconds)


def first_tree(world: Path, *, with_terraform: bool, with_ansible: bool) -> Mapping[str, str]:
    """Return the files of the first commit: path -> text."""
    files = {
        "gitops/gitops.yaml": _SCOPE,
        "gitops/kinds/file.yaml": _FILE_KIND,
        "gitops/kinds/rollout.yaml": _SLOW_KIND,
        path_of(MOTD): file_document(MOTD, world / "motd", "hello", interval="2s"),
        path_of(BANNER): file_document(BANNER, world / "banner", "welcome"),
        path_of(NOTE): file_document(NOTE, world / "note", "keep me"),
        path_of(SLOW): rollout_document(world / "slow", "1", takes_seconds=0),
    }
    if with_terraform:
        files |= {path_of("network"): _TERRAFORM, "stacks/network/main.tf": _STACK}
    if with_ansible:
        files |= {path_of("host"): _ANSIBLE.format(world=world), "ansible/site.yml": _PLAYBOOK}
    return files

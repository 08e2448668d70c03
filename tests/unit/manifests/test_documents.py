import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from gitops_reconciler.errors import SpecError
from gitops_reconciler.git.base import Repository
from gitops_reconciler.manifests.documents import ResourceDocument, from_record, to_record
from tests.support.trees import problems_in, resource, tree_of

TEN_MINUTES = timedelta(minutes=10)


def read(more: str = "", kind: str = "terraform") -> ResourceDocument:
    tree = tree_of({"gitops/x.yaml": resource("x", kind, more)})
    assert tree.problems == ()
    return tree.resources[0]


def test_a_document_cannot_be_changed() -> None:
    document = read()
    with pytest.raises(ValidationError):
        document.name = "y"  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize(
    ("more", "kind", "expected"),
    [
        ("", "ansible", {"interval": 600.0}),
        ("", "terraform", {"interval": 3600.0}),
        ("", "opentofu", {"interval": 3600.0}),
        ("interval: 90", "terraform", {"interval": 90.0}),
        ("interval: 2h", "ansible", {"interval": 7200.0}),
        ("interval: off", "terraform", {}),
        ("cron: '*/10 * * * *'", "terraform", {"cron": "*/10 * * * *", "time_zone": "UTC"}),
        ("cron: '0 3 * * *'\ntime_zone: Europe/Berlin", "ansible", {"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}),
    ],
)
def test_a_schedule_is_an_interval_a_cron_expression_or_none(more: str, kind: str, expected: dict[str, Any]) -> None:
    spec = "\nspec: {playbook: a.yml, inventory: 'h,'}" if kind == "ansible" else ""
    assert read(more + spec, kind).schedule(TEN_MINUTES) == expected


OWN = Repository(url="https://git.example.com/fleet.git", ref="refs/heads/main")
OTHER = "https://git.example.com/other.git"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", OWN),
        (f"repo: {OTHER}", Repository(url=OTHER, ref="refs/heads/main")),
        (f"repo: {OTHER}\nbranch: feature/x", Repository(url=OTHER, ref="refs/heads/feature/x")),
        (f"repo: {OTHER}\ntag: v1.0", Repository(url=OTHER, ref="refs/tags/v1.0")),
        (f"repo: {OTHER}\ncommit: {'ab' * 20}", Repository(url=OTHER, ref="ab" * 20)),
        ("repo: git@git.example.com:ops/x.git", Repository(url="git@git.example.com:ops/x.git", ref="refs/heads/main")),
    ],
)
def test_a_document_follows_its_own_source_or_a_branch_tag_or_commit_elsewhere(more: str, expected: Repository) -> None:
    assert read(more).repository(OWN) == expected


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("branch: main", "'branch' goes with 'repo'; a document without 'repo' follows its own source"),
        (f"repo: {OTHER}\nbranch: a\ncommit: {'ab' * 20}", "only one of branch, commit can be followed"),
        (f"repo: {OTHER}\ncommit: abc", "'commit': 'abc' is no full commit (40 or 64 lower-case hex digits)"),
        (f"repo: {OTHER}\nbranch: -x", "'branch': branch name '-x' begins with '-'"),
        (f"repo: {OTHER}\nbranch: refs/heads/x", "'branch': branch name 'refs/heads/x' would be taken for another ref"),
        (f"repo: {OTHER}\ntag: a..b", "'tag': tag name 'a..b' has what git does not allow"),
        (
            "repo: https://u:p@git.example.com/x.git",
            "'repo': repository URL 'https://***@git.example.com/x.git' carries",
        ),
        ("repo: 'ext::sh -c id'", "'repo': repository URL 'ext::sh -c id' names a transport helper"),
        ("repo: ../other", "'repo': repository URL '../other' is no absolute address"),
        ("repo: '\U00018cd6'", "'repo': repository URL '\\U00018cd6' is no absolute address"),
        ("repo: ''", "'repo': the repository URL is empty"),
        ("interval: 5m\ncron: '0 3 * * *'", "only one of interval, cron can be the schedule"),
        ("time_zone: UTC", "'time_zone' goes with 'cron'"),
        ("interval: never", "'interval': 'never' is no duration (allowed: off; a number with s, m, h or d"),
        ("interval: 0", "'interval': 0 is out of range (allowed: off; 1s to 366d)"),
        ("interval: -5m", "'interval': '-5m' is no duration"),
        ("timeout: 999999999999999d", "'timeout': '999999999999999d' is out of range (allowed: 1s to 366d)"),
        ("timeout: true", "'timeout': true is no duration"),
        ("timeout: 500ms", "'timeout': '500ms' is out of range"),
        ("suspend: maybe", "'suspend': must be true or false, not 'maybe'"),
        ("pool: Big Pool", "'pool': 'Big Pool' is no name"),
        ("pool: source", "pool 'source' is our own: choose another"),
        ("path: /etc", "'path': '/etc' must be a relative path"),
        ("path: ../x", "'path': '../x' leaves the repository"),
        ("path: a/../../x", "'path': 'a/../../x' leaves the repository"),
        ("path: a/.git/hooks", "'path': 'a/.git/hooks' leads into git's own folder"),
        ("path: .GIT", "'path': '.GIT' leads into git's own folder"),
        ("path: ''", "'path': must be printable text of one line"),
        ("labels: {'a b': c}", "'labels': 'a b' is no key of a label"),
        (f"labels: {{a: {'x' * 257}}}", "'labels.a': must be printable text of at most 256 characters, not 'xxx"),
        ("labels: {a: [b]}", "'labels.a' must be a string, not a list"),
        ("labels: []", "'labels' must be a map, not a list"),
        ("spec: x", "'spec' must be a map, not 'x'"),
        ("metadata: {name: x}", "unknown field 'name' (allowed: id)"),
    ],
)
def test_a_field_that_says_nothing_sensible_is_refused(more: str, message: str) -> None:
    found = problems_in(resource(more=more))
    assert len(found) == 1
    assert found[0].split(": ", 1)[1].startswith(message)


@pytest.mark.parametrize("name", ["X", "a b", "-a", "a-", "", "a/b", "a" * 129, 5, None, ["a"], "ä", "a\n"])
def test_a_name_is_what_all_folders_locks_and_keys_can_bear(name: object) -> None:
    found = problems_in(json.dumps({"type": "resource", "kind": "terraform", "name": name}))
    assert "is no name (allowed: at most 128 lower-case letters, digits, '.', '_' and '-'" in found[0]


@pytest.mark.parametrize("name", ["a", "0", "a.b_c-d", "a" * 128])
def test_a_name_of_the_allowed_letters_is_taken(name: str) -> None:
    assert problems_in(resource(f"'{name}'")) == []


@pytest.mark.parametrize(
    ("written", "meant"), [("", None), ("suspend: yes", True), ("suspend: off", False), ("suspend: true", True)]
)
def test_a_suspension_is_declared_or_left_to_the_operator(written: str, meant: object) -> None:
    assert read(written).suspend is meant


@pytest.mark.parametrize(
    ("label", "expected"),
    [("", True), ("gitops-reconciler/prune: 'false'", False), ("gitops-reconciler/prune: 'true'", True)],
)
def test_only_what_is_owned_and_not_exempt_may_ever_be_pruned(label: str, expected: bool) -> None:
    text = resource(more=f"labels: {{{label}}}")
    assert tree_of({"a/gitops.yaml": "app: a", "a/x.yaml": text}).resources[0].is_prunable is expected
    assert not tree_of({"a/x.yaml": text}).resources[0].is_prunable


def test_a_record_is_json_and_comes_back_as_the_same_document() -> None:
    tree = tree_of(
        {
            "gitops.yaml": "app: web\ndefaults: {labels: {env: prod}}",
            "kind.yaml": "type: manifest\nkind: shell\nschema: {type: object}\nscripts: {apply: a}\ntimeout: 90s",
            "config.yaml": "type: providerconfig\nkind: shell\nname: c\nconfig: {env: {A: 1}, deep: {er: [1.5, null]}}",
            "x.yaml": resource("x", "shell", "interval: 90s\ntimeout: 1h\nsuspend: true\nspec: {a: [1, {b: 2.5}]}\n"),
        }
    )
    assert len(tree.documents) == 3
    for document in tree.documents:
        record = to_record(document)
        assert from_record(json.loads(json.dumps(record))) == document
        assert to_record(from_record(record)) == record


def test_durations_are_stored_as_seconds_and_defaults_are_written_out() -> None:
    record = to_record(read("interval: 90s\ntimeout: 1h"))
    assert record["version"] == 1
    assert record["type"] == "resource"
    assert record["interval"] == 90.0
    assert record["timeout"] == 3600.0
    assert record["pool"] == "terraform"
    assert record["suspend"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "a stored document has version 99, this program reads 1: sync its source again"),
        ({"type": "widget"}, "a stored document cannot be read"),
        ({"surprise": 1}, "a stored document cannot be read (resource.surprise): sync its source again"),
        ({"pool": None}, "a stored document cannot be read (resource.pool): sync its source again"),
    ],
)
def test_a_record_that_this_program_did_not_write_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        from_record(to_record(read()) | change)
    assert str(caught.value).startswith(message)


def test_a_record_without_a_version_is_refused() -> None:
    with pytest.raises(SpecError, match="has version None"):
        from_record({})

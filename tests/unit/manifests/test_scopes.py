import pytest

from gitops_reconciler.manifests.fields import OFF
from gitops_reconciler.manifests.patterns import matches
from tests.support.trees import problems_of, resource, tree_of


def apps(files: dict[str, str]) -> dict[str, str]:
    return {document.origin.path: document.app for document in tree_of(files).resources}


@pytest.mark.req("R1.10")
@pytest.mark.parametrize("name", ["gitops.yaml", "converge.yaml"])
def test_the_nearest_scope_file_above_a_document_wins(name: str) -> None:
    files = {
        f"a/{name}": "app: x",
        f"a/b/{name}": "app: y",
        "a/r.yaml": resource("r1"),
        "a/b/r.yaml": resource("r2"),
        "a/b/c/r.yaml": resource("r3"),
        "d/r.yaml": resource("r4"),
    }
    assert apps(files) == {"a/r.yaml": "x", "a/b/r.yaml": "y", "a/b/c/r.yaml": "y", "d/r.yaml": ""}
    scopes = {document.name: document.origin.scope for document in tree_of(files).resources}
    assert scopes == {"r1": "a", "r2": "a/b", "r3": "a/b", "r4": ""}


@pytest.mark.req("R1.11")
def test_a_scope_file_at_the_top_of_the_tree_is_the_last_one_that_counts() -> None:
    # The tree holds nothing above its own folder, so there is nothing to walk up to.
    assert apps({"gitops.yaml": "app: top", "a/r.yaml": resource()}) == {"a/r.yaml": "top"}
    tree = tree_of({"gitops.yaml": "app: top", "r.yaml": resource()})
    assert tree.resources[0].origin.scope == "."


@pytest.mark.req("R1.9")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prune: false", "1:1: missing field 'app'"),
        ("app: ''", "1:6: 'app': '' is no name"),
        ("app: '  '", "1:6: 'app': '  ' is no name"),
        ("app:", "1:5: 'app': null is no name"),
        ("app: Web App", "1:6: 'app': 'Web App' is no name"),
        (
            "app: web\napps: x",
            "2:1: unknown field 'apps' (did you mean 'app'? allowed: app, defaults, ignore, max_prune, prune)",
        ),
        ("app: web\nprune: maybe", "2:8: 'prune': must be true or false, not 'maybe'"),
        ("app: web\nprune: true", "2:8: 'prune: true' is not built in this version (it comes later)"),
        ("app: web\nmax_prune: 20%", "2:1: 'max_prune' is not built in this version (it comes later)"),
        (
            "app: web\ndefaults: {interval: never}",
            "2:22: 'defaults.interval': 'never' is no duration (allowed: off; a num",
        ),
        ("app: web\ndefaults: {pool: x}", "2:12: unknown field 'pool' (allowed: interval, labels, provider_config)"),
        ("app: web\ndefaults: {labels: {a: 1}}", "2:24: 'defaults.labels.a' must be a string, not 1"),
        ("app: web\nignore: '*.x'", "2:9: 'ignore' must be a list, not '*.x'"),
        ("app: [", "2:1: not valid YAML"),
        ("", "1:1: the file is empty"),
    ],
)
def test_a_wrong_scope_file_is_refused_and_freezes_its_folder(text: str, message: str) -> None:
    tree = tree_of({"a/gitops.yaml": text, "a/r.yaml": resource(), "b/r.yaml": resource("y")})
    assert str(tree.problems[0]).startswith(f"a/gitops.yaml:{message}")
    assert tree.frozen == {"a"}
    assert [document.name for document in tree.resources] == ["y"]


def test_both_names_in_one_folder_are_an_error() -> None:
    tree = tree_of({"a/gitops.yaml": "app: x", "a/converge.yaml": "app: y", "a/r.yaml": resource()})
    assert [str(problem) for problem in tree.problems] == [
        "a/gitops.yaml:1:1: a folder has only one of converge.yaml and gitops.yaml"
    ]
    assert tree.frozen == {"a"}
    assert tree.resources == ()


@pytest.mark.req("R1.12")
def test_one_app_in_two_folders_is_warned_of_and_merged() -> None:
    files = {
        "a/gitops.yaml": "app: web",
        "b/gitops.yaml": "app: web",
        "a/r.yaml": resource(),
        "b/s.yaml": resource("y"),
    }
    tree = tree_of(files)
    assert [str(warning) for warning in tree.warnings] == [
        "b/gitops.yaml: app 'web' is declared in a/gitops.yaml too: the scopes merge, and own together"
    ]
    assert tree.problems == ()
    assert {document.app for document in tree.resources} == {"web"}


def test_scopes_of_one_app_freeze_together() -> None:
    files = {"a/gitops.yaml": "app: web", "b/gitops.yaml": "app: web", "c/gitops.yaml": "app: other", "a/bad.yaml": "x"}
    assert tree_of(files).frozen == {"a", "b"}


def test_defaults_fill_what_a_document_does_not_say() -> None:
    tree = tree_of(
        {
            "gitops.yaml": "app: web\ndefaults: {interval: 1h, labels: {env: prod, team: a}, provider_config: aws}",
            "aws.yaml": "type: providerconfig\nkind: terraform\nname: aws",
            "plain.yaml": resource("plain"),
            "own.yaml": resource("own", more="interval: 5m\nlabels: {team: b}"),
            "cron.yaml": resource("cron", more="cron: '0 3 * * *'"),
            "off.yaml": resource("off", more="interval: off"),
            "other.yaml": resource("other", "ansible", "spec: {playbook: a.yml, inventory: 'h,'}"),
        }
    )
    assert tree.problems == ()
    found = {document.name: document for document in tree.resources}
    assert found["plain"].interval is not None
    assert found["plain"].interval.total_seconds() == 3600
    assert found["plain"].labels == {"env": "prod", "team": "a", "gitops-reconciler/app": "web"}
    assert found["plain"].provider_config == "aws"
    assert found["own"].interval is not None
    assert found["own"].interval.total_seconds() == 300
    assert found["own"].labels["team"] == "b"
    assert found["cron"].interval is None
    assert found["off"].interval == OFF
    # A providerconfig is of one kind; the default is for the resources of that kind.
    assert found["other"].provider_config is None


def test_a_default_that_names_nothing_is_refused_in_the_scope_file() -> None:
    files = {
        "gitops.yaml": "app: web\ndefaults:\n  provider_config: asw",
        "aws.yaml": "type: providerconfig\nkind: terraform\nname: aws",
    }
    message = "'defaults.provider_config': unknown provider config 'asw' (did you mean 'aws'? there are: aws)"
    assert problems_of(files) == [f"gitops.yaml:3:20: {message}"]


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.tmp.yaml", "a.tmp.yaml", True),
        ("*.tmp.yaml", "deep/er/a.tmp.yaml", True),
        ("*.tmp.yaml", "a.yaml", False),
        ("vendor", "vendor/x.yaml", True),
        ("vendor", "a/vendor/b/x.yaml", True),
        ("vendor/", "a/vendor/x.yaml", True),
        ("vendor/", "vendor", False),
        ("vend", "vendor/x.yaml", False),
        ("/top.yaml", "top.yaml", True),
        ("/top.yaml", "a/top.yaml", False),
        ("a/*.yaml", "a/x.yaml", True),
        ("a/*.yaml", "a/b/x.yaml", False),
        ("a/*.yaml", "b/a/x.yaml", False),
        ("a/**", "a/b/c/x.yaml", True),
        ("a/**/x.yaml", "a/x.yaml", True),
        ("a/**/x.yaml", "a/b/c/x.yaml", True),
        ("**/x.yaml", "x.yaml", True),
        ("**/b/*.yaml", "a/b/x.yaml", True),
        ("a/**/b/**/c.yaml", "a/1/b/2/3/c.yaml", True),
        ("a/**/b/**/c.yaml", "a/1/2/3/c.yaml", False),
        ("[ab].yaml", "b.yaml", True),
        ("?.yaml", "bb.yaml", False),
        ("**", "x.yaml", True),
    ],
)
def test_ignore_patterns_mean_what_they_mean_to_git(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, tuple(path.split("/"))) is expected


def test_a_pattern_cannot_take_for_ever() -> None:
    assert not matches("*a" * 60 + "b", ("a" * 200,))
    assert not matches("**/" * 80 + "b", ("a",) * 200)


def test_ignored_files_are_not_even_parsed_and_patterns_hold_in_scopes_below() -> None:
    tree = tree_of(
        {
            "a/gitops.yaml": "app: x\nignore: ['*.gen.yaml', 'vendor/']",
            "a/bad.gen.yaml": ": [",
            "a/vendor/gitops.yaml": ": [",
            "a/vendor/x.yaml": ": [",
            "a/b/gitops.yaml": "app: y",
            "a/b/bad.gen.yaml": ": [",
            "a/b/r.yaml": resource(),
        }
    )
    assert tree.problems == ()
    assert [scope.folder for scope in tree.scopes] == ["a", "a/b"]
    assert tree.file_count == 1

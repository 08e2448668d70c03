"""The demo's own tree must be one that the product takes."""

from pathlib import Path

import pytest

from gitops_reconciler.cli.demo.documents import NOTE, SLOW, first_tree, path_of, rollout_document
from gitops_reconciler.cli.demo.hook import write_hook
from gitops_reconciler.manifests.tree import read_tree


@pytest.mark.parametrize(("terraform", "ansible", "count"), [(True, True, 6), (False, False, 4)])
def test_every_document_of_the_first_tree_is_valid_and_owned(terraform: bool, ansible: bool, count: int) -> None:
    files = first_tree(Path("/world"), with_terraform=terraform, with_ansible=ansible)
    tree = read_tree({path: text.encode() for path, text in files.items() if path.startswith("gitops/")})
    assert tree.problems == ()
    assert tree.warnings == ()
    assert len(tree.resources) == count


def test_the_documents_that_are_pushed_later_replace_the_first_ones() -> None:
    files = dict(first_tree(Path("/world"), with_terraform=False, with_ansible=False))
    files[path_of(SLOW)] = rollout_document(Path("/world/slow"), "2", takes_seconds=5)
    del files[path_of(NOTE)]
    tree = read_tree({path: text.encode() for path, text in files.items()})
    assert tree.problems == ()
    assert [document.name for document in tree.resources] == ["banner", "motd", "slow"]
    slow = tree.resource("slow")
    assert slow is not None
    assert slow.spec["version"] == "2"


def test_the_hook_is_a_script_that_holds_no_secret(tmp_path: Path) -> None:
    secret_file = tmp_path / "secret's file"
    secret_file.write_text("top secret\n")
    write_hook(tmp_path, python="/a b/python", url="http://127.0.0.1:1/webhooks/github", secret_file=secret_file)
    hook, script = tmp_path / "hooks" / "post-receive", tmp_path / "hooks" / "post_push.py"
    assert hook.stat().st_mode & 0o777 == 0o755
    assert "exec '/a b/python' -I " in hook.read_text()
    compile(script.read_text(), str(script), "exec")
    assert "top secret" not in hook.read_text() + script.read_text()

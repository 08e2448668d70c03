"""What the command line says of itself, and of mistakes."""

import re

import pytest

from gitops_reconciler.cli import COMMANDS, main
from gitops_reconciler.cli.parsing import suggestion

NESTED = ("source add", "source list", "source remove", "source sync", "token create", "token list", "token revoke")
EVERY = (*(command.name for command in COMMANDS), *NESTED)


@pytest.mark.parametrize("words", EVERY)
def test_every_command_teaches_with_an_example_and_says_what_exit_codes_mean(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "--help"]) == 0
    help_text = capsys.readouterr().out
    example = re.search(r"^examples:\n((?:  .*\n)+)", help_text, re.MULTILINE)
    assert example is not None
    assert f"gitops {words}" in example[1]
    assert "exit codes: 0 ok, or skipped because busy" in help_text
    assert help_text.startswith(f"usage: gitops {words}")


def test_the_list_of_commands_names_each_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for command in COMMANDS:
        assert re.search(rf"^ +{command.name} +{re.escape(command.summary)}$", listed, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tik"], "gitops: unknown command 'tik' (did you mean 'tick'?)"),
        (["source", "ad"], "gitops source: unknown command 'ad' (did you mean 'add'?)"),
        (["token", "zzz"], "gitops token: unknown command 'zzz' (choose from: create, list, revoke)"),
        (["tick"], "gitops tick: the following arguments are required: NAME"),
        (["targets", "-o", "yaml"], "gitops targets: argument -o/--output: invalid choice: 'yaml'"),
        (["enqueue", "web", "--wait", "0"], "must be a positive number of seconds"),
        (["source", "add", "x", "--repo", "u", "--allow", "kinds"], "'kinds' is no WHAT=A,B"),
        (["up", "--workers", "0"], "must be at least 1"),
    ],
)
def test_wrong_usage_is_named_on_stderr_with_exit_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_without_a_command_the_help_is_shown_and_the_usage_counts_as_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"gitops-reconciler \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_options_may_not_be_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tick", "web", "--tre", "."]) == 2
    assert "--tre" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("wbe", ["web", "dns"], "did you mean 'web'?"),
        ("zzz", ["web", "dns"], "choose from: web, dns"),
        ("web", [], "there are none"),
    ],
)
def test_a_suggestion_is_a_close_name_or_what_there_is(name: str, known: list[str], said: str) -> None:
    assert suggestion(name, known) == said

"""Tables that fit, colours where someone looks, times in words."""

from datetime import UTC, datetime

import pytest

from gitops_reconciler.cli.output import (
    Cell,
    Column,
    Screen,
    ago,
    counts_of,
    cut,
    one_line,
    status_cell,
    table,
    width_of,
)

COLUMNS = [
    Column(title="NAME"),
    Column(title="KIND", may_go=True),
    Column(title="STATUS"),
    Column(title="MESSAGE", gives_way=True),
]
NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def rows(*lines: tuple[str, str, str, str]) -> list[list[Cell]]:
    return [[Cell(text=text) for text in line] for line in lines]


def screen(width: int | None, *, has_colour: bool = False) -> Screen:
    return Screen(width=width, has_colour=has_colour)


def test_columns_are_as_wide_as_their_widest_value_and_lines_have_no_blanks_at_their_end() -> None:
    lines = table(
        COLUMNS, rows(("default/web", "file", "ready", "ok"), ("default/a", "terraform", "failed", "")), screen(None)
    )
    assert lines == [
        "NAME         KIND       STATUS  MESSAGE",
        "default/web  file       ready   ok",
        "default/a    terraform  failed",
    ]


def test_a_column_without_any_value_is_left_out() -> None:
    assert table(COLUMNS, rows(("web", "", "ready", "ok")), screen(None))[0] == "NAME  STATUS  MESSAGE"


@pytest.mark.parametrize("width", [44, 60, 80, 120])
def test_on_a_terminal_no_line_is_wider_than_it(width: int) -> None:
    lines = table(COLUMNS, rows(("default/web", "terraform", "unreachable", "no route to host " * 20)), screen(width))
    assert all(width_of(line) <= width for line in lines)
    assert lines[1].startswith("default/web")
    assert lines[1].endswith("…")


def test_where_cutting_is_not_enough_whole_columns_go_and_the_others_get_their_room() -> None:
    lines = table(COLUMNS, rows(("default/web", "terraform", "unreachable", "no route to host " * 20)), screen(44))
    assert lines[0] == "NAME         STATUS       MESSAGE"
    assert width_of(lines[1]) > 40


def test_without_a_terminal_nothing_is_cut() -> None:
    message = "no route to host " * 20
    assert table(COLUMNS, rows(("web", "file", "failed", message)), screen(None))[1].endswith(message.strip())


def test_colours_do_not_count_as_width() -> None:
    cells = [[Cell(text="web"), Cell(text="file"), status_cell("failed"), Cell(text="broken")]]
    plain = table(COLUMNS, cells, screen(80))
    coloured = table(COLUMNS, cells, screen(80, has_colour=True))
    assert "\x1b[31mfailed\x1b[0m" in coloured[1]
    assert coloured[1].replace("\x1b[31m", "").replace("\x1b[0m", "") == plain[1]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\ntwo\n", "one; two"),
        ("a\x1b[2Jb\rc", "a [2Jb; c"),
        ("tab\tand\u202espace", "tab and space"),
        ("", ""),
    ],
)
def test_what_tools_said_can_neither_break_a_line_nor_move_the_cursor(text: str, line: str) -> None:
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("text", "width", "result"), [("日本語", 6, "日本語"), ("日本語", 5, "日本…"), ("abcdef", 4, "abc…")]
)
def test_wide_letters_take_two_columns(text: str, width: int, result: str) -> None:
    assert cut(text, width) == result
    assert width_of(result) <= width


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("2026-01-02T11:59:48+00:00", "12s"),
        ("2026-01-02T11:55:00Z", "5m"),
        ("2026-01-02T08:59:00Z", "3h"),
        ("2025-12-30T12:00:00Z", "3d"),
        ("2026-01-02T12:05:01Z", "in 5m"),
        ("2026-01-02T12:00:00Z", "0s"),
        (None, ""),
    ],
)
def test_times_are_told_in_their_largest_unit(then: str | None, words: str) -> None:
    assert ago(then, NOW) == words


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"added": 1, "changed": 2, "removed": 0}, "+1 ~2 -0"),
        ({"added": 0, "changed": 0, "removed": 0}, ""),
        (None, ""),
    ],
)
def test_change_counts_are_shown_where_something_changed(counts: dict[str, int] | None, words: str) -> None:
    assert counts_of(counts) == words

"""Output of tools: lines, redaction, bounds. The processes themselves are tested with real ones, in integration."""

import os
from collections.abc import Iterator
from typing import IO

import pytest

from gitops_reconciler.processes import Finished
from gitops_reconciler.processes.output import Kept, Output
from gitops_reconciler.redaction import Redactor


class Pipe:
    def __init__(self) -> None:
        reader, writer = os.pipe()
        self.reader: IO[bytes] = os.fdopen(reader, "rb", buffering=0)
        self.writer: IO[bytes] = os.fdopen(writer, "wb", buffering=0)

    def output(
        self, *, secrets: tuple[str, ...] = (), limit: int = 1 << 20, lines: list[tuple[str, str]] | None = None
    ) -> Output:
        on_line = None if lines is None else lambda stream, line: lines.append((stream, line))
        return Output("stdout", self.reader, redactor=Redactor(secrets), limit=limit, on_line=on_line)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.writer.close()
    made.reader.close()


def test_a_line_is_passed_on_as_soon_as_it_is_whole(pipe: Pipe) -> None:
    lines: list[tuple[str, str]] = []
    output = pipe.output(lines=lines)
    pipe.writer.write(b"one\ntw")
    output.read()
    assert lines == [("stdout", "one")]
    pipe.writer.write(b"o\n")
    output.read()
    assert lines == [("stdout", "one"), ("stdout", "two")]


def test_nothing_to_read_is_not_the_end_of_the_stream(pipe: Pipe) -> None:
    output = pipe.output()
    assert output.read() is None
    pipe.writer.close()
    assert output.read() == 0


def test_a_last_line_without_newline_is_kept(pipe: Pipe) -> None:
    lines: list[tuple[str, str]] = []
    output = pipe.output(lines=lines)
    pipe.writer.write(b"one\nlast")
    output.finish()
    assert output.kept.text() == "one\nlast"
    assert lines[-1] == ("stdout", "last")


def test_a_secret_that_arrives_in_two_pieces_is_masked(pipe: Pipe) -> None:
    lines: list[tuple[str, str]] = []
    output = pipe.output(secrets=("hunter2-hunter2",), lines=lines)
    pipe.writer.write(b"token=hunter2-h")
    output.read()
    pipe.writer.write(b"unter2 ok\n")
    output.read()
    output.finish()
    assert lines == [("stdout", "token=*** ok")]
    assert output.kept.text() == "token=*** ok\n"
    assert output.raw.text() == "token=hunter2-hunter2 ok\n"


def test_the_beginning_of_a_secret_does_not_survive_the_cut_of_a_long_line(pipe: Pipe) -> None:
    secret = "S" * 40 + "E" * 40
    output = pipe.output(secrets=(secret,), limit=100)
    for part in (b"x" * 4000, b"x" * 160, secret.encode(), b"\n"):
        pipe.writer.write(part)
        output.read()
    output.finish()
    assert output.is_cut
    assert "S" not in output.kept.text()


def test_bytes_that_are_no_utf8_are_kept_and_shown_as_replacements(pipe: Pipe) -> None:
    lines: list[tuple[str, str]] = []
    output = pipe.output(lines=lines)
    pipe.writer.write(b"caf\xe9\n")
    output.finish()
    assert output.kept.text().encode("utf-8", "surrogateescape") == b"caf\xe9\n"
    assert lines == [("stdout", "caf�")]


def test_a_carriage_return_before_the_newline_is_not_shown(pipe: Pipe) -> None:
    lines: list[tuple[str, str]] = []
    output = pipe.output(lines=lines)
    pipe.writer.write(b"dos\r\n")
    output.finish()
    assert lines == [("stdout", "dos")]


def test_a_pipe_that_something_else_fills_for_ever_does_not_hold_the_end_up(pipe: Pipe) -> None:
    class Endless(Output):
        def read(self) -> int | None:
            return 1

    Endless("stdout", pipe.reader, redactor=None, limit=100, on_line=None).finish()
    assert pipe.reader.closed


def test_of_a_long_text_both_ends_are_kept() -> None:
    kept = Kept(100)
    for number in range(1000):
        kept.add(f"line {number}\n")
    text = kept.text()
    assert kept.is_cut
    assert text.startswith("line 0\n")
    assert text.endswith("line 999\n")
    assert "characters left out" in text
    assert len(text) < 200


@pytest.mark.parametrize("size", [0, 1, 50, 99, 100])
def test_a_text_within_the_limit_is_kept_whole(size: int) -> None:
    kept = Kept(100)
    for _ in range(size):
        kept.add("x")
    assert kept.text() == "x" * size
    assert not kept.is_cut


def test_data_is_what_the_tool_wrote_and_does_not_show_in_a_repr() -> None:
    finished = Finished(argv=("a",), returncode=0, stdout="***", stderr="", raw_stdout="hush")
    assert finished.data == "hush"
    assert "hush" not in repr(finished)


def test_a_replayed_command_without_raw_output_offers_its_stdout_as_data() -> None:
    assert Finished(argv=("a",), returncode=0, stdout="{}", stderr="").data == "{}"

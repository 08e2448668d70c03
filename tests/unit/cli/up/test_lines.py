"""The merged log of `gitops up`."""

import io
import re

from gitops_reconciler.cli.up.lines import Lines


def merged(*, has_colour: bool = False, noise: bytes | None = None) -> tuple[Lines, io.BytesIO]:
    stream = io.BytesIO()
    patterns = {"b": re.compile(noise)} if noise else {}
    return Lines(stream=stream, names=["long-name", "b"], has_colour=has_colour, noise=patterns), stream


def test_each_line_stands_behind_the_aligned_name_of_its_writer() -> None:
    lines, stream = merged()
    lines.add("b", b"one\ntwo\n")
    lines.say("long-name", "three")
    assert stream.getvalue() == b"b         | one\nb         | two\nlong-name | three\n"


def test_pieces_of_a_line_are_put_together_though_others_write_meanwhile() -> None:
    lines, stream = merged()
    lines.add("b", b"on")
    lines.add("long-name", b"between\n")
    lines.add("b", b"e\r\n")
    assert stream.getvalue() == b"long-name | between\nb         | one\n"


def test_the_last_words_of_a_process_are_written_when_it_ends() -> None:
    lines, stream = merged()
    lines.add("b", b"half a li")
    lines.end("b")
    lines.end("b")
    assert stream.getvalue() == b"b         | half a li\n"


def test_a_line_without_end_is_not_kept_in_memory() -> None:
    lines, stream = merged()
    for _ in range(100):
        lines.add("b", b"x" * 1000)
    assert len(stream.getvalue()) > 60_000


def test_bytes_that_are_no_text_pass_through() -> None:
    lines, stream = merged()
    lines.add("b", b"\xff\xfe\n")
    assert stream.getvalue() == b"b         | \xff\xfe\n"


def test_noise_is_left_out_of_one_process_alone() -> None:
    lines, stream = merged(noise=b"bla")
    lines.add("b", b"bla bla\nnews\n")
    lines.add("long-name", b"bla bla\n")
    assert stream.getvalue() == b"b         | news\nlong-name | bla bla\n"


def test_colour_is_for_the_names_alone() -> None:
    lines, stream = merged(has_colour=True)
    lines.add("b", b"one\n")
    assert re.fullmatch(rb"\x1b\[\d+mb         \| \x1b\[0mone\n", stream.getvalue())


def test_a_reader_that_went_away_does_not_stop_the_fleet() -> None:
    lines, stream = merged()
    stream.close()
    lines.add("b", b"one\n")

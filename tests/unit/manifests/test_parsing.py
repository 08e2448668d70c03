import pytest

from gitops_reconciler.manifests.composing import MAX_DEPTH, MAX_NODES
from gitops_reconciler.manifests.parsing import MAX_BYTES, Parsed, parse
from gitops_reconciler.manifests.problems import UnreadableError, Where


def yaml(text: str) -> Parsed:
    return parse(text.encode(), is_json=False)


def refusal(text: str | bytes, *, is_json: bool = False) -> str:
    with pytest.raises(UnreadableError) as caught:
        parse(text.encode() if isinstance(text, str) else text, is_json=is_json)
    return f"{caught.value.line}:{caught.value.column}: {caught.value}"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("off", "off"),
        ("yes", "yes"),
        ("NO", "NO"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("10", 10),
        ("-3", -3),
        ("0o755", 493),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("10m", "10m"),
        ("1_000", "1_000"),
        ("22:30", "22:30"),
        ("2026-11-29", "2026-11-29"),
        ("1.2.3", "1.2.3"),
        ("'10'", "10"),
        ('"true"', "true"),
        ("!!str 10", "10"),
        ("!!int '10'", 10),
        ("!!float 10", 10.0),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_a_plain_word_means_what_yaml_1_2_says(written: str, meant: object) -> None:
    value = yaml(f"a: {written}").value["a"]
    assert value == meant
    assert type(value) is type(meant)


def test_the_key_on_is_a_string() -> None:
    assert yaml("on: [failed]\noff: 1\nno: 2").value == {"on": ["failed"], "off": 1, "no": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 0644", "1:4: '0644' is octal to some readers and decimal to others: quote it, or write 0o…"),
        ("a: .inf", "1:4: a number must be finite (quote it if it is text)"),
        ("a: -.INF", "1:4: a number must be finite (quote it if it is text)"),
        ("a: .nan", "1:4: a number must be finite (quote it if it is text)"),
        ("a: 1e999", "1:4: a number must be finite (quote it if it is text)"),
        ("a: 9223372036854775808", "1:4: a number must fit into 64 bits (quote it if it is text)"),
        (f"a: {'9' * 5000}", "1:4: a number must fit into 64 bits (quote it if it is text)"),
        (f"0x{'f' * 5000}: 1", "1:1: a number must fit into 64 bits (quote it if it is text)"),
        ("a: 1\nb: 2\na: 3", "3:1: the key 'a' stands here twice"),
        ("a: {b: 1, b: 2}", "1:11: the key 'b' stands here twice"),
        ("8080: a", "1:1: a key must be a string: quote 8080"),
        ("true: a", "1:1: a key must be a string: quote true"),
        ("? [a]\n: b", "1:3: a key must be a plain string, not a map or a list"),
        ("a: !!python/object:os.system x", "1:4: the tag '!!python/object:os.system' is not allowed"),
        ("a: !vault x", "1:4: the tag '!vault' is not allowed"),
        ("a: !!binary aGk=", "1:4: the tag '!!binary' is not allowed"),
        ("a: !!set {b}", "1:4: the tag '!!set' is not allowed"),
        ("a: !!int x", "1:4: 'x' is no !!int"),
        ("a: *b", "1:4: the alias '*b' is not defined before it is used"),
        ("a: &a [*a]", "1:8: the alias '*a' is not defined before it is used"),
        ("a: &a {b: {c: *a}}", "1:15: the alias '*a' is not defined before it is used"),
        ("a: 1\n---\nb: 2", "2:1: the file holds several documents: put each into a file of its own"),
        ("a: 1\n---\n", "2:1: the file holds several documents: put each into a file of its own"),
        ("<<: 1", "1:5: '<<' takes a map, or a list of maps"),
        ('a: "\\0"', "1:4: a text may not hold a NUL character"),
        ("- a", "1:1: a document is a map of fields, not a list"),
        ("hello", "1:1: a document is a map of fields, not 'hello'"),
        ("", "1:1: the file is empty"),
        ("# nothing", "1:1: the file is empty"),
        ("\ufeff \n", "1:1: the file is empty"),
        ("a: b: c", "1:5: not valid YAML: mapping values are not allowed in this context"),
        (
            "a:\n\t- b",
            "2:1: not valid YAML: while scanning for the next token, found character that cannot start any token",
        ),
        ("a: \x07", "1:4: not valid YAML: control characters are not allowed"),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": NaN}', "1:1: not valid JSON: ''NaN' is no JSON number'"),
        ('{"a": 1e999}', "1:7: a number must be finite (quote it if it is text)"),
        ('{"a": 123456789012345678901}', "1:7: a number must fit into 64 bits (quote it if it is text)"),
        ('{"a": "\\ud800"}', "1:7: a text may hold neither a NUL character nor half a surrogate pair"),
        ('{"a":\n {"b": 1,\n  "b": 2}}', "3:3: the key 'b' stands here twice"),
        ("{'a': 1}", "1:2: not valid JSON: expecting property name enclosed in double quotes"),
        ('{"a": 1,}', "1:8: not valid JSON: illegal trailing comma before end of object"),
        ('{"a": 1} {"b": 2}', "1:10: not valid JSON: extra data"),
        ("a: 1", "1:1: not valid JSON: expecting value"),
        ("[1]", "1:1: a document is a map of fields, not a list"),
        (" ", "1:1: the file is empty"),
    ],
)
def test_json_is_strict(text: str, message: str) -> None:
    found = refusal(text, is_json=True)
    # Python 3.13 words some of these itself.
    assert found == message or ("trailing comma" in message and "not valid JSON" in found)


@pytest.mark.req("R1.8")
def test_what_is_not_utf8_is_refused_at_the_byte() -> None:
    assert refusal(b"a: 1\nb: \xe9") == "2:4: the file is not UTF-8"
    assert refusal("a: 1".encode("utf-16"), is_json=False) == "1:1: the file is not UTF-8"


def test_a_byte_order_mark_is_no_content() -> None:
    assert parse(b"\xef\xbb\xbf{}", is_json=True).value == {}
    assert yaml("\ufeffa: 1").value == {"a": 1}


def test_a_file_over_the_limit_is_refused_unread() -> None:
    assert refusal(b"a: " + b"x" * MAX_BYTES) == "1:1: the file is too large (at most 1024 KiB)"


@pytest.mark.parametrize("is_json", [True, False])
def test_depth_has_an_end(is_json: bool) -> None:
    inside = "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert parse(f'{{"a": {inside}}}'.encode(), is_json=is_json).value["a"] is not None
    for depth in (MAX_DEPTH, 100_000):
        # libyaml looks ahead, and has an end of its own.
        assert "nest" in refusal(f'{{"a": {"[" * depth}{"]" * depth}}}', is_json=is_json)


def test_depth_counts_through_aliases() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, MAX_DEPTH + 1)]
    assert "nested too deeply" in refusal("\n".join(lines))


@pytest.mark.parametrize("join", ["[{}]", "{{<<: [{}]}}"])
def test_aliases_that_multiply_are_refused_in_no_time(join: str) -> None:
    lines = ["a0: &a0 " + ("[x, x, x, x, x, x, x, x, x]" if join == "[{}]" else "{k: [x, x, x, x, x, x, x, x, x]}")]
    for n in range(1, 12):
        many = ", ".join([f"*a{n - 1}"] * 9)
        lines.append(f"a{n}: &a{n} " + (join.format(many) if join == "[{}]" else f"{{a: [{many}]}}"))
    assert f"too large (at most {MAX_NODES} values, aliases counted in full)" in refusal("\n".join(lines))


def test_merges_that_multiply_are_refused() -> None:
    many = ", ".join(f"k{n}: 1" for n in range(3000))
    text = f"base: &base {{{many}}}\n" + "\n".join(f"m{n}: {{<<: *base}}" for n in range(20))
    assert "the document is too large: '<<' repeats too much" in refusal(text)


def test_many_values_are_refused() -> None:
    assert "too large" in refusal("a: [" + "1," * MAX_NODES + "]")
    assert "too large" in refusal('{"a": [' + "1," * MAX_NODES + "1]}", is_json=True)


def test_aliases_and_merges_mean_what_they_mean() -> None:
    parsed = yaml("""
base: &base {a: 1, b: {c: 2}}
own: {b: 3, <<: *base}
two: {<<: [{x: 1}, *base, {a: 9}]}
word: &w hello
again: *w
*w : key
""")
    assert parsed.value["own"] == {"b": 3, "a": 1}
    assert parsed.value["two"] == {"x": 1, "a": 1, "b": {"c": 2}}
    assert parsed.value["again"] == "hello"
    assert parsed.value["hello"] == "key"
    assert parsed.position(("own", "a")) == (2, 17)


@pytest.mark.parametrize(
    ("where", "value", "key"),
    [
        ((), (2, 1), (2, 1)),
        (("kind",), (2, 7), (2, 1)),
        (("spec",), (4, 3), (3, 1)),
        (("spec", "hosts"), (4, 10), (4, 3)),
        (("spec", "hosts", 1), (4, 14), (4, 14)),
        (("spec", "map", "b"), (7, 8), (7, 5)),
        (("spec", "missing", "deep"), (4, 3), (3, 1)),
        (("spec", "hosts", 7), (4, 10), (4, 3)),
    ],
)
def test_every_value_knows_its_line_and_column(where: Where, value: tuple[int, int], key: tuple[int, int]) -> None:
    parsed = yaml("# first\nkind: x\nspec:\n  hosts: [a, b]\n  map:\n    a: ä\n    b: c\n")
    assert parsed.position(where) == value
    assert parsed.position(where, of_key=True) == key


def test_json_values_know_their_places_too() -> None:
    parsed = parse(b'{\n\t"kind": "x",\n  "\\ud83d\\ude00": 1, "spec": {"b": [1,\n 2]}}', is_json=True)
    assert parsed.position(("kind",)) == (2, 10)
    assert parsed.position(("spec", "b"), of_key=True) == (3, 31)
    assert parsed.position(("spec", "b", 1)) == (4, 2)


def test_json_that_yaml_cannot_read_still_has_a_first_line() -> None:
    long = "k" * 2000
    assert parse(f'{{"{long}": 1, "kind": "x"}}'.encode(), is_json=True).position(("kind",)) == (1, 1)
    twins = parse(b'{"\\ud83d\\ude00": 1, "\\ud83d\\ude01": 2, "kind": "x"}', is_json=True)
    assert twins.position(("kind",)) == (1, 1)

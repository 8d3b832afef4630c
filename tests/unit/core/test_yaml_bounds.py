"""What a file may ask of the reader, and what it may not contain: refused at its place."""

import pytest

from broker.core.errors import Place, UsageError
from broker.core.yaml_bounds import MAX_DEPTH, MAX_KEY, MAX_TOKENS
from broker.core.yaml_text import parse


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(text, "f.yaml")
    assert caught.value.place is not None
    return caught.value


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\nb: x\x00\n", "2:5", "U+0000 (a control character) cannot be seen"),
        ("a: 1\r\nb: \x1b[31m\r\n", "2:4", "U+001B (a control character) cannot be seen"),
        ("a: 1 # fine\rmode: act\n", "1:12", "U+000D (a control character) cannot be seen"),
        ("a: 1\nb: \u202eact\n", "2:4", "U+202E (RIGHT-TO-LEFT OVERRIDE) cannot be seen"),
        ("# \u2066only a comment\na: 1\n", "1:3", "U+2066 (LEFT-TO-RIGHT ISOLATE) cannot be seen"),
        ("a\u200b: 1\n", "1:2", "U+200B (ZERO WIDTH SPACE) cannot be seen"),
        ("a: x\n\ufeffb: 1\n", "2:1", "U+FEFF (ZERO WIDTH NO-BREAK SPACE) cannot be seen"),
        ("a: x\u2028b: 1\n", "1:5", "U+2028 (LINE SEPARATOR) cannot be seen"),
        ("a: x\x85b: 1\n", "1:5", "U+0085 (a control character) cannot be seen"),
        ("a: \u3164\n", "1:4", "U+3164 (HANGUL FILLER) cannot be seen"),
        ("a: x\U000e0041\n", "1:5", "U+E0041 (TAG LATIN CAPITAL LETTER A) cannot be seen"),
        ("a: x\uffff\n", "1:5", "U+FFFF (no character) cannot be seen"),
        ("a: x\ud800\n", "1:5", "U+D800 (half of a surrogate pair) cannot be seen"),
        ('a: "x\\u202e"\n', "1:4", "U+202E (RIGHT-TO-LEFT OVERRIDE) cannot be seen"),
        ('a: "\\0"\n', "1:4", "U+0000 (a control character) cannot be seen"),
        ('"a\\u200d": 1\n', "1:1", "the key 'a\\u200d' does not read as it looks; write it in plain letters"),
        ("e\u0301: 1\n", "1:1", "the key 'e\\u0301' does not read as it looks; write it in plain letters"),
        ("a\u00a0b: 1\n", "1:1", "the key 'a\\xa0b' does not read as it looks; write it in plain letters"),
        ('"": 1\n', "1:1", "a key must be text"),
        ("a: 1\n%YAML 1.1\n---\nb: yes\n", "2:1", "directives (%YAML, %TAG) are not supported"),
    ],
)
def test_a_character_that_makes_a_file_read_otherwise_than_it_looks(text: str, where: str, what: str) -> None:
    error = refusal(text)
    assert (str(error.place), error.message) == (f"f.yaml:{where}", what)
    shown = str(error).replace("\n", "")
    assert shown.isprintable(), "the message itself must not obey the character"


@pytest.mark.parametrize("text", ["a: 1\r\nb: 2\r\n", "a: 1\r\nb: 2\n", "\ufeffa: 1\nb: 2\n"])
def test_files_from_windows_are_read(text: str) -> None:
    assert parse(text, "f.yaml").value == {"a": 1, "b": 2}
    assert refusal(text + "c: &x 1").place == Place("f.yaml", 3, 4, "c: &x 1")


def test_other_scripts_are_no_tricks() -> None:
    text = "a: naïve Straße 東京 می\u200cخواهم 👩\u200d💻\nкоманда: x\n"
    assert parse(text, "f.yaml").value == {"a": "naïve Straße 東京 می\u200cخواهم 👩\u200d💻", "команда": "x"}


def test_a_key_in_other_letters_is_told_by_the_letter() -> None:
    with pytest.raises(UsageError) as caught:
        parse("mоde: act\n", "f.yaml").only(("mode", "match"))
    assert caught.value.hint == "'о' is U+043E (CYRILLIC SMALL LETTER O); did you mean mode?"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (f"a: {'[' * 21}", f"1:{3 + MAX_DEPTH + 1}"),
        (f"a: {'{x: ' * 25}", None),
        ("".join(f"{' ' * n}a:\n" for n in range(30)), None),
        ("- " * 30, None),
        ("? " * 30, None),
    ],
)
def test_depth_has_an_end(text: str, where: str | None) -> None:
    error = refusal(text)
    assert error.message == "nested too deeply: 20 levels are allowed"
    assert where is None or str(error.place) == f"f.yaml:{where}"


def test_twenty_levels_are_read() -> None:
    flow = f"a: {'[' * MAX_DEPTH}x{']' * MAX_DEPTH}\n"
    block = "".join(f"{' ' * n}a:\n" for n in range(MAX_DEPTH - 1)) + " " * MAX_DEPTH + "a: 1\n"
    assert parse(flow, "f.yaml").value
    assert parse(block, "f.yaml").value


def test_values_have_an_end() -> None:
    error = refusal("a: [" + "1," * MAX_TOKENS + "]")
    assert error.message == "too many values: a file has at most 20000 keys, values and brackets"


def test_long_keys_and_numbers_are_refused_and_long_text_is_not() -> None:
    assert parse(f"{'k' * MAX_KEY}: {'x' * 50_000}\n", "f.yaml")
    assert refusal(f"{'k' * (MAX_KEY + 1)}: 1\n").message == "a key of 201 characters; 200 are allowed"
    for number in ("9" * 5000, "0x" + "f" * 5000, "1." + "0" * 5000, "1e" + "9" * 5000):
        assert refusal(f"a: 1\nb: {number}\n").message.endswith("characters; 40 are allowed")


def test_a_message_never_is_a_page() -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"a: {'x' * 50_000}\n", "f.yaml")["a"].as_choice(("b", "c"))
    assert len(str(caught.value)) < 1200
    assert caught.value.message.endswith("is not one of b, c")


def test_the_shown_part_of_a_long_line_holds_the_caret() -> None:
    source, caret = str(refusal("x" * 300 + ": 1" + " " * 300)).splitlines()[1:3]
    assert source.startswith("    xxx")
    assert source.endswith("...")
    assert caret == "    ^"
    source, caret = str(refusal("a: [" + "b, " * 500 + "&x]")).splitlines()[1:3]
    assert source[caret.index("^")] == "&"
    assert source.startswith("    ...")
    assert len(source) < 200

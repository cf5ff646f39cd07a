"""JSON that is not as it should be is told in one line, with its file."""

from __future__ import annotations

import json

import pytest

from bert_jax.errors import CheckpointError, DataError
from bert_jax.system import jsons
from bert_jax.system.jsons import Maybe

WRONG = {  # text, schema -> what is said
    "cut short": ('{"a": 1', dict, "not JSON: Expecting ',' delimiter"),
    "empty": ("", dict, "not JSON: Expecting value"),
    "not UTF-8": (b'{"a": "\xff"}', dict, "not UTF-8 at byte 7"),
    "too deep": ("[" * 100_000, object, "nested too deeply"),
    "5,000 digits": ('{"a": ' + "9" * 5000 + "}", dict, "not JSON: Exceeds the limit"),
    "another type": ("[]", dict, "the whole is a list, not an object"),
    "no key": ('{"a": {}}', {"a": {"b": int}}, "a has no 'b'"),
    "true for a number": ('{"a": true}', {"a": int}, "a is True, not a whole number"),
    "in a table": ('{"x": [1]}', {str: (str,)}, "x[0] is 1, not a text"),
    "too few": ('{"a": [1]}', {"a": (int, int)}, "a has 1 values, not 2"),
    "optional, of another type": ('{"a": 1}', {"a": Maybe(str)}, "a is 1, not a text"),
    "repeated": ('{"b": [{"a": 1, "a": 1}]}', dict, "key 'a' stands twice in an object"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_read_tells_a_fault_in_one_line(tmp_path, kind):
    text, schema, said = WRONG[kind]
    file = tmp_path / "file.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for error in (DataError, CheckpointError):
        with pytest.raises(error) as refused:
            jsons.read(file, error, schema, hint="restore it")
        assert str(refused.value).startswith(f"{file}: ")
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
        assert refused.value.hint == "restore it"


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('{"a": 1, "b": "more"}', {"a": int}),
        ('{"a": null}', {"a": Maybe(int), "b": Maybe(str)}),
        ('{"x": [1, "y"], "z": [2, ""]}', {str: (int, str)}),
        ("[]", [{"a": int}]),
        ('"x"', str | None),
        ("\ufeff{}", dict),
    ],
)
def test_parse_returns_the_whole_value(text, schema):
    assert jsons.parse(text.encode(), schema) == json.loads(text.removeprefix("\ufeff"))


def test_show_is_short_and_moves_no_cursor():
    assert jsons.show("x" * 1000) == f"'{'x' * 76}..."
    assert jsons.show("a\x1b[2Jb\n\ud800") == r"'a\x1b[2Jb\n\ud800'"

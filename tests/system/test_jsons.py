"""JSON that is not as it should be is told in one line, with its file."""

import json
import math

import msgspec
import pytest

from bert_jax.errors import DataError
from bert_jax.system import jsons


class Inner(msgspec.Struct):
    b: int


class Outer(msgspec.Struct):
    a: Inner
    c: str | None = None


WRONG = {  # text, type -> what is said
    "cut short": ('{"a": 1', dict, "not JSON: Expecting ',' delimiter: column 8"),
    "cut at a line": ('{"a":\n', dict, "not JSON: Expecting value: line 2 column 1"),
    "not UTF-8": (b'{"a": "\xff"}', dict, "not UTF-8 at byte 7"),
    "too deep": ("[" * 100_000, list, "not JSON: maximum recursion depth"),
    "5,000 digits": ('{"a": ' + "9" * 5000 + "}", dict, "not JSON: Exceeds the limit"),
    "no key": ('{"a": {}}', Outer, "Object missing required field `b` - at `$.a`"),
    "true for a number": ('{"a": {"b": true}}', Outer, "Expected `int`, got `bool` - at `$.a.b`"),
    "optional, of another type": ('{"a": {"b": 1}, "c": 1}', Outer, "got `int` - at `$.c`"),
    "repeated": ('{"b": [{"a": 1, "a": 1}]}', dict, "key 'a' stands twice in an object"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_read_tells_a_fault_in_one_line(tmp_path, kind):
    text, type_, said = WRONG[kind]
    file = tmp_path / "file.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError) as refused:
        jsons.read(file, DataError, type_, hint="restore it")
    assert str(refused.value).startswith(f"{file}: ")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.hint == "restore it"


def test_parse_gives_the_type_and_ignores_further_keys():
    text = '\ufeff{"a": {"b": 1, "more": 2}, "c": null, "d": []}'
    assert jsons.parse(text.encode(), Outer) == Outer(Inner(1))
    assert jsons.parse(text.encode()) == json.loads(text.removeprefix("\ufeff"))


def test_is_finite_takes_any_value():
    numbers = (1, 2.5, 10**400, math.inf, math.nan, "1", None)
    assert [*map(jsons.is_finite, numbers)] == [True, True, *[False] * 5]


def test_show_is_short_and_moves_no_cursor():
    assert jsons.show("x" * 1000) == f"'{'x' * 76}..."
    assert jsons.show("a\x1b[2Jb\n\ud800") == r"'a\x1b[2Jb\n\ud800'"

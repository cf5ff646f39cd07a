"""What the reader of JSON says of files that are not as they should be."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bert_jax.errors import CheckpointError, DataError
from bert_jax.system import jsons
from bert_jax.system.jsons import Maybe

WRONG = {  # text, schema -> what is said
    "cut short": ('{"a": 1', dict, "not JSON: Expecting ',' delimiter"),
    "empty": ("", dict, "not JSON: Expecting value"),
    "not UTF-8": (b'{"a": "\xff"}', dict, "not UTF-8 at byte 7"),
    "UTF-16": ("{}".encode("utf-16"), dict, "not UTF-8 at byte 0"),
    "too deep": ("[" * 100_000, object, "nested too deeply"),
    "too deep and whole": ('{"a":' * 50_000 + "1" + "}" * 50_000, object, "nested too deeply"),
    "a level too deep": ("[" * 101 + "1" + "]" * 101, object, "in more than 100 levels"),
    "5,000 digits": (
        '{"a": ' + "9" * 5000 + "}",
        dict,
        "a number of 5,000 digits: 999999999999...",
    ),
    "more than a float holds": ("1" * 309, object, "a number of 309 digits"),
    "another type": ("[]", dict, "the whole is a list, not an object"),
    "a number for a list": ("3", [int], "the whole is 3, not a list"),
    "no key": ("{}", {"a": int}, "the whole has no 'a'"),
    "no key, below": ('{"a": {}}', {"a": {"b": int}}, "a has no 'b'"),
    "text for a number": ('{"a": "abc"}', {"a": float}, "a is 'abc', not a finite number"),
    "true for a number": ('{"a": true}', {"a": int}, "a is True, not a whole number"),
    "infinite": ('{"a": 1e999}', {"a": float}, "a is inf, not a finite number"),
    "NaN": ('{"a": NaN}', {"a": float}, "a is nan, not a finite number"),
    "null": ('{"a": null}', {"a": str}, "a is None, not a text"),
    "out of range": (
        '{"a": 2147483647}',
        {"a": range(1, 1000)},
        "a is 2147483647, not a whole number from 1 to 999",
    ),
    "in a list": ('{"a": [1, 2, "x"]}', {"a": [int]}, "a[2] is 'x', not a whole number"),
    "in a table": ('{"a": {"x": [1]}}', {"a": {str: (str,)}}, "a.x[0] is 1, not a text"),
    "too few": ('{"a": [1]}', {"a": (int, int)}, "a has 1 values, not 2"),
    "neither": ("1", str | None, "the whole is 1, not a text or null"),
    "optional, of another type": ('{"a": 1}', {"a": Maybe(str)}, "a is 1, not a text"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path, kind):
    text, schema, said = WRONG[kind]
    with pytest.raises(jsons.Malformed) as caught:
        jsons.parse(text, schema)
    assert said in str(caught.value)
    file = tmp_path / "file.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for error in (DataError, CheckpointError):
        with pytest.raises(error) as refused:
            jsons.read(file, error, schema, hint="restore it")
        assert str(refused.value).startswith(f"{file}: ")
        assert said in str(refused.value)
        assert len(str(refused.value)) < 300 + len(str(file))
        assert "\n" not in str(refused.value)
        assert refused.value.hint == "restore it"


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ('{"a": 1, "b": "more"}', {"a": int}),
        ('{"a": null}', {"a": Maybe(int), "b": Maybe(str)}),
        ('{"a": 3}', {"a": float}),
        ('{"a": 9}', {"a": range(1, 10)}),
        ('{"x": [1, "y"], "z": [2, ""]}', {str: (int, str)}),
        ("[]", [{"a": int}]),
        ("[" * 100 + "1" + "]" * 100, object),
        ('"x"', str | None),
        ("1000000000000000019884624838656", int),  # what transformers writes for "no limit"
        ("\ufeff{}", dict),
    ],
)
def test_what_is_as_it_should_be_is_returned(text, schema):
    assert jsons.parse(text.encode(), schema) == json.loads(text.removeprefix("\ufeff"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[NaN]", "NaN is not a JSON number"),
        (r'{"a": ["\uD800"]}', "half a character"),
    ],
)
def test_files_of_others_are_read_strictly(text, said):
    jsons.parse(text)
    with pytest.raises(jsons.Malformed, match=said):
        jsons.parse(text, strict=True)
    assert jsons.parse(r'"\ud83d\ude00"', str, strict=True) == "\U0001f600"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"b": [{"a": 1, "a": 1}]}'])
@pytest.mark.parametrize("strict", [False, True])
def test_parse_refuses_repeated_keys(text, strict):
    with pytest.raises(jsons.Malformed, match="key 'a' stands twice in an object"):
        jsons.parse(text, strict=strict)


def test_foreign_values_are_shown_short_and_plain():
    assert jsons.show("x" * 1000) == f"'{'x' * 76}..."
    assert jsons.show("a\x1b[2Jb\n\ud800") == r"'a\x1b[2Jb\n\ud800'"
    assert jsons.show({"a": [1] * 1000}) == "an object"


def test_a_file_too_large_is_not_read(tmp_path):
    with (tmp_path / "file.json").open("wb") as file:
        file.truncate(1 << 40)  # takes no space, and would take a terabyte of memory
    with pytest.raises(
        DataError, match=r"1,099,511,627,776 bytes, and at most 268,435,456 are read"
    ):
        jsons.read(tmp_path / "file.json", DataError)


def test_broken_lines_are_left_out_with_one_warning(tmp_path, capsys):
    file = tmp_path / "file.jsonl"
    file.write_bytes(b'{"step": 1}\n[]\n{"step": "x"}\n{"step": 2}\n\xff\n{"step": 3}\n{"step": 4')
    assert [row["step"] for row in jsons.lines(file, DataError, {"step": int})] == [1, 2, 3]
    warning = f"warning: {file}:2: the whole is a list, not an object; 3 such lines are left out\n"
    assert capsys.readouterr().err == warning
    file.write_text('{"step": 1}\n{"step"')  # the end of a run that was killed, or still writes
    assert [row["step"] for row in jsons.lines(file, DataError, {"step": int})] == [1]
    assert capsys.readouterr().err == ""


def test_neither_needs_jax():
    code = (
        "import sys, bert_jax.system.jsons, bert_jax.system.opening; "
        "print('jax' in sys.modules or 'numpy' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        == "False\n"
    )

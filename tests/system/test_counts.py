"""A count and its noun."""

from bert_jax.system.counts import choose_verb, format_count


def test_one_thing_has_no_plural():
    assert format_count(1, "group") == "1 group"
    assert format_count(0, "group") == "0 groups"
    assert format_count(1_234, "loss", "losses") == "1,234 losses"
    assert [choose_verb(count) for count in (0, 1, 2)] == ["are", "is", "are"]

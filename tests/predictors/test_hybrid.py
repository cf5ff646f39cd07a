"""`predict generate` of a hybrid model: masks are filled, other texts go on."""

import dataclasses

from tests.predictors import drawing


def test_generate_hybrid_answers_in_order():
    small = {"model__layers": 1}
    masked, causal = drawing.make_model(**small), drawing.make_model(**small, **drawing.CAUSAL)
    texts = ["the cat", "the [MASK] sees", "[MASK] cat .", "abc"]
    hybrid = dataclasses.replace(masked, from_left=causal)
    found = drawing.generate(hybrid, texts, max_tokens=4)
    filled = drawing.generate(masked, texts[1:3])
    begun = drawing.generate(causal, texts[::3], max_tokens=4)
    assert found == [begun[0], *filled, begun[1]]

"""The options of `bert-jax predict`: each is a flag, with a help text for each task that has it."""

import dataclasses

from bert_jax.system.arguments import option

WAYS = "a text too long for the model: refuse it, cut its end"
REFUSED = "a text too long for the model is always refused, because cutting would lose its end"
POOLING = "mean of the tokens, or cls: the vector of [CLS], or of [SEP] if the model is causal "
POOLING += "(the model's own, else mean)"
THRESHOLD = (
    "allow no answer, and give it if its score is higher by more than this (the model's own)"
)
MOST = "most tokens to add (64); a masked model adds so many masks behind a text without [MASK]"
TEMPERATURE = "0 takes the likeliest token; others draw, 1 as the model says (0)"
TOP_P = "draw from the fewest tokens that have this share of the probability (1)"
STEPS = "masked models: rounds in which masks are filled (one for each mask)"
ORDER = "masked models: masks to fill next: random ones, or those whose token is surest "
ORDER += "(confident, the default)"


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a predictor; None, 0 or "" leaves a choice to the task and the model."""

    top_k: int | None = option(
        None,
        {
            "fill-mask": "tokens a mask (5)",
            "answer": "best answers listed, the chosen one among them (none)",
            "generate": "draw from the likeliest K (all)",
        },
        "K",
    )
    pooling: str = option("", {"embed": POOLING}, choices=("mean", "cls"))
    normalize: bool = option(False, {"embed": "vectors of length 1"})
    entities: bool = option(False, {"tag": "merge words labelled B-… and I-…"})
    no_answer_threshold: float | None = option(None, {"answer": THRESHOLD}, "X")
    max_tokens: int | None = option(None, {"generate": MOST}, "N")
    temperature: float = option(0.0, {"generate": TEMPERATURE}, "T")
    top_p: float | None = option(None, {"generate": TOP_P}, "P")
    seed: int | None = option(None, {"generate": "seed of the draws (0)"}, "N")
    steps: int | None = option(None, {"generate": STEPS}, "N")
    order: str = option("", {"generate": ORDER}, choices=("random", "confident"))
    show_steps: bool = option(False, {"generate": "masked models: add what every round revealed"})
    long: str = option(
        "",
        {
            "fill-mask": f"{WAYS}, or look at it in windows (refuse)",
            "nsp": f"{WAYS} (refuse)",
            "classify": f"{WAYS} (the model's own, else cut)",
            "tag": f"{WAYS}, or look at it in windows (the model's own, else windows)",
            "answer": f"{WAYS}, or look at it in windows (the model's own, else windows)",
            "embed": f"{WAYS} (refuse)",
            "generate": REFUSED,
        },
        choices=("refuse", "cut", "windows"),
    )
    stride: int | None = option(
        None,
        {
            "fill-mask": "of windows, in tokens (64, or half a window)",
            **dict.fromkeys(("tag", "answer"), "of windows, in tokens (the model's own, or 128)"),
        },
        "N",
    )
    stride_as: str = option(
        "",
        {
            "fill-mask": "what neighbouring windows share, or how far the next one "
            "begins (overlap)",
            **dict.fromkeys(("tag", "answer"), "meaning of the stride (the model's own, or step)"),
        },
        choices=("overlap", "step"),
    )
    batch_size: int = option(32, "rows a step (32)", "N")


FIELDS = dataclasses.fields(Options)
_NAMED = {field.name: field for field in FIELDS}
_OF_WRITING = ("max_tokens", "temperature", "top_p", "seed", "steps", "order", "top_k")
WRITING = [_NAMED[name] for name in _OF_WRITING]  # by which a model writes text

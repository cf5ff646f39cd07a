"""Measure the cost of generating a token after so many others, with a cache and without.

    python experiments/performance/generation.py [--size=4x256] [--rows=1] [--rounds=7] \\
      [--output=FILE.json]

`cached` is a token of `predict generate`: the time of 33 tokens less that of one, over 32.
`uncached` reads the whole text for one token, as the first token of a generation does. `attention`
is the attention of one token by itself, in all layers: where `cached` grows by more than that, the
cache costs time. Weights are random, decoding is greedy and never ends early.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench
import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import config as configs
from bert_jax.batch import SPECIAL
from bert_jax.config import devices
from bert_jax.config.knobs import Config
from bert_jax.models import backends
from bert_jax.models.attention_mask import make_attention_mask
from bert_jax.objectives import network
from bert_jax.predictors.generate import Draw, build_continuation

MORE = 32
LENGTHS = (32, 64, 128, 256, 384, 512)


def config_of(size: str) -> Config:
    """Build the config of a causal language model with room for the longest text."""
    tree = bench.make_tree(None, size)
    knobs = {
        "objectives.causal_lm.weight": 1.0,
        "model.causal": True,
        "pairs": "none",
        "checkpoints.best": "",
    }
    for path, value in (knobs | {"model.max_positions": max(LENGTHS) + MORE + 1}).items():
        configs.put(tree, path.split("."), value)
    return configs.resolve(tree)


def contestants(config: Config, rows: int) -> dict[tuple[str, int], Callable[[], Any]]:
    """Build the functions that are timed, by name and length."""
    vocab_size = config.tokenizer.vocab_size
    params = jax.jit(lambda seed: network.init_params(config, vocab_size, seed))(np.uint32(0))
    endless = SPECIAL._replace(sep=-1)
    draw = np.random.default_rng(0)

    def generating(length: int, most: int) -> Callable[[], Any]:
        go_on = jax.jit(build_continuation(config.model, vocab_size, endless, Draw(), most))
        tokens = draw.integers(len(SPECIAL), vocab_size, (rows, length)).astype(np.int32)
        zeros = np.zeros(rows, np.int32)
        return lambda: go_on(params, tokens, zeros, zeros + most, zeros)

    functions: dict[tuple[str, int], Callable[[], Any]] = {}
    for length in LENGTHS:
        functions["one", length] = generating(length, 1)
        functions["many", length] = generating(length, 1 + MORE)
        functions["attention", length] = attending(config, rows, length)
    return functions


def attending(config: Config, rows: int, length: int) -> Callable[[], Any]:
    """Build the attention of MORE tokens, one after the other in all layers, over `length` keys."""
    cfg = devices.fill_machine_knobs(config.model, train=False)
    assert cfg.layers is not None
    assert cfg.heads is not None
    assert cfg.hidden is not None
    shape = (rows, length, cfg.heads, cfg.hidden // cfg.heads)
    kept = [jax.random.normal(jax.random.key(n), shape) for n in range(2 * cfg.layers)]
    place = jnp.zeros((rows, 1), jnp.int32)
    past = jnp.zeros((rows, length - 1), jnp.int32)
    batch = {"segment_ids": place + 1, "positions": place, "past_positions": past}
    mask = make_attention_mask(batch, cfg)

    @jax.jit
    def attend(query: jax.Array, kept: list[jax.Array]) -> jax.Array:
        def token(_: int, query: jax.Array) -> jax.Array:
            for key, value in zip(kept[::2], kept[1::2], strict=True):
                query = backends.attend_by_einsum(query, key, value, mask, cfg, lambda x: x)[0]
            return query

        return jax.lax.fori_loop(0, MORE, token, query)

    return lambda: attend(kept[0][:, :1], kept)


def measure(config: Config, rows: int, rounds: int) -> list[dict[str, Any]]:
    """Time the functions in turn, and return a row for each length, in ms a token."""
    functions = contestants(config, rows)
    times: dict[tuple[str, int], list[float]] = {key: [] for key in functions}
    for number in range(rounds + 1):
        for key, run in functions.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            if number:  # the first call compiles
                times[key].append(1000 * (time.perf_counter() - began))
    median = {key: statistics.median(values) for key, values in times.items()}
    return [
        {
            "tokens before": n,
            "cached": round((median["many", n] - median["one", n]) / MORE, 3),
            "uncached": round(median["one", n], 3),
            "attention": round(median["attention", n] / MORE, 3),
        }
        for n in LENGTHS
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="4x256")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    table_rows = measure(config_of(args.size), args.rows, args.rounds)
    print("".join(f"{name:>16}" for name in table_rows[0]), "   ms a token")
    for row in table_rows:
        print("".join(f"{value:>16}" for value in row.values()))
    if args.output:
        args.output.write_text(json.dumps(table_rows, indent=1) + "\n")

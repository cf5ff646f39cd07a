"""The predictor that writes text with a masked model: it fills masks, some in each round.

How many masks a round reveals is exact. Which ones is decided before their tokens are: random ones,
as the bound of masked diffusion averages over, or those whose likeliest token the model is surest
of. So one mask a round draws texts as often as the model's conditionals say, in either order; the
tokens of one round do not know of each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import ConfigError, DataError
from bert_jax.objectives import network
from bert_jax.predictors.base import Model, OfText, Row, Work, indented, percent
from bert_jax.predictors.fill_mask import SLOTS
from bert_jax.predictors.generate import TOKENS, Draw, choose, continuation, draw_of

ORDERS = ("random", "confident")


class Unmask(OfText):
    """Results {"text"}, and if steps are asked for "tokens" and "steps".

    A text without [MASK] gets masks behind it. "tokens" are those of the final text; "steps" lists
    for each round what it revealed, {"place", "token", "probability"}: a place among the tokens,
    from 0, and the probability that the model gave the token, before temperature, top-k and top-p.
    """

    example = '{"text": "Paris is the [MASK] of France."}'
    heading = ()

    def __init__(self, model: Model):
        run, options = model.run, model.options
        if options.long in ("cut", "windows"):
            raise ConfigError(
                f"--long={options.long} would part masks from their text", "shorten the texts"
            )
        if options.order not in ("", *ORDERS):  # from Python
            raise ConfigError(f"order {options.order!r}", f"one of {', '.join(ORDERS)}")
        super().__init__(model)
        self.most = options.max_tokens or TOKENS
        random = options.order == "random"
        draw = draw_of(options, random_places=random)
        tokenizer, params = run.tokenizer, model.parameters("mlm")
        net = network.build(run.config, tokenizer.size, only="mlm")
        allowed = ~np.isin(np.arange(tokenizer.size), tokenizer.special)[None, None]

        @functools.partial(jax.jit, static_argnames="most")
        def apply(params: Any, batch: Batch, masks: Masks, most: int) -> Revealed:
            def logits_of(tokens: jax.Array, places: jax.Array) -> jax.Array:
                partly = {**batch, "tokens": tokens, "predict_positions": places}
                logits = network.outputs(net, params, partly)["mlm"]
                return jnp.where(allowed, logits[..., : tokenizer.size], -jnp.inf)

            return reveal(logits_of, batch["tokens"], masks, most, draw, random=random)

        self.apply = functools.partial(apply, params)

    def encode(self, rows: Sequence[Row]) -> Work:
        """Encode each text as one row of the model, with the masks that are to be filled."""
        mask, steps = self.model.run.tokenizer.special.mask, self.model.options.steps
        texts = [
            self.masked(row, ids)
            for row, ids in zip(rows, self.ids(rows, escape=False), strict=True)
        ]
        places = [[place for place, i in enumerate(ids) if i == mask] for ids in texts]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = self.batch([[texts[i]] for i in chosen], length, size)
            slots = -(-max(len(places[i]) for i in chosen) // SLOTS) * SLOTS
            masks = Masks.of(
                [places[i] for i in chosen], [rows[i].number for i in chosen], steps, (size, slots)
            )
            return self.apply(batch, masks, most=-(-slots // min(steps or slots, slots)))

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            for row, ids, at, revealed in zip(rows, texts, places, outputs, strict=True):
                yield self.filled(row, ids, at, revealed)

        return Work(self.count_tokens([[ids] for ids in texts]), compute, results)

    def masked(self, row: Row, ids: list[int]) -> list[int]:
        """Return a text's ids, with masks behind them if they hold none; DataError if too many."""
        mask, room = self.model.run.tokenizer.special.mask, self.limit - 2 - len(ids)
        least = 0 if mask in ids else self.model.options.max_tokens or 1
        if room < least:
            masks = f" and {least} masks behind them" if least else ""
            raise DataError(
                f"line {row.number}: {len(ids) + 2} tokens with [CLS] and [SEP]{masks}, "
                f"and the model takes {self.limit}",
                f"--max-tokens={room}, or a shorter text" if room > 0 else "shorten the text",
            )
        return ids + [mask] * min(room, self.most) if least else ids

    def filled(self, row: Row, ids: list[int], places: list[int], revealed: Any) -> dict[str, Any]:
        """Return the result of a line."""
        tokenizer, final = self.model.run.tokenizer, list(ids)
        steps: list[list[dict[str, Any]]] = []
        by_round = np.argsort(revealed.rounds[: len(places)], kind="stable")
        for slot in by_round.tolist():
            place, token = places[slot], int(revealed.tokens[slot])
            final[place] = token
            steps += [[]] if revealed.rounds[slot] == len(steps) else []
            probability = float(revealed.probabilities[slot])
            steps[-1].append(
                {"place": place, "token": tokenizer.shown[token], "probability": probability}
            )
        result: dict[str, Any] = {"text": written(tokenizer, row.fields["text"], final, places)}
        if self.model.options.show_steps:
            result |= {"tokens": [tokenizer.shown[i] for i in final], "steps": steps}
        return result

    def text(self, result: dict[str, Any]) -> str:
        """Write the final text, then what each round revealed."""
        steps = result.get("steps", [])
        rows = [
            ("" if place else f"round {number}", one["token"], percent(one["probability"]))
            for number, revealed in enumerate(steps, 1)
            for place, one in enumerate(revealed)
        ]
        return "\n".join([result["text"], *([indented(rows)] if rows else [])])


def written(tokenizer: Tokenizer, text: str, ids: list[int], places: list[int]) -> str:
    """Return a text with its masks replaced by tokens, and all else as it was.

    Args:
      tokenizer: of the tokens.
      text: with a literal [MASK] for each place, or with none; then the masks stood behind it.
      ids: the tokens of the final text.
      places: of its masks among them.
    """
    parts = text.split(tokenizer.mask)
    if len(parts) == 1:
        parts += [""] * len(places)
    if len(parts) != len(places) + 1:  # a rule for characters hid one
        return tokenizer.readable(ids)
    done = parts[0]
    slot = 0
    while slot < len(places):
        end = slot + 1  # of a run of masks that are written as neighbours
        while end < len(places) and parts[end] in ("", " "):
            end += 1
        first, last = places[slot], places[end - 1]
        more = continuation(tokenizer, ids[:first], ids[first : last + 1])
        kept = done.rstrip()
        if kept and not more.startswith(" "):  # a piece of a word, or punctuation
            done = kept
        elif kept != done:  # the text has a blank of its own
            more = more.lstrip(" ")
        done, slot = done + more + parts[end], end
    return done


# --- rounds --------------------------------------------------------------------------------------


class Masks(NamedTuple):
    """The masks of B rows, in K slots each."""

    places: Any  # int32 [B, K], columns; those of spare slots are 0
    counts: Any  # int32 [B], slots that are no spare ones
    reveals: Any  # int32 [B, K], how many masks each round reveals
    numbers: Any  # int32 [B], of the lines, which the draws follow from

    @classmethod
    def of(
        cls,
        places: Sequence[Sequence[int]],
        numbers: Sequence[int],
        steps: int | None,
        shape: tuple[int, int],
    ) -> Masks:
        """Build the masks of texts, given their places in each; rows behind them have none."""
        columns, reveals = np.zeros((2, *shape), np.int32)
        counts, lines = np.zeros((2, shape[0]), np.int32)
        for k, (own, number) in enumerate(zip(places, numbers, strict=True)):
            columns[k, : len(own)] = np.array(own) + 1  # behind [CLS]
            rounds = schedule(len(own), steps)
            reveals[k, : len(rounds)] = rounds
            counts[k], lines[k] = len(own), number
        return cls(columns, counts, reveals, lines)


def schedule(masks: int, steps: int | None) -> np.ndarray:
    """Return how many masks each round reveals: counts that differ by 1 at most, none of them 0."""
    rounds = min(steps or masks, masks)
    return np.diff(masks * np.arange(rounds + 1) // rounds)


class Revealed(NamedTuple):
    """What became of the masks of B rows; spare slots hold what nobody reads."""

    tokens: jax.Array  # int32 [B, K]
    rounds: jax.Array  # int32 [B, K], from 0; -1 in spare slots
    probabilities: jax.Array  # float32 [B, K], what the model gave the token


def reveal(
    logits_of: Callable[[jax.Array, jax.Array], jax.Array],
    tokens: jax.Array,
    masks: Masks,
    most: int,
    draw: Draw,
    *,
    random: bool,
) -> Revealed:
    """Fill the masks of some rows; the caller compiles it.

    Args:
      logits_of: a function from tokens [B, L] and columns [B, k] to the logits there [B, k, V].
      tokens: [B, L], with [MASK] wherever there is something to fill.
      masks: where that is, and how many of them each round reveals.
      most: of a round.
      draw: the rule by which tokens are chosen.
      random: whether the places of a round are random ones, or those that the model is surest of.
    """
    (size, slots), length = masks.places.shape, tokens.shape[1]
    rows = jnp.arange(size)[:, None]
    real = jnp.arange(slots)[None] < masks.counts[:, None]
    order_keys, token_keys = _keys(draw.seed, masks.numbers, slots)
    chances = jax.vmap(jax.vmap(jax.random.uniform))(order_keys)  # [B, K]

    def one_round(state: tuple[jax.Array, jax.Array, Revealed]) -> tuple:
        number, tokens, found = state
        logits, sure = None, chances
        if not random:
            logits = logits_of(tokens, masks.places)
            sure = jnp.max(logits, axis=-1) - jax.nn.logsumexp(logits, axis=-1)
        waiting = real & (found.rounds < 0)
        _, chosen = jax.lax.top_k(jnp.where(waiting, sure, -jnp.inf), most)  # [B, k] slots
        columns = jnp.take_along_axis(masks.places, chosen, axis=1)
        if logits is None:
            logits = logits_of(tokens, columns)
        else:
            logits = jnp.take_along_axis(logits, chosen[..., None], axis=1)
        flat, keys = logits.reshape(-1, logits.shape[-1]), token_keys[rows, chosen].reshape(-1)
        token = choose(flat, keys, draw).reshape(chosen.shape)
        chance = jnp.take_along_axis(jax.nn.softmax(logits), token[..., None], axis=-1)[..., 0]
        used = jnp.arange(most)[None] < jax.lax.dynamic_slice_in_dim(masks.reveals, number, 1, 1)
        slot = jnp.where(used, chosen, slots)  # those behind the last are dropped
        found = Revealed(
            found.tokens.at[rows, slot].set(token, mode="drop"),
            found.rounds.at[rows, slot].set(number, mode="drop"),
            found.probabilities.at[rows, slot].set(chance, mode="drop"),
        )
        tokens = tokens.at[rows, jnp.where(used, columns, length)].set(token, mode="drop")
        return number + 1, tokens, found

    rounds = jnp.max(jnp.sum(masks.reveals > 0, axis=1))
    nothing = jnp.zeros((size, slots), jnp.int32)
    found = Revealed(nothing, nothing - 1, jnp.zeros((size, slots), jnp.float32))
    begun = jnp.int32(0), tokens, found
    return jax.lax.while_loop(lambda state: state[0] < rounds, one_round, begun)[2]


def _keys(seed: int, numbers: jax.Array, slots: int) -> tuple[jax.Array, jax.Array]:
    """Return two random keys of each slot [B, K], which follow from seed, line and slot alone."""

    def of_line(number: jax.Array) -> tuple[jax.Array, ...]:
        line = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), number)
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        parts = (jax.random.fold_in(line, part) for part in range(2))
        return tuple(fold(part, jnp.arange(slots)) for part in parts)

    order, token = jax.vmap(of_line)(numbers)
    return order, token

"""What a causal language model has a text go on with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError, DataError
from bert_jax.interop import runs
from bert_jax.models.bert import Bert
from bert_jax.models.heads import MlmHead
from bert_jax.predictors.base import Model, OfText, Row, Work

COLDEST, HOTTEST = 1e-3, 1e3  # temperatures
TOKENS = 64  # that a text goes on for at most, where nothing is said


class Generate(OfText):
    """{"text", "continuation", "stopped"}: the prompt and what follows it, the latter alone, and why: end or length.

    The likeliest token each time, or with a temperature one that is drawn. What a line draws follows from the seed and
    its number, whatever lines it shares a batch with.
    """

    example = '{"text": "Paris is"}'

    def __init__(self, model: Model):
        super().__init__(model)
        run, options = model.run, model.options
        _check_model(run)
        draw = _draw(options.temperature, options.top_k, options.top_p, options.seed)
        if options.long == "cut":
            raise ConfigError(
                "--long=cut would lose the end of a prompt, where it goes on", "shorten the prompts"
            )
        self.most = options.max_tokens or TOKENS
        params = model.parameters("causal_lm")
        go_on = jax.jit(
            continuations(
                run.config.model, run.tokenizer.size, run.tokenizer.special, draw, self.most
            )
        )
        self.apply: Callable[..., jax.Array] = lambda *given: go_on(params, *given)

    def encode(self, rows: Sequence[Row]) -> Work:
        """One prompt a line, all of a batch ending in the same column."""
        special = self.model.run.tokenizer.special
        prompts = [[special.cls, *ids] for ids in self.ids(rows)]
        rooms = [self.room(row, len(prompt)) for row, prompt in zip(rows, prompts, strict=True)]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            tokens = np.full((size, length), special.pad, np.int32)
            starts, room, numbers = (
                np.full(size, length, np.int32),
                np.zeros(size, np.int32),
                np.zeros(size, np.int32),
            )
            for k, i in enumerate(chosen):
                starts[k], room[k], numbers[k] = length - len(prompts[i]), rooms[i], rows[i].number
                tokens[k, starts[k] :] = prompts[i]
            return self.apply(tokens, starts, room, numbers)

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            for row, prompt, room, found in zip(rows, prompts, rooms, outputs, strict=True):
                yield self.result(row, prompt[1:], found[:room].tolist())

        return Work(np.array([len(prompt) for prompt in prompts], np.int64), compute, results)

    def room(self, row: Row, prompt: int) -> int:
        """How many tokens a prompt of so many may go on for; DataError if that is less than was asked for."""
        room, asked = self.limit - prompt, self.model.options.max_tokens or 1
        if room < asked:
            raise DataError(
                f"line {row.number}: {prompt} tokens with [CLS] and {asked} more, and the model takes {self.limit}",
                f"--max-tokens={room}, or a shorter prompt" if room > 0 else "shorten the prompt",
            )
        return min(room, self.most)

    def result(self, row: Row, prompt: list[int], found: list[int]) -> dict[str, Any]:
        """What is written of a line."""
        tokenizer, text = self.model.run.tokenizer, row.fields["text"]
        ended = tokenizer.special.sep in found
        ids = found[: found.index(tokenizer.special.sep)] if ended else found
        before, whole = tokenizer.written(prompt), tokenizer.written([*prompt, *ids])
        more = whole[len(before) :] if whole.startswith(before) else f" {tokenizer.written(ids)}"
        more = more.lstrip() if text.endswith((" ", "\t")) else more
        return {"text": text + more, "continuation": more, "stopped": "end" if ended else "length"}


def _check_model(run: runs.Run) -> None:
    model = run.config.model
    ours = "configs/ablations/left_to_right.py trains one that can; a masked model is asked by fill-mask"
    if not model.causal:
        what = "has no causal_lm head, and each token sees what follows it"
        raise ConfigError(f"{run.folder} {what}: what comes next was never to be guessed", ours)
    if "causal_lm" not in run.config.objectives:
        raise ConfigError(
            f"{run.folder} has no causal_lm head, so it was not trained to say what comes next",
            ours,
        )


# --- which token ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Draw:
    """How a token is chosen: at temperature 0 the likeliest."""

    temperature: float = 0.0
    top_k: int = 0  # of the likeliest so many; 0 is all
    top_p: float = 1.0  # and of these, of the fewest that have this share of the probability
    seed: int = 0


def _draw(temperature: float, top_k: int | None, top_p: float | None, seed: int | None) -> Draw:
    if (
        temperature and not COLDEST <= temperature <= HOTTEST
    ):  # beyond, scores are no numbers any more
        hint = f"0 takes the likeliest token; 1 draws as the model says; else {COLDEST:g} to {HOTTEST:g}"
        raise ConfigError(f"--temperature={temperature:g}", hint)
    if top_p is not None and not 0 < top_p <= 1:
        raise ConfigError(f"--top-p={top_p:g}", "a share of the probability: above 0, at most 1")
    if seed is not None and seed >= 2**31:
        raise ConfigError(f"--seed={seed}", f"at most {2**31 - 1}")
    given = {"top-k": top_k, "top-p": top_p, "seed": seed}
    if not temperature and (
        idle := [f"--{name}" for name, value in given.items() if value is not None]
    ):
        raise ConfigError(
            f"{', '.join(idle)} without a temperature: nothing is drawn", "--temperature=1"
        )
    return Draw(temperature, top_k or 0, 1.0 if top_p is None else top_p, seed or 0)


def choose(logits: jax.Array, keys: jax.Array, draw: Draw) -> jax.Array:
    """A token [B] by logits [B, V] and a key for each; one as likely as the last that is kept is kept too."""
    if not draw.temperature:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / draw.temperature
    size = logits.shape[-1]
    if draw.top_k or draw.top_p < 1:
        best, _ = jax.lax.top_k(
            logits, min(draw.top_k or size, size)
        )  # [B, k], the likeliest first
        probabilities = jax.nn.softmax(best, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        kept = (before < draw.top_p) | (draw.top_p == 1)
        least = jnp.min(jnp.where(kept, best, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits >= least, logits, -jnp.inf)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, (size,), jnp.float32))(
        keys
    )  # its maximum is a draw
    return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)


# --- one token after the other --------------------------------------------------------------------------------------

Kept = tuple[jax.Array, jax.Array]  # keys and values [layers, B, L, heads, d]
Continue = Callable[[Any, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def continuations(
    cfg: knobs.Model, vocab_size: int, special: Special, draw: Draw, most: int
) -> Continue:
    """A function of prompts that gives the tokens [B, most] they go on with; to compile.

    It takes the parameters; tokens [B, P], each row with its padding first; starts [B], the column where a row begins;
    rooms [B], how many tokens it may go on for; numbers [B], which its draws follow from. A prompt is read at once,
    then each token by itself, beside what is kept of those before it. From where a row ends on it has [SEP]; when all
    have ended, nothing more is computed.
    """
    cfg = dataclasses.replace(devices.settled(cfg, train=False), attention="einsum", remat=False)
    encoder, head = Bert(cfg, vocab_size, pool=False), MlmHead(cfg, vocab_size, everywhere=True)
    never = jnp.array([special.pad, special.unk, special.cls, special.mask])

    def read(params: Any, batch: Batch, past: Kept | None = None) -> tuple[jax.Array, Kept]:
        """Logits of what follows the last column [B, V], and what is kept of all columns."""
        variables = {"params": params["encoder"]}
        if past is not None:
            variables["past"] = {"layers": {"attention": {"kept": past}}}
        encoded, made = encoder.apply(variables, batch, mutable=["intermediates"])
        last: Any = encoded._replace(hidden=encoded.hidden[:, -1:])
        logits: Any = head.apply({"params": params["causal_lm"]}, last, batch)
        kept = made["intermediates"]["layers"]["attention"]["kept"]
        return logits[:, 0, :vocab_size].at[:, never].set(-jnp.inf), kept

    def go_on(
        params: Any, tokens: jax.Array, starts: jax.Array, rooms: jax.Array, numbers: jax.Array
    ) -> jax.Array:
        length = tokens.shape[1]
        places = (
            jnp.arange(length + most, dtype=jnp.int32)[None] - starts[:, None]
        )  # [B, P + most], from 0 at [CLS]
        seed = jax.random.key(draw.seed, impl="threefry2x32")
        keys = jax.vmap(lambda number: jax.random.fold_in(seed, number))(numbers)

        def say(
            count: jax.Array, logits: jax.Array, found: jax.Array, ended: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            """Takes token number `count` in."""
            each = jax.vmap(lambda key: jax.random.fold_in(key, count))(keys)
            token = jnp.where(ended, special.sep, choose(logits, each, draw))
            found = jax.lax.dynamic_update_slice(found, token[:, None], (0, count))
            return found, ended | (token == special.sep) | (count + 1 >= rooms)

        def unfinished(state: tuple) -> jax.Array:
            count, _, ended, *_ = state
            return (count < most) & ~jnp.all(ended)

        def step(state: tuple) -> tuple:
            count, found, ended, past, late = state
            # Written before it is looked at, so that it can be written in place.
            past = tuple(
                jax.lax.dynamic_update_slice_in_dim(whole, new, length + count - 2, axis=2)
                for whole, new in zip(past, late, strict=True)
            )
            at = length + count - 1  # the column of the token said last
            one = jnp.zeros((len(tokens), 1), jnp.int32)
            place = jax.lax.dynamic_slice_in_dim(places, at, 1, axis=1)
            batch = {
                "tokens": jax.lax.dynamic_slice_in_dim(found, count - 1, 1, axis=1),
                "type_ids": one,
                "positions": jnp.where(ended[:, None], 0, place),  # which may have no place left
                "segment_ids": one + 1,
                "past_positions": jnp.where(jnp.arange(length + most)[None] < at, places, -1),
            }
            logits, late = read(params, batch, past)
            return count + 1, *say(count, logits, found, ended), past, late

        there = (places[:, :length] >= 0).astype(jnp.int32)
        prompt = {"tokens": tokens, "type_ids": jnp.zeros_like(tokens), "segment_ids": there}
        logits, kept = read(params, prompt | {"positions": places[:, :length] * there})
        past = tuple(jnp.pad(one, ((0, 0), (0, 0), (0, most), (0, 0), (0, 0))) for one in kept)
        late = tuple(one[:, :, -1:] for one in kept)
        blank = jnp.full((len(tokens), most), special.sep, jnp.int32)
        begun = say(jnp.int32(0), logits, blank, rooms <= 0)
        return jax.lax.while_loop(unfinished, step, (jnp.int32(1), *begun, past, late))[1]

    return go_on

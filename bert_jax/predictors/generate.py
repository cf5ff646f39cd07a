"""Task `generate` for causal and hybrid models: continues a text from left to right."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch, Special
from bert_jax.config import devices, knobs
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.errors import DataError, need
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MlmHead
from bert_jax.predictors.base import AskedModel, Line, OfText, Work
from bert_jax.predictors.options import Options

COLDEST, HOTTEST = 1e-3, 1e3  # temperatures
TOKENS = 64  # of a continuation at most, where --max-tokens is not given


class Generate(OfText):
    """Task `generate` of causal models: results {"text", "continuation", "stopped"}.

    "text" is the prompt with its continuation. "stopped" is "end" if the model ended the text,
    "length" if there was no more room. Each token is the likeliest or, with a temperature, drawn at
    random. The draws of a line depend on the seed and the number of the line, never on other lines
    of its batch.
    """

    heading = ()
    windows = True  # `__init__` refuses them, with a reason of its own

    def __init__(self, model: AskedModel):
        super().__init__(model)
        run = model.run
        options = model.options
        tokenizer = model.run.tokenizer
        need(
            "causal_lm" in run.config.objectives,
            f"{run.folder} has no causal_lm head: it was not trained to say what comes next",
            "configs/ablations.py:left_to_right trains one that can, and a model with an mlm head "
            "fills masks",
        )
        of_rounds = ("steps", "order", "show_steps")
        idle = [f"--{name.replace('_', '-')}" for name in of_rounds if getattr(options, name)]
        need(
            not idle,
            f"{', '.join(idle)} with {run.folder}, which writes from left to right, a token a step",
            "leave it out; a masked model fills masks in rounds",
        )
        draw = describe_draw(options)
        need(
            options.long in ("", "refuse"),
            f"--long={options.long} would part a prompt from its end, where it goes on",
            "shorten the prompts",
        )
        self.most = options.max_tokens or TOKENS
        params = model.place_params("causal_lm")
        go_on = jax.jit(
            build_continuation(run.config.model, tokenizer.size, tokenizer.special, draw, self.most)
        )
        self.apply = lambda *prompts: go_on(params, *prompts)

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode each line as one prompt; all prompts of a batch end in the same column."""
        special = self.model.run.tokenizer.special
        prompts = [[special.cls, *ids] for ids in self.tokenize_field(rows)]
        rooms = [self._find_room(row, len(ids)) for row, ids in zip(rows, prompts, strict=True)]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            tokens = np.full((size, length), special.pad, np.int32)
            starts = np.full(size, length, np.int32)
            room = np.zeros(size, np.int32)
            numbers = np.zeros(size, np.int32)
            for k, i in enumerate(chosen):
                starts[k] = length - len(prompts[i])
                room[k] = rooms[i]
                numbers[k] = rows[i].number
                tokens[k, starts[k] :] = prompts[i]
            return self.apply(tokens, starts, room, numbers)

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            for row, prompt, room, tokens in zip(rows, prompts, rooms, outputs, strict=True):
                yield self._continue(row, prompt[1:], tokens[:room].tolist())

        return Work(np.array([len(prompt) for prompt in prompts], np.int64), compute, results)

    def _find_room(self, row: Line, prompt: int) -> int:
        """Return how many tokens may follow a prompt of `prompt` tokens; DataError if too few."""
        room = self.limit - prompt
        least = self.model.options.max_tokens or 1
        if room < least:
            raise DataError(
                f"line {row.number}: {prompt} tokens with [CLS] and {least} more, "
                f"and the model takes {self.limit}",
                f"--max-tokens={room}, or a shorter prompt" if room > 0 else "shorten the prompt",
            )
        return min(room, self.most)

    def _continue(self, row: Line, prompt: list[int], tokens: list[int]) -> dict[str, Any]:
        """Make the result of a line from the tokens of its prompt and of its continuation."""
        tokenizer = self.model.run.tokenizer
        text = row.fields["text"]
        ended = tokenizer.special.sep in tokens
        ids = tokens[: tokens.index(tokenizer.special.sep)] if ended else tokens
        more = decode_continuation(tokenizer, prompt, ids)
        more = more.lstrip() if text.endswith((" ", "\t")) else more
        return {"text": text + more, "continuation": more, "stopped": "end" if ended else "length"}

    def format_result(self, result: dict[str, Any]) -> str:
        """Return the prompt with its continuation."""
        return result["text"]


def decode_continuation(tokenizer: Tokenizer, before: list[int], ids: list[int]) -> str:
    """Decode the tokens that continue a text, with a blank before them if one is needed there."""
    text = tokenizer.readable(before)
    whole = tokenizer.readable([*before, *ids])
    return whole[len(text) :] if whole.startswith(text) else f" {tokenizer.readable(ids)}"


# --- choosing a token ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Draw:
    """The rule by which a token is chosen; at temperature 0 it is the likeliest token."""

    temperature: float = 0.0
    top_k: int = 0  # draw from so many of the likeliest; 0 is all
    top_p: float = 1.0  # and of these, from the fewest that have this share of the probability
    seed: int = 0


def describe_draw(options: Options, *, random_places: bool = False) -> Draw:
    """Turn the options into a Draw, the rule by which tokens are chosen.

    Options that have no effect are refused. At temperature 0 a seed has an effect only with
    `random_places`.
    """
    temperature = options.temperature
    top_p = options.top_p
    seed = options.seed
    # Outside this range, scores are not finite any more.
    need(
        not temperature or COLDEST <= temperature <= HOTTEST,
        f"--temperature={temperature:g}",
        f"0 takes the likeliest token; 1 draws as the model says; else {COLDEST:g} to {HOTTEST:g}",
    )
    need(
        top_p is None or 0 < top_p <= 1,
        f"--top-p={top_p or 0:g}",
        "a share of the probability: above 0, at most 1",
    )
    need(seed is None or seed < 2**31, f"--seed={seed}", f"at most {2**31 - 1}")
    flags = {"--top-k": options.top_k, "--top-p": top_p, "--seed": None if random_places else seed}
    idle = [flag for flag, value in flags.items() if value is not None]
    need(
        not idle or temperature > 0,
        f"{', '.join(idle)} without a temperature: nothing is drawn",
        "--temperature=1",
    )
    return Draw(temperature, options.top_k or 0, 1.0 if top_p is None else top_p, seed or 0)


def choose_token(logits: jax.Array, keys: jax.Array, draw: Draw) -> jax.Array:
    """Choose a token for each row [B], by its logits [B, V] and a random key.

    Top-k and top-p keep a number of the likeliest tokens. Tokens tied with the last of these are
    kept too.
    """
    if not draw.temperature:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / draw.temperature
    size = logits.shape[-1]
    if draw.top_k or draw.top_p < 1:
        best, _ = jax.lax.top_k(logits, min(draw.top_k or size, size))  # [B, k], best first
        probabilities = jax.nn.softmax(best, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        kept = (before < draw.top_p) | (draw.top_p == 1)
        least = jnp.min(jnp.where(kept, best, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits >= least, logits, -jnp.inf)
    # The largest sum of logit and Gumbel noise is a draw.
    noise = jax.vmap(lambda key: jax.random.gumbel(key, (size,), jnp.float32))(keys)
    return jnp.argmax(logits + noise, axis=-1).astype(jnp.int32)


# --- decoding ------------------------------------------------------------------------------------

Kept = Any  # keys and values [B, L, heads, d] of each layer, as `encoder.Attention` names them
Continue = Callable[[Any, jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]


def _build_reader(
    cfg: knobs.Model, vocab_size: int, special: Special
) -> Callable[[Any, Batch, Kept | None], tuple[jax.Array, Kept]]:
    """Build the function that reads a batch, given the keys and values of earlier tokens."""
    cfg = devices.fill_machine_knobs(cfg, train=False)
    cfg = dataclasses.replace(cfg, attention="einsum", remat="none")
    encoder = Encoder(cfg, vocab_size, pool=False)
    head = MlmHead(cfg, vocab_size, everywhere=True)
    never = jnp.array([special.pad, special.unk, special.cls, special.mask])

    def read(params: Any, batch: Batch, past: Kept | None) -> tuple[jax.Array, Kept]:
        """Return the logits of the next token [B, V], and the keys and values of all columns."""
        variables = {"params": params["encoder"]}
        if past is not None:
            variables["past"] = past
        encoded, kept = encoder.apply(variables, batch, mutable=["kept"])
        last: Any = encoded._replace(hidden=encoded.hidden[:, -1:])
        logits: Any = head.apply({"params": params["causal_lm"]}, last, batch)
        return logits[:, 0, :vocab_size].at[:, never].set(-jnp.inf), kept["kept"]

    return read


def _make_batch(tokens: jax.Array, places: jax.Array) -> Batch:
    """Make a batch with one text in each row, whose tokens are [B, L].

    `places` [B, L] are the positions of the tokens in their text, and negative for padding.
    """
    real = (places >= 0).astype(jnp.int32)
    blank = jnp.zeros_like(tokens)
    return {"tokens": tokens, "type_ids": blank, "segment_ids": real, "positions": places * real}


def build_continuation(
    cfg: knobs.Model, vocab_size: int, special: Special, draw: Draw, most: int
) -> Continue:
    """Build the function that returns the tokens [B, most] which continue some prompts.

    The caller compiles the function, which takes the parameters and four arrays. `tokens` [B, P]
    are the prompts, with padding before them, and `starts` [B] are the columns where they begin.
    `rooms` [B] says how many tokens may follow, and `numbers` [B] seeds the draws of a row. The
    prompt is read at once. Then one token at a time is read, with the stored keys and values of
    earlier tokens. A row that has ended is filled with [SEP]. When all rows have ended, nothing
    more is computed.
    """
    read = _build_reader(cfg, vocab_size, special)

    def go_on(
        params: Any, tokens: jax.Array, starts: jax.Array, rooms: jax.Array, numbers: jax.Array
    ) -> jax.Array:
        length = tokens.shape[1]
        columns = jnp.arange(length + most, dtype=jnp.int32)[None]
        places = columns - starts[:, None]  # [B, P + most], from 0 at [CLS]
        seed = jax.random.key(draw.seed, impl="threefry2x32")
        keys = jax.vmap(lambda number: jax.random.fold_in(seed, number))(numbers)

        def append(
            count: jax.Array, logits: jax.Array, chosen: jax.Array, ended: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            """Write each row's next token into column `count`; tell which rows have ended."""
            token_keys = jax.vmap(lambda key: jax.random.fold_in(key, count))(keys)
            token = jnp.where(ended, special.sep, choose_token(logits, token_keys, draw))
            chosen = jax.lax.dynamic_update_slice(chosen, token[:, None], (0, count))
            return chosen, ended | (token == special.sep) | (count + 1 >= rooms)

        def unfinished(state: tuple) -> jax.Array:
            count, _, ended, *_ = state
            return (count < most) & ~jnp.all(ended)

        def step(state: tuple) -> tuple:
            count, chosen, ended, past, last = state
            # The last keys and values are written before they are read, so that this is in place.
            write = functools.partial(
                jax.lax.dynamic_update_slice_in_dim, start_index=length + count - 2, axis=1
            )
            past = jax.tree.map(write, past, last)
            at = length + count - 1  # the column of the token chosen last
            place = jax.lax.dynamic_slice_in_dim(places, at, 1, axis=1)
            place = jnp.where(ended[:, None], 0, place)  # an ended row may have none
            batch = _make_batch(jax.lax.dynamic_slice_in_dim(chosen, count - 1, 1, axis=1), place)
            batch["past_positions"] = jnp.where(columns < at, places, -1)
            logits, last = read(params, batch, past)
            return count + 1, *append(count, logits, chosen, ended), past, last

        logits, kept = read(params, _make_batch(tokens, places[:, :length]), None)
        room = ((0, 0), (0, most), (0, 0), (0, 0))
        past = jax.tree.map(lambda whole: jnp.pad(whole, room), kept)
        last = jax.tree.map(lambda whole: whole[:, -1:], kept)
        blank = jnp.full((len(tokens), most), special.sep, jnp.int32)
        begun = append(jnp.int32(0), logits, blank, rooms <= 0)
        return jax.lax.while_loop(unfinished, step, (jnp.int32(1), *begun, past, last))[1]

    return go_on

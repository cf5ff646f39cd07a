"""Tasks of the MLM head: `fill-mask`, and `generate`, which fills masks in rounds.

Each round of `generate` reveals a fixed number of masks. Which masks these are is decided before
their tokens are chosen. They are random, as in the bound of masked diffusion, or those whose
likeliest token has the highest probability. With one mask per round, each token is chosen given all
tokens that earlier rounds revealed. The tokens of one round are drawn independently.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.batch import Batch
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.errors import DataError, need
from bert_jax.objectives import network
from bert_jax.predictors import generate
from bert_jax.predictors.base import AskedModel, Line, OfText, Work, format_percent, indent_table

STRIDE = 64  # tokens that windows share, or half a window if that is less
SLOTS = 4  # masks of a row are padded to a multiple of this, so that few shapes are compiled


class Window(NamedTuple):
    """A window of a text, and the masks that are predicted in it."""

    row: int
    start: int  # in the text
    end: int
    places: list[int]  # of masks in the text


class FillMask(OfText):
    """Task `fill-mask`: results {"text", "masks": [[{"token", "probability"}, …], …]}.

    Each mask has a list, the best token first. A gap of several tokens needs as many masks, because
    a masked model cannot tell how many tokens are missing. Each mask is predicted while all other
    masks stay masked.
    """

    windows = True
    shorten = "--long=windows reads the whole text, and --long=cut loses its end"

    def __init__(self, model: AskedModel):
        super().__init__(model)
        self.check_stride(model.options.long == "windows")
        top_k = min(model.options.top_k or 5, model.run.tokenizer.size)

        def find_best(logits: jax.Array) -> Sequence[jax.Array]:
            return jax.lax.top_k(jax.nn.softmax(logits, -1), top_k)  # [B, K, top] each

        self.apply = model.compile_head("mlm", find_best)

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode each window of a text as one row of the model."""
        encoded = self.tokenize_field(rows, escape=False)
        tokenizer = self.model.run.tokenizer
        pairs = enumerate(zip(rows, encoded, strict=True))
        windows = [window for r, (row, ids) in pairs for window in self._list_windows(r, row, ids)]
        texts = [[encoded[window.row][window.start : window.end]] for window in windows]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = self.assemble_batch([texts[i] for i in chosen], length, size)
            slots = _round_slots([windows[i].places for i in chosen])
            batch["predict_positions"] = np.zeros((size, slots), np.int32)
            for k, window in enumerate(windows[i] for i in chosen):
                columns = np.array(window.places, int) - window.start + 1  # after [CLS]
                batch["predict_positions"][k, : len(columns)] = columns
            return self.apply(batch)

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            # For each line, the candidates of its masks by their place in the text.
            filled: list[dict[int, list[dict[str, Any]]]] = [{} for _ in rows]
            for window, output in zip(windows, outputs, strict=True):
                for place, values, ids in zip(window.places, *output, strict=False):
                    filled[window.row][place] = [
                        {"token": tokenizer.shown[i], "probability": float(p)}
                        for p, i in zip(values, ids, strict=True)
                    ]
            for row, masks in zip(rows, filled, strict=True):
                yield {"text": row.fields["text"], "masks": [masks[at] for at in sorted(masks)]}

        ends = np.zeros(len(rows), np.int64)
        np.maximum.at(ends, [window.row for window in windows], [window.end for window in windows])
        cut = sum(int(end) < len(ids) for end, ids in zip(ends, encoded, strict=True))
        return Work(self.count_tokens(texts), compute, results, cut)

    def _list_windows(self, number: int, row: Line, ids: list[int]) -> Iterator[Window]:
        """Yield the windows of a text; each mask is in the window with most context around it."""
        masks = np.array(ids, int) == self.model.run.tokenizer.special.mask
        room, options = self.limit - 2, self.model.options
        if len(ids) <= room or options.long != "windows":
            end = len(self.cut_texts(row, [ids])[0])
            yield Window(number, 0, end, np.flatnonzero(masks[:end]).tolist())
            return
        stride = min(STRIDE, room // 2) if options.stride is None else options.stride
        spans = cut_windows(len(ids), room, stride, options.stride_as or "overlap")
        best = choose_windows(spans, len(ids))
        for index, (start, end) in enumerate(spans.tolist()):
            yield Window(number, start, end, np.flatnonzero(masks & (best == index)).tolist())

    def format_result(self, result: dict[str, Any]) -> str:
        """Write a table of the likeliest tokens of each mask, or that there is no mask."""
        masks = result["masks"]
        if not masks:
            mask = self.model.run.tokenizer.mask
            return f"  no {mask} in this text: write {mask} where a token is missing"
        rows = [
            ("" if rank else f"mask {number}", one["token"], format_percent(one["probability"]))
            for number, candidates in enumerate(masks, 1)
            for rank, one in enumerate(candidates)
        ]
        return indent_table(rows if len(masks) > 1 else [row[1:] for row in rows])


def _round_slots(places: Sequence[Sequence[int]]) -> int:
    """Return how many slots hold the masks of every row, rounded up to a multiple of SLOTS."""
    return -(-max(1, *map(len, places), 1) // SLOTS) * SLOTS


class Unmask(OfText):
    """Task `generate` of masked models: results {"text"}, the text with its masks filled.

    With --show-steps there are also "tokens" and "steps". Masks are added behind a text that has no
    [MASK]. "tokens" are the tokens of the final text. "steps" lists for each round the masks that
    it revealed, as {"place", "token", "probability"}. The place is a place among the tokens, from
    0. The probability is the model's for this token, before temperature, top-k and top-p change it.
    """

    heading = ()
    windows = True  # `__init__` refuses them, with a reason of its own

    def __init__(self, model: AskedModel):
        super().__init__(model)
        run, options = model.run, model.options
        need(
            options.long in ("", "refuse"),
            f"--long={options.long} would part masks from their text",
            "shorten the texts",
        )
        self.most = options.max_tokens or generate.TOKENS
        random = options.order == "random"
        draw = generate.describe_draw(options, random_places=random)
        tokenizer, params = run.tokenizer, model.place_params("mlm")
        net = network.build_network(run.config, tokenizer.size, only="mlm")
        allowed = ~np.isin(np.arange(tokenizer.size), tokenizer.special)[None, None]

        @functools.partial(jax.jit, static_argnames="most")
        def apply(params: Any, batch: Batch, masks: "Masks", most: int) -> Revealed:
            def read_logits(tokens: jax.Array, places: jax.Array) -> jax.Array:
                partly = {**batch, "tokens": tokens, "predict_positions": places}
                logits = network.compute_outputs(net, params, partly)["mlm"]
                return jnp.where(allowed, logits[..., : tokenizer.size], -jnp.inf)

            return reveal(read_logits, batch["tokens"], masks, most, draw, random=random)

        self.apply = functools.partial(apply, params)

    def encode(self, rows: Sequence[Line]) -> Work:
        """Encode each text, with masks added behind it if it has none, as one row of the model."""
        mask = self.model.run.tokenizer.special.mask
        steps = self.model.options.steps
        encoded = self.tokenize_field(rows, escape=False)
        texts = [self._add_masks(row, ids) for row, ids in zip(rows, encoded, strict=True)]
        places = [[place for place, i in enumerate(ids) if i == mask] for ids in texts]

        def compute(chosen: np.ndarray, length: int, size: int) -> Any:
            batch = self.assemble_batch([[texts[i]] for i in chosen], length, size)
            own = [places[i] for i in chosen]
            numbers = [rows[i].number for i in chosen]
            slots = _round_slots(own)
            masks = Masks.build(own, numbers, steps, (size, slots))
            return self.apply(batch, masks, most=-(-slots // min(steps or slots, slots)))

        def results(outputs: list[Any]) -> Iterator[dict[str, Any]]:
            return map(self._fill, rows, texts, places, outputs)

        return Work(self.count_tokens([[ids] for ids in texts]), compute, results)

    def _add_masks(self, row: Line, ids: list[int]) -> list[int]:
        """Add masks behind the ids of a text without masks; DataError if the row is too long."""
        mask = self.model.run.tokenizer.special.mask
        room = self.limit - 2 - len(ids)
        least = 0 if mask in ids else self.model.options.max_tokens or 1
        if room < least:
            masks = f" and {least} masks behind them" if least else ""
            raise DataError(
                f"line {row.number}: {len(ids) + 2} tokens with [CLS] and [SEP]{masks}, "
                f"and the model takes {self.limit}",
                f"--max-tokens={room}, or a shorter text" if room > 0 else "shorten the text",
            )
        return ids + [mask] * min(room, self.most) if least else ids

    def _fill(self, row: Line, ids: list[int], places: list[int], revealed: Any) -> dict[str, Any]:
        """Make the result of a line from the tokens that its rounds revealed."""
        tokenizer, final = self.model.run.tokenizer, list(ids)
        steps: list[list[dict[str, Any]]] = []
        by_round = np.argsort(revealed.rounds[: len(places)], kind="stable")
        for slot in by_round.tolist():
            token = int(revealed.tokens[slot])
            probability = float(revealed.probabilities[slot])
            final[places[slot]] = token
            if revealed.rounds[slot] == len(steps):
                steps.append([])
            shown = tokenizer.shown[token]
            one = {"place": places[slot], "token": shown, "probability": probability}
            steps[-1].append(one)
        result: dict[str, Any] = {
            "text": replace_masks(tokenizer, row.fields["text"], final, places)
        }
        if self.model.options.show_steps:
            result |= {"tokens": [tokenizer.shown[i] for i in final], "steps": steps}
        return result

    def format_result(self, result: dict[str, Any]) -> str:
        """Write the final text, then what each round revealed."""
        rows = [
            ("" if place else f"round {number}", one["token"], format_percent(one["probability"]))
            for number, revealed in enumerate(result.get("steps", ()), 1)
            for place, one in enumerate(revealed)
        ]
        return "\n".join([result["text"], *([indent_table(rows)] if rows else [])])


def replace_masks(tokenizer: Tokenizer, text: str, ids: list[int], places: list[int]) -> str:
    """Return a text with its masks replaced by tokens, and everything else unchanged.

    Args:
      tokenizer: the tokenizer of the model.
      text: has a literal [MASK] for each place, or no [MASK] if the masks were added behind it.
      ids: the tokens of the final text.
      places: the places of the masks among `ids`.
    """
    parts = text.split(tokenizer.mask)
    if len(parts) == 1:
        parts += [""] * len(places)
    if len(parts) != len(places) + 1:  # a rule for characters hid a mask
        return tokenizer.readable(ids)
    done = parts[0]
    slot = 0
    while slot < len(places):
        end = slot + 1  # of a run of masks that are written as neighbours
        while end < len(places) and parts[end] in ("", " "):
            end += 1
        first, last = places[slot], places[end - 1]
        more = generate.decode_continuation(tokenizer, ids[:first], ids[first : last + 1])
        if not more.startswith(" ") and done.rstrip():  # a piece of a word, or punctuation
            done = done.rstrip()
        elif done.rstrip() != done:  # the text has a blank of its own
            more = more.lstrip(" ")
        done += more + parts[end]
        slot = end
    return done


# --- rounds --------------------------------------------------------------------------------------


class Masks(NamedTuple):
    """The masks of B rows; a row has K slots, of which some may be spare."""

    places: Any  # int32 [B, K], columns; those of spare slots are 0
    counts: Any  # int32 [B], slots that are no spare ones
    reveals: Any  # int32 [B, K], how many masks each round reveals
    numbers: Any  # int32 [B], of the lines, which the draws follow from

    @classmethod
    def build(
        cls,
        places: Sequence[Sequence[int]],
        numbers: Sequence[int],
        steps: int | None,
        shape: tuple[int, int],
    ) -> "Masks":
        """Build the masks of some texts from the places of the masks in each text.

        Args:
          places: for each text, the places of its masks among its tokens.
          numbers: the number of the line of each text.
          steps: the number of rounds that fill a text; None reveals one mask a round.
          shape: (B, K). Rows after the last text have no masks.
        """
        columns, reveals = np.zeros((2, *shape), np.int32)
        counts, lines = np.zeros((2, shape[0]), np.int32)
        for k, own in enumerate(places):
            columns[k, : len(own)] = np.array(own) + 1  # behind [CLS]
            rounds = schedule_rounds(len(own), steps)
            reveals[k, : len(rounds)] = rounds
            counts[k], lines[k] = len(own), numbers[k]
        return cls(columns, counts, reveals, lines)


def schedule_rounds(masks: int, steps: int | None) -> np.ndarray:
    """Return the number of masks that each round reveals: at least 1, and as equal as possible."""
    rounds = min(steps or masks, masks)
    return np.diff(masks * np.arange(rounds + 1) // rounds)


class Revealed(NamedTuple):
    """The tokens that fill the masks of B rows, in the slots of `Masks`; ignore spare slots."""

    tokens: jax.Array  # int32 [B, K]
    rounds: jax.Array  # int32 [B, K], from 0; -1 in spare slots
    probabilities: jax.Array  # float32 [B, K], what the model gave the token


def reveal(
    read_logits: Callable[[jax.Array, jax.Array], jax.Array],
    tokens: jax.Array,
    masks: "Masks",
    most: int,
    draw: generate.Draw,
    *,
    random: bool,
) -> Revealed:
    """Fill the masks of some rows round by round; the caller compiles this function.

    Args:
      read_logits: maps tokens [B, L] and columns [B, k] to the logits at these columns [B, k, V].
      tokens: [B, L], with [MASK] where a token is to be filled in.
      masks: the places of the [MASK], and how many of them each round reveals.
      most: the largest number of masks that a round reveals.
      draw: the rule by which tokens are chosen.
      random: whether a round reveals random masks. If not, it reveals the masks whose likeliest
        token has the highest probability.
    """
    (size, slots), length = masks.places.shape, tokens.shape[1]
    rows = jnp.arange(size)[:, None]
    real = jnp.arange(slots)[None] < masks.counts[:, None]
    order_keys, token_keys = _make_keys(draw.seed, masks.numbers, slots)
    chances = jax.vmap(jax.vmap(jax.random.uniform))(order_keys)  # [B, K]

    def one_round(state: tuple[jax.Array, jax.Array, Revealed]) -> tuple:
        number, tokens, found = state
        waiting = real & (found.rounds < 0)
        # The places of this round [B, k] are the first slots by chance, or by certainty.
        if random:
            _, chosen = jax.lax.top_k(jnp.where(waiting, chances, -jnp.inf), most)
            columns = jnp.take_along_axis(masks.places, chosen, axis=1)
            logits = read_logits(tokens, columns)  # [B, k, V]
        else:
            every = read_logits(tokens, masks.places)  # [B, K, V]
            sure = jnp.max(every, axis=-1) - jax.nn.logsumexp(every, axis=-1)
            _, chosen = jax.lax.top_k(jnp.where(waiting, sure, -jnp.inf), most)
            columns = jnp.take_along_axis(masks.places, chosen, axis=1)
            logits = jnp.take_along_axis(every, chosen[..., None], axis=1)
        # Each place has a key of its own, so its token does not depend on the others of a batch.
        flat = logits.reshape(-1, logits.shape[-1])
        keys = token_keys[rows, chosen].reshape(-1)
        token = generate.choose_token(flat, keys, draw).reshape(chosen.shape)
        chance = jnp.take_along_axis(jax.nn.softmax(logits), token[..., None], axis=-1)[..., 0]
        # Of the k places only as many are used as the schedule of the row says.
        used = jnp.arange(most)[None] < jax.lax.dynamic_slice_in_dim(masks.reveals, number, 1, 1)
        slot = jnp.where(used, chosen, slots)  # slots behind the last are dropped
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


def _make_keys(seed: int, numbers: jax.Array, slots: int) -> tuple[jax.Array, jax.Array]:
    """Return two random keys for each slot [B, K]: one orders the slots, one draws the token.

    The keys depend on the seed, the number of the line and the slot.
    """

    def of_line(number: jax.Array) -> tuple[jax.Array, ...]:
        line = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), number)
        fold = jax.vmap(jax.random.fold_in, (None, 0))
        parts = (jax.random.fold_in(line, part) for part in range(2))
        return tuple(fold(part, jnp.arange(slots)) for part in parts)

    order, token = jax.vmap(of_line)(numbers)
    return order, token

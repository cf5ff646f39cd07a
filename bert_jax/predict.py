"""Asks a trained model: one text a line in, one JSON object a line out, in the same order."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax import network, runs
from bert_jax.data import encoding
from bert_jax.data.windows import best_windows, windows
from bert_jax.errors import ConfigError, DataError
from bert_jax.models.bert import Bert
from bert_jax.types import Batch

ROUND = 16  # batches are padded to a multiple of this many tokens, so that few lengths are compiled
Rows = list[tuple[int, dict[str, str]]]  # line numbers and contents


@dataclasses.dataclass(frozen=True)
class Options:
    """What is asked for besides the task."""

    top_k: int = 5  # fill-mask
    pooling: str = ""  # embed: mean or cls; empty is what the model says, else mean
    normalize: bool = False  # embed: to length 1, which a model may also ask for itself
    long: str = "refuse"  # a text too long for the model: refuse it, cut its end, or look at it in windows
    stride: int = 64  # of windows, in tokens
    stride_as: str = "overlap"  # what neighbours share, or how far the next one begins: `data/windows.py`
    batch_size: int = 32


class Model:
    """A run and how texts become its batches."""

    def __init__(self, run: runs.Run, options: Options):
        self.run, self.options = run, options
        self.cut = 0  # texts that lost their end
        # Learned positions past the training length were never trained.
        self.limit = run.config.sequence_length if run.config.model.position == "learned" else sys.maxsize
        self.limit = min(self.limit, run.sentence.get("length") or sys.maxsize)

    def batch(self, parts: list[list[list[int]]], size: int) -> Batch:
        """[CLS] A [SEP] or [CLS] A [SEP] B [SEP], padded to `size` rows and a round length."""
        return encoding.rows(self.run.tokenizer.special, parts, self.limit, ROUND, size)

    def encode(self, texts: list[str], escape: bool) -> list[list[int]]:
        """Ids without special tokens, except a [MASK] that is meant as one."""
        return self.run.tokenizer.encode_batch(texts, escape=escape)

    def fit(self, line: int, parts: list[list[int]]) -> list[list[int]]:
        """The texts of a row within the model's length; none is cut in silence."""
        room = self.limit - 1 - len(parts)  # [CLS], and [SEP] after each
        count = sum(map(len, parts))
        if count <= room:
            return parts
        if self.options.long != "cut":
            raise DataError(
                f"line {line}: {count + 1 + len(parts)} tokens with [CLS] and [SEP], and the model takes {self.limit}",
                "split the text, or lose its end with --long=cut; fill-mask has --long=windows too",
            )
        self.cut += 1
        first, second = encoding.truncate(parts[0], parts[1] if len(parts) > 1 else [], room)
        return [list(first), list(second)][: len(parts)]

    def views(self, line: int, ids: list[int]) -> Iterator[tuple[int, int, np.ndarray]]:
        """Parts of a text that fit: where each begins and ends, and which tokens of the text it is to answer for."""
        room = self.limit - 2
        if len(ids) <= room or self.options.long != "windows":
            end = len(self.fit(line, [ids])[0])
            yield 0, end, np.ones(end, bool)
            return
        spans = windows(len(ids), room, self.options.stride, self.options.stride_as)
        best = best_windows(spans, len(ids))
        for number, (start, end) in enumerate(spans.tolist()):
            yield start, end, best == number

    def head(self, name: str) -> Callable[[Batch], jax.Array]:
        """Probabilities of one head, compiled per padded length."""
        if name not in self.run.config.objectives:
            have = ", ".join(self.run.config.objectives) or "no head"
            raise ConfigError(f"{self.run.folder} has no {name} head", f"it was trained with: {have}")
        labels = len(self.run.config.objectives[name].labels)
        network_of_one = network.Network(self.run.config.model, self.run.tokenizer.size, ((name, labels),))
        params = jax.device_put({part: self.run.params[part] for part in ("encoder", name)})
        apply = jax.jit(lambda params, batch: jax.nn.softmax(network.outputs(network_of_one, params, batch)[name], -1))
        return lambda batch: apply(params, batch)


def fill_mask(model: Model) -> Callable[[Rows, int], Iterator[dict[str, Any]]]:
    """The likeliest tokens of every [MASK] of every text."""
    apply, tokenizer = model.head("mlm"), model.run.tokenizer
    top_k = min(model.options.top_k, tokenizer.size)

    def answer(rows: Rows, size: int) -> Iterator[dict[str, Any]]:
        encoded = model.encode([row["text"] for _, row in rows], escape=False)
        views = [(r, view) for r, (line, _) in enumerate(rows) for view in model.views(line, encoded[r])]
        masks: list[dict[int, list[dict[str, Any]]]] = [{} for _ in rows]  # by where they stand in the text
        for first in range(0, len(views), size):
            some = views[first : first + size]
            batch = model.batch([[encoded[r][start:end]] for r, (start, end, _) in some], size)
            places = []
            for number, (r, (start, end, seen)) in enumerate(some):
                columns = [at for at in range(start, end) if seen[at] and encoded[r][at] == tokenizer.special.mask]
                places += [(number, k, r, at, at - start + 1) for k, at in enumerate(columns)]  # behind [CLS]
            slots = -(-max(1, *(k + 1 for _, k, *_ in places), 1) // 4) * 4
            batch["predict_positions"] = np.zeros((size, slots), np.int32)
            for number, k, _, _, column in places:
                batch["predict_positions"][number, k] = column
            values, indices = (np.asarray(x) for x in jax.lax.top_k(apply(batch), top_k))  # [B, K, top]
            for number, k, r, at, _ in places:
                best = zip(values[number, k], indices[number, k], strict=True)
                masks[r][at] = [{"token": tokenizer.vocab[i], "probability": float(p)} for p, i in best]
        for (_, content), found in zip(rows, masks, strict=True):
            yield {"text": content["text"], "masks": [found[at] for at in sorted(found)]}

    return answer


def nsp(model: Model) -> Callable[[Rows, int], Iterator[dict[str, Any]]]:
    """The probability that the second text follows the first."""
    apply = model.head("nsp")

    def answer(rows: Rows, size: int) -> Iterator[dict[str, Any]]:
        for line, row in rows:
            if "text_pair" not in row:
                raise DataError(
                    f"line {line}: no text_pair",
                    'write two texts a line with a tab between, or {"text": …, "text_pair": …}',
                )
        first, second = (model.encode([row[key] for _, row in rows], escape=True) for key in ("text", "text_pair"))
        pairs = [model.fit(line, [a, b]) for (line, _), a, b in zip(rows, first, second, strict=True)]
        is_next = np.asarray(apply(model.batch(pairs, size)))[:, 0, 0]  # of [B, 1, 2]
        for (_, content), probability in zip(rows, is_next, strict=False):  # padding rows beyond
            yield {"text": content["text"], "text_pair": content["text_pair"], "is_next": float(probability)}

    return answer


def embed(model: Model) -> Callable[[Rows, int], Iterator[dict[str, Any]]]:
    """One vector a text: the mean over its tokens, [CLS] and [SEP] among them, or that of [CLS]."""
    run, options = model.run, model.options
    pooling = options.pooling or run.sentence.get("pooling") or "mean"
    normalize = options.normalize or run.sentence.get("normalize", False)
    encoder = Bert(run.config.model, run.tokenizer.size, pool=False)
    params = jax.device_put(run.params["encoder"])

    @jax.jit
    def vectors(params: Any, batch: Batch) -> jax.Array:
        encoded: Any = encoder.apply({"params": params}, batch)
        real = (batch["segment_ids"] > 0).astype(jnp.float32)[..., None]  # [B, L, 1]
        hidden = encoded.hidden.astype(jnp.float32)
        pooled = hidden[:, 0] if pooling == "cls" else jnp.sum(hidden * real, 1) / jnp.maximum(jnp.sum(real, 1), 1.0)
        length = jnp.sqrt(jnp.sum(pooled**2, -1, keepdims=True))
        return pooled / jnp.maximum(length, 1e-12) if normalize else pooled  # [B, D]

    def answer(rows: Rows, size: int) -> Iterator[dict[str, Any]]:
        encoded = model.encode([row["text"] for _, row in rows], escape=True)
        batch = model.batch([model.fit(line, [ids]) for (line, _), ids in zip(rows, encoded, strict=True)], size)
        for (_, content), vector in zip(rows, np.asarray(vectors(params, batch)), strict=False):
            yield {"text": content["text"], "embedding": [float(x) for x in vector]}

    return answer


TASKS: dict[str, Callable[[Model], Callable[[Rows, int], Iterator[dict[str, Any]]]]] = {
    "fill-mask": fill_mask,
    "nsp": nsp,
    "embed": embed,
}


def read_rows(lines: Iterable[str], pairs: bool) -> Iterator[tuple[int, dict[str, str]]]:
    """Numbered rows: a JSON object with `text`, or a plain text; pairs have a `text_pair`, or a tab between the two."""
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        if not text.lstrip().startswith("{"):
            parts = text.split("\t") if pairs else [text]
            if len(parts) > 2:
                raise DataError(f"line {number}: {len(parts) - 1} tabs, and a pair has one", "write the pair as JSON")
            yield number, dict(zip(("text", "text_pair"), parts, strict=False))
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:  # also of numbers too long, and brackets too deep
            raise DataError(f"line {number}: not JSON: {error}", "a line that begins with { is read as JSON") from error
        if not isinstance(row.get("text"), str) or not isinstance(row.get("text_pair") or "", str):
            raise DataError(
                f"line {number}: no string 'text'", 'for example {"text": "Paris is the [MASK] of France."}'
            )
        found = {key: row[key] for key in ("text", "text_pair") if row.get(key) is not None}
        if not pairs and "text_pair" in found:
            raise DataError(
                f"line {number}: a text_pair, and this task takes one text", "join the two, or leave it out"
            )
        yield number, found


def decode(lines: Iterable[bytes]) -> Iterator[str]:
    """UTF-8 lines, whatever the locale; a byte order mark is no text."""
    for number, line in enumerate(lines, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"line {number}: not UTF-8: {error.reason}", "convert the file, for example with iconv"
            ) from error


def predict(model: Model, task: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """One result a line, in order."""
    answer, size = TASKS[task](model), model.options.batch_size
    rows: Rows = []
    for row in read_rows(lines, pairs=task == "nsp"):
        rows.append(row)
        if len(rows) == size:
            yield from answer(rows, size)
            rows = []
    if rows:
        yield from answer(rows, min(size, 1 << (len(rows) - 1).bit_length()))


def run(task: str, model: str, input: Path | None, tokenizer: str = "", **options: Any) -> None:
    """`bert-jax predict`: JSON lines on standard output, the rate on standard error; `options` are those of Options."""
    opened = Model(runs.open_run(model, tokenizer=tokenizer), Options(**options))
    if opened.options.long == "windows" and task != "fill-mask":
        raise ConfigError(f"{task} does not look at texts in windows", "--long=cut, or split the texts")
    with contextlib.suppress(AttributeError):  # where somebody captures it
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # of a text stream
    with contextlib.ExitStack() as stack:
        source: BinaryIO = sys.stdin.buffer
        if input is not None:
            if input.is_dir() or not input.exists():
                raise DataError(f"no file {input}", "leave --input out to read standard input")
            source = stack.enter_context(input.open("rb"))
        began, count = time.perf_counter(), 0
        for result in predict(opened, task, decode(source)):
            print(json.dumps(result, ensure_ascii=False), flush=True)
            count += 1
        seconds = time.perf_counter() - began
        cut = f", {opened.cut} of them cut to {opened.limit} tokens" if opened.cut else ""
        print(f"{count} lines, {count / seconds:.1f} lines/s with compilation{cut}", file=sys.stderr)


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["predict", *sys.argv[1:]])

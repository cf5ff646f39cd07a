"""Asks a trained model: one text a line in, one JSON object a line out, in the same order."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import numpy as np

from bert_jax import network, runs
from bert_jax.errors import ConfigError, DataError
from bert_jax.types import Batch

ROUND = 16  # batches are padded to a multiple of this many tokens, so that few lengths are compiled


class Model:
    """The forward pass of one head, compiled per padded length."""

    def __init__(self, run: runs.Run, objective: str):
        if objective not in run.config.objectives:
            have = ", ".join(run.config.objectives)
            raise ConfigError(f"{run.folder} has no {objective} head", f"it was trained with: {have}")
        self.run = run
        model = network.Network(run.config.model, run.tokenizer.size, ((objective, 0),))
        params = jax.device_put(run.params)
        apply = jax.jit(lambda params, batch: jax.nn.softmax(network.outputs(model, params, batch)[objective], -1))
        self.apply = lambda batch: apply(params, batch)
        # Learned positions past the training length were never trained.
        self.limit = run.config.sequence_length if run.config.model.position == "learned" else sys.maxsize

    def batch(self, rows: list[list[list[int]]], size: int) -> Batch:
        """[CLS] A [SEP] or [CLS] A [SEP] B [SEP], padded to `size` rows and a round length."""
        special = self.run.tokenizer.special
        flat = [[special.cls, *(i for part in parts for i in [*part, special.sep])] for parts in rows]
        length = min(-(-max(map(len, flat)) // ROUND) * ROUND, self.limit)
        shape = (size, length)
        tokens, types, segments = (
            np.full(shape, special.pad, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
        )
        for row, (ids, parts) in enumerate(zip(flat, rows, strict=True)):
            tokens[row, : len(ids)] = ids
            segments[row, : len(ids)] = 1
            types[row, len(parts[0]) + 2 : len(ids)] = 1
        positions = np.broadcast_to(np.arange(length, dtype=np.int32), shape) * segments
        cls = np.zeros((size, 1), np.int32)
        return {
            "tokens": tokens,
            "type_ids": types,
            "segment_ids": segments,
            "positions": positions,
            "cls_positions": cls,
        }

    def encode(self, texts: list[str], escape: bool) -> list[list[int]]:
        """Ids without special tokens, except a [MASK] that is meant as one."""
        return self.run.tokenizer.encode_batch(texts, escape=escape)

    def check_length(self, line: int, count: int) -> None:
        """A text is never cut in silence."""
        if count > self.limit:
            raise DataError(
                f"line {line}: {count} tokens with [CLS] and [SEP], and training had {self.limit}",
                "split the text",
            )


def fill_mask(model: Model, rows: list[tuple[int, dict[str, str]]], size: int, top_k: int) -> Iterator[dict[str, Any]]:
    """The `top_k` likeliest tokens of every [MASK] of every text."""
    tokenizer = model.run.tokenizer
    encoded = model.encode([row["text"] for _, row in rows], escape=False)
    for (line, _), ids in zip(rows, encoded, strict=True):
        model.check_length(line, len(ids) + 2)
    batch = model.batch([[ids] for ids in encoded], size)
    found = [np.flatnonzero(row == tokenizer.special.mask) for row in batch["tokens"]]
    slots = -(-max(1, *(len(columns) for columns in found)) // 4) * 4
    batch["predict_positions"] = np.zeros((size, slots), np.int32)
    for row, columns in enumerate(found):
        batch["predict_positions"][row, : len(columns)] = columns
    best = jax.lax.top_k(model.apply(batch), min(top_k, tokenizer.size))
    values, indices = (np.asarray(x) for x in best)  # [B, K, top]
    for row, (_, content) in enumerate(rows):
        masks = [
            [
                {"token": tokenizer.vocab[i], "probability": float(p)}
                for p, i in zip(values[row, k], indices[row, k], strict=True)
            ]
            for k in range(len(found[row]))
        ]
        yield {"text": content["text"], "masks": masks}


def nsp(model: Model, rows: list[tuple[int, dict[str, str]]], size: int, top_k: int) -> Iterator[dict[str, Any]]:
    """The probability that the second text follows the first."""
    for line, row in rows:
        if "text_pair" not in row:
            raise DataError(
                f"line {line}: no text_pair",
                'write two texts a line with a tab between, or {"text": …, "text_pair": …}',
            )
    first = model.encode([row["text"] for _, row in rows], escape=True)
    second = model.encode([row["text_pair"] for _, row in rows], escape=True)
    for (line, _), a, b in zip(rows, first, second, strict=True):
        model.check_length(line, len(a) + len(b) + 3)
    pairs = [list(pair) for pair in zip(first, second, strict=True)]
    is_next = np.asarray(model.apply(model.batch(pairs, size)))[:, 0, 0]  # of [B, 1, 2]
    for (_, content), probability in zip(rows, is_next[: len(rows)], strict=True):
        yield {"text": content["text"], "text_pair": content["text_pair"], "is_next": float(probability)}


TASKS = {"fill-mask": ("mlm", fill_mask), "nsp": ("nsp", nsp)}


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
        except json.JSONDecodeError as error:
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


def predict(run: runs.Run, task: str, lines: Iterable[str], *, top_k: int = 5, batch_size: int = 32) -> Iterator[dict]:
    """One result a line, in order."""
    objective, answer = TASKS[task]
    model = Model(run, objective)
    rows: list[tuple[int, dict[str, str]]] = []
    for row in read_rows(lines, pairs=task == "nsp"):
        rows.append(row)
        if len(rows) == batch_size:
            yield from answer(model, rows, batch_size, top_k)
            rows = []
    if rows:
        yield from answer(model, rows, min(batch_size, 1 << (len(rows) - 1).bit_length()), top_k)


def run(task: str, model: str, input: Path | None, top_k: int, batch_size: int) -> None:
    """`bert-jax predict`: JSON lines on standard output, the rate on standard error."""
    opened = runs.open_run(model)
    with contextlib.ExitStack() as stack:
        source: BinaryIO = sys.stdin.buffer
        if input is not None:
            if not input.is_file():
                raise DataError(f"no file {input}", "leave --input out to read standard input")
            source = stack.enter_context(input.open("rb"))
        began, count = time.perf_counter(), 0
        for result in predict(opened, task, decode(source), top_k=top_k, batch_size=batch_size):
            print(json.dumps(result, ensure_ascii=False), flush=True)
            count += 1
        seconds = time.perf_counter() - began
        print(f"{count} lines, {count / seconds:.1f} lines/s with compilation", file=sys.stderr)


if __name__ == "__main__":
    from bert_jax import cli

    cli.main(["predict", *sys.argv[1:]])

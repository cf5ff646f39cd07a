"""The data of theirs.py as rows of tokens, in plain Python.

GLUE's tables give a row for each text or pair, cut to the length by tokenizers' longest_first;
sentences of words a row each, every word tokenized alone; SQuAD's JSON a row for each question and
window of its context.
"""

import gzip
import json
from pathlib import Path
from typing import Any

from recipes import RECIPES, Recipe

QUESTION_TOKENS = 64
IGNORED = -100  # torch's target that does not count

# --- data -----------------------------------------------------------------------------------------


def read_table(path: Path, recipe: Recipe) -> list[dict[str, Any]]:
    """Read a GLUE file: columns by tabs, a header, quotes without a meaning."""
    header, *lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    rows = [
        dict(zip(header.split("\t"), line.rstrip("\r").split("\t"), strict=False)) for line in lines
    ]
    number = recipe.labels.index if recipe.kind == "classify" else float
    return [
        {"texts": [row[c] for c in recipe.columns], "label": number(row[recipe.label])}
        for row in rows
    ]


def read_words(path: Path, recipe: Recipe) -> list[dict[str, Any]]:
    """Read sentences: a word and its tag on each line, a blank line after each sentence."""
    sentences: list[list[list[str]]] = [[]]
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            sentences[-1].append(line.split("\t"))
        elif sentences[-1]:
            sentences.append([])
    return [
        {"words": [w for w, _ in s], "label": [recipe.labels.index(tag.strip()) for _, tag in s]}
        for s in sentences
        if s
    ]


def read_squad(path: Path, recipe: Recipe) -> list[dict[str, Any]]:
    """Read the questions of SQuAD's JSON."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    articles = json.loads(content)["data"]
    return [
        {
            "id": qa["id"],
            "question": qa["question"],
            "context": paragraph["context"],
            "answers": qa["answers"],
        }
        for article in articles
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]


READERS = {"classify": read_table, "regress": read_table, "tag": read_words, "span": read_squad}


def read(data: Path, name: str, split: str) -> list[dict[str, Any]]:
    """Read a task's rows of `train` or `dev`."""
    recipe = RECIPES[name]
    rows = READERS[recipe.kind](data / getattr(recipe, split), recipe)
    return rows[: recipe.rows] if split == "train" and recipe.rows else rows


# --- features: one dict a row ---------------------------------------------------------------------


def of_texts(rows: list[dict[str, Any]], tokenizer: Any, recipe: Recipe) -> list[dict[str, Any]]:
    """Make a row for each text or pair."""
    columns = [list(column) for column in zip(*(row["texts"] for row in rows), strict=True)]
    encoded = tokenizer(*columns, truncation="longest_first", max_length=recipe.length)
    return [
        {
            "ids": encoded["input_ids"][i],
            "types": encoded["token_type_ids"][i],
            "target": row["label"],
            "example": i,
        }
        for i, row in enumerate(rows)
    ]


def of_words(rows: list[dict[str, Any]], tokenizer: Any, recipe: Recipe) -> list[dict[str, Any]]:
    """Make a row for each sentence, with labels on first pieces.

    A word that the tokenizer drops becomes [UNK], so that no label is lost.
    """
    features = []
    for i, row in enumerate(rows):
        pieces = [
            ids or [tokenizer.unk_token_id] for ids in _alone(tokenizer, row["words"])["input_ids"]
        ]
        ids = [
            tokenizer.cls_token_id,
            *(p for word in pieces for p in word),
            tokenizer.sep_token_id,
        ]
        target = [
            IGNORED,
            *(t for tag, w in zip(row["label"], pieces, strict=True) for t in _first(tag, len(w))),
            IGNORED,
        ]
        if len(ids) > recipe.length:
            raise SystemExit(
                f"a sentence of {len(ids)} tokens: windows are not needed for this data, "
                "nor written here"
            )
        features.append({"ids": ids, "types": [0] * len(ids), "target": target, "example": i})
    return features


def _first(tag: int, pieces: int) -> list[int]:
    return [tag] + [IGNORED] * (pieces - 1)


def _alone(tokenizer: Any, texts: list[str], **more: Any) -> Any:
    return tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False, **more)


def of_squad(rows: list[dict[str, Any]], tokenizer: Any, recipe: Recipe) -> list[dict[str, Any]]:
    """Make a row for each window over a question's context, `stride` tokens apart.

    The target is the first answer, as in run_squad.py; a window without all of it points at [CLS].
    """
    questions = _alone(tokenizer, [row["question"] for row in rows])["input_ids"]
    contexts = _alone(tokenizer, [row["context"] for row in rows], return_offsets_mapping=True)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    features = []
    for i, row in enumerate(rows):
        front = [cls, *questions[i][:QUESTION_TOKENS], sep]
        tokens, offsets = contexts["input_ids"][i], contexts["offset_mapping"][i]
        room = recipe.length - len(front) - 1
        windows, start = [], 0
        while True:
            windows.append((start, min(start + room, len(tokens))))
            if windows[-1][1] == len(tokens):
                break
            start += min(recipe.stride, room)
        first = last = -1
        if row["answers"]:
            begin = row["answers"][0]["answer_start"]
            end = begin + len(row["answers"][0]["text"])
            inside = [t for t, (a, b) in enumerate(offsets) if a < end and b > begin]
            first, last = inside[0], inside[-1]
        best = [  # the window that shows a token with most around it, by run_squad.py's rule
            max((_seen(window, t), -w) for w, window in enumerate(windows))
            for t in range(len(tokens))
        ]
        for w, (a, b) in enumerate(windows):
            contained = first >= 0 and a <= first and last < b
            features.append(
                {
                    "ids": [*front, *tokens[a:b], sep],
                    "types": [0] * len(front) + [1] * (b - a + 1),
                    "target": [len(front) + first - a, len(front) + last - a]
                    if contained
                    else [0, 0],
                    "example": i,
                    "begin": len(front),
                    "offsets": offsets[a:b],
                    "best": [-best[t][1] == w for t in range(a, b)],
                }
            )
    return features


def _seen(window: tuple[int, int], token: int) -> float:
    a, b = window
    return min(token - a, b - 1 - token) + 0.01 * (b - a) if a <= token < b else -1.0


FEATURES = {"classify": of_texts, "regress": of_texts, "tag": of_words, "span": of_squad}

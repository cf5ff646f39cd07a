"""Fine-tuning with transformers and torch in a plain loop, to compare ours with.

    python theirs.py heads --model=MINILM --workdir=W
    python theirs.py train --data=D --workdir=W --tasks=mrpc,rte
    python theirs.py train --data=D --workdir=W --tasks=rte --seeds=0 --dropout=0 --order=F

The first writes the checkpoints that both sides start from, the second the results to
W/theirs.jsonl. The third trains in a given order and predicts nothing. Needs transformers and torch
only, not bert_jax.

theirs_data.py makes the rows. Every epoch has its own order, default_rng(seed).permutation, and
batches may span two epochs.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from recipes import BATCH, RECIPES, SEEDS, WARMUP, Recipe, padded_to, updates
from theirs_data import FEATURES, IGNORED, read

CLASSES = {
    "classify": transformers.BertForSequenceClassification,
    "regress": transformers.BertForSequenceClassification,
    "tag": transformers.BertForTokenClassification,
    "span": transformers.BertForQuestionAnswering,
}
ANSWER_TOKENS, N_BEST = 30, 20

# --- batches --------------------------------------------------------------------------------------


def collate(
    rows: list[dict[str, Any]], recipe: Recipe
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Return the inputs of a batch and its targets."""
    width = padded_to(max(len(row["ids"]) for row in rows))

    def padded(lists: list[list[int]], filler: int) -> torch.Tensor:
        return torch.tensor([values + [filler] * (width - len(values)) for values in lists])

    inputs = {
        "input_ids": padded([row["ids"] for row in rows], 0),
        "token_type_ids": padded([row["types"] for row in rows], 0),
        "attention_mask": padded([[1] * len(row["ids"]) for row in rows], 0),
    }
    targets = [row["target"] for row in rows]
    if recipe.kind == "tag":
        return inputs, padded(targets, IGNORED)
    return inputs, torch.tensor(
        targets, dtype=torch.float32 if recipe.kind == "regress" else torch.int64
    )


# --- training -------------------------------------------------------------------------------------


def span_logits(output: Any, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of starts and of ends, without padding columns.

    Padding takes no part in the softmax, so that a loss does not depend on how much of it there is.
    """
    lowest = torch.finfo(torch.float32).min
    return tuple(x.masked_fill(mask == 0, lowest) for x in (output.start_logits, output.end_logits))


def loss_of(
    model: Any, inputs: dict[str, torch.Tensor], targets: torch.Tensor, kind: str
) -> torch.Tensor:
    """Return the mean loss: over rows; tag: over first pieces; span: over starts and ends."""
    output, entropy = model(**inputs), torch.nn.functional.cross_entropy
    if kind == "regress":
        return torch.nn.functional.mse_loss(output.logits[:, 0], targets)
    if kind == "span":
        starts, ends = span_logits(output, inputs["attention_mask"])
        return (entropy(starts, targets[:, 0]) + entropy(ends, targets[:, 1])) / 2
    if kind == "tag":
        return entropy(output.logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    return entropy(output.logits, targets)


def optimizer_of(model: torch.nn.Module, recipe: Recipe, steps: int) -> tuple[Any, Any]:
    """Build torch's AdamW and transformers' linear schedule: up from 0, then down to 0."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "LayerNorm" in name]
    decayed = [p for name, p in named if not (name.endswith("bias") or "LayerNorm" in name)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.999), eps=1e-6, fused=True)
    return optimizer, transformers.get_linear_schedule_with_warmup(
        optimizer, int(steps * WARMUP), steps
    )


def order_of(rows: int, seed: int, steps: int) -> np.ndarray:
    """Return the rows of each batch, int64 [steps, BATCH]; each epoch has its own permutation."""
    rng = np.random.default_rng(seed)
    epochs = -(-steps * BATCH // rows)
    order = np.concatenate([rng.permutation(rows) for _ in range(epochs)])
    return order[: steps * BATCH].reshape(steps, BATCH)


def update(
    model: Any, optimizer: Any, schedule: Any, rows: list[dict[str, Any]], recipe: Recipe
) -> tuple[float, int]:
    """Make one update on a batch of rows; return its loss and its tokens, padding included."""
    inputs, targets = collate(rows, recipe)
    loss = loss_of(model, inputs, targets, recipe.kind)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    return loss.item(), inputs["input_ids"].numel()


def train(model: Any, features: list, order: np.ndarray, recipe: Recipe) -> dict[str, list[float]]:
    """Train on the batches of `order`, int [updates, batch]; return losses, seconds and tokens."""
    optimizer, schedule = optimizer_of(model, recipe, len(order))
    record: dict[str, list[float]] = {"losses": [], "seconds": [], "tokens": []}
    model.train()
    for rows in order.tolist():
        before = time.perf_counter()
        loss, tokens = update(model, optimizer, schedule, [features[row] for row in rows], recipe)
        record["seconds"].append(time.perf_counter() - before)
        record["losses"].append(loss)
        record["tokens"].append(tokens)
    return record


# --- predictions on the development set -----------------------------------------------------------


def outputs_of(model: Any, features: list[dict[str, Any]], recipe: Recipe) -> list[np.ndarray]:
    """Return the head's output for each row, without padding.

    Rows of about the same length are computed together, for speed.
    """
    model.eval()
    outputs: list[Any] = [None] * len(features)
    by_length = sorted(range(len(features)), key=lambda row: len(features[row]["ids"]))
    with torch.inference_mode():
        for begin in range(0, len(by_length), BATCH):
            rows = by_length[begin : begin + BATCH]
            inputs, _ = collate([features[row] for row in rows], recipe)
            output = model(**inputs)
            values = (
                torch.stack(span_logits(output, inputs["attention_mask"]), -1)
                if recipe.kind == "span"
                else output.logits
            )
            for row, value in zip(rows, values.numpy(), strict=True):
                outputs[row] = (
                    value[: len(features[row]["ids"])] if recipe.kind in ("tag", "span") else value
                )
    return outputs


def predictions_of(
    rows: list, features: list, outputs: list[np.ndarray], recipe: Recipe
) -> list[Any]:
    """Return a prediction for each row of data.

    It is a class, a number, the classes of the words, or an answer and its margin: how much more
    `no answer` scores.
    """
    if recipe.kind == "classify":
        return [int(np.argmax(output)) for output in outputs]
    if recipe.kind == "regress":
        return [float(output[0]) for output in outputs]
    if recipe.kind == "tag":
        counted = [
            [t for t, tag in enumerate(feature["target"]) if tag != IGNORED] for feature in features
        ]
        return [
            output[tokens].argmax(-1).tolist()
            for output, tokens in zip(outputs, counted, strict=True)
        ]
    return [
        answer_of(
            row["context"],
            [(f, o) for f, o in zip(features, outputs, strict=True) if f["example"] == i],
            recipe,
        )
        for i, row in enumerate(rows)
    ]


def answer_of(
    context: str, windows: list[tuple[dict[str, Any], np.ndarray]], recipe: Recipe
) -> tuple[str, float]:
    """Choose the answer to one question from its windows, by the rule of run_squad.py.

    Where that rule chooses nothing, return the best single token.
    """
    best, best_score, none_score = "", -np.inf, np.inf
    for feature, output in windows:
        none_score = min(none_score, float(output[0].sum()))
        begin, shown = feature["begin"], len(feature["offsets"])
        starts, ends = (
            np.argsort(-output[:, side], kind="stable")[:N_BEST] - begin for side in (0, 1)
        )
        for first in starts.tolist():
            for last in ends.tolist():
                if not (
                    0 <= first <= last < shown
                    and last - first < ANSWER_TOKENS
                    and feature["best"][first]
                ):
                    continue
                score = float(output[begin + first, 0] + output[begin + last, 1])
                if score > best_score:
                    best = context[feature["offsets"][first][0] : feature["offsets"][last][1]]
                    best_score = score
    if not best:
        tokens = [
            (float(output[feature["begin"] + t].sum()), context[start:end])
            for feature, output in windows
            for t, (start, end) in enumerate(feature["offsets"])
            if feature["best"][t]
        ]
        best_score, best = max(tokens, key=lambda token: token[0])
    margin = none_score - best_score
    return ("" if recipe.no_answer and margin > 0 else best), margin


# --- commands -------------------------------------------------------------------------------------


def heads(args: argparse.Namespace) -> None:
    """Write W/heads/TASK-SEED: the checkpoint with a head that transformers draws from the seed."""
    for name in args.tasks:
        recipe = RECIPES[name]
        labels = {"regress": ("score",), "span": ("start", "end")}.get(recipe.kind, recipe.labels)
        for seed in args.seeds:
            folder = args.workdir / "heads" / f"{name}-{seed}"
            if (folder / "config.json").is_file():
                continue
            torch.manual_seed(seed)
            named = {
                "id2label": dict(enumerate(labels)),
                "label2id": {n: i for i, n in enumerate(labels)},
            }
            model = CLASSES[recipe.kind].from_pretrained(args.model, dtype=torch.float32, **named)
            if recipe.kind == "regress":
                model.config.problem_type = "regression"
            model.save_pretrained(folder)
            transformers.AutoTokenizer.from_pretrained(args.model).save_pretrained(folder)


def runs(args: argparse.Namespace) -> None:
    """Train each task with each seed, and append its result as a line of JSON.

    A task and seed that has a line already is skipped.
    """
    results = args.workdir / args.results
    lines = results.read_text().splitlines() if results.exists() else []
    done = {(line["task"], line["seed"]) for line in map(json.loads, lines)}
    for name in args.tasks:
        recipe = RECIPES[name]
        todo = [seed for seed in args.seeds if (name, seed) not in done]
        if not todo:
            continue
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            args.workdir / "heads" / f"{name}-{todo[0]}"
        )
        rows = {split: read(args.data, name, split) for split in ("train", "dev")}
        features = {split: FEATURES[recipe.kind](rows[split], tokenizer, recipe) for split in rows}
        total = updates(recipe, len(features["train"]))
        for seed in todo:
            torch.manual_seed(seed)
            rates = {}
            if args.dropout is not None:
                names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
                rates = dict.fromkeys(names, args.dropout)
            folder = args.workdir / "heads" / f"{name}-{seed}"
            model = CLASSES[recipe.kind].from_pretrained(folder, dtype=torch.float32, **rates)
            order = order_of(len(features["train"]), seed, total)
            if args.order:
                order = np.load(args.order)
            record = train(model, features["train"], order, recipe)
            line = {
                "task": name,
                "seed": seed,
                "updates": len(record["losses"]),
                "tokens": sum(record["tokens"]),
                "seconds": round(sum(record["seconds"]), 2),
                "losses": record["losses"],
                "step_seconds": record["seconds"],
                "step_tokens": record["tokens"],
            }
            if not args.order:
                outputs = outputs_of(model, features["dev"], recipe)
                line["predictions"] = predictions_of(rows["dev"], features["dev"], outputs, recipe)
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            short = {key: value for key, value in line.items() if not isinstance(value, list)}
            rate = f"{line['tokens'] / line['seconds']:.0f} tokens/s"
            print(time.strftime("%H:%M:%S"), json.dumps(short), rate, flush=True)


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("heads", "train"))
    parser.add_argument("--model", help="heads: the checkpoint's folder")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(RECIPES))
    parser.add_argument(
        "--seeds", type=lambda text: [int(s) for s in text.split(",")], default=list(SEEDS)
    )
    parser.add_argument("--results", default="theirs.jsonl", help="file below the workdir")
    parser.add_argument(
        "--dropout", type=float, help="all dropout rates; the checkpoint's if not given"
    )
    parser.add_argument(
        "--order",
        help="a .npy file, int [updates, batch] of rows, to train on in this order; nothing is "
        "predicted",
    )
    args = parser.parse_args()
    args.workdir.mkdir(parents=True, exist_ok=True)
    {"heads": heads, "train": runs}[args.command](args)


if __name__ == "__main__":
    main()

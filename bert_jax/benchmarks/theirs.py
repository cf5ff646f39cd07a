"""What users would otherwise run: transformers on torch, as it is shipped, and as well as it can be made to run.

Needs torch and transformers, and nothing of this project but the interface of a worker.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bert_jax.benchmarks.worker import Ready

IGNORED = -100
WAYS = (
    "eager",
    "compiled",
    "tuned",
)  # as shipped; by torch.compile; that, with a gathered head and bfloat16


def train_step(config: dict[str, Any], way: str, predictions: int, half: bool = True) -> Ready:
    """Updates of BertForPreTraining on one batch: forwards, backwards, clipping, AdamW.

    Args:
      config: ours, resolved.
      way: one of WAYS.
      predictions: a row.
      half: tuned: products in bfloat16.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.BertForPreTraining(_settings(config)).to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, eps=1e-6, fused=True
    )
    batch = {
        name: torch.from_numpy(value).to(device)
        for name, value in _rows(config, predictions).items()
    }
    tuned = way == "tuned"

    def loss_of(ids: Any, types: Any, mask: Any, labels: Any, places: Any, order: Any) -> Any:
        if not tuned:
            return model(
                ids,
                token_type_ids=types,
                attention_mask=mask,
                labels=labels,
                next_sentence_label=order,
            ).loss
        found = model.bert(ids, token_type_ids=types, attention_mask=mask)
        picked = torch.gather(found[0], 1, places[..., None].expand(-1, -1, found[0].shape[-1]))
        words, pair = model.cls(picked, found[1])
        entropy = torch.nn.functional.cross_entropy
        wanted = torch.gather(labels, 1, places)
        return entropy(words.flatten(0, 1).float(), wanted.flatten()) + entropy(pair.float(), order)

    run = loss_of if way == "eager" else torch.compile(loss_of)
    cast = torch.autocast(device, torch.bfloat16) if tuned and half else contextlib.nullcontext()

    def call() -> None:
        with cast:
            loss = run(**batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()  # waits for the device

    about = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
    }
    return Ready(call, config["batch_size"] * config["sequence_length"], "tokens", about)


def forward(config: dict[str, Any], way: str, half: bool = True) -> Ready:
    """Vectors of every token of a batch, without heads."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.BertModel(_settings(config), add_pooling_layer=False).to(device).eval()
    batch = {name: torch.from_numpy(value).to(device) for name, value in _rows(config, 1).items()}
    run = model if way == "eager" else torch.compile(model)
    cast = (
        torch.autocast(device, torch.bfloat16)
        if way == "tuned" and half
        else contextlib.nullcontext()
    )

    def call() -> None:
        with torch.inference_mode(), cast:
            found = run(batch["ids"], token_type_ids=batch["types"], attention_mask=batch["mask"])[
                0
            ]
            found[0, 0, 0].item()

    return Ready(
        call,
        config["batch_size"] * config["sequence_length"],
        "tokens",
        {"torch": torch.__version__},
    )


def collator(config: dict[str, Any]) -> Ready:
    """Masking by DataCollatorForLanguageModeling, of rows that are tokenised already."""
    vocab_size = config["tokenizer"]["vocab_size"]
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *(f"w{i}" for i in range(vocab_size - 5)),
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("\n".join(words) + "\n")
        tokenizer = transformers.BertTokenizerFast(vocab_file=str(file))
    collate = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=config["masking"]["rate"]
    )
    found = _rows(config, 1)
    rows = [
        {"input_ids": ids, "attention_mask": mask}
        for ids, mask in zip(found["ids"], found["mask"], strict=True)
    ]

    def call() -> None:
        collate(rows)

    return Ready(call, config["batch_size"] * config["sequence_length"], "tokens", {})


def _settings(config: dict[str, Any]) -> Any:
    model = config["model"]
    return transformers.BertConfig(
        vocab_size=config["tokenizer"]["vocab_size"],
        hidden_size=model["hidden"],
        num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"],
        intermediate_size=model["mlp"],
        max_position_embeddings=max(512, config["sequence_length"]),
        hidden_dropout_prob=model["dropout"],
        attention_probs_dropout_prob=model["attention_dropout"],
    )


def _rows(config: dict[str, Any], predictions: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = config["batch_size"], config["sequence_length"]
    ids = rng.integers(5, config["tokenizer"]["vocab_size"], shape)
    places = np.sort(np.argsort(rng.random(shape), axis=1)[:, :predictions], axis=1)
    labels = np.full(shape, IGNORED)
    np.put_along_axis(labels, places, np.take_along_axis(ids, places, 1), 1)
    types = np.tile(np.arange(shape[1]) > shape[1] // 2, (shape[0], 1)).astype(np.int64)
    mask, order = np.ones(shape, np.int64), np.arange(shape[0]) % 2
    return {
        "ids": ids,
        "types": types,
        "mask": mask,
        "labels": labels,
        "places": places,
        "order": order,
    }

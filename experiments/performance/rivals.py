"""Contestants of transformers on torch: as it is shipped, and as fast as it can be made to run.

Needs torch and transformers, but neither jax nor this project.
"""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from turns import Ready

IGNORED = -100


def train_step(config: dict[str, Any], way: str, predictions: int, half: bool = True) -> Ready:
    """Make updates of BertForPreTraining on one batch: forward, backward, clipping, AdamW.

    Args:
      config: ours, resolved.
      way: eager (as shipped), compiled (by torch.compile), or tuned (compiled, with a gathered
        head and bfloat16).
      predictions: predicted positions in a row.
      half: whether `tuned` has matmuls in bfloat16.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.BertForPreTraining(_settings(config)).to(device).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, weight_decay=0.01, eps=1e-6, fused=True
    )
    arrays = _rows(config, predictions)
    batch = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
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
        hidden, pooled = model.bert(ids, token_type_ids=types, attention_mask=mask)[:2]
        picked = torch.gather(hidden, 1, places[..., None].expand(-1, -1, hidden.shape[-1]))
        words, pair = model.cls(picked, pooled)
        entropy = torch.nn.functional.cross_entropy
        targets = torch.gather(labels, 1, places).flatten()
        return entropy(words.flatten(0, 1).float(), targets) + entropy(pair.float(), order)

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
    """Compute the hidden vectors of a batch, without heads."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.BertModel(_settings(config), add_pooling_layer=False).to(device).eval()
    batch = {name: torch.from_numpy(value).to(device) for name, value in _rows(config, 1).items()}
    run = model if way == "eager" else torch.compile(model)
    tuned = way == "tuned" and half
    cast = torch.autocast(device, torch.bfloat16) if tuned else contextlib.nullcontext()
    arguments = {"token_type_ids": batch["types"], "attention_mask": batch["mask"]}

    def call() -> None:
        with torch.inference_mode(), cast:
            hidden = run(batch["ids"], **arguments)[0]
            hidden[0, 0, 0].item()  # waits for the device

    tokens = config["batch_size"] * config["sequence_length"]
    return Ready(call, tokens, "tokens", {"torch": torch.__version__})


def collator(config: dict[str, Any]) -> Ready:
    """Mask tokenized rows by DataCollatorForLanguageModeling."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = special + [f"w{i}" for i in range(config["tokenizer"]["vocab_size"] - len(special))]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vocab.txt"
        file.write_text("\n".join(words) + "\n")
        tokenizer = transformers.BertTokenizerFast(vocab_file=str(file))
    collate = transformers.DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=config["masking"]["rate"]
    )
    arrays = _rows(config, 1)
    rows = [
        {"input_ids": ids, "attention_mask": mask}
        for ids, mask in zip(arrays["ids"], arrays["mask"], strict=True)
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

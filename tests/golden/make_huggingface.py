"""Small random models of every head, saved by transformers, and what they return:
tests/golden/huggingface/.

A folder of `save_pretrained` has every bias and LayerNorm random. `outputs.npz` has the inputs
(rows of 12, 9 and 4 tokens, padded to 12) and every output under transformers' name. `pretraining`
also has `gradients.npz`: labels, the loss and its gradient by every parameter.

Made on 2026-11-21 with Python 3.11, torch 2.13.0, transformers 5.23.0, numpy 2.4.6, in fp32 on a
CPU. To make again, in an environment that has these (the tests need none of them):

    python tests/golden/make_huggingface.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import BertConfig

HERE = Path(__file__).parent / "huggingface"
SIZES = {
    "vocab_size": 47,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
LENGTHS = (12, 9, 4)  # of the examples of a batch, padded to the first
SENTIMENTS = ("negative", "neutral", "positive")
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def names(labels: tuple[str, ...]) -> dict:
    ids = {label: i for i, label in enumerate(labels)}
    return {"id2label": dict(enumerate(labels)), "label2id": ids}


SMALLER = {"vocab_size": 24, "num_hidden_layers": 1, "intermediate_size": 20}
NUMBER = {"num_labels": 1, "problem_type": "regression"}
MODELS = {  # folder: class, what differs in its config
    "model": ("BertModel", {}),
    "pretraining": ("BertForPreTraining", {}),
    "pretraining_gelu_new": ("BertForPreTraining", {"hidden_act": "gelu_new"}),
    "masked_lm": ("BertForMaskedLM", {}),
    "causal_lm": ("BertLMHeadModel", {"is_decoder": True}),
    "next_sentence": ("BertForNextSentencePrediction", {}),
    "sequence_classification": ("BertForSequenceClassification", names(SENTIMENTS)),
    "regression": ("BertForSequenceClassification", NUMBER),
    "token_classification": ("BertForTokenClassification", names(TAGS)),
    "question_answering": ("BertForQuestionAnswering", {}),
    "multiple_choice": ("BertForMultipleChoice", {}),
    # make_tf1.py writes it as google's run_classifier.py does.
    "classifier_one_layer": (
        "BertForSequenceClassification",
        SMALLER | {"max_position_embeddings": 12},
    ),
}
VOCABULARY = (  # 47 lines of vocab.txt
    "[PAD] [UNK] [CLS] [SEP] [MASK] . , ? ' the a is of to and cat dog sat ran mat big red it in "
    "on ##s ##ed ##ing ##er un ##able play walk jump want b c d e f ##b ##c ##d ##e ##f 1 2"
)


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    for seed, (name, (kind, changes)) in enumerate(MODELS.items()):
        model = make(kind, BertConfig(**(SIZES | changes)), seed)
        inputs = batch(model.config, seed, choices=3 if kind == "BertForMultipleChoice" else None)
        folder = HERE / name
        model.save_pretrained(folder)
        with torch.no_grad():
            outputs = model(**inputs, output_hidden_states=True, output_attentions=name == "model")
        arrays = dict(inputs)
        arrays |= {key: x for key, x in outputs.items() if isinstance(x, torch.Tensor)}
        arrays["hidden_states"] = torch.stack(outputs.hidden_states)  # [layers + 1, B, L, D]
        if name == "model":
            arrays["attentions"] = torch.stack(outputs.attentions)  # [layers, B, heads, L, L]
        save(folder / "outputs.npz", arrays)
        if name == "pretraining":
            save(folder / "gradients.npz", gradients(model, inputs))
            assert len(set(VOCABULARY.split())) == SIZES["vocab_size"]
            (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY.split()))


def make(kind: str, config: BertConfig, seed: int) -> torch.nn.Module:
    """Every parameter is drawn at random: no bias is 0 and no LayerNorm is 1, or a swap of two
    would go unseen.
    """
    config._attn_implementation = "eager"
    model = getattr(transformers, kind)(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(offset + 0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def batch(config: BertConfig, seed: int, choices: int | None) -> dict[str, torch.Tensor]:
    """[CLS] a [SEP] b [SEP] and padding; with choices [B, C, L], otherwise [B, L]."""
    generator = np.random.default_rng(seed)
    rows = {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    for length in LENGTHS if choices is None else (*LENGTHS, *LENGTHS):
        middle, padding = length // 2, [0] * (LENGTHS[0] - length)
        ids = generator.integers(5, config.vocab_size, length)
        ids[0], ids[middle], ids[-1] = 2, 3, 3
        rows["input_ids"].append([*ids.tolist(), *padding])
        rows["token_type_ids"].append([*(int(i > middle) for i in range(length)), *padding])
        rows["attention_mask"].append([*[1] * length, *padding])
    shape = (-1, LENGTHS[0]) if choices is None else (-1, choices, LENGTHS[0])
    return {key: torch.tensor(value).reshape(shape) for key, value in rows.items()}


def gradients(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The loss as BertForPreTraining has it, mean over labelled tokens + mean over pairs, and every
    gradient of it.
    """
    generator = np.random.default_rng(0)
    ids = inputs["input_ids"].numpy()
    chosen = (ids > 4) & (generator.random(ids.shape) < 0.6)
    words = generator.integers(5, SIZES["vocab_size"], ids.shape)
    labels = torch.tensor(np.where(chosen, words, -100))
    pairs = torch.tensor([0, 1, 1])
    assert len(set(chosen.sum(axis=1))) > 1, "a mean of means would pass for the mean"
    loss = model(**inputs, labels=labels, next_sentence_label=pairs).loss
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"labels": labels, "next_sentence_label": pairs, "loss": loss.detach(), **found}


def save(path: Path, arrays: dict[str, torch.Tensor]) -> None:
    np.savez_compressed(path, **{name: array.numpy() for name, array in arrays.items()})


if __name__ == "__main__":
    main()

"""Write what transformers makes of small random models of other families: tests/golden/families.

    python experiments/parity/make_families.py [FAMILY ...]

`FAMILY.json` has config.json by head. `FAMILY.npz` has by HEAD/NAME what transformers returns, with
`gradient/PARAMETER` of the sum of all outputs times fixed factors. `tests/families.py` draws each
weight at random, with a hash of the weight's name as the seed.

Made on 2026-11-23 with Python 3.11, torch 2.13.0, transformers 5.23.0, numpy 2.4.6, in fp32 on a
CPU. The tests need none of them.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
import transformers

from tests import families

OUTPUTS = ("last_hidden_state", "pooler_output", "logits", "start_logits", "end_logits")
SIZES = {"vocab_size": 20, "intermediate_size": 12, "max_position_embeddings": 16}
ROBERTA = families.SHARED | SIZES | {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
DISTILBERT = {"vocab_size": 20, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}
DISTILBERT |= {"max_position_embeddings": 16}
MODERNBERT = (
    families.SHARED | SIZES | {"num_hidden_layers": 4, "local_attention": 6, "pad_token_id": 19}
)
MODERNBERT |= {
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1600.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    }
}
ELECTRA = families.SHARED | SIZES | {"embedding_size": 6, "hidden_act": "relu"}
NEOBERT = families.SHARED | {
    "vocab_size": 20,
    "intermediate_size": 14,
    "max_length": 16,
    "norm_eps": 1e-5,
}
BIASES = ("attention_bias", "mlp_bias", "norm_bias", "classifier_bias")
REGRESSION = {"num_labels": 1, "problem_type": "regression"}
TAGS = {"id2label": {0: "O", 1: "B", 2: "I"}, "label2id": {"O": 0, "B": 1, "I": 2}}
HEADS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> end of the class's name, config
    "model": ("Model", {}),
    "masked_lm": ("ForMaskedLM", {}),
    "causal_lm": ("ForCausalLM", {"is_decoder": True}),
    "sequence_classification": ("ForSequenceClassification", TAGS),
    "regression": ("ForSequenceClassification", REGRESSION),
    "token_classification": ("ForTokenClassification", TAGS),
    "question_answering": ("ForQuestionAnswering", {}),
    "multiple_choice": ("ForMultipleChoice", {}),
    "pretraining": ("ForPreTraining", {}),
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {  # model_type -> classes, config
    "roberta": ("Roberta", ROBERTA),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", ROBERTA),
    "distilbert": ("DistilBert", DISTILBERT),
    "modernbert": ("ModernBert", MODERNBERT),
    "electra": ("Electra", ELECTRA),
    "neobert": ("NeoBERT", NEOBERT),  # of which transformers has no class: make_neobert.py
}
MORE = {  # of modernbert: what else its config.json may say
    "regression": {"layer_types": ["full_attention"] * 4, **dict.fromkeys(BIASES, True)},
    "sequence_classification": {"classifier_pooling": "mean"},
    "multiple_choice": {"classifier_pooling": "mean", "classifier_activation": "silu"},
    "token_classification": {"global_attn_every_n_layers": 2, "hidden_activation": "gelu_new"},
    "question_answering": dict.fromkeys(BIASES, True),
}
ONLY = {  # heads -> the families that alone have them
    "causal_lm": ("roberta", "roberta-prelayernorm", "electra"),
    "pretraining": ("electra",),
}
Arrays = dict[str, Any]


def make_settings(family: str, head: str) -> dict[str, Any]:
    """Make what the config's class is given."""
    more = MORE.get(head, {}) if family == "modernbert" else {}
    padding = {"pad_token_id": families.PADDING.get(family, 1)}
    return padding | FAMILIES[family][1] | HEADS[head][1] | more


def draw_weights(model: Any, case: str) -> None:
    """Draw the weights of a model by the recipe of the tests."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = families.tensor(case, name, tuple(parameter.shape))
            parameter.copy_(torch.tensor(value))


def find_gradients(model: Any, outputs: Arrays, mask: np.ndarray) -> Arrays:
    """Find the gradients of the weighted sum of all outputs, by parameter."""
    total: Any = sum(
        (value * torch.tensor(families.cotangent(name, tuple(value.shape), mask))).sum()
        for name, value in outputs.items()
    )
    total.backward()
    return {f"gradient/{name}": parameter.grad for name, parameter in model.named_parameters()}


def write_golden(family: str, found: dict[str, tuple[dict, Arrays]]) -> None:
    """Write config.json and the arrays of each head of a family."""
    configs = {head: stated for head, (stated, _) in found.items()}
    arrays = {
        f"{head}/{name}": array.detach().numpy()
        for head, (_, of_head) in found.items()
        for name, array in of_head.items()
    }
    text = json.dumps(configs, indent=1, sort_keys=True)
    (families.GOLDEN / f"{family}.json").write_text(text + "\n")
    np.savez_compressed(families.GOLDEN / f"{family}.npz", **arrays)


def run(family: str, head: str) -> tuple[dict, Arrays]:
    """Return the config.json of one model, its outputs, and gradients of their weighted sum."""
    prefix = FAMILIES[family][0]
    config = getattr(transformers, f"{prefix}Config")(**make_settings(family, head))
    config._attn_implementation = "eager"
    model = getattr(transformers, prefix + HEADS[head][0])(config).eval()
    draw_weights(model, f"{family} {head}")
    given = {name: torch.tensor(array) for name, array in families.batch(family, head).items()}
    returned = model(**given, output_hidden_states=head == "model")
    arrays = {name: returned[name] for name in OUTPUTS if returned.get(name) is not None}
    gradients = find_gradients(model, arrays, given["attention_mask"].numpy())
    if head == "model":
        arrays["hidden_states"] = torch.stack(returned.hidden_states)  # [layers + 1, B, L, D]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stated = json.loads((Path(folder) / "config.json").read_text())
    return stated, arrays | gradients


def main() -> None:
    """Run the models of some families, or of all but NeoBERT, which transformers lacks."""
    for family in sys.argv[1:] or [name for name in FAMILIES if name != "neobert"]:
        heads = [head for head in HEADS if family in ONLY.get(head, FAMILIES)]
        write_golden(family, {head: run(family, head) for head in heads})


if __name__ == "__main__":
    main()

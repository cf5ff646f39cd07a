"""Write what NeoBERT's authors' code makes of small random models: tests/golden/families.

    git clone https://github.com/chandar-lab/NeoBERT        # ours was at ed75b68
    python experiments/parity/make_neobert.py --code=NeoBERT/src

Made on 2026-11-23 with Python 3.11, torch 2.13.0+cpu, transformers 5.23.0, numpy 2.4.6, in fp32 on
a CPU. Two parts of it are not theirs: xformers' SwiGLU is written out as its documentation has it,
`w3(silu(w1 x) * w2 x)` with the first two in one matrix w12; and `post_init` of the base class is
left out, which draws weights that are then replaced. Attention is torch's (flash_attention=False),
and nothing is compiled. transformers has no class of NeoBERT; their
`NeoBERTHFForSequenceClassification` is called `NeoBERTForSequenceClassification` in their files on
the hub. Gradients are those of the weighted sum of all outputs (tests/families.py).
"""

import argparse
import importlib
import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import transformers  # before `datasets` is stood in for

from experiments.parity.make_families import (
    draw_weights,
    find_gradients,
    make_settings,
    write_golden,
)
from tests import families

CLASSES = {  # head -> their class, and its name on the hub
    "model": ("NeoBERT", "NeoBERT"),
    "masked_lm": ("NeoBERTLMHead", "NeoBERTLMHead"),
    **dict.fromkeys(
        ("sequence_classification", "regression"),
        ("NeoBERTHFForSequenceClassification", "NeoBERTForSequenceClassification"),
    ),
}


class SwiGLU(torch.nn.Module):
    """The module of xformers of this name."""

    def __init__(self, width: int, inner: int, out: int, bias: bool):
        super().__init__()
        self.w12 = torch.nn.Linear(width, 2 * inner, bias=bias)
        self.w3 = torch.nn.Linear(inner, out, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = self.w12(x).chunk(2, dim=-1)
        result: torch.Tensor = self.w3(torch.nn.functional.silu(one) * other)
        return result


def stand_in(name: str, **members: Any) -> None:
    """Have `import name` find a module with these members."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(members)
    sys.modules[name] = module


def load(code: Path) -> Any:
    """Import the authors' model code; their __init__.py asks it for a class that it has not."""
    stand_in("xformers")
    stand_in("xformers.ops", SwiGLU=SwiGLU, memory_efficient_attention=None)
    stand_in("datasets", Dataset=None)
    stand_in("theirs", __path__=[str(code / "neobert" / "model")])
    model = importlib.import_module("theirs.model")
    model.NeoBERTPreTrainedModel.post_init = lambda self: None
    return model


def run(code: Any, head: str) -> tuple[dict, dict[str, Any]]:
    """Return the config.json of one model, its outputs, and gradients of their weighted sum."""
    name, on_hub = CLASSES[head]
    config = code.NeoBERTConfig(**make_settings("neobert", head), flash_attention=False)
    model = getattr(code, name)(config).eval()
    draw_weights(model, f"neobert {head}")
    given = families.batch("neobert", head)
    ids, mask = torch.tensor(given["input_ids"]), torch.tensor(given["attention_mask"])
    added = torch.zeros(mask.shape).masked_fill(mask == 0, float("-inf"))
    states: list[torch.Tensor] = []
    inner = model if head == "model" else model.model
    inner.encoder.register_forward_hook(lambda *a: states.append(a[2]))
    for layer in inner.transformer_encoder:
        layer.register_forward_hook(lambda *a: states.append(a[2]))
    if head == "model":
        arrays = {"last_hidden_state": model(ids, added)}
    elif head == "masked_lm":
        arrays = {"logits": model(ids, added)["logits"]}
    else:
        arrays = {"logits": model(ids, added, return_dict=True).logits}
    gradients = find_gradients(model, arrays, mask.numpy())
    if head == "model":
        arrays["hidden_states"] = torch.stack([*states[:-1], arrays["last_hidden_state"]])
    stated = json.loads(config.to_json_string(use_diff=False)) | {"architectures": [on_hub]}
    return stated, arrays | gradients


def main() -> None:
    """Run all classes and write their numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--code", type=Path, required=True, help="the folder src of their code")
    code = load(parser.parse_args().code)
    write_golden("neobert", {head: run(code, head) for head in CLASSES})
    print(f"{len(CLASSES)} models, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()

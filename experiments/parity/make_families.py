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
Arrays = dict[str, Any]


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
    prefix, _, padding = families.FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(
        **{"pad_token_id": padding} | families.config(family, head)
    )
    config._attn_implementation = "eager"
    model = getattr(transformers, prefix + families.HEADS[head][0])(config).eval()
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
    for family in sys.argv[1:] or [name for name in families.FAMILIES if name != "neobert"]:
        heads = [head for name, head in families.CASES if name == family]
        write_golden(family, {head: run(family, head) for head in heads})


if __name__ == "__main__":
    main()

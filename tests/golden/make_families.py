"""What transformers makes of small random models of other families: tests/golden/families/.

`FAMILY.json` has config.json by head. `FAMILY.npz` has by HEAD/NAME what transformers returns, with
`gradient/PARAMETER` of the sum of all outputs times fixed factors. `tests/families.py` draws each
weight at random, with a hash of the weight's name as the seed.

Made on 2026-11-23 with Python 3.11, torch 2.13.0, transformers 5.23.0, numpy 2.4.6, in fp32 on a
CPU. To make again, in an environment that has these (the tests need none of them):

    python tests/golden/make_families.py [FAMILY ...]
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests import families

OUTPUTS = ("last_hidden_state", "pooler_output", "logits", "start_logits", "end_logits")


def main() -> None:
    families.GOLDEN.mkdir(exist_ok=True)
    # Of NeoBERT transformers has no class: experiments/parity/make_neobert.py.
    for family in sys.argv[1:] or [name for name in families.FAMILIES if name != "neobert"]:
        configs: dict[str, dict] = {}
        arrays: dict[str, np.ndarray] = {}
        for head in (head for name, head in families.CASES if name == family):
            configs[head], found = run(family, head)
            arrays |= {f"{head}/{name}": array for name, array in found.items()}
        text = json.dumps(configs, indent=1, sort_keys=True)
        (families.GOLDEN / f"{family}.json").write_text(text + "\n")
        np.savez_compressed(families.GOLDEN / f"{family}.npz", **arrays)


def run(family: str, head: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the config.json of one model, its outputs, and gradients of their weighted sum."""
    prefix, _, padding = families.FAMILIES[family]
    config = getattr(transformers, f"{prefix}Config")(
        **{"pad_token_id": padding} | families.config(family, head)
    )
    config._attn_implementation = "eager"
    model = getattr(transformers, prefix + families.HEADS[head][0])(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = families.tensor(f"{family} {head}", name, tuple(parameter.shape))
            parameter.copy_(torch.tensor(value))
    given = {name: torch.tensor(array) for name, array in families.batch(family, head).items()}
    found = model(**given, output_hidden_states=head == "model")
    arrays = {name: found[name] for name in OUTPUTS if found.get(name) is not None}
    mask = given["attention_mask"].numpy()
    total = sum(
        (value * torch.tensor(families.cotangent(name, tuple(value.shape), mask))).sum()
        for name, value in arrays.items()
    )
    total.backward()
    if head == "model":
        arrays["hidden_states"] = torch.stack(found.hidden_states)  # [layers + 1, B, L, D]
    arrays |= {f"gradient/{name}": p.grad for name, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stated = json.loads((Path(folder) / "config.json").read_text())
    return stated, {name: array.detach().numpy() for name, array in arrays.items()}


if __name__ == "__main__":
    main()

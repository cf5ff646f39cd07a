"""Have the authors' code of GPT-BERT compute what our preset gpt_bert is compared with.

    git clone https://github.com/ltgoslo/gpt-bert && git -C gpt-bert checkout 9fc1507
    pip install torch==2.13.0 numpy safetensors
    python experiments/parity/gpt_bert.py --code=gpt-bert/pretraining/model_extra.py

It writes tests/golden/gpt_bert.npz, which is committed: run it only to make that again. The model
is small and random (tests/gpt_bert.py has its sizes and the recipe of its weights and batch): two
rows of masked examples and two of causal ones, packed, with padding, no dropout, float32 on a CPU.
The file has

    hidden_states     what comes out of the embeddings and of each layer [layers + 1, B, L, D]
    logits            [B, L, V]
    loss              their hybrid loss, of which the masked part has the share 3/4
    gradient/NAME     the gradient of that loss by each of their parameters
    buckets           the buckets of distances -511 to 511 at the published sizes, 32 and 512

`pytest tests/models/test_gpt_bert.py` holds ours to 1e-5 of the largest value of each.
"""

import argparse
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests import gpt_bert

AUTHORS = {  # their names of sizes
    "num_hidden_layers": gpt_bert.LAYERS,
    "hidden_size": gpt_bert.WIDTH,
    "num_attention_heads": gpt_bert.HEADS,
    "intermediate_size": gpt_bert.MLP,
    "vocab_size": gpt_bert.VOCAB,
    "max_position_embeddings": gpt_bert.LENGTH,
    "position_bucket_size": gpt_bert.BUCKETS,
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
}


def main() -> None:
    """Run the authors' code once and write what it returns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code", required=True, help="their pretraining/model_extra.py")
    code = load(parser.parse_args().code)
    torch.manual_seed(0)
    model = code.Bert(types.SimpleNamespace(**AUTHORS)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(gpt_bert.tensor(name, tuple(parameter.shape))))
    np.savez_compressed(gpt_bert.GOLDEN, **compute(model), buckets=buckets(code))


def load(path: str) -> Any:
    """Import their file, which is no package."""
    spec = importlib.util.spec_from_file_location("model_extra", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compute(model: Any) -> dict[str, np.ndarray]:
    """Return outputs, loss and gradients; their arrays begin with the places, ours with rows."""
    b = gpt_bert.batch()
    ids, targets = (torch.tensor(x.T.astype(np.int64)) for x in (b["inputs"], list_targets(b)))
    hidden = torch.tensor(hide_pairs(b))
    states: list[torch.Tensor] = []
    mix = model.transformer.dwa_modules
    handle = mix.register_forward_hook(lambda *of_call: states.append(of_call[2]))
    embedded = model.embedding(ids)[0]
    contextualized = model.get_contextualized(ids, hidden)
    handle.remove()
    logits = model.classifier.nonlinearity(contextualized)
    loss = model(ids, hidden, targets, gpt_bert.MASKED, 1 - gpt_bert.SHARE)[0]
    loss.backward()
    arrays = {
        "hidden_states": torch.stack([embedded, *states[1::2]]).transpose(1, 2),
        "logits": logits.transpose(0, 1),
        "loss": loss,
        **{f"gradient/{name}": p.grad for name, p in model.named_parameters()},
    }
    return {name: value.detach().numpy() for name, value in arrays.items()}


def hide_pairs(b: dict[str, np.ndarray]) -> np.ndarray:
    """Find the pairs of tokens without attention, bool [B, L, L], as their code takes them."""
    ids, columns = b["segment_ids"], np.arange(gpt_bert.LENGTH)
    same = (ids[:, :, None] == ids[:, None]) & (ids > 0)[:, :, None]
    ahead = columns[None, :] > columns[:, None]
    return ~(same & ~(b["causal"][:, :, None] & ahead))


def list_targets(b: dict[str, np.ndarray]) -> np.ndarray:
    """List the target of each place [B, L], as their code takes it: the next token, or -100."""
    found = np.full_like(b["tokens"], -100)
    inside = (b["segment_ids"][:, 1:] == b["segment_ids"][:, :-1]) & b["causal"][:, 1:]
    found[:, :-1][inside] = b["tokens"][:, 1:][inside]
    for row in range(gpt_bert.MASKED):
        places = b["predict_positions"][row]
        found[row, places - 1] = b["tokens"][row, places]
    return found


def buckets(code: Any) -> np.ndarray:
    """Return their buckets at the published sizes, from the most negative distance on."""
    sizes = AUTHORS | {"position_bucket_size": 32, "max_position_embeddings": 512}
    found = code.Attention(types.SimpleNamespace(**sizes)).position_indices
    return torch.cat([found[0].flip(0)[:-1], found[:, 0]]).to(torch.int16).numpy()


if __name__ == "__main__":
    main()

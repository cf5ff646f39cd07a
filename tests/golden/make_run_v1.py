"""Write run_v1: a text, a config, a corpus, a run with two checkpoints, a study of two cells.

    python tests/golden/make_run_v1.py

It was written once, by the first version. Later versions must open, resume, evaluate, export and
report it (`tests/test_run_v1.py`), or refuse it by name and say what to do.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("run_v1")
TABLES = ("study.json", "results.csv", "curves.csv", "examples.npz", "summary.md")
CONFIG = '''"""A run of eight updates, from the folder of this file."""

from bert_jax.config import default


def get_config():
    config = default()
    config.corpus.update(source="files", path="text", cache="cache", workers=1)
    config.corpus.validation_fraction = 0.2
    config.tokenizer.vocab_size = 80
    config.model.update(size="tiny", layers=1, hidden=16, heads=2, mlp=32, max_positions=32)
    config.update(steps=8, batch_size=8, sequence_length=32)
    config.optim.update(learning_rate=5e-3, warmup_steps=2)
    config.logging.update(every=1, samples=0, trackers=())
    config.checkpoints.update(every=4, keep=2)
    config.evals.validation.every = 4
    return config
'''


def main() -> None:
    """Write the folder anew."""
    sys.path.insert(0, str(ROOT))
    from bert_jax import cli
    from tests import texts

    made = Path("/tmp/run_v1")  # Orbax writes the folder's name into the checkpoint
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    texts.write(made / "text", documents=40)
    (made / "config.py").write_text(CONFIG)
    os.chdir(made)
    assert cli.execute(["train", "--config=config.py", "--workdir=run"]) == 0
    study = ["study", "sweep", "--config=config.py", "--axis=masking.rate=0.15,0.4", "--seeds=1"]
    assert cli.execute([*study, "--workdir=work", "--jobs=1"]) == 0
    Path("study").mkdir()
    for name in TABLES:
        shutil.copy(Path("work") / name, Path("study") / name)
    shutil.rmtree("work")
    (Path("run") / "report.html").unlink()  # a page of a later version may look otherwise
    (Path("run") / "environment.json").unlink(missing_ok=True)  # of the machine
    (Path("cache") / "file-hashes.json").unlink()  # paths of the machine
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(made, FOLDER)


if __name__ == "__main__":
    main()

"""Write run_v1: a text, a config, a corpus, a run with two checkpoints, a study of two cells.

    python tests/golden/make_run_v1.py

Version 0.2 wrote it in November 2026. Later versions must open, resume, evaluate, export and report
it (`tests/golden/test_run_v1.py`), or refuse it by name and say what to do.
"""

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("run_v1")
TABLES = ("study.json", "results.csv", "curves.csv", "examples.npz")


def main() -> None:
    """Write the folder anew, from its config."""
    sys.path.insert(0, str(ROOT))
    from bert_jax import cli
    from tests import texts

    made = Path("/tmp/run_v1")  # Orbax writes the folder's name into the checkpoint
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    texts.write(made / "text", documents=40)
    shutil.copy(FOLDER / "config.py", made)
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

"""Linear probes whose labels are known to be in the vectors; the net has those of classes."""

from pathlib import Path

import numpy as np

from tests.suites.asking import WORDS, ask


def write_texts(folder: Path, kind: str) -> str:
    """Texts whose label is counted (regress), or is of the word before (tag)."""
    random = np.random.default_rng(0)
    for split, count in (("train", 80), ("validation", 40)):
        lines = []
        for number in range(count):
            words = random.choice(WORDS[2:], 5).tolist()
            words[int(random.integers(5))] = WORDS[number % 2]
            early = [word in WORDS[:6] for word in words]
            if kind == "tag":
                labels = ["A", *("B" if one else "A" for one in early[:-1])]
                lines.append("".join(f"{w}\t{t}\n" for w, t in zip(words, labels, strict=True)))
            else:
                lines.append(f"{' '.join(words)}\t{sum(early)}")
        head = "" if kind == "tag" else "text\tlabel\n"
        name = f"{split}.{'conll' if kind == 'tag' else 'tsv'}"
        (folder / name).write_text(head + "\n".join(lines) + "\n")
    return f"files:{folder}"


def test_probe_counts_words_of_texts(run, tmp_path, one_device):
    source = write_texts(tmp_path, "regress")
    found = ask(run, "probe", task="regress", source=source, limit=60)
    assert (found["train"], found["scored"]) == (60, 40)
    assert found["embeddings"]["mean"]["pearson"] > 0.95
    assert np.isnan(found["majority"]["pearson"])  # the mean is a constant


def test_probe_of_words_sees_their_context(run, tmp_path, one_device):
    """A word and its place alone say nothing of the one before; long texts are read in windows."""
    source = write_texts(tmp_path, "tag")
    short = run.replace_sections(sequence_length=6)
    changes = (("task.text", "0"), ("task.label", "-1"), ("task.stride", "3"))
    found = ask(short, "probe", task="tag", source=source, changes=changes)
    assert (found["train"], found["scored"]) == (400, 200)
    blind = found["embeddings"]["word"]["accuracy"]
    assert blind < 0.8
    assert found["layer_1"]["word"]["accuracy"] > blind

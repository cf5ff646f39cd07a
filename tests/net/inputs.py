"""The files that rows and transcripts read: a text, labelled data, a config and a study.

`checkout` is a link to the checkout. The config begins with that of the training rows, and the
study with the module that users import, so that no other module of the package is named here.
"""

import json
import random
from pathlib import Path

PRETRAIN = """
import runpy


def get_config():
    config = runpy.run_path("base.py")["get_config"]()
    config.tokenizer.update(path="", vocab_size=400)
    config.init_from = config.corpus.cache = ""
    config.model.update(dropout=0.1, attention_dropout=0.1, init_stddev=0.08)
    config.objectives.nsp.weight = None
    config.steps = 24
    return config
"""

STUDY = """
import dataclasses
import runpy

from bert_jax.studies.definition import Comparison, Study, Suite, axis


def get_study(scale="evaluated"):
    study = Study(
        question="Which rate?",
        base=runpy.run_path("pretrain.py")["get_config"](),
        axes=(axis("masking.rate", (0.15, 0.4), ["15 %", "40 %"]),),
        seeds=(0, 1),
        evaluations={},
    )
    if scale == "trained":
        return study
    return dataclasses.replace(
        study,
        evaluations={"validation": Suite("pretrain")},
        comparisons=(Comparison("masking.rate", "15 %", ("validation/mlm_loss",)),),
    )
"""

SUBJECTS = ("the cat", "a small dog", "my old friend", "the quiet river", "a child")
SUBJECTS += ("a green bird", "the young baker", "your teacher", "a brown horse", "the last train")
SUBJECTS += ("her sister", "an honest lawyer", "the captain", "our neighbour", "a clever student")
SUBJECTS += ("the empty house", "a famous painter", "the blue window", "an early guest")
SUBJECTS += ("the silver ring", "his uncle", "a heavy stone", "the wooden bridge")
SUBJECTS += ("a patient doctor",)
VERBS = ("sees", "follows", "likes", "finds", "remembers", "hears", "paints", "carries")
VERBS += ("leaves", "forgets", "measures", "protects", "describes", "surprises", "believes")
VERBS += ("watches", "repairs", "answers", "crosses", "awaits")
PLACES = ("in the garden", "near the sea", "under a tree", "on the long road")
PLACES += ("behind the house", "before the winter", "at the market", "without a word")
PLACES += ("through the snow", "by night", "after breakfast", "between two mountains")
PLACES += ("against the wind", "during the summer", "along the border", "inside the library")
PLACES += ("across the valley", "beyond the harbour", "for another reason")
PLACES += ("until tomorrow morning",)
SYLLABLES = ("ba", "ko", "mi", "ru", "ten", "sal", "vor", "phi", "dun", "je", "lax", "wyn", "ost")
SYLLABLES += ("gre", "li", "mar", "nu", "pel", "qui", "ras", "sho", "ti", "ur", "ver", "zen", "cla")


def write_inputs(folder: Path, checkout: Path) -> None:
    """Write the text, labelled data, configs and study that the commands read."""
    chance = random.Random(0)
    pairs = []
    for _ in range(8):
        good = _sentence(chance)
        pairs.append({"sentence_good": good, "sentence_bad": " ".join(good.split()[::-1])})
    files = {
        "pretrain.py": PRETRAIN,
        "study/study.py": STUDY,
        "lines.txt": "".join(f"{_sentence(chance)}\n" for _ in range(4)),
        "texts/corpus.txt": "\n\n".join(_document(chance) for _ in range(150)) + "\n",
        "pairs/order.jsonl": _lines(pairs),
    }
    for split, rows in (("train", 48), ("dev", 16)):
        files |= {f"tasks/{name}": text for name, text in _tasks(chance, split, rows).items()}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "checkout").symlink_to(checkout)


def _sentence(chance: random.Random, subject: str = "") -> str:
    """Return a sentence of few words that recur together, and often a rare name."""
    name = "".join(chance.choice(SYLLABLES) for _ in range(chance.randint(2, 4)))
    words = [subject or chance.choice(SUBJECTS), chance.choice(VERBS)]
    words += [chance.choice([*SUBJECTS, name]), chance.choice(PLACES)]
    return f"{' '.join(words)}."


def _document(chance: random.Random) -> str:
    """Return sentences about one subject, a line each."""
    subject = chance.choice(SUBJECTS)
    return "\n".join(_sentence(chance, subject) for _ in range(chance.randint(3, 8)))


def _lines(rows: list[dict[str, object]]) -> str:
    """Return JSON lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _tasks(chance: random.Random, split: str, count: int) -> dict[str, str]:
    """Return a split of a task of each kind as files in the layout of its benchmark."""
    single, pairs, words = ["sentence\tlabel"], ["sentence1\tsentence2\tscore"], []
    choices: list[dict[str, object]] = []
    paragraphs = []
    for number in range(count):
        subject, label = chance.choice(SUBJECTS), number % 2
        text = _sentence(chance, subject)
        single.append(f"{text}\t{SUBJECTS.index(subject) % 2}")
        pairs.append(f"{text}\t{_sentence(chance, subject)}\t{chance.randint(0, 50) / 10}")
        words += [f"{word} {'B-PER' if word in subject.split() else 'O'}" for word in text.split()]
        words.append("")
        row = {"idx": number, "premise": text, "asks_for": "effect", "label": label}
        choices.append({**row, f"choice{label + 1}": text, f"choice{2 - label}": _sentence(chance)})
        context = f"{_sentence(chance)} {text}"
        answers = [{"text": subject, "answer_start": context.index(subject)}]
        question = {"id": str(number), "question": f"who {text.split()[-2]}?", "answers": answers}
        paragraphs.append({"context": context, "qas": [question]})
    train = split == "train"
    return {
        f"SST-2/{split}.tsv": "\n".join(single) + "\n",
        f"STS-B/{split}.tsv": "\n".join(pairs) + "\n",
        f"words/eng.{'train' if train else 'testa'}": "\n".join(words) + "\n",
        f"copa/{'train' if train else 'val'}.jsonl": _lines(choices),
        f"squad/{split}-v1.1.json": json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}),
    }

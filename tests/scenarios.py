"""Tiny runs of every kind as command lines, and the files they read: see `compare_checkouts.py`.

Each command runs in a folder that `write_inputs` has filled; `checkout` there is a link to the
checkout. Configs begin with files of the checkout, and the study with the module that users import,
so that no other module of the package is named here.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

PRETRAIN = """
import runpy


def get_config():
    config = runpy.run_path("checkout/configs/tiny.py")["get_config"]()
    config.corpus.source = "files"
    config.corpus.path = "texts"
    config.corpus.workers = 1
    config.corpus.validation_fraction = 0.2
    config.tokenizer.vocab_size = 400
    config.model.hidden = 32
    config.model.dropout = config.model.attention_dropout = 0.1
    config.objectives.nsp.weight = None
    config.steps = 24
    config.batch_size = 16
    config.sequence_length = 32
    config.optim.learning_rate = 5e-3
    config.optim.warmup_steps = 5
    config.logging.every = 2
    config.logging.trackers = ()
    config.logging.samples = 0
    config.checkpoints.every = 12
    config.evals.validation.every = 12
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


@dataclass(frozen=True)
class Command:
    """Words of a command line, its exit code, standard input and environment variables."""

    words: str
    code: int = 0
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Commands in order, which write to a folder of its name, and scenarios that they need."""

    commands: tuple[Command, ...]
    needs: tuple[str, ...] = ()


# --- the table ------------------------------------------------------------------------------------

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
STOP = {"BERT_JAX_FAULT": "step:15:term"}  # SIGTERM in this update
LINES = "the cat sees [MASK] small dog.\nevery [MASK] hears the quiet [MASK] near the sea.\n"
PAIRS = '{"text": "the cat sees it.", "text_pair": "my old friend likes the cat."}\n'
QUESTIONS = '{"question": "who sees the sea?", "context": "a child sees the sea. it rains."}\n'
RECIPE = ("init_from=nsp", "epochs=2", "batch_size=8", "optim.learning_rate=2e-3")
RECIPE += ("sequence_length=48", "logging.every=2", "logging.trackers=")


def pretrain(name: str, *changes: str, code: int = 0, **variables: str) -> Command:
    """Return the command that trains pretrain.py with some knobs changed."""
    words = ["train", "--config=pretrain.py", f"--workdir={name}"]
    words += [f"--config.{change}" for change in changes]
    return Command(" ".join(words), code, variables=variables)


def finetune(name: str, task: str, source: str, *changes: str) -> Scenario:
    """Return the scenario that fine-tunes the model of `nsp` on a task, and scores the result."""
    knobs = [*RECIPE, f"task.source=files:{source}", *changes]
    config = f"checkout/configs/finetune.py:{','.join([task, *knobs])}"
    train = Command(f"train --config={config} --workdir={name}")
    return Scenario((train, Command(f"evaluate --checkpoint={name}")), ("nsp",))


CAUSAL = ("pairs=none", "objectives.causal_lm.weight=1", "model.causal=true")
CAUSAL += ("checkpoints.best=causal_lm_loss",)
PACKING = ("packing=4", "sequence_length=64", "examples.short_probability=1")
MODERN = ("model.position=rotary", "model.norm=pre", "model.gated=true")
MODERN += ("optim.name=lamb", "optim.schedule=cosine")
STATIC = ("masking.dupe_factor=2", "masking.unit=word", "steps=72")  # both copies come again
SCHEDULE = ("masking.phases=((1.0,0.1,'linear'),)", "masking.rate=0.4")
VMAP = "--workdir=vmap --jobs=1 --config.parallel.arms=vmap"
WINDOWS = ("task.stride=16",)

SCENARIOS = {
    "prepare": Scenario((Command("prepare --config=pretrain.py --config.corpus.cache=prepare"),)),
    "nsp": Scenario((pretrain("nsp", "logging.samples=12"),)),
    "sop": Scenario((pretrain("sop", "pairs=sop"),)),
    "causal": Scenario(
        (
            pretrain("causal", *CAUSAL),
            Command("predict generate --model=causal --max-tokens=8", stdin="the cat sees\n"),
        )
    ),
    "packing": Scenario((pretrain("packing", *PACKING),)),
    "span_masks": Scenario((pretrain("span_masks", "masking.unit=span", "pairs=none"),)),
    "pmi_masks": Scenario((pretrain("pmi_masks", "masking.unit=pmi", "masking.pmi_count=3"),)),
    "static_masks": Scenario((pretrain("static_masks", *STATIC),)),
    "modern": Scenario((pretrain("modern", *MODERN, *SCHEDULE),)),
    "accumulation": Scenario((pretrain("accumulation", "optim.accumulation=4"),)),
    "resume": Scenario((pretrain("resume", code=75, **STOP), pretrain("resume"))),
    "pmap": Scenario((pretrain("pmap", "parallel.step=pmap", **FOUR),)),
    "mesh": Scenario((pretrain("mesh", "parallel.fsdp=2", **FOUR),)),
    "study": Scenario((Command("study run study --workdir=study --jobs=1"),)),
    "vmap": Scenario((Command(f"study run study:trained {VMAP}", variables=FOUR),)),
    "classify": finetune("classify", "sst2", "tasks"),
    "regress": finetune("regress", "stsb", "tasks"),
    "tag": finetune("tag", "conll2003", "tasks/words", *WINDOWS),
    "span": finetune("span", "squad", "tasks/squad", *WINDOWS, "task.question_tokens=12"),
    "choice": finetune("choice", "copa", "tasks/copa"),
    "evaluate": Scenario(
        (
            Command("evaluate --checkpoint=nsp --suite=pretrain,nsp,cross_rate,pll --limit=40"),
            Command("evaluate --checkpoint=nsp --suite=blimp --source=files:pairs"),
            Command("evaluate --checkpoint=nsp --suite=sts --source=files:tasks"),
            Command("evaluate --checkpoint=nsp --suite=probe --task=sst2 --source=files:tasks"),
            Command("evaluate --checkpoint=classify --suite=glue --source=files:tasks"),
        ),
        ("nsp", "classify"),
    ),
    "predict": Scenario(
        (
            Command("predict fill-mask --model=nsp --top-k=3", stdin=LINES),
            Command("predict nsp --model=nsp", stdin=PAIRS),
            Command("predict embed --model=nsp --normalize", stdin=LINES),
            Command("predict classify --model=classify", stdin=LINES),
            Command("predict tag --model=tag", stdin=LINES),
            Command("predict answer --model=span --top-k=2", stdin=QUESTIONS),
        ),
        ("nsp", "classify", "tag", "span"),
    ),
    "unmask": Scenario(
        (
            Command("predict generate --model=nsp --max-tokens=4 --steps=2", stdin=LINES),
            Command(
                "predict generate --model=nsp --max-tokens=6 --order=random --temperature=1",
                stdin=LINES,
            ),
        ),
        ("nsp",),
    ),
    "inspect": Scenario(
        (
            Command("inspect attention --model=nsp --input=lines.txt --output=inspect/1.html"),
            Command("inspect embeddings --model=nsp --input=lines.txt --output=inspect/2.html"),
        ),
        ("nsp",),
    ),
    "exchange": Scenario(
        (
            Command("export --checkpoint=nsp --output=exchange/exported"),
            Command("import --model=exchange/exported --output=exchange/imported"),
            Command("evaluate --checkpoint=exchange/imported --config=pretrain.py"),
        ),
        ("nsp",),
    ),
}

# --- the files ------------------------------------------------------------------------------------

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

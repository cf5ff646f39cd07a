"""The model card of models that no transcript exports."""

import dataclasses
from pathlib import Path

import huggingface_hub

from bert_jax.config import resolve, to_dict
from bert_jax.interop import card, export, runs
from tests import families, variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"


def write_card(run: runs.TrainedModel, **settings: str) -> str:
    family = export.find_family(run.config, run.tokenizer.special)
    return card.write_card(run, family, 7, *export.find_class(run.config, family), **settings)


def describe_run(folder: Path, changes: dict, lines: str = "", **settings: str) -> str:
    """Write the card of a run with some knobs, at step 5 of 9."""
    (folder / "metrics.jsonl").write_text(lines)
    config = resolve({"steps": 9, "batch_size": 4, **changes})
    run = runs.open_run(str(MODEL))
    meta = {"config": to_dict(config)}
    run = dataclasses.replace(run, folder=folder, config=config, step=5, meta=meta)
    return write_card(run, **settings)


def test_cards_say_what_is_frozen(tmp_path, monkeypatch, check_frozen):
    """The first has text of the hub, and only a result of another step.

    The second has docstrings, and a null result before its own. The others name no folder of this
    machine, and NeoBERT is loaded by its own code.
    """
    folder = tmp_path / "run"
    folder.mkdir()
    line = '{"step": %d, "eval/validation/nsp_loss": %s}\n'
    corpus = {"source": "hub", "path": "owner/wiki:en, other/books", "revision": "v1,v2"}
    evals = {"evals": {"validation": {"rate": 0.125}}}
    changes = {
        "task": {"source": f"files:{tmp_path}/x/train.tsv", "name": "complaints"},
        "objectives": {"classify": {"labels": ("late", "*rude*<b>")}},
        "checkpoints": {"best": ""},
    }
    name = "google-bert/bert-base-uncased"
    cached = {name: "/cache/config.json"}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda one, _: cached.get(one))
    neobert = families.folder(tmp_path / "neobert", "neobert", "masked_lm")
    cards = [
        describe_run(folder, {"corpus": corpus}, line % (4, 9.75), repository="me/own"),
        describe_run(folder, evals, line % (5, "null") + line % (5, 4.25)),
        describe_run(folder, changes | {"init_from": f"{tmp_path}/runs/base"}),
        *(describe_run(folder, changes | {"init_from": source}) for source in (name, f"hf:{name}")),
        write_card(runs.open_run(str(families.vocabulary(neobert, "neobert")))),
    ]
    check_frozen("\n".join(cards).splitlines(), "cards")

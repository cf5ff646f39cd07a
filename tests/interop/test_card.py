"""The model card: what it says of a run, of a fine-tuned model and of a model from elsewhere."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import huggingface_hub

from bert_jax.config import resolve, to_dict
from bert_jax.interop import card, export, runs
from tests import variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"
ENVIRONMENT = {
    "machine": {"devices": ["CpuDevice(id=0)"]},
    "versions": {"bert-jax": "0.1.0", "jax": "0.10.2"},
    "corpus": "f" * 16,
    "tokenizer": "t" * 16,
    "git_commit": "c0ffee",
}


def card_of_run(tmp_path: Path, changes: dict, lines: str = "", **settings: str) -> str:
    """The card of a run with some knobs, at step 5 of 9."""
    run = runs.open_run(str(MODEL))
    (tmp_path / "metrics.jsonl").write_text(lines)
    config = resolve({"steps": 9, "batch_size": 4, **changes})
    meta = {"config": to_dict(config)}
    run = dataclasses.replace(run, folder=tmp_path, config=config, step=5, meta=meta)
    return write_card(run, **settings)


def write_card(run: runs.TrainedModel, **settings: str) -> str:
    family = export.find_family(run.config, run.tokenizer.special)
    return card.write_card(run, family, 7, *export.find_class(run.config, family), **settings)


def section(text: str, name: str) -> str:
    (found,) = re.findall(rf"\n## {name}\n\n(.*?)\n(?=\n## |$)", text, re.DOTALL)
    return found


def test_card_of_a_pretrained_model(tmp_path):
    corpus = {"source": "hub", "path": "owner/wiki:en, other/books", "revision": "v1,v2"}
    line = '{"step": 5, "eval/validation/mlm_loss": 4.25, "eval/validation/examples": 1200}\n'
    text = card_of_run(tmp_path, {"corpus": corpus}, line, repository="me/own")
    head, body = text.split("---\n", 2)[1:]
    assert head.splitlines() == [
        *("datasets:", "- other/books", "- owner/wiki"),
        *("library_name: transformers", "license: unknown", "pipeline_tag: fill-mask"),
        *("tags:", "- bert", "- jax", "- sentence-transformers"),
    ]
    assert body.startswith("\n# own\n\nBERT with 12 layers")
    assert "Pre-trained with bert_jax, from random parameters; step 5 of 9." in body
    assert "from transformers import AutoTokenizer, BertForPreTraining\n" in body
    assert 'BertForPreTraining.from_pretrained("me/own")' in body
    assert section(text, "Data") == (
        "Text of `hub: owner/wiki`, `hub: other/books` at v1,v2 "
        "by 9 updates of 4 rows of at most 128 tokens."
    )
    limits = section(text, "Limits")
    assert "No objective trained its vectors of sentences" in limits
    for said in ("at most 128 tokens", "step 5 of 9", "one seed", "fills masks", "prejudices"):
        assert said in limits
    assert "has not stated one" in section(text, "Licence")
    measured = section(text, "Held-out evaluation")
    assert "after update 5: every example of the 2 % of documents that are held out" in measured
    assert "masks on 15% of the tokens, always the same (unit token, seed 0)" in measured
    assert "| validation/mlm_loss | 4.25 |\n| validation/examples | 1,200 |" in measured


def test_card_of_a_finetuned_model(tmp_path, monkeypatch):
    """Of a run, of a model of the hub, and where nothing was measured."""
    changes = {
        "task": {"source": f"files:{tmp_path}/x/train.tsv", "name": "complaints"},
        "objectives": {"classify": {"labels": ("late", "rude")}},
        "checkpoints": {"best": ""},
        "init_from": f"{tmp_path}/runs/base",
    }
    text = card_of_run(tmp_path, changes, licence="mit")
    assert str(tmp_path) not in text
    assert '| `init_from` | `"base"` |' in text
    assert "\nlicense: mit\n" in text
    assert "base_model" not in text
    assert "\npipeline_tag: text-classification\n" in text
    assert "Fine-tuned with bert_jax, starting from `base`" in text
    assert 'BertForSequenceClassification.from_pretrained("THIS_FOLDER")' in text
    assert section(text, "Data") == "Labelled data: `files: complaints train.tsv`."
    assert "one of late, rude" in section(text, "Limits")
    assert section(text, "Licence").startswith("`mit`, as its author says.")
    assert section(text, "Held-out evaluation") == "None is on record for this step."
    cached = {"google-bert/bert-base-uncased": "/cache/config.json"}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda name, _: cached.get(name))
    for source, base in (
        ("google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
        ("hf:google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
        ("runs/gone", ""),
    ):
        line = '{"step": 5, "eval/validation/accuracy": 0.5}\n'
        text = card_of_run(tmp_path, changes | {"init_from": source}, line)
        assert (f"\nbase_model: {base}\n" in text) == bool(base)
        assert f"starting from `{base or 'gone'}`" in text
        assert "every row of the split `validation` of the data above, once" in text


def test_card_of_a_foreign_model_says_whose_it_is():
    run = runs.open_run(str(MODEL))
    text = write_card(run)
    assert "the card of `pretraining` says on what" in section(text, "Data")
    assert "## Config" not in text
    assert "one seed" not in text


def test_card_of_a_run_says_how_it_was_trained(tmp_path):
    (tmp_path / "environment.json").write_text(json.dumps(ENVIRONMENT))
    text = card_of_run(tmp_path, {"corpus": {"source": "files", "path": "/home/me/text"}})
    assert section(text, "Run") == (
        f"bert-jax 0.1.0, commit c0ffee; data fingerprint `{'f' * 16}`, tokenizer `{'t' * 16}`; "
        "on CpuDevice(id=0)."
    )
    knobs = section(text, "Config")
    assert '| `corpus.path` | `"text"` |' in knobs
    assert "`masking.rate`" not in knobs  # only what differs from the defaults
    assert "/home" not in text

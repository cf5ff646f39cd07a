"""The model card: what it says of a run, of a fine-tuned model and of a model from elsewhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import huggingface_hub

from bert_jax.config import resolve, to_dict
from bert_jax.interop import card, export, runs
from tests import variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"


def write_card(run: runs.TrainedModel, **settings: str) -> str:
    family = export.find_family(run.config, run.tokenizer.special)
    return card.write_card(run, family, 7, *export.find_class(run.config, family), **settings)


def describe_run(tmp_path: Path, changes: dict, lines: str = "", **settings: str) -> str:
    """Write the card of a run with some knobs, at step 5 of 9."""
    (tmp_path / "metrics.jsonl").write_text(lines)
    config = resolve({"steps": 9, "batch_size": 4, **changes})
    run = runs.open_run(str(MODEL))
    meta = {"config": to_dict(config)}
    run = dataclasses.replace(run, folder=tmp_path, config=config, step=5, meta=meta)
    return write_card(run, **settings)


def test_card_of_a_pretrained_model_has_its_facts(tmp_path):
    corpus = {"source": "hub", "path": "owner/wiki:en, other/books", "revision": "v1,v2"}
    scores = '"eval/validation/mlm_loss": 4.25, "eval/validation/examples": 1200'
    line = f'{{"step": 5, {scores}, "eval/validation/undefined": null}}\n'
    earlier = '{"step": 4, "eval/validation/nsp_loss": 9.75}\n'
    text = describe_run(tmp_path, {"corpus": corpus}, earlier + line, repository="me/own")
    head, body = text.split("---\n", 2)[1:]
    assert head.splitlines() == [
        *("datasets:", "- other/books", "- owner/wiki"),
        *("library_name: transformers", "license: unknown", "pipeline_tag: fill-mask"),
        *("tags:", "- bert", "- jax", "- sentence-transformers"),
    ]
    assert "9.75" not in body
    assert body.startswith("\n# own\n\nBERT with 12 layers")
    for said in (
        "Pre-trained with bert_jax, from random parameters; step 5 of 9.",
        'BertForPreTraining.from_pretrained("me/own")',
        "Text of `hub: owner/wiki`, `hub: other/books` at v1,v2 by 9 updates of 4 rows",
        "A text has at most 128 tokens",
        "stated none",
        "masked at 15%",
        "\n## Config\n",
        "| validation/mlm_loss | 4.25 |\n| validation/examples | 1,200 |",
    ):
        assert said in body


def test_card_names_no_folder_of_this_machine(tmp_path, monkeypatch):
    changes = {
        "task": {"source": f"files:{tmp_path}/x/train.tsv", "name": "complaints"},
        "objectives": {"classify": {"labels": ("late", "rude")}},
        "checkpoints": {"best": ""},
        "init_from": f"{tmp_path}/runs/base",
    }
    text = describe_run(tmp_path, changes, licence="mit")
    assert str(tmp_path) not in text
    for said in (
        '| `init_from` | `"base"` |',
        "\nlicense: mit\n",
        "Fine-tuned with bert_jax, starting from `base`",
        "Labelled data: `files: complaints train.tsv`.",
        "one of late, rude",
        card.NONE,
    ):
        assert said in text
    name = "google-bert/bert-base-uncased"
    cached = {name: "/cache/config.json"}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda one, _: cached.get(one))
    for source in (name, f"hf:{name}"):
        text = describe_run(tmp_path, changes | {"init_from": source})
        assert f"\nbase_model: {name}\n" in text


def test_card_of_a_foreign_model_says_whose_it_is():
    text = write_card(runs.open_run(str(MODEL)))
    assert "The card of `pretraining` says." in text
    assert "## Config" not in text

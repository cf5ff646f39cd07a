"""The model card of models that no transcript exports."""

import dataclasses
from pathlib import Path

import huggingface_hub

from bert_jax.config import resolve, to_dict
from bert_jax.interop import card, export, runs
from tests import families, variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"


def describe_run(tmp_path: Path, changes: dict, lines: str = "", **settings: str) -> str:
    """Write the card of a run with some knobs, at step 5 of 9."""
    (tmp_path / "metrics.jsonl").write_text(lines)
    config = resolve({"steps": 9, "batch_size": 4, **changes})
    run = runs.open_run(str(MODEL))
    meta = {"config": to_dict(config)}
    run = dataclasses.replace(run, folder=tmp_path, config=config, step=5, meta=meta)
    family = export.find_family(run.config, run.tokenizer.special)
    return card.write_card(run, family, 7, *export.find_class(run.config, family), **settings)


def test_card_names_data_of_the_hub(tmp_path):
    corpus = {"source": "hub", "path": "owner/wiki:en, other/books", "revision": "v1,v2"}
    line = '{"step": %d, "eval/validation/nsp_loss": %s}\n'
    text = describe_run(tmp_path, {"corpus": corpus}, line % (4, 9.75), repository="me/own")
    assert "\ndatasets:\n- other/books\n- owner/wiki\n" in text.partition("---\n\n")[0]
    for said in (
        'BertForPreTraining.from_pretrained("me/own")',
        "Text of `hub: owner/wiki`, `hub: other/books` at v1,v2 by 5 updates of 4 rows",
        card.NONE,  # 9.75 is of another step
    ):
        assert said in text
    evals = {"evals": {"validation": {"rate": 0.125}}}
    text = describe_run(tmp_path, evals, line % (5, "null") + line % (5, 4.25))
    assert "masked at 12.5 %." in text
    assert "| validation/nsp_loss | 4.25 |" in text


def test_card_names_no_folder_of_this_machine(tmp_path, monkeypatch):
    changes = {
        "task": {"source": f"files:{tmp_path}/x/train.tsv", "name": "complaints"},
        "objectives": {"classify": {"labels": ("late", "*rude*<b>")}},
        "checkpoints": {"best": ""},
        "init_from": f"{tmp_path}/runs/base",
    }
    text = describe_run(tmp_path, changes)
    assert str(tmp_path) not in text
    for said in (
        '| `init_from` | `"base"` |',
        "Fine-tuned with bert_jax, starting from `base`",
        "Labelled data: `files: complaints train.tsv`.",
        r"one of late, \*rude\*&lt;b&gt;",
    ):
        assert said in text
    name = "google-bert/bert-base-uncased"
    cached = {name: "/cache/config.json"}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda one, _: cached.get(one))
    for source in (name, f"hf:{name}"):
        text = describe_run(tmp_path, changes | {"init_from": source})
        assert f"\nbase_model: {name}\n" in text


def test_card_loads_neobert_by_its_own_code(tmp_path):
    folder = families.folder(tmp_path, "neobert", "masked_lm")
    run = runs.open_run(str(families.vocabulary(folder, "neobert")))
    family = export.find_family(run.config, run.tokenizer.special)
    text = card.write_card(run, family, 7, *export.find_class(run.config, family))
    code = 'AutoModelForMaskedLM.from_pretrained("THIS_FOLDER", trust_remote_code=True)'
    for said in ("import AutoTokenizer, AutoModelForMaskedLM\n", f"\nmodel = {code}\n"):
        assert said in text

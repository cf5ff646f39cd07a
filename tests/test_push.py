"""`export --push` against a server on this machine that speaks the hub's protocol, and the card."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _http, close_session

from bert_jax import cli
from bert_jax.config import resolve, to_dict
from bert_jax.interop import card, export, runs
from tests import variants
from tests.hubs import OWNER, TOKEN, Hub, serving

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of its client
MODEL = variants.GOLDEN / "huggingface" / "pretraining"
REPOSITORY = f"{OWNER}/small"


@pytest.fixture
def hub(monkeypatch, tmp_path) -> Iterator[Hub]:
    made = Hub({}, {})
    with serving(made) as endpoint:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield made
    close_session()


@pytest.fixture
def push(tmp_path, capsys) -> Callable[..., tuple[int, str, str]]:
    """A function that exports and pushes; returns exit code, standard output and errors."""

    def run(*words: str, to: str = REPOSITORY) -> tuple[int, str, str]:
        where = [f"--model={MODEL}", f"--output={tmp_path / 'out'}"]
        code = cli.execute(["export", *where, f"--push={to}", *words])
        return code, *capsys.readouterr()

    return run


def test_the_folder_is_pushed_byte_for_byte(hub, push, tmp_path):
    code, out, err = push("--license=apache-2.0")
    assert code == 0, err
    address = json.loads(out)["pushed"]
    assert address.endswith(REPOSITORY)
    folder = tmp_path / "out"
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert hub.models == {REPOSITORY: files}
    assert hub.private == {REPOSITORY: True}
    text = (folder / "README.md").read_text()
    assert "\nlicense: apache-2.0\n" in text
    assert f'BertForPreTraining.from_pretrained("{REPOSITORY}")' in text


def test_a_repository_is_public_if_that_is_asked_for_and_stays_what_it_is(hub, push, tmp_path):
    assert push("--public")[0] == 0
    assert hub.private == {REPOSITORY: False}
    (tmp_path / "out").rename(tmp_path / "first")
    assert push()[0] == 0
    assert hub.private == {REPOSITORY: False}


@pytest.mark.parametrize(
    ("token", "settings", "problem", "advice"),
    [
        ("", {}, "no token of the hub is known", "`hf auth login`, or HF_TOKEN"),
        ("hf_other", {}, "the hub does not know the token", "`hf auth login` with another one"),
        (TOKEN, {"to": "others/small"}, "or there is no others", "of a member of others"),
        (TOKEN, {"broken": "preupload"}, "the hub refuses it: ", "mend what it names"),
        (TOKEN, {"broken": "sha256"}, "the hub refuses it: ", "mend what it names"),
        (TOKEN, {"words": ("--license=wrong",)}, '"license" must be one of', "mend what it names"),
        (TOKEN, {"endpoint": "http://127.0.0.1:9"}, "no answer from the hub", "there is a network"),
    ],
)
def test_what_keeps_it_from_the_hub_is_one_line_and_the_folder_stays(
    hub, push, tmp_path, monkeypatch, token, settings, problem, advice
):
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", token)
    hub.broken, to = settings.get("broken", ""), settings.get("to", REPOSITORY)
    if endpoint := settings.get("endpoint"):
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    code, out, err = push(*settings.get("words", ()), to=to)
    assert (code, out) == (2, "")
    error, hint = (line for line in err.splitlines() if line.startswith(("error:", "hint:")))
    assert f"error: {tmp_path / 'out'} is exported, but not pushed to {to}: " in error
    assert problem in error
    assert advice in hint
    assert hint.endswith(f"`hf upload {to} {tmp_path / 'out'} --private`")
    assert runs.open_run(str(tmp_path / "out")).config.model.layers == 2


def test_the_command_that_uploads_later_takes_any_folder(hub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "")
    where = [f"--model={MODEL}", f"--output={tmp_path / 'my model'}"]
    assert cli.execute(["export", *where, f"--push={REPOSITORY}"]) == 2
    assert f"`hf upload {REPOSITORY} '{tmp_path}/my model' --private`" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["small", "a/b/c", "so meone/small", "some--one/small", "a/b.git"])
def test_a_name_that_the_hub_cannot_have_is_refused_first(hub, push, tmp_path, name):
    code, _, err = push(to=name)
    assert code == 2
    assert err.startswith(f"error: --push={name}")
    assert "ORG/NAME" in err.splitlines()[1]
    assert not (tmp_path / "out").exists()
    assert hub.requests == []


def test_flags_without_a_push_or_a_licence_are_refused(tmp_path, capsys):
    where = ["export", f"--model={MODEL}", f"--output={tmp_path / 'out'}"]
    assert cli.execute([*where, "--public"]) == 2
    assert "--public is for --push" in capsys.readouterr().err
    assert cli.execute([*where, "--license=my own\nlicense"]) == 2
    assert "no name of a licence" in capsys.readouterr().err


# --- the card -------------------------------------------------------------------------------------


def written(tmp_path: Path, changes: dict, lines: str = "", **settings: str) -> str:
    """The card of a run with some knobs, at step 5 of 9."""
    run = runs.open_run(str(MODEL))
    (tmp_path / "metrics.jsonl").write_text(lines)
    config = resolve({"steps": 9, "batch_size": 4, **changes})
    meta = {"config": to_dict(config)}
    run = dataclasses.replace(run, folder=tmp_path, config=config, step=5, meta=meta)
    return said_of(run, **settings)


def said_of(run: runs.TrainedModel, **settings: str) -> str:
    family = export.family_of(run.config, run.tokenizer.special)
    return card.text(run, family, 7, *export.kind(run.config, family), **settings)


def section(text: str, name: str) -> str:
    (found,) = re.findall(rf"\n## {name}\n\n(.*?)\n(?=\n## |$)", text, re.DOTALL)
    return found


def test_the_card_of_a_pretrained_model(tmp_path):
    corpus = {"source": "hub", "path": "owner/wiki:en, other/books", "revision": "v1,v2"}
    line = '{"step": 5, "eval/validation/mlm_loss": 4.25, "eval/validation/examples": 1200}\n'
    text = written(tmp_path, {"corpus": corpus}, line, repository="me/own")
    head, body = text.split("---\n", 2)[1:]
    assert head.splitlines() == [
        *("library_name: transformers", "pipeline_tag: fill-mask", "license: unknown"),
        *("datasets:", "- other/books", "- owner/wiki"),
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


def test_the_card_of_a_finetuned_model(tmp_path, monkeypatch):
    """Of a run, of a model of the hub, and where nothing was measured."""
    changes = {
        "task": {"source": f"files:{tmp_path}/x/train.tsv", "name": "complaints"},
        "objectives": {"classify": {"labels": ("late", "rude")}},
        "checkpoints": {"best": ""},
        "init_from": f"{tmp_path}/runs/base",
    }
    text = written(tmp_path, changes, licence="mit")
    assert str(tmp_path) not in text
    assert '| `init_from` | `"base"` |' in text
    assert "\nlicense: mit\n" in text
    assert "base_model" not in text
    assert "\npipeline_tag: text-classification\n" in text
    assert "Fine-tuned with bert_jax, starting from `base`" in text
    assert 'BertForSequenceClassification.from_pretrained("THIS_FOLDER")' in text
    assert section(text, "Data") == (
        "Labelled data: `files: complaints train.tsv`. What it knew before came with `base`."
    )
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
        text = written(tmp_path, changes | {"init_from": source}, line)
        assert (f"\nbase_model: {base}\n" in text) == bool(base)
        assert f"starting from `{base or 'gone'}`" in text
        assert "every row of the split `validation` of the data above, once" in text


def test_the_card_of_a_model_from_elsewhere_says_whose_it_is():
    run = runs.open_run(str(MODEL))
    text = said_of(run)
    assert "the card of `pretraining` says on what" in section(text, "Data")
    assert "## Config" not in text
    assert "one seed" not in text

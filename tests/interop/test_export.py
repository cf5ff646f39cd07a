"""Which family a model is exported as, what is refused, and what a run's exported folder holds."""

from __future__ import annotations

import dataclasses
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file

from bert_jax import cli, train
from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import export, families, huggingface, runs
from tests import texts, toy, variants
from tests.families import EXPRESSED, MLM
from tests.texts import configure

# --- which family expresses a model ---------------------------------------------------------------

POOLED = {"pairs": "nsp"}
INEXPRESSIBLE = {
    "model.position = rotary": {"model__position": "rotary"},
    "model.position = relative": MLM | {"model__position": "relative"},
    "model.norm = pre": {"model__norm": "pre"},
    "model.gated = True": {"model__gated": "true"},
    "model.window = 64": {"model__window": "64"},
    "model.first_position = 2": EXPRESSED["roberta"] | {"model__first_position": 2},
    "model.head_activation = relu": EXPRESSED["roberta"] | {"model__head_activation": "relu"},
    "model.causal = True": EXPRESSED["modernbert"] | {"model__causal": "true"},
    "model.causal = True, of a text": {"model__causal": "true"},
    "model.global_every = 0": EXPRESSED["modernbert"] | {"model__global_every": 0},
    "model.first_norm = True": EXPRESSED["modernbert"] | {"model__first_norm": "true"},
    "model.inner_norm = True": MLM | {"model__inner_norm": "true"},
    "model.norm_parameters = False": MLM | {"model__norm_parameters": "false"},
    "model.mlp_biases = False": MLM | {"model__mlp_biases": "false"},
    "model.attention_gate = True": MLM | {"model__attention_gate": "true"},
    "model.layer_weights = True": EXPRESSED["modernbert"] | {"model__layer_weights": "true"},
    "model.biases = False": MLM | {"model__biases": "false"},
    "model.pooling = mean": POOLED | {"model__pooling": "mean"},
    "model.pooler = relu": POOLED | {"model__pooler": "relu"},
    "model.pooler_bias = False": POOLED | {"model__pooler_bias": "false"},
    "model.embedding = 24": EXPRESSED["distilbert"] | {"model__embedding": 24},
    "model.embedding_norm = False": MLM | {"model__embedding_norm": "false"},
    "model.norm_kind = rms": MLM | {"model__norm_kind": "rms"},
    "model.word_head = matrix": MLM | {"model__word_head": "matrix"},
    "model.word_head = transform": EXPRESSED["neobert"] | {"model__word_head": "transform"},
    "model.rotary_base = 500": EXPRESSED["neobert"] | {"model__rotary_base": 500},
    "model.mlp = 44": EXPRESSED["neobert"] | {"model__mlp": 44},
    "objectives.sop = no head": {"pairs": "sop", "checkpoints__best": "mlm_loss"},
}


@pytest.mark.parametrize("name", EXPRESSED)
def test_find_family_a_model_is_the_first_that_fits(name):
    config = toy.config(**EXPRESSED[name])
    assert export.find_family(config, toy.SPECIAL).model_type == name
    free = [
        family.model_type
        for family in families.FAMILIES
        if not export.list_differences(config, toy.SPECIAL, family)
    ]
    assert free == [name, *(["electra"] if name == "bert" else [])]  # the others say why not


@pytest.mark.parametrize("said", INEXPRESSIBLE)
def test_find_family_refuses_by_the_knobs_that_differ(said):
    with pytest.raises(ConfigError, match=f"cannot express .*{said}"):
        export.find_family(toy.config(**INEXPRESSIBLE[said]), toy.SPECIAL)


def test_find_family_passes_over_knobs_that_do_nothing():
    idle = {"model__pooler": "relu", "model__pooling": "mean", "model__rotary_base": 500}
    assert export.find_family(toy.config(**MLM | idle), toy.SPECIAL).model_type == "bert"
    trained = {"model__dropout": 0.2, "model__vocab_multiple": 8, "model__init_stddev": 0.1}
    assert export.find_family(toy.config(**trained), toy.SPECIAL).model_type == "bert"


def test_find_family_refuses_heads_with_one_name():
    config = toy.config(**EXPRESSED["modernbert"], model__pooler="transform")
    both = {name: knobs.Objective(1.0) for name in ("mlm", "span")}
    with pytest.raises(ConfigError, match="mlm and span, which share one name there"):
        export.find_family(dataclasses.replace(config, objectives=both), toy.SPECIAL)


def test_write_folder_refuses_before_it_writes(tmp_path):
    vocab = [*tokenizers.SPECIALS, *(f"w{i}" for i in range(toy.VOCAB - 5))]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocab))
    tokenizer = tokenizers.load(tmp_path / "vocab.txt")
    config = toy.config(model__position="rotary")
    run = runs.TrainedModel(tmp_path, config, tokenizer, tmp_path, {}, 1, {})
    with pytest.raises(ConfigError, match=r"cannot express model\.position"):
        export.write_folder(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name", ["pretraining", "causal_lm", "token_classification", "regression", "question_answering"]
)
def test_golden_bert_goes_out_as_it_came_in(name, tmp_path):
    source = variants.folder(tmp_path / "m", name)
    run = runs.open_run(str(source))
    (tmp_path / "out").mkdir()
    export.write_folder(run, tmp_path / "out")
    given, written = variants.golden(name), load_file(tmp_path / "out" / "model.safetensors")
    assert given.keys() == written.keys()
    for key, value in given.items():
        np.testing.assert_array_equal(written[key], value, err_msg=key)
    before, after = (
        json.loads((folder / "config.json").read_text()) for folder in (source, tmp_path / "out")
    )
    for key in before.keys() & after.keys() - {
        *("classifier_dropout", "problem_type", "initializer_range")
    }:
        assert after[key] == before[key], key
    assert huggingface.read_model(tmp_path / "out").config.model == run.config.model


# --- the folder of a run --------------------------------------------------------------------------


def call(capsys, *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.execute([str(word) for word in words])
    return code, *capsys.readouterr()


def parameters(path: Path) -> dict[str, np.ndarray]:
    params = flatten_dict(runs.open_run(str(path)).params, sep="/")
    return {name: np.asarray(value) for name, value in params.items()}


def equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("trained") / "run"
    config = configure(base, steps=10, checkpoints__every=10, evals__validation__every=10)
    with texts.one_device():
        train.run(config, workdir, command=["bert-jax"])
    return workdir


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    assert cli.execute(["export", f"--checkpoint={trained}", f"--output={folder}"]) == 0
    return folder


def test_export_import_export_gives_the_same_bytes(trained, exported, tmp_path, capsys):
    assert call(capsys, "import", f"--model={exported}", f"--output={tmp_path / 'run'}")[0] == 0
    equal(parameters(tmp_path / "run"), parameters(trained))  # the padding of the table too
    words = ["export", f"--model={tmp_path / 'run'}", f"--output={tmp_path / 'again'}"]
    assert call(capsys, *words)[0] == 0
    for name in (
        *("model.safetensors", "config.json", "tokenizer.json", "vocab.txt"),
        "tokenizer_config.json",
    ):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes(), name
    again = runs.open_run(str(tmp_path / "run"))
    assert again.tokenizer.hash == runs.open_run(str(trained)).tokenizer.hash


def test_exported_folder_is_complete(exported):
    found = {str(p.relative_to(exported)) for p in exported.rglob("*") if p.is_file()}
    assert found == {
        *("config.json", "model.safetensors", "README.md", "vocab.txt", "tokenizer.json"),
        *("tokenizer_config.json", "special_tokens_map.json", "modules.json"),
        *("sentence_bert_config.json", "1_Pooling/config.json"),
    }


@pytest.mark.fault(7)
def test_exported_folder_notices_a_swapped_vocabulary(exported, tmp_path, capsys):
    folder = Path(shutil.copytree(exported, tmp_path / "m"))
    (folder / "tokenizer.json").unlink()
    runs.open_run(str(folder))  # vocab.txt and tokenizer_config.json say the same
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    code, _, err = call(capsys, "predict", "nsp", f"--model={folder}")
    assert (code, "not the tokenizer" in err) == (2, True)


def test_export_writes_over_nothing(exported, trained, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in (exported, *(tmp_path / name for name in ("file", "file/below", "link"))):
        code, out, err = call(capsys, "export", f"--model={trained}", f"--output={place}")
        assert (code, out, err.startswith("error: ")) == (2, "", True)
    assert {p.name for p in tmp_path.iterdir()} == {"file", "link"}


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may have more than 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_export_to_a_full_disk_leaves_nothing(exported, tmp_path, small_files):
    run = runs.open_run(str(exported))
    with (
        pytest.raises(CheckpointError, match=r"cannot write .*out"),
        export.fresh_folder(tmp_path / "out") as folder,
    ):
        export.write_folder(run, folder)
    assert list(tmp_path.iterdir()) == []

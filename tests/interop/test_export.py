"""Which family a model is exported as, what is refused, and what a run's exported folder holds."""

from __future__ import annotations

import dataclasses
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import export, families, runs
from tests import toy
from tests.families import EXPRESSED, MLM
from tests.parity import GOLDEN, check_same, read_parameters

RUN = GOLDEN / "run_v1" / "run"
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
    "model.mlp_biases = False": MLM | {"model__mlp_biases": "false"},
    "model.attention_gate = True": MLM | {"model__attention_gate": "true"},
    "model.layer_weights = True": EXPRESSED["modernbert"] | {"model__layer_weights": "true"},
    "model.biases = False": MLM | {"model__biases": "false"},
    "model.pooling = mean": {"pairs": "nsp", "model__pooling": "mean"},
    "model.pooler_bias = False": {"pairs": "nsp", "model__pooler_bias": "false"},
    "model.embedding = 24": EXPRESSED["distilbert"] | {"model__embedding": 24},
    "model.norm_kind = rms": MLM | {"model__norm_kind": "rms"},
    "model.word_head = matrix": MLM | {"model__word_head": "matrix"},
    "model.rotary_base = 500": EXPRESSED["neobert"] | {"model__rotary_base": 500},
    "model.mlp = 44": EXPRESSED["neobert"] | {"model__mlp": 44},
    "objectives.sop = no head": {"pairs": "sop", "checkpoints__best": "mlm_loss"},
}


@pytest.mark.parametrize("name", EXPRESSED)
def test_find_family_takes_the_first_that_fits(name):
    config = toy.config(**EXPRESSED[name])
    assert export.find_family(config, toy.SPECIAL).model_type == name
    fitting = [
        family.model_type
        for family in families.FAMILIES
        if not export.list_differences(config, toy.SPECIAL, family)
    ]
    assert fitting == [name, *(["electra"] if name == "bert" else [])]


@pytest.mark.parametrize("said", INEXPRESSIBLE)
def test_find_family_refuses_by_the_knobs_that_differ(said):
    with pytest.raises(ConfigError, match=f"cannot express .*{said}"):
        export.find_family(toy.config(**INEXPRESSIBLE[said]), toy.SPECIAL)


def test_find_family_passes_over_knobs_that_do_nothing():
    idle = {"model__pooler": "relu", "model__pooling": "mean", "model__rotary_base": 500}
    assert export.find_family(toy.config(**MLM | idle), toy.SPECIAL).model_type == "bert"
    trained = {"model__dropout": 0.2, "model__vocab_multiple": 8, "model__init_stddev": 0.1}
    assert export.find_family(toy.config(**trained), toy.SPECIAL).model_type == "bert"
    seldom = EXPRESSED["modernbert"] | {"model__global_every": 9}  # of fewer layers
    assert export.find_family(toy.config(**seldom), toy.SPECIAL).model_type == "modernbert"


def test_find_family_refuses_heads_with_one_name():
    config = toy.config(**EXPRESSED["modernbert"], model__pooler="transform")
    both = {name: knobs.Objective(1.0) for name in ("mlm", "span")}
    with pytest.raises(ConfigError, match="mlm and span, which share one name there"):
        export.find_family(dataclasses.replace(config, objectives=both), toy.SPECIAL)


# --- the folder of a run --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    assert cli.execute(["export", f"--checkpoint={RUN}", f"--output={folder}"]) == 0
    return folder


def test_export_import_export_gives_the_same_bytes(exported, tmp_path):
    """The padding of the table too."""
    run, again = tmp_path / "run", tmp_path / "again"
    assert cli.execute(["import", f"--model={exported}", f"--output={run}"]) == 0
    check_same(read_parameters(run), read_parameters(RUN))
    assert runs.open_run(str(run)).tokenizer.hash == runs.open_run(str(RUN)).tokenizer.hash
    assert cli.execute(["export", f"--model={run}", f"--output={again}"]) == 0
    found = {str(file.relative_to(exported)) for file in exported.rglob("*") if file.is_file()}
    same = {
        *("config.json", "model.safetensors", "vocab.txt", "tokenizer.json"),
        *("tokenizer_config.json", "special_tokens_map.json", "modules.json"),
        *("sentence_bert_config.json", "1_Pooling/config.json"),
    }
    assert found == same | {"README.md"}
    for name in same:
        assert (again / name).read_bytes() == (exported / name).read_bytes(), name


@pytest.mark.fault(7)
def test_swapped_vocabulary_is_noticed(exported, tmp_path):
    """In an exported folder and in a run."""
    for source, place in ((exported, "."), (RUN, "tokenizer")):
        folder = Path(shutil.copytree(source, tmp_path / source.name))
        (folder / place / "tokenizer.json").unlink()
        runs.open_run(str(folder))  # vocab.txt and tokenizer_config.json say the same
        file = folder / place / "vocab.txt"
        *lines, last, end = file.read_text().splitlines()
        file.write_text("".join(f"{line}\n" for line in [*lines, end, last]))
        with pytest.raises(ConfigError, match="not the tokenizer"):
            runs.open_run(str(folder))


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may have more than 4 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
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


def test_fresh_folder_follows_no_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a link"), export.fresh_folder(tmp_path / "link"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"link"}

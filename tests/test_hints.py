"""Hints that help: what a user most likely meant, in a form that can be copied."""

from __future__ import annotations

import re
import subprocess
import types

import pytest

from bert_jax import cli, config, predict
from bert_jax.config import load, resolve
from bert_jax.data import tfds
from bert_jax.errors import ConfigError, MissingError
from bert_jax.interop import runs
from bert_jax.predictors import stream as predictions
from bert_jax.predictors.base import Options
from tests import variants
from tests.test_config import KNOBS

GOLDEN = variants.GOLDEN / "huggingface" / "pretraining"


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    """A folder of texts is here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()


@pytest.mark.parametrize(
    ("there", "said", "hint"),
    [
        (False, "wiki is not prepared: there is no folder ", "where there is a network: python -c"),
        (
            True,
            "it is prepared as TFRecord, which TensorFlow alone reads",
            "file_format='array_record'",
        ),
    ],
)
def test_a_dataset_that_is_not_there_or_of_another_format(there, said, hint, tmp_path, monkeypatch):
    def refuse(split: str) -> None:
        text = (
            "Random access data source for file format FileFormat.TFRECORD is not supported. "
            "Possible root causes:\n"
        )
        raise NotImplementedError(text)

    place = tmp_path / ("texts" if there else "nowhere")
    made = types.SimpleNamespace(data_dir=str(place), as_data_source=refuse)
    monkeypatch.setattr(tfds, "builder", lambda name, data_dir: made)
    with pytest.raises(Exception, match=said) as caught:
        tfds.examples_of.__wrapped__("wiki", "", "train")
    assert hint in caught.value.hint
    assert isinstance(caught.value, MissingError) != there


# --- the config -----------------------------------------------------------------------------------

VALUES = [  # knobs with a value of every kind that configs take
    *((path, field.default) for path, field, _ in KNOBS),
    ("task.files", {}),
    ("masking.replace", (1.0, 0.0, 0.0)),
    ("masking.phases", ((0.5, 0.15, "step"), (0.8, 0.05, "linear"))),
    ("masking.phases", ((1.0, 0.3, "linear"),)),
    ("checkpoints.at", (8,)),
    ("task.columns", ("a", "b c")),
    ("corpus.path", "it's $HOME; <a> & (b)/*.txt"),
]


def through_bash(words: str) -> list[tuple[str, str]]:
    """Return the knobs of a command line as bash passes it on."""
    command = ["bash", "-c", f"printf '%s\\0' {words}"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    rest, knobs = cli.split_overrides(printed.split("\0")[:-1])
    assert rest == []
    return knobs


def test_flag_is_read_by_bash_as_the_value():
    knobs = through_bash(" ".join(load.flag(path, value) for path, value in VALUES))
    for (path, value), (found, text) in zip(VALUES, knobs, strict=True):
        assert (found, config.read(path, text)) == (path, value)


STEPS = {"masking.phases": ((0.5, 0.15, "step"),)}
DIFFUSION = {"objectives.diffusion.weight": 1.0, "masking.draw": "uniform", "pairs": "none"}
DIFFUSION |= {"objectives.nsp.weight": None, "checkpoints.best": "mlm_loss"}
REPLACED = {"objectives.replaced.weight": 50.0, "evals.validation.replace": (0.0, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (STEPS | {"masking.draw": "uniform"}, "--config.masking.phases="),
        ({"optim.weight_decay": 0.0, "optim.no_decay": "bias$"}, "--config.optim.weight_decay"),
        (DIFFUSION, "--config.masking.replace=1,0,0"),
        (REPLACED | {"masking.replace": (1.0, 0.0, 0.0)}, "--config.masking.replace=0,1,0"),
    ],
)
def test_hint_of_a_knob_works_when_pasted(settings, hint):
    """The first flag of the hint, pasted behind the others in bash, mends the config."""
    tree = config.default()
    config.assign(tree, settings)
    with pytest.raises(ConfigError) as caught:
        resolve(tree)
    assert hint in caught.value.hint
    found = re.search(r"'--config[^']*'|--config\S*", caught.value.hint)
    config.overrides(tree, through_bash(found[0].rstrip(",")))
    resolve(tree)


# --- predict --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden() -> runs.TrainedModel:
    return runs.open_run(str(GOLDEN))


@pytest.mark.parametrize(
    ("lines", "remark"),
    [
        (["the [MASK] sat"], None),
        (["the [MASK] sat", "a cat"], "1 text has no [MASK]: line 2 is answered with no tokens"),
        (
            ["a cat", "the <mask> sat", "a [mask]"],
            "3 texts have no [MASK]: line 2 has '<mask>', and is answered with",
        ),
        (["the [mask] sat"], "line 1 has '[mask]', and"),
        (["the ___ sat"], "line 1 has '___', and"),
        ([], "the input has no lines"),
    ],
)
def test_texts_without_a_mask_and_an_input_without_texts_are_said(lines, remark, golden, capsys):
    asking = predictions.Stream(predictions.Model(golden, Options()), "fill-mask")
    found = list(asking.answers(lines)) if lines else []
    assert [bool(one["masks"]) for one in found] == ["[MASK]" in line for line in lines]
    predict.summary(asking, 1.0)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(said) == (remark is not None)
    assert remark is None or remark in said[0]

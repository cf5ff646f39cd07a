"""Folders of others: taken in however they are stored, or refused in one line and exit code 4."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import huggingface_hub
import ml_dtypes
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from bert_jax import cli
from bert_jax.config import differences, to_dict
from bert_jax.errors import CheckpointError
from bert_jax.interop import huggingface, runs
from bert_jax.interop.families import bert
from tests import variants
from tests.parity import check_same, read_parameters

GOLDEN = variants.GOLDEN / "huggingface"
TABLE = "bert.embeddings.word_embeddings.weight"


def call(capsys, *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.execute([str(word) for word in words])
    return code, *capsys.readouterr()


def refused(capsys, code: int, *words: object) -> str:
    """The error line of a command that ends in one line, a hint and this exit code."""
    found, out, err = call(capsys, *words)
    lines = err.splitlines()
    assert (found, out) == (code, ""), err
    assert [line.split(": ")[0] for line in lines] == ["error", "hint"], err
    return lines[0]


@pytest.fixture(scope="module")
def plain() -> dict[str, np.ndarray]:
    return read_parameters(GOLDEN / "pretraining")


# --- in -------------------------------------------------------------------------------------------


def use_second_bias(tensors: variants.Tensors) -> variants.Tensors:
    found = dict(tensors)
    found["cls.predictions.decoder.bias"] = found.pop("cls.predictions.bias")
    return found


@pytest.mark.parametrize("change", [variants.old_names, variants.with_extras, use_second_bias])
def test_model_stored_otherwise_is_the_same(tmp_path, change, plain):
    tensors = change(variants.golden("pretraining"))
    check_same(read_parameters(variants.folder(tmp_path / "m", tensors=tensors)), plain)


def test_bare_encoder_and_file_alone_are_read(tmp_path, plain):
    bare = {
        name.removeprefix("bert."): value
        for name, value in variants.golden("pretraining").items()
        if name.startswith("bert.")
    }
    folder = variants.folder(tmp_path / "m", tensors=bare, architectures=["BertModel"])
    whole = {name: value for name, value in plain.items() if name.startswith("encoder/")}
    check_same(read_parameters(folder), whole)
    (folder / "vocab.txt").rename(tmp_path / "elsewhere.txt")
    file = folder / "model.safetensors"
    with pytest.raises(CheckpointError, match=r"no vocab\.txt or tokenizer\.json beside"):
        runs.open_run(str(file))
    check_same(read_parameters(file, tokenizer=str(tmp_path / "elsewhere.txt")), whole)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
def test_half_precision_is_widened_and_nothing_else(tmp_path, dtype):
    tensors = variants.golden("pretraining")
    narrow = {name: value.astype(dtype).astype(np.float32) for name, value in tensors.items()}
    given = variants.folder(tmp_path / "narrow", tensors=variants.cast(tensors, dtype))
    check_same(
        read_parameters(given), read_parameters(variants.folder(tmp_path / "wide", tensors=narrow))
    )


def test_missing_head_is_named_unless_allowed(tmp_path, capsys):
    kept = {k: v for k, v in variants.golden("pretraining").items() if not k.startswith("cls.seq")}
    folder = variants.folder(tmp_path / "m", tensors=kept)
    words = ["import", f"--model={folder}", f"--output={tmp_path / 'out'}"]
    error = refused(capsys, 4, *words)
    assert "cls.seq_relationship.weight" in error
    assert not (tmp_path / "out").exists()
    code, out, _ = call(capsys, *words, "--allow-missing")
    assert (code, json.loads(out)["heads"]) == (0, ["mlm"])


def test_foreign_tensors_are_named_unless_allowed(tmp_path, capsys, plain):
    spare = {"adapter.down.weight": np.ones((2, 2), np.float32)}
    spare |= {f"x{i}\n" * 50_000: np.zeros(1, np.float32) for i in range(3)}
    tensors = variants.golden("pretraining") | spare
    folder = variants.folder(tmp_path / "m", tensors=tensors)
    words = ["import", f"--model={folder}", f"--output={tmp_path / 'out'}"]
    error = refused(capsys, 4, *words)
    assert "adapter.down.weight, bert.x0" in error
    assert len(error) < 600
    assert call(capsys, *words, "--allow-unused")[0] == 0
    check_same(read_parameters(tmp_path / "out"), plain)


def test_rows_without_a_piece_are_cut_when_asked(tmp_path, capsys, plain):
    tensors = variants.golden("pretraining")
    for name in (TABLE, "cls.predictions.bias"):
        spare = np.ones((17, *tensors[name].shape[1:]), np.float32)
        tensors[name] = np.concatenate([tensors[name], spare])
    folder = variants.folder(tmp_path / "m", tensors=tensors, vocab_size=64)
    error = refused(capsys, 4, "predict", "fill-mask", f"--model={folder}")
    assert "47 pieces and the model's table 64 rows" in error
    words = ["import", f"--model={folder}", "--resize-vocab"]
    assert call(capsys, *words, f"--output={tmp_path / 'out'}")[0] == 0
    check_same(read_parameters(tmp_path / "out"), plain)


@pytest.mark.fault(27)
def test_hub_is_asked_for_the_files_that_are_read(monkeypatch, capsys, plain):
    asked = {}

    def download(name, allow_patterns):
        asked[name] = allow_patterns
        return str(GOLDEN / "pretraining")

    def fail(name, allow_patterns):
        raise LocalEntryNotFoundError("no route\nto the host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for name in ("org/model", "hf:model"):
        check_same(read_parameters(name), plain)
    assert set(asked) == {"org/model", "model"}
    assert not any("bin" in pattern or pattern.endswith(".py") for pattern in asked["model"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    error = refused(capsys, 4, "predict", "nsp", "--model=org/model")
    assert "the hub's org/model cannot be fetched: no route" in error


# --- hostile --------------------------------------------------------------------------------------


def change(name: str, convert: Callable[[np.ndarray], np.ndarray]) -> variants.Tensors:
    tensors = variants.golden("pretraining")
    return tensors | {name: convert(tensors[name])}


def without(part: str) -> variants.Tensors:
    return {k: v for k, v in variants.golden("pretraining").items() if part not in k}


SECOND_NORM = {"bert.embeddings.LayerNorm.gamma": np.ones(16, np.float32)}
TENSORS = {  # what the error says -> the tensors of the file
    "stored as int32": lambda: change(TABLE, lambda x: x.astype(np.int32)),
    "is [47, 8] and config.json says [47, 16]": lambda: change(TABLE, lambda x: x[:, :8].copy()),
    "NaN or infinite values": lambda: change(TABLE, lambda x: x * np.float32("nan")),
    "lacks bert.encoder.layer.1.output.dense.bias": lambda: without("layer.1.output.dense.bias"),
    "it states 2 layers, and the file has 1": lambda: without("layer.1."),
    "twice, under two names": lambda: variants.golden("pretraining") | SECOND_NORM,
}
STATED: dict[str, tuple[str, Any]] = {  # what the error says -> a line of config.json
    "is_decoder = 'false'": ("is_decoder", "false"),
    "mish": ("hidden_act", "mish"),
    "architectures = ['BertForEverything']": ("architectures", ["BertForEverything"]),
    "not divisible by model.heads": ("num_attention_heads", 3),
    "model.dropout": ("hidden_dropout_prob", -1),
}


@pytest.mark.fault(17, 19)
@pytest.mark.parametrize("said", [*TENSORS, *STATED])
def test_hostile_folder_is_one_line_and_code_4(said, tmp_path, capsys):
    """Transcripts hold files that are missing or cut, and code of a model's own."""
    key, value = STATED.get(said, ("model_type", "bert"))
    tensors = TENSORS[said]() if said in TENSORS else None
    folder = variants.folder(tmp_path / "m", tensors=tensors, **{key: value})
    error = refused(capsys, 4, "import", f"--model={folder}", f"--output={tmp_path / 'out'}")
    assert said in error
    assert len(error) < 600
    assert {p.name for p in tmp_path.iterdir()} == {"m"}  # no output


KEYS = ("model_type", "architectures", "num_labels", "id2label", "problem_type", "pad_token_id")
KEYS += ("bert_jax",)
NUMBERS = {key for key, _ in bert.KEYS.values()}  # and the name of an activation
# Of a key and a value: the knobs that follow. Any other value is refused, or changes none.
CHANGED = {
    ("attention_probs_dropout_prob", "None"): {"model.attention_dropout"},
    ("hidden_dropout_prob", "None"): {"model.dropout", "model.classifier_dropout"},
    ("hidden_size", "None"): {"model.hidden"},
    ("intermediate_size", "None"): {"model.mlp"},
    ("max_position_embeddings", "None"): {"model.max_positions", "sequence_length"},
    ("type_vocab_size", "0"): {"model.type_vocab"},
    **{("initializer_range", value): {"model.init_stddev"} for value in ("0", f"{10**20}")},
    **{("layer_norm_eps", value): {"model.norm_epsilon"} for value in ("0", f"{10**20}")},
    **{("id2label", value): {"objectives.classify.labels"} for value in ("None", "0", "''", "[]")},
    ("id2label", "{}"): {"objectives.classify.labels"},
}


@pytest.mark.fault(17)
@pytest.mark.parametrize(
    "key", [*json.loads((GOLDEN / "model" / "config.json").read_text()), *KEYS]
)
def test_any_value_is_read_or_refused(key, tmp_path, monkeypatch):
    """Sizes are compared with the tensors by the next test."""
    monkeypatch.setattr(huggingface, "_shape_parameters", lambda *_: {})  # 0.1 s a value
    folder = variants.folder(tmp_path, "sequence_classification")
    plain = huggingface.read_model(folder, allow_unused=True)
    given = json.loads((folder / "config.json").read_text())
    for value in (None, -1, 0, 10**20, math.inf, True, "", "x", [], [[]], {}, {"a": 1}):
        if found := variants.read_changed(folder, given | {key: value}):
            assert key not in NUMBERS or type(value) in (int, type(None)), value
            changed = differences(to_dict(plain.config), to_dict(found.config))
            assert {*changed} == CHANGED.get((key, repr(value)), set()), value
            assert found.vocab_size == plain.vocab_size


ABSURD = [  # golden model, a line of config.json, what the error says
    ("pretraining", {"vocab_size": 2**30 - 1}, "vocab_size = 1073741823"),
    ("pretraining", {"hidden_size": 2**29}, "model.hidden"),
    ("pretraining", {"hidden_size": 2**16}, "config.json says [65536]"),
    ("pretraining", {"max_position_embeddings": 2**15}, "config.json says [32768, 16]"),
    ("pretraining", {"type_vocab_size": 2**16}, "config.json says [65536, 16]"),
    ("pretraining", {"intermediate_size": 2**20}, "config.json says [16, 1048576]"),
    ("pretraining", {"num_hidden_layers": 2**29}, "536870912 layers, and the file has 2"),
    ("pretraining", {"num_attention_heads": 2**29}, "model.heads"),
    ("sequence_classification", {"num_labels": 2**29, "id2label": None}, "536870912 classes"),
]
# In a process of its own, with 256 MiB more than it has once everything is imported and the devices
# are started (their threads reserve memory by the number of processors).
LIMITED = """
import json, resource, sys
import jax
from bert_jax.interop import runs
from bert_jax.errors import UserError
jax.block_until_ready(jax.numpy.zeros(8) + 1)
sizes = [line for line in open("/proc/self/status") if line.startswith("VmSize")]
used = int(sizes[0].split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
found = []
for folder in sys.argv[1:]:
    try:
        runs.open_run(folder)
    except UserError as error:
        found.append((error.code, str(error)))
print(json.dumps(found))
"""


@pytest.mark.fault(17)
def test_absurd_sizes_are_refused_in_little_memory(tmp_path):
    folders = [
        str(variants.folder(tmp_path / str(number), golden, **lines))
        for number, (golden, lines, _) in enumerate(ABSURD)
    ]
    command = [sys.executable, "-c", LIMITED, *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for (code, message), (_, _, said) in itertools.zip_longest(json.loads(done.stdout), ABSURD):
        assert (code, said in message) == (4, True), message
        assert len(message) < 400

"""Absurd sizes in models of others: refused before anything is made by a number that the tensors do
not confirm.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.errors import CheckpointError
from bert_jax.interop import runs

from . import variants

pytestmark = pytest.mark.fault(43)

FOLDER = variants.GOLDEN / "huggingface"
SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
WORDPIECE = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
ABSURD = {  # golden model, what its config.json says instead, what is said of it
    "2**31 rows": (
        "pretraining",
        {"vocab_size": 2**31 - 1},
        "vocab_size = 2147483647 and bert.embeddings.word",
    ),
    "2**40 rows": (
        "pretraining",
        {"vocab_size": 2**40},
        "vocab_size is 1099511627776, not a whole number from 1",
    ),
    "2**30 columns": (
        "pretraining",
        {"hidden_size": 2**30},
        "hidden_size = 1073741824 and bert.embeddings.word",
    ),
    "2**30 positions": (
        "pretraining",
        {"max_position_embeddings": 2**30},
        "max_position_embeddings = 1073741824 and",
    ),
    "2**30 types": ("pretraining", {"type_vocab_size": 2**30}, "type_vocab_size = 1073741824 and"),
    "2**30 wide": (
        "pretraining",
        {"intermediate_size": 2**30},
        "intermediate_size = 1073741824 and",
    ),
    "2**30 layers": (
        "pretraining",
        {"num_hidden_layers": 2**30},
        "num_hidden_layers = 1073741824 and the file has 2",
    ),
    "2**30 heads": ("pretraining", {"num_attention_heads": 2**30}, "heads"),
    "2**30 labels": (
        "sequence_classification",
        {"num_labels": 2**30, "id2label": None},
        "num_labels = 1073741824 and",
    ),
    "2**30 tags": (
        "token_classification",
        {"num_labels": 2**30, "id2label": None},
        "num_labels = 1073741824 and",
    ),
    "a regression": ("regression", {"num_labels": 2**30, "id2label": None}, "1073741824 outputs"),
    "more labels than rows": (
        "sequence_classification",
        {"id2label": {str(i): f"class {i}" for i in range(1000)}},
        "classes in id2label = 1000 and classifier.weight is [",
    ),
}


def model(folder: Path, golden: str, **changes: object) -> Path:
    """A golden model with other lines in its config.json."""
    shutil.copytree(FOLDER / golden, folder)
    shutil.copy(FOLDER / "pretraining" / "vocab.txt", folder)
    stated = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(stated))
    return folder


def vocabulary(**more: object) -> str:
    """A tokenizer.json of five pieces, with more in its model."""
    return json.dumps(
        {
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "model": WORDPIECE | {"vocab": SPECIAL} | more,
        }
    )


FILES = {  # a file of the model's folder, what it holds, what is said of it
    "config of 5,000 digits": (
        "config.json",
        '{"vocab_size": ' + "9" * 5000 + "}",
        "a number of 5,000 digits",
    ),
    "tokenizer of 5,000 digits": (
        "tokenizer.json",
        '{"version": ' + "9" * 5000 + "}",
        "a number of 5,000 digits",
    ),
    "length of 5,000 digits": (
        "tokenizer_config.json",
        '{"model_max_length": ' + "9" * 5000 + "}",
        "5,000 digits",
    ),
    "modules of 5,000 digits": ("modules.json", "[" + "9" * 5000 + "]", "5,000 digits"),
    "id of 2**40": (
        "tokenizer.json",
        vocabulary(vocab=SPECIAL | {"a": 2**40}),
        "the tokenizers library refuses it",
    ),
    "word of 2**40": (
        "tokenizer.json",
        vocabulary(max_input_chars_per_word=2**40),
        "model's table 47 rows",  # a long limit of words costs nothing
    ),
    "another vocabulary": (
        "tokenizer.json",
        vocabulary(max_input_chars_per_word=100),
        "model's table 47 rows",
    ),
}

# In a process of its own, with 256 MiB more than it has once everything is imported and the devices
# are started (their threads reserve memory by the number of processors): 2**30 names alone take 60
# GiB.
LIMITED = """
import json, resource, sys
import jax
from bert_jax.interop import runs
from bert_jax.errors import UserError
jax.block_until_ready(jax.numpy.zeros(8) + 1)
sizes = [line for line in open("/proc/self/status") if line.startswith("VmSize")]
used = int(sizes[0].split()[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
found = {}
for folder in sys.argv[1:]:
    try:
        runs.open_run(folder)
    except UserError as error:
        found[folder] = (error.code, str(error), error.hint)
print(json.dumps(found))
"""


def test_absurd_sizes_are_refused_in_little_memory(tmp_path):
    wanted = {}
    for number, (golden, changes, said) in enumerate(ABSURD.values()):
        wanted[str(model(tmp_path / f"config-{number}", golden, **changes))] = said
    for number, (name, text, said) in enumerate(FILES.values()):
        folder = model(tmp_path / f"file-{number}", "pretraining")
        (folder / name).write_text(text)
        wanted[str(folder)] = said
    command = [sys.executable, "-c", LIMITED, *wanted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for folder, said in wanted.items():
        code, message, hint = found[folder]
        assert code == 4, message
        assert said in message, message
        assert hint
        assert len(message) < 400, message


@pytest.mark.parametrize(
    "golden", ["pretraining", "sequence_classification", "regression", "multiple_choice"]
)
def test_sizes_that_the_tensors_confirm_are_taken(golden, tmp_path):
    assert runs.open_run(str(model(tmp_path / "m", golden))).config.model.layers in (1, 2)


def test_layers_are_counted_not_taken_from_a_name(tmp_path):
    tensors = {
        name.replace("layer.1.", "layer.999999."): value
        for name, value in variants.golden("pretraining").items()
    }
    folder = variants.save(model(tmp_path / "m", "pretraining", num_hidden_layers=10**6), tensors)
    with pytest.raises(CheckpointError, match="num_hidden_layers = 1000000 and the file has 2"):
        runs.open_run(str(folder))
    variants.save(model(tmp_path / "n", "pretraining"), tensors)
    with pytest.raises(CheckpointError, match="2 layers, one of them number 999999"):
        runs.open_run(str(tmp_path / "n"))


@pytest.mark.parametrize(
    "tensor",
    ["bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight"],
)
def test_a_size_whose_tensor_is_absent_is_not_believed(tensor, tmp_path):
    tensors = {
        name: value for name, value in variants.golden("pretraining").items() if name != tensor
    }
    folder = variants.save(model(tmp_path / "m", "pretraining", vocab_size=2**31 - 1), tensors)
    with pytest.raises(CheckpointError, match=r"vocab_size = 2147483647 and|lacks"):
        runs.open_run(str(folder))

"""Folders of others: taken in however they are stored, or refused in one line and exit code 4."""

import itertools
import json
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from tests import clusters, variants
from tests.net.train_rows import run_command
from tests.parity import check_same, read_parameters
from tests.texts import run_python

GOLDEN = variants.GOLDEN / "huggingface"
TABLE = "bert.embeddings.word_embeddings.weight"


def refused(code: int, *words: str) -> str:
    """The error line of a command that ends in one line, a hint and this exit code."""
    found, out, err = run_command([*words])
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
    folder = variants.folder(
        tmp_path / "m", tensors=bare, architectures=["BertModel"], vocab_size=47.0
    )
    whole = {name: value for name, value in plain.items() if name.startswith("encoder/")}
    check_same(read_parameters(folder), whole)
    (folder / "vocab.txt").rename(tmp_path / "elsewhere.txt")
    file = folder / "model.safetensors"
    check_same(read_parameters(file, tokenizer=str(tmp_path / "elsewhere.txt")), whole)


def test_import_names_what_it_would_leave_aside(tmp_path, plain):
    """A head, tensors of no part of the model, and rows of the table that no piece has."""
    tensors = without("cls.seq") | {"adapter.down.weight": np.ones((2, 2), np.float32)}
    tensors |= {f"x{i}\n" * 50_000: np.zeros(1, np.float32) for i in range(3)}
    for name in (TABLE, "cls.predictions.bias"):
        spare = [(0, 17)] + [(0, 0)] * (tensors[name].ndim - 1)
        tensors[name] = np.pad(tensors[name], spare, constant_values=1)
    folder, output = variants.folder(tmp_path / "m", tensors=tensors, vocab_size=64), tmp_path / "o"
    words = ["import", f"--model={folder}", f"--output={output}"]
    for said, flag in (
        ("the file lacks cls.seq_relationship.weight", "--allow-missing"),
        ("adapter.down.weight, bert.x0", "--allow-unused"),
        ("47 pieces and the model's table 64 rows", "--resize-vocab"),
    ):
        error = refused(4, *words)
        assert said in error
        assert len(error) < 600
        words.append(flag)
    added = folder / "added_tokens.json"
    added.write_text('{"new": 47}')
    assert "added_tokens.json is not read" in refused(4, *words)
    added.unlink()
    assert not output.exists()
    code, out, _ = run_command(words)
    assert (code, json.loads(out)["heads"]) == (0, ["mlm"])
    kept = {name: value for name, value in plain.items() if not name.startswith("nsp/")}
    check_same(read_parameters(output), kept)


@pytest.mark.fault(27)
def test_hub_is_asked_for_the_files_that_are_read(monkeypatch, plain):
    asked = {}

    def download(name, allow_patterns):
        asked[name] = allow_patterns
        return str(GOLDEN / "pretraining")

    def refuse(name, allow_patterns, local_files_only=False):
        if not local_files_only:
            raise EOFError("of an HTTP client")
        return download(name, allow_patterns)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for name in ("org/model", "hf:model"):
        check_same(read_parameters(name), plain)
    assert set(asked) == {"org/model", "model"}
    assert not any("bin" in pattern or pattern.endswith(".py") for pattern in asked["model"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    check_same(read_parameters("org/model"), plain)  # of the cache
    for error, said in (
        (LocalEntryNotFoundError("no route\nto the host"), "the hub's org/model cannot be fetched"),
        (OSError(28, "No space left on device"), "disk full"),
    ):
        monkeypatch.setattr(huggingface_hub, "snapshot_download", Mock(side_effect=error))
        assert said in refused(4, "predict", "nsp", "--model=org/model")


# --- hostile --------------------------------------------------------------------------------------


def without(part: str) -> variants.Tensors:
    return {k: v for k, v in variants.golden("pretraining").items() if part not in k}


@pytest.mark.fault(17)
def test_output_that_is_not_the_tied_table_is_refused(tmp_path):
    """The transcript has other hostile tensors, lines of config.json, cut files, and code."""
    output, tensors = "cls.predictions.decoder.weight", variants.golden("pretraining")
    folder = variants.folder(tmp_path / "m", tensors=tensors | {output: tensors[TABLE] + 1})
    error = refused(4, "import", f"--model={folder}", f"--output={tmp_path / 'out'}")
    assert f"{output} is not {TABLE}" in error
    assert [path.name for path in tmp_path.iterdir()] == ["m"]  # no output


ABSURD = [  # golden model, a line of config.json, what the error says
    ("pretraining", {"vocab_size": 2**30 - 1}, "vocab_size = 1073741823"),
    ("pretraining", {"hidden_size": 2**16}, "config.json says [65536]"),
    ("pretraining", {"max_position_embeddings": 2**15}, "config.json says [32768, 16]"),
    ("pretraining", {"intermediate_size": 2**20}, "config.json says [16, 1048576]"),
    ("pretraining", {"num_hidden_layers": 2**29}, "536870912 layers, and the file has 2"),
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
    done = run_python(LIMITED, *folders)
    assert done.returncode == 0, done.stderr
    for (code, message), (_, _, said) in itertools.zip_longest(json.loads(done.stdout), ABSURD):
        assert (code, said in message) == (4, True), message
        assert len(message) < 400


JOINING = """
import jax, sys
from bert_jax import config
config.load_file(f"configs/finetune.py:sst2,init_from={sys.argv[1]}")
jax.distributed.initialize(sys.argv[2], num_processes=1, process_id=0)
print(jax.process_count())
"""


def test_config_of_a_folder_starts_no_devices():
    """Else the processes of a run could not meet, as the config is read before they do."""
    (port,) = clusters.free_ports(1)
    folder = Path(__file__).parents[1] / "net" / "models" / "classify"
    done = run_python(JOINING, folder, f"localhost:{port}")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr

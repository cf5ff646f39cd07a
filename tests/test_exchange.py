"""Models of others through the command line: taken in, asked, evaluated, trained on, given out
again, or refused.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from pathlib import Path

import huggingface_hub
import jax
import ml_dtypes
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.numpy import load_file

from bert_jax import cli, train
from bert_jax.data import tokenizer as tokenizers
from bert_jax.errors import CheckpointError, ConfigError
from bert_jax.interop import export, huggingface, runs
from bert_jax.objectives import network
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from bert_jax.system import trees
from tests import texts, toy, variants
from tests.texts import configure

PRETRAINING = variants.GOLDEN / "huggingface" / "pretraining"
TABLE = "bert.embeddings.word_embeddings.weight"


def model(
    folder: Path, tensors=None, parts: int = 0, drop: tuple[str, ...] = (), **changes
) -> Path:
    """The golden pre-training model as a folder, with other tensors or lines of config.json."""
    tensors = variants.golden("pretraining") if tensors is None else tensors
    (variants.save_sharded(folder, tensors, parts) if parts else variants.save(folder, tensors))
    stated = json.loads((PRETRAINING / "config.json").read_text()) | changes
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in stated.items() if k not in drop})
    )
    shutil.copy(PRETRAINING / "vocab.txt", folder)
    return folder


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


def parameters(path: Path | str, **settings) -> dict[str, np.ndarray]:
    return {
        k: np.asarray(v) for k, v in trees.flat(runs.open_run(str(path), **settings).params).items()
    }


def equal(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        np.testing.assert_array_equal(value, theirs[name], err_msg=name)


# --- in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change", [variants.old_names, variants.with_extras, dict], ids=["gamma", "extras", "plain"]
)
@pytest.mark.parametrize("parts", [0, 3])
def test_stored_otherwise_it_is_the_same_model(tmp_path, change, parts):
    equal(
        parameters(model(tmp_path / "m", change(variants.golden("pretraining")), parts)),
        parameters(PRETRAINING),
    )


def test_an_encoder_without_its_prefix_and_a_file_without_its_folder(tmp_path):
    bare = {
        name.removeprefix("bert."): value
        for name, value in variants.golden("pretraining").items()
        if name.startswith("bert.")
    }
    folder = model(tmp_path / "m", bare, architectures=["BertModel"])
    whole = {k: v for k, v in parameters(PRETRAINING).items() if k.startswith("encoder/")}
    equal(parameters(folder), whole)
    (folder / "vocab.txt").rename(tmp_path / "elsewhere.txt")
    with pytest.raises(CheckpointError, match=r"no vocab\.txt or tokenizer\.json beside"):
        runs.open_run(str(folder / "model.safetensors"))
    equal(
        parameters(folder / "model.safetensors", tokenizer=str(tmp_path / "elsewhere.txt")), whole
    )


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["fp16", "bf16"])
def test_half_precision_is_widened_and_nothing_else(tmp_path, dtype):
    tensors = variants.golden("pretraining")
    narrow = {name: value.astype(dtype).astype(np.float32) for name, value in tensors.items()}
    given = model(tmp_path / "narrow", variants.cast(tensors, dtype))
    equal(parameters(given), parameters(model(tmp_path / "wide", narrow)))


def test_a_head_that_config_json_promises_is_missed_by_name_unless_allowed(tmp_path, capsys):
    kept = {k: v for k, v in variants.golden("pretraining").items() if not k.startswith("cls.seq")}
    folder = model(tmp_path / "m", kept)
    error = refused(capsys, 4, "import", f"--model={folder}", f"--output={tmp_path / 'out'}")
    assert "cls.seq_relationship.weight, cls.seq_relationship.bias" in error
    assert not (tmp_path / "out").exists()
    code, out, _ = call(
        capsys, "import", f"--model={folder}", f"--output={tmp_path / 'out'}", "--allow-missing"
    )
    assert (code, json.loads(out)["heads"]) == (0, ["mlm"])
    bare = model(tmp_path / "bare", kept, architectures=["BertForMaskedLM"])
    assert "has no nsp head" in refused(capsys, 2, "predict", "nsp", f"--model={bare}")


def test_tensors_of_no_bert_are_refused_by_name_unless_allowed(tmp_path, capsys):
    folder = model(
        tmp_path / "m",
        variants.golden("pretraining") | {"adapter.down.weight": np.ones((2, 2), np.float32)},
    )
    assert "adapter.down.weight" in refused(
        capsys, 4, "import", f"--model={folder}", f"--output={tmp_path / 'out'}"
    )
    assert (
        call(
            capsys, "import", f"--model={folder}", f"--output={tmp_path / 'out'}", "--allow-unused"
        )[0]
        == 0
    )
    equal(parameters(tmp_path / "out"), parameters(PRETRAINING))


def test_rows_without_a_piece_are_cut_only_when_asked(tmp_path, capsys):
    tensors = variants.golden("pretraining")
    for name in (TABLE, "cls.predictions.bias"):
        spare = np.ones((17, *tensors[name].shape[1:]), np.float32)
        tensors[name] = np.concatenate([tensors[name], spare])
    folder = model(tmp_path / "m", tensors, vocab_size=64)
    error = refused(capsys, 4, "predict", "fill-mask", f"--model={folder}")
    assert "47 pieces and the model's table 64 rows" in error
    assert (
        call(
            capsys, "import", f"--model={folder}", f"--output={tmp_path / 'out'}", "--resize-vocab"
        )[0]
        == 0
    )
    equal(parameters(tmp_path / "out"), parameters(PRETRAINING))
    (folder / "vocab.txt").write_text(
        (folder / "vocab.txt").read_text() + "".join(f"new{i}\n" for i in range(30))
    )
    refused(
        capsys, 4, "import", f"--model={folder}", f"--output={tmp_path / 'more'}", "--resize-vocab"
    )


def test_the_hub_is_asked_for_the_files_that_are_read(tmp_path, monkeypatch, capsys):
    asked = {}

    def download(name, allow_patterns):
        asked[name] = allow_patterns
        return str(PRETRAINING)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    for name in ("org/model", "hf:model"):
        equal(parameters(name), parameters(PRETRAINING))
    assert set(asked) == {"org/model", "model"}
    assert not any("bin" in pattern or pattern.endswith(".py") for pattern in asked["model"])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", _no_network)
    assert "the hub's org/model cannot be fetched" in refused(
        capsys, 4, "predict", "nsp", "--model=org/model"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    for path, hint in (("run/mine", "did you mean 'runs/mine'?"), ("runs/demo", "`make demo`")):
        assert f"hint: {hint}" in call(capsys, "predict", "nsp", f"--model={path}")[2]
    assert "no checkpoint at nowhere" in refused(capsys, 4, "predict", "nsp", "--model=nowhere")
    assert "no checkpoint at" in refused(
        capsys, 4, "predict", "nsp", f"--model={tmp_path / 'nowhere'}"
    )


def _no_network(name, allow_patterns):
    raise LocalEntryNotFoundError("no route\nto the host")


# --- used -----------------------------------------------------------------------------------------


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


@pytest.mark.slow
def test_a_folder_is_evaluated_asked_and_trained_on_like_the_run_it_came_from(
    trained, exported, base, tmp_path, capsys, one_device
):
    needs = refused(capsys, 2, "evaluate", f"--checkpoint={exported}")
    assert "names no corpus" in needs
    assert (
        refused(capsys, 2, "evaluate", f"--checkpoint={exported}", "--config.masking.rate=0.4")
        == needs
    )
    long = f"--config.sequence_length={runs.open_run(str(exported)).config.model.max_positions + 1}"
    assert "positions" in refused(
        capsys,
        2,
        "evaluate",
        f"--checkpoint={exported}",
        f"--config={base}",
        "--config.model.max_positions=9999",
        long,
    )
    scores = []
    for words in ([f"--checkpoint={trained}"], [f"--checkpoint={exported}", f"--config={base}"]):
        code, out, err = call(capsys, "evaluate", *words)
        assert code == 0, err
        scores.append(json.loads(out)["pretrain"])
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
    answers = []
    for path in (trained, exported):
        asked = stream.Model(runs.open_run(str(path)), Options(top_k=3))
        answers.append(list(stream.predict(asked, "fill-mask", ["the cat [MASK] near the sea."])))
        answers[-1] += list(stream.predict(asked, "nsp", ["the cat sees.\tthe cat sees."]))
        answers[-1] += list(stream.predict(asked, "embed", ["the cat sees."]))
    assert answers[0] == answers[1]
    config = configure(base, steps=10, optim__learning_rate=0, init_from=str(exported))
    train.run(config, tmp_path / "w", command=[])
    equal(parameters(tmp_path / "w"), parameters(trained))


def test_embeddings_are_means_over_real_tokens_or_that_of_cls(exported):
    run = runs.open_run(str(exported))
    lines = ["the cat sees.", "every child hears my old friend near the sea.", "[MASK]"]
    encode = jax.jit(network.Encoder(run.config.model, run.tokenizer.size, pool=False).apply)
    alone = []  # one text at a time, without padding
    for line in lines:
        ids = [
            run.tokenizer.special.cls,
            *run.tokenizer.encode_batch([line])[0],
            run.tokenizer.special.sep,
        ]
        n = len(ids)
        b = {
            key: np.full((1, n), fill, np.int32)
            for key, fill in (("type_ids", 0), ("segment_ids", 1))
        }
        b |= {"tokens": np.array([ids], np.int32), "positions": np.arange(n, dtype=np.int32)[None]}
        alone.append(np.asarray(encode({"params": run.params["encoder"]}, b).hidden[0], np.float64))
    for pooling, normalize in (("mean", False), ("cls", True)):
        options = Options(pooling=pooling, normalize=normalize)
        found = list(stream.predict(stream.Model(run, options), "embed", lines))
        for line, hidden, row in zip(lines, alone, found, strict=True):
            expected = hidden.mean(0) if pooling == "mean" else hidden[0]
            expected /= np.linalg.norm(expected) if normalize else 1
            assert row["text"] == line
            np.testing.assert_allclose(row["embedding"], expected, atol=1e-5)


def test_a_long_text_is_cut_only_when_asked_and_counted(exported, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the cat " * 40 + "\nthe cat\n")
    words = ["predict", "embed", f"--model={exported}", f"--input={tmp_path / 'in.txt'}"]
    assert "line 1: 82 tokens" in refused(capsys, 3, *words)
    code, out, err = call(capsys, *words, "--long=cut")
    assert (code, len(out.splitlines())) == (0, 2)
    assert "1 of them cut to 32 tokens" in err
    assert "embed does not look at texts in windows" in refused(capsys, 2, *words, "--long=windows")


@pytest.mark.parametrize(("stride", "meaning"), [(7, "step"), (12, "overlap")])
def test_masks_of_a_long_text_are_seen_where_most_is_around_them(exported, stride, meaning):
    """Each mask answered as in a text that is just its window, found by trying all of them."""
    run = runs.open_run(str(exported))
    words = [w for i in range(30) for w in ("the", "cat", "sees", "every")[: 2 + i % 3]]
    words[5::9] = ["[MASK]"] * len(words[5::9])
    options = Options(top_k=2, long="windows", stride=stride, stride_as=meaning, batch_size=3)
    (found,) = stream.predict(stream.Model(run, options), "fill-mask", [" ".join(words)])
    (ids,) = run.tokenizer.encode_batch([" ".join(words)], escape=False)
    room = run.config.sequence_length - 2
    assert len(ids) > 2 * room
    step = stride if meaning == "step" else room - stride
    spans = [
        (a, min(a + room, len(ids)))
        for a in range(0, len(ids), step)
        if a == 0 or a - step + room < len(ids)
    ]
    alone = stream.Stream(stream.Model(run, Options(top_k=2, batch_size=1)), "fill-mask")
    at = [i for i, token in enumerate(ids) if token == run.tokenizer.special.mask]
    assert len(found["masks"]) == len(at)
    for place, answer in zip(at, found["masks"], strict=True):
        a, b = max(
            ((a, b) for a, b in spans if a <= place < b),
            key=lambda span: (
                min(place - span[0], span[1] - 1 - place) + 0.01 * (span[1] - span[0]),
                -span[0],
            ),
        )
        text = "".join(run.tokenizer.decode(ids[a:b]))
        assert run.tokenizer.encode_batch([text], escape=False) == [ids[a:b]]
        (row,) = alone.answer([text])
        mine = row["masks"][sum(t == run.tokenizer.special.mask for t in ids[a:place])]
        assert [o["token"] for o in answer] == [o["token"] for o in mine]
        assert [o["probability"] for o in answer] == pytest.approx(
            [o["probability"] for o in mine], rel=1e-4
        )


# --- out ------------------------------------------------------------------------------------------


def test_exported_and_taken_in_again_a_run_is_the_same_bit_for_bit(
    trained, exported, tmp_path, capsys
):
    assert call(capsys, "import", f"--model={exported}", f"--output={tmp_path / 'run'}")[0] == 0
    equal(parameters(tmp_path / "run"), parameters(trained))  # the padding of the table too
    assert (
        call(capsys, "export", f"--model={tmp_path / 'run'}", f"--output={tmp_path / 'again'}")[0]
        == 0
    )
    for name in (
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "vocab.txt",
        "tokenizer_config.json",
    ):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes(), name
    assert (
        runs.open_run(str(tmp_path / "run")).tokenizer.hash
        == runs.open_run(str(trained)).tokenizer.hash
    )
    assert "is a run already" in refused(
        capsys, 2, "import", f"--model={trained}", f"--output={tmp_path / 'x'}"
    )


@pytest.mark.parametrize(
    "name", ["pretraining", "causal_lm", "token_classification", "regression", "question_answering"]
)
def test_a_golden_model_goes_out_as_it_came_in(name, tmp_path):
    source = variants.GOLDEN / "huggingface" / name
    run = runs.open_run(str(source), tokenizer=str(PRETRAINING / "vocab.txt"))
    export.write(run, tmp_path)
    equal(load_file(tmp_path / "model.safetensors"), variants.golden(name))
    stated, written = (
        json.loads((folder / "config.json").read_text()) for folder in (source, tmp_path)
    )
    for key in set(stated) & set(written) - {
        "classifier_dropout",
        "problem_type",
        "initializer_range",
    }:
        assert written[key] == stated[key], key
    assert huggingface.read(tmp_path).config.model == run.config.model


def test_the_folder_is_complete_and_the_card_is_the_runs(trained, exported):
    found = {str(p.relative_to(exported)) for p in exported.rglob("*") if p.is_file()}
    assert found == {
        *(
            "config.json",
            "model.safetensors",
            "README.md",
            "vocab.txt",
            "tokenizer.json",
            "tokenizer_config.json",
        ),
        *(
            "special_tokens_map.json",
            "modules.json",
            "sentence_bert_config.json",
            "1_Pooling/config.json",
        ),
    }
    card = (exported / "README.md").read_text()
    environment = json.loads((trained / "environment.json").read_text())
    assert environment["corpus"] in card
    assert "`masking.rate`" not in card  # only what differs from the defaults
    assert '| `corpus.source` | `"files"` |' in card
    (last,) = [
        row
        for row in map(json.loads, (trained / "metrics.jsonl").read_text().splitlines())
        if row["step"] == 10 and "eval/validation/mlm_loss" in row
    ]
    assert f"| validation/mlm_loss | {last['eval/validation/mlm_loss']:.4g} |" in card
    assert "\nbert-jax\n" in card


def test_a_swapped_vocabulary_is_noticed(exported, tmp_path, capsys):
    folder = Path(shutil.copytree(exported, tmp_path / "m"))
    (folder / "tokenizer.json").unlink()
    runs.open_run(str(folder))  # vocab.txt and tokenizer_config.json say the same
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[-1], lines[-2] = lines[-2], lines[-1]
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    assert "not the tokenizer" in refused(capsys, 2, "predict", "nsp", f"--model={folder}")


@pytest.mark.filterwarnings("ignore")  # of other libraries
def test_the_folder_loads_in_transformers_and_gives_our_logits(trained, exported):
    """Where torch and transformers are installed; elsewhere the golden folders say how they would
    be read.
    """
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    run = runs.open_run(str(trained))
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    theirs = transformers.AutoModelForPreTraining.from_pretrained(exported).eval()
    given = tokenizer(
        ["the cat [MASK] near the sea.", "every child"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        out = theirs(**given)
    ids, types, mask = (
        given[n].numpy().astype(np.int32) for n in ("input_ids", "token_type_ids", "attention_mask")
    )
    columns = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    b = {
        "tokens": ids,
        "type_ids": types,
        "segment_ids": mask,
        "positions": columns,
        "predict_positions": columns,
    }
    b["cls_positions"] = np.zeros((2, 1), np.int32)
    ours = network.outputs(network.build(run.config, run.tokenizer.size), run.params, b)
    close = {"atol": 1e-4, "rtol": 0}
    np.testing.assert_allclose(
        ours["mlm"][..., : run.tokenizer.size], out.prediction_logits.numpy(), **close
    )
    np.testing.assert_allclose(ours["nsp"][:, 0], out.seq_relationship_logits.numpy(), **close)


INEXPRESSIBLE = {
    "model.position": {"model__position": "rotary"},
    "model.norm": {"model__norm": "pre"},
    "model.gated": {"model__gated": "true"},
    "model.window": {"model__window": "64"},
    "model.head_activation": {"model__head_activation": "relu"},
    "objectives.sop": {"pairs": "sop", "checkpoints__best": "mlm_loss"},
}


@pytest.mark.parametrize("knob", INEXPRESSIBLE)
def test_what_their_bert_cannot_express_is_refused_by_knob(knob, tmp_path):
    config = toy.config(**INEXPRESSIBLE[knob])
    vocab = [f"w{i}" for i in range(toy.VOCAB - 5)]
    (tmp_path / "vocab.txt").write_text("".join(f"{p}\n" for p in [*tokenizers.SPECIALS, *vocab]))
    tokenizer = tokenizers.load(tmp_path / "vocab.txt")
    run = runs.TrainedModel(
        tmp_path, config, tokenizer, tmp_path, {}, 1, {}
    )  # refused before a parameter is looked at
    with pytest.raises(ConfigError, match=f"cannot express {knob}"):
        export.write(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_over(exported, trained, tmp_path, capsys):
    assert "is not empty" in refused(
        capsys, 2, "export", f"--model={trained}", f"--output={exported}"
    )
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in ("file", "file/below", "link"):
        refused(capsys, 2, "export", f"--model={trained}", f"--output={tmp_path / place}")
    assert {p.name for p in tmp_path.iterdir()} == {"file", "link"}


# --- hostile --------------------------------------------------------------------------------------


class Payload:
    """Unpickling it would write a file."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "run")


def renamed(tensors, old: str, new: str):
    return {new if name == old else name: value for name, value in tensors.items()}


ONE = b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
TWICE = b"{" + ONE + b"," + ONE + b"}"
HOSTILE = {  # what happens to the folder, and what the line says
    "truncated": (
        lambda f, t: (f / "model.safetensors").write_bytes(
            (f / "model.safetensors").read_bytes()[:-9]
        ),
        "bytes",
    ),
    "header too long": (
        lambda f, t: (f / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}"),
        "header",
    ),
    "duplicate keys": (
        lambda f, t: (f / "model.safetensors").write_bytes(
            len(TWICE).to_bytes(8, "little") + TWICE + bytes(4)
        ),
        "twice",
    ),
    "wrong dtype": (
        lambda f, t: variants.save(f, t | {TABLE: t[TABLE].astype(np.int32)}),
        "stored as int32",
    ),
    "wrong shape": (
        lambda f, t: variants.save(f, t | {TABLE: t[TABLE][:, :8].copy()}),
        r"is \[47, 8\]",
    ),
    "other rank": (lambda f, t: variants.save(f, t | {TABLE: t[TABLE].reshape(-1)}), r"is \[752\]"),
    "path in a name": (
        lambda f, t: variants.save(f, renamed(t, TABLE, f"../../{TABLE}")),
        r"\.\./",
    ),
    "NaN": (lambda f, t: variants.save(f, t | {TABLE: t[TABLE] * np.float32("nan")}), "NaN"),
    "infinity": (
        lambda f, t: variants.save(
            f, t | {"cls.predictions.bias": t["cls.predictions.bias"] * np.float32("inf")}
        ),
        "NaN",
    ),
    "missing tensor": (
        lambda f, t: variants.save(
            f, {k: v for k, v in t.items() if "layer.1.output.dense.bias" not in k}
        ),
        "lacks",
    ),
    "two names of one": (
        lambda f, t: variants.save(
            f, t | {"bert.embeddings.LayerNorm.gamma": np.ones(16, np.float32)}
        ),
        "twice",
    ),
    "untied": (
        lambda f, t: variants.save(f, t | {"cls.predictions.decoder.weight": t[TABLE] + 1}),
        "not the word embeddings",
    ),
    "no config": (lambda f, t: (f / "config.json").unlink(), "no config.json"),
    "config cut short": (
        lambda f, t: (f / "config.json").write_text('{"hidden_size": 16,'),
        "config.json",
    ),
    "config of a list": (lambda f, t: (f / "config.json").write_text("[]"), "config.json"),
    "config nested": (lambda f, t: (f / "config.json").write_text("[" * 100_000), "config.json"),
    "vocabulary cut short": (
        lambda f, t: (f / "vocab.txt").write_text("[PAD]\n[UNK]\n"),
        "vocab.txt",
    ),
    "a pickle by another name": (
        lambda f, t: (f / "model.safetensors").write_bytes(
            pickle.dumps(Payload(f.parent / "marker"))
        ),
        "pickle",
    ),
    "a pickle": (
        lambda f, t: (
            (f / "model.safetensors").unlink(),
            (f / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(f.parent / "marker"))),
        ),
        "pickle",
    ),
}
CONFIGS = {
    "code of its own": ({"auto_map": {"AutoModel": "modeling.Mine"}}, "auto_map"),
    "a text for a truth": ({"is_decoder": "false"}, "is_decoder"),
    "a number for a truth": ({"is_decoder": 0}, "is_decoder"),
    "untied without its matrix": ({"tie_word_embeddings": False}, "tie_word_embeddings"),
    "another model": ({"model_type": "deberta"}, "model_type"),
    "another of ours": ({"model_type": "roberta"}, "architectures"),
    "relative positions": ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
    "unknown activation": ({"hidden_act": "mish"}, "hidden_act"),
    "unknown class": ({"architectures": ["BertForEverything"]}, "architectures"),
    "a text for a number": ({"hidden_size": "16"}, "hidden_size"),
    "absurd depth": ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
    "absurd width": ({"hidden_size": 2**30, "num_attention_heads": 2}, "is \\["),
    "heads that do not divide": ({"num_attention_heads": 3}, "heads"),
    "negative dropout": ({"hidden_dropout_prob": -1}, "dropout"),
    "nothing": ({"num_attention_heads": 0}, "num_attention_heads"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config"),
}


@pytest.mark.fault(28, 29, 31)
@pytest.mark.parametrize("kind", [*HOSTILE, *CONFIGS])
def test_a_hostile_folder_is_one_line_and_exit_code_4(kind, tmp_path, capsys):
    changes, said = CONFIGS[kind] if kind in CONFIGS else ({}, HOSTILE[kind][1])
    folder = model(tmp_path / "m", **changes)
    if kind in HOSTILE:
        HOSTILE[kind][0](folder, variants.golden("pretraining"))
    for words in (["predict", "nsp"], ["import", f"--output={tmp_path / 'out'}"], ["evaluate"]):
        error = refused(capsys, 4, *words, f"--model={folder}")
        assert said.replace("\\", "") in error, error
    assert {p.name for p in tmp_path.iterdir()} == {"m"}  # no marker, no output


SENTENCES = {
    "a prompt": {
        "config_sentence_transformers.json": {
            "default_prompt_name": "q",
            "prompts": {"q": "query: "},
        }
    },
    "vectors cut": {"config_sentence_transformers.json": {"truncate_dim": 4}},
    "another output": {
        "sentence_bert_config.json": {
            "modality_config": {"text": {"method_output_name": "pooler_output"}}
        }
    },
    "lower-cased beforehand": {
        "sentence_bert_config.json": {"do_lower_case": True},
        "tokenizer_config.json": {"do_lower_case": False},
    },
    "maximum": {"1_Pooling/config.json": {"pooling_mode_max_tokens": True}},
    "a path of their own": {
        "modules.json": [{"type": "a.Transformer"}, {"type": "b.Pooling", "path": "../x"}]
    },
}


@pytest.mark.parametrize("kind", SENTENCES)
def test_sentences_embedded_in_a_way_of_their_own_are_refused(kind, tmp_path, capsys):
    """Whatever changes the vector and is not done here; the same folder without it is fine."""
    folder = model(tmp_path / "m")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "b.Pooling", "path": "1_Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert runs.open_run(str(folder)).sentence["pooling"] == "cls"
    for name, content in SENTENCES[kind].items():
        (folder / name).write_text(json.dumps(content))
    refused(capsys, 4, "predict", "embed", f"--model={folder}")


@pytest.mark.fault(28)
def test_no_change_of_config_json_ends_in_a_traceback(tmp_path, monkeypatch):
    shapes, seen = huggingface._shapes, {}

    def once(config, names, vocab_size, rows):
        """What most changes leave as it is need not be traced each time."""
        key = repr((config, sorted(names), vocab_size))
        if key not in seen:
            seen[key] = shapes(config, names, vocab_size, rows)
        return seen[key]

    monkeypatch.setattr(huggingface, "_shapes", once)
    folder = model(tmp_path / "m")
    stated = json.loads((folder / "config.json").read_text())
    for key in stated:
        for value in (None, -1, 0, 10**20, 1e308, True, "", "x", [], [[]], {}, {"a": 1}):
            (folder / "config.json").write_text(json.dumps(stated | {key: value}))
            with contextlib.suppress(CheckpointError):
                huggingface.read(folder)

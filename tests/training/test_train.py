"""The loop end to end, in this process: what it writes, what it learns, what evaluation and
prediction make of it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import cli, evaluate, predict, sharding, suites, train
from bert_jax.checkpoints import reading
from bert_jax.config import costs, knobs, resolve, to_dict
from bert_jax.data import pipeline, prepare
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.evaluation import corpus
from bert_jax.interop import runs
from bert_jax.masking import corrupt, quotas
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from bert_jax.system import trees
from bert_jax.training import memory, program, resume, run
from bert_jax.training.step import compute_inputs
from tests import texts, toy
from tests.texts import configure

STEPS, OFTEN = (
    200,
    40,
)  # of the run that most tests look at: updates, and between saves and evaluations
SPEED = (
    "tokens_per_second",
    "data_wait",
    "model_flops_per_second",
    "evaluation_seconds",
    "saving_seconds",
)
SPEED += ("host_memory_bytes",)


def rows(workdir: Path, prefix: str = "") -> list[dict]:
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if any(key.startswith(prefix) for key in line)]


LONG = {"steps": STEPS, "checkpoints__every": OFTEN, "evals__validation__every": OFTEN}


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory) -> Path:
    workdir = tmp_path_factory.mktemp("run")
    with texts.one_device():
        train.run(configure(base, **LONG), workdir, command=["bert-jax", "train"])
    return workdir


@pytest.fixture(scope="module")
def unpaired(base, tmp_path_factory) -> Path:
    """Ten steps without next sentences."""
    workdir = tmp_path_factory.mktemp("unpaired")
    with texts.one_device():
        train.run(configure(base, steps=10, pairs="none"), workdir, command=[])
    return workdir


STILL = {"model__dropout": 0, "model__attention_dropout": 0}


@pytest.fixture(scope="module")
def wide(base, tmp_path_factory) -> Path:
    """Ten steps over all eight devices, without dropout."""
    workdir = tmp_path_factory.mktemp("wide")
    train.run(configure(base, steps=10, **STILL), workdir, command=[])
    return workdir


def test_a_run_learns_and_writes_what_the_contract_names(trained):
    first, last = rows(trained, "train/")[0], rows(trained, "train/")[-1]
    wanted = (
        "loss mlm_loss nsp_loss mlm_accuracy nsp_accuracy masked_fraction "
        "mask_token_fraction random_fraction"
    )
    for name in [*wanted.split(), "kept_fraction", "learning_rate", "grad_norm", *SPEED]:
        assert f"train/{name}" in last, name
    assert first["step"] == 5
    assert last["step"] == STEPS
    assert first["train/loss"] == pytest.approx(
        first["train/mlm_loss"] + first["train/nsp_loss"], rel=1e-3
    )  # mean of ratios
    assert last["train/mlm_loss"] < first["train/mlm_loss"] - 1
    evaluation = rows(trained, "eval/")[-1]
    assert evaluation["eval/validation/mlm_loss"] < evaluation["eval/validation/unigram_loss"] - 0.5
    assert (
        evaluation["eval/validation/mlm_accuracy"] > evaluation["eval/validation/unigram_accuracy"]
    )
    for file in (
        "config.json",
        "environment.json",
        "report.html",
        "tokenizer/vocab.txt",
        "tokenizer/tokenizer.json",
    ):
        assert (trained / file).stat().st_size > 0, file
    assert resolve(json.loads((trained / "config.json").read_text())).steps == STEPS
    assert (
        json.loads((trained / "environment.json").read_text())["versions"]["jax"] == jax.__version__
    )
    page = (trained / "report.html").read_text()
    assert "Waiting" in page or "waiting" in page


def test_latest_steps_and_the_best_are_kept(trained):
    steps = sorted(int(p.name) for p in (trained / "checkpoints").iterdir() if p.name.isdigit())
    losses = {r["step"]: r["eval/validation/mlm_loss"] for r in rows(trained, "eval/")}
    best = min((loss, step) for step, loss in losses.items())[1]
    assert steps == sorted({STEPS - OFTEN, STEPS, best})
    assert runs.open_run(str(trained)).step == best
    assert runs.open_run(str(trained / "checkpoints" / str(STEPS))).step == STEPS


def test_a_finished_run_is_left_as_it_is(base, trained):
    before = (trained / "metrics.jsonl").read_bytes()
    train.run(configure(base, **LONG), trained, command=[])
    assert (trained / "metrics.jsonl").read_bytes() == before


def test_evaluation_is_exact_at_any_batch_size_and_device_count(base, trained):
    run = runs.open_run(str(trained))
    prepared = prepare.prepare_corpus(run.config)
    found = []
    for rows_a_batch, devices in ((1, 1), (7, 1), (7, 8), (64, 8)):
        settings = knobs.Eval(batch_size=rows_a_batch)
        mesh = jax.make_mesh(
            (1, devices, 1),
            sharding.AXES,
            axis_types=(jax.sharding.AxisType.Auto,) * 3,
            devices=jax.devices()[:devices],
        )
        params = jax.device_put(run.params, sharding.replicated(mesh))
        found.append(corpus.Evaluator(run.config, prepared, settings, mesh)(params))
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for key, value in found[0].items():
            assert other[key] == pytest.approx(value, rel=1e-5), key
    source = pipeline.Source(prepared, "validation", run.config, seed=0)
    assert found[0]["examples"] == source.examples_per_epoch


def test_baselines_equal_a_plain_count(base, trained):
    run = runs.open_run(str(trained))
    prepared = prepare.prepare_corpus(run.config)
    mesh = sharding.make_mesh(knobs.Parallel())
    evaluator = corpus.Evaluator(run.config, prepared, knobs.Eval(replace=(1.0, 0.0, 0.0)), mesh)
    found = evaluator(jax.device_put(run.params, sharding.replicated(mesh)))
    counts = np.zeros(run.tokenizer.size)
    counts += np.bincount(prepared.splits["train"].tokens, minlength=len(counts))
    logp = np.log((counts + 1) / (counts.sum() + len(counts)))
    targets, labels = [], []
    settings = {"settings": knobs.Masking(), "vocab_size": 3, "slots": 32}
    settings["special"] = run.tokenizer.special
    mask = jax.jit(functools.partial(corrupt.corrupt_batch, **settings))
    for index in range(-(-evaluator.source.examples_per_epoch // evaluator.rows)):
        b = evaluator.source.evaluation_batch(index, evaluator.rows)
        out, _ = mask(b, evaluator.traced)
        hit = (np.asarray(out["inputs"]) == run.tokenizer.special.mask) & (b["unit_ids"] >= 0)
        targets += b["tokens"][hit].tolist()
        labels += b["labels"][b["labels"] >= 0].tolist()
    assert found["mlm_predictions"] == len(targets)
    assert found["unigram_loss"] == pytest.approx(-logp[targets].mean(), rel=1e-5)
    assert found["unigram_accuracy"] == pytest.approx(
        np.mean(np.asarray(targets) == logp.argmax()), rel=1e-6
    )
    share = np.mean(np.asarray(labels) == 0)
    assert found["majority_accuracy"] == pytest.approx(max(share, 1 - share), rel=1e-6)
    assert found["nsp_accuracy_low"] < found["nsp_accuracy"] < found["nsp_accuracy_high"]


def test_evaluate_prints_json_and_takes_another_rate(base, trained, capsys, tmp_path, one_device):
    evaluate.run(str(trained), "pretrain", None, tmp_path / "out" / "scores.json")
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "scores.json").read_text())
    last = {r["step"]: r for r in rows(trained, "eval/")}[runs.open_run(str(trained)).step]
    for key, value in printed["pretrain"].items():
        assert value == pytest.approx(last[f"eval/validation/{key}"], rel=1e-5), key
    config = configure(base, evals__validation__rate=0.6, evals__validation__seed=3)
    harder = suites.evaluate(runs.open_run(str(trained)), "pretrain", config)
    assert harder["mlm_predictions"] > 3 * printed["pretrain"]["mlm_predictions"]
    assert harder["mlm_loss"] > printed["pretrain"]["mlm_loss"]


def ask(model: Path, task: str, lines: list[str], **settings: int) -> list[dict]:
    asked = stream.Model(runs.open_run(str(model)), Options(**settings))
    return list(stream.predict(asked, task, lines))


def test_fill_mask_gives_the_best_tokens_of_every_mask(trained):
    lines = [
        "the cat [MASK] the cat in the garden.",
        "no gap here",
        "",
        '{"text": "[MASK] [MASK] sees every child."}',
    ]
    found = ask(trained, "fill-mask", lines, top_k=4, batch_size=3)
    assert [len(row["masks"]) for row in found] == [1, 0, 0, 2]
    assert [row["text"] for row in found] == [*lines[:3], "[MASK] [MASK] sees every child."]
    for row in found:
        for options in row["masks"]:
            assert len(options) == 4
            values = [option["probability"] for option in options]
            assert values == sorted(values, reverse=True)
            assert 0 < sum(values) <= 1.0001
    assert {option["token"] for option in found[0]["masks"][0]} & {
        w for t in texts.PLACES + texts.VERBS for w in t.split()
    }
    alone = ask(trained, "fill-mask", lines[:1], top_k=4, batch_size=1)
    for one, other in zip(alone[0]["masks"][0], found[0]["masks"][0], strict=True):
        assert one["token"] == other["token"]
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-4)


def test_nsp_gives_a_probability_for_each_pair(trained):
    lines = [
        "the cat sees a small dog.\tthe cat likes every child.",
        '{"text": "a", "text_pair": "b"}',
    ]
    found = ask(trained, "nsp", lines)
    assert all(0 < row["is_next"] < 1 for row in found)
    assert found[1]["text_pair"] == "b"


def test_predict_writes_only_json_to_standard_output(trained, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the [MASK] sees\n\nx\n")
    predict.run("fill-mask", str(trained), tmp_path / "in.txt", top_k=2)
    out, err = capsys.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 3
    assert "3 lines" in err


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["a\tb", "{broken"], "line 2: not JSON"),
        (['{"wrong": 3}'], "line 1: no text"),
        (['{"text": ' + "[" * 100_000], "line 1: .* nested too deeply"),
        (['{"text": ' + "9" * 6_000 + "}"], "line 1: a number of 6,000 digits"),
        (["only one text"], "line 1: no text_pair"),
        (["a\tb\tc"], "line 1: 2 tabs"),
        ([f"{'cat ' * 40}\tb"], "line 1: .* the model takes 32"),
    ],
)
def test_bad_lines_are_named(trained, lines, message):
    with pytest.raises(stream.DataError, match=message):
        ask(trained, "nsp", lines)


def test_fill_mask_reads_whole_lines_and_only_utf8(trained, tmp_path):
    (row,) = ask(trained, "fill-mask", ["the cat\tsees [MASK]"])
    assert (row["text"], len(row["masks"])) == ("the cat\tsees [MASK]", 1)
    with pytest.raises(stream.DataError, match="line 1: a text_pair"):
        ask(trained, "fill-mask", ['{"text": "a", "text_pair": "b"}'])
    (tmp_path / "in.txt").write_bytes(b"fine\nbad \xff [MASK]\n")
    with pytest.raises(stream.DataError, match="line 2: not UTF-8"):
        predict.run("fill-mask", str(trained), tmp_path / "in.txt", top_k=2)
    assert stream.decode_line(1, b'\xef\xbb\xbf{"text": "a"}\n') == '{"text": "a"}\n'


def test_a_head_that_was_not_trained_is_not_asked(unpaired):
    with pytest.raises(ConfigError, match="no nsp head"):
        ask(unpaired, "nsp", ["a\tb"])


def test_a_run_can_start_from_another(base, trained, tmp_path, one_device):
    config = configure(base, steps=10, optim__learning_rate=0, init_from=str(trained))
    train.run(config, tmp_path / "w", command=[])
    ours, theirs = (runs.open_run(str(w)).params for w in (tmp_path / "w", trained))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    with pytest.raises(ConfigError, match="another shape for encoder/") as error:
        train.run(
            configure(base, model__hidden=128, init_from=str(trained)), tmp_path / "v", command=[]
        )
    assert f"hidden={configure(base).model.hidden}" in error.value.hint


def test_a_run_of_before_a_knob_resumes_with_its_default(base, tmp_path):
    now = dict.fromkeys(("corpus", "tokenizer", "batches"), "x") | {
        "config": to_dict(configure(base))
    }
    old = json.loads(json.dumps(now))
    del old["config"]["model"]["classifier_dropout"], old["config"]["masking"]["overflow"]
    resume.check_same(old, now, (), tmp_path)
    old["config"]["masking"]["overflow"] = "skip"
    with pytest.raises(ConfigError, match=r"masking\.overflow: 'skip' -> 'fair'"):
        resume.check_same(old, now, (), tmp_path)


@pytest.mark.slow
def test_what_a_start_lacks_is_fresh_only_when_named(base, unpaired, tmp_path, capfd, one_device):
    config = configure(base, steps=10, optim__learning_rate=0, init_from=str(unpaired), seed=5)
    with pytest.raises(
        ConfigError, match=r"lacks encoder/pooler/bias, encoder/pooler/kernel, nsp/logits/bias"
    ):
        train.run(config, tmp_path / "w", command=[])
    train.run(
        dataclasses.replace(config, init_fresh="^(encoder/pooler|nsp)/"), tmp_path / "w", command=[]
    )
    assert "starts fresh" in capfd.readouterr().err
    ours, theirs = (trees.flat(runs.open_run(str(w)).params) for w in (tmp_path / "w", unpaired))
    fresh = trees.flat(toy.init(config, 5, runs.open_run(str(tmp_path / "w")).tokenizer.size))
    for name, value in ours.items():
        if name in theirs:
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)
        else:  # drawn inside another program, which may round its last bit otherwise
            np.testing.assert_allclose(value, fresh[name], rtol=1e-5, atol=1e-7, err_msg=name)
    back = configure(
        base, steps=10, pairs="none", optim__learning_rate=0, init_from=str(tmp_path / "w")
    )
    train.run(back, tmp_path / "again", command=[])  # a head without use is no obstacle
    assert "is not used" in capfd.readouterr().err


@pytest.mark.slow
def test_a_start_with_another_vocabulary_keeps_the_rows_of_shared_pieces(
    base, trained, tmp_path, capfd, one_device
):
    old = runs.open_run(str(trained))
    vocab = [
        *old.tokenizer.vocab[:5],
        "zebra",
        *old.tokenizer.vocab[:4:-1],
    ]  # one more, the rest backwards
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocab))
    other = {
        "tokenizer__path": str(tmp_path / "vocab.txt"),
        "init_from": str(trained),
        "optim__learning_rate": 0,
    }
    with pytest.raises(ConfigError, match="another tokenizer"):
        train.run(configure(base, steps=10, **other), tmp_path / "w", command=[])
    train.run(configure(base, steps=10, init_vocab="remap", **other), tmp_path / "w", command=[])
    assert f"{len(vocab) - 1:,} of {len(vocab):,} pieces keep" in capfd.readouterr().err
    new = runs.open_run(str(tmp_path / "w"))
    here, there = (trees.flat(run.params) for run in (new, old))
    for name in ("encoder/embeddings/token", "mlm/bias"):
        for i, piece in enumerate(new.tokenizer.vocab):
            if piece != "zebra":
                np.testing.assert_array_equal(
                    here[name][i], there[name][old.tokenizer.vocab.index(piece)]
                )
    assert here["encoder/embeddings/token"][5].any()
    np.testing.assert_array_equal(here["mlm/dense/kernel"], there["mlm/dense/kernel"])


def test_a_run_is_evaluated_with_other_masks_by_flags_alone(trained, capsys, one_device):
    evaluate.run(str(trained), "pretrain", None, None, changes=[("evals.validation.rate", "0.6")])
    most = json.loads(capsys.readouterr().out)["pretrain"]["mlm_predictions"]
    evaluate.run(str(trained), "pretrain", None, None)
    assert most > 3 * json.loads(capsys.readouterr().out)["pretrain"]["mlm_predictions"]
    with pytest.raises(ConfigError, match=r"model\.causal does nothing .* the checkpoint's own"):
        evaluate.run(str(trained), "pretrain", None, None, changes=[("model.causal", "true")])


IGNORED = (
    "model.layers=1",
    "tokenizer.vocab_size=130",
    "optim.learning_rate=1",
    "steps=3",
    "packing=2",
)


@pytest.mark.fault(20)
@pytest.mark.parametrize("knob", [*IGNORED, "sequence_length=16", "pairs=none"])
def test_evaluate_refuses_a_knob_it_does_not_read(base, trained, capsys, one_device, knob):
    """With a --config as without one; the hint works, and says what may be changed."""
    words = ["evaluate", f"--checkpoint={trained}", "--suite=pretrain"]
    assert cli.execute([*words, f"--config={base}", f"--config.{knob}"]) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    name = knob.partition("=")[0]
    assert error.startswith(f"error: config.{name} does nothing ")
    if knob in IGNORED:
        assert hint == "hint: leave it out: it reads corpus, evals, examples"
        assert cli.execute([*words, f"--config.{knob}"]) == 2
        assert f"config.{name} does nothing in an" in capsys.readouterr().err
        return
    assert hint.startswith("hint: leave --config out, and the knob changes")
    usual, changed = (
        json.loads(capsys.readouterr().out)["pretrain"]["examples"]
        for more in ([], [f"--config.{knob}"])
        if cli.execute([*words, *more]) == 0
    )
    assert changed != usual


@pytest.mark.parametrize(
    "overrides",
    [
        {"parallel__step": "pmap"},
        {"parallel__fsdp": 4, "optim__accumulation": 2},
    ],
)
@pytest.mark.slow
@pytest.mark.fault(8)
def test_layouts_train_the_same_run(base, wide, tmp_path, overrides):
    train.run(configure(base, steps=10, **STILL, **overrides), tmp_path, command=[])
    for one, other in zip(rows(wide, "eval/"), rows(tmp_path, "eval/"), strict=True):
        # After ten updates: Adam turns rounding in small gradients into steps. test_step.py
        # compares gradients to 1e-5.
        assert other["eval/validation/mlm_loss"] == pytest.approx(
            one["eval/validation/mlm_loss"], rel=1e-3
        )


@pytest.mark.fault(7)
def test_a_changed_config_is_refused_with_the_difference(base, trained):
    with pytest.raises(ConfigError, match=r"masking.rate: 0.15 -> 0.4") as caught:
        train.run(configure(base, **LONG, masking__rate=0.4), trained, command=[])
    assert "--allow-change=masking.rate" in caught.value.hint
    train.run(configure(base, **LONG, logging__every=3), trained, command=[])  # free to change


@pytest.mark.fault(7)
@pytest.mark.parametrize(
    ("knob", "value", "before"),
    [
        ("rate", "0.3", "--config.evals.validation.rate=0.15"),
        ("replace", "1,0,0", "--config.evals.validation.replace=0.8,0.1,0.1"),
        ("unit", "word", "--config.evals.validation.unit=token"),
        ("seed", "1", "--config.evals.validation.seed=0"),
    ],
)
def test_resume_with_another_measure_is_refused(base, trained, knob, value, before):
    """The best step would be chosen among numbers of two measures."""
    other = {f"evals__validation__{knob}": value}
    with pytest.raises(
        ConfigError, match=rf"evals\.validation\.{knob}: .* are ranked by"
    ) as caught:
        train.run(configure(base, **LONG, **other), trained, command=[])
    assert caught.value.hint.startswith(f"{before}; or another --workdir")
    both = {"evals__validation__rate": 0.3, "evals__validation__seed": 1}
    with pytest.raises(ConfigError, match="are ranked by") as caught:
        train.run(configure(base, **LONG, **both), trained, command=[])
    for name, old, new in (("rate", "0.15", "0.3"), ("seed", "0", "1")):
        assert f"evals.validation.{name}: {old} -> {new}" in str(caught.value)
        assert f"--config.evals.validation.{name}={old}" in caught.value.hint
    often = {"evals__validation__batch_size": 16, "evals__validation__every": 7}
    train.run(configure(base, **(LONG | often)), trained, command=[])  # the same numbers


@pytest.mark.slow
@pytest.mark.fault(7)
def test_steps_may_be_added_when_asked_for_but_not_on_other_text(tmp_path):
    """Over all devices."""
    file, workdir = texts.config_file(tmp_path), tmp_path / "w"
    train.run(configure(file, steps=10, **STILL), workdir, command=[])
    with pytest.raises(ConfigError, match="steps: 10 -> 20"):
        train.run(configure(file, steps=20, **STILL), workdir, command=[])
    train.run(configure(file, steps=20, **STILL), workdir, allow_change=("steps",), command=[])
    assert rows(workdir, "train/")[-1]["step"] == 20
    split = configure(file, steps=30, masking__replace="(1,0,0)", **STILL)
    train.run(split, workdir, allow_change=("steps", "masking.replace"), command=[])
    assert rows(workdir, "train/")[-1]["train/mask_token_fraction"] == 1
    texts.write(tmp_path / "corpus", documents=100, seed=1)
    for config, allowed in (
        (split, ()),
        (configure(file, steps=40, **STILL), ("steps", "masking.replace")),
    ):
        with pytest.raises(ConfigError, match="another corpus"):
            train.run(config, workdir, allow_change=allowed, command=[])


@pytest.mark.fault(6)
def test_a_run_that_diverges_ends_with_code_5_and_names_the_step(
    base, tmp_path, monkeypatch, one_device
):
    real = compute_inputs

    def poisoned(config, step):
        numbers = real(config, step)
        weights = dict(numbers.weights, mlm=np.float32("nan")) if step >= 12 else numbers.weights
        return numbers._replace(weights=weights)

    monkeypatch.setattr(run, "compute_inputs", poisoned)
    with pytest.raises(DivergedError, match=r"5 updates in a row .* step 17, held examples \[\d"):
        train.run(configure(base), tmp_path, command=[])
    assert DivergedError.code == 5
    assert reading.read_model(tmp_path / "checkpoints")[1]["step"] == 10


def test_masks_that_are_not_as_configured_stop_the_run(base, tmp_path, monkeypatch, one_device):
    real = quotas.mean_quotas
    monkeypatch.setattr(quotas, "mean_quotas", lambda *args: np.minimum(real(*args), 2))
    with pytest.raises(DivergedError, match="realised masks"):
        train.run(configure(base, masking__rate=0.4), tmp_path, command=[])


@pytest.mark.fault(23)
@pytest.mark.parametrize("room", ["enough for 4 rows", "none"])
def test_out_of_memory_names_the_accumulation_that_fits(
    base, tmp_path, monkeypatch, capsys, room, one_device
):
    """The estimate is that of a dry run, which with that accumulation is within what there is."""
    config = configure(base)

    def taken(parts: int) -> int:
        changed = dataclasses.replace(
            config, optim=dataclasses.replace(config.optim, accumulation=parts)
        )
        return sum(
            memory.estimate(
                changed,
                prepare.prepare_corpus(config).tokenizer.size,
                sharding.make_mesh(config.parallel),
            )
        )

    def exhausted(*args, **settings):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 999 bytes.\nmore"
        )

    assert taken(1) > taken(2) > taken(4)
    state = memory.estimate(config, 64, sharding.make_mesh(config.parallel))[0]
    monkeypatch.setattr(memory, "device_bytes", lambda: taken(4) if room != "none" else state // 2)
    monkeypatch.setattr(program, "compile_update", lambda *args, **settings: exhausted)
    words = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}"]
    assert cli.execute(words) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()[-2:]
    assert error.startswith("error: out of memory on a device: an update is estimated to take ")
    assert "(RESOURCE_EXHAUSTED: Out of memory while trying to allocate 999 bytes.)" in error
    if room == "none":
        assert hint.startswith("hint: no optim.accumulation is enough")
    else:
        assert hint.startswith("hint: --config.optim.accumulation=4 keeps batches of 16 in about ")
        train.run(configure(base, optim__accumulation=4), tmp_path / "w", dry_run=True, command=[])
        assert f"memory/device   {memory.readable(taken(4))}" in capsys.readouterr().out


@pytest.mark.fault(23)
@pytest.mark.parametrize("large", ["model.layers=1000", "optim.accumulation=1"])
def test_train_refuses_what_no_memory_can_hold(base, tmp_path, monkeypatch, capsys, large):
    """At once: nothing is prepared, compiled or written."""
    monkeypatch.setattr(prepare, "prepare_corpus", None)
    monkeypatch.setattr(memory, "device_bytes", lambda: 2**30)
    size = "model.hidden=65536" if "layers" in large else "batch_size=1048576"
    words = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}"]
    shape = ["--config.model.heads=1", "--config.sequence_length=512", f"--config.{size}"]
    assert cli.execute([*words, *shape, f"--config.{large}"]) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()
    # Weights of 1,000 layers, and inputs of one layer of 64, by hand; 8 devices have 8 GiB.
    least = 12 * 12 * 65536**2 * 1000 if "layers" in large else 2 * 2**20 * 512 * 64
    assert least > 8 * 2**30
    number, unit = memory.readable(least).split()
    found = re.search(rf" take ([\d.]+) {unit} or more, ", error)
    assert float(found[1]) == pytest.approx(float(number), rel=0.01)
    assert error.endswith("or more, and the memory of all devices is 8.0 GiB")
    assert hint == "hint: " + (
        "lower model.layers or model.hidden"
        if "layers" in large
        else "lower batch_size and evals.NAME.batch_size, or raise optim.accumulation"
    )
    assert not (tmp_path / "w").exists()


@pytest.mark.fault(23)
@pytest.mark.parametrize("share", [0.5, 2])
def test_room_for_each_of_several_runs_is_said(base, monkeypatch, share):
    """Where a run fits alone, neither its layers nor its batches are too large."""
    config = configure(base, batch_size=64, sequence_length=64)
    state, batches = costs.least_bytes(config, 0)
    count = math.ceil(share * batches / state) + 1
    room = state + batches
    monkeypatch.setattr(memory, "device_bytes", lambda: math.ceil(room / jax.device_count()))
    memory.check_room(config, 0)
    with pytest.raises(ConfigError) as caught:
        memory.check_room(config, 0, count)
    assert str(caught.value).startswith(f"{count} runs that train together take ")
    assert "--fuse=never" in caught.value.hint


@pytest.mark.fault(20)
@pytest.mark.parametrize(
    "knob",
    [
        *("steps=100000000000000000000", "epochs=1e300", "batch_size=1000000000000"),
        *("model.hidden=100000000", "model.layers=100000000"),
        "evals.validation.batch_size=1000000000",
    ],
)
def test_train_refuses_an_absurd_number(base, tmp_path, capsys, knob):
    words = ["train", f"--config={base}", f"--workdir={tmp_path / 'w'}", f"--config.{knob}"]
    assert cli.execute(words) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()
    assert error.startswith(f"error: config.{knob.partition('=')[0]} = ")
    assert error.endswith("is out of range")
    assert hint.startswith("hint: from ")


@pytest.mark.fault(23)
def test_out_of_memory_anywhere_is_no_internal_error(monkeypatch, capsys):
    def exhausted(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr("bert_jax.doctor.run", exhausted)
    assert cli.execute(["doctor"]) == 2
    assert capsys.readouterr().err.startswith("error: out of memory on a device")


def test_a_dry_run_counts_and_writes_nothing(base, tmp_path, capsys):
    train.run(configure(base, optim__warmup_steps=60), tmp_path / "none", dry_run=True, command=[])
    text, said = capsys.readouterr()
    assert (
        "warning: optim.warmup_steps = 60 exceeds steps = 30: the learning rate ends at 0.48 of "
        "its peak" in said
    )
    assert not (tmp_path / "none").exists()
    first, _, tree = text.partition("\n{\n")
    assert [line.split()[0] for line in first.splitlines()] == [
        *("parameters", "memory/device", "devices", "steps"),
    ]
    assert resolve(json.loads(f"{{{tree}")).steps == 30
    d, v = 64, 128  # the table is padded to 128 rows
    layer = 4 * (d * d + d) + 2 * (d * 4 * d) + 4 * d + d + 4 * d
    expected = (
        v * d
        + 512 * d
        + 2 * d
        + 2 * d
        + layer
        + (d * d + d)
        + (d * d + d + 2 * d + v)
        + (2 * d + 2)
    )
    assert f"parameters      {expected:,}" in text
    assert math.isfinite(expected)

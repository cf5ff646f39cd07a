"""Effects of knobs that no room tests: on shapes, on the program that is traced, on what a run
leaves behind.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import clusters

from bert_jax import config as configs
from bert_jax import sharding, train
from bert_jax.batch import Encoded
from bert_jax.config import knobs, load_file, override, resolve
from bert_jax.data import corpus, files, pipeline, prepare, sentences, tfds
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.errors import ConfigError, DivergedError
from bert_jax.evaluation import corpus as evaluation
from bert_jax.evaluation import metrics
from bert_jax.interop import runs
from bert_jax.models import backends
from bert_jax.models.attention_mask import make_attention_mask
from bert_jax.models.encoder import Block, Encoder, FeedForward
from bert_jax.models.heads import MlmHead
from bert_jax.models.layers import make_norm
from bert_jax.objectives import network
from bert_jax.studies import definition
from bert_jax.system.trees import flat
from bert_jax.training import data as training_data
from bert_jax.training import optim, processes
from bert_jax.training import program as steps
from bert_jax.training import run as arms
from bert_jax.training.step import (
    accumulate,
    apply_gradient,
    compute_inputs,
    init_state,
    make_update,
)
from bert_jax.training.writer import Writer
from tests import corpora, reference, texts, toy

# --- seeds ----------------------------------------------------------------------------------------


def test_seed_is_of_weights_and_masks_and_data_seed_of_neither():
    """What data_seed does, and that seed does not do it, is shown in test_pipeline."""
    base, other, data = toy.config(), toy.config(seed=1), toy.config(data_seed=1)

    @jax.jit
    def init(seed):
        return network.init(base, toy.VOCAB, seed)["encoder"]["embeddings"]["token"]

    def weights(config: knobs.Config) -> np.ndarray:
        return np.asarray(init(compute_inputs(config, 0).seed))

    def inputs(config: knobs.Config) -> np.ndarray:
        return toy.mask(toy.batch(4, 24), config.masking, int(compute_inputs(config, 0).seed))[0][
            "inputs"
        ]

    for result in (weights, inputs):
        assert (result(base) == result(data)).all()
        assert (result(base) != result(other)).any()


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knob", "value", "name", "shape"),
    [
        ("layers", 3, "encoder/layer_2/mlp/up/kernel", (32, 128)),
        ("hidden", 48, "encoder/layer_0/mlp/up/kernel", (48, 192)),
        ("heads", 2, "encoder/layer_0/attention/query/kernel", (32, 2, 16)),
        ("mlp", 40, "encoder/layer_0/mlp/down/kernel", (40, 32)),
        ("embedding", 24, "encoder/embeddings/position", (64, 24)),
        ("embedding", 24, "encoder/projection/kernel", (24, 32)),
        ("embedding", 24, "mlm/dense/kernel", (32, 24)),
        ("max_positions", 100, "encoder/embeddings/position", (100, 32)),
        ("type_vocab", 5, "encoder/embeddings/type", (5, 32)),
        ("vocab_multiple", 7, "encoder/embeddings/token", (63, 32)),
        ("vocab_multiple", 7, "mlm/bias", (63,)),
    ],
)
def test_a_size_is_the_shape_of_a_parameter(knob, value, name, shape):
    config = toy.config(**{f"model__{knob}": value})
    shapes = flat(jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0))))
    assert shapes[name].shape == shape


@pytest.mark.parametrize(
    "position", ["learned", "sinusoidal", "rotary", "alibi", "relative", "none"]
)
def test_only_without_positions_does_a_token_not_know_its_place(position):
    config = toy.config(model__position=position, model__layers=1)
    b = {k: np.zeros((1, 8), np.int32) for k in ("type_ids", "unit_ids")}
    b |= {
        "tokens": np.arange(10, 18)[None],
        "positions": np.arange(8)[None],
        "segment_ids": np.ones((1, 8), int),
    }
    swapped = np.array([0, 1, 6, 3, 4, 5, 2, 7])
    model = Encoder(config.model, toy.VOCAB, pool=False)
    params = toy.draw_parameters(model, b)
    run = jax.jit(lambda tokens: model.apply({"params": params}, {**b, "tokens": tokens}).hidden[0])
    one, other = (np.asarray(run(t)) for t in (b["tokens"], b["tokens"][:, swapped]))
    assert np.allclose(one[swapped], other, atol=1e-4) == (position == "none")


def test_pre_norm_leaves_the_residual_stream_alone_and_post_norm_normalises_it():
    x = np.random.default_rng(1).normal(size=(1, 5, 32)).astype(np.float32)
    one_text = {"segment_ids": np.ones((1, 5), int), "positions": np.arange(5)[None]}
    inputs = (x, make_attention_mask(one_text, toy.config().model))
    for norm in ("pre", "post"):
        config = toy.config(model__norm=norm)
        layer = Block(config.model, 0, train=False, backend="einsum")
        params = toy.draw_parameters(layer, *inputs)
        for block in (params["attention"]["out"], params["mlp"]["down"]):  # blocks that add nothing
            block["kernel"][:] = block["bias"][:] = 0
        params["mlp_norm"]["scale"][:], params["mlp_norm"]["bias"][:] = 3, 7
        out = np.asarray(layer.apply({"params": params}, *inputs))
        if norm == "pre":
            np.testing.assert_array_equal(out, x)
        else:
            np.testing.assert_allclose(
                (out.mean(-1), out.std(-1)), (np.full((1, 5), 7), np.full((1, 5), 3)), rtol=1e-4
            )
        shapes = flat(jax.eval_shape(lambda c=config: network.init(c, toy.VOCAB, np.uint32(0))))
        assert ("encoder/final_norm/scale" in shapes) == (norm == "pre")


ACTIVATIONS = {
    "gelu": reference.gelu,
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_feed_forward_and_the_head_are_their_formulas(activation):
    random = np.random.default_rng(0)
    x, function = random.normal(size=(1, 5, 32)), ACTIVATIONS[activation]
    single = jnp.asarray(x, jnp.float32)
    for gated in (True, False):
        config = toy.config(model__activation=activation, model__gated=gated, model__mlp=40).model
        params = toy.draw_parameters(FeedForward(config), single)
        gate = reference.dense(x, params["gate"]) if gated else 1
        expected = reference.dense(
            function(reference.dense(x, params["up"])) * gate, params["down"]
        )
        ours = FeedForward(config).apply({"params": params}, single)
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=2e-5)
    config = toy.config(
        model__head_activation=activation, model__activation="relu", model__vocab_multiple=1
    ).model
    encoded = Encoded(single, None, jnp.asarray(random.normal(size=(toy.VOCAB, 32)), jnp.float32))
    slots = {"predict_positions": np.array([[1, 4, 2]])}
    params = toy.draw_parameters(MlmHead(config, toy.VOCAB), encoded, slots)
    hidden = function(reference.dense(x[0, [1, 4, 2]], reference.widen(params["dense"])))
    logits = (
        reference.norm(hidden, reference.widen(params["norm"]))
        @ np.asarray(encoded.embedding_table).T
    )
    ours = MlmHead(config, toy.VOCAB).apply({"params": params}, encoded, slots)
    np.testing.assert_allclose(ours[0], logits + params["bias"], rtol=1e-4, atol=2e-5)


def test_epsilon_is_added_to_the_variance():
    x = np.random.default_rng(0).normal(size=(3, 32))
    for epsilon in (1e-12, 0.5):
        ours = make_norm(toy.config(model__norm_epsilon=epsilon).model).apply(
            {"params": {"scale": jnp.ones(32), "bias": jnp.zeros(32)}}, jnp.asarray(x, jnp.float32)
        )
        expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + epsilon)
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_the_bias_is_what_a_forbidden_score_gets():
    """A forbidden score that is higher by just the bias has the weight of the allowed one."""
    batch = {"segment_ids": np.array([[1, 2]]), "positions": np.array([[0, 0]])}
    for value in (-10_000.0, -1_000.0):
        cfg = toy.config(model__attention_bias=value).model
        query, key = np.array([[1, 1]]), np.array([[0, -value]])
        operands = [np.float32(x)[..., None, None] for x in (query, key, key)]  # [1, 2, 1, 1]
        mask = make_attention_mask(batch, cfg)
        _, found = backends.attend_by_einsum(*operands, mask, cfg, lambda x: x)
        np.testing.assert_array_equal(found[0, 0, 0], [0.5, 0.5])


@functools.cache
def abstract(**overrides: object):
    """Config, loss of parameters, and shapes of parameters and a masked batch."""
    config = toy.config(**overrides)
    b, _ = toy.mask(toy.batch(4, 24), config.masking, slots=8)
    params = jax.eval_shape(lambda: network.init(config, toy.VOCAB, np.uint32(0)))
    model = network.build(config, toy.VOCAB)

    def loss(params):
        return sum(jnp.sum(jnp.sin(x)) for x in network.outputs(model, params, b).values())

    return config, loss, params, b


def test_a_scan_is_a_loop_in_the_program():
    for scan in (True, False):
        _, loss, params, _ = abstract(model__scan=scan)
        assert ("stablehlo.while" in jax.jit(loss).lower(params).as_text()) == scan


def test_remat_keeps_less_for_the_backward_pass():
    def kept(**overrides: object) -> int:
        _, loss, params, _ = abstract(model__layers=4, **overrides)
        backward = jax.eval_shape(lambda p: jax.vjp(loss, p)[1], params)
        return sum(x.size for x in jax.tree.leaves(backward))

    layer_inputs, widest = (
        4 * 4 * 24 * 32,
        4 * 4 * 24 * 128,
    )  # of four layers: what comes in, and one feed-forward array
    for scan in (True, False):
        assert kept(model__scan=scan) > kept(model__scan=scan, model__remat="full") + widest
        assert kept(model__scan=scan, model__remat="full") > layer_inputs
        dots = kept(model__scan=scan, model__remat="dots")
        assert kept(model__scan=scan, model__remat="full") < dots < kept(model__scan=scan)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_compute_type_is_that_of_vectors_and_never_of_logits(dtype):
    config, _, params, b = abstract(model__dtype=dtype)
    model = Encoder(config.model, toy.VOCAB)
    assert (
        jax.eval_shape(lambda p: model.apply({"params": p}, b), params["encoder"]).hidden.dtype
        == dtype
    )
    logits = jax.eval_shape(
        lambda p: network.outputs(network.build(config, toy.VOCAB), p, b), params
    )
    assert {x.dtype for x in logits.values()} == {jnp.dtype("float32")}


# --- updates --------------------------------------------------------------------------------------


def test_an_update_clips_decays_and_steps_as_configured():
    p, g = np.array([3.0, -4.0]), np.array([6.0, 8.0])  # the gradient's norm is 10
    for rate, decay, limit in ((0.1, 0.0, 0.0), (0.1, 0.0, 1.0), (0.1, 0.5, 1.0), (0.3, 0.5, 20.0)):
        config = toy.config(
            optim__name="adam2018",
            optim__schedule="constant",
            optim__learning_rate=rate,
            optim__weight_decay=decay,
            optim__clip_norm=limit,
            optim__no_decay="",
            optim__epsilon=1.0,
        )
        params = {"kernel": jnp.asarray(p, jnp.float32)}
        moments = optim.build_optimizer(config.optim, params, 0.0).init(params)
        state = {
            "params": params,
            "optimizer": moments,
            "step": 0,
            "skipped": 0,
            "skipped_in_row": 0,
        }
        grads = {"kernel": jnp.asarray(g, jnp.float32)}
        after, norm = apply_gradient(config.optim, state, grads, compute_inputs(config, 7))
        clipped = g * (min(1.0, limit / 10) if limit else 1)
        direction = 0.1 * clipped / (np.sqrt(0.001 * clipped**2) + 1) + decay * p
        np.testing.assert_allclose(after["params"]["kernel"], p - rate * direction, rtol=1e-5)
        assert norm == pytest.approx(10)


@pytest.mark.parametrize("warmup", [0, 1, 4, 10])
def test_the_peak_comes_after_the_warm_up(warmup):
    rates = [
        float(compute_inputs(toy.config(optim__warmup_steps=warmup, steps=10), i).learning_rate)
        for i in range(10)
    ]
    falling = [(10 - i) / (10 - warmup) for i in range(warmup, 10)]
    assert rates == pytest.approx(
        [1e-3 * share for share in [*(i / warmup for i in range(warmup)), *falling]]
    )


@pytest.mark.parametrize(
    ("pattern", "spared"),
    [("", set()), ("kernel$", {"a/kernel", "b/kernel"}), ("^b/", {"b/kernel", "b/bias"})],
)
def test_names_that_match_do_not_decay(pattern, spared):
    params = {
        "a": {"kernel": np.ones(3, np.float32), "bias": np.ones(3, np.float32)},
        "b": {"kernel": np.ones(3, np.float32), "bias": np.ones(3, np.float32)},
    }
    still = jax.tree.map(np.zeros_like, params)
    tx = optim.build_optimizer(knobs.Optim(no_decay=pattern), params, 0.25)
    direction, _ = tx.update(still, tx.init(params), params)
    assert {name: float(d[0]) for name, d in flat(direction).items()} == {
        name: 0.0 if name in spared else 0.25 for name in flat(params)
    }


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_microbatch_holds_its_share_of_the_rows(parts):
    """And each row is in one of them: the sums are those of the whole batch, whatever the parts."""
    sizes = set()

    def loss(params, micro, key):
        sizes.add(micro["x"].shape[0])
        return jnp.sum(params * micro["x"]), {
            "rows": (jnp.sum(micro["x"]), jnp.float32(len(micro["x"])))
        }

    config = toy.config(optim__accumulation=parts)
    x = jnp.arange(16, dtype=jnp.float32)
    found = accumulate(loss, jnp.float32(1), {"x": x}, jax.random.key(0), config.optim.accumulation)
    assert sizes == {16 // parts}
    assert (float(found[0]), tuple(map(float, found[1]["rows"]))) == (120, (120, 16))


def test_a_run_gives_up_after_so_many_updates_in_a_row():
    for limit in (1, 3):
        config = toy.config(optim__nonfinite_limit=limit)
        for in_row in range(limit):
            arms.check_learned({"skipped_in_row": (in_row, 1)}, np.arange(3), 9, config)
        with pytest.raises(DivergedError, match=f"{limit} updates in a row"):
            arms.check_learned({"skipped_in_row": (limit, 1)}, np.arange(3), 9, config)


# --- devices --------------------------------------------------------------------------------------


def test_the_mesh_is_as_wide_as_asked_for():
    def shape(**settings: int) -> tuple[int, ...]:
        return tuple(sharding.make_mesh(knobs.Parallel(**settings)).shape.values())

    assert shape() == shape(data=8) == (1, 8, 1)
    assert shape(fsdp=2) == shape(fsdp=2, data=4) == (1, 4, 2)
    with pytest.raises(ConfigError, match=r"data 4 x fsdp 1 != 8 devices"):
        shape(data=4)


def test_processes_join_where_asked_to(monkeypatch):
    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **settings: joined.append(settings))
    monkeypatch.setenv("JAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("JAX_PROCESS_ID", "2")
    processes.start_processes(knobs.Parallel())
    assert joined == []
    processes.start_processes(knobs.Parallel(distributed=True))
    expected = {"num_processes": 3, "process_id": 2, "local_device_ids": None}
    assert joined == [{**expected, "heartbeat_timeout_seconds": processes.HEARTBEAT}]


@pytest.mark.parametrize(
    ("variables", "visible"),
    [
        ({"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "1"}, None),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x2)"}, [3]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, [3]),
        ({"SLURM_STEP_TASKS_PER_NODE": "1", "JAX_LOCAL_DEVICE_IDS": "0,1"}, [0, 1]),
    ],
)
def test_process_alone_on_its_node_takes_all_devices(variables, visible, monkeypatch):
    """Left to itself, jax takes the device of the process's place on the node: one of eight."""
    slurm = {"JOB_ID": "7", "STEP_NODELIST": "a,b", "NTASKS": "16", "PROCID": "3", "LOCALID": "3"}
    for name, text in {**{f"SLURM_{n}": t for n, t in slurm.items()}, **variables}.items():
        monkeypatch.setenv(name, text)
    given: dict = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **settings: given.update(settings))
    processes.start_processes(knobs.Parallel(distributed=True))
    # As jax.distributed.initialize goes on with what it was given.
    ids = given["local_device_ids"]
    if ids is None and "JAX_LOCAL_DEVICE_IDS" in variables:
        ids = [int(part) for part in variables["JAX_LOCAL_DEVICE_IDS"].split(",")]
    found = clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, ids, None, 1)
    assert (found[3] or None) == visible


@pytest.mark.parametrize(
    ("prng", "short"), [("threefry2x32", "fry"), ("rbg", "rbg"), ("unsafe_rbg", "urbg")]
)
def test_dropout_draws_from_the_generator_named_and_masks_from_threefry(prng, short):
    config = toy.config(parallel__prng=prng, model__dropout=0.1, model__layers=1)
    state = jax.eval_shape(lambda seed: init_state(config, toy.VOCAB, seed), np.uint32(0))
    update = make_update(config, toy.SPECIAL, toy.VOCAB)
    traced = str(jax.make_jaxpr(update)(state, toy.batch(2, 24), compute_inputs(config, 0)))
    assert {name for name in ("fry", "rbg", "urbg") if f"key<{name}>" in traced} == {"fry", short}


# --- text -----------------------------------------------------------------------------------------


def test_the_field_that_holds_the_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one", "body": "two"}\n')
    for field, expected in (("text", "one"), ("body", "two")):
        settings = knobs.Corpus(source="files", path=str(tmp_path), text_field=field)
        (item,) = files.list_items(settings, tmp_path)[0]
        (text,) = files.read_texts(item, settings)
        assert text.text == expected


def test_a_dataset_is_read_from_its_folder_split_and_field(monkeypatch):
    """A stand-in for the library; the library itself is asked in test_prepare."""

    def rows(name: str, folder: str, split: str) -> list[dict]:
        return [{"text": f"{name} of {folder}, {split}", "body": "another field"}]

    monkeypatch.setattr(tfds, "examples_of", rows)
    item = sentences.Item("", 1, (0, 1))
    for changes, expected in (
        ({}, "set of , train"),
        ({"tfds_dir": "here"}, "set of here, train"),
        ({"split": "test"}, "set of , test"),
        ({"text_field": "body"}, "another field"),
    ):
        settings = knobs.Corpus(source="tfds", path="set", **changes)  # type: ignore[arg-type]  # names of strings
        (text,) = tfds.read_texts(item, settings)
        assert text.text == expected


def test_the_language_decides_where_sentences_end():
    line = "Am 3. Oktober kam Herr Meier bzw. sein Sohn. Dann gingen sie."
    german = sentences.split_sentences(line, "de")
    assert german == [" Am 3. Oktober kam Herr Meier bzw. sein Sohn.", " Dann gingen sie."]
    assert sentences.split_sentences(line, "en")[0] == " Am 3."  # an English ordinal has no point


def test_as_many_workers_prepare_as_are_asked_for(tmp_path, monkeypatch):
    texts.write(tmp_path / "in", documents=5)
    monkeypatch.setattr(prepare.machine, "cores", lambda: 7)
    asked = []
    monkeypatch.setattr(
        prepare,
        "Workers",
        lambda count, real=prepare.Workers: asked.append(count) or real(min(count, 1)),
    )
    for workers in (2, 0):
        settings = knobs.Corpus(
            source="files",
            path=str(tmp_path / "in"),
            cache=f"{tmp_path}/{workers}",
            workers=workers,
        )
        config = knobs.Config(corpus=settings, tokenizer=knobs.Tokenizer(vocab_size=60))
        prepare.prepare_corpus(config, lambda _: None)
    assert asked == [2, 7]


def test_a_vocabulary_has_the_size_and_word_length_asked_for(tmp_path):
    lines = [" ".join(texts.document(np.random.default_rng(i), 4)) for i in range(30)]
    for size, longest in ((70, 200), (90, 3)):
        settings = knobs.Tokenizer(vocab_size=size, max_word_length=longest)
        found = train_vocabulary(lines, settings)
        assert found.size == size
        ids = found.encode_batch(["cat dog garden"])[0]
        assert ids.count(found.special.unk) == (longest == 3)  # garden alone is longer
        found.save(tmp_path / "t")
        for again in (3, 200):
            given = corpus.load_vocabulary(
                knobs.Tokenizer(path=str(tmp_path / "t"), max_word_length=again)
            )
            assert given.encode_batch(["cat dog garden"])[0].count(found.special.unk) == (
                again == 3
            )


# --- a run ----------------------------------------------------------------------------------------


COUNTED = ("masked", "mask_token", "random", "kept", "quota", "asked", "expected")
COUNTED += ("predicted", "predict_quota")


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Path:
    """The loop alone, ten steps of it; its update and its evaluations are stand-ins that compile
    nothing.
    """
    folder = tmp_path_factory.mktemp("knobs")
    tree = load_file(str(texts.config_file(folder)))
    for path, value in {
        "steps": 10,
        "batch_size": 8,
        "model.hidden": 32,
        "checkpoints.every": 2,
        "checkpoints.keep": 3,
        "checkpoints.at": 3,  # a step that is not a multiple, and that no later save removes
        "checkpoints.best": "",
        "logging.every": 3,
        "evals.validation.every": 4,
        "evals.last.every": 0,
    }.items():
        override(tree, path, str(value))
    nothing = {f"{name}_fraction": (0.0, 0.0) for name in COUNTED} | {"skipped_in_row": (0.0, 1.0)}
    worse = itertools.count(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            steps, "compile_update", lambda *_, **__: lambda state, batch, traced: (state, nothing)
        )
        patch.setattr(evaluation, "Evaluator", lambda *_: lambda params: {"mlm_loss": next(worse)})
        train.run(resolve(tree), folder / "run", command=[])
    return folder / "run"


@pytest.mark.slow
def test_a_run_saves_evaluates_and_logs_when_asked_to(ran):
    assert sorted(int(p.name) for p in (ran / "checkpoints").iterdir()) == [
        3,
        6,
        8,
        10,
    ]  # not 4, which was the best
    assert runs.open_run(str(ran)).step == 10
    lines = [json.loads(line) for line in (ran / "metrics.jsonl").read_text().splitlines()]
    at = {
        kind: [line["step"] for line in lines if any(key.startswith(kind) for key in line)]
        for kind in ("train/", "eval/validation/", "eval/last/")
    }
    assert at == {"train/": [3, 6, 9, 10], "eval/validation/": [4, 8, 10], "eval/last/": [10]}
    assert list((ran / "tensorboard").iterdir())


def evaluator(ran: Path, **settings: object) -> evaluation.Evaluator:
    config = runs.open_run(str(ran)).config
    chosen = knobs.Eval(**settings)  # type: ignore[arg-type]  # any of its fields
    return evaluation.Evaluator(
        config, prepare.prepare_corpus(config), chosen, sharding.make_mesh(knobs.Parallel())
    )


def masked(found: evaluation.Evaluator, b: dict) -> dict:
    """A batch under the masks of an evaluation; the special ids are those of toys."""
    return toy._apply(b, found.traced, knobs.Masking(), 32)[0]


def test_an_evaluation_predicts_the_share_it_names(ran):
    for rate in (0.15, 0.4):
        found = evaluator(ran, rate=rate)
        b = found.source.evaluation_batch(0, 16)
        predicted = masked(found, b)["predict_weights"].sum(1).tolist()
        assert predicted == [max(1, round(n * rate)) for n in (b["unit_ids"] >= 0).sum(1).tolist()]


def test_an_evaluation_has_units_pairs_and_masks_of_its_own(ran):
    config = runs.open_run(str(ran)).config
    prepared = prepare.prepare_corpus(config)
    for unit, seed in (("token", 0), ("word", 0), ("span", 5)):
        found = evaluator(ran, unit=unit, seed=seed)
        units = dataclasses.replace(config, masking=knobs.Masking(unit=unit))
        expected = pipeline.Source(prepared, "validation", units, seed=seed).evaluation_batch(0, 16)
        assert corpora.same(found.source.evaluation_batch(0, 16), expected)
    one, other = (evaluator(ran, seed=seed) for seed in (0, 1))
    b = one.source.evaluation_batch(0, 16)
    assert not corpora.same(b, other.source.evaluation_batch(0, 16))  # other pairs
    assert (
        masked(one, b)["inputs"] != masked(other, b)["inputs"]
    ).any()  # and other masks of the same pairs


def test_an_evaluation_without_a_size_takes_what_an_update_takes_at_once(ran):
    """A config keeps None, also where it is recorded; a change of it is no other run."""
    before = config = runs.open_run(str(ran)).config
    tree = configs.copied(configs.to_dict(config))
    configs.override(tree, "batch_size", "48")
    configs.override(tree, "optim.accumulation", "2")
    configs.override(tree, "evals.validation.batch_size", "None")
    config = configs.recorded(configs.to_dict(configs.resolve(tree)))
    assert config.evals["validation"].batch_size is None
    assert training_data.finalize(config, training_data.Facts()).evals == config.evals
    prepared, mesh = prepare.prepare_corpus(config), sharding.make_mesh(knobs.Parallel())
    found = evaluation.Evaluator(config, prepared, config.evals["validation"], mesh)
    assert found.rows == 24
    assert definition.identity(config) == definition.identity(
        dataclasses.replace(config, evals=before.evals)
    )


@pytest.mark.parametrize(("size", "rows"), [(1, 8), (8, 8), (13, 16)])
def test_an_evaluation_takes_batches_of_its_size(ran, size, rows):
    """Rounded up to the devices; that the result stays the same is shown in test_train."""
    found = evaluator(ran, batch_size=size)
    assert (found.rows, len(found._plan())) == (rows, -(-found.source.examples_per_epoch // rows))


@pytest.mark.parametrize(("name", "better"), [("mlm_loss", 0.5), ("nsp_accuracy", 0.7)])
def test_the_best_step_is_by_the_metric_named(name, better):
    """The lower is kept, and of an accuracy the higher; that its checkpoint stays is shown in
    test_train.
    """
    one, other = {"mlm_loss": 0.5, "nsp_accuracy": 0.6}, {"mlm_loss": 0.9, "nsp_accuracy": 0.7}
    assert min((one, other), key=lambda found: metrics.as_lower(name, found[name]))[name] == better


def test_events_are_written_where_asked_for(tmp_path):
    for index, settings in enumerate(({}, {"trackers": ()})):
        folder, wanted = tmp_path / str(index), not settings
        folder.mkdir()
        names = resolve({"logging": settings}).logging.trackers
        made = Writer(folder, 10, 0, names)
        made.write(1, {"train/loss": 1.0})
        made.close()
        assert bool(list(folder.rglob("events*"))) == wanted

"""Every attention backend against a plain statement of it in numpy, in values and in gradients."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import sharding
from bert_jax.config import devices, knobs
from bert_jax.errors import ConfigError
from bert_jax.models import backends
from bert_jax.models.attention_mask import make_attention_mask
from bert_jax.models.matmul import KINDS
from bert_jax.models.positions import make_slopes
from bert_jax.objectives import network
from tests import toy

ROWS, LENGTH, HEADS, WIDTH = 3, 256, 2, 8  # two blocks of splash's in either direction
# As a CPU can run them: cudnn's arguments are those that XLA takes too, splash is interpreted.
BACKENDS = {
    "einsum": functools.partial(backends.attend_by_einsum, drop=lambda x: x),
    "cudnn": functools.partial(backends.attend_fused, implementation="xla"),
    "splash": functools.partial(backends.attend_by_splash, interpret=True),
}
FORMS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window": 20},
    "causal window": {"causal": True, "window": 20},
    "alibi": {"position": "alibi"},
    "causal window with alibi": {"causal": True, "window": 20, "position": "alibi"},
}
PAIRS = [
    (name, form) for name in BACKENDS for form in FORMS if name != "splash" or "alibi" not in form
]


def model(**overrides):
    return dataclasses.replace(
        toy.config(model__heads=HEADS).model, hidden=HEADS * WIDTH, **overrides
    )


def layout(packed: bool, rows=ROWS, length=LENGTH):
    """A batch of text and padding, with a row of padding alone."""
    b = toy.batch(rows, length, seed=3, examples=4 if packed else 1)
    return {key: np.concatenate([value[:-1], np.zeros_like(value[:1])]) for key, value in b.items()}


def operands(seed=0, rows=ROWS, length=LENGTH):
    """Queries, keys, values, and what the gradient of the weighted sum is."""
    return (
        np.random.default_rng(seed).normal(size=(4, rows, length, HEADS, WIDTH)).astype(np.float32)
    )


def seen(segments, causal, window):
    """Which token of a row looks at which, token by token."""
    n = len(segments)
    pairs = [[segments[i] == segments[j] != 0 for j in range(n)] for i in range(n)]
    for i in range(n):
        for j in range(n):
            pairs[i][j] &= not (causal and j > i) and not (window and abs(i - j) > window)
    return np.array(pairs)


def plain(query, key, value, cotangent, batch, cfg):
    """The weighted sum and the gradients of q, k and v, in float64; zero at padding."""
    found = np.zeros((4, *query.shape))
    for row in range(len(query)):
        where = seen(batch["segment_ids"][row], cfg.causal, cfg.window)
        real = np.flatnonzero(where.any(1))
        if not len(real):
            continue
        mask, at = where[np.ix_(real, real)], batch["positions"][row, real].astype(np.float64)
        for head in range(HEADS):
            q, k, v, d = (
                x[row, real, head].astype(np.float64) for x in (query, key, value, cotangent)
            )
            scores = q @ k.T / np.sqrt(WIDTH)
            if cfg.position == "alibi":
                scores -= make_slopes(HEADS)[head] * np.abs(at[:, None] - at[None, :])
            weights = np.where(mask, np.exp(scores - scores.max(1, keepdims=True)), 0)
            weights /= weights.sum(1, keepdims=True)
            inner = d @ v.T
            slope = weights * (inner - (weights * inner).sum(1, keepdims=True)) / np.sqrt(WIDTH)
            for part, value_ in enumerate((weights @ v, slope @ k, slope.T @ q, weights.T @ d)):
                found[part, row, real, head] = value_
    return found


def attend(name, cfg, batch, *operands):
    """The weighted sum of a backend."""
    mask = make_attention_mask(batch, cfg, cfg.window)
    return BACKENDS[name](*operands, mask=mask, cfg=cfg)[0]


@functools.cache
def run(name, form, packed, dtype="float32"):
    """What a backend returns and its gradients; gradients if padding were read; the batch; what is
    expected.
    """
    cfg, batch = model(**FORMS[form], dtype=dtype), layout(packed)
    query, key, value, cotangent = operands()
    cotangent = np.where((batch["segment_ids"] > 0)[..., None, None], cotangent, 0)

    @jax.jit
    def compute(query, key, value, cotangent):
        out, pull = jax.vjp(lambda *x: attend(name, cfg, batch, *x), query, key, value)
        return (out, *pull(cotangent.astype(out.dtype))), pull(jnp.ones_like(out))

    single = [jnp.asarray(x, KINDS[dtype].result) for x in (query, key, value)]
    found, everywhere = jax.device_get(compute(*single, cotangent))
    return found, everywhere, batch, plain(query, key, value, cotangent, batch, cfg)


@pytest.mark.parametrize("packed", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "form"), PAIRS)
def test_backends_equal_the_plain_statement(name, form, packed):
    (context, *gradients), everywhere, batch, (expected, *slopes_) = run(name, form, packed)
    real = batch["segment_ids"] > 0
    np.testing.assert_allclose(context[real], expected[real], atol=2e-5)
    for ours, theirs in zip(
        gradients, slopes_, strict=True
    ):  # at padding, too: nothing of it is anybody's
        np.testing.assert_allclose(ours, theirs, atol=2e-5 * np.abs(theirs).max())
    assert all(np.isfinite(x).all() for x in (context, *everywhere))


@pytest.mark.parametrize("name", BACKENDS)
def test_backends_in_bfloat16_are_near(name):
    (context, *gradients), _, batch, (expected, *slopes_) = run(
        name, "window", True, dtype="bfloat16"
    )
    assert {x.dtype for x in (context, *gradients)} == {jnp.dtype("bfloat16")}
    real = batch["segment_ids"] > 0
    np.testing.assert_allclose(np.float32(context)[real], expected[real], atol=0.03)
    for ours, theirs in zip(gradients, slopes_, strict=True):
        np.testing.assert_allclose(np.float32(ours), theirs, atol=0.03 * np.abs(theirs).max())


# --- in the model ---------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch):
    """A function that makes every pass take a backend, as a CPU can run it."""

    def take(name):
        monkeypatch.setattr(backends, "choose_backend", lambda *_, **__: name)
        table = BACKENDS | {"einsum": backends.attend_by_einsum}
        monkeypatch.setattr(backends, "TABLE", table)

    return take


# --- which one ------------------------------------------------------------------------------------

FITTING = {"cuda": {"model__dtype": "bfloat16"}, "tpu": {}}


@pytest.fixture
def on(monkeypatch):
    """A function that makes backends believe in another kind of device, one of it unless told
    otherwise.
    """

    def device(kind, count=1):
        monkeypatch.setattr(devices, "find_kind", lambda: kind)
        monkeypatch.setattr(devices, "list_all", lambda: [None] * count)

    return device


def resolved(length=128, train=True, capture=False, **overrides):
    model = devices.settle_model(toy.config(**overrides).model, train=train)
    return backends.choose_backend(model, length, train=train, capture=capture)


@pytest.mark.parametrize(
    ("kind", "name"), [("cpu", "einsum"), ("cuda", "cudnn"), ("tpu", "splash"), ("rocm", "einsum")]
)
def test_auto_is_what_the_device_prefers(kind, name, on):
    on(kind)
    fitting = FITTING.get(kind, {})
    dropping = {**fitting, "model__attention_dropout": 0.1}
    assert resolved(**fitting) == name
    assert resolved(**dropping) == "einsum"
    assert resolved(**dropping, train=False) == name
    assert resolved(**fitting, capture=True) == "einsum"
    assert resolved(**fitting, model__attention="einsum") == "einsum"


@pytest.mark.parametrize(
    ("kind", "length", "misfit"),
    [
        ("cuda", 128, {"model__dtype": "float32"}),
        ("cuda", 127, {}),
        ("cuda", 128, {"model__hidden": 48}),  # heads of 12
        ("cuda", 128, {"model__hidden": 544}),  # of 136
        ("tpu", 100, {}),
        ("tpu", 128, {"model__position": "alibi"}),
        ("tpu", 128, {"model__position": "relative"}),
        ("cuda", 128, {"model__position": "relative"}),
    ],
)
def test_auto_is_einsum_where_another_cannot(kind, length, misfit, on):
    on(kind)
    assert resolved(length, **FITTING[kind] | misfit) == "einsum"


def test_splash_needs_a_mesh_to_be_split(on):
    """As training has it, and as it is under pmap."""
    found = []

    def look(x):
        found.append(resolved(model__attention="auto"))
        return x

    on("tpu", count=8)
    assert resolved() == "einsum"
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
        jax.jit(look)(jnp.zeros(8))
    jax.pmap(look, axis_name="data")(jnp.zeros(8))
    assert set(found) == {"splash"}


@pytest.mark.parametrize("fsdp", [1, 4])
def test_splash_is_split_by_rows(fsdp):
    """Over eight devices under jit it is what it is on one."""
    cfg, batch = model(window=20), layout(True, rows=8)
    query, key, value, _ = operands(rows=8)
    mesh = sharding.make_mesh(knobs.Parallel(fsdp=fsdp))

    def sums(*x):
        return jnp.sum(jnp.sin(attend("splash", cfg, batch, *x)))

    alone = jax.jit(jax.grad(sums, (0, 1, 2)))(query, key, value)
    with jax.set_mesh(mesh):
        rows = jax.NamedSharding(mesh, sharding.BATCH)
        split = jax.jit(jax.grad(sums, (0, 1, 2)), in_shardings=rows)
        together = split(query, key, value)
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


NAMED = {"model__attention": "cudnn", "model__dtype": "bfloat16"}


def test_named_backend_binds_only_training(on):
    assert resolved(**NAMED, train=False) == "einsum"  # on this machine's CPU
    with pytest.raises(
        ConfigError, match=r"model\.attention = 'cudnn': it does not run on this machine's cpu"
    ) as error:
        resolved(**NAMED)
    assert "--config.model.attention=auto" in error.value.hint
    on("cuda")
    assert resolved(**NAMED) == "cudnn"
    with pytest.raises(ConfigError, match="no probabilities"):
        resolved(**NAMED, capture=True)
    with pytest.raises(ConfigError, match="rows of 33 tokens"):
        resolved(33, **NAMED)
    assert resolved(**NAMED, capture=True, train=False) == "einsum"
    on("tpu", count=4)
    with pytest.raises(ConfigError, match="no mesh says how to split it"):
        resolved(model__attention="splash")


def test_cudnn_is_not_given_runs_under_vmap(on):
    """Under vmap, jax 0.10 hands it the rows of all arms beside a mask for those of one."""
    on("cuda")
    half = toy.config(model__dtype="bfloat16").model
    assert backends.settle_for_vmap(half).attention == "einsum"
    with pytest.raises(ConfigError, match="all at once") as error:
        backends.settle_for_vmap(toy.config(**NAMED).model)
    assert "arms=map" in error.value.hint
    on("tpu")
    assert backends.settle_for_vmap(half).attention == "auto"


# --- what a GPU is given --------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_program_for_a_gpu_calls_cudnn(packed, taken, monkeypatch):
    """Lowered as far as it can be without one: its kernel forwards and backwards, with a bias only
    where it must.
    """
    library = pytest.importorskip(
        "jax._src.cudnn.fused_attention_stablehlo", reason="it has moved in this jax"
    )
    monkeypatch.setattr(
        library, "check_cudnn_version", lambda: 91_000
    )  # asked of the library, which is not here
    taken("cudnn")
    monkeypatch.setattr(backends, "TABLE", {"cudnn": backends.attend_fused})
    config = toy.config(model__dtype="bfloat16", model__causal=True, model__window=9, pairs="none")
    b, _ = toy.mask(toy.batch(4, 24, examples=2 if packed else 1), config.masking, slots=8)
    params, built = toy.init(config), network.build(config, toy.VOCAB)
    loss = jax.jit(jax.grad(lambda p: jnp.sum(jnp.sin(network.outputs(built, p, b)["mlm"]))))
    program = loss.trace(params).lower(lowering_platforms=("cuda",)).as_text()
    kernel = "__cudnn$fmhaScaleBiasSoftmax" if packed else "__cudnn$fmhaSoftmax"
    assert f"{kernel}(" in program
    assert f"{kernel}Backward(" in program
    assert "x24x24xf32" not in program  # the scores, which einsum has in memory
    assert ("sliding_window_length\\22: 10" in program) == (not packed)
    assert ("\\22mask_type\\22: \\22PADDING_CAUSAL" in program) == (not packed)

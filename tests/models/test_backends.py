"""Every attention backend against a plain statement in float64, in values and in gradients."""

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
from bert_jax.models.positions import make_slopes
from bert_jax.objectives import network
from tests import tiny

LENGTH, HEADS, WIDTH = 256, 2, 8  # two blocks of splash's in either direction
# As a CPU can run them: cudnn's arguments are those that XLA takes too, splash is interpreted.
BACKENDS = {
    "einsum": functools.partial(backends.attend_by_einsum, drop=lambda x: x),
    "cudnn": functools.partial(backends.attend_fused, implementation="xla"),
    "splash": functools.partial(backends.attend_by_splash, interpret=True),
}
BOTH = "causal window with alibi"
LOWEST = float(np.finfo(np.float32).min)  # of a forbidden score, as in Hugging Face
FORMS = {
    "all": {},
    "causal": {"causal": True},
    "window": {"window": 20},
    "causal window": {"causal": True, "window": 20},
    "alibi": {"position": "alibi", "attention_bias": LOWEST},
    BOTH: {"causal": True, "window": 20, "position": "alibi"},
}
# Rows of several examples, but for those of cudnn, which is told the lengths of rows of one.
CASES = [
    *(("einsum", form, True, "float32") for form in FORMS),
    *(("cudnn", form, False, "float32") for form in FORMS),
    *(("cudnn", form, True, "float32") for form in ("causal window", BOTH)),
    *(("splash", form, True, "float32") for form in ("causal", "window", "causal window")),
    ("einsum", "alibi", True, "bfloat16"),
    ("cudnn", "window", True, "bfloat16"),
    ("splash", "causal window", True, "bfloat16"),
]
TOLERANCES = {"float32": 2e-5, "bfloat16": 0.03}


def model(**overrides):
    config = tiny.config(model__heads=HEADS, model__hidden=HEADS * WIDTH)
    return dataclasses.replace(config.model, **overrides)


def layout(packed: bool, rows=2):
    """A batch of text and padding, with a row of padding alone, of positions far apart."""
    b = tiny.batch(rows, LENGTH, seed=3, examples=4 if packed else 1)
    for value in b.values():
        value[-1] = 0
    b["positions"][-1] = np.arange(LENGTH)
    return b


def operands(rows=2):
    """Queries, keys, values, and what the gradient of the weighted sum is."""
    shape = (4, rows, LENGTH, HEADS, WIDTH)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def plain(query, key, value, cotangent, batch, cfg):
    """The weighted sum and the gradients of q, k and v, in float64; zero at padding."""
    segments, at = batch["segment_ids"], batch["positions"].astype(np.float64)
    ahead = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
    seen = (segments[:, :, None] == segments[:, None]) & (segments > 0)[:, None]  # [B, L, L]
    if cfg.causal:
        seen &= ahead <= 0
    if cfg.window:
        seen &= np.abs(ahead) <= cfg.window
    slopes = np.float64(make_slopes(HEADS)) if cfg.position == "alibi" else np.zeros(HEADS)
    bias = -slopes[:, None, None] * np.abs(at[:, :, None] - at[:, None])[:, None]  # [B, H, L, L]

    def add_up(q, k, v):
        scores = jnp.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(WIDTH) + bias
        weights = jnp.where(seen[:, None], jnp.exp(scores), 0)
        weights /= jnp.maximum(weights.sum(-1, keepdims=True), 1e-99)
        return jnp.einsum("bhij,bjhd->bihd", weights, v)

    with jax.enable_x64(True):
        found, pull = jax.vjp(add_up, *(np.float64(x) for x in (query, key, value)))
        return found, *pull(jnp.float64(cotangent))


def attend(name, cfg, batch, *operands):
    """The weighted sum of a backend."""
    mask = make_attention_mask(batch, cfg, cfg.window)
    return BACKENDS[name](*operands, mask=mask, cfg=cfg)[0]


@pytest.mark.parametrize(("name", "form", "packed", "dtype"), CASES)
def test_backend_equals_the_plain_statement(name, form, packed, dtype):
    """Gradients at padding too, where they are 0; all numbers are finite."""
    cfg = model(**FORMS[form], dtype=dtype)
    atol = TOLERANCES[dtype]
    batch = layout(packed)
    real = batch["segment_ids"] > 0
    query, key, value, cotangent = operands()
    cotangent = np.where(real[..., None, None], cotangent, 0)

    @jax.jit
    def compute(*inputs):
        out, pull = jax.vjp(lambda *x: attend(name, cfg, batch, *x), *inputs)
        return (out, *pull(cotangent.astype(out.dtype))), pull(jnp.ones_like(out))

    found, everywhere = compute(*(jnp.asarray(x, dtype) for x in (query, key, value)))
    assert {x.dtype for x in found} == {jnp.dtype(dtype)}
    assert all(np.isfinite(np.float32(x)).all() for x in (*found, *everywhere))
    context, *gradients = map(np.float32, found)
    expected, *slopes = plain(query, key, value, cotangent, batch, cfg)
    np.testing.assert_allclose(context[real], expected[real], atol=atol)
    for ours, theirs in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=atol * np.abs(theirs).max())
        assert (ours[~real] == 0).all()


# --- which one ------------------------------------------------------------------------------------


@pytest.fixture
def on(monkeypatch):
    """A function that makes backends believe in one or several devices of another kind."""

    def device(kind, count=1):
        monkeypatch.setattr(devices, "find_kind", lambda: kind)
        monkeypatch.setattr(devices, "list_all", lambda: [None] * count)

    return device


def choose(length=128, train=True, returns_attention=False, **overrides):
    model = devices.fill_machine_knobs(tiny.config(**overrides).model, train=train)
    return backends.choose_backend(model, length, train=train, returns_attention=returns_attention)


HALF = {"model__dtype": "bfloat16"}
NAMED = HALF | {"model__attention": "cudnn"}
DROPPING = {"model__attention_dropout": 0.1}


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        ("cpu", {}, "einsum"),
        ("rocm", {}, "einsum"),
        ("cuda", HALF, "cudnn"),
        ("cuda", HALF | {"model__attention": "einsum"}, "einsum"),
        ("cuda", HALF | DROPPING, "einsum"),
        ("cuda", HALF | DROPPING | {"train": False}, "cudnn"),
        ("cuda", HALF | {"returns_attention": True}, "einsum"),
        ("cuda", {"model__dtype": "float32"}, "einsum"),
        ("cuda", HALF | {"length": 127}, "einsum"),
        ("cuda", HALF | {"model__hidden": 48}, "einsum"),  # heads of 12
        ("cuda", HALF | {"model__hidden": 544}, "einsum"),  # of 136
        ("cuda", HALF | {"model__position": "relative"}, "einsum"),
        ("tpu", {}, "splash"),
        ("tpu", {"length": 100}, "einsum"),
        ("tpu", {"model__position": "alibi"}, "einsum"),
        ("cuda", NAMED, "cudnn"),
        ("cuda", NAMED | {"returns_attention": True, "train": False}, "einsum"),
    ],
)
def test_choose_backend_takes_what_the_device_can(kind, settings, name, on):
    """auto is the backend that the device prefers, or einsum if that one cannot."""
    on(kind)
    assert choose(**settings) == name


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("cpu", NAMED, r"model\.attention = 'cudnn': it does not run on this machine's cpu"),
        ("cuda", NAMED | {"length": 33}, "rows of 33 tokens"),
        ("tpu", {"model__attention": "splash"}, "no mesh says how to split it"),
    ],
)
def test_choose_backend_refuses_a_named_one(kind, settings, said, on):
    """Only training has to have the backend that is named."""
    on(kind, count=4)
    with pytest.raises(ConfigError, match=said) as error:
        choose(**settings)
    assert "--config.model.attention=auto" in error.value.hint


def test_splash_needs_a_mesh_to_be_split(on):
    """As training has it, and as it is under pmap."""
    found = []

    def look(x):
        found.append(choose())
        return x

    on("tpu", count=8)
    assert choose() == "einsum"
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(mesh):
        jax.jit(look)(jnp.zeros(8))
    jax.pmap(look, axis_name="data")(jnp.zeros(8))
    assert set(found) == {"splash"}


def test_splash_is_split_by_rows():
    """Over eight devices under jit it is what it is on one."""
    cfg = model(window=20)
    batch = layout(True, rows=8)
    query, key, value, _ = operands(rows=8)
    mesh = sharding.make_mesh(knobs.Parallel(fsdp=4))

    def sums(*x):
        return jnp.sum(jnp.sin(attend("splash", cfg, batch, *x)))

    alone = jax.jit(jax.grad(sums, (0, 1, 2)))(query, key, value)
    with jax.set_mesh(mesh):
        rows = jax.NamedSharding(mesh, sharding.BATCH)
        split = jax.jit(jax.grad(sums, (0, 1, 2)), in_shardings=rows)
        together = split(query, key, value)
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_cudnn_is_not_given_runs_under_vmap(on):
    """Under vmap, jax 0.10 hands it the rows of all arms beside a mask for those of one."""
    on("cuda")
    half = tiny.config(**HALF).model
    assert backends.adapt_to_vmap(half).attention == "einsum"
    with pytest.raises(ConfigError, match="all at once") as error:
        backends.adapt_to_vmap(tiny.config(**NAMED).model)
    assert "arms=map" in error.value.hint
    on("tpu")
    assert backends.adapt_to_vmap(half).attention == "auto"


# --- what a GPU is given --------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_program_for_a_gpu_calls_cudnn(packed, monkeypatch):
    """Lowered as far as it can be without one: its kernel forwards and backwards, with a bias only
    where it must.
    """
    from jax._src.cudnn import fused_attention_stablehlo  # fails if it has moved

    # cuDNN itself is not here.
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91_000)
    config = tiny.config(model__dtype="bfloat16", model__causal=True, model__window=9, pairs="none")
    b, _ = tiny.mask(tiny.batch(4, 24, examples=2 if packed else 1), config.masking, slots=8)
    params, built = tiny.init(config), network.build_network(config, tiny.VOCAB)

    def lower(name: str) -> str:
        monkeypatch.setattr(backends, "choose_backend", lambda *_, **__: name)
        loss = jax.jit(
            jax.grad(lambda p: jnp.sum(jnp.sin(network.compute_outputs(built, p, b)["mlm"])))
        )
        return loss.trace(params).lower(lowering_platforms=("cuda",)).as_text()

    assert "x24x24xf32" in lower("einsum")  # the scores
    program = lower("cudnn")
    kernel = "__cudnn$fmhaScaleBiasSoftmax" if packed else "__cudnn$fmhaSoftmax"
    assert f"{kernel}(" in program
    assert f"{kernel}Backward(" in program
    assert "x24x24xf32" not in program
    assert ("sliding_window_length\\22: 10" in program) == (not packed)
    assert ("\\22mask_type\\22: \\22PADDING_CAUSAL" in program) == (not packed)

"""Evaluations during training are computed where the run's rows and parameters are."""

from __future__ import annotations

import re

import jax

from bert_jax import train
from bert_jax.data import prepare
from bert_jax.evaluation import corpus, inference
from bert_jax.objectives import network
from bert_jax.training.program import Program, mesh_for
from tests import texts


def test_evaluation_under_fsdp_gathers_no_activations(tmp_path):
    """The compiler gathers parameters and a few integers, never floats of all rows."""
    changes = {"parallel__fsdp": 4, "parallel__data": 2, "evals__validation__batch_size": 48}
    config = texts.configure(texts.config_file(tmp_path), model__hidden=64, **changes)
    prepared = prepare.prepare_corpus(config, log=lambda line: None)
    mesh = mesh_for(config)
    special, size = prepared.tokenizer.special, prepared.tokenizer.size
    program = Program(config, special, size, mesh, 1, 0)
    params = program.init(0)["params"]
    evaluator = corpus.Evaluator(config, prepared, config.evals["validation"], mesh)
    batch = inference.place(evaluator.source.evaluation_batch(0, evaluator.rows), mesh)
    with program.context():
        compiled = evaluator.step.lower(params, batch, evaluator.traced).compile()
    gathered = re.findall(r"= f32\[([\d,]+)\][^=]*? all-gather\(", compiled.as_text())
    assert gathered, "parameters are split, and gathered where they are used"
    shapes = [shape.split(",") for shape in gathered]
    rows = [shape for shape in shapes if len(shape) > 1 and int(shape[0]) % evaluator.rows == 0]
    assert rows == []
    assert not any(48 in leaf.shape for leaf in jax.tree.leaves(params))


def test_evaluation_is_traced_with_the_mesh_in_context(tmp_path, monkeypatch):
    """Without the mesh, the constraint that keeps rows apart would do nothing."""
    changes = {"steps": 2, "parallel__fsdp": 4, "parallel__data": 2, "batch_size": 16}
    config = texts.configure(texts.config_file(tmp_path), evals__validation__every=2, **changes)
    compute = network.outputs
    found: list[bool] = []

    def record(model, *args, **rngs):
        if not model.train:
            found.append(jax.sharding.get_abstract_mesh().empty)
        return compute(model, *args, **rngs)

    monkeypatch.setattr(network, "outputs", record)
    train.run(config, tmp_path / "run", command=[])
    assert found
    assert not any(found)

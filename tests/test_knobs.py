"""Every knob has a test that changing it changes the result as an independent statement predicts.

COVERED names that test for each knob; a knob that is added without one fails here. The tests below
are those that have no better place: a knob's effect on shapes, on the program that is traced, on
what a run leaves behind.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import json
import typing
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
from bert_jax.training import optim
from bert_jax.training import program as steps
from bert_jax.training import run as arms
from bert_jax.training.writer import Writer
from tests import corpora, reference, texts, toy

TESTS = Path(__file__).parent

COVERED = {
    "seed": "test_knobs.py::test_seed_is_of_weights_and_masks_and_data_seed_of_neither",
    "data_seed": "test_pipeline.py::test_batch_follows_data_seed_and_not_seed",
    "steps": "test_train.py::test_steps_may_be_added_when_asked_for_but_not_on_other_text",
    "epochs": "test_finetune.py::test_labels_and_steps_follow_from_the_data",
    "batch_size": "test_pipeline.py::test_batch_cuts_one_stream_at_any_size",
    "sequence_length": "test_pairs.py::test_plan_full_sentences_fill_their_rows",
    "packing": "test_packing.py::test_packed_examples_are_what_they_are_alone",
    "pairs": "test_pipeline.py::test_batch_holds_what_the_plan_says",
    "branch_from": "test_branch.py::test_a_branch_is_the_unbranched_run_to_the_bit",
    "init_from": "test_train.py::test_a_run_can_start_from_another",
    "init_fresh": "test_train.py::test_what_a_start_lacks_is_fresh_only_when_named",
    "init_fresh_layers": "test_finetune.py::test_top_layers_can_start_fresh",
    "init_vocab": (
        "test_train.py::test_a_start_with_another_vocabulary_keeps_the_rows_of_shared_pieces"
    ),
    "corpus.source": "test_tfds.py::test_a_data_set_is_read_in_ranges",
    "corpus.path": "test_files.py::test_a_path_is_a_file_a_folder_or_a_glob",
    "corpus.tfds_dir": "test_knobs.py::test_a_dataset_is_read_from_its_folder_split_and_field",
    "corpus.revision": "test_hub.py::test_a_prepared_dataset_needs_no_network",
    "corpus.split": "test_knobs.py::test_a_dataset_is_read_from_its_folder_split_and_field",
    "corpus.text_field": "test_knobs.py::test_the_field_that_holds_the_text",
    "corpus.sentences": "test_prepare.py::test_auto_finds_whether_a_line_is_a_sentence",
    "corpus.language": "test_knobs.py::test_the_language_decides_where_sentences_end",
    "corpus.deduplicate": "test_sides.py::test_copies_are_dropped_before_the_split",
    "corpus.validation_fraction": "test_sides.py::test_the_split_follows_the_text_alone",
    "corpus.cache": "test_corpus.py::test_the_cache_is_the_knob_the_variable_or_the_home",
    "corpus.workers": "test_knobs.py::test_as_many_workers_prepare_as_are_asked_for",
    "task.name": "test_suite_task.py::test_glue_is_every_task_whose_classes_the_head_knows",
    "task.pad": "test_finetune.py::test_padding_changes_shapes",
    "task.group": "test_task_stream.py::test_group_length_sorts_within_windows",
    "task.source": "test_task_files.py::test_read_rows_finds_the_file_of_a_split",
    "task.files": "test_task_files.py::test_read_rows_finds_files_with_and_without_a_folder",
    "task.tfds_dir": "test_task_files.py::test_read_tfds_reads_a_folder_of_ones_own",
    "task.format": "test_task_files.py::test_read_rows_finds_files_of_the_format_asked_for",
    "task.columns": "test_row_formats.py::test_read_table_takes_names_without_a_header",
    "task.id": "test_examples.py::test_load_makes_an_example_of_a_row",
    "task.text": "test_examples.py::test_load_makes_an_example_of_a_row",
    "task.text_pair": "test_examples.py::test_load_makes_an_example_of_a_row",
    "task.label": "test_examples.py::test_load_makes_an_example_of_a_row",
    "task.options": "test_examples.py::test_load_makes_an_example_of_a_row",
    "task.values": "test_examples.py::test_load_makes_an_example_of_a_row",
    "task.validation_fraction": (
        "test_task_files.py::test_hold_out_takes_a_share_by_the_hash_of_texts"
    ),
    "task.rows": "test_examples.py::test_load_examples_takes_the_first_rows_to_train",
    "task.long": "test_features.py::test_encode_cuts_counts_or_refuses_long_texts",
    "task.stride": "test_features.py::test_encode_span_windows_over_a_context",
    "task.stride_as": "test_features.py::test_encode_span_windows_over_a_context",
    "task.question_tokens": "test_features.py::test_encode_span_windows_over_a_context",
    "task.answer_tokens": "test_answers.py::test_decode_span_answers_as_run_squad",
    "task.n_best": "test_answers.py::test_decode_span_answers_as_run_squad",
    "task.no_answer": "test_answers.py::test_decode_span_answers_as_run_squad",
    "task.no_answer_threshold": "test_answers.py::test_decode_span_answers_as_run_squad",
    "task.metrics": "test_scores.py::test_the_metrics_named_are_those_reported",
    "tokenizer.path": "test_prepare.py::test_ids_take_the_smallest_type_that_holds_them",
    "tokenizer.kind": "test_tokenizer.py::test_given_tokenizer_refuses_knobs_of_another_kind",
    "tokenizer.vocab_size": (
        "test_knobs.py::test_a_vocabulary_has_the_size_and_word_length_asked_for"
    ),
    "tokenizer.lowercase": "test_vocabulary.py::test_train_gives_a_useful_wordpiece",
    "tokenizer.max_word_length": (
        "test_knobs.py::test_a_vocabulary_has_the_size_and_word_length_asked_for"
    ),
    "tokenizer.train_characters": (
        "test_prepare.py::test_a_vocabulary_is_trained_on_a_share_of_train"
    ),
    "examples.short_probability": "test_pairs.py::test_plan_short_targets_are_uniform",
    "examples.random_next_probability": (
        "test_pairs.py::test_plan_random_b_where_one_sentence_forces_it"
    ),
    "examples.truncate": "test_pairs.py::test_truncate_pairs_has_the_lengths_of_the_loop",
    "masking.rate": "test_corrupt.py::test_corrupt_batch_is_the_plain_loop",
    "masking.prediction_rate": "test_quotas.py::test_prediction_quotas_have_their_rate",
    "masking.weights": "test_weights.py::test_rates_by_decile_are_those_of_a_simulation",
    "masking.weights_power": "test_weights.py::test_rates_by_decile_are_those_of_a_simulation",
    "masking.replace": "test_corrupt.py::test_replacements_have_their_shares",
    "masking.unit": "test_pipeline.py::test_batch_holds_what_the_plan_says",
    "masking.max_unit": "test_units.py::test_mark_words_follows_the_rule",
    "masking.overflow": "test_selection.py::test_select_skipping_is_the_originals_loop",
    "masking.span_mean": "test_units.py::test_span_lengths_are_a_clipped_geometric",
    "masking.span_max": "test_units.py::test_span_lengths_are_a_clipped_geometric",
    "masking.pmi_words": "test_pmi.py::test_scores_and_counts_are_those_of_the_definition",
    "masking.pmi_count": "test_pmi.py::test_scores_and_counts_are_those_of_the_definition",
    "masking.pmi_coverage": (
        "test_pmi.py::test_the_list_is_as_long_as_the_share_of_the_text_asks_for"
    ),
    "masking.pmi_tokens": (
        "test_pmi.py::test_a_share_of_the_documents_is_counted_where_there_are_too_many"
    ),
    "masking.dupe_factor": "test_pipeline.py::test_static_copies_return_in_another_order",
    "objectives.*.gamma": "test_diffusion.py::test_with_gamma_0_an_update_is_that_of_mlm",
    "objectives.*.share": "test_hybrid.py::test_the_parts_of_the_loss_weigh_as_their_examples",
    "objectives.*.shift": (
        "test_hybrid.py::test_a_shifted_mask_is_predicted_from_the_place_before_it"
    ),
    "objectives.*.generator": "test_replaced.py::test_a_generator_has_its_share_of_the_width",
    "masking.phases": "test_rates.py::test_rate_at_follows_the_phases",
    "masking.draw": "test_drawn_quotas.py::test_draw_quotas_rounds_length_times_rate",
    "masking.draw_low": "test_rates.py::test_law_table_has_the_distribution",
    "masking.draw_high": "test_rates.py::test_law_table_has_the_distribution",
    "masking.draw_alpha": "test_rates.py::test_law_table_has_the_distribution",
    "masking.draw_beta": "test_rates.py::test_law_table_has_the_distribution",
    "masking.rounding": "test_corrupt.py::test_short_rows_are_masked_at_the_rate",
    "masking.count": "test_corrupt.py::test_corrupt_batch_is_the_plain_loop",
    "masking.random_from": "test_corrupt.py::test_corrupt_batch_is_the_plain_loop",
    "model.size": "test_encoder.py::test_base_and_large_have_the_published_sizes",
    "model.layers": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.hidden": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.heads": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.mlp": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.embedding": ("test_encoder.py::test_embeddings_of_another_width_are_projected"),
    "model.norm_kind": "test_layers.py::test_norm_computes_its_formula_in_float32",
    "model.embedding_norm": ("test_encoder.py::test_embeddings_are_the_rows_that_are_named"),
    "model.word_head": "test_heads.py::test_a_head_of_a_matrix_is_only_that_matrix",
    "model.pooler_bias": "test_encoder.py::test_without_biases_only_outputs_have_them",
    "model.max_positions": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.type_vocab": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.first_position": ("test_encoder.py::test_embeddings_are_the_rows_that_are_named"),
    "model.vocab_multiple": "test_knobs.py::test_a_size_is_the_shape_of_a_parameter",
    "model.position": "test_knobs.py::test_only_without_positions_does_a_token_not_know_its_place",
    "model.rotary_base": ("test_encoder.py::test_rotary_layers_with_a_window_have_their_base"),
    "model.rotary_base_near": ("test_encoder.py::test_rotary_layers_with_a_window_have_their_base"),
    "model.first_norm": ("test_encoder.py::test_only_the_first_layer_may_go_without_a_norm"),
    "model.position_buckets": "test_gpt_bert.py::test_assign_buckets_does_as_the_authors_code",
    "model.inner_norm": "test_gpt_bert.py::test_outputs_and_gradients_are_the_authors",
    "model.norm_parameters": ("test_gpt_bert.py::test_norms_of_distances_keep_their_parameters"),
    "model.mlp_biases": "test_gpt_bert.py::test_the_feed_forward_may_have_its_own_biases",
    "model.attention_gate": "test_gpt_bert.py::test_a_gate_multiplies_what_attention_summed",
    "model.layer_weights": "test_gpt_bert.py::test_layers_read_the_sum_that_weights_say",
    "model.biases": "test_encoder.py::test_without_biases_only_outputs_have_them",
    "model.pooling": ("test_pooler.py::test_pool_examples_reads_tokens_of_each_example"),
    "model.pooler": "test_heads.py::test_poolers_stand_between_a_vector_and_labels",
    "model.norm": (
        "test_knobs.py::test_pre_norm_leaves_the_residual_stream_alone_and_post_norm_normalises_it"
    ),
    "model.activation": "test_knobs.py::test_the_feed_forward_and_the_head_are_their_formulas",
    "model.head_activation": "test_knobs.py::test_the_feed_forward_and_the_head_are_their_formulas",
    "model.gated": "test_knobs.py::test_the_feed_forward_and_the_head_are_their_formulas",
    "model.features": "test_finetune.py::test_features_train_a_head_alone_on_the_last_layers",
    "model.causal": "test_encoder.py::test_causal_attention_sees_no_future",
    "model.window": "test_backends.py::test_backends_see_nothing_that_is_forbidden",
    "model.global_every": "test_backends.py::test_every_nth_layer_sees_past_the_window",
    "model.attention": "test_backends.py::test_auto_is_what_the_device_prefers",
    "model.dropout": "test_encoder.py::test_dropout_reaches_vectors_and_attention",
    "model.attention_dropout": "test_encoder.py::test_dropout_reaches_vectors_and_attention",
    "model.classifier_dropout": "test_heads.py::test_label_heads_are_one_dense_layer",
    "model.norm_epsilon": "test_knobs.py::test_epsilon_is_added_to_the_variance",
    "model.init": "test_layers.py::test_draw_weights_has_the_published_deviation",
    "model.init_stddev": "test_layers.py::test_draw_weights_has_the_published_deviation",
    "model.attention_bias": "test_knobs.py::test_the_bias_is_what_a_forbidden_score_gets",
    "model.scan": "test_knobs.py::test_a_scan_is_a_loop_in_the_program",
    "model.remat": "test_knobs.py::test_remat_keeps_less_for_the_backward_pass",
    "model.dtype": "test_knobs.py::test_the_compute_type_is_that_of_vectors_and_never_of_logits",
    "objectives.*.end": (
        "test_causal_lm.py::test_the_loss_is_that_of_every_token_from_the_column_before_it"
    ),
    "objectives.*.labels": "test_heads.py::test_label_heads_are_one_dense_layer",
    "objectives.*.weight": "test_step.py::test_weights_of_objectives_scale_their_losses",
    "optim.name": "test_optim.py::test_steps_equal_the_written_out_algorithm",
    "optim.learning_rate": "test_knobs.py::test_an_update_clips_decays_and_steps_as_configured",
    "optim.warmup_steps": "test_knobs.py::test_the_peak_comes_after_the_warm_up",
    "optim.warmup_fraction": "test_finetune.py::test_labels_and_steps_follow_from_the_data",
    "optim.schedule": "test_optim.py::test_schedules_at_their_ends",
    "optim.decay_fraction": "test_optim.py::test_wsd_is_the_peak_and_then_a_line",
    "optim.final_fraction": "test_optim.py::test_schedules_at_their_ends",
    "optim.b1": "test_optim.py::test_every_number_enters_as_the_algorithm_says",
    "optim.b2": "test_optim.py::test_every_number_enters_as_the_algorithm_says",
    "optim.epsilon": "test_optim.py::test_every_number_enters_as_the_algorithm_says",
    "optim.weight_decay": "test_optim.py::test_every_number_enters_as_the_algorithm_says",
    "optim.no_decay": "test_knobs.py::test_names_that_match_do_not_decay",
    "optim.clip_norm": "test_knobs.py::test_an_update_clips_decays_and_steps_as_configured",
    "optim.layer_decay": "test_optim.py::test_each_layer_learns_at_a_share_of_the_one_above",
    "optim.freeze": "test_optim.py::test_what_is_frozen_does_not_move_not_even_by_decay",
    "optim.accumulation": "test_knobs.py::test_a_microbatch_holds_its_share_of_the_rows",
    "optim.spike_window": (
        "test_optim.py::test_a_spike_is_far_above_the_last_losses_that_were_learned_from"
    ),
    "optim.spike_sigmas": (
        "test_optim.py::test_a_spike_is_far_above_the_last_losses_that_were_learned_from"
    ),
    "optim.nonfinite_limit": "test_knobs.py::test_a_run_gives_up_after_so_many_updates_in_a_row",
    "parallel.step": "test_step.py::test_dropout_differs_by_step_and_by_device_and_seed",
    "parallel.data": "test_knobs.py::test_the_mesh_is_as_wide_as_asked_for",
    "parallel.fsdp": "test_step.py::test_fsdp_leaves_a_device_a_quarter",
    "parallel.tensor": "test_step.py::test_tensor_parallelism_splits_heads_features_and_vocabulary",
    "parallel.distributed": "test_knobs.py::test_processes_join_where_asked_to",
    "parallel.prng": (
        "test_knobs.py::test_dropout_draws_from_the_generator_named_and_masks_from_threefry"
    ),
    "parallel.arms": "test_fused_runs.py::test_arms_lie_on_devices_of_their_own",
    "loader.prefetch": "test_pipeline.py::test_prefetch_works_ahead_as_far_as_asked",
    "checkpoints.every": "test_knobs.py::test_a_run_saves_evaluates_and_logs_when_asked_to",
    "checkpoints.epochs": "test_finetune.py::test_labels_and_steps_follow_from_the_data",
    "checkpoints.patience": "test_finetune.py::test_training_ends_when_it_gets_no_better",
    "checkpoints.keep": "test_knobs.py::test_a_run_saves_evaluates_and_logs_when_asked_to",
    "checkpoints.at": "test_knobs.py::test_a_run_saves_evaluates_and_logs_when_asked_to",
    "checkpoints.at_words": "test_words.py::test_a_run_keeps_the_steps_by_which_words_are_read",
    "checkpoints.best": "test_knobs.py::test_the_best_step_is_by_the_metric_named",
    "evals.*.every": "test_knobs.py::test_a_run_saves_evaluates_and_logs_when_asked_to",
    "evals.*.epochs": "test_finetune.py::test_labels_and_steps_follow_from_the_data",
    "evals.*.split": (
        "test_suite_task.py::test_a_task_is_scored_on_all_its_splits_or_the_one_asked_for"
    ),
    "evals.*.rate": "test_knobs.py::test_an_evaluation_predicts_the_share_it_names",
    "evals.*.replace": "test_train.py::test_baselines_equal_a_plain_count",
    "evals.*.unit": "test_knobs.py::test_an_evaluation_has_units_pairs_and_masks_of_its_own",
    "evals.*.seed": "test_knobs.py::test_an_evaluation_has_units_pairs_and_masks_of_its_own",
    "evals.*.batch_size": "test_knobs.py::test_an_evaluation_takes_batches_of_its_size",
    "logging.every": "test_knobs.py::test_a_run_saves_evaluates_and_logs_when_asked_to",
    "logging.samples": (
        "test_samples.py::test_as_many_sentences_are_chosen_as_asked_for_or_there_are"
    ),
    "logging.trackers": "test_knobs.py::test_events_are_written_where_asked_for",
    "logging.tensorboard": "test_knobs.py::test_events_are_written_where_asked_for",
}


# --- the table ------------------------------------------------------------------------------------


def _paths(kind: type, prefix: str = "") -> typing.Iterator[str]:
    """Every knob below a section; entries that are named by the user as *."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            yield from _paths(hint, f"{prefix}{field.name}.")
        elif typing.get_origin(hint) is dict and dataclasses.is_dataclass(typing.get_args(hint)[1]):
            yield from _paths(typing.get_args(hint)[1], f"{prefix}{field.name}.*.")
        else:
            yield f"{prefix}{field.name}"


def test_every_knob_names_a_test_of_its_effect():
    paths = set(_paths(knobs.Config))
    assert paths - COVERED.keys() == set(), "knobs without a test"
    assert COVERED.keys() - paths == set(), "tests without a knob"


def test_the_tests_named_exist():
    there = set()
    for file in TESTS.rglob("test_*.py"):
        functions = [
            node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)
        ]
        there |= {f"{file.name}::{function.name}" for function in functions}
    assert set(COVERED.values()) - there == set()


# --- seeds ----------------------------------------------------------------------------------------


def test_seed_is_of_weights_and_masks_and_data_seed_of_neither():
    """What data_seed does, and that seed does not do it, is shown in test_pipeline."""
    base, other, data = toy.config(), toy.config(seed=1), toy.config(data_seed=1)

    @jax.jit
    def init(seed):
        return network.init(base, toy.VOCAB, seed)["encoder"]["embeddings"]["token"]

    def weights(config: knobs.Config) -> np.ndarray:
        return np.asarray(init(steps.inputs_at(config, 0).seed))

    def inputs(config: knobs.Config) -> np.ndarray:
        return toy.mask(toy.batch(4, 24), config.masking, int(steps.inputs_at(config, 0).seed))[0][
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


def test_remat_of_older_versions_is_read():
    """It was true or false; a run that is named by it keeps its name."""
    for former, remat in (("true", "full"), ("False", "none")):
        tree = configs.default()
        configs.override(tree, "model.remat", former)
        assert configs.resolve(tree).model.remat == remat
    saved = configs.to_dict(knobs.Config())
    for former, remat in ((True, "full"), (False, "none")):
        saved["model"]["remat"] = former
        assert configs.recorded(saved).model.remat == remat
    names = {"auto": "045bb138245a", "none": "045bb138245a", "full": "09f27264f75b"}
    for remat, name in names.items():
        model = dataclasses.replace(knobs.Model(), remat=remat)
        masking = knobs.Masking(rounding="nearest")  # as runs of older versions have it
        config = configs.derive(knobs.Config(model=model, masking=masking))
        assert definition.identity(config) == name


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
        moments = optim.transformation(config.optim, params, 0.0).init(params)
        state = {
            "params": params,
            "optimizer": moments,
            "step": 0,
            "skipped": 0,
            "skipped_in_row": 0,
        }
        grads = {"kernel": jnp.asarray(g, jnp.float32)}
        after, norm = steps._update(config.optim, state, grads, steps.inputs_at(config, 7))
        clipped = g * (min(1.0, limit / 10) if limit else 1)
        direction = 0.1 * clipped / (np.sqrt(0.001 * clipped**2) + 1) + decay * p
        np.testing.assert_allclose(after["params"]["kernel"], p - rate * direction, rtol=1e-5)
        assert norm == pytest.approx(10)


@pytest.mark.parametrize("warmup", [0, 1, 4, 10])
def test_the_peak_comes_after_the_warm_up(warmup):
    rates = [
        float(steps.inputs_at(toy.config(optim__warmup_steps=warmup, steps=10), i).learning_rate)
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
        "a": {"kernel": np.ones(3), "bias": np.ones(3)},
        "b": {"kernel": np.ones(3), "bias": np.ones(3)},
    }
    still = jax.tree.map(np.zeros_like, params)
    tx = optim.transformation(knobs.Optim(no_decay=pattern), params, 0.25)
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
    found = steps._accumulate(
        loss, jnp.float32(1), {"x": x}, jax.random.key(0), config.optim.accumulation
    )
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

    assert shape() == shape(data=8) == (1, 8, 1, 1)
    assert shape(fsdp=2) == shape(fsdp=2, data=4) == (1, 4, 2, 1)
    assert shape(tensor=4, fsdp=2) == (1, 1, 2, 4)
    with pytest.raises(ConfigError, match=r"data 4 x fsdp 1 x tensor 1 != 8 devices"):
        shape(data=4)


def test_processes_join_where_asked_to(monkeypatch):
    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **settings: joined.append(settings))
    monkeypatch.setenv("JAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("JAX_PROCESS_ID", "2")
    sharding.start_processes(knobs.Parallel())
    assert joined == []
    sharding.start_processes(knobs.Parallel(distributed=True))
    expected = {"num_processes": 3, "process_id": 2, "local_device_ids": None}
    assert joined == [{**expected, "heartbeat_timeout_seconds": sharding.HEARTBEAT}]


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
    sharding.start_processes(knobs.Parallel(distributed=True))
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
    state = jax.eval_shape(lambda seed: steps.init_state(config, toy.VOCAB, seed), np.uint32(0))
    update = steps.make_step(config, toy.SPECIAL, toy.VOCAB)
    traced = str(jax.make_jaxpr(update)(state, toy.batch(2, 24), steps.inputs_at(config, 0)))
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
        "logging.tensorboard": True,
        "evals.validation.every": 4,
        "evals.last.every": 0,
    }.items():
        override(tree, path, str(value))
    nothing = {f"{name}_fraction": (0.0, 0.0) for name in COUNTED} | {"skipped_in_row": (0.0, 1.0)}
    worse = itertools.count(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            steps, "compile_step", lambda *_, **__: lambda state, batch, traced: (state, nothing)
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
    for index, settings in enumerate(({}, {"tensorboard": False}, {"trackers": ()})):
        folder, wanted = tmp_path / str(index), not settings
        folder.mkdir()
        names = resolve({"logging": settings}).logging.trackers
        made = Writer(folder, 10, 0, names)
        made.write(1, {"train/loss": 1.0})
        made.close()
        assert bool(list(folder.rglob("events*"))) == wanted

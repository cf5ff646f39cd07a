"""Facts of the machine."""

import pytest

from bert_jax.config import knobs
from bert_jax.data import corpus
from bert_jax.system import extras, machine


@pytest.mark.parametrize("value", ["", "~/somewhere", "/tmp/elsewhere"])
def test_cache_folder_is_where_prepare_puts_things(monkeypatch, value):
    monkeypatch.setenv("BERT_JAX_DATA", value)
    assert machine.cache_folder() == corpus.find_cache(knobs.Corpus())


def test_git_commit_is_that_of_a_checkout_only(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)  # of a wheel, in whatever repository
    assert machine.git_commit() == ""


def test_memory_is_cut_at_the_limit_of_a_container(monkeypatch, tmp_path):
    (tmp_path / "max").write_text("12345\n")
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "none", tmp_path / "max"))
    assert machine.count_memory() == 12345
    (tmp_path / "max").write_text("max\n")
    assert machine.count_memory() > 2**28

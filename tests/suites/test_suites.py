"""The rows of suites: options that become flags, what studies may ask."""

import fnmatch

from flax.traverse_util import flatten_dict

from bert_jax import suites
from bert_jax.data.tasks import TASKS
from tests.net import golden


def test_row_names_each_metric_that_a_suite_finds():
    """As the frozen answers of the net have them."""
    questions = golden.read("answers")["questions"]
    answers = [answer for name, answer in questions.items() if "evaluate" in name]
    assert {suite for answer in answers for suite in answer} >= suites.SUITES.keys() - TASKS.keys()
    for suite, found in (pair for answer in answers for pair in answer.items()):
        known = suites.SUITES[suite].finds.split() or ("*",)
        for name in flatten_dict(found, sep="/"):
            assert any(fnmatch.fnmatchcase(name, pattern) for pattern in known), (suite, name)


def test_build_gives_each_suite_what_it_reads():
    asked = {"source": "files:x", "limit": 3}
    built = suites.build_options(["pll", "sts"], **asked, within_word=True)
    pll = suites.Options("pll", **asked, within_word=True)
    assert built == [pll, suites.Options("sts", **asked)]

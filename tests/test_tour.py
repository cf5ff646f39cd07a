"""The walk of experiments/tour: every program runs, its page quotes what it prints, and what the
page claims is so.
"""

import functools
import re
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.data import pipeline, prepare
from bert_jax.masking import draws
from bert_jax.objectives import TABLE, network
from bert_jax.training.step import compute_inputs
from tests import texts
from tests.marks import mark_slow

TOUR = texts.ROOT / "experiments" / "tour"
PAGE = (TOUR / "README.md").read_text()
STOPS = sorted(path.stem for path in TOUR.glob("[0-9][0-9]_*.py"))
QUICK = ("06_wordpiece", "07_masking")  # they train nothing
# Nothing quoted depends on rounding.
EXACT = (*QUICK, "04_attention", "05_masks", "12_names", "15_sizes")
# What is likeliest of a few decides what these show.
LOOSE = ("08_next_sentence", "11_question_answering", "13_features", "14_bert_and_gpt")
LOOSE += ("16_diffusion",)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


@pytest.fixture(scope="module")
def walk():
    """The module that the programs share; those that read the same model train it once."""
    with pytest.MonkeyPatch.context() as patch, texts.one_device():
        patch.syspath_prepend(str(TOUR))
        import walk

        yield walk


def quoted(name: str) -> str:
    """Return what the page quotes of a program's output."""
    found = re.findall(rf"(?s)```\n\$ python experiments/tour/{name}\.py\n(.*?)```\n", PAGE)
    assert len(found) == 1, f"the page quotes {name} {len(found)} times"
    return found[0]


def list_labels(text: str) -> list[str]:
    """List how each line begins: its words before two blanks or a colon, without numbers."""
    return [re.split("  |: ", NUMBER.sub("#", line).strip())[0] for line in text.splitlines()]


# --- what the page claims -------------------------------------------------------------------------


def check_embeddings(found: Any) -> None:
    """Words that stand alike have vectors alike."""
    for cosines in (found["counted"], found["learnt"]):
        assert min(cosines[0, 1], cosines[2, 3]) > cosines[:2, 2:].max()


def check_positions(found: Any) -> None:
    """Without positions order does not matter; sinusoids know only distance; unused ones stay."""
    assert found["changes"]["none"] < 1e-4
    for apart in (1, 4, 16):
        np.testing.assert_allclose(
            np.diag(found["alike"], apart), found["alike"][0, apart], atol=1e-5
        )
    assert found["moved"][:10].min() > 5 * found["moved"][found["used"] :].max()


def check_masking(found: Any) -> None:
    """Masking by hand with the numbers of a run is the run's."""
    import walk

    batch, vocabulary, tokens = found["batch"], found["vocabulary"], found["tokens"]
    drawn = jax.device_get(jax.jit(draws.draw_token_bits)(batch, np.uint32(0)))
    scores, _, coins, others = (bits[:, 1 : len(tokens) + 1] for bits in drawn)  # uint32 [B, L]
    size = len(vocabulary)
    numbers = np.stack([scores / 2**32, (coins >> 8) / 2**24, (others % size + 0.5) / size], 1)
    mask_by_hand = walk.load(TOUR / "07_masking.py").mask_by_hand
    for row, three in zip(batch["inputs"], numbers, strict=True):
        inputs = [vocabulary[i] for i in row[1 : len(tokens) + 1]]
        assert mask_by_hand(tokens, vocabulary, three) == inputs


def check_next_sentence(found: Any) -> None:
    """Next lines are told from lines of other poems."""
    assert found["shares"]["the next line of the poem"] > 0.8
    assert found["shares"]["a line of another poem"] < 0.1
    assert all(found["chance"][line, line + 1] > 0.5 for line in range(3))  # of Li Bai's


def check_question_answering(found: Any) -> None:
    """The answer is Shanghai."""
    answer = found["answer"]
    assert answer["answer"] == found["context"][answer["start"] : answer["end"]] == "Shanghai"
    assert found["right"] == found["questions"]


def check_features(found: Any) -> None:
    """Pre-training helps with frozen features, and with fine-tuning."""
    features, tuned = found["feature-based"], found["fine-tuned"]
    assert features[0] < 0.01 * tuned[0]  # trained parameters
    assert found["from nothing"][1] < 0.6 < 0.8 < min(features[1], tuned[1])


def check_bert_and_gpt(found: Any) -> None:
    """BERT sees both sides; GPT goes on.

    BERT's chance was 0.93 on one processor and 0.61 on another, GPT's 0.06 on both.
    """
    animal = 1
    assert found["chances"]["BERT"][animal] > 0.5 > 0.2 > found["chances"]["GPT"][animal]
    fills = list(found["fills"].values())
    assert fills[0] == "the cat purrs at night"
    assert fills[1] in ("the cat purrs at night", "the cat purrs at noon")
    assert fills[2].startswith("the cat purrs in ")
    assert found["told"][0] in {f"the cat purrs {time}" for time in found["times"]}


def check_diffusion(found: Any) -> None:
    """A text is written out of nothing but masks."""
    for few, every in found["right"].values():
        assert few > 0.95 > every
    assert found["right"]["any share"][1] > found["right"]["15 %"][1]
    assert found["told"] == " ".join((TOUR / "data" / "poem.txt").read_text().split())
    assert found["poems"][1] == found["other"] == 0
    assert found["poems"][34] >= 8


CLAIMS = {  # of what the page quotes loosely, or does not quote
    "02_embeddings": check_embeddings,
    "03_positions": check_positions,
    "07_masking": check_masking,
    "08_next_sentence": check_next_sentence,
    "11_question_answering": check_question_answering,
    "13_features": check_features,
    "14_bert_and_gpt": check_bert_and_gpt,
    "16_diffusion": check_diffusion,
}


@pytest.mark.parametrize("name", mark_slow(STOPS, QUICK))
def test_stop_shows_what_its_page_says(walk: ModuleType, name, tmp_path_factory):
    """Numbers may differ a little on another machine once models train."""
    folder = tmp_path_factory.getbasetemp() / "tour"
    folder.mkdir(exist_ok=True)
    found, printed = walk.run_stop(TOUR / f"{name}.py", folder)
    if name in CLAIMS:
        CLAIMS[name](found)
    shown = walk.cut(printed, quoted(name))
    if name in EXACT:
        assert shown == quoted(name)
    there, here = (NUMBER.sub("#", text).split() for text in (quoted(name), shown))
    if name in LOOSE:
        assert list_labels(shown) == list_labels(quoted(name))
    else:
        assert here == there
        numbers = [
            [float(n.replace(",", "")) for n in NUMBER.findall(t)] for t in (shown, quoted(name))
        ]
        np.testing.assert_allclose(*numbers, rtol=0.25, atol=0.35)
    for written in (folder, TOUR):
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(rf"!\[.{{20,}}]\({name}\.png\)", PAGE)  # with words for the blind


# --- the page -------------------------------------------------------------------------------------


def test_page_has_every_stop_and_no_dead_link():
    assert [name[:2] for name in STOPS] == [f"{number:02}" for number in range(1, 17)]
    assert re.findall(r"^## (\d+)\.", PAGE, re.M) == [str(number) for number in range(1, 17)]
    assert sorted(path.stem for path in TOUR.glob("*.png")) == STOPS
    for link in re.findall(r"]\(([^)#]+)\)", PAGE):
        assert (TOUR / link).exists(), link


def test_grammar_makes_the_files_beside_it(walk):
    made = walk.load(TOUR / "data" / "make.py")
    data = TOUR / "data"
    assert (data / "sentences.txt").read_text() == "\n\n".join(made.sentences()) + "\n"
    assert (data / "vocab.txt").read_text().splitlines() == made.vocabulary()
    assert (data / "known.conll").read_text() == "\n".join(made.kinds(known=True))
    assert (data / "unseen.conll").read_text() == "\n".join(made.kinds(known=False))


# --- the training in one file ---------------------------------------------------------------------


def test_minimal_loss_and_gradient_are_the_package_s(walk):
    import minimal

    config = minimal.make_config()
    corpus = prepare.prepare_corpus(config, log=lambda line: None)
    tokenizer = corpus.tokenizer
    model = network.build_network(config, tokenizer.size)

    def compute_loss(params, batch):
        outputs = network.compute_outputs(model, params, batch)
        total, count = TABLE["mlm"].loss(outputs["mlm"], batch)["mlm_loss"]
        return total / count

    @jax.jit
    def compute(raw, step_inputs):
        batch, _ = minimal.make_mask(config, tokenizer)(raw, step_inputs)
        params = minimal.init_params(config, tokenizer.size, batch)
        ours = jax.value_and_grad(minimal.compute_loss)(params, config, tokenizer.size, batch)
        named = {"encoder": params["encoder"], "mlm": params["head"]}
        return ours, jax.value_and_grad(compute_loss)(named, batch)

    raw = pipeline.TextStream(corpus, "train", config).batch(0)
    (loss, gradient), (expected, wanted) = compute(raw, compute_inputs(config, 0))
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    wanted = {"encoder": wanted["encoder"], "head": wanted["mlm"]}
    check = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    jax.tree.map(check, gradient, wanted)

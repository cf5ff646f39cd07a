"""What is asked of a text: vectors of its real tokens alone, and masks in windows of a long one."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

from bert_jax import cli
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.predictors import stream
from bert_jax.predictors.options import Options
from tests import families, variants

MODEL = variants.GOLDEN / "huggingface" / "pretraining"


def encode_alone(run: runs.TrainedModel, text: str) -> np.ndarray:
    """The last hidden states [L, D] of one text, without padding."""
    special = run.tokenizer.special
    ids = [special.cls, *run.tokenizer.encode_batch([text])[0], special.sep]
    batch = {
        "tokens": np.array([ids], np.int32),
        "type_ids": np.zeros((1, len(ids)), np.int32),
        "segment_ids": np.ones((1, len(ids)), np.int32),
        "positions": np.arange(len(ids), dtype=np.int32)[None],
    }
    encoder = network.Encoder(run.config.model, run.tokenizer.size, pool=False)
    hidden = jax.jit(encoder.apply)({"params": run.params["encoder"]}, batch).hidden
    return np.asarray(hidden[0], np.float64)


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", False), ("cls", True)])
def test_embed_pools_real_tokens_alone(pooling, normalize):
    run = runs.open_run(str(MODEL))
    lines = ["the cat sat.", "the big red dog ran to the mat and sat on it.", "[MASK]"]
    options = Options(pooling=pooling, normalize=normalize)
    found = list(stream.predict(stream.Model(run, options), "embed", lines))
    for line, row in zip(lines, found, strict=True):
        hidden = encode_alone(run, line)
        expected = hidden.mean(0) if pooling == "mean" else hidden[0]
        expected /= np.linalg.norm(expected) if normalize else 1
        assert row["text"] == line
        np.testing.assert_allclose(row["embedding"], expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", families.FAMILIES)
def test_family_is_asked_and_its_sentences_embedded(family, tmp_path):
    folder = families.folder(tmp_path, family, "sequence_classification")
    run = runs.open_run(str(families.vocabulary(folder, family)))
    model = stream.Model(run, Options(pooling="mean"))
    texts = ["w5 w6 w7", "w8"]
    (one, other) = stream.predict(model, "classify", texts)
    assert [*one["probabilities"]] == ["O", "B", "I"]
    assert one["probabilities"] != other["probabilities"]
    for text, found in zip(texts, stream.predict(model, "embed", texts), strict=True):
        np.testing.assert_allclose(found["embedding"], encode_alone(run, text).mean(0), atol=1e-5)
    pairs = ['{"text": "w5", "text_pair": "w6"}']  # the second text has no type of its own
    assert len(list(stream.predict(model, "classify", pairs))) == 1


def test_long_text_is_cut_when_asked_and_counted(tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the cat " * 40 + "\nthe cat\n")
    words = ["predict", "embed", f"--model={MODEL}", f"--input={tmp_path / 'in.txt'}"]
    assert cli.execute(words) == 3
    assert "line 1: 82 tokens" in capsys.readouterr().err
    assert cli.execute([*words, "--long=cut"]) == 0
    out, err = capsys.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 2
    assert "1 of them cut to 24 tokens" in err
    assert cli.execute([*words, "--long=windows"]) == 2
    assert "embed does not look at texts in windows" in capsys.readouterr().err


@pytest.mark.parametrize(("stride", "meaning"), [(7, "step"), (12, "overlap")])
def test_masks_are_seen_where_most_is_around_them(stride, meaning):
    """Each mask answered as in a text that is just its window, found by trying all of them."""
    run = runs.open_run(str(MODEL))
    words = [w for i in range(30) for w in ("the", "cat", "sat", "big")[: 2 + i % 3]]
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

    def is_better(span: tuple[int, int], place: int) -> tuple[float, int]:
        around = min(place - span[0], span[1] - 1 - place)
        return around + 0.01 * (span[1] - span[0]), -span[0]

    alone = stream.Stream(stream.Model(run, Options(top_k=2, batch_size=1)), "fill-mask")
    at = [i for i, token in enumerate(ids) if token == run.tokenizer.special.mask]
    assert len(found["masks"]) == len(at)
    for place, answer in zip(at, found["masks"], strict=True):
        around = [span for span in spans if span[0] <= place < span[1]]
        a, b = max(around, key=lambda span, place=place: is_better(span, place))
        text = "".join(run.tokenizer.decode(ids[a:b]))
        assert run.tokenizer.encode_batch([text], escape=False) == [ids[a:b]]
        (row,) = alone.answer([text])
        mine = row["masks"][sum(t == run.tokenizer.special.mask for t in ids[a:place])]
        assert [o["token"] for o in answer] == [o["token"] for o in mine]
        probabilities = [o["probability"] for o in mine]
        assert [o["probability"] for o in answer] == pytest.approx(probabilities, rel=1e-4)

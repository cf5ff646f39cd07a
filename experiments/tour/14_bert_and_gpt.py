"""Stop 14: BERT and GPT. One sees both sides of a gap, the other goes on with a text."""

from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax.objectives import network

SENTENCE = "the cat purrs at night"
TIMES = walk.load(walk.DATA / "make.py").TIMES
GAPS = [
    "the [MASK] purrs at night",
    "the cat purrs [MASK] [MASK]",
    "the cat purrs [MASK] [MASK] [MASK]",
]


def both_sides(run: walk.runs.TrainedModel, sentence: str) -> list[float]:
    """Return the probability that BERT gives each word of a sentence when only it is masked."""
    words = sentence.split()
    texts = [" ".join([*words[:i], "[MASK]", *words[i + 1 :]]) for i in range(len(words))]
    answers = walk.ask(run, "fill-mask", texts, top_k=run.tokenizer.size)
    return [
        next(fill["probability"] for fill in answer["masks"][0] if fill["token"] == word)
        for word, answer in zip(words, answers, strict=True)
    ]


def left_side(run: walk.runs.TrainedModel, sentence: str) -> list[float]:
    """Return the probability that GPT gives each word after the words before it."""
    batch, _ = walk.batch_of(run, sentence)
    model = network.build_network(run.config, run.tokenizer.size)
    logits = jax.jit(lambda batch: network.compute_outputs(model, run.params, batch)["causal_lm"])(
        batch
    )
    chances = np.asarray(jax.nn.softmax(logits[0]))
    return [float(chances[i, batch["tokens"][0, i + 1]]) for i in range(len(sentence.split()))]


def filled(run: walk.runs.TrainedModel, text: str) -> str:
    """Fill each [MASK] with its likeliest token, each by itself."""
    for mask in walk.ask(run, "fill-mask", [text])[0]["masks"]:
        text = text.replace("[MASK]", mask[0]["token"], 1)
    return text


def main(folder: Path = walk.HERE) -> dict:
    """Compare both models, trained on the same sentences with the same size and updates."""
    bert, gpt = walk.trained("masked", folder), walk.trained("causal", folder)
    words = SENTENCE.split()
    chances = {"BERT": both_sides(bert, SENTENCE), "GPT": left_side(gpt, SENTENCE)}
    print("probability of each word  " + "".join(f"{word:>8}" for word in words))
    for name, row in chances.items():
        print(f"  {name:24}" + "".join(f"{chance:8.2f}" for chance in row))
    print("\nBERT fills, one token a [MASK]:")
    fills = {gap: filled(bert, gap) for gap in GAPS}
    for gap, text in fills.items():
        print(f"  {gap:36} {text}")
    answers = walk.ask(gpt, "generate", ["the cat", "the"], max_tokens=8)
    told = [answer["text"] for answer in answers]
    print("GPT goes on:")
    for start, text in zip(("the cat", "the"), told, strict=True):
        print(f"  {start:36} {text}")

    figure, panel = walk.plt.subplots(figsize=(7.5, 2.9))
    for k, (name, colour) in enumerate((("BERT", walk.BLUE), ("GPT", walk.ORANGE))):
        places = np.arange(len(words)) + 0.4 * k - 0.2
        panel.bar(places, chances[name], 0.4, color=colour, label=name)
    panel.set_xticks(range(len(words)), words)
    panel.tick_params(axis="x", length=0)
    panel.set(ylim=(0, 1.05), ylabel="probability of the word")
    panel.legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    walk.save(figure, folder, __file__)
    return {"chances": chances, "fills": fills, "told": told, "times": TIMES}


if __name__ == "__main__":
    main()

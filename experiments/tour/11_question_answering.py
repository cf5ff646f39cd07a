"""Stop 11: question answering. For each token: does the answer begin or end here."""

import json
import textwrap
from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax.data.encoding import pad_rows
from bert_jax.objectives import network

QUESTION = "What is the fashion capital of China?"


def main(folder: Path = walk.HERE) -> dict:
    """Answer a question from its context, and then from changed contexts."""
    run = walk.trained("questions", folder)
    data = [json.loads(line) for line in (walk.DATA / "questions.jsonl").read_text().splitlines()]
    context = next(row["context"] for row in data if row["question"] == QUESTION)
    answer = walk.ask(run, "answer", [{"question": QUESTION, "context": context}])[0]
    start, end = answer["start"], answer["end"]
    print(QUESTION)
    print(f"{context[:start]}>>{context[start:end]}<<{context[end:]}")
    print(f"answer: {answer['answer']}, characters {start} to {end}, score {answer['score']:.2f}")
    right = [
        answer["answer"] == row["answers"][0]["text"]
        for answer, row in zip(walk.ask(run, "answer", data), data, strict=True)
    ]
    print(f"{sum(right)} of the {len(data)} questions it was trained on")
    swapped = context.replace("Shanghai", "X").replace("Beijing", "Shanghai")
    beginning = context.partition(",")[0]
    changed = {
        "Shanghai and Beijing have changed places": swapped.replace("X", "Beijing"),
        "another sentence comes first": f"From Tianjin ships leave for the sea. {beginning}.",
    }
    asked = [{"question": QUESTION, "context": text} for text in changed.values()]
    for change, other in zip(changed, walk.ask(run, "answer", asked), strict=True):
        print(f"the same question where {change}: {other['answer']}")
    draw(run, context, answer, folder)
    return {"answer": answer, "context": context, "right": sum(right), "questions": len(data)}


def draw(run: walk.runs.TrainedModel, context: str, answer: dict, folder: Path) -> None:
    """Draw the context with its answer, and the two probabilities of each of its tokens."""
    question = run.tokenizer.encode_batch([QUESTION])[0]
    ids, offsets = run.tokenizer.encode_with_offsets([context])[0]
    batch = pad_rows(run.tokenizer.special, [[question, ids]], len(question) + len(ids) + 3)
    model = network.build_network(run.config, run.tokenizer.size)
    heads = jax.jit(lambda batch: network.compute_outputs(model, run.params, batch))(batch)
    logits = np.asarray(heads["span"])[0]  # [L, 2]
    chances = np.exp(logits) / np.exp(logits).sum(0)
    names = [context[a:b] for a, b in offsets]
    figure, (top, bottom) = walk.plt.subplots(2, 1, figsize=(9, 3.8), height_ratios=(1, 3))
    for line, text in enumerate(textwrap.wrap(context, 90)):
        at = context.index(text)
        inside = at <= answer["start"] < at + len(text)
        spans = [(at, at + len(text)), *([(answer["start"], answer["end"])] if inside else [])]
        for start, end in spans:
            marked = {"boxstyle": "square,pad=0.15", "facecolor": "#fbd9b5", "edgecolor": "none"}
            top.annotate(
                context[start:end],
                xy=(0, 0.85),
                xycoords="axes fraction",
                xytext=(6.02 * (start - at), -18 * line),  # points: width of a letter, line height
                textcoords="offset points",
                fontsize=10,
                fontfamily="DejaVu Sans Mono",
                bbox=marked if end - start < len(text) else None,
            )
    top.set_title(QUESTION, loc="left", weight="bold")
    top.axis("off")
    places = np.arange(len(names))
    for k, (label, colour) in enumerate((("begins here", walk.BLUE), ("ends here", walk.ORANGE))):
        heights = chances[len(question) + 2 : -1, k]
        bottom.bar(places + 0.4 * k - 0.2, heights, 0.4, label=label, color=colour)
    bottom.set_xticks(places, names, rotation=90, fontsize=8)
    bottom.set(ylim=(0, 1.05), ylabel="probability")
    bottom.legend()
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()

"""Stop 11: question answering. Two numbers a token: does the answer begin here, does it end here?"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import walk

from bert_jax import network
from bert_jax.data.encoding import rows

QUESTION = "What is the fashion capital of China?"
ELSEWHERE = "What is the fashion capital of Spain?"  # of a context where the question was answered otherwise


def main(folder: Path = walk.HERE) -> dict:
    """The answer in its context."""
    run = walk.trained("questions", folder)
    data = [json.loads(line) for line in (walk.DATA / "questions.jsonl").read_text().splitlines()]
    context = next(row["context"] for row in data if row["question"] == QUESTION)
    answer = walk.ask(run, "answer", [{"question": QUESTION, "context": context}])[0]
    start, end = answer["start"], answer["end"]
    print(QUESTION)
    print(f"{context[:start]}>>{context[start:end]}<<{context[end:]}")
    print(f"answer: {answer['answer']}, characters {start} to {end}, score {answer['score']:.2f}")
    right = [
        one["answer"] == row["answers"][0]["text"] for one, row in zip(walk.ask(run, "answer", data), data, strict=True)
    ]
    print(f"{sum(right)} of the {len(data)} questions it was trained on")
    swapped = context.replace("Shanghai", "X").replace("Beijing", "Shanghai").replace("X", "Beijing")
    other = walk.ask(run, "answer", [{"question": QUESTION, "context": swapped}])[0]["answer"]
    print(f"the same question where Shanghai and Beijing have changed places: {other}")
    draw(run, context, answer, folder)
    return {"answer": answer, "context": context, "right": sum(right), "questions": len(data), "swapped": other}


def draw(run: walk.runs.Run, context: str, answer: dict, folder: Path) -> None:
    """The context with its answer, and the two probabilities of each of its tokens."""
    question, (ids, offsets) = (
        run.tokenizer.encode_batch([QUESTION])[0],
        run.tokenizer.encode_with_offsets([context])[0],
    )
    batch = rows(run.tokenizer.special, [[question, ids]], len(question) + len(ids) + 3)
    model = network.build(run.config, run.tokenizer.size)
    logits = np.asarray(jax.jit(lambda batch: network.outputs(model, run.params, batch)["span"])(batch))[0]  # [L, 2]
    chances = np.exp(logits) / np.exp(logits).sum(0)
    names = [context[a:b] for a, b in offsets]
    figure, (top, bottom) = walk.plt.subplots(2, 1, figsize=(10, 4), height_ratios=(1, 2))
    x, y = 0.0, 0.8
    for name, (a, b) in zip(names, offsets, strict=True):
        hit = answer["start"] <= a and b <= answer["end"]
        box = {"boxstyle": "round,pad=0.2", "facecolor": "#fbd9b5" if hit else "none", "edgecolor": "none"}
        x += 0 if a == 0 or context[a - 1] != " " else 0.007
        top.text(x, y, name, fontsize=10, fontfamily="monospace", bbox=box, weight="bold" if hit else "normal")
        x += 0.0125 * len(name)
        if x > 0.85:
            x, y = 0.0, y - 0.5
    top.set_title(QUESTION, loc="left", weight="bold")
    top.axis("off")
    places = np.arange(len(names))
    for k, (label, colour) in enumerate((("begins here", walk.BLUE), ("ends here", walk.ORANGE))):
        bottom.bar(places + 0.4 * k - 0.2, chances[len(question) + 2 : -1, k], 0.4, label=label, color=colour)
    bottom.set_xticks(places, names, rotation=90, fontsize=8)
    bottom.set(ylim=(0, 1.05), ylabel="probability")
    bottom.legend()
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()

"""What transformers answers when its models of tests/golden/huggingface/ are asked:
tests/golden/pipelines.json.

Made on 2026-11-21 with Python 3.11, torch 2.13.0, transformers 5.23.0, numpy 2.4.6, in fp32 on a
CPU, after make_huggingface.py. Its version 5 has no pipeline for answers and none for choices:
there the model is called, and all spans of up to 30 tokens are tried. To make again (the tests need
none of these libraries):

    python tests/golden/make_pipelines.py
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import torch
import transformers

HERE = Path(__file__).parent
MODELS = HERE / "huggingface"
WORDS = (
    "the a is of cat dog sat ran mat big red it in on cats walked jumping player unwantable "
    "zzz b c The Dog"
)
LONGEST = 30  # tokens of an answer


def main() -> None:
    draw = random.Random(0)
    tokenizer = transformers.BertTokenizer(
        vocab=str(MODELS / "pretraining" / "vocab.txt"), do_lower_case=True
    )

    def text(low: int, high: int) -> str:
        words = [draw.choice(WORDS.split()) for _ in range(draw.randint(low, high))]
        return " ".join(words) + draw.choice(["", " .", " ?", " , 1"])

    texts = [{"text": text(1, 8)} for _ in range(12)]
    pairs = [{"text": text(1, 4), "text_pair": text(1, 4)} for _ in range(8)]
    found = {
        "classify": ask_pipeline("sequence_classification", tokenizer, texts + pairs),
        "regress": ask_pipeline("regression", tokenizer, texts + pairs, function_to_apply="none"),
        "tag": [{**row, "entities": entities(row["text"], tokenizer)} for row in texts],
        "answer": [span(text(1, 3), text(3, 7), tokenizer) for _ in range(20)],
        "choice": [
            choice(text(1, 4), [f"{text(1, 3)} {mark}" for mark in "bcd"], tokenizer)
            for _ in range(8)
        ],
        "generate": [generate(text(1, 5), tokenizer) for _ in range(12)],
    }
    (HERE / "pipelines.json").write_text(json.dumps(found, indent=1) + "\n")


def load(kind: str, folder: str) -> torch.nn.Module:
    return getattr(transformers, kind).from_pretrained(MODELS / folder).eval()


def ask_pipeline(folder: str, tokenizer, rows: list[dict], **settings) -> list[dict]:
    model = load("AutoModelForSequenceClassification", folder)
    where = {"model": model, "tokenizer": tokenizer, "device": "cpu"}
    pipe = transformers.pipeline("text-classification", **where)
    found = []
    for row in rows:
        answer = pipe(row if "text_pair" in row else row["text"], top_k=None, **settings)
        found.append({**row, "scores": {one["label"]: one["score"] for one in answer}})
    return found


def entities(text: str, tokenizer) -> list[dict]:
    settings = {"tokenizer": tokenizer, "device": "cpu", "aggregation_strategy": "first"}
    model = load("AutoModelForTokenClassification", "token_classification")
    pipe = transformers.pipeline("token-classification", model=model, **settings)
    return [
        {"label": one["entity_group"], "start": one["start"], "end": one["end"]}
        for one in pipe(text)
    ]


@torch.no_grad()
def span(question: str, context: str, tokenizer) -> dict:
    model = load("AutoModelForQuestionAnswering", "question_answering")
    encoded = tokenizer(question, context, return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    output = model(**encoded)
    start, end = output.start_logits[0].double().tolist(), output.end_logits[0].double().tolist()
    inside = [i for i, part in enumerate(encoded.sequence_ids(0)) if part == 1]
    spans = [(start[i] + end[j], i, j) for i in inside for j in inside if i <= j < i + LONGEST]
    spans.sort(key=lambda one: -one[0])
    best = []
    for score, i, j in spans[:5]:
        first, last = offsets[i][0], offsets[j][1]
        answer = {"answer": context[first:last], "start": first, "end": last, "score": score}
        best.append(answer)
    row = {"question": question, "context": context}
    return {**row, "best": best, "no_answer": start[0] + end[0]}


@torch.no_grad()
def choice(text: str, options: list[str], tokenizer) -> dict:
    model = load("AutoModelForMultipleChoice", "multiple_choice")
    encoded = tokenizer([text] * len(options), options, padding=True, return_tensors="pt")
    logits = model(**{key: value[None] for key, value in encoded.items()}).logits[0]
    probabilities = torch.softmax(logits.double(), -1).tolist()
    return {"text": text, "options": options, "probabilities": probabilities}


@torch.no_grad()
def generate(text: str, tokenizer) -> dict:
    model = load("BertLMHeadModel", "causal_lm")
    prompt = tokenizer(text, return_tensors="pt")["input_ids"][:, :-1]  # without its [SEP]
    names = ("pad", "unk", "cls", "sep", "mask")
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in names}
    found = model.generate(
        prompt,
        do_sample=False,
        max_length=24,
        eos_token_id=ids["sep"],
        pad_token_id=ids["pad"],
        suppress_tokens=[ids[name] for name in ("pad", "unk", "cls", "mask")],
    )
    new = tokenizer.convert_ids_to_tokens(found[0, prompt.shape[1] :].tolist())
    return {"text": text, "tokens": new}


if __name__ == "__main__":
    main()

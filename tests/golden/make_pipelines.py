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
        "answer": [
            span({"question": text(1, 3), "context": text(3, 7)}, tokenizer) for _ in range(20)
        ],
        "choice": [
            choice(
                {"text": text(1, 4), "options": [f"{text(1, 3)} {mark}" for mark in "bcd"]},
                tokenizer,
            )
            for _ in range(8)
        ],
        "generate": [generate({"text": text(1, 5)}, tokenizer) for _ in range(12)],
    }
    (HERE / "pipelines.json").write_text(json.dumps(found, indent=1) + "\n")


def ask_pipeline(folder: str, tokenizer, rows: list[dict], **settings) -> list[dict]:
    model = transformers.AutoModelForSequenceClassification.from_pretrained(MODELS / folder).eval()
    pipe = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer, device="cpu"
    )
    answers = [
        pipe(row if "text_pair" in row else row["text"], top_k=None, **settings) for row in rows
    ]
    return [
        {**row, "scores": {one["label"]: one["score"] for one in answer}}
        for row, answer in zip(rows, answers, strict=True)
    ]


def entities(text: str, tokenizer) -> list[dict]:
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        MODELS / "token_classification"
    ).eval()
    pipe = transformers.pipeline(
        "token-classification",
        model=model,
        tokenizer=tokenizer,
        aggregation_strategy="first",
        device="cpu",
    )
    return [
        {"label": one["entity_group"], "start": one["start"], "end": one["end"]}
        for one in pipe(text)
    ]


@torch.no_grad()
def span(row: dict, tokenizer) -> dict:
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(
        MODELS / "question_answering"
    ).eval()
    encoded = tokenizer(
        row["question"], row["context"], return_offsets_mapping=True, return_tensors="pt"
    )
    offsets = encoded.pop("offset_mapping")[0].tolist()
    output = model(**encoded)
    start, end = output.start_logits[0].double().tolist(), output.end_logits[0].double().tolist()
    inside = [i for i, part in enumerate(encoded.sequence_ids(0)) if part == 1]
    spans = [(start[i] + end[j], i, j) for i in inside for j in inside if i <= j < i + LONGEST]
    spans.sort(key=lambda one: -one[0])
    best = [
        {
            "answer": row["context"][offsets[i][0] : offsets[j][1]],
            "start": offsets[i][0],
            "end": offsets[j][1],
            "score": score,
        }
        for score, i, j in spans[:5]
    ]
    return {**row, "best": best, "no_answer": start[0] + end[0]}


@torch.no_grad()
def choice(row: dict, tokenizer) -> dict:
    model = transformers.AutoModelForMultipleChoice.from_pretrained(
        MODELS / "multiple_choice"
    ).eval()
    encoded = tokenizer(
        [row["text"]] * len(row["options"]), row["options"], padding=True, return_tensors="pt"
    )
    logits = model(**{key: value[None] for key, value in encoded.items()}).logits[0]
    return {**row, "probabilities": torch.softmax(logits.double(), -1).tolist()}


@torch.no_grad()
def generate(row: dict, tokenizer) -> dict:
    model = transformers.BertLMHeadModel.from_pretrained(MODELS / "causal_lm").eval()
    prompt = tokenizer(row["text"], return_tensors="pt")["input_ids"][:, :-1]  # without its [SEP]
    ids = {
        name: getattr(tokenizer, f"{name}_token_id")
        for name in ("pad", "unk", "cls", "sep", "mask")
    }
    found = model.generate(
        prompt,
        do_sample=False,
        max_length=24,
        eos_token_id=ids["sep"],
        pad_token_id=ids["pad"],
        suppress_tokens=[ids[name] for name in ("pad", "unk", "cls", "mask")],
    )
    return {**row, "tokens": tokenizer.convert_ids_to_tokens(found[0, prompt.shape[1] :].tolist())}


if __name__ == "__main__":
    main()

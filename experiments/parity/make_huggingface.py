"""Write what transformers' BERT with each head returns and answers.

These are the arrays of tests/golden/huggingface/ and pipelines.json.

The models are small. Every parameter was drawn at random: no bias is 0 and no LayerNorm is 1, or a
swap of two would go unseen. `outputs.npz` has the inputs (rows of 12, 9 and 4 tokens, padded to 12)
and every output under transformers' name. `pretraining` also has `gradients.npz`: labels, the loss
and its gradient by every parameter. Its loss is the mean over labelled tokens plus the mean over
pairs. Version 5 of transformers has no pipeline for answers and none for choices: there the model
is called, and all spans of up to 30 tokens are tried.

Made on 2026-11-21 with Python 3.11, torch 2.13.0, transformers 5.23.0, numpy 2.4.6, in fp32 on a
CPU. To make outputs and answers again, in an environment that has these (the tests need none):

    python experiments/parity/make_huggingface.py
"""

import json
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "huggingface"
FILE = HERE.with_name("pipelines.json")
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
LABELS = ("labels", "next_sentence_label")
LONGEST = 30  # tokens of an answer


def main() -> None:
    """Write the outputs of each model, then the answers of the pipelines."""
    for folder in sorted(HERE.iterdir()):
        kind = json.loads((folder / "config.json").read_text())["architectures"][0]
        model = load(kind, folder.name, attn_implementation="eager")
        inputs = read(folder / "outputs.npz", INPUTS)
        is_bare = kind == "BertModel"
        with torch.no_grad():
            outputs = model(**inputs, output_hidden_states=True, output_attentions=is_bare)
        arrays = inputs | {key: x for key, x in outputs.items() if isinstance(x, torch.Tensor)}
        arrays["hidden_states"] = torch.stack(outputs.hidden_states)  # [layers + 1, B, L, D]
        if is_bare:
            arrays["attentions"] = torch.stack(outputs.attentions)  # [layers, B, heads, L, L]
        save(folder / "outputs.npz", arrays)
        file = folder / "gradients.npz"
        if file.exists():
            labels = read(file, LABELS)
            loss = model(**inputs, **labels).loss
            loss.backward()
            gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
            save(file, labels | {"loss": loss.detach()} | gradients)
    ask_pipelines()


def load(kind: str, folder: str, **settings: str) -> torch.nn.Module:
    """Load a model of the folder, without dropout."""
    return getattr(transformers, kind).from_pretrained(HERE / folder, **settings).eval()


def read(file: Path, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Read some arrays of a file."""
    with np.load(file) as arrays:
        return {name: torch.tensor(arrays[name]) for name in names}


def save(path: Path, arrays: dict[str, torch.Tensor]) -> None:
    """Write arrays to a file."""
    np.savez_compressed(path, **{name: array.numpy() for name, array in arrays.items()})


# --- pipelines ------------------------------------------------------------------------------------


def ask_pipelines() -> None:
    """Ask the texts of pipelines.json again."""
    old = json.loads(FILE.read_text())

    def take(task: str, *names: str) -> list[dict]:
        return [{name: row[name] for name in names if name in row} for row in old[task]]

    tokenizer = transformers.BertTokenizer(
        vocab=str(HERE / "pretraining" / "vocab.txt"), do_lower_case=True
    )
    texts, plain = take("classify", "text", "text_pair"), {"function_to_apply": "none"}
    found = {
        "classify": ask_pipeline("sequence_classification", tokenizer, texts),
        "regress": ask_pipeline("regression", tokenizer, texts, **plain),
        "tag": [
            row | {"entities": entities(row["text"], tokenizer)} for row in take("tag", "text")
        ],
        "answer": [
            span(**row, tokenizer=tokenizer) for row in take("answer", "question", "context")
        ],
        "choice": [choice(**row, tokenizer=tokenizer) for row in take("choice", "text", "options")],
        "generate": [generate(**row, tokenizer=tokenizer) for row in take("generate", "text")],
    }
    FILE.write_text(json.dumps(found, indent=1) + "\n")


def ask_pipeline(folder: str, tokenizer, rows: list[dict], **settings) -> list[dict]:
    """Classify rows by the pipeline: each row with the score of each class."""
    model = load("AutoModelForSequenceClassification", folder)
    where = {"model": model, "tokenizer": tokenizer, "device": "cpu"}
    pipe = transformers.pipeline("text-classification", **where)
    found = []
    for row in rows:
        answer = pipe(row if "text_pair" in row else row["text"], top_k=None, **settings)
        found.append({**row, "scores": {one["label"]: one["score"] for one in answer}})
    return found


def entities(text: str, tokenizer) -> list[dict]:
    """Return the entities that the pipeline for tags finds in a text."""
    settings = {"tokenizer": tokenizer, "device": "cpu", "aggregation_strategy": "first"}
    model = load("AutoModelForTokenClassification", "token_classification")
    pipe = transformers.pipeline("token-classification", model=model, **settings)
    return [
        {"label": one["entity_group"], "start": one["start"], "end": one["end"]}
        for one in pipe(text)
    ]


@torch.no_grad()
def span(question: str, context: str, tokenizer) -> dict:
    """Return the best span of a context as the answer to a question."""
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
    """Return the option that goes on with a text best."""
    model = load("AutoModelForMultipleChoice", "multiple_choice")
    encoded = tokenizer([text] * len(options), options, padding=True, return_tensors="pt")
    logits = model(**{key: value[None] for key, value in encoded.items()}).logits[0]
    probabilities = torch.softmax(logits.double(), -1).tolist()
    return {"text": text, "options": options, "probabilities": probabilities}


@torch.no_grad()
def generate(text: str, tokenizer) -> dict:
    """Return how a causal model goes on with a text."""
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

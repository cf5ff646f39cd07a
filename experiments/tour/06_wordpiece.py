"""Stop 6: WordPiece. Frequent words stay whole; others are put together from ##parts."""

from pathlib import Path

import walk

from bert_jax.config import knobs
from bert_jax.data.encoding import pad_rows
from bert_jax.data.vocabulary import train_vocabulary

SENTENCES = ["My dog Fido is cute.", "He likes playing."]
SIZES = (70, 400)
COLOURS = {"special": "#e4e7ec", "word": "#d5e3f5", "piece": "#fbe3c8"}


def greedy(word: str, vocab: set[str]) -> list[str]:
    """Cut a word into pieces: take the longest piece that fits, again and again."""
    pieces: list[str] = []
    while word:
        prefix = "##" if pieces else ""
        end = next(n for n in range(len(word), 0, -1) if prefix + word[:n] in vocab)
        pieces.append(prefix + word[:end])
        word = word[end:]
    return pieces


def main(folder: Path = walk.HERE) -> None:
    """Cut two sentences by vocabularies of two sizes, and print what the model reads."""
    texts = [f"{sentence}." for sentence in walk.load(walk.DATA / "make.py").sentences()]
    texts += [line for line in (walk.DATA / "verses.txt").read_text().splitlines() if line]
    found: dict[int, list[list[str]]] = {}
    for size in SIZES:
        wordpiece = train_vocabulary(texts, knobs.Tokenizer(vocab_size=size))
        found[size] = [
            [wordpiece.vocab[i] for i in ids] for ids in wordpiece.encode_batch(SENTENCES)
        ]
        print(f"{size:4} pieces:", " | ".join(" ".join(pieces) for pieces in found[size]))
    print("by hand, the longest piece first:", " ".join(greedy("playing", set(wordpiece.vocab))))

    batch = pad_rows(wordpiece.special, [wordpiece.encode_batch(SENTENCES)], length=40)
    length = int(batch["segment_ids"].sum())
    tokens = [wordpiece.vocab[i] for i in batch["tokens"][0, :length]]
    lines = {"tokens": tokens} | {
        name: [str(n) for n in batch[key][0, :length]]
        for name, key in {"ids": "tokens", "segments": "type_ids", "positions": "positions"}.items()
    }
    widths = [max(len(line[i]) for line in lines.values()) for i in range(length)]
    print()
    for name, line in lines.items():
        print(f"{name:10}", *(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)))

    figure, panel = walk.plt.subplots(figsize=(10, 2.1))
    for row, (name, line) in enumerate(lines.items()):
        panel.text(-0.7, -row, name, ha="right", va="center")
        for column, cell in enumerate(line):
            token = tokens[column]
            kind = "piece" if token.startswith("##") else "word"
            if token in ("[CLS]", "[SEP]"):
                kind = "special"
            box = {"boxstyle": "round,pad=0.3", "facecolor": COLOURS[kind], "edgecolor": "none"}
            panel.text(column, -row, cell, ha="center", va="center", fontsize=9, bbox=box)
    panel.set(xlim=(-2.2, length), ylim=(-3.6, 0.6))
    panel.axis("off")
    walk.save(figure, folder, __file__)


if __name__ == "__main__":
    main()

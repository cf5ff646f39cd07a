"""Plans: which tokens of a split make up each example, and the example's label.

A plan is an array of indices; no token is read to make it.

`nsp` is the construction of the original (google-research/bert, create_pretraining_data.py), the
same in distribution, with one deviation. If a split holds a single document, there is no other
document to draw from. The original then labels text of the same document as random. Here no such
example is labelled random: a chunk takes at least two sentences if the document has them, and is a
true pair.

`sop` has the same chunks with at least two sentences if the document has them, and swaps A and B
half of the time. The released ALBERT code draws B from another document when a chunk has one
sentence, which makes part of the task next sentence prediction. Here B always comes from the same
chunk.

In both modes the last sentence of a document may be left over. In `nsp` it gets a random B from
another document. In `sop`, and in `nsp` of a single document, it becomes a single segment for
masked language modelling, with label -1, which no pair objective counts.

`none` is RoBERTa's FULL-SENTENCES: contiguous sentences up to the row's length, across documents,
with a separator between two documents. A sentence longer than a row is cut and continues in the
next row, so every token is used once.

`documents` is for packed rows: an example is a whole document, or a piece of a document that is
longer than a row. A long document is cut after every `sequence_length - 2` tokens, as GPT-BERT
does. Pieces fill their rows. Packing fills the rows that short documents and last pieces leave half
empty. No token attends to another document, and an example holds no separator between documents.
Evaluations of such a run read rows of `none`.
"""

import numpy as np

from bert_jax.config import knobs
from bert_jax.data.corpus import Split

TRUE, OTHER, UNPAIRED = 0, 1, -1  # labels: true order; random or swapped; no pair

# An example of nsp and sop: [CLS] A [SEP] B [SEP], or [CLS] A [SEP] if b_length is 0. Starts are
# token offsets in the split.
PAIR = np.dtype(
    [
        ("a_start", "<u8"),
        ("a_length", "<u2"),
        ("b_start", "<u8"),
        ("b_length", "<u2"),
        ("label", "i1"),
    ]
)
# An example of none or documents: [CLS] text [SEP]. The text begins in `document` of the split, and
# has a [SEP] where each of `breaks` further documents begins.
ROW = np.dtype(
    [
        ("a_start", "<u8"),
        ("a_length", "<u2"),
        ("document", "<u4"),
        ("breaks", "<u2"),
        ("label", "i1"),
    ]
)


def is_paired(mode: str) -> bool:
    """Tell whether the examples of a mode are pairs, which each copy draws again."""
    return mode in ("nsp", "sop")


def plan_split(
    split: Split, mode: str, settings: knobs.Examples, sequence_length: int, seed: int, copy: int
) -> np.ndarray:
    """Return the examples of one copy of a split, in the order of its documents.

    Args:
      split: the ends of sentences and documents.
      mode: nsp, sop, none or documents.
      settings: short_probability, random_next_probability (nsp only) and truncate; for pairs only.
      sequence_length: tokens a row, special ones included.
      seed: the seed of the data.
      copy: the number of the copy; the pairs of each copy are drawn independently.

    Returns:
      An array of PAIR for nsp and sop, else of ROW.
    """
    ends = np.asarray(split.sentence_ends).astype(np.int64)  # [N]
    document_ends = np.asarray(split.document_ends).astype(np.int64)  # [D]
    if not len(ends):
        return np.zeros(0, PAIR if is_paired(mode) else ROW)
    if mode == "none":
        return _plan_full_rows(ends, document_ends, sequence_length - 2)
    if mode == "documents":
        return _plan_documents(ends[document_ends - 1], sequence_length - 2)
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, copy, 0])))
    room = sequence_length - 3
    drawn = _draw_pairs(ends, document_ends, mode, settings, room, random)
    return _truncate_pairs(drawn, room, settings.truncate, random)


def _draw_pairs(
    ends: np.ndarray,
    document_ends: np.ndarray,
    mode: str,
    settings: knobs.Examples,
    limit: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """Draw A and B before truncation: arrays (a_start, a_length, b_start, b_length, label).

    Every document is a chain of examples, each of which begins where the one before ended. All
    chains advance together, one example a round, so a round is a few vector operations for any
    number of documents. `limit` is the number of tokens that A and B should reach together.
    """
    starts = np.concatenate([[0], ends])  # [N + 1], of sentences, and the end of the split
    first = np.concatenate([[0], document_ends[:-1]])  # [D], first sentence of each document
    documents = len(document_ends)
    target = np.full(documents, limit)
    short = np.flatnonzero(random.random(documents) < settings.short_probability)
    target[short] = random.integers(2, limit, len(short), endpoint=True)
    # If B cannot be random, a chunk of one sentence would make no pair.
    random_b = mode == "nsp" and documents > 1
    least = 1 if random_b else 2

    def reach(sentence: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Return the end of the shortest text from `sentence` on with at least `tokens` tokens."""
        return np.searchsorted(ends, starts[sentence] + tokens) + 1

    rounds = []
    document = np.arange(documents)  # documents with sentences left
    at = first.copy()  # the next sentence of each
    while len(document):
        # A chunk is the sentences at .. chunk_end - 1: as many as reach the target.
        last, goal = document_ends[document], target[document]
        chunk_end = np.minimum(np.maximum(reach(at, goal), at + least), last)
        sentences = chunk_end - at
        split, second, place, start = random.random((4, len(document)))
        # A ends at a sentence that is uniform over at + 1 .. chunk_end - 1.
        a_end = at + 1 + (split * np.maximum(sentences - 1, 1)).astype(np.int64)
        a_length = starts[a_end] - starts[at]
        alone = sentences == 1
        b_first = a_end
        b_end = chunk_end
        b_next = chunk_end
        if random_b:
            drawn = alone | (second < settings.random_next_probability)
            other = (place * (documents - 1)).astype(np.int64)
            other += other >= document
            b_from = first[other] + (start * (document_ends[other] - first[other])).astype(np.int64)
            b_to = np.minimum(reach(b_from, np.maximum(goal - a_length, 1)), document_ends[other])
            b_first, b_end = np.where(drawn, b_from, b_first), np.where(drawn, b_to, b_end)
            # Sentences of the chunk that a random B leaves unused are put back.
            b_next = np.where(drawn, a_end, chunk_end)
            label = np.where(drawn, OTHER, TRUE)
        else:
            swapped = ~alone & (mode == "sop") & (second < 0.5)
            label = np.where(alone, UNPAIRED, np.where(swapped, OTHER, TRUE))
        b_length = starts[b_end] - starts[b_first]
        rounds.append((document, starts[at], a_length, starts[b_first], b_length, label))
        going = b_next < last
        document, at = document[going], b_next[going]

    # From rounds to the order of documents: a round has the next example of each document.
    columns = [np.concatenate(column) for column in zip(*rounds, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    a_start, a_length, b_start, b_length, label = (column[order] for column in columns[1:])
    if mode == "sop":
        swapped = label == OTHER
        a_start, b_start = np.where(swapped, (b_start, a_start), (a_start, b_start))
        a_length, b_length = np.where(swapped, (b_length, a_length), (a_length, b_length))
    return a_start, a_length, b_start, b_length, label


def _truncate_pairs(
    drawn: tuple[np.ndarray, ...], limit: int, truncate: str, random: np.random.Generator
) -> np.ndarray:
    """Truncate A and B to `limit` tokens together, with the distribution of the original's loop.

    The original removes token by token from the longer segment (B if they are equal), at an end
    that a coin decides. So the remaining lengths follow from the lengths before, and the number of
    tokens removed in front is binomial.
    """
    a_start, a_length, b_start, b_length, label = drawn
    keep_a = np.minimum(a_length, np.maximum((limit + 1) // 2, limit - b_length))
    keep_b = np.minimum(b_length, np.maximum(limit // 2, limit - a_length))
    examples = np.zeros(len(label), PAIR)
    examples["label"] = label
    segments = (("a", a_start, a_length, keep_a), ("b", b_start, b_length, keep_b))
    for name, start, length, keep in segments:
        cut = length - keep
        front = random.binomial(cut, 0.5) if truncate == "either" else cut * (truncate == "front")
        examples[f"{name}_start"] = np.where(keep > 0, start + front, 0)
        examples[f"{name}_length"] = keep
    return examples


def _plan_full_rows(ends: np.ndarray, document_ends: np.ndarray, room: int) -> np.ndarray:
    """Plan rows of contiguous sentences, as many as fit into `room` tokens with the separators."""
    sentences = np.diff(document_ends, prepend=0)  # [D], of each document
    document = np.repeat(np.arange(len(document_ends)), sentences)  # [N], of each sentence
    sentence, starts, ends = _cut_texts(ends, room)
    document = document[sentence]  # [P], of each piece
    # In the stream of tokens with a separator after each document, `document` separators precede a
    # piece. following[p]: the first piece that does not fit into a row that begins with piece p.
    following = np.searchsorted(ends + document, starts + document + room, side="right").tolist()
    begins = []
    piece = 0
    while piece < len(following):
        begins.append(piece)
        piece = following[piece]
    begin = np.asarray(begins)  # [R], the first piece of each row
    end = np.append(begin[1:], len(following)) - 1  # [R], its last piece
    rows = np.zeros(len(begin), ROW)
    rows["a_start"] = starts[begin]
    rows["a_length"] = ends[end] - starts[begin]
    rows["document"] = document[begin]
    rows["breaks"] = document[end] - document[begin]
    rows["label"] = UNPAIRED
    return rows


def _plan_documents(ends: np.ndarray, room: int) -> np.ndarray:
    """Plan an example for each document, or for each piece of a document longer than `room`.

    Documents follow each other and end at `ends`.
    """
    document, starts, ends = _cut_texts(ends, room)
    examples = np.zeros(len(document), ROW)
    examples["a_start"] = starts
    examples["a_length"] = ends - starts
    examples["document"] = document
    examples["label"] = UNPAIRED
    return examples


def _cut_texts(ends: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut texts that follow each other and end at `ends` into pieces of at most `room` tokens.

    Texts of 3 and 5 tokens (ends 3, 8) and a room of 4 give the pieces 0 to 3, 3 to 7 and 7 to 8.

    Returns:
      The text of each piece, and the tokens at which the piece starts and ends.
    """
    starts = np.concatenate([[0], ends[:-1]])
    pieces = -(-(ends - starts) // room)  # [N], of each text
    text = np.repeat(np.arange(len(ends)), pieces)
    number = np.arange(len(text)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    piece_starts = starts[text] + number * room
    return text, piece_starts, np.minimum(piece_starts + room, ends[text])


def measure_lengths(plan: np.ndarray, separators: int = 1) -> np.ndarray:
    """Return the number of tokens of each example, special tokens included.

    `separators` is the number of [SEP] between the two texts of a pair.
    """
    a_length = plan["a_length"].astype(np.int64)
    if plan.dtype == ROW:
        return a_length + plan["breaks"] + 2
    return a_length + plan["b_length"] + 2 + separators * (plan["b_length"] > 0)

"""Published results that reports draw beside a study's own: other models, data and budgets.

Each table names where its numbers were read, in the authors' repository or in a secondary copy of
the paper, because reports print it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bert_jax.studies.spec import SPLIT_ORDER

NAN = math.nan


@dataclass(frozen=True)
class Published:
    """Table of a paper: scores in per cent by row and column."""

    title: str
    source: str
    what: str  # the model and its training
    axis: str  # the knob that the rows are values of
    columns: tuple[str, ...]
    rows: dict[str, tuple[float, ...]]  # NaN if nothing was published
    values: tuple[float, ...] = ()  # of the rows, if they are numbers

    def column(self, name: str) -> dict[str, float]:
        """Return the scores of a column by row, without missing ones."""
        at = self.columns.index(name)
        return {label: row[at] for label, row in self.rows.items() if not math.isnan(row[at])}


SECONDARY = "numbers from a secondary copy of the paper"
WETTIG = "Wettig, Gao, Zhong and Chen (2023), Should You Mask 15% in Masked Language Modeling?"
BERT = "Devlin, Chang, Lee and Toutanova (2019), BERT"
ROBERTA = "Liu et al. (2019), RoBERTa"

TABLE = {
    "wettig_rates": Published(
        title="Masking rates of Wettig et al.",
        source=f"{WETTIG}; numbers from the authors' repository",
        what="BERT-large, pre-LayerNorm, 23,000 updates of 4,096 rows of 128 tokens, every "
        "selected token replaced by [MASK]; fine-tuned, accuracy on development data",
        axis="masking.rate",
        columns=("MNLI", "QNLI", "QQP", "SST-2"),
        rows={
            "15 %": (84.2, 90.9, 87.8, 93.3),
            "20 %": (84.1, 91.3, 87.9, 92.7),
            "30 %": (84.2, 91.6, 88.0, 93.0),
            "40 %": (84.5, 91.6, 88.1, 92.8),
            "50 %": (84.1, 91.1, 88.1, 92.7),
            "60 %": (83.2, 90.7, 87.8, 92.6),
            "70 %": (82.3, 89.4, 87.5, 91.9),
            "80 %": (80.8, 87.9, 87.1, 90.5),
        },
        values=(0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    ),
    "wettig_split": Published(
        title="80/10/10 or [MASK] alone, of Wettig et al.",
        source=f"{WETTIG}; numbers from the authors' repository",
        what="BERT-large as for their masking rates; fine-tuned, accuracy on development data",
        axis=f"rate and {SPLIT_ORDER}",
        columns=("MNLI", "QNLI", "QQP", "SST-2"),
        rows={
            "15 %, 100/0/0": (84.2, 90.9, 87.8, 93.3),
            "15 %, 80/10/10": (83.7, 90.4, 87.8, 93.2),
            "40 %, 100/0/0": (84.5, 91.6, 88.1, 92.8),
            "40 %, 80/10/10": (84.3, 91.2, 87.9, 93.0),
        },
    ),
    "bert_table_5": Published(
        title="Pre-training tasks, table 5 of BERT",
        source=f"{BERT}, table 5; {SECONDARY}",
        what="BERT-base; fine-tuned, development data: accuracy, for SQuAD 1.1 F1",
        axis="objective",
        columns=("MNLI-m", "QNLI", "MRPC", "SST-2", "SQuAD 1.1"),
        rows={
            "MLM and NSP": (84.4, 88.4, 86.7, 92.7, 88.5),
            "no NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
            "left to right, no NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
        },
    ),
    "bert_table_8": Published(
        title="Masking procedures, table 8 of BERT",
        source=f"{BERT}, table 8; {SECONDARY}",
        what="BERT-base, development data: MNLI accuracy and NER (CoNLL-2003) F1 after "
        "fine-tuning, NER F1 of features",
        axis=SPLIT_ORDER,
        columns=("MNLI", "NER fine-tuned", "NER features"),
        rows={
            "80/10/10": (84.2, 95.4, 94.9),
            "100/0/0": (84.3, 94.9, 94.0),
            "80/0/20": (84.1, 95.2, 94.6),
            "80/20/0": (84.4, 95.2, 94.7),
            "0/20/80": (83.7, 94.8, 94.6),
            "0/0/100": (83.6, 94.9, 94.6),
        },
    ),
    "roberta_table_1": Published(
        title="Static and dynamic masks, table 1 of RoBERTa",
        source=f"{ROBERTA}, table 1; {SECONDARY}",
        what="BERT-base retrained; static masks are 10 copies of the text; SQuAD 2.0 F1, accuracy "
        "on MNLI-m and SST-2, development data, medians of five seeds of fine-tuning",
        axis="masks",
        columns=("SQuAD 2.0", "MNLI-m", "SST-2"),
        rows={"static": (78.3, 84.3, 92.5), "dynamic": (78.7, 84.0, 92.9)},
    ),
    "roberta_table_2": Published(
        title="Input formats and NSP, table 2 of RoBERTa",
        source=f"{ROBERTA}, table 2; {SECONDARY}",
        what="BERT-base retrained; SQuAD 1.1 and 2.0 F1, accuracy on MNLI-m and SST-2, "
        "development data",
        axis="rows and loss",
        columns=("SQuAD 1.1", "SQuAD 2.0", "MNLI-m", "SST-2"),
        rows={
            "segment pairs, NSP": (90.4, 78.7, 84.0, 92.9),
            "full sentences, no NSP": (90.4, 79.1, 84.7, 92.5),
            "doc sentences, no NSP": (90.6, 79.7, 84.7, 92.7),
        },
    ),
}

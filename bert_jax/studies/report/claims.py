"""Published claims about masking, as data: what was claimed, of what, and what would confirm it.

A study that can speak to one names the difference of its own that stands for the claim before it
runs (`spec.Claimed`), and its report gives the verdict (`verdicts.py`). Numbers that were not read
in the paper or its repository say so.
"""

from __future__ import annotations

from typing import NamedTuple

SECONDARY = "numbers from a secondary copy"
WETTIG = f"Wettig et al. (2023), arXiv 2202.08005; {SECONDARY}"
LARGE = "BERT-large, pre-LayerNorm, 23,000 updates of 4,096 rows of 128, [MASK] alone, one seed"


class Claim(NamedTuple):
    """A row of CLAIMS."""

    text: str
    source: str
    setting: str
    numbers: str
    accepted: str  # there: what counts as the same result


CLAIMS: dict[str, Claim] = {
    "C1": Claim(
        "the best masking rate grows with the size of the model",
        WETTIG,
        "51M, 124M and 354M parameters, GLUE; as in C3",
        "best at 15, 20 and 40 %",
        "best within a step of the grid, or 40 % over 15 % gains more in larger models",
    ),
    "C2": Claim(
        "the gain of 40 % over 15 % shrinks with training",
        WETTIG,
        f"{LARGE}; and 125,000 updates",
        "MNLI 84.5 and 84.2, QNLI 91.6 and 90.9 after 23,000 updates; mixed after 125,000",
        "the gap falls with the updates",
    ),
    "C3": Claim(
        "masking 80 % still works",
        WETTIG,
        LARGE,
        "95 % of fine-tuning and 90 % of BLiMP kept; perplexity at the own rate 17.7, 69.4 and "
        "1,141.4 at 15, 40 and 80 %",
        "93 % and 87 % kept",
    ),
    "C4": Claim(
        "corruption harms and prediction helps",
        WETTIG,
        LARGE,
        "MNLI at corrupted/predicted 40/40 84.5, 40/20 83.7, 20/20 84.1, 20/40 85.7, 10/40 86.3, "
        "5/40 86.9",
        "the order",
    ),
    "C5": Claim(
        "80/10/10 gains nothing over [MASK] alone at 40 %",
        WETTIG,
        LARGE,
        "MNLI 84.3 and 84.5",
        "no gain above 0.2 points",
    ),
    "C6": Claim(
        "the best rate depends on what is masked as one",
        WETTIG,
        LARGE,
        "best at 40 % for tokens, about 30 % for PMI, 20 to 30 % for spans; at 15 % spans and PMI "
        "lead",
        "an interaction of unit and rate",
    ),
    "C7": Claim(
        "rates that fall beat rates that rise, and constant ones",
        f"Ankner et al. (2023), arXiv 2305.15096; {SECONDARY}",
        "BERT-base, 70,000 updates of 4,096 rows of 128, three seeds, GLUE",
        "15 % 83.83, 30 % 84.12, 30 to 15 % 84.29, 15 to 30 % 83.71",
        "30 to 15 % above 15 to 30 %",
    ),
    "C8": Claim(
        "rates that follow a schedule beat constant ones",
        f"Yang et al. (2022), arXiv 2208.10806; {SECONDARY}",
        "BERT-base",
        "GLUE 81.1 to 82.8, SQuAD 90.2 to 90.9",
        "a gain above 0.5 points",
    ),
    "C9": Claim(
        "ending at a low rate helps understanding and costs retrieval",
        "EuroBERT (arXiv 2503.05500), mmBERT (arXiv 2509.06888); read in figures alone",
        "30, 15, 5 % in three phases",
        "figures only",
        "the signs",
    ),
    "C10": Claim(
        "no rate is best everywhere, and left to right first, then masked, beats masked alone",
        "arXiv 2507.00994",
        "20 to 50 %, 210M to 1B parameters, 100B tokens; a quarter of the updates left to right",
        "five seeds of fine-tuning",
        "the signs",
    ),
    "C11": Claim(
        "a little masking helps a model that reads from left to right, and the other way round",
        "GPT-BERT (arXiv 2410.24159)",
        "6.25 % masked examples; BabyLM",
        "BLiMP +4.2, MNLI +0.9; a share of 1 to 7 is best",
        "BLiMP +2 to +6",
    ),
    "C13": Claim(
        "of masked diffusion, a cosine law of rates beats a uniform one",
        "arXiv 2509.05056",
        "100M words, 10 epochs, rows of 128, five seeds",
        "BLiMP 79.05 ± 0.28 and 77.91 ± 1.35",
        "above 0",
    ),
    "C14": Claim(
        "masks that go by what is learnt beat uniform ones",
        "AMLM (arXiv 2510.20475)",
        "10M words, 15 %",
        "fine-tuning mean 68.5 and 70.0",
        "+0.3 to +2 points",
    ),
    "C15": Claim(
        "learning from all tokens beats learning from 15 %",
        f"ELECTRA (arXiv 2003.10555); {SECONDARY}",
        "GLUE of the base size",
        "85.0, all tokens predicted 84.3, 15 % 82.4, BERT 82.2",
        "all tokens ahead by 1 point",
    ),
    "C16": Claim(
        "a rate drawn for each example gains nothing over 15 %",
        f"CodeSage (arXiv 2402.01935); {SECONDARY}",
        "code; uniform between 10 and 50 %",
        "no difference",
        "within noise",
    ),
    "C17": Claim(
        "the diffusion bound does not depend on the law of the rate, its variance does",
        f"MDLM (arXiv 2406.07524); {SECONDARY}",
        "One Billion Words",
        "equal bounds; variances 1.81, 3.30 and 7.57",
        "equal within 2 standard errors",
    ),
}

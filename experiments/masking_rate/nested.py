"""Measure what nested masks are worth: the loss of one checkpoint at two rates, over many draws.

    python experiments/masking_rate/nested.py runs/masking_rate/cells/ID --draws=8

With the same draw of masks for both rates, those of the lower rate lie inside those of the higher;
with a draw for each rate they do not. The standard error of the difference in loss is given both
ways, for one draw: nothing but the masks differs.
"""

import argparse

import numpy as np

from bert_jax import suites
from bert_jax.interop import runs

BASE, OTHERS = "0.15", ("0.2", "0.3", "0.4", "0.8")


def main() -> None:
    """Print the table of masks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("--draws", type=int, default=8)
    args = parser.parse_args()
    run = runs.open_run(args.checkpoint)
    losses: dict[str, list[float]] = {rate: [] for rate in (BASE, *OTHERS)}
    for draw in range(args.draws):
        changes = (("evals.validation.seed", str(draw)),)
        metrics, _ = suites.score(run, suites.Options("cross_rate", changes=changes))
        for rate, values in losses.items():
            values.append(metrics[rate]["mlm_loss"])
    print("| rates | difference in loss | SE, nested masks | SE, masks of their own | ratio |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for rate in OTHERS:
        other, base = np.array(losses[rate]), np.array(losses[BASE])
        nested = np.std(other - base, ddof=1)
        separate = np.hypot(other.std(ddof=1), base.std(ddof=1))
        errors = f"{nested:.4f} | {separate:.4f} | {nested / separate:.2f}"
        print(f"| {rate} less {BASE} | {np.mean(other - base):+.4f} | {errors} |")


if __name__ == "__main__":
    main()

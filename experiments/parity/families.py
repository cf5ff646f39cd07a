"""Compare models of other families with golden outputs, and print a table of the differences.

    python experiments/parity/families.py

The golden outputs are those of transformers, and of NeoBERT's authors' code. They are committed
(tests/golden/families), and nothing else is needed.
"""

import datetime
import platform
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import jax

from tests.families import CASES, FAMILIES
from tests.parity import differences


def main() -> None:
    """Print the largest differences of each family."""
    print(f"{datetime.date.today()}, {platform.machine()} CPU, float32; jax {jax.__version__}.\n")
    print("| model_type | models | outputs | gradients |\n|---|---|---|---|")
    for family in FAMILIES:
        heads = [head for name, head in CASES if name == family]
        worst = {False: 0.0, True: 0.0}
        for head in heads:
            with tempfile.TemporaryDirectory() as folder:
                for name, far in differences(Path(folder), family, head).items():
                    kind = name.startswith("gradient")
                    worst[kind] = max(worst[kind], far)
        print(f"| `{family}` | {len(heads)} | {worst[False]:.1e} | {worst[True]:.1e} |")


if __name__ == "__main__":
    main()
    sys.stdout.flush()

"""Print the resolved config of a file: python -m bert_jax.config FILE.py[:arg]."""

import json
import sys

from bert_jax.config import load_file, resolve, to_dict

print(json.dumps(to_dict(resolve(load_file(sys.argv[1]))), indent=2))

"""Contestants for one part of an update."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import numpy as np

from bert_jax.benchmarks.ours import rows
from bert_jax.benchmarks.worker import Ready
from bert_jax.config import devices, recorded
from bert_jax.models import backends
from bert_jax.models.attention_mask import make_attention_mask
from bert_jax.models.layers import Dropout
from bert_jax.models.matmul import KINDS


def attention(config: dict[str, Any], backend: str, drop: bool = False) -> Ready:
    """Compute the attention of one layer and its gradients; operands are in memory already.

    Args:
      config: resolved.
      backend: a row of the table of backends, or xla: the arguments of cudnn, given to XLA.
      drop: whether einsum drops attention probabilities, at the config's rate.
    """
    resolved = recorded(config)
    m = devices.settled(resolved.model, train=True)
    assert m.hidden is not None
    assert m.heads is not None
    batch = jax.device_put(rows(resolved))
    shape = (*batch["tokens"].shape, m.heads, m.hidden // m.heads)
    kind = KINDS[m.dtype].result
    operands = [jax.random.normal(jax.random.key(i), shape).astype(kind) for i in range(4)]
    attend: Any = functools.partial(backends.attend_fused, implementation="xla")
    if backend != "xla":
        attend = backends.TABLE[backend]

    def gradients(query: Any, key: Any, value: Any, cotangent: Any, seed: Any) -> Any:
        rngs = {"dropout": jax.random.key(seed)}

        def dropped(x: jax.Array) -> jax.Array:
            out: Any = Dropout(m.attention_dropout, drop).apply({}, x, rngs=rngs)
            return out

        def context(*projections: Any) -> jax.Array:
            mask = make_attention_mask(batch, m, m.window)
            return attend(*projections, mask, m, dropped)[0]

        out, pull = jax.vjp(context, query, key, value)
        return out, pull(cotangent)

    compiled, seeds = jax.jit(gradients), itertools.count()

    def call() -> None:
        jax.block_until_ready(compiled(*operands, np.uint32(next(seeds))))

    return Ready(call, batch["tokens"].size, "tokens", {"backend": backend})

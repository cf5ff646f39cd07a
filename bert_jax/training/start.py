"""The programs that make the state of a run before its first update."""

import functools
from collections.abc import Callable, Collection
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.config import knobs
from bert_jax.objectives import network
from bert_jax.training.step import State, draw_state, make_first_state


class Start:
    """Makes the first state of a run: draws all parameters, or those that `init_from` lacks.

    `shapes` and `layout` have the shape and the sharding of each array of the state.
    """

    def __init__(self, config: knobs.Config, vocab_size: int, mesh: Mesh):
        """Find out the shapes and the layout; the update is not compiled yet."""

        def draw(seed: jax.Array) -> State:
            return draw_state(config, vocab_size, seed)

        def make_rest(params: Any) -> State:
            state = make_first_state(config, params)
            return {key: state[key] for key in rest}

        self._init_params = functools.partial(network.init_params, config, vocab_size)
        self.shapes = jax.eval_shape(draw, np.uint32(0))
        self.layout = lay_out_state(self.shapes, mesh, config.parallel)
        rest = {key: where for key, where in self.layout.items() if key != "params"}
        self._draw = jax.jit(draw, out_shardings=self.layout)
        self._make_rest = jax.jit(make_rest, out_shardings=rest)
        self._draws: dict[frozenset[str], Callable[..., dict[str, jax.Array]]] = {}

    def draw_state(self, seed: int) -> State:
        """Draw all parameters; return the state of a run without an update."""
        return self._draw(np.uint32(seed))

    def draw_params(self, seed: int, names: Collection[str]) -> dict[str, jax.Array]:
        """Draw some parameters as `draw_state` draws them; return them by their names."""
        if not names:
            return {}
        wanted = frozenset(names)
        if wanted not in self._draws:  # all runs of a program draw the same names
            self._draws[wanted] = self._build_draw(wanted)
        return self._draws[wanted](np.uint32(seed))

    def make_first_state(self, params: Any) -> State:
        """Return the state of a run that has these parameters and made no update."""
        return {"params": params, **self._make_rest(params)}

    def _build_draw(self, names: frozenset[str]) -> Callable[..., dict[str, jax.Array]]:
        """Build the function that draws the parameters of some names from a seed."""

        def draw(seed: jax.Array) -> dict[str, jax.Array]:
            params = flatten_dict(self._init_params(seed), sep="/")
            return {name: params[name] for name in names}

        layout = flatten_dict(self.layout["params"], sep="/")
        return jax.jit(draw, out_shardings={name: layout[name] for name in names})


def lay_out_state(state: Any, mesh: Mesh, settings: knobs.Parallel) -> Any:
    """Return the sharding of each array of a state: split over fsdp, or replicated under pmap."""
    if settings.step == "jit":
        return sharding.state_shardings(state, mesh)
    where = sharding.replicated(mesh)
    if jax.process_count() == 1:
        # The very sharding of pmap's results: with any other the second update compiles again.
        mapped = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i", out_axes=None)
        where = mapped(np.zeros(jax.local_device_count(), np.float32)).sharding
    return jax.tree.map(lambda _: where, state)

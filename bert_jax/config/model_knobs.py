"""Knobs of the model: sizes, positions, norms, heads, attention, and how it is computed."""

import dataclasses
from typing import Annotated, Literal

from msgspec import Meta

from bert_jax.config.declare import Amount, Count, Dropout, knob

SIZES = {  # layers, hidden, heads; the feed-forward width is four times hidden
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
LONGEST = 65_535  # tokens of a row
WIDEST = 65_536  # numbers of a vector
Width = Annotated[int, Meta(ge=1, le=WIDEST)]
Remat = Literal["auto", "none", "dots", "full"]
Dtype = Literal["auto", "float32", "bfloat16", "bfloat16_products"]
# The most negative float32: next to a real score its weight is exactly 0, like that of -inf.
LEAST = -3.4028234663852886e38


@dataclasses.dataclass(frozen=True)
class Model:
    """The encoder and its heads. `size` gives the knobs layers, hidden and heads."""

    #: names layers, hidden and heads
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = knob(
        "base", resets=("layers", "hidden", "heads", "mlp")
    )
    layers: Annotated[int, Meta(ge=1, le=1000)] | None = None  #: encoder layers
    hidden: Width | None = None  #: width of the vectors
    heads: Width | None = None  #: attention heads
    #: feed-forward width; None is 4 x hidden
    mlp: Annotated[int, Meta(ge=1, le=16 * WIDEST)] | None = None
    #: width of the tables, brought to hidden by a dense layer, as in ELECTRA; None is hidden
    embedding: Width | None = None
    #: rows of the table of learned positions; distance from which on relative ones share a bucket
    max_positions: Annotated[int, Meta(ge=1, le=1 << 20)] = knob(
        512, "model.position=learned|relative"
    )
    #: row of the first token in that table; RoBERTa's is 2
    first_position: Annotated[int, Meta(ge=0, le=1 << 20)] = knob(0, "model.position=learned")
    #: segment types: 2 for pairs, 1 is one vector for all tokens, 0 none
    type_vocab: Annotated[int, Meta(ge=0, le=WIDEST)] = 2
    #: rows of the token table are padded to a multiple; padding is never predicted
    vocab_multiple: Width = 64
    #: relative is disentangled attention over buckets of distances (DeBERTa, GPT-BERT)
    position: Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"] = "learned"
    #: buckets of distances in each direction: half for the shortest, the rest logarithmic
    position_buckets: Annotated[int, Meta(ge=2, le=1 << 20)] = knob(32, "model.position=relative")
    #: the wavelengths are 2 pi to this many times 2 pi
    rotary_base: Annotated[float, Meta(ge=1)] = knob(10000.0, "model.position=rotary")
    #: rotary_base of layers with a window; None is the same
    rotary_base_near: Annotated[float, Meta(ge=1)] | None = knob(
        None, "model.position=rotary", "model.window>0"
    )
    norm: Literal["post", "pre"] = "post"  #: normalise after or before each block
    #: LayerNorm, or RMSNorm, which has neither mean nor bias
    norm_kind: Literal["layer", "rms"] = "layer"
    embedding_norm: bool = True  #: normalise the sum of the embeddings
    #: the first layer normalises what its attention reads
    first_norm: bool = knob(True, "model.norm=pre")
    #: one more LayerNorm before the last matmul of attention and feed-forward
    inner_norm: bool = False
    #: scale and bias of LayerNorm; the norm of relative positions keeps them
    norm_parameters: bool = True
    biases: bool = True  #: biases of dense layers and LayerNorm, except outputs, which have them
    mlp_biases: bool | None = None  #: biases of the feed-forward; None is `biases`
    #: activation of the feed-forward; gelu is the exact erf form
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    #: activation of the MLM head and of pooler=transform; None is the feed-forward's
    head_activation: Literal["gelu", "gelu_tanh", "relu", "silu"] | None = knob(
        None, "head activation", same_as="model.activation"
    )
    #: from vectors to words: dense layer, head_activation, norm and the token table (transform), or
    #: a matrix of its own (untied); or only a matrix
    word_head: Literal["transform", "untied", "matrix"] = knob("transform", "words")
    gated: bool = False  #: gated feed-forward (GeGLU with gelu)
    #: attention is multiplied by the gelu of a dense layer of its input
    attention_gate: bool = False
    #: each block reads a learned sum of all outputs before it (DenseFormer)
    layer_weights: bool = False
    #: the vector of a text: [CLS] (the last token if causal), or the mean over tokens
    pooling: Literal["cls", "mean"] = knob("cls", "pooled")
    #: from that vector to a head: a dense layer of the encoder and this activation; or each head's
    #: own dense layer, head_activation and norm (transform)
    pooler: Literal["tanh", "relu", "gelu", "transform"] = knob("tanh", "pooler")
    #: bias of that layer of the encoder; None is `biases`
    pooler_bias: bool | None = knob(None, "encoder pooler")
    #: last layers, concatenated, that a head over labels reads
    features: Count = knob(1, "classes")
    causal: bool = False  #: each token attends to itself and the tokens before it
    #: a token attends to this many positions on both sides; 0 is all
    window: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    #: the first and every n-th layer after it attend to all tokens; 0: none
    global_every: Annotated[int, Meta(ge=0, le=1000)] = knob(0, "model.window>0")
    #: einsum, which alone drops and returns probabilities; cudnn (NVIDIA); splash (TPU); auto is
    #: the device's, where it can
    attention: Literal["auto", "einsum", "cudnn", "splash"] = knob("auto", free=True)
    dropout: Dropout = 0.1  #: dropout of hidden vectors
    attention_dropout: Dropout = 0.1  #: dropout of attention probabilities
    #: dropout before a head over labels; None is `dropout`
    classifier_dropout: Dropout | None = knob(None, "classes", same_as="model.dropout")
    norm_epsilon: Amount = 1e-12  #: epsilon of norms
    #: distribution of weights; truncated at two sigma or not
    init: Literal["truncated_normal", "normal"] = "truncated_normal"
    init_stddev: Amount = 0.02  #: nominal standard deviation of weights
    #: added to the score of a masked position
    attention_bias: Annotated[float, Meta(ge=LEAST, le=-1000.0)] = -10000.0
    scan: bool | None = None  #: compile one layer and loop over like layers; None suits the device
    #: what the backward pass computes again: nothing, all but results of matmuls (dots), or all but
    #: inputs of layers (full)
    remat: Remat = knob("auto", free=True)
    #: compute type; bfloat16_products multiplies bfloat16 into float32 sums; auto is float32, but
    #: bfloat16 to train on accelerators
    dtype: Dtype = "auto"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The number of layers, the width, the number of heads, and the feed-forward width."""
        assert self.layers is not None
        assert self.hidden is not None
        assert self.heads is not None
        assert self.mlp is not None
        return self.layers, self.hidden, self.heads, self.mlp

    @property
    def table_width(self) -> int:
        """The width of the table of token vectors."""
        return self.embedding or self.shape[1]

    @property
    def can_scan(self) -> bool:
        """Tell whether the layers can be computed by a loop (`model.scan`).

        A loop is possible if all layers compute the same, and only the output of the last layer is
        read.
        """
        windows_differ = bool(self.window and self.global_every)
        norms_differ = self.norm == "pre" and not self.first_norm
        differ = self.layer_weights or windows_differ or norms_differ
        return not differ and self.features == 1

    @property
    def longest(self) -> int:
        """The tokens of the longest row for which the model has positions."""
        if self.position != "learned":
            return LONGEST
        return self.max_positions - self.first_position

"""Knobs of the model: sizes, positions, norms, heads, attention, and how it is computed."""

from __future__ import annotations

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
LEAST = -3.4028234663852886e38  # the most negative float32


@dataclasses.dataclass(frozen=True)
class Model:
    """The encoder and its heads. A field left None follows from `size`."""

    #: names layers, hidden and heads
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] = knob(
        "base", resets=("layers", "hidden", "heads", "mlp")
    )
    #: encoder layers
    layers: Annotated[int, Meta(ge=1, le=1000)] | None = None
    #: width of the vectors
    hidden: Width | None = None
    #: attention heads
    heads: Width | None = None
    #: feed-forward width; None is 4 x hidden
    mlp: Annotated[int, Meta(ge=1, le=16 * WIDEST)] | None = None
    #: width of the tables of tokens, types and positions; a dense layer brings it to hidden,
    #: as in ELECTRA, and the MLM head back; None is hidden
    embedding: Width | None = None
    #: rows of the table of learned positions; of relative ones, the distance from which on
    #: all are in the last bucket
    max_positions: Annotated[int, Meta(ge=1, le=1 << 20)] = knob(
        512, when="model.position=learned|relative"
    )
    #: row of that table which the first token reads; RoBERTa's is 2
    first_position: Annotated[int, Meta(ge=0, le=1 << 20)] = knob(0, when="model.position=learned")
    #: segment types: 2 tell the texts of a pair apart, 1 is one vector for every token, 0
    #: none
    type_vocab: Annotated[int, Meta(ge=0, le=WIDEST)] = 2
    #: rows of the token table are padded to a multiple; padding is never predicted
    vocab_multiple: Width = 64
    #: position encoding; relative is a table of distances in buckets, whose vectors attention
    #: compares with tokens (disentangled attention), as in DeBERTa, LTG-BERT and GPT-BERT
    position: Literal["learned", "sinusoidal", "rotary", "alibi", "relative", "none"] = "learned"
    #: buckets of distances in each direction: half of the buckets are for the shortest distances,
    #: the rest are spaced by the logarithm, up to max_positions
    position_buckets: Annotated[int, Meta(ge=2, le=1 << 20)] = knob(
        32, when="model.position=relative"
    )
    #: the wavelengths are 2 pi to this many times 2 pi
    rotary_base: Annotated[float, Meta(ge=1)] = knob(10000.0, when="model.position=rotary")
    #: rotary_base of layers with a window; None is the same
    rotary_base_near: Annotated[float, Meta(ge=1)] | None = knob(
        None, when=("model.position=rotary", "model.window>0")
    )
    #: normalise after or before each block
    norm: Literal["post", "pre"] = "post"
    #: normalisation, everywhere: LayerNorm, or RMSNorm, which has neither mean nor bias
    norm_kind: Literal["layer", "rms"] = "layer"
    #: whether the sum of the embeddings is normalised
    embedding_norm: bool = True
    #: whether the first layer normalises what its attention reads
    first_norm: bool = knob(True, when="model.norm=pre")
    #: a further LayerNorm before the last matmul of attention and of the feed-forward
    inner_norm: bool = False
    #: whether LayerNorm has scale and bias; the norm of relative positions keeps them
    norm_parameters: bool = True
    #: whether dense layers and LayerNorm have biases; outputs over words and labels always do
    biases: bool = True
    #: biases of the dense layers of the feed-forward; None is `biases`
    mlp_biases: bool | None = None
    #: activation of the feed-forward; gelu is the exact erf form
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    #: activation of the MLM head, and of pooler=transform; None is the feed-forward's
    head_activation: Literal["gelu", "gelu_tanh", "relu", "silu"] | None = knob(
        None, when="head activation", same_as="model.activation"
    )
    #: what turns vectors into logits of words: a dense layer, head_activation, a norm and the
    #: token table (transform) or a matrix in its place (untied), or that matrix alone
    #: (matrix)
    word_head: Literal["transform", "untied", "matrix"] = knob("transform", when="words")
    #: gated feed-forward (GeGLU with gelu)
    gated: bool = False
    #: what attention has summed is multiplied by the gelu of a dense layer of what it reads
    attention_gate: bool = False
    #: attention and feed-forward of each layer read a learned sum of the outputs of all
    #: before them, embeddings included (DenseFormer); at first that of the last alone
    layer_weights: bool = False
    #: the vector of a text that heads over labels read: that of [CLS] (of a causal model, of
    #: the last token), or the mean over all tokens
    pooling: Literal["cls", "mean"] = knob("cls", when="pooled")
    #: what heads over labels read that vector through: a dense layer of the encoder and this
    #: activation; transform is a dense layer, head_activation and LayerNorm of each head, as
    #: the MLM head has them, also for heads over tokens
    pooler: Literal["tanh", "relu", "gelu", "transform"] = knob("tanh", when="pooler")
    #: whether that layer of the encoder has a bias; None is as `biases` has it
    pooler_bias: bool | None = knob(None, when="encoder pooler")
    #: number of last layers, concatenated, that a head over labels reads; 1 is the paper's
    #: fine-tuning
    features: Count = knob(1, when="classes")
    #: each token attends to itself and the tokens before it; the vector of a text is that of
    #: its last token, not of [CLS]
    causal: bool = False
    #: a token attends to tokens at most this many positions away, on both sides; 0 is all
    window: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    #: the first layer and every n-th after it attend to all tokens; 0 is none
    global_every: Annotated[int, Meta(ge=0, le=1000)] = knob(0, when="model.window>0")
    #: backend of attention: einsum, which alone drops probabilities and returns them; cudnn,
    #: on NVIDIA GPUs; splash, on TPUs; auto is that of the device where it supports a pass,
    #: else einsum
    attention: Literal["auto", "einsum", "cudnn", "splash"] = knob("auto", free=True)
    #: hidden dropout
    dropout: Dropout = 0.1
    #: attention dropout
    attention_dropout: Dropout = 0.1
    #: dropout before a head over labels; None is the hidden dropout
    classifier_dropout: Dropout | None = knob(None, when="classes", same_as="model.dropout")
    #: LayerNorm epsilon
    norm_epsilon: Amount = 1e-12
    #: distribution of weights: a normal one, truncated at two sigma or not
    init: Literal["truncated_normal", "normal"] = "truncated_normal"
    #: nominal standard deviation of weights
    init_stddev: Amount = 0.02
    #: added to the score of a masked position, whose weight becomes 0
    attention_bias: Annotated[float, Meta(ge=LEAST, le=-1000.0)] = -10000.0
    #: compile one layer and loop over layers that are alike, or unroll; None is what suits the
    #: device
    scan: bool | None = None
    #: activations that the backward pass computes again: none, all but the results of matmuls
    #: and fused attention (dots), or all but the inputs of layers (full); auto is what suits
    #: the device
    remat: Remat = knob("auto", free=True)
    #: compute type; bfloat16_products multiplies bfloat16 factors into float32 sums, and all
    #: else is float32; auto is float32, but bfloat16 to train on an accelerator
    dtype: Dtype = "auto"

    @property
    def table_width(self) -> int:
        """The width of the token table."""
        assert self.hidden is not None
        return self.embedding or self.hidden

    @property
    def can_scan(self) -> bool:
        """Tell whether layers can be a loop: all compute the same, and only the last is read."""
        windows_differ = bool(self.window and self.global_every)
        norms_differ = self.norm == "pre" and not self.first_norm
        differ = self.layer_weights or windows_differ or norms_differ
        return not differ and self.features == 1

    @property
    def longest(self) -> int:
        """The most tokens of a row that have a position."""
        return self.max_positions - self.first_position if self.position == "learned" else LONGEST

"""Knobs of the model: sizes, positions, norms, heads, attention, and how it is computed."""

from __future__ import annotations

import dataclasses

from bert_jax.config.data_knobs import knob

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


@dataclasses.dataclass(frozen=True)
class Model:
    """The encoder and its heads. A field left None follows from `size`."""

    size: str = knob("base", "names layers, hidden and heads", choices=tuple(SIZES))
    layers: int | None = knob(None, "encoder layers", low=1, high=1_000)
    hidden: int | None = knob(None, "width", low=1, high=WIDEST)
    heads: int | None = knob(None, "attention heads", low=1, high=WIDEST)
    mlp: int | None = knob(None, "feed-forward width; None is 4 x hidden", low=1, high=16 * WIDEST)
    embedding: int | None = knob(
        None,
        "width of the tables of tokens, types and positions; a dense layer brings it to hidden, as "
        "in ELECTRA, and the MLM head back; None is hidden",
        low=1,
        high=WIDEST,
    )
    max_positions: int = knob(
        512,
        "rows of the table of learned positions; of relative ones, the distance from which on all "
        "are in the last bucket",
        low=1,
        high=1 << 20,
    )
    first_position: int = knob(
        0, "row of that table which the first token reads; RoBERTa's is 2", low=0, high=1 << 20
    )
    type_vocab: int = knob(
        2,
        "segment types: 2 tell the texts of a pair apart, 1 is one vector for every token, 0 none",
        low=0,
        high=WIDEST,
    )
    vocab_multiple: int = knob(
        64,
        "rows of the token table are padded to a multiple; padding is never predicted",
        low=1,
        high=WIDEST,
    )
    position: str = knob(
        "learned",
        "position encoding; relative is a table of distances in buckets, whose vectors attention "
        "compares with tokens (disentangled attention), as in DeBERTa, LTG-BERT and GPT-BERT",
        choices=("learned", "sinusoidal", "rotary", "alibi", "relative", "none"),
    )
    position_buckets: int = knob(
        32,
        "relative positions: buckets of either direction; distances up to half of it have one "
        "each, longer ones share the rest by their logarithm, up to max_positions",
        low=2,
        high=1 << 20,
    )
    rotary_base: float = knob(
        10_000.0, "rotary positions: the wavelengths are 2 pi to this many times 2 pi", low=1
    )
    rotary_base_near: float | None = knob(
        None, "rotary_base of layers with a window; None is the same", low=1
    )
    norm: str = knob("post", "normalise after or before each block", choices=("post", "pre"))
    norm_kind: str = knob(
        "layer",
        "normalisation, everywhere: LayerNorm, or RMSNorm, which has neither mean nor bias",
        choices=("layer", "rms"),
    )
    embedding_norm: bool = knob(True, "whether the sum of the embeddings is normalised")
    first_norm: bool = knob(
        True, "pre-norm: whether the first layer normalises what its attention reads"
    )
    inner_norm: bool = knob(
        False, "a further LayerNorm before the last matmul of attention and of the feed-forward"
    )
    norm_parameters: bool = knob(
        True, "of LayerNorm: scale and bias; without, that of relative positions keeps its own"
    )
    biases: bool = knob(
        True, "of dense layers and LayerNorm; without, outputs over words and labels keep theirs"
    )
    mlp_biases: bool | None = knob(
        None, "biases of the dense layers of the feed-forward; None is `biases`"
    )
    activation: str = knob(
        "gelu",
        "of the feed-forward; gelu is the exact erf form",
        choices=("gelu", "gelu_tanh", "relu", "silu"),
    )
    head_activation: str | None = knob(
        None,
        "activation of the MLM head, and of pooler=transform; None is the feed-forward's",
        choices=("gelu", "gelu_tanh", "relu", "silu"),
    )
    word_head: str = knob(
        "transform",
        "what turns vectors into logits of words: a dense layer, head_activation, a norm and the "
        "token table (transform) or a matrix in its place (untied), or that matrix alone (matrix)",
        choices=("transform", "untied", "matrix"),
    )
    gated: bool = knob(False, "gated feed-forward (GeGLU with gelu)")
    attention_gate: bool = knob(
        False,
        "what attention has summed is multiplied by the gelu of a dense layer of what it reads",
    )
    layer_weights: bool = knob(
        False,
        "attention and feed-forward of each layer read a learned sum of the outputs of all before "
        "them, embeddings included (DenseFormer); at first that of the last alone",
    )
    pooling: str = knob(
        "cls",
        "the vector of a text that heads over labels read: that of [CLS] (of a causal model, of "
        "the last token), or the mean over all tokens",
        choices=("cls", "mean"),
    )
    pooler: str = knob(
        "tanh",
        "what heads over labels read that vector through: a dense layer of the encoder and this "
        "activation; transform is a dense layer, head_activation and LayerNorm of each head, as "
        "the MLM head has them, also for heads over tokens",
        choices=("tanh", "relu", "gelu", "transform"),
    )
    pooler_bias: bool | None = knob(
        None, "whether that layer of the encoder has a bias; None is as `biases` has it"
    )
    features: int = knob(
        1,
        "number of last layers, concatenated, that a head over labels reads; 1 is the paper's "
        "fine-tuning",
        low=1,
    )
    causal: bool = knob(
        False,
        "each token attends to itself and the tokens before it; the vector of a text is that of "
        "its last token, not of [CLS]",
    )
    window: int = knob(
        0,
        "a token attends to tokens at most this many positions away, on both sides; 0 is all",
        low=0,
        high=1 << 20,
    )
    global_every: int = knob(
        0,
        "with a window: the first layer and every n-th after it attend to all tokens; 0 is none",
        low=0,
        high=1_000,
    )
    attention: str = knob(
        "auto",
        "backend of attention: einsum, which alone drops probabilities and returns them; cudnn, on "
        "NVIDIA GPUs; splash, on TPUs; auto is that of the device where it supports a pass, else "
        "einsum",
        choices=("auto", "einsum", "cudnn", "splash"),
    )
    dropout: float = knob(0.1, "hidden dropout", low=0, high=0.99)
    attention_dropout: float = knob(0.1, "attention dropout", low=0, high=0.99)
    classifier_dropout: float | None = knob(
        None, "dropout before a head over labels; None is the hidden dropout", low=0, high=0.99
    )
    norm_epsilon: float = knob(1e-12, "LayerNorm epsilon", low=0)
    init: str = knob(
        "truncated_normal",
        "distribution of weights: a normal one, truncated at two sigma or not",
        choices=("truncated_normal", "normal"),
    )
    init_stddev: float = knob(0.02, "nominal standard deviation of weights", low=0)
    attention_bias: float = knob(
        -10_000.0,
        "added to the score of a masked position, whose weight becomes 0",
        low=-3.4028234663852886e38,  # the most negative float32
        high=-1_000.0,
    )
    scan: bool | None = knob(
        None,
        "compile one layer and loop over layers that are alike, or unroll; None is what suits the "
        "device",
    )
    remat: str = knob(
        "auto",
        "activations that the backward pass computes again: none, all but the results of matmuls "
        "and fused attention (dots), or all but the inputs of layers (full); auto is what suits "
        "the device",
        choices=("auto", "none", "dots", "full"),
        formerly={"false": "none", "true": "full"},
    )
    dtype: str = knob(
        "auto",
        "compute type; bfloat16_products multiplies bfloat16 factors into float32 sums, and all "
        "else is float32; auto is float32, but bfloat16 to train on an accelerator",
        choices=("auto", "float32", "bfloat16", "bfloat16_products"),
    )

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

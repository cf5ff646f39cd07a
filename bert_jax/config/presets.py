"""Published recipes as named sets of knobs: plain data.

PRESETS holds the value of every knob a source decides, under the knob's path, also where it is
today's default: so a changed default changes no preset. Recipe knobs (rate, steps, batch, learning
rate) are in a preset where its source states them. What a source leaves open stays with the config,
and size, compute type, devices and text always do. ABOUT says where the values were read, and what
is not reproduced. `config.apply` sets a preset on a config; `bert-jax doctor --preset-diff A B`
prints the differences between two.
"""

from __future__ import annotations

from typing import Any

from bert_jax.config.preset_bases import FAIRSEQ, LEAST, MASKING, MODEL, SINCE

GOOGLE_2018: dict[str, Any] = {
    "pairs": "nsp",
    "tokenizer.max_word_length": 200,
    "tokenizer.characters": "google",
    "examples.short_probability": 0.1,
    "examples.random_next_probability": 0.5,
    "examples.truncate": "either",
    "objectives.mlm.weight": 1.0,
    "objectives.nsp.weight": None,  # 1 where pairs allow: pairs=none remains a change of one knob
    **MASKING,
    "masking.rate": 0.15,
    "masking.replace": (0.8, 0.1, 0.1),
    "masking.max_unit": 512,
    "masking.overflow": "skip",
    "masking.count": "all",
    "masking.rounding": "nearest",
    "masking.random_from": "all",
    "masking.dupe_factor": 10,
    **MODEL,
    "model.position": "learned",
    "model.max_positions": 512,
    "model.type_vocab": 2,
    "model.norm": "post",
    "model.norm_epsilon": 1e-12,
    "model.activation": "gelu",
    "model.head_activation": "gelu",
    "model.attention_dropout": 0.1,
    "model.classifier_dropout": 0.1,
    "model.attention_bias": -10_000.0,
    "model.init": "truncated_normal",
    "optim.name": "adam2018",
    "optim.b1": 0.9,
    "optim.b2": 0.999,
    "optim.epsilon": 1e-6,
    "optim.weight_decay": 0.01,
    "optim.no_decay": r"norm/|bias$",
    "optim.clip_norm": 1.0,
    "optim.schedule": "linear2018",
    "optim.final_fraction": 0.0,
    "optim.learning_rate": 1e-4,
    "optim.warmup_steps": 10_000,
    "steps": 1_000_000,
    "batch_size": 256,
    "sequence_length": 128,
}

GOOGLE_HEAD: dict[str, Any] = GOOGLE_2018 | {
    "model.activation": "gelu_tanh",
    "model.head_activation": "gelu_tanh",
}

HUGGINGFACE: dict[str, Any] = SINCE | {
    "tokenizer.max_word_length": 100,
    "tokenizer.characters": "huggingface",
    "masking.rate": 0.15,
    "masking.replace": (0.8, 0.1, 0.1),
    "masking.random_from": "all",
    "model.position": "learned",
    "model.max_positions": 512,
    "model.type_vocab": 2,
    "model.norm": "post",
    "model.norm_epsilon": 1e-12,
    "model.attention_dropout": 0.1,
    "model.classifier_dropout": None,  # the hidden dropout
    "model.attention_bias": LEAST,
    "optim.b2": 0.999,
    "optim.epsilon": 1e-8,
    "optim.weight_decay": 0.0,
    "optim.no_decay": r"norm/|bias$",
    "optim.clip_norm": 1.0,
    "optim.final_fraction": 0.0,
    "optim.learning_rate": 5e-5,
    "optim.warmup_steps": 0,
}

ROBERTA: dict[str, Any] = FAIRSEQ | {
    "masking.rate": 0.15,
    "masking.replace": (0.8, 0.1, 0.1),
    "model.norm": "post",
    "optim.learning_rate": 6e-4,
    "optim.warmup_steps": 24_000,
    "steps": 500_000,
    "batch_size": 8_192,
    "sequence_length": 512,
}

WETTIG: dict[str, Any] = FAIRSEQ | {
    "masking.rate": 0.4,
    "masking.replace": (1.0, 0.0, 0.0),
    "model.norm": "pre",
    "optim.learning_rate": 2e-3,
    "optim.warmup_steps": 1_380,
    "steps": 23_000,
    "batch_size": 4_096,
    "sequence_length": 128,
}

MOSAIC: dict[str, Any] = SINCE | {
    "tokenizer.max_word_length": 100,
    "tokenizer.characters": "huggingface",
    "masking.rate": 0.3,
    "masking.replace": (0.8, 0.1, 0.1),
    "masking.random_from": "all",
    "model.gated": True,
    "model.position": "alibi",
    "model.type_vocab": 2,
    "model.vocab_multiple": 64,
    "model.norm": "post",
    "model.norm_epsilon": 1e-12,
    "model.attention_dropout": 0.0,
    "model.classifier_dropout": None,
    "model.attention_bias": -10_000.0,
    "optim.b2": 0.98,
    "optim.epsilon": 1e-6,
    "optim.weight_decay": 1e-5 / 5e-4,
    "optim.no_decay": "",
    "optim.clip_norm": 0.0,
    "optim.final_fraction": 0.02,
    "optim.learning_rate": 5e-4,
    "optim.warmup_steps": 4_200,
    "steps": 70_000,
    "batch_size": 4_096,
    "sequence_length": 128,
}

MODERNBERT: dict[str, Any] = SINCE | {
    "masking.rate": 0.3,
    "masking.replace": (0.8, 0.1, 0.1),
    "masking.random_from": "all",
    "model.position": "rotary",
    "model.window": 64,
    "model.global_every": 3,
    "model.type_vocab": 0,
    "model.vocab_multiple": 64,
    "model.norm": "pre",
    "model.first_norm": False,
    "model.norm_epsilon": 1e-5,
    "model.biases": False,
    "model.gated": True,
    "model.pooling": "mean",
    "model.pooler": "transform",
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.classifier_dropout": None,
    "model.attention_bias": LEAST,
    "model.init": "truncated_normal",
    "optim.b2": 0.98,
    "optim.epsilon": 1e-6,
    "optim.weight_decay": 1e-5 / 8e-4,
    "optim.no_decay": r"norm/|bias$",
    "optim.clip_norm": 0.0,
    "optim.schedule": "constant",
    "optim.final_fraction": 0.0,
    "optim.learning_rate": 8e-4,
    "optim.warmup_steps": 636,
    "steps": 364_304,
    "batch_size": 4_608,
    "sequence_length": 1_024,
}

NEOBERT: dict[str, Any] = SINCE | {
    "tokenizer.max_word_length": 100,
    "tokenizer.characters": "huggingface",
    "masking.rate": 0.2,
    "masking.replace": (1.0, 0.0, 0.0),
    "masking.random_from": "all",
    "model.position": "rotary",
    "model.type_vocab": 0,
    "model.norm": "pre",
    "model.norm_kind": "rms",
    "model.norm_epsilon": 1e-5,
    "model.embedding_norm": False,
    "model.biases": False,
    "model.pooler_bias": True,
    "model.gated": True,
    "model.activation": "silu",
    "model.word_head": "matrix",
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.classifier_dropout": 0.1,
    "model.attention_bias": LEAST,
    "model.init_stddev": 0.02 / 3**0.5,
    "optim.b2": 0.95,
    "optim.epsilon": 1e-8,
    "optim.weight_decay": 0.01,
    "optim.no_decay": "",
    "optim.clip_norm": 1.0,
    "optim.schedule": "cosine",
    "optim.final_fraction": 0.1,
    "optim.learning_rate": 1e-4,
    "optim.warmup_steps": 2_000,
    "steps": 1_000_000,
    "batch_size": 2_048,
    "sequence_length": 1_024,
}

GPT_BERT: dict[str, Any] = SINCE | {
    "objectives.mlm.weight": None,  # hybrid takes its place
    "objectives.hybrid.weight": 1.0,
    "objectives.hybrid.share": 1 / 16,
    "objectives.hybrid.shift": True,
    "masking.rate": 0.3,
    "masking.schedule": "linear",
    "masking.final_rate": 0.15,
    "masking.replace": (0.8, 0.1, 0.1),
    "masking.random_from": "regular",
    "model.position": "relative",
    "model.max_positions": 512,
    "model.type_vocab": 0,
    "model.norm": "pre",
    "model.inner_norm": True,
    "model.norm_parameters": False,
    "model.norm_epsilon": 1e-5,
    "model.mlp_biases": False,
    "model.activation": "gelu_tanh",
    "model.gated": True,
    "model.attention_gate": True,
    "model.layer_weights": True,
    "model.pooler": "transform",
    "model.attention_dropout": 0.1,
    "model.classifier_dropout": None,
    "model.attention_bias": LEAST,
    "model.init": "truncated_normal",
    "model.init_stddev": (2 / (5 * 768)) ** 0.5,
    "optim.name": "lamb",
    "optim.b2": 0.98,
    "optim.epsilon": 1e-8,
    "optim.weight_decay": 0.1,
    "optim.no_decay": r"norm/|bias$",
    "optim.clip_norm": 2.0,
    "optim.schedule": "cosine",
    "optim.final_fraction": 0.1,
    "optim.learning_rate": 1e-2,
    "optim.warmup_steps": 250,
    "steps": 15_625,
    "batch_size": 32_768,
    "sequence_length": 128,
}

PRESETS: dict[str, dict[str, Any]] = {
    "google_2018": GOOGLE_2018,
    "google_head": GOOGLE_HEAD,
    "huggingface": HUGGINGFACE,
    "roberta": ROBERTA,
    "wettig": WETTIG,
    "mosaic": MOSAIC,
    "modernbert": MODERNBERT,
    "neobert": NEOBERT,
    "gpt_bert": GPT_BERT,
}

ABOUT: dict[str, str] = {
    "google_2018": """
        BERT as first released: google-research/bert, modeling.py, optimization.py,
        create_pretraining_data.py, run_pretraining.py and run_classifier.py; GELU as in the port
        Hugging Face made of it at the time (whose words of 100 characters may be the first
        release's too: no copy of it says); steps, batch and learning rate as its paper and README
        state them. Not reproduced: gradients are clipped once, after the global reduction, where
        the original clips on each device before it; there is no max_predictions_per_seq (20 at 128
        tokens, which caps the rate at 15.6 %), as slots follow from the rate; the MLM loss is
        divided by the count and not by count + 1e-5; a word cut by truncation stays a unit of its
        own at the start of segment B, where the original's whole words join it to the last word of
        A; a shard of one document gives true pairs only, where the original calls its own text
        random; the duplicates come one after the other, in a new order every epoch, where the
        original shuffles all of them together once; the last tenth of the steps, at 512 tokens, is
        a run of its own that starts from this one.""",
    "google_head": """
        BERT as the repository has been since 2019: google-research/bert at eedf571, the same
        files. It differs from the first release in the tanh approximation of GELU; whole word
        masking came too, but is off unless asked for (masking.unit=word). Not reproduced: what
        google_2018 names.""",
    "huggingface": """
        What transformers does when told nothing: BertConfig, its initial weights and eager
        attention, run_mlm.py with DataCollatorForLanguageModeling, and Trainer with the defaults
        of TrainingArguments (read at 5.23; run_mlm.py in the repository); letters, spaces and
        punctuation are told apart by the tables of the tokenizers library, whose capital sigma is
        never final. A rate of 5e-5 with neither warm-up nor weight decay is meant for fine-tuning;
        batch and epochs are left to the user. Not reproduced: tokens are drawn one by one with the
        rate as their chance, where here the share of an example is right to less than a token and,
        as there, on average (masking.rounding=unbiased); group_texts cuts a stream of texts,
        special tokens included, every so many tokens, where here rows hold whole sentences; the
        padding token's vector starts at zero.""",
    "roberta": """
        RoBERTa base: Liu et al. 2019 (steps, batch of 8K, rate, warm-up, as its model card repeats
        them; large has 4e-4 and 30,000), facebookresearch/fairseq: models/roberta, modules,
        data/mask_tokens_dataset.py, tasks/masked_lm.py, optim/adam.py, trainer.py. Weight decay
        takes every parameter, nothing is clipped, LayerNorm has torch's 1e-5. The number of tokens
        selected is rounded by chance, as masking.rounding=unbiased does.
        Not reproduced: byte-level BPE; <s> and </s> may be selected there, never here; <mask> is
        among the random tokens there; attention masks with -inf; Adam adds epsilon before the bias
        correction, which matters in the first hundreds of steps; the padding token's vector stays
        zero; one segment type is a vector added to all tokens here and nothing there.""",
    "wettig": """
        Wettig et al. 2022, Should You Mask 15%: princeton-nlp/DinkyTrain,
        run_efficient_mlm_recipe.sh, on fairseq. The script trains size large; the rates of the
        paper's table are masking.rate, and its 80/10/10 rows masking.replace; numbers selected are
        rounded by chance, as roberta says. Not reproduced: rows there are cut every 128 tokens
        whatever sentences are (sample-break-mode none); float16 with a scaled loss; and what
        roberta names of fairseq.""",
    "mosaic": """
        MosaicBERT: mosaicml/examples, benchmarks/bert, yamls/main/mosaic-bert-base-uncased.yaml
        and src/bert_layers.py. Its decay of 1e-5 is not multiplied by the peak rate, and its
        optimiser exempts no parameter: hence 1e-5 / 5e-4 here. The vocabulary is padded to a
        multiple of 64 by the model card and of 8 by the code, and 30,522 becomes 30,528 by either.
        Not reproduced: dropout inside the gated feed-forward, which has no biases before its
        product there; each text is cut at 128 tokens there and its rest unused, where here rows
        hold full sentences; tokens are drawn one by one with the rate as their chance, whose mean
        masking.rounding=unbiased has too; bfloat16 is model.dtype.""",
    "modernbert": """
        ModernBERT base, the first of its three stages: Warner et al. 2024, AnswerDotAI/ModernBERT,
        yamls/modernbert/modernbert-base-pretrain.yaml of its branch pretraining_documentation,
        src/sequence_packer.py, and transformers' ModernBertConfig for the heads over labels (mean
        pooling, as the released config says). Steps and warm-up are 1,719 and 3 billion tokens in
        batches of 4,608 x 1,024; its decay of 1e-5 is not multiplied by the peak rate. Its size is
        model.layers=22 (large 28), hidden 768 (1,024), heads 12 (16), mlp 1,152 (2,624); large
        learns at 5e-4, then 5e-5. The second stage is a run of its own that starts from this one:
        rotary_base=160000 with rotary_base_near=10000, sequence_length 8,192, batch 576, rate 3e-4
        for 250 billion tokens; the third lets the rate fall over 50 billion.
        Not reproduced: byte-level BPE is tokenizer.path; StableAdamW, whose updates are clipped one
        by one, is AdamW without clipping; a dropout of 0.1 after attention alone; matrices that
        write to the residual stream begin smaller by the root of twice the number of layers; the
        batch grows over 50 billion tokens; special tokens may be selected, and tokens are drawn one
        by one with the rate as their chance (its mean is that of masking.rounding=unbiased), over
        rows packed by best fit (packing=N); the fall of the last stage by one minus a root is a
        line here; bfloat16 is model.dtype.""",
    "neobert": """
        NeoBERT, the first of its two stages: Le Breton et al. 2025, chandar-lab/NeoBERT at ed75b68,
        jobs/neobert.sh, conf/ and src/neobert (model, collator, scheduler). Its size is
        model.layers=28, hidden 768, heads 12, mlp 2,048: conf/model says 3,072, of which its gated
        feed-forward takes two thirds. The batch is 64 rows on each of 8 GPUs, 4 times. AdamW decays
        every parameter. The second stage, 50,000 steps on rows of 4,096, is a run of its own that
        starts from this one. Not reproduced: weights are uniform within 0.02 of zero there, and
        normal with the same deviation here; the rate has fallen to a tenth after 900,000 steps and
        stays there, where here it falls to the end; tokens are drawn one by one with the rate as
        their chance, whose mean masking.rounding=unbiased has too; each text is cut at 1,024 tokens
        there and its rest unused, where here rows hold full sentences; the padding token's vector
        stays zero; dropout before the dense layer of the classifier; bfloat16 is model.dtype.""",
    "gpt_bert": """
        GPT-BERT base, of BabyLM's 100 million words: Charpentier and Samuel 2024, ltgoslo/gpt-bert
        at 9fc1507: configs/base.json, pretraining/model_extra.py, dataset.py, lamb.py, utils.py and
        the defaults of train_100m.py; for the heads over labels evaluation/GLUE/classifier.py. Its
        model is LTG-BERT's (Samuel et al. 2023) with a gate of attention and layer weights.
        Outputs and gradients of a small model of this preset, the hybrid loss included, are those
        of the authors' code to 1e-5 (experiments/parity/gpt_bert.py). Its size is model.mlp=2560
        beside base; small, of 10 million words, is layers=12, hidden=384, heads=6, mlp=1280, with
        init_stddev the root of 2 / (5 * 384), 7,812 steps and a rate of 1.41e-2. Numbers of masks
        are rounded by chance, as masking.rounding=unbiased does.
        Not reproduced: the batch grows in a line from a quarter of these rows; rows have twice as
        many tokens from 70 % of the steps on and four times as many from 90 %, in batches of as
        many fewer rows (runs of their own that start from this one); the rate falls from a tenth
        of its peak to 0 over the last 250 steps; 1e-4 times the squared logarithm of the softmax's
        denominator is added to the loss; an exponential average of the weights (0.999) is kept
        beside them; LAMB has one ratio for queries and keys, one for values and gates, one for
        the layer weights of each sum, and none for what does not decay; the matrices of
        feed-forward i, from 0, begin smaller by the root of 2 (i + 1); there is a dropout of 0.1
        before the output matrix of the MLM head; masks are spans of 1 to 3 tokens, each masked,
        random or kept as one, rarer where a text had them before; texts are cut every 126 tokens,
        have no [SEP], and fill rows up (packing=N); byte-level BPE of 16,384 pieces is
        tokenizer.kind=bpe; bfloat16 is model.dtype.""",
}

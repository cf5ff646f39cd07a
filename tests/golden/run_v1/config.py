"""A run of eight updates, from the folder of this file."""

from bert_jax.config import default


def get_config():
    config = default()
    config.corpus.update(source="files", path="text", cache="cache", workers=1)
    config.corpus.validation_fraction = 0.2
    config.tokenizer.vocab_size = 80
    config.model.update(size="tiny", layers=1, hidden=16, heads=2, mlp=32, max_positions=32)
    config.update(steps=8, batch_size=8, sequence_length=32)
    config.optim.update(learning_rate=5e-3, warmup_steps=2)
    config.logging.update(every=1, samples=0, trackers=())
    config.checkpoints.update(every=4, keep=2)
    config.evals.validation.every = 4
    return config

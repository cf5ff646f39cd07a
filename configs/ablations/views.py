"""More predictions than corruptions: views.py:RATE,PREDICTED or views.py:RATE,PREDICTED,SIZE.

    bert-jax train --config=configs/ablations/views.py:0.15,0.4 --workdir=runs/views

An example is read in ceil(PREDICTED / RATE) views, and each corrupts other tokens of it (Wettig et
al., 2023, section 5). The batch counts views, so an update costs what one of
configs/pretrain.py does at the same rate, and reads that many times less text; it is rounded to
whole examples.
"""

from bert_jax.config import knobs, laws, load_file


def get_config(arg="0.15,0.4"):
    rate, predicted, size = (*arg.split(","), "base")[:3]
    config = load_file(f"../pretrain.py:{size}", beside=__file__)
    config.masking.rate, config.masking.prediction_rate = float(rate), float(predicted)
    views = laws.views(knobs.Masking(rate=float(rate), prediction_rate=float(predicted)))
    config.batch_size = round(config.batch_size / views) * views
    return config

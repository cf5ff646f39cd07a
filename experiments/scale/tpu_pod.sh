#!/bin/bash
# One run on all hosts of a TPU slice: experiments/scale/tpu_pod.sh NAME ZONE CONFIG WORKDIR
# WORKDIR is in a bucket that is mounted on every host, or on a shared file system.
set -eu
name=$1 zone=$2 config=$3 workdir=$4

gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="
  cd bert_jax && .venv/bin/bert-jax train --config=$config --workdir=$workdir \
    --config.parallel.distributed=true"

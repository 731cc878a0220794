#!/bin/sh
# A verl training that never heard of DiagEvo, audited from its `trainer.rollout_data_dir`.
# Run it: sh examples/verl_log.sh FOLDER MODEL BASE_URL [DATABASE]
set -eu
folder=$1 model=$2 url=$3
export DIAGEVO_DB="${4:-sqlite:///runs/diagevo.db}"

diagevo ingest verl "$folder" --run verl --steps-per-round 2
diagevo diagnose --run verl --model "$model" --base-url "$url" --plan
diagevo diagnose --run verl --model "$model" --base-url "$url"
diagevo memory show --run verl
diagevo memory why c1 --run verl
diagevo memory verify --run verl --deep

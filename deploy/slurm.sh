#!/bin/bash
# sbatch deploy/slurm.sh: a Ray cluster of the nodes that Slurm lends, and a run on it. Submitted again it goes on.
# Two nodes of eight GPUs are the shape of the profile qwen3-8b-2x8; `diagevo train --plan` says what another one takes.
#SBATCH --job-name=diagevo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=256G
#SBATCH --time=2-00:00:00
#SBATCH --signal=B:TERM@300

set -euo pipefail
run="${1:-big}"
export DIAGEVO_HOME="${DIAGEVO_HOME:-$PWD/runs}" # on a disk that all nodes see
export DIAGEVO_PROFILE="${DIAGEVO_PROFILE:-qwen3-8b-2x8}"
export RAY_USAGE_STATS_ENABLED=0
step=(srun --cpus-per-task="$SLURM_CPUS_PER_TASK") # srun does not take it from sbatch: Ray would see one core

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk 'NR == 1') # reads to the end, as pipefail asks
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head" hostname --ip-address | awk '{print $1}')
export RAY_ADDRESS="$address:6379"

"${step[@]}" --nodes=1 --ntasks=1 --nodelist="$head" \
  ray start --head --node-ip-address="$address" --port=6379 --dashboard-host=127.0.0.1 --block &
until ray health-check --address "$RAY_ADDRESS" 2>/dev/null; do sleep 2; done
if ((SLURM_JOB_NUM_NODES > 1)); then
  "${step[@]}" --nodes=$((SLURM_JOB_NUM_NODES - 1)) --ntasks=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$head" \
    ray start --address="$RAY_ADDRESS" --block &
fi

# Five minutes before the time is over Slurm sends TERM here: the run stops safely.
if diagevo runs show "$run" >/dev/null 2>&1; then
  diagevo train --run "$run" --resume &
else
  diagevo train --run "$run" &
fi
train=$!
trap 'kill -TERM "$train"' TERM
status=0
while true; do
  wait "$train" && status=0 || status=$?
  kill -0 "$train" 2>/dev/null || break
done
exit "$status"

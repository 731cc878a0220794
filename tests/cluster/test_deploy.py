"""What stands under deploy/ is what Ray and a shell take, and starts the run that the page tells of."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from diagevo import doctor
from diagevo.config.loading import of_profile
from diagevo.config.resources import ClusterNode, rank_bundles, refusal
from diagevo.planning.footprint import host_memory_bytes, shapes_of

PROFILE = "qwen3-8b-2x8"
DEPLOY = Path(__file__).parents[2] / "deploy"


def read(name: str) -> dict[str, Any]:
    return YAML(typ="safe").load(DEPLOY / name)


def test_ray_up_takes_the_cluster_and_refuses_a_misspelt_key() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = read("cluster.yaml")
    validate_config(prepare_config(config))
    with pytest.raises(Exception, match="workerz"):  # jsonschema's, without a class that Ray promises
        validate_config(prepare_config({**config, "workerz": 1}))


SLURM = """\
#!/bin/bash
echo "$(basename "$0") $*" >> calls
case "$(basename "$0")$*" in
  scontrol*) printf 'node0\\nnode1\\n' ;;
  *hostname*) echo 10.0.0.1 ;;
  diagevoruns*) exit 1 ;;
  diagevo*)
    until [ "$(grep -c 'ray start' calls)" = 2 ]; do sleep 0.01; done
    echo "$DIAGEVO_PROFILE" >> calls ;;
esac
"""
"""Stands for all programs that the script calls. A run takes until all nodes are there."""


def test_the_script_for_slurm_gives_each_node_its_cores_and_starts_the_shipped_shape(tmp_path: Path) -> None:
    """Without the option srun starts a step on one core, and Ray counts one."""
    for name in ("scontrol", "srun", "ray", "diagevo"):
        (tmp_path / name).write_text(SLURM)
        (tmp_path / name).chmod(0o755)
    lent = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "64"}
    found = {name: value for name, value in os.environ.items() if name != "DIAGEVO_PROFILE"}
    subprocess.run(
        ["bash", DEPLOY / "slurm.sh"],
        check=True,
        timeout=60,
        cwd=tmp_path,
        env={**found, **lent, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    starts = [call for call in calls if call.startswith("srun") and "ray start" in call]
    assert len(starts) == 2, calls
    assert all("--cpus-per-task=64" in call for call in starts)
    assert "diagevo train --run big" in calls
    assert PROFILE in calls


def shapes() -> dict[str, list[ClusterNode]]:
    """The nodes that each file asks for. A machine of `ray up` tells Ray itself what it has."""
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\w+)", (DEPLOY / "slurm.sh").read_text(), re.MULTILINE))
    [workers] = read("kuberay.yaml")["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    [worker] = workers["template"]["spec"]["containers"]
    limits, requests = worker["resources"]["limits"], worker["resources"]["requests"]
    up = read("cluster.yaml")
    machines = [up["provider"]["head_ip"], *up["provider"]["worker_ips"]]
    slurm = ClusterNode("s", int(options["cpus-per-task"]), int(options["gpus-per-node"]))
    pod = ClusterNode("k", int(requests["cpu"]), int(limits["nvidia.com/gpu"]))
    return {
        "slurm": [slurm] * int(options["nodes"]),
        "kuberay": [pod] * workers["replicas"],
        "ray up": [ClusterNode(machine, 64, 8) for machine in machines],
    }


def test_the_shipped_shape_starts_on_each_of_them_and_leaves_no_gpu_idle() -> None:
    hardware = of_profile(PROFILE).config.hardware
    for name, nodes in shapes().items():
        assert refusal(hardware, nodes) is None, name
        gpus = sum(node.gpus for node in nodes)
        assert sum(place["GPU"] for place in rank_bundles(hardware, nodes)) == gpus, name


@pytest.mark.parametrize(("gib", "state"), [(256, "ok"), (100, "missing")])
def test_doctor_knows_a_pod_in_which_the_ranks_would_be_killed(
    gib: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight processes of 6 GB, and 8.19e9 weights with their moments while they are written."""
    pods = [ClusterNode(name, 32, 8, gib * 2**30) for name in ("a", "b")]
    monkeypatch.setattr("diagevo.sampling.cluster.connected", lambda: None)
    monkeypatch.setattr("diagevo.sampling.cluster.nodes_of", lambda _: pods)
    [memory, placed] = doctor._cluster(of_profile(PROFILE).config)
    assert (memory.name, memory.state, placed.state) == ("host memory", state, "ok")
    assert memory.found.startswith("8 ranks take up to 146.3 GB; ")


def test_a_node_has_the_memory_that_its_ranks_take() -> None:
    """8.19e9 weights, a copy of which takes 12 bytes with their moments, and eight processes of 6 GB."""
    config = of_profile(PROFILE).config
    found = shapes_of(config)
    assert found is not None
    ranks = config.hardware.processes // 2
    needed = host_memory_bytes(config, *found[:2], ranks)
    assert needed == pytest.approx(8.19e9 * 12 + 8 * 6e9, rel=0.001)
    whole = config.model_copy(
        update={"hardware": config.hardware.model_copy(update={"accelerate_config": None, "fsdp_size": None})}
    )
    assert host_memory_bytes(whole, *found[:2], ranks) > 488 * 2**30, (
        "each rank reads the policy and its reference"
    )
    [workers] = read("kuberay.yaml")["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    [worker] = workers["template"]["spec"]["containers"]
    pod = worker["resources"]["limits"]["memory"]
    [slurm] = re.findall(r"^#SBATCH --mem=(\d+)G$", (DEPLOY / "slurm.sh").read_text(), re.MULTILINE)
    for given in (int(pod.removesuffix("Gi")), int(slurm)):
        assert needed < 0.9 * given * 2**30, "Ray's objects and the disk's cache have the rest"


def test_the_pods_share_one_disk_and_the_job_goes_on_where_it_stood() -> None:
    """Once compared with KubeRay's own definition of a RayJob, every key of it."""
    job = read("kuberay.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for pod in (pod["template"]["spec"] for pod in pods):
        [container] = pod["containers"]
        assert container["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
        assert pod["volumes"] == [{"name": "shared", "persistentVolumeClaim": {"claimName": "diagevo"}}]
        assert {"name": "DIAGEVO_HOME", "value": "/shared/runs"} in container["env"]
        assert {"name": "DIAGEVO_PROFILE", "value": PROFILE} in container["env"]
    assert "diagevo train --run big --resume" in job["spec"]["entrypoint"]

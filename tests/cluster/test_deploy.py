"""What stands under deploy/ is what Ray and a shell take, and starts the run that the page tells of."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

DEPLOY = Path(__file__).parents[2] / "deploy"


def read(name: str) -> dict[str, Any]:
    return YAML(typ="safe").load(DEPLOY / name)


def test_ray_up_takes_the_cluster_and_refuses_a_misspelt_key() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = read("cluster.yaml")
    validate_config(prepare_config(config))
    with pytest.raises(Exception, match="workerz"):  # jsonschema's, without a class that Ray promises
        validate_config(prepare_config({**config, "workerz": 1}))


def test_the_script_for_slurm_is_a_shell_script() -> None:
    subprocess.run(["bash", "-n", DEPLOY / "slurm.sh"], check=True)


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
    assert "diagevo train --run big --resume" in job["spec"]["entrypoint"]
    assert "--set hardware.cluster=ray" in job["spec"]["entrypoint"]

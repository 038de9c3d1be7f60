"""The manifests of infra/k8s, judged by the schemas of Kubernetes and by Prefect's worker."""

import asyncio
import json
import re

import kubernetes_validate
import pytest
from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration

from tests.team_files import INFRA, manifests, section


def test_manifests_follow_the_schemas_of_kubernetes() -> None:
    kinds = []
    for name, manifest in manifests():
        kubernetes_validate.validate(manifest, "1.34", strict=True)
        assert manifest["metadata"].get("namespace", "hacpo") == "hacpo", name
        kinds.append(manifest["kind"])
    assert {"Namespace", "Secret", "PersistentVolumeClaim", "Deployment", "Role"} <= set(kinds)
    broken = {**manifest, "specc": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.34", strict=True)


def test_the_secret_of_the_cluster_is_what_workers_need_and_holds_nothing() -> None:
    (secret,) = [m for _, m in manifests() if m["kind"] == "Secret"]
    assert set(secret["stringData"]) == section("workers")
    assert not any(secret["stringData"].values())
    refers = next(m for _, m in manifests() if m["kind"] == "Deployment")
    for container in refers["spec"]["template"]["spec"]["containers"]:
        assert container["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_job_of_the_kubernetes_pool_has_its_gpus_volumes_and_no_secret(
    gpus: int,
) -> None:
    template = json.loads((INFRA / "k8s" / "base-job-template.json").read_text())
    used = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    assert used == set(template["variables"]["properties"])  # what is not used is dropped
    configuration = asyncio.run(
        KubernetesWorkerJobConfiguration.from_template_and_values(
            base_job_template=template, values={"gpus": gpus, "name": "grid"}
        )
    )
    job = configuration.job_manifest
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": gpus}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {v["name"]: v for v in job["spec"]["template"]["spec"]["volumes"]}
    claims = [m["metadata"]["name"] for _, m in manifests() if m["kind"] == "PersistentVolumeClaim"]
    assert volumes["home"]["persistentVolumeClaim"]["claimName"] in claims
    assert volumes["shm"]["emptyDir"]["medium"] == "Memory"
    assert mounts == {"home": "/var/lib/hacpo", "shm": "/dev/shm"}
    for misplaced in ("parallelism", "completions"):  # Prefect insists, Kubernetes ignores them
        del job["spec"]["template"]["spec"][misplaced]
    container["args"], container["env"] = ["prefect"], []
    job["metadata"]["labels"] = {}
    kubernetes_validate.validate(job, "1.34", strict=True)

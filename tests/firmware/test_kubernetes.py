# SPDX-License-Identifier: Apache-2.0
"""Manifests and chart: what they allow the agent, and that they render."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from firmware_cfg.wanted import load_wanted
from tests.firmware.templates import render

yaml = pytest.importorskip("yaml", reason="manifests are read with PyYAML")

FOLDER = Path(__file__).parents[2] / "firmware_cfg" / "kubernetes"
CHART = FOLDER / "chart"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
ALL_SET = {
    "config": 'machine = "node3"\n\n[capture]\nmode = "steered"',
    "devices": {"squat.ai/ptp": 1},
    "imagePullSecrets": [{"name": "registry"}],
    "tolerations": [{"operator": "Exists"}],
}


def rendered(**changed: Any) -> dict[str, Any]:
    """Render the chart and return its objects by kind."""
    values = copy.deepcopy(VALUES) | changed
    objects = [
        yaml.safe_load(render(path.read_text(encoding="utf-8"), values, "pulse"))
        for path in sorted((CHART / "templates").glob("*.yaml"))
    ]
    return {each["kind"]: each for each in objects if each}


def pods() -> dict[str, dict[str, Any]]:
    """Return the specs of all pods that are shipped."""
    static = yaml.safe_load((FOLDER / "static-pod.yaml").read_text(encoding="utf-8"))
    return {
        "static pod": static["spec"],
        "chart": rendered()["DaemonSet"]["spec"]["template"]["spec"],
        "chart with all set": rendered(**ALL_SET)["DaemonSet"]["spec"]["template"]["spec"],
    }


@pytest.mark.parametrize("name", list(pods()))
def test_a_pod_has_a_read_only_root_and_net_raw_alone(name: str) -> None:
    pod = pods()[name]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], "add": ["NET_RAW"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["hostNetwork"] is True
    assert {"hostPID", "hostIPC"} & set(pod) == set()


@pytest.mark.parametrize("name", list(pods()))
def test_a_pod_mounts_just_what_the_agent_needs(name: str) -> None:
    pod = pods()[name]
    (container,) = pod["containers"]
    paths = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    writable = {path for path, read_only in paths.items() if not read_only}
    assert writable == {"/var/lib/pulse-dpu", "/run/pulse-dpu"}
    assert set(paths) - writable <= {"/etc/pulse", "/etc/pulse-config", "/dev/ptp0"}
    assert {mount["name"] for mount in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert all(
        v["hostPath"]["type"] in ("Directory", "CharDevice") for v in pod["volumes"] if "hostPath" in v
    )


@pytest.mark.parametrize("name", list(pods()))
def test_a_pod_is_bounded_in_memory_and_processor(name: str) -> None:
    (container,) = pods()[name]["containers"]
    limits = container["resources"]["limits"]
    assert limits["memory"] == "256Mi"
    assert limits["cpu"] == "2"


def test_settings_of_the_release_reach_the_agent_as_toml() -> None:
    tomllib = pytest.importorskip("tomllib")
    objects = rendered(**ALL_SET)
    text = objects["ConfigMap"]["data"]["dpu.toml"]
    settings = {"interface": "enp3s0f0s88", "machine": "node3", "capture": {"mode": "steered"}}
    assert tomllib.loads(text) == settings
    (container,) = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:3] == ["run", "--config", "/etc/pulse-config/dpu.toml"]


def test_without_settings_of_the_release_each_card_uses_its_own() -> None:
    objects = rendered()
    assert list(objects) == ["DaemonSet"]
    (container,) = objects["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][2] == "/etc/pulse/dpu/enp3s0f0s88.toml"


def test_devices_of_a_plugin_are_asked_for_when_given() -> None:
    (container,) = pods()["chart with all set"]["containers"]
    assert container["resources"]["limits"]["squat.ai/ptp"] == 1


def test_every_value_is_explained_and_used() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    templates = "".join(p.read_text(encoding="utf-8") for p in (CHART / "templates").glob("*.yaml"))
    for name in VALUES:
        assert re.search(rf"(?m)^#.*\n{name}:", text), name
        assert f".Values.{name}" in templates, name


def test_helm_has_nothing_to_say() -> None:
    if shutil.which("helm") is None:
        pytest.skip("there is no helm; the chart is rendered by tests/firmware/templates.py alone")
    done = subprocess.run(["helm", "lint", "--strict", CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_flavour_has_the_firmware_values_of_the_settings_file() -> None:
    flavour = yaml.safe_load((FOLDER / "dpuflavor.yaml").read_text(encoding="utf-8"))
    (entry,) = flavour["spec"]["nvconfig"]
    wanted = {setting.key: setting.value for setting in load_wanted().chosen(())}
    given = dict(each.split("=") for each in entry["parameters"])
    # The mode of the card, and a second port that not all cards have, are the platform's business.
    assert {key: int(value) for key, value in given.items()} == {
        key: value
        for key, value in wanted.items()
        if not key.startswith("INTERNAL_CPU_") and key != "LINK_TYPE_P2"
    }
    (file,) = flavour["spec"]["configFiles"]
    shipped = (FOLDER.parent / "scripts" / "copy.env").read_text(encoding="utf-8")
    assert file["raw"].splitlines() == [line for line in shipped.splitlines() if not line.startswith("#")]

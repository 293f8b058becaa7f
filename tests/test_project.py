# SPDX-License-Identifier: Apache-2.0
"""The repository itself: what the README promises exists, and what must be everywhere is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import pulse_native

tomllib = pytest.importorskip("tomllib", reason="the project file is read with Python 3.11's tomllib")

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("dpu_app", "firmware_cfg", "host_ctl", "sim", "native", "bench", "tests")
TEXT = {".md", ".py", ".pyi", ".toml", ".txt", ".cpp", ".hpp", ".json", ".yml", ".yaml", ""}


def sources(*suffixes: str) -> list[Path]:
    found = [
        path for name in PACKAGES for suffix in suffixes for path in sorted((ROOT / name).rglob(f"*{suffix}"))
    ]
    assert found
    return found


def tracked_texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is no git checkout")
    return [
        p for p in (ROOT / name for name in listed.stdout.splitlines()) if p.suffix in TEXT and p.is_file()
    ]


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z0-9-]*):", text, re.MULTILINE))


def test_extension_and_project_have_one_version() -> None:
    assert pulse_native.__version__ == PYPROJECT["project"]["version"]


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_source_file_states_its_licence(folder: str) -> None:
    files = [f for f in sources(".py", ".cpp", ".hpp") if f.is_relative_to(ROOT / folder)]
    silent = [
        str(f.relative_to(ROOT))
        for f in files
        if "SPDX-License-Identifier: Apache-2.0" not in f.read_text(encoding="utf-8")[:200]
    ]
    assert silent == []


def test_no_file_names_a_place_outside_the_repository() -> None:
    # Put together, so that this file does not name them itself.
    places = r"(?<![\w.~])/(?:home|root|work|farm|Users)/\w"
    registries = "|".join(("index" + r"[-_]url", "/sim" + "ple/", "pypi" + r"\.\w", "python" + "hosted"))
    forbidden = re.compile(f"{places}|{registries}")
    named = []
    for path in tracked_texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if forbidden.search(line):
                named.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert named == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/deploy-bluefield.md"])
def test_documented_make_commands_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z][a-z0-9-]*)", text, re.MULTILINE))
    assert named
    assert named <= make_targets()


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/architecture.md",
        "docs/simulator.md",
        "docs/deploy-bluefield.md",
        "docs/hardware.md",
    ],
)
def test_documents_name_files_that_exist(document: str) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    linked = {path.parent / target for target in re.findall(r"\]\(([^):#]+)\)", text)}
    quoted = {
        ROOT / name
        for name in re.findall(
            r"`((?:native|dpu_app|firmware_cfg|host_ctl|sim|bench|docs|tests)/[\w./-]*)`", text
        )
    }
    assert [str(p.relative_to(ROOT)) for p in sorted(linked | quoted) if not p.exists()] == []


def test_readme_states_the_options_and_exit_statuses_of_the_command() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    app = (ROOT / "host_ctl" / "cli" / "app.py").read_text(encoding="utf-8")
    analyze = app[app.index("def analyze(") : app.index(") -> None:", app.index("def analyze("))]
    options = set(re.findall(r'"(--[a-z]+)"', analyze)) | {"--until"}
    assert {option for option in options if f"`{option}" not in text} == set()
    output = (ROOT / "host_ctl" / "cli" / "output.py").read_text(encoding="utf-8")
    statuses = dict(re.findall(r'"(ok|degraded|failed|unsure)": (\d)', output))
    assert len(statuses) == 4
    for health, status in statuses.items():
        assert re.search(rf"^\| {status} \|[^|]*`{health}`", text, re.MULTILINE), (health, status)


def test_import_rules_cover_every_package_and_every_stage() -> None:
    rules = PYPROJECT["tool"]["importlinter"]
    shipped = {Path(p).name for p in PYPROJECT["tool"]["scikit-build"]["wheel"]["packages"]}
    assert shipped == set(rules["root_packages"])
    layered = {
        part.strip(" ()")
        for contract in rules["contracts"]
        for layer in contract.get("layers", [])
        for part in layer.split(":")
    }
    for package in ("host_ctl", "dpu_app"):
        stages = {f"{package}.{p.parent.name}" for p in (ROOT / package).glob("*/__init__.py")}
        assert stages
        assert stages <= layered


def test_the_scripts_of_the_project_can_be_imported() -> None:
    for target in PYPROJECT["project"]["scripts"].values():
        module, _, function = target.partition(":")
        text = (ROOT / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
        assert f"def {function}(" in text

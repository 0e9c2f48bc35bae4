"""Dockerfiles, compose, and what is installed in images."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.manifests import K8S, ROOT, built, program

DEPLOY = ROOT / "deploy"
FILES = ["deploy/Dockerfile", "deploy/s3/Dockerfile"]


def pins(path: Path) -> set[tuple[str, str]]:
    """Packages and versions of a file of requirements, all of which must have hashes."""
    text = path.read_text()
    found = re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)[^\n]*\\$", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)), "a line without hash"
    return set(found)


@pytest.mark.parametrize("path", FILES)
def test_hadolint(path: str) -> None:
    done = subprocess.run([program("hadolint"), path], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_hadolint_would_notice(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN apt-get install curl\n")
    assert subprocess.run([program("hadolint"), str(bad)], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("path", FILES)
def test_a_small_image_without_rights(path: str) -> None:
    text = (ROOT / path).read_text()
    last = text.split("\nFROM ")[-1]
    assert text.count("\nFROM ${BASE_IMAGE}") == 2, "one argument pins all stages"
    assert "USER 10001:10001" in last
    assert "HEALTHCHECK" in last
    assert "pip install" not in last
    assert "--require-hashes" in text


def test_the_image_has_the_tested_versions() -> None:
    tested, image = pins(ROOT / "constraints.txt"), pins(DEPLOY / "image" / "requirements.txt")
    names = {name for name, _ in tested}
    assert {pin for pin in image - tested if pin[0] in names} == set()
    direct = re.findall(
        r'^  "([a-z0-9-]+)>=', (ROOT / "pyproject.toml").read_text().split("[project.optional")[0], re.MULTILINE
    )
    assert {*direct, "s3fs", "gcsfs", "adlfs"} <= {name for name, _ in image}
    assert not {"pytest", "moto", "hypothesis"} & {name for name, _ in image}


def test_only_what_is_copied_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    sent = [line[1:] for line in ignored if line.startswith("!")]
    for path in FILES:
        for copied in re.findall(
            r"^COPY (?!--from)(?:--chmod=\d+ )?(.+) \S+$", (ROOT / path).read_text(), re.MULTILINE
        ):
            for name in copied.split():
                assert any(name == s or name.startswith(f"{s}/") for s in sent), name
                assert list(ROOT.glob(name)), name


def test_programs_that_pods_call_are_in_the_image() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for name in ("entrypoint", "retire-worker"):
        assert f"/opt/daskpriv/bin/{name}" in dockerfile


def test_compose_is_valid_and_has_its_five_parts() -> None:
    path = DEPLOY / "compose.yaml"
    command = [program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    held = yaml.safe_load(path.read_text())["services"]
    assert set(held) == {"scheduler", "worker", "job", "s3"}
    assert held["worker"]["deploy"]["replicas"] == 2
    for name, service in held.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "mem_limit" in service, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    environment = held["job"]["environment"]
    same = built(K8S / "base" / "plain")
    settings = next(o["data"] for o in same if o["metadata"]["name"] == "daskpriv-environment")
    quiet = {k: v for k, v in settings.items() if "ROUTES" in k or "MEMORY" in k}
    assert quiet.items() <= environment.items(), "compose must not spill or show more than Kubernetes"

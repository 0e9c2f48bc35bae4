"""What a release promises: workflows, licences, versions, examples that run."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from daskpriv.cluster.spec import Spec
from daskpriv.version import __version__
from tests.deploy.kube import wait
from tests.deploy.manifests import ROOT, program

FREE = re.compile(
    r"apache|bsd|mit\b|mit license|isc|python software foundation|psf|mpl|mozilla|unlicense|hpnd|zlib|cc0", re.I
)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-workflows", ".github/workflows/test.yml"),
        ("vendor.github-workflows", ".github/workflows/publish.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_follows_its_schema(schema: str, path: str) -> None:
    command = [program("check-jsonschema"), "--builtin-schema", schema, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["test", "publish"])
def test_actions_cannot_be_moved(name: str) -> None:
    """A tag can be moved to other code, which would hold the rights to publish; a commit cannot."""
    used = re.findall(r"uses: (.+)$", (ROOT / ".github" / "workflows" / f"{name}.yml").read_text(), re.MULTILINE)
    assert used
    assert [u for u in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}  # v?\d+\.\d+\.\d+", u)] == []


def test_targets_that_workflows_call_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+)(?: [a-z0-9- ]+)?:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= set(re.findall(r"^test-oldest (test-newest):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for word in re.findall(r"run: make ([a-z0-9-]+)", path.read_text()):
            called |= {f"{word}{pins}" for pins in ("oldest", "newest")} if word.endswith("-") else {word}
    assert called <= targets, called - targets
    assert {"test", "dist", "audit", "test-k8s"} <= called


def test_one_version_everywhere() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    for path in (ROOT / "k8s" / "overlays").glob("*/kustomization.yaml"):
        tags = [i["newTag"] for i in yaml.safe_load(path.read_text())["images"] if i["name"] == "daskpriv"]
        assert tags in ([__version__], ["local"]), path
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    assert set(re.findall(r"/daskpriv:(\d[\w.]*)", page)) == {__version__}


def test_the_published_image_is_called_as_manifests_write_it(tmp_path: Path) -> None:
    """`0.1.0`, not the tag `v0.1.0`; registries refuse capitals of an owner's name."""
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())["jobs"]["image"]["steps"]
    naming = next(s for s in steps if s.get("id") == "names")
    docker, told = tmp_path / "docker", tmp_path / "outputs"
    docker.write_text(f"#!/bin/sh\necho '\"sha256:{'a' * 64}\"'\n")
    docker.chmod(stat.S_IRWXU)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(told),
        "GITHUB_REPOSITORY": "Owner/DaskPriv",
        "GITHUB_REF_NAME": f"v{__version__}",
    }
    subprocess.run(["bash", "-e", "-c", naming["run"]], env=environment, check=True, cwd=ROOT)
    outputs = dict(line.split("=", 1) for line in told.read_text().splitlines())
    assert outputs["image"] == "ghcr.io/owner/daskpriv"
    assert outputs["version"] == __version__
    assert re.fullmatch(r"python:3[\w.-]+@sha256:a{64}", outputs["base"])
    pushed = next(s["with"] for s in steps if s.get("id") == "push")
    assert pushed["tags"] == "${{ steps.names.outputs.image }}:${{ steps.names.outputs.version }}"


def test_everything_that_is_required_has_a_free_licence() -> None:
    seen: set[str] = set()
    ahead = ["daskpriv"]
    while ahead:
        name = ahead.pop()
        extras = {"", "s3", "gcs", "azure"} if name == "daskpriv" else {""}
        for text in metadata.requires(name) or ():
            asked = Requirement(text)
            needed = asked.marker is None or any(asked.marker.evaluate({"extra": e}) for e in extras)
            if needed and asked.name.lower() not in seen:
                seen.add(asked.name.lower())
                ahead.append(asked.name)
    assert len(seen) > 30
    unfree = [name for name in sorted(seen) if not FREE.search(_licence(name))]
    assert unfree == []


def _licence(name: str) -> str:
    held = metadata.metadata(name)
    said = [held.get("License-Expression") or "", (held.get("License") or "")[:200]]
    return " ".join([*said, *(c for c in held.get_all("Classifier") or () if c.startswith("License"))])


def test_the_package_is_typed() -> None:
    assert (ROOT / "daskpriv" / "py.typed").exists()


@pytest.mark.parametrize("path", ["deploy/slurm/cluster.yaml", "deploy/ssh/cluster.yaml"])
def test_clusters_that_are_described(path: str) -> None:
    spec = Spec.load(str(ROOT / path))
    assert spec.made_by in ("dask_jobqueue.SLURMCluster", "distributed.SSHCluster")
    assert spec.arguments


@pytest.mark.cluster
def test_a_cluster_by_slurm_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a `sbatch` that keeps the script: connections are encrypted, and workers find their certificate."""
    pytest.importorskip(
        "dask_jobqueue", reason="dask-jobqueue is not here: make test installs it from tests/deploy/tools.txt"
    )
    home, script = tmp_path / "home", tmp_path / "script"
    (home / ".daskpriv-tls").mkdir(parents=True)
    for name in ("sbatch", "scancel"):
        (tmp_path / name).write_text(f'#!/bin/sh\n[ {name} = scancel ] || cp "$1" {script}\necho "batch job 7"\n')
        (tmp_path / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    cluster = Spec.load(str(ROOT / "deploy" / "slurm" / "cluster.yaml")).start()
    try:
        assert cluster.scheduler_address.startswith("tls://")
        wait("a job", script.exists, 60)
        lines = script.read_text()
        key = re.search(r"--tls-key (~/\S+)", lines)
        assert key is not None
        assert "PRIVATE KEY" in Path(key[1]).expanduser().read_text()
        assert "--memory-limit 4.00GiB" in lines
        assert "SPILL=False" in lines
    finally:
        cluster.close()


@pytest.mark.parametrize("name", ["daskpriv-scheduler", "daskpriv-worker"])
def test_systemd_units(name: str, tmp_path: Path) -> None:
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("systemd-analyze is not here")
    text = (ROOT / "deploy" / "systemd" / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/opt/daskpriv/bin/dask", "/bin/true"))
    done = subprocess.run([checker, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["daskpriv-scheduler", "daskpriv-worker"])
def test_units_of_one_host_do_not_share_a_cache(name: str) -> None:
    """Each runs as a user of its own, who takes the directory over when it starts."""
    folder = ROOT / "deploy" / "systemd"
    lines = (folder / f"{name}.service").read_text().splitlines()
    assert f"CacheDirectory={name}" in lines
    assert f"Environment=NUMBA_CACHE_DIR=/var/cache/{name}" in lines
    assert "NUMBA" not in (folder / "daskpriv.env").read_text(), "a file comes after Environment="


@pytest.mark.cluster
def test_the_slurm_script_runs(adult: Path, tmp_path: Path) -> None:
    """With an `srun` that starts its command here, after a job of the same number that was killed."""
    tables, programs = tmp_path / "tables", tmp_path / "bin"
    tables.mkdir()
    programs.mkdir()
    for name, source in (("train", "train"), ("holdout", "holdout"), ("synthetic", "synthetic_good")):
        shutil.copy(adult / f"{source}.parquet", tables / f"{name}.parquet")
    report, asked = tmp_path / "report", tmp_path / "srun"
    report.mkdir()
    (report / "scheduler-7.json").write_text('{"address": "tls://127.0.0.1:1"}')
    scripts = {"srun": f'echo "$@" > {asked}\nshift\nexec "$@"'}
    scripts["daskpriv"] = f'exec {sys.executable} -m daskpriv "$@" --metrics clones --quiet'
    scripts["dask"] = f'exec {sys.executable} -m dask "$@"'
    for name, line in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(stat.S_IRWXU)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_MEM_PER_NODE": "4000",
        "TABLES": str(tables),
        "OUTPUT": str(report),
    }
    script = ROOT / "deploy" / "slurm" / "evaluate.sbatch"
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, check=False, timeout=900, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (report / "report.json").exists()
    assert re.search(r"Scheduler at: +tls://", done.stderr)
    assert not [p.name for p in report.iterdir() if p.name.startswith(("scheduler-", "tls-"))]
    given = asked.read_text().split()
    assert given[0] == "--cpus-per-task=1", "srun does not take it over from sbatch"
    assert given[given.index("--memory-limit") + 1] == "3600MiB"

"""A real Kubernetes from ../shared/kube: an API server with the operator (tier 1), a node with containers (tier 2).

It is Kubernetes 1.20, which lacks two things that manifests use; `for_old_server` takes them out. The strict schemas of
tier 0 check them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.manifests import ROOT, Object

SCRIPTS = ROOT.parent / "shared" / "kube"
HOME = Path(os.environ.get("KUBE_HOME", Path.home() / ".cache" / "daskpriv-kube"))
NAMESPACE = "daskpriv"


def why_not(containers: bool) -> str | None:
    """The reason why this machine cannot do it; None when it can."""
    if not os.environ.get("DASKPRIV_TEST_K8S"):
        return "takes minutes and starts a Kubernetes: run `make test-k8s`"
    if not (SCRIPTS / "node.sh").exists():
        return "the scripts that bring up a Kubernetes (../shared/kube) are not beside this clone"
    if shutil.which("apt-get") is None:
        return "needs Debian's packages (apt-get)"
    return "containers need root" if containers and os.geteuid() != 0 else None


def script(name: str, *arguments: str) -> str:
    """Run one of the scripts; its output."""
    done = subprocess.run([SCRIPTS / name, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{name} {arguments}: {done.stderr[-2000:]}"
    return done.stdout.strip()


class Api:
    """An API server and the operator."""

    def __init__(self) -> None:
        self.kubeconfig = script("api.sh", "up", "--operator", "--controllers")

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A kubectl command."""
        command = [str(HOME / "bin" / "kubectl"), "--kubeconfig", self.kubeconfig, *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=False)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """The output of a kubectl command that must succeed."""
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def apply(self, objects: Iterable[Object], *arguments: str) -> None:
        """Create or change these objects; kubectl refuses unknown fields."""
        self.kubectl("apply", *arguments, "-f", "-", given=yaml.safe_dump_all(objects))

    def get(self, *arguments: str) -> Any:
        """Objects as JSON."""
        return json.loads(self.kubectl("-n", NAMESPACE, "get", *arguments, "-o", "json"))

    def down(self) -> None:
        """End it."""
        script("api.sh", "down")


class Node(Api):
    """A complete node; pods run."""

    def __init__(self, images: Sequence[Path]) -> None:
        script("node.sh", "up", "--operator")
        for image in images:
            script("node.sh", "load", str(image))

    def run(self, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """A kubectl command inside the node's namespaces."""
        return self.inside("kubectl", *arguments, given=given)

    def inside(self, *command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Any command where the cluster's names and addresses are known."""
        whole = [SCRIPTS / "node.sh", "exec", *command]
        return subprocess.run(whole, input=given, capture_output=True, text=True, check=False, cwd=ROOT)

    def logs(self, *which: str) -> str:
        """What pods have written; nothing while they start."""
        return self.run("-n", NAMESPACE, "logs", *which).stdout

    def down(self) -> None:
        """End it and all in it."""
        script("node.sh", "down")


def wait(what: str, seen: Callable[[], Any], seconds: float) -> Any:
    """Poll until `seen` says something true; give it back."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = seen()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"timed out waiting for {what}")


def for_old_server(objects: Iterable[Object]) -> list[Object]:
    """The same for Kubernetes 1.20: disruption budgets by their older name, no rules for failed pods."""
    made = [json.loads(json.dumps(o)) for o in objects]
    for each in made:
        if each["kind"] == "PodDisruptionBudget":
            each["apiVersion"] = "policy/v1beta1"
        if each["kind"] == "Job":
            del each["spec"]["podFailurePolicy"]
    return made


def image(name: str, dockerfile: str) -> Path:
    """The archive of an image, built where what is copied into it has changed."""
    archive = HOME / "daskpriv-images" / f"{name}-{_sources(dockerfile)}.tar"
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        for old in archive.parent.glob(f"{name}-{'[0-9a-f]' * 16}.tar"):
            old.unlink()
        script("image.sh", ".", f"{name}:local", str(archive), "-f", dockerfile, "--format", "docker")
    return archive


def _sources(dockerfile: str) -> str:
    """The digest of a Dockerfile and of what it copies."""
    copied = re.findall(r"^COPY (?!--from)(?:--chmod=\d+ )?(.+) \S+$", (ROOT / dockerfile).read_text(), re.MULTILINE)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", dockerfile, *" ".join(copied).split()],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    digest = hashlib.sha256()
    for path in sorted(listed.split()):
        digest.update(path.encode() + (ROOT / path).read_bytes())
    return digest.hexdigest()[:16]

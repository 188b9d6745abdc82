"""Signatures and files of keys: nothing is taken that OpenSSH would refuse, and nothing stands in for anything else."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.attacks.attack_parts import main, process, refused
from tests.bundle.forge import FILES, members
from tests.bundle.sealed import make_key, seal

SK_ED25519 = "sk-ssh-ed25519@openssh.com"
SK_ECDSA = "sk-ecdsa-sha2-nistp256@openssh.com"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("key"))


@pytest.fixture(scope="module")
def sums(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seal(tmp_path_factory.mktemp("sealed") / "in", key=key)


def of_openssh(sums: Path, keys: Path, signer: str = "me@here") -> bool:
    command = ("ssh-keygen", "-Y", "verify", "-f", keys, "-I", signer, "-n", "lbx-bundle", "-s", f"{sums}.sig")
    with sums.open("rb") as text:
        return subprocess.run(command, stdin=text, capture_output=True, check=False).returncode == 0


OPTIONS = {
    "": True,
    'namespaces="lbx-bundle"': True,
    'namespaces="git,lbx-*"': True,
    'namespaces="lbx-bundl?"': True,
    'NAMESPACES="lbx-bundle"': True,
    'namespaces="!git,*"': True,
    'namespaces="lbx-bundle",valid-after="20200101"': True,
    'namespaces="!lbx-bundle,*"': False,
    'namespaces="*,!lbx-*"': False,
    'namespaces="!git"': False,
    'namespaces=""': False,
    'namespaces="[kl]bx-bundle"': False,
    'namespaces="LBX-BUNDLE"': False,
    'namespaces="lbx-bundle "': False,
    'namespaces="git, lbx-bundle"': False,
    "namespaces=lbx-bundle": False,
    'namespaces="lbx-bundle",namespaces="lbx-bundle"': False,
    'valid-before="20200101",valid-before="20991231"': False,
    'valid-before="20200101"': False,
    'valid-after="20991231"': False,
    'valid-after="20300101",valid-before="20290101"': False,
    'valid-before="2099"': False,
    'valid-before="20991231': False,
    'valid-before="20991231",': False,
    'unheard-of="x"': False,
    "cert-authority": False,
    'cert-authority,namespaces="lbx-bundle"': False,
}


@pytest.mark.parametrize("options", OPTIONS)
def test_an_allowed_signers_line_means_what_it_means_to_openssh(
    options: str, sums: Path, key: Path, tmp_path: Path
) -> None:
    keys = tmp_path / "allowed"
    keys.write_text(f"me@here {options} {key.with_suffix('.pub').read_text()}")
    assert of_openssh(sums, keys) is OPTIONS[options]
    said = main("verify", sums, "--trust", keys)
    if OPTIONS[options]:
        assert said.code == 0, said
    else:
        refused(said)


@pytest.mark.parametrize("line", ['namespaces="git" {}', "cert-authority {}", 'valid-before="20200101" {}'])
def test_options_where_the_signer_should_stand_are_not_passed_over(
    line: str, sums: Path, key: Path, tmp_path: Path
) -> None:
    """To OpenSSH they name a signer, whom nobody asks for; read as a bare key, the restriction would be lost."""
    keys = tmp_path / "allowed"
    keys.write_text(line.format(key.with_suffix(".pub").read_text()))
    assert not of_openssh(sums, keys)
    refused(main("verify", sums, "--trust", keys))


def test_a_certificate_is_not_a_key(tmp_path: Path) -> None:
    """Signed with a certificate of an authority that is trusted for it: lbx reads none, and says so."""
    authority, key = make_key(tmp_path, "authority"), make_key(tmp_path, "key")
    assert process("ssh-keygen", "-q", "-s", authority, "-I", "id", "-n", "me@here", f"{key}.pub").code == 0
    sums = seal(tmp_path / "in")
    certificate = tmp_path / "key-cert.pub"
    assert process("ssh-keygen", "-Y", "sign", "-q", "-f", certificate, "-n", "lbx-bundle", sums).code == 0
    trusted = tmp_path / "allowed"
    trusted.write_text(f"me@here cert-authority {(tmp_path / 'authority.pub').read_text()}")
    assert of_openssh(sums, trusted)
    for keys in (trusted, certificate, tmp_path / "authority.pub", tmp_path / "key.pub"):
        refused(main("verify", sums, "--trust", keys))


def wire(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def armoured(key: bytes, method: bytes, value: bytes, namespace: bytes = b"lbx-bundle") -> bytes:
    blob = b"SSHSIG" + (1).to_bytes(4, "big") + wire(key, namespace, b"", b"sha512", wire(method, value))
    return b"-----BEGIN SSH SIGNATURE-----\n" + base64.encodebytes(blob) + b"-----END SSH SIGNATURE-----\n"


@pytest.mark.parametrize(("kind", "curve"), [(SK_ED25519, b""), (SK_ECDSA, b"nistp256")])
@pytest.mark.parametrize("method", ["own", "ssh-ed25519", "ecdsa-sha2-nistp256"])
def test_a_security_keys_signature_is_not_taken_unread(kind: str, curve: bytes, method: str, tmp_path: Path) -> None:
    """Its flags and counter are part of what it signs; taken for a plain one, anything would pass."""
    point = bytes(range(1, 33)) if not curve else b"\x04" + bytes(64)
    blob = wire(kind.encode(), *([curve] if curve else []), point, b"ssh:")
    keys = tmp_path / "keys"
    keys.write_text(f"{kind} {base64.b64encode(blob).decode()} officer\n")
    sums = seal(tmp_path / "in")
    name = kind if method == "own" else method
    sums.with_name(f"{sums.name}.sig").write_bytes(armoured(blob, name.encode(), bytes(64)))
    refused(main("verify", sums, "--trust", keys), "which lbx cannot check")


@pytest.mark.parametrize("value", [bytes(64), b"\x01" + bytes(63), bytes(32) + b"\xff" * 32, b""])
@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31), b"\xff" * 32], ids=["zero", "neutral", "outside"])
def test_a_key_of_small_order_signs_nothing(point: bytes, value: bytes, tmp_path: Path) -> None:
    """With such a key one signature would fit many messages; nobody has it in a file of keys, and it helps nobody."""
    good = make_key(tmp_path)
    sums = seal(tmp_path / "in")
    sums.with_name(f"{sums.name}.sig").write_bytes(armoured(wire(b"ssh-ed25519", point), b"ssh-ed25519", value))
    refused(main("verify", sums, "--trust", f"{good}.pub"))


@pytest.mark.parametrize("spelling", ["01" + 31 * "00", 31 * "00" + "80", "ee" + 30 * "ff" + "7f", "00" * 32])
def test_a_trusted_key_of_small_order_signs_nothing_either(spelling: str, tmp_path: Path) -> None:
    """Somebody else's file of keys may hold it: whoever knows the line could sign for it, without any secret."""
    blob = wire(b"ssh-ed25519", bytes.fromhex(spelling))
    keys = tmp_path / "keys"
    keys.write_text(f"officer ssh-ed25519 {base64.b64encode(blob).decode()}\n")
    for text in (b"", b" ", b"  ", b"   "):  # of order four, it fits one message in four
        sums = seal(tmp_path / f"in{len(text)}", members({**FILES, "data/files/a.txt": b"EVIL!" + text}))
        signature = sums.with_name(f"{sums.name}.sig")
        signature.write_bytes(armoured(blob, b"ssh-ed25519", b"\x01" + bytes(63)))
        refused(main("verify", sums, "--trust", keys), "does not match")


def test_the_signature_of_another_bundle_or_purpose_does_not_fit(key: Path, tmp_path: Path) -> None:
    good = seal(tmp_path / "good", key=key)
    evil = seal(tmp_path / "evil", members({**FILES, "data/files/a.txt": b"EVIL!"}))
    signature = evil.with_name(f"{evil.name}.sig")
    shutil.copy(good.with_name(signature.name), signature)
    refused(main("verify", evil, "--trust", f"{key}.pub"), "does not match")
    signature.unlink()
    assert process("ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "file", evil).code == 0
    refused(main("verify", evil, "--trust", f"{key}.pub"), "made for 'file'")


def test_a_signature_inside_does_not_stand_in_for_the_archives_own(key: Path, tmp_path: Path) -> None:
    """Sums that nobody signed around a tag manifest that a trusted key did; let in, it is still not called trusted."""
    good = seal(tmp_path / "in", key=key)
    good.with_name(f"{good.name}.sig").unlink()
    refused(main("verify", good, "--trust", f"{key}.pub"), "is not signed")
    stranger = make_key(tmp_path, "stranger")
    for sign in (None, stranger):
        if sign:
            assert process("ssh-keygen", "-Y", "sign", "-q", "-f", sign, "-n", "lbx-bundle", good).code == 0
            refused(main("verify", good, "--trust", f"{key}.pub"), "not among the trusted keys")
        said = main("verify", good, "--trust", f"{key}.pub", "--allow-unsigned")
        assert said.code == 0 and "NOT signed by a trusted key" in said.out
        root = tmp_path / f"out{bool(sign)}"
        unpacked = main("unpack", good, "--trust", f"{key}.pub", "--allow-unsigned", "--json", "--to", root)
        assert '"trusted": false' in unpacked.out

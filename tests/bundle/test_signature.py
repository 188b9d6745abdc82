"""Signatures: the same answers as ssh-keygen gives, in both directions, and none where there should be none."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.errors import BundleError, LbxError, UsageError
from lbx.bundle.signing import signature as publickey
from lbx.bundle.signing.signature import NAMESPACE, find_key, load_keys, parse, sign, verify
from tests.profiles import examples

DATA = b"what is signed\n"
# RFC 8032, section 7.1: secret's public key, message, signature.
RFC8032 = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


def keygen(*arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *map(str, arguments)], input=given, capture_output=True, check=False)


KINDS = {
    "ed25519": ("-t", "ed25519"),
    "rsa": ("-t", "rsa", "-b", "2048"),
    "nistp256": ("-t", "ecdsa", "-b", "256"),
    "nistp384": ("-t", "ecdsa", "-b", "384"),
    "nistp521": ("-t", "ecdsa", "-b", "521"),
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("needs ssh-keygen (Debian: openssh-client)")
    folder = tmp_path_factory.mktemp("keys")
    for name, kind in {**KINDS, "other": KINDS["ed25519"]}.items():
        assert keygen(*kind, "-q", "-N", "", "-C", f"{name}@here", "-f", folder / name).returncode == 0
    return folder


@pytest.mark.parametrize(("key", "message", "signature"), RFC8032)
def test_ed25519_gives_the_answers_of_its_standard(key: str, message: str, signature: str) -> None:
    public, text, right = (bytes.fromhex(part) for part in (key, message, signature))
    assert publickey.verify_ed25519(public, right, text)
    assert not publickey.verify_ed25519(public, right, text + b"x")
    for place in (0, 31, 32, 63):
        wrong = bytearray(right)
        wrong[place] ^= 1
        assert not publickey.verify_ed25519(public, bytes(wrong), text)
    order = 2**252 + 27742317777372353535851937790883648493
    again = (int.from_bytes(right[32:], "little") + order).to_bytes(32, "little")
    assert not publickey.verify_ed25519(public, right[:32] + again, text), "a second spelling of the same signature"
    assert not publickey.verify_ed25519(public, right[:63], text)


@pytest.mark.parametrize("kind", KINDS)
def test_ssh_keygen_and_lbx_agree(kind: str, keys: Path, tmp_path: Path) -> None:
    ours = sign(DATA, keys / kind)
    allowed = tmp_path / "allowed"
    allowed.write_text(f'me@here namespaces="{NAMESPACE}" {(keys / kind).with_suffix(".pub").read_text()}')
    (tmp_path / "sig").write_bytes(ours)
    verifying = ("-Y", "verify", "-f", allowed, "-I", "me@here", "-n", NAMESPACE, "-s", tmp_path / "sig")
    assert keygen(*verifying, given=DATA).returncode == 0
    assert keygen(*verifying, given=DATA + b"x").returncode != 0
    theirs = keygen("-Y", "sign", "-q", "-f", keys / kind, "-n", NAMESPACE, "-O", "hashalg=sha256", given=DATA).stdout
    for text in (ours, theirs):
        signature = parse(text, "x.sig")
        verify(signature, DATA, "x.sig")
        with pytest.raises(BundleError, match=r"x\.sig does not match"):
            verify(signature, DATA + b"x", "x.sig")
        key, reason = find_key(signature, load_keys(allowed))
        assert (key.owner if key else reason) == "me@here"
        shown = keygen("-l", "-f", keys / f"{kind}.pub").stdout.decode().split()
        assert shown[1] == signature.fingerprint


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_changed_signature_fits(kind: str, keys: Path, data: st.DataObject) -> None:
    cache = keys / f"{kind}.signature"
    if not cache.exists():
        cache.write_bytes(sign(DATA, keys / kind))
    lines = cache.read_bytes().decode().splitlines()
    blob = bytearray(base64.b64decode("".join(lines[1:-1])))
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    text = "\n".join([lines[0], base64.b64encode(bytes(blob)).decode(), lines[-1]]).encode()
    with pytest.raises(BundleError):
        verify(parse(text, "x.sig"), DATA, "x.sig")


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300))
def test_rubbish_is_no_signature(blob: bytes) -> None:
    for data in (blob, b"SSHSIG\x00\x00\x00\x01" + blob):
        text = b"-----BEGIN SSH SIGNATURE-----\n" + base64.b64encode(data) + b"\n-----END SSH SIGNATURE-----\n"
        with pytest.raises(BundleError, match=r"x\.sig"):
            verify(parse(text, "x.sig"), DATA, "x.sig")
    with pytest.raises(BundleError, match="not an SSH signature"):
        parse(blob, "x.sig")


def test_a_signature_for_something_else_is_refused(keys: Path) -> None:
    other = keygen("-Y", "sign", "-q", "-f", keys / "ed25519", "-n", "git", given=DATA).stdout
    with pytest.raises(BundleError, match="made for 'git', not for 'lbx-bundle'"):
        parse(other, "x.sig")


def test_only_listed_keys_are_trusted(keys: Path, tmp_path: Path) -> None:
    signature = parse(sign(DATA, keys / "ed25519"), "x.sig")
    public, other = (keys / "ed25519.pub").read_text().strip(), (keys / "other.pub").read_text().strip()
    allowed = tmp_path / "allowed"

    def reason(text: str) -> str:
        allowed.write_text(text)
        return find_key(signature, load_keys(allowed))[1]

    assert reason(public) == ""
    assert reason(f"# ours\n\n{other}\n{public}\n") == ""
    assert reason(f'a@b,c@d valid-after="20200101Z",valid-before="20991231235959Z" {public}') == ""
    assert reason(f'a@b namespaces="git,lbx-*" {public}') == ""
    assert "not among the trusted" in reason(other)
    assert "namespace" in reason(f'a@b namespaces="git" {public}')
    assert "no longer valid" in reason(f'a@b valid-before="20200101" {public}')
    assert "not valid yet" in reason(f'a@b valid-after="209901010000Z" {public}')
    with pytest.raises(UsageError, match="does not contain a public key"):
        reason(f"*@b cert-authority {public}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not contain a public key"),
        ("hello\n", "Line 1 of .* is neither"),
        ("ssh-ed25519 !!!!\n", "Line 1 of"),
        ("ssh-ed25519 AAAA\n", "Line 1 of"),
        (
            "a@b frobnicate ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIANLo0R9Hp/yBZ491AlGQg1JtEOAZOQzwMoKBJ8SEFXT",
            "frobnicate",
        ),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", "is a private key"),
        ("\udcff", "Cannot read the trusted keys"),
    ],
)
def test_a_file_of_keys_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=message):
        load_keys(path)
    with pytest.raises(UsageError, match="Cannot read the trusted keys"):
        load_keys(tmp_path / "none")


def test_a_key_that_cannot_sign_is_named(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"Key .* does not exist"):
        sign(DATA, tmp_path / "none")
    (tmp_path / "bad").write_text("no key\n")
    (tmp_path / "bad").chmod(0o600)
    with pytest.raises(LbxError, match=r"ssh-keygen could not sign with .*bad"):
        sign(DATA, tmp_path / "bad")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="could not be started"):
        sign(DATA, keys / "ed25519")

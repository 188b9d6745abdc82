"""What is written for Slurm and Kubernetes is executed by a shell on another machine: names stay names there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from lbx.cluster.folder import RunFolder
from tests.attacks.attack_parts import Said, main, process, refused

PWN = "touch PWNED"


def submit(small: Path, output: object, *more: object, kind: str = "slurm") -> Said:
    return main(
        "submit",
        kind,
        "--bundle",
        small / "bundle",
        "--model",
        small / "oracle.jsonl",
        "-t",
        "needle/single_en",
        "-n",
        4,
        "-o",
        output,
        "--shards",
        2,
        "--characters",
        "--no-measure-speed",
        "--dry-run",
        "--json",
        *more,
    )


def scripts(said: Said) -> dict[str, str]:
    assert said.code == 0, said
    found: dict[str, str] = json.loads(said.out)["scripts"]
    return found


def executed(script: str, folder: Path) -> None:
    """Bash runs it where every program that it calls is a stand-in that says its arguments and does nothing."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("podman", "apptainer", "lbx", "scontrol", "module"):
        (programs / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> said\n')
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "0", "SLURM_RESTART_COUNT": "99",
        "TMPDIR": str(folder / "tmp"), "SLURM_ARRAY_JOB_ID": "1", "PBS_ARRAY_INDEX": "0", "LSB_JOBINDEX": "1",
    }  # fmt: skip
    process("bash", "-c", script, cwd=folder, env=environment)
    assert not (folder / "PWNED").exists(), script


@pytest.mark.parametrize(
    "name",
    [f"x\n{PWN}\n#", f"x\n#SBATCH --wrap={PWN}", 'x" --uid=0 "', "x\\", "x\r#", "x\u2028y", "x\x1b[31m"],
    ids=ascii,
)
def test_a_folder_that_would_leave_its_directive_is_refused(name: str, small: Path, tmp_path: Path) -> None:
    refused(submit(small, tmp_path / name), "Choose another folder with -o")


@pytest.mark.parametrize(
    ("runtime", "name"),
    [("none", f"x$({PWN})"), ("apptainer", f"x$({PWN})")]
    + [("podman", n) for n in (f"x$({PWN})", f"x`{PWN}`", f"x;{PWN};", f"x'$({PWN})'", "x y", "x%j", "$HOME", "~")],
)
def test_a_folder_is_never_expanded(name: str, runtime: str, small: Path, tmp_path: Path) -> None:
    more = () if runtime == "none" else ("--runtime", runtime, "--container", f"img$({PWN})")
    for script in scripts(submit(small, tmp_path / name, *more)).values():
        executed(script, tmp_path)
        (output,) = [line for line in script.splitlines() if line.startswith("#SBATCH --output=")]
        assert shlex.split(output)[1].replace("%%", "%").startswith(f"--output={tmp_path / name}/logs/")
    if runtime != "none":
        assert f"{tmp_path / name}:{tmp_path / name}" in (tmp_path / "said").read_text().splitlines()


@pytest.mark.parametrize("kind", ["pbs", "lsf"])
def test_a_folder_is_in_no_directive_and_never_expanded(kind: str, small: Path, tmp_path: Path) -> None:
    name = f"x$({PWN})`{PWN}`;{PWN};' #BSUB -P %J ^array_index^"
    (tmp_path / name / "logs").mkdir(parents=True)
    for file, script in scripts(submit(small, tmp_path / name, "--name", "x", kind=kind)).items():
        directives = [line for line in script.splitlines() if line.startswith(("#PBS", "#BSUB"))]
        assert directives and not any("PWNED" in line or str(tmp_path) in line for line in directives)
        executed(script, tmp_path)
        assert (tmp_path / name / "logs" / {"job.sh": "0000.out", "merge.sh": "merge.out"}[file]).exists()


@pytest.mark.parametrize(
    "scratch", [f"$({PWN})", f"`{PWN}`", f'"; {PWN}; "', f"x\n{PWN}", "x\\", f"${{X:-$({PWN})}}"], ids=ascii
)
def test_a_scratch_folder_may_name_variables_and_run_nothing(scratch: str, small: Path, tmp_path: Path) -> None:
    refused(submit(small, tmp_path / "run", "--scratch", scratch), "only a folder and variables are allowed")


@pytest.mark.parametrize("place", ["-o", "--bind"])
def test_a_path_that_a_runtime_would_cut_is_not_mounted(place: str, small: Path, tmp_path: Path) -> None:
    """`-v a:/etc:rw` and `--bind a,b:/etc` mean more than one folder."""
    for name in ("x:/etc", "x,/etc:/etc"):
        more = ("--bind", tmp_path / name) if place == "--bind" else ()
        output = tmp_path / (name if place == "-o" else "run")
        refused(submit(small, output, "--runtime", "podman", "--container", "img", *more), "cannot be mounted")


@pytest.mark.parametrize(
    "option",
    [
        ("--job-name", f"x\n{PWN}"),
        ("--job-name", "x --wrap=id"),
        ("--queue", "a b"),
        ("--time", '1"'),
        ("--gpus", "1\n2"),
        ("--module", f"x\n{PWN}"),
        ("--job-option", f"--account=x\n{PWN}"),
        ("--job-option", "x"),
        ("--mem", "1\\"),
    ],
    ids=ascii,
)
def test_an_option_stays_on_its_line(option: tuple[str, str], small: Path, tmp_path: Path) -> None:
    refused(submit(small, tmp_path / "run", *option))


@pytest.mark.parametrize("kind", ["pbs", "lsf"])
@pytest.mark.parametrize(
    "option",
    [
        ("--job-name", "x[1-9]"),
        ("--job-name", "-x\n"),
        ("--job-name", "é"),
        ("--queue", "a,b"),
        ("--time", "1h"),
        ("--time", "1-00:00:00"),
        ("--time", "٤"),
        ("--gpus", "a100:1"),
        ("--gpus", '1"'),
        ("--mem", "64"),
        ("--mem", "64Gi"),
        ("--module", f"x\n{PWN}"),
        ("--scratch", f"$({PWN})"),
    ],
    ids=ascii,
)
def test_an_option_in_another_format_is_refused(
    kind: str, option: tuple[str, str], small: Path, tmp_path: Path
) -> None:
    refused(submit(small, tmp_path / "run", *option, kind=kind))


@pytest.mark.parametrize("kind", ["pbs", "lsf"])
def test_a_further_option_is_one_option(kind: str, small: Path, tmp_path: Path) -> None:
    for value in ("x", f"-P x\n{PWN}", ""):
        refused(submit(small, tmp_path / "run", f"--job-option={value}", kind=kind))
    assert " -P x\n" in scripts(submit(small, tmp_path / "run", "--job-option=-P x", kind=kind))["merge.sh"]


@pytest.mark.parametrize("kind", ["slurm", "pbs", "lsf"])
@pytest.mark.parametrize(
    "said",
    [
        b"", b"\xff\xfe\x00", b"9" * 5000 + b" RUN", b"0 " * 9000, b"\x1b[31m0 RUN\n",
        b"101[0].x \x1b[2J me 0 \x1b[31m q", b"x\n" * 9000, "101[٤].x n u 0 R q\n٤ RUN\n".encode(),
    ],
    ids=lambda said: ascii(said[:12]),
)  # fmt: skip
def test_whatever_a_scheduler_answers_a_status_is_shown(
    kind: str, said: bytes, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    document = json.loads(submit(small, folder, kind=kind).out)
    folder.mkdir()
    (folder / "shards.json").write_text(json.dumps(document["plan"]))
    (tmp_path / "said").write_bytes(said)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for stream in (1, 2):
        for program in ("squeue", "qstat", "bjobs"):
            (tmp_path / program).write_text(f'#!/bin/sh\ncat "{tmp_path}/said" >&{stream}; exit {stream - 1}\n')
            (tmp_path / program).chmod(0o755)
        (folder / "job.json").write_text(json.dumps({"kind": kind, "array_id": "101"}))
        shown = main("status", folder)
        assert shown.code == 0 and "\x1b" not in shown.out and "0 of 4 answers" in shown.out, shown


@pytest.mark.parametrize(
    "job",
    [
        {"kind": "pbs", "array_id": "--help"}, {"kind": [], "array_id": "1"}, {"kind": "pbs", "array_id": 1}, ["pbs"],
        {"kind": "pbs", "array_id": "1", "shards": [[1], "x"]}, {"kind": "pbs", "array_id": "1", "shards": 7},
    ],
    ids=str,
)  # fmt: skip
def test_a_submission_of_other_types_is_ignored(job: object, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert folder.submission() is None


@pytest.mark.parametrize("name", [f"x\n{PWN}", "x --wrap=id", f"$({PWN})"], ids=ascii)
def test_a_job_named_like_its_run_has_a_name_of_one_line(name: str, small: Path, tmp_path: Path) -> None:
    made = scripts(submit(small, tmp_path / "run", "--name", name))
    for script in made.values():
        (named,) = (line for line in script.splitlines() if "--job-name" in line)
        assert len(named.split()) == 2, named
    executed(made["job.sh"], tmp_path)


def test_a_modules_name_is_a_word(small: Path, tmp_path: Path) -> None:
    made = scripts(submit(small, tmp_path / "run", "--module", f"cuda; {PWN}", "--job-option", f"--comment=$({PWN})"))
    executed(made["job.sh"], tmp_path)


def test_a_pod_gets_its_arguments_as_words(small: Path, tmp_path: Path) -> None:
    said = main(
        "submit", "kubernetes", "--bundle", small / "bundle", "--model", f"x$({PWN})", "-t", "needle/single_en",
        "-o", tmp_path / "run", "--shards", 2, "--characters", "--no-measure-speed", "--dry-run",
        "--image", f"i$({PWN})", "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    if said.code == 0:
        command = json.loads(said.out)["spec"]["template"]["spec"]["containers"][0]["command"]
        executed(shlex.join(command), tmp_path)
    else:
        refused(said)
    assert not (tmp_path / "PWNED").exists()

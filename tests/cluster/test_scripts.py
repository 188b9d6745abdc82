"""What is written for Slurm and Kubernetes, read by bash and held against the API's schema."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.cluster.folder import RunFolder
from lbx.cluster.kubernetes import KubernetesOptions, job_name, manifest
from lbx.cluster.scheduler import ARRAY, PLACEHOLDERS, ArrayJob, JobOptions, Launch, Runtime, limit_minutes
from lbx.cluster.schedulers import SCHEDULERS
from tests.command_line import Lbx, fails

RUN = ["--bundle", "/data/a b", "--model", "it's", "--tasks", "leval"]
SLURM = SCHEDULERS["slurm"]
JOB = ArrayJob(
    SLURM, RunFolder(Path("/shared/my run")), 3, JobOptions("lbx"), Launch(), RUN, '"${TMPDIR:-/tmp}"', 5
)  # fmt: skip


def checked_by_bash(script: str) -> str:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return script


def test_the_scripts_say_what_was_asked_of_slurm() -> None:
    options = JobOptions(
        "lbx", "gpu", "01:00:00", "a100:1", 8, "64G", 2, ("cuda/12", "a b"), ("--account=x", "--qos=long")
    )
    job = dataclasses.replace(JOB, options=options)
    script = checked_by_bash(job.array_script())
    for line in (
        "#SBATCH --array=0-2%2",
        '#SBATCH --output="/shared/my run/logs/%4a.out"',
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --partition=gpu",
        "#SBATCH --time=01:00:00",
        "#SBATCH --gpus=a100:1",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --mem=64G",
        "#SBATCH --account=x",
        "#SBATCH --qos=long",
        "module load cuda/12",
        "module load 'a b'",
    ):
        assert f"\n{line}\n" in script, line
    assert "lbx run --bundle '/data/a b' --model 'it'\"'\"'s' --tasks leval --output" in script


GPU_SHARDS = {
    "slurm": JobOptions(
        "lbx", "fast", "01:00:00", "a100:1", 8, "64G", 2,
        extra_options=(
            "--account=x", "--qos=long", "--gpus-per-node=8", "--exclusive", "-c 4", "--mem-per-gpu=9G", "-C gpu",
        ),
        nodes=2,
    ),
    "pbs": JobOptions("lbx", "fast", "01:00:00", "1", 8, "64G", 2, extra_options=("-P x", "-l place=excl")),
    "lsf": JobOptions("lbx", "fast", "4:00", "1", 8, "64G", 2,
                      extra_options=("-P x", "-R select[ngpus>0]", "-m fasthosts")),
}  # fmt: skip
MERGE_RESOURCES = {
    "slurm": ["--job-name=lbx-merge", "--time=01:00:00", "--cpus-per-task=1", "--mem=4G", "--account=x", "--qos=long"],
    "pbs": ["-N lbx-merge", "-l walltime=01:00:00", "-l select=1:ncpus=1:mem=4gb", "-P x"],
    "lsf": ['-J "lbx-merge"', "-W 1:00", "-n 1", '-R "rusage[mem=4G/host]"', "-P x"],
}
QUEUE = {"slurm": "--partition=", "pbs": "-q ", "lsf": "-q "}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_the_merge_job_has_small_resources_of_its_own(kind: str) -> None:
    """No GPU, and not the queue of shards with GPUs."""
    scheduler = SCHEDULERS[kind]

    def directives(options: JobOptions) -> list[str]:
        job = dataclasses.replace(JOB, scheduler=scheduler, options=options)
        lines = checked_by_bash(job.merge_script()).splitlines()
        return [line.removeprefix(f"{scheduler.directive} ") for line in lines if line.startswith(scheduler.directive)]

    merge = directives(GPU_SHARDS[kind])
    assert set(MERGE_RESOURCES[kind]) <= set(merge), merge
    for word in ("gpu", "64", "excl", "fast", "-c 4", "%2"):
        assert word not in " ".join(merge).lower(), merge
    assert not [line for line in merge if line.startswith(QUEUE[kind])]
    named = directives(dataclasses.replace(GPU_SHARDS[kind], merge_queue="small"))
    assert f"{QUEUE[kind]}small" in named
    without_gpus = dataclasses.replace(GPU_SHARDS[kind], gpus="", extra_options=GPU_SHARDS[kind].extra_options[:1])
    assert f"{QUEUE[kind]}fast" in directives(without_gpus)


@pytest.mark.parametrize("kind", ["pbs", "lsf"])
def test_a_failure_of_the_first_commands_is_logged(kind: str, tmp_path: Path) -> None:
    """These schedulers' own output goes to /dev/null."""
    home, folder = tmp_path / "home", RunFolder(tmp_path / "run")
    home.mkdir()
    folder.create()
    options = JobOptions("lbx", modules=("no-such-module",))
    job = dataclasses.replace(JOB, scheduler=SCHEDULERS[kind], folder=folder, options=options)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PBS_ARRAY_INDEX": "0", "LSB_JOBINDEX": "1"}
    scripts = {"0000.out": job.array_script(), "merge.out": job.merge_script()}
    for name, script in scripts.items():
        done = subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode and not done.stdout + done.stderr, done.stderr
        assert "module: command not found" in (folder.logs / name).read_text()
    shutil.rmtree(folder.root)  # as on a node that does not see it
    for script in scripts.values():
        subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True, check=False)
    assert (home / "lbx-jobs.out").read_text().count("module: command not found") == 2


@pytest.mark.parametrize(
    ("qsub", "marks", "job", "told"),
    [
        ("exit 1", ["0001.duckdb.again", "0002.duckdb.again"], None, "on a login node, submit them with: bash {merge}"),
        ('[ "$1" = -v ] && echo 7[].here', [], ("7[].here", ""), "by hand when job 7[].here has ended"),
        ("echo 7[].here", [], ("7[].here", "7[].here"), ""),
    ],
)
def test_pbs_keeps_the_marks_of_shards_until_they_are_submitted(
    qsub: str, marks: list[str], job: tuple[str, str] | None, told: str, tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    for shard in (1, 2):
        Path(f"{folder.shard(shard)}.again").write_text(f"{shard}\n")
    for name, text in (("qsub", qsub), ("lbx", 'echo "merged"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = folder.root / "merge.sh"
    script.write_text(dataclasses.replace(JOB, scheduler=SCHEDULERS["pbs"], folder=folder).merge_script())
    environment = {"PATH": "/usr/bin:/bin", "PBS_O_PATH": str(tmp_path), "HOME": str(tmp_path)}
    subprocess.run(["bash", script], env={**environment, "PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True)
    assert sorted(path.name for path in folder.shards.iterdir()) == marks
    submission = folder.submission()
    assert (submission and (submission.array_id, submission.merge_id)) == job
    log = (folder.logs / "merge.out").read_text()
    assert told.format(merge=script) in log
    assert ("merged" in log) == (qsub != "echo 7[].here")


@pytest.mark.parametrize("kind", ["pbs", "lsf"])
def test_nodes_are_refused_where_no_server_is_started_on_them(kind: str) -> None:
    SCHEDULERS["slurm"].check(JobOptions("lbx", nodes=2))
    with pytest.raises(UsageError, match="--nodes 2 is for Slurm"):
        SCHEDULERS[kind].check(JobOptions("lbx", nodes=2))


def test_values_that_were_not_given_are_left_to_the_site() -> None:
    script = JOB.array_script()
    for name in ("partition", "time", "gpus", "cpus-per-task", "mem"):
        assert f"--{name}" not in script.split("\n\n")[0]


@pytest.mark.parametrize("value", ["a\n#SBATCH --uid=0", "a\rb", "a --uid=0"])
def test_an_option_cannot_leave_its_line(value: str) -> None:
    with pytest.raises(UsageError, match="has a blank"):
        JobOptions("lbx", queue=value)


def test_a_site_can_bring_its_own_template(tmp_path: Path) -> None:
    own = tmp_path / "site.sh"
    own.write_text(
        "#!/bin/bash\n@{directives}\nsource /etc/site\nexec @{lbx} run @{run} --shard ${SLURM_ARRAY_TASK_ID}\n"
    )
    script = dataclasses.replace(JOB, template=own).array_script()
    assert script.endswith("--tasks leval --shard ${SLURM_ARRAY_TASK_ID}\n") and "source /etc/site" in script
    own.write_text("@{directives} @{modul}")
    with pytest.raises(UsageError, match=r"unknown mark @\{modul\}\. .*@\{modules\}"):
        dataclasses.replace(JOB, template=own).array_script()
    with pytest.raises(UsageError, match="Cannot read the template"):
        dataclasses.replace(JOB, template=tmp_path / "missing").array_script()
    for mark in PLACEHOLDERS:
        assert f"@{{{mark}}}" in ARRAY, mark


def test_containers_see_what_they_need_and_no_more() -> None:
    for runtime, words in (
        (Runtime.APPTAINER, ["apptainer exec", "--nv", "--bind '/my data:/my data:ro'", "--bind /run:/run", "img lbx"]),
        (Runtime.PODMAN, ["podman run --rm --network none --read-only", "--device nvidia.com/gpu=all", " img"]),
        (Runtime.PODMAN, ['--userns keep-id --user "$(id -u):$(id -g)"']),
    ):
        launch = Launch("lbx", runtime, "img", [Path("/my data")], [Path("/run")], gpu=True)
        said = launch.command.replace("'/my data':'/my data':ro", "'/my data:/my data:ro'")
        for word in words:
            assert word in said, said
        checked_by_bash(dataclasses.replace(JOB, launch=launch).array_script())
    for wrong in ({"runtime": Runtime.PODMAN}, {"image": "x"}):
        with pytest.raises(UsageError, match="require each other"):
            Launch(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "limit"), [(0, "00:10:00"), (1, "00:15:00"), (3600, "01:40:00"), (90_000, "1-13:40:00")]
)
def test_a_time_limit_is_half_as_much_again_and_ten_minutes(seconds: float, limit: str) -> None:
    assert SLURM.format_time(limit_minutes(seconds)) == limit


KUBERNETES = KubernetesOptions("lbx-long", "lbx:1", "runs", "long", "eval", "8", "64Gi", 1, 2)


def test_the_manifest_is_what_the_api_takes() -> None:
    """Against the published schema of the API, strictly: no field that it does not know."""
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate, which has the schemas")
    for options in (KUBERNETES, KubernetesOptions("lbx", "lbx:1", "runs", "long")):
        made = json.loads(json.dumps(manifest(options, 4, RUN)))
        validate.validate(made, "1.33", strict=True)
        for spoil in ({"completionMod": "Indexed"}, {"completions": "four"}):
            with pytest.raises(validate.ValidationError):
                validate.validate({**made, "spec": {**made["spec"], **spoil}}, "1.33", strict=True)


def test_the_manifest_keeps_the_rules_that_no_schema_says() -> None:
    spec = manifest(KUBERNETES, 4, RUN)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 2)
    assert spec["backoffLimitPerIndex"] == 10 and spec["maxFailedIndexes"] <= spec["completions"]
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never", "podFailurePolicy needs it"
    (container,) = pod["containers"]
    rules = spec["podFailurePolicy"]["rules"]
    assert rules[0] == {
        "action": "FailIndex",
        "onExitCodes": {"containerName": container["name"], "operator": "In", "values": [2]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    shell, flag, script, zero, *arguments = container["command"]
    assert (shell, flag, zero, arguments) == ("/bin/sh", "-c", "lbx", RUN)
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_the_manifests_script_gives_each_pod_its_shard(tmp_path: Path) -> None:
    """Run by sh, with a program in lbx's place that says its arguments and ends with the code in its environment."""
    fake = tmp_path / "lbx"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit "$CODE"\n')
    fake.chmod(0o755)
    command = manifest(KUBERNETES, 4, RUN)["spec"]["template"]["spec"]["containers"][0]["command"]
    for code, expected in (("0", 0), ("3", 0), ("1", 1), ("2", 2)):
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": "3", "CODE": code}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == expected
        words = done.stdout.split("\n")
        assert words[: len(RUN) + 1] == ["run", *RUN]
        assert words[words.index("--output") + 1] == "/lbx/run/shards/0003.duckdb"
        assert words[words.index("--shard") + 1] == "3"


@pytest.mark.parametrize("name", ["Lbx", "a" * 53, "-a", "a_b", ""])
def test_a_job_has_a_name_that_kubernetes_takes(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid name of a Kubernetes job"):
        dataclasses.replace(KUBERNETES, name=name)


@pytest.mark.parametrize("run", ["longbench_v2-Qwen3.gguf-1a2b", "A" * 70 + "-b", "__", "", "é 模型"])
def test_a_job_is_named_like_its_run_as_kubernetes_takes_it(run: str) -> None:
    assert dataclasses.replace(KUBERNETES, name=job_name(run)).name[:9] in ("longbench", "a" * 9, "lbx")


@pytest.mark.parametrize(("run", "job"), [("leval-1", "leval-1"), ("my runs", "my-runs"), ("a \"b\\'c", "a-b-c")])
def test_a_job_is_named_like_its_run_as_slurm_takes_it(run: str, job: str) -> None:
    assert JobOptions(SLURM.job_name(run)).name == job


def test_a_dry_run_prints_and_writes_nothing(
    lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    what = ["--bundle", bundle, "--model", answers(0.0), "-t", "needle/single_en", "--thinking-tokens", 7]
    done = lbx.ok(
        "submit", "slurm", *what, "-o", tmp_path / "run", "--shards", 3, "--dry-run", "--json", "--retry-empty"
    )
    said = json.loads(done.stdout)
    script = checked_by_bash(said["scripts"]["job.sh"])
    assert f"--spec {tmp_path}/run/run.json --retry-empty --output" in script
    assert (said["spec"]["thinking_tokens"], said["spec"]["name"]) == (7, "run")
    assert "#SBATCH --job-name=run\n" in script
    assert len(said["plan"]["shards"]) == 3 and said["plan"]["iterations"] == {"needle/single_en": 1}
    pods = lbx.ok(
        "submit", "kubernetes", *what, "-o", tmp_path / "run", "--shards", 3, "--dry-run", "--characters",
        "--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b",
    )  # fmt: skip
    job = json.loads(pods.stdout)
    assert (job["spec"]["completions"], job["metadata"]["name"]) == (3, "run")
    said = " ".join(pods.stderr.split())
    assert "lbx has not been tested on a Kubernetes cluster" in said
    assert "Without --cpus and --mem, the pods request none: a quota may refuse them" in said
    assert not list(tmp_path.iterdir())


def test_the_cpus_of_a_shard_are_its_threads(lbx: Lbx, bundle: Path, demo_gguf: Path, tmp_path: Path) -> None:
    """Divided among its workers, unless the command or the card has a number of threads."""
    card = tmp_path / "card.toml"
    card.write_text(f'name = "m"\nbackend = "llamacpp"\nweights.path = "{demo_gguf}"\noptions.threads = 3\n')
    for model, options, threads in (
        (demo_gguf, ["--cpus", 4], 4),
        (demo_gguf, ["--cpus", 8, "--workers", 3], 2),
        (demo_gguf, ["--cpus", 2, "--workers", 3], 1),
        (demo_gguf, ["--cpus", 2000], 512),
        (demo_gguf, ["--cpus", 4, "--threads", 7], 7),
        (demo_gguf, [], None),
        (card, ["--cpus", 4], None),
    ):
        what = ["--bundle", bundle, "--model", model, "-t", "needle/single_en", "--characters", *options]
        done = lbx.ok("submit", "slurm", *what, "-o", tmp_path / "run", "--shards", 2, "--dry-run", "--json")
        assert json.loads(done.stdout)["spec"].get("threads") == threads, options
        missing = "Without --cpus, each shard gets the site's default number of CPUs, often 1"
        assert (missing in " ".join(done.stderr.split())) == ("--cpus" not in options)
    cluster = ["--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b"]
    for cpus, threads in (("2500m", 3), ("2", 2), ("0.5", 1)):
        what = ["--bundle", bundle, "--model", demo_gguf, "-t", "needle/single_en", "--characters", "--cpus", cpus]
        folder = tmp_path / cpus
        lbx.ok("submit", "kubernetes", *what, *cluster, "-o", folder, "--shards", 2)
        assert json.loads((folder / "run.json").read_text())["threads"] == threads


def test_a_container_without_slurms_variables_gets_the_number_of_cpus() -> None:
    for runtime in (Runtime.APPTAINER, Runtime.PODMAN):
        assert " --env LBX_CPU_COUNT=8 " in Launch("lbx", runtime, "img", cpu_count=8).command
        assert "--env" not in Launch("lbx", runtime, "img").command


@pytest.mark.parametrize("cpus", ["four", "-1", "0", "1e9", "4 ", "4M"])
def test_cpus_that_kubernetes_would_not_take_are_refused(cpus: str) -> None:
    with pytest.raises(UsageError, match="is not a number of CPUs"):
        dataclasses.replace(KUBERNETES, cpus=cpus)


@pytest.mark.parametrize("kind", [*SCHEDULERS, "kubernetes"])
def test_a_folder_with_a_line_break_is_refused(kind: str, lbx: Lbx, tmp_path: Path) -> None:
    cluster = ["--image", "lbx:1", "--run-claim", "r", "--bundle-claim", "b"] if kind == "kubernetes" else []
    what = ["--bundle", "b", "--model", "m", "-t", "needle", *cluster, "--dry-run"]
    for name in ("a\nb", "a\n#PBS -q x", "a\x1b[31mb"):
        fails(lbx("submit", kind, *what, "-o", tmp_path / name), 2, "has a line break or a control character")


def test_what_cannot_be_submitted_is_refused(
    lbx: Lbx, bundle: Path, answers: Callable[[float], Path], tmp_path: Path
) -> None:
    what = ["--bundle", bundle, "--model", answers(0.0), "-t", "needle/single_en", "-o", tmp_path / "run"]
    without_slurm = {"PATH": str(tmp_path)}
    for more, says in (
        (["--no-such-option"], "No such option"),
        (["--log", "x"], "No such option"),
        ([], "sbatch is not installed on this machine"),
    ):
        done = lbx("submit", "slurm", *what, "--shards", 2, *more, environment=without_slurm)
        said = " ".join(done.stderr.replace("│", " ").split())
        assert done.returncode == (2 if more else 1) and says in said and "Traceback" not in said, said
        assert not list(tmp_path.iterdir())

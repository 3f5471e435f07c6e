"""A SLURM cluster of one node on the loopback interface, for root and other users."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.loopback import attempts, free_port, running

_PLACES = f"{os.environ['PATH']}:/usr/sbin"
# All steps of a small build can run at once, but only one job with a gigabyte.
_CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={place}/munge.socket
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=50
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=1
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=16 RealMemory=1800
PartitionName=all Nodes=ALL Default=YES State=UP
"""
# slurmd loads the plugin, though nothing uses it; the default one requires mounted cgroups.
_CGROUPS = "CgroupPlugin=cgroup/v1\n"


@contextlib.contextmanager
def slurm_cluster(place: Path) -> Iterator[dict[str, str]]:
    """Run munged, slurmctld and slurmd; yield the environment that srun and sbatch need."""
    for name in ("state", "spool"):
        (place / name).mkdir()
    configuration = place / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            host=os.uname().nodename.partition(".")[0],
            user=pwd.getpwuid(os.getuid()).pw_name,
            place=place,
            controller_port=free_port(),
            node_port=free_port(),
        )
    )
    (place / "cgroup.conf").write_text(_CGROUPS)
    environment = {"SLURM_CONF": str(configuration)}
    with contextlib.ExitStack() as servers:
        munged = servers.enter_context(running(_munged(place)))
        for _ in attempts(munged):
            if (place / "munge.socket").exists():
                break
        servers.enter_context(running((_program("slurmctld"), "-D", "-i"), environment))
        node = servers.enter_context(running((_program("slurmd"), "-D"), environment))
        for _ in attempts(node):
            if "idle" in _states(environment):
                break
        yield environment


def _munged(place: Path) -> tuple[str | Path, ...]:
    key = place / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = [f"--{name}-file={place}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    # --force: the directory of the socket may not be accessible for other users.
    return (
        *(_program("munged"), "--foreground", "--force", "--num-threads=1"),
        *(f"--socket={place}/munge.socket", *files),
    )


def _states(environment: dict[str, str]) -> str:
    """Return the states of the nodes; empty if the controller does not respond yet."""
    return subprocess.run(
        ["sinfo", "-h", "-o", "%t"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    ).stdout


def _program(name: str) -> str:
    found = shutil.which(name, path=_PLACES)
    assert found, f"apt install slurmctld slurmd slurm-client munge: no {name}"
    return found

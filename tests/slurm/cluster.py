"""A real Slurm of one node for tests: munged, slurmctld, slurmd and two slurmrestd (a socket, and JWT over HTTP), all on
loopback, with two GPUs that are none, and everything in one folder.

Usage, as root: cluster.py FOLDER. Prints one line of JSON when it is up, then obeys lines on its standard input, each
answered by a line: "stop NAME", "start NAME", "token SECONDS" (a new token). When the input ends, which it
does when the test ends however it ends, all jobs and daemons are ended. A machine that lacks something is told so:
exit 77.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

USER = "nobody"
PROGRAMS = ["munged", "slurmctld", "slurmd", "slurmrestd", "scontrol", "squeue", "scancel"]
GPUS = 2
LIMIT = 30  # seconds that anything here may take

folder = pathlib.Path(sys.argv[1]).absolute()
conf = folder / "slurm.conf"
env = {**os.environ, "SLURM_CONF": str(conf)}
running = {}


def lacks(what):
    print(what, file=sys.stderr)
    sys.exit(77)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(what, look):
    end = time.monotonic() + LIMIT
    while not look():
        if time.monotonic() > end:
            for log in sorted(folder.glob("*.log")):
                print(f"== {log}", *log.read_text(errors="replace").splitlines()[-20:], sep="\n", file=sys.stderr)
            raise SystemExit(f"{what}: not within {LIMIT} s")
        time.sleep(0.05)


def dies_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(name):
    command, options = daemons[name]
    log = open(folder / f"{name}.log", "ab")
    settings = {"env": env, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True}
    running[name] = subprocess.Popen(command, preexec_fn=dies_with_us, **{**settings, **options})


def stop(name, how):
    process = running.pop(name, None)
    if process:
        process.send_signal(how)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if name == "socket":
        (folder / "rest/socket").unlink(missing_ok=True)


def ask(*command):
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT)


def token(seconds):
    told = ask("scontrol", "token", f"username={USER}", f"lifespan={seconds}")
    (folder / "token").write_text(told.stdout)
    return told.returncode == 0


def ours():
    """Every process that was started with our configuration: daemons, and all that jobs have started."""
    wanted = f"SLURM_CONF={conf}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
        except OSError:
            pass


def kill_what_is_left():
    for pid in ours():
        try:
            handle = os.pidfd_open(pid)
            if pid in ours():
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        except OSError:
            pass


def clean_up():
    try:
        if "slurmctld" in running and "slurmd" in running:
            jobs = ask("squeue", "-h", "-o", "%i").stdout.split()
            if jobs:
                ask("scancel", *jobs)
                until("all jobs end", lambda: not ask("squeue", "-h", "-o", "%i").stdout.split())
    except (SystemExit, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
    for name in ["socket", "jwt", "slurmd", "slurmctld", "munged"]:
        stop(name, signal.SIGTERM)
    kill_what_is_left()


def write_configuration(controller, node):
    (folder / "jwt.key").write_bytes(os.urandom(32))
    (folder / "munge.key").write_bytes(os.urandom(128))
    for key in ["jwt.key", "munge.key"]:
        (folder / key).chmod(0o400)
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", 0o666 | 0o020000, os.makedev(1, 3))
    for name in ["state", "spool"]:
        (folder / name).mkdir()
    for name in ["logs", "rest"]:
        (folder / name).mkdir()
        shutil.chown(folder / name, USER)
    (folder / "gres.conf").write_text(f"NodeName=node1 Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    conf.write_text(f"""
ClusterName=tidegate
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=3
MailProg=/bin/true
NodeName=node1 NodeAddr=127.0.0.1 NodeHostname={socket.gethostname().split('.')[0]} CPUs=16 RealMemory=1000 Gres=gpu:{GPUS}
PartitionName=main Nodes=node1 Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=node1 MaxTime=10 State=UP
""")


def plugins():
    """The parts of the API that need no database of accounts."""
    listed = subprocess.run(["slurmrestd", "-s", "list"], env=env, capture_output=True, text=True)
    words = (listed.stdout + listed.stderr).split()
    wanted = [word for word in words if word.startswith("openapi/v0.0.") or word == "openapi/slurmctld"]
    return ",".join(wanted) or "openapi/v0.0.38"


if os.getuid() != 0:
    lacks("Slurm's daemons need root")
missing = [program for program in PROGRAMS if not shutil.which(program)]
if missing:
    lacks(f"not installed: {', '.join(missing)} (Debian: apt install slurm-wlm slurmrestd munge slurm-wlm-jwt-plugin)")
folder.chmod(0o755)
controller, node, http = free_ports(3)
write_configuration(controller, node)
nobody = {"user": USER, "group": "nogroup", "extra_groups": []}
rest = ["slurmrestd", "-s", plugins()]
daemons = {
    "munged": (["munged", "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket",
                f"--pid-file={folder}/munged.pid", f"--seed-file={folder}/munge.seed"], {}),
    "slurmctld": (["slurmctld", "-D"], {}),
    "slurmd": (["slurmd", "-D", "-N", "node1"], {}),
    "socket": ([*rest, "-a", "rest_auth/local", f"unix:{folder}/rest/socket"], nobody),
    "jwt": ([*rest, "-a", "rest_auth/jwt", f"127.0.0.1:{http}"], {**nobody, "env": {**env, "SLURM_JWT": "daemon"}}),
}
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    start("munged")
    until("munged listens", (folder / "munge.socket").exists)
    start("slurmctld")
    start("slurmd")
    until("the node is idle", lambda: "idle" in ask("sinfo", "-h", "-o", "%T").stdout)
    start("socket")
    start("jwt")
    until("slurmrestd listens", (folder / "rest/socket").exists)
    until("a token is given", lambda: token(3600))
    print(json.dumps({"conf": str(conf), "socket": f"{folder}/rest/socket", "http": f"http://127.0.0.1:{http}",
                      "token": f"{folder}/token", "user": USER, "logs": f"{folder}/logs"}), flush=True)
    for line in sys.stdin:
        verb, what = line.split()
        if verb == "stop":
            stop(what, signal.SIGTERM)
        elif verb == "start":
            start(what)
        elif verb == "token":
            until("a token is given", lambda: token(what))
        print("done", flush=True)
finally:
    clean_up()

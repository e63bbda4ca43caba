#!/usr/bin/env python3
"""An example of the commands of [deployment.exec]: engines as processes of this machine.

    start = ["./local.py", "start", "llama-server", "--port", "{port}", "-m", "model.gguf"]
    stop  = ["./local.py", "stop"]
    list  = ["./local.py", "list"]

It keeps the contract's three hard parts, which every such script has to keep in its own way:

- Whatever it is told to start carries a mark (owner, deployment, id) from its first moment on. Here that is a variable
  of the environment, elsewhere a tag of a machine or a label of a job. `list` looks for the mark and keeps no record
  that a crash could make wrong.
- `list` names everything with the mark of this owner and this deployment, and nothing else. If it cannot look, it
  fails; it never prints a shorter list. It may run while a `start` does, and must not take what is about to begin for
  something that has ended.
- `stop` succeeds only when nothing is left, and also when nothing was there.

What engines print goes to EXEC_LOGS (a folder; the current one by default).
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

MARK = "EXEC_EXAMPLE_MARK"
OWNER = os.environ["TIDEGATE_OWNER"]
DEPLOYMENT = os.environ["TIDEGATE_DEPLOYMENT"]
ID = int(os.environ.get("TIDEGATE_ID", "0"))
LOGS = pathlib.Path(os.environ.get("EXEC_LOGS", "."))


def log_of(replica):
    # The log also tells of a replica that has ended, until it is stopped.
    name = urllib.parse.quote(f"{OWNER} {DEPLOYMENT} {replica}", safe="")
    return LOGS / f"{name}.log"


def new_log_of(replica):
    # It has its name only when there is an engine: a log without one tells of an end.
    return log_of(replica).with_suffix(".starting")


def replicas_on_record():
    start = urllib.parse.quote(f"{OWNER} {DEPLOYMENT} ", safe="")
    for log in LOGS.glob("*.log"):
        replica = log.stem.removeprefix(start)
        if log.stem.startswith(start) and replica.isdigit():
            yield int(replica)


def processes():
    """Every living process with our mark: its replica, its port, its pid."""
    wanted = f"{MARK}={OWNER} {DEPLOYMENT} ".encode()
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # It has ended meanwhile, or is another user's.
        for variable in environment:
            if variable.startswith(wanted):
                replica, port = variable.removeprefix(wanted).split()
                yield int(replica), int(port), int(entry.name)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def last_lines(replica):
    for log in (log_of(replica), new_log_of(replica)):
        try:
            return log.read_text(errors="replace").splitlines()[-40:]
        except FileNotFoundError:
            pass
    return []


def describe(replica, port):
    if port is None:
        return {"id": replica, "state": "exited", "how": "its process has ended", "output": last_lines(replica)}
    if listens(port):
        return {"id": replica, "state": "up", "url": f"http://127.0.0.1:{port}"}
    return {"id": replica, "state": "pending", "why": "it does not listen yet", "output": last_lines(replica)}


def start(command):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word.replace("{port}", str(port)) for word in command]
    environment = dict(os.environ, **{MARK: f"{OWNER} {DEPLOYMENT} {ID} {port}"})
    with open(new_log_of(ID), "ab") as log:
        try:
            engine = subprocess.Popen(
                words, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        except OSError as error:
            new_log_of(ID).unlink()
            sys.exit(f"cannot run {words[0]}: {error.strerror}")
    # A program is there a moment before its environment can be read.
    while engine.poll() is None and not any(replica == ID for replica, _, _ in processes()):
        time.sleep(0.01)
    new_log_of(ID).rename(log_of(ID))
    return {"version": 1, "replica": {"id": ID, "state": "pending", "why": "it does not listen yet"}}


def stop():
    for how, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        deadline = time.monotonic() + patience
        for replica, _, pid in processes():
            if replica == ID:
                try:
                    os.kill(pid, how)
                except ProcessLookupError:
                    pass
        while time.monotonic() < deadline:
            if not any(replica == ID for replica, _, _ in processes()):
                for log in (log_of(ID), new_log_of(ID)):
                    log.unlink(missing_ok=True)
                return
            time.sleep(0.02)
    sys.exit(f"replica {ID} lives on after SIGKILL")


def list_all():
    # The records first: an engine that begins in between is then seen as what it is.
    recorded = set(replicas_on_record())
    ports = {replica: port for replica, port, _ in processes()}
    replicas = sorted(recorded.union(ports))
    return {"version": 1, "replicas": [describe(replica, ports.get(replica)) for replica in replicas]}


def main():
    action, *command = sys.argv[1:]
    if action == "start":
        print(json.dumps(start(command)))
    elif action == "stop":
        stop()
    elif action == "list":
        print(json.dumps(list_all()))
    else:
        sys.exit(f"unknown action {action!r}; there are start, stop and list")


main()

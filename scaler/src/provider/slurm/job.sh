# Runs one replica: finds a free port on this node, starts the engine, and once the engine listens there, tells the port
# in the comment of this job. Ends with the engine and as the engine ended.
run=${SLURM_RESTART_COUNT:-0}
[ -n "${HOME:-}" ] || export HOME=~

say() { echo "tidegate: $*" >&2; }

# The inodes of the sockets that listen at port $1, one a line.
listening() {
  awk -v port="$(printf ':%04X$' "$1")" '$4 == "0A" && $2 ~ port { print $10 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Whether process $1 belongs to this job: it descends from this script, or has inherited the number of the job.
ours() {
  local pid=$1
  grep -qzx "SLURM_JOB_ID=$SLURM_JOB_ID" "/proc/$pid/environ" 2>/dev/null && return 0
  while [ "${pid:-0}" -gt 1 ]; do
    [ "$pid" -eq $$ ] && return 0
    pid=$(awk '$1 == "PPid:" { print $2 }' "/proc/$pid/status" 2>/dev/null)
  done
  return 1
}

# Whether a process of this job listens at port $1.
proven() {
  local inode descriptor pid
  for inode in $(listening "$1"); do
    for descriptor in $(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" 2>/dev/null); do
      pid=${descriptor#/proc/}
      ours "${pid%%/*}" && return 0
    done
  done
  return 1
}

# Two jobs on one node have different numbers, so they begin at different ports.
port=
for ((tried = 0; tried < count; tried++)); do
  candidate=$((low + (SLURM_JOB_ID + tried) % count))
  [ -z "$(listening "$candidate")" ] && port=$candidate && break
done
if [ -z "$port" ]; then
  say "no port from $low to $((low + count - 1)) is free on $(hostname)"
  exit 1
fi
if ! command -v scontrol >/dev/null; then
  say "there is no scontrol on PATH ($PATH) on $(hostname), so the port cannot be told; set PATH in env"
  exit 1
fi

engine_of_this_job &
engine=$!
trap 'kill -TERM "$engine" 2>/dev/null' TERM INT

told=no strange=0
while :; do
  if [ "$told" = yes ]; then
    wait "$engine"
    status=$?
    # A signal ends the wait as well.
    kill -0 "$engine" 2>/dev/null || exit "$status"
    continue
  fi
  if ! kill -0 "$engine" 2>/dev/null; then
    wait "$engine"
    exit $?
  fi
  if proven "$port"; then
    scontrol update JobId="$SLURM_JOB_ID" Comment="$mark run=$run port=$port" && told=yes && continue
  elif [ -n "$(listening "$port")" ]; then
    strange=$((strange + 1))
    if [ "$strange" -ge 10 ]; then
      say "port $port was taken by a process that is not of this job"
      kill -TERM "$engine"
      wait "$engine"
      exit 1
    fi
  else
    strange=0
  fi
  sleep 0.5
done

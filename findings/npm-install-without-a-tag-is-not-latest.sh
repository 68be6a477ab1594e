#!/usr/bin/env bash
# Guess: `npm install openai` installs what the tag "latest" names, and warns if it does not fit this Node.
# Seen with npm 11.19.1 on Node 20: without a tag, npm takes the newest version whose "engines" fit this Node, one major version
# older than "latest", and prints no warning. With `@latest` it takes the newest one, with a warning. So two people with one command
# have clients of different protocols, and the lock file is the only place that says so.
# Output seen (Node 20.20.2):
#   openai: 6.x
#   openai@latest: 7.x
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
case "$(node --version)" in v20.* | v21.*) ;; *) echo "needs Node 20 or 21" >&2; exit 1 ;; esac
major() {
    mkdir -p "$folder/$1" && cd "$folder/$1" && echo '{"private":true}' >package.json
    npx --yes npm@11.19.1 install --no-audit --no-fund --ignore-scripts "$1" >log 2>&1
    node -p 'require("./node_modules/openai/package.json").version.split(".")[0] + ".x"'
}
plain=$(major openai)
latest=$(major openai@latest)
printf 'openai: %s\nopenai@latest: %s\n' "$plain" "$latest"
[ "$plain" = 6.x ] && [ "$latest" != 6.x ]
! grep -q EBADENGINE "$folder/openai/log"
grep -q EBADENGINE "$folder/openai@latest/log"

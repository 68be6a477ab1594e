#!/usr/bin/env bash
# Guess: libraries that read .gitignore, as a tool that lists files for an agent does, hide the same files as git. None hides a file that
# git shows.
# Seen with pathspec 1.1.1 (`GitIgnoreSpec`), gitignore-parser 0.1.13, gitignorefile 1.1.2 and igittigitt 2.3.1 for Python, ignore 7.0.17
# and globby 16.2.4 for Node, and git 2.47.3: only igittigitt does. Three hide a file that git shows: gitignore-parser and globby take
# `build/`, which is for folders, for a file too, and ignore and globby take `Build.log` for build.log, by default. Three show a file that
# was meant to be kept in an ignored folder, which git does not look into, and know no `[[:digit:]]`. gitignorefile shows all files where a
# repository ignores all but one type. No library gives an error. So a tool that asks git (`git ls-files`) lists other files than these.
# Output seen (Python 3.11, Node 20.20.2), by the names of the cases below: what a library shows or hides in another way than git
#   pathspec: shows kept in an ignored folder, shows a class
#   gitignore-parser: hides a file with the name of an ignored folder, shows kept in an ignored folder, shows a class
#   gitignorefile: shows all but one type, shows kept in an ignored folder, shows a class, shows an exclamation mark
#   igittigitt: as git
#   ignore: hides a name in another case
#   globby: hides a file with the name of an ignored folder, hides a name in another case
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts ignore@7.0.17 globby@16.2.4 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check pathspec==1.1.1 gitignore-parser==0.1.13 gitignorefile==1.1.2 igittigitt==2.3.1
cat >cases.json <<'JSON'
{
  "a file with the name of an ignored folder": ["build/\n", ["src/build"]],
  "a name in another case": ["Build.log\n", ["build.log"]],
  "all but one type": ["*\n!*/\n!*.py\n", ["a/b.py", "a/c.txt"]],
  "kept in an ignored folder": ["build/\n!build/keep.txt\n", ["build/keep.txt"]],
  "a class": ["[[:digit:]]*\n", ["1.txt", "a.txt"]],
  "an exclamation mark": ["\\!a\n", ["!a"]]
}
JSON
cat >list.js <<'JS'
import { readFileSync } from 'node:fs';
import { globby } from 'globby';
import ignore from 'ignore';

const [folder, ...files] = process.argv.slice(2);
const rules = ignore().add(readFileSync(`${folder}/.gitignore`, 'utf8'));
const found = await globby('**/*', { cwd: folder, dot: true, gitignore: true });
console.log(JSON.stringify({ ignore: files.filter((file) => !rules.ignores(file)), globby: files.filter((file) => found.includes(file)) }));
JS
cat >list.py <<'PY'
import json, pathlib, subprocess, sys, warnings
import gitignore_parser, gitignorefile, igittigitt, pathspec

warnings.simplefilter("ignore")  # of regular expressions


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def hiders(root):
    """By library: does it hide a file?"""
    rules = root / ".gitignore"
    spec = pathspec.GitIgnoreSpec.from_lines(rules.read_text().splitlines())
    parser = gitignore_parser.parse_gitignore(rules)
    cache = gitignorefile.Cache()
    yield "pathspec", spec.match_file
    yield "gitignore-parser", lambda file: parser(root / file)
    yield "gitignorefile", lambda file: cache(str(root / file))
    with igittigitt.IgnoreParser() as other:
        other.parse_rule_files(root, ".gitignore")
        yield "igittigitt", lambda file: other.match(root / file)


wrong = {}
for number, (name, (rules, files)) in enumerate(json.load(open("cases.json")).items()):
    root = pathlib.Path(f"tree{number}").resolve()
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("text")
    (root / ".gitignore").write_text(rules)
    output("git", "init", "--quiet", str(root))
    listed = output("git", "-C", str(root), "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    shown = {library: [file for file in files if not hides(file)] for library, hides in hiders(root)}
    shown |= json.loads(output("node", "list.js", str(root), *files))
    for library, own in shown.items():
        ways = [way for way, other in (("hides", set(listed) & set(files) - set(own)), ("shows", set(own) - set(listed))) if other]
        wrong.setdefault(library, []).extend(f"{way} {name}" for way in ways)
for library, cases in wrong.items():
    print(f"{library}: {', '.join(cases) or 'as git'}")
PY
env -u XDG_CONFIG_HOME HOME="$PWD" GIT_CONFIG_NOSYSTEM=1 v/bin/python list.py | tee seen
diff seen - <<'TEXT'
pathspec: shows kept in an ignored folder, shows a class
gitignore-parser: hides a file with the name of an ignored folder, shows kept in an ignored folder, shows a class
gitignorefile: shows all but one type, shows kept in an ignored folder, shows a class, shows an exclamation mark
igittigitt: as git
ignore: hides a name in another case
globby: hides a file with the name of an ignored folder, hides a name in another case
TEXT

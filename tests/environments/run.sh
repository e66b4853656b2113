#!/usr/bin/env bash
# Tests instrumentors against the lowest and the newest version of their systems, each in an environment of its own:
#   tests/environments/run.sh               all of them
#   tests/environments/run.sh everos-newest langchain-lowest
# A file NAME.txt here holds the pins of one environment; its comments name the Python, the tests, and what of these another
# environment tests for both: files (`without`), tests by name (`but`, as of pytest's -k).
set -euo pipefail
cd "$(dirname "$0")/../.."
environments=tests/environments
python_of() {  # the interpreter of a version or a newer one: on PATH, or installed by pyenv
  for minor in $(seq "${1#3.}" 13); do
    for candidate in "python3.$minor" "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python; do
      if "$candidate" -c 'import sys, venv' 2>/dev/null; then echo "$candidate"; return; fi
    done
  done
  return 1
}

comment() { sed -n "s/^# $1: *//p" "$environments/$2.txt"; }

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for file in "$environments"/*.txt; do names+=("$(basename "$file" .txt)"); done
fi

export UV_LINK_MODE=copy  # nltk reads no file that has another name in a cache
uv=.venvs/uv/bin/uv  # installs an environment of a hundred packages in seconds, where pip takes a minute of the CPU
[ -x "$uv" ] || {
  "$(python_of 3.11)" -m venv .venvs/uv
  .venvs/uv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
}

install() {  # one at a time
  local pins="$environments/$1.txt" venv=".venvs/$1" wanted version python
  [ -f "$pins" ] || { echo "no environment $1: there is no $pins" >&2; exit 2; }
  wanted=$(cat "$pins" pyproject.toml | cksum)
  [ "$(cat "$venv/.installed" 2>/dev/null)" = "$wanted" ] && return
  version=$(comment python "$1")
  python=$(python_of "$version") || { echo "$1 needs Python $version or newer" >&2; exit 1; }
  echo "installing $venv ..."
  rm -rf "$venv"
  "$uv" venv --quiet --python "$python" "$venv"
  "$uv" pip install --quiet --python "$venv/bin/python" --requirement "$pins"
  "$uv" pip install --quiet --python "$venv/bin/python" --no-deps --editable .
  echo "$wanted" > "$venv/.installed"
}

run() {  # NAME FOLDER...: one folder after the other, so that none inherits what another left in the process
  local venv=".venvs/$1" left_out but folder
  but=$(comment but "$1")
  left_out=$(comment without "$1" | sed 's/^/--deselect=/')
  rm -f "$venv/.failed"
  for folder in "${@:2}"; do
    "$venv/bin/python" -m pytest -o cache_dir="$venv/.cache" --disable-warnings $left_out ${but:+-k "$but"} "$folder" || echo "$folder" >> "$venv/.failed"
  done > "$venv/.log" 2>&1
  { echo "tested $1"; cat "$venv/.log"; } | cut -c-300
}

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for name in "${names[@]}"; do
  install "$name"  # while those before it are tested
  while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ]; do wait -n || true; done
  echo "testing $name"
  run "$name" $(comment tests "$name") &
done
wait

failed=0
for name in "${names[@]}"; do
  [ -e ".venvs/$name/.failed" ] || continue
  failed=1
  echo "failed: $name" >&2  # again at the end, where whoever reads only that sees it
  sed -n '/= FAILURES =/,$p' ".venvs/$name/.log" | cut -c-300 | tail -n 80 >&2
done
exit "$failed"

#!/usr/bin/env bash
# Tests instrumentors against the lowest and the newest version of their systems, each in an environment of its own:
#   tests/environments/run.sh               all of them
#   tests/environments/run.sh everos-newest langchain-lowest
# A file NAME.txt here holds the pins of one environment; its comments name the Python and the tests.
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

failed=()
for name in "${names[@]}"; do
  pins="$environments/$name.txt"
  [ -f "$pins" ] || { echo "no environment $name: there is no $pins" >&2; exit 2; }
  venv=".venvs/$name"
  wanted=$(cat "$pins" pyproject.toml | cksum)
  if [ "$(cat "$venv/.installed" 2>/dev/null)" != "$wanted" ]; then
    version=$(comment python "$name")
    python=$(python_of "$version") || { echo "$name needs Python $version or newer" >&2; exit 1; }
    echo "installing $venv ..."
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$pins"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --editable .
    echo "$wanted" > "$venv/.installed"
  fi
  echo "testing $name"
  # shellcheck disable=SC2046  # several folders
  "$venv/bin/python" -m pytest $(comment tests "$name") 2>&1 | tee "$venv/.log" || failed+=("$name")
done
[ ${#failed[@]} -eq 0 ] && exit
for name in "${failed[@]}"; do  # again at the end, where whoever reads only that sees it
  echo "failed: $name" >&2
  sed -n '/= FAILURES =/,$p' ".venvs/$name/.log" | cut -c-300 | tail -n 80 >&2
done
exit 1

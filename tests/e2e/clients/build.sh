#!/usr/bin/env bash
# Builds the clients of one language (node, go or java) once, or of all, into an ignored cache: one folder per content
# of their sources. Prints the folder of each. Names the tool that is missing.
set -euo pipefail
cd "$(dirname "$0")"
cache=$(cd ../../.. && pwd)/.cache/clients

need() {
  command -v "$1" >/dev/null || { echo "tests/e2e/clients: the client of $2 needs $1 on PATH ($3)" >&2; exit 1; }
}

build() { # language, folder to fill
  case $1 in
    node)
      need node Node "20 or newer"
      need npm Node "10 or newer"
      cp node/* "$2"
      npm install --prefix "$2" --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error >&2
      ;;
    go)
      need go Go "1.25 or newer"
      (cd go && go build -trimpath -buildvcs=false -o "$2/client" .) >&2
      ;;
    java)
      need java Java "17 or newer"
      need javac Java "17 or newer, a JDK"
      need mvn Java "Maven 3.6 or newer"
      mvn -q -B -f java/pom.xml dependency:copy-dependencies -DoutputDirectory="$2/lib" >&2
      javac -encoding UTF-8 -cp "$2/lib/*" -d "$2" java/Client.java >&2
      ;;
  esac
}

[[ $# -gt 0 ]] || set -- node go java
for language in "$@"; do
  folder=$cache/$language/$(cat "$language"/* | sha256sum | cut -c1-16)
  if [[ ! -d $folder ]]; then
    echo "building the OTLP client of $language ..." >&2
    mkdir -p "$cache/$language"
    fresh=$(mktemp -d "$cache/$language/building.XXXXXX")
    trap 'rm -rf "$fresh"' EXIT
    build "$language" "$fresh"
    mv -T "$fresh" "$folder" || [[ -d $folder ]]  # another run was faster
  fi
  echo "$folder"
done

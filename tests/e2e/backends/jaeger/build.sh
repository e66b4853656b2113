#!/usr/bin/env bash
# Builds Jaeger v2 once (minutes) and prints the path of the binary. It is kept in an ignored cache, one folder per
# content of go.mod and go.sum, so that another version is another binary.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../../../.. && pwd)
key=$(cat go.mod go.sum | sha256sum | cut -c1-16)
binary="$root/.cache/jaeger/$key/jaeger"

if [[ ! -x "$binary" ]]; then
  command -v go >/dev/null || { echo "Jaeger is built from its Go module: Go 1.24 or newer is needed on PATH" >&2; exit 1; }
  mkdir -p "${binary%/*}"
  echo "building Jaeger, about five minutes on two cores ..." >&2
  fresh=$(mktemp "${binary%/*}/building.XXXXXX")
  trap 'rm -f "$fresh"' EXIT
  nice go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$fresh" github.com/jaegertracing/jaeger/cmd/jaeger >&2
  chmod 755 "$fresh"
  mv "$fresh" "$binary"
fi
echo "$binary"

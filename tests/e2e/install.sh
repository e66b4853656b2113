#!/usr/bin/env bash
# What the end-to-end tests need beyond Python: Jaeger, built once, and a browser. Fails when one cannot be had.
set -euo pipefail
cd "$(dirname "$0")"

backends/jaeger/build.sh >/dev/null

for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "installing chromium ..." >&2
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >&2
else
  echo "the end-to-end tests need chromium on PATH (Debian: apt-get install chromium)" >&2
  exit 1
fi

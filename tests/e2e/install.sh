#!/usr/bin/env bash
# What the end-to-end tests need beyond Python: a browser with a font to write with, Jaeger and OTLP clients of other
# languages, built once.
# Does nothing when all is there, and names what cannot be had.
set -euo pipefail
cd "$(dirname "$0")"

fail() {
  echo "tests/e2e/install.sh: $1" >&2
  exit 1
}

has_browser() {
  command -v chromium || command -v chromium-browser || command -v google-chrome
} >/dev/null

has_font() {
  command -v fc-list >/dev/null && [[ -n $(fc-list :lang=en file) ]]
}

if ! has_browser || ! has_font; then
  needed="the browser tests need chromium and a font (Debian: apt-get install chromium fonts-dejavu-core)"
  command -v apt-get >/dev/null || fail "$needed"
  [[ $(id -u) == 0 ]] || fail "$needed; run it as root, or run this script as root once"
  echo "installing chromium ..." >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 || fail "apt-get update failed: no package source can be reached"
  apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core fontconfig >&2 || fail "apt-get could not install chromium"
  has_browser || fail "chromium was installed, but is not on PATH"
fi

command -v go >/dev/null || fail "Jaeger is built from its Go module: Go 1.24 or newer is needed on PATH (https://go.dev/dl)"
backends/jaeger/build.sh >/dev/null
clients/build.sh >/dev/null

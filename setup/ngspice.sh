#!/usr/bin/env bash
# Makes sure that ngspice and libngspice are installed; quiet when they are.
set -euo pipefail

have() { command -v ngspice >/dev/null && ldconfig -p 2>/dev/null | grep -q libngspice; }

PATH="$PATH:/sbin:/usr/sbin"
have && exit 0
[ -n "${NGSPICE:-}" ] && [ -n "${NGSPICE_LIBRARY_PATH:-}" ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "setup: ngspice is not installed and this is no Debian or Ubuntu system." >&2
  echo "setup: install ngspice and its shared library, or set NGSPICE and NGSPICE_LIBRARY_PATH." >&2
  exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
elif command -v sudo >/dev/null && [ -t 0 ]; then
  as_root=(sudo)
else
  echo "setup: ngspice is missing and I have no right to install it. Have someone run:" >&2
  echo "setup:   sudo apt-get install ngspice libngspice0" >&2
  exit 1
fi
echo "setup: installing Debian's ngspice and libngspice0"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ngspice libngspice0 >/dev/null
have || { echo "setup: ngspice was installed but is not found" >&2; exit 1; }

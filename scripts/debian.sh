#!/usr/bin/env bash
# Debian packages that some tests need. Installed when we are root on a Debian; otherwise those tests say that they were skipped.
set -euo pipefail
declare -A package=([bwrap]=bubblewrap [chromium]=chromium [strace]=strace)
missing=()
for program in "${!package[@]}"; do
  command -v "$program" >/dev/null 2>&1 || missing+=("${package[$program]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "==> installing Debian packages for the tests: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "==> not root on a Debian: tests that need ${missing[*]} will be skipped"
fi

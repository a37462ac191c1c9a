#!/bin/sh
# Install what `slomo-nf` is built from on Debian 12: a compiler, meson, DPDK 22.11 and hyperscan.
# Changes nothing where all of it is there already; says so and ends with 1 where it may not install.
set -eu
packages="gcc libc6-dev meson ninja-build pkg-config libdpdk-dev dpdk libhyperscan-dev"

missing=""
for package in $packages; do
	status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
	[ "$status" = "install ok installed" ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
	echo "install-debian-packages.sh: all packages are installed" >&2
	exit 0
fi
echo "install-debian-packages.sh: missing:$missing" >&2
if ! command -v apt-get >/dev/null 2>&1; then
	echo "install-debian-packages.sh: there is no apt-get here" >&2
	echo "hint: install the same libraries by your system's own means, or use the portable build" >&2
	exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "install-debian-packages.sh: only root may install packages" >&2
	echo "hint: sudo apt-get install$missing" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >&2
# shellcheck disable=SC2086  # a list of words is meant
apt-get install -y -q --no-install-recommends $missing >&2

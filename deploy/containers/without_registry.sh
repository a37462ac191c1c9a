#!/bin/sh
# The serving image of packages of Debian and PyPI alone, for where no registry of images is to be had: an OCI layout.
#
#   deploy/containers/without_registry.sh FOLDER [SUITE]     as root; needs Debian's mmdebstrap and umoci, pip and git
#   skopeo copy oci:FOLDER:latest docker-archive:slomo.tar   or: podman pull oci:FOLDER:latest
set -eu
target=$1 suite=${2:-bookworm}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=${PYTHON:-python3}

umoci init --layout "$target"
umoci new --image "$target:latest"
umoci unpack --image "$target:latest" "$work/bundle"
root=$work/bundle/rootfs
mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates "$suite" "$work/debian.tar"
tar -C "$root" -xf "$work/debian.tar" --exclude='./dev/*'
rm -rf "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*

version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" "$source"
platform=$(uname -m)
"$python" -m pip install --quiet --target "$root/opt/slomo" --python-version "$version" --only-binary=:all: \
  --platform "manylinux2014_$platform" --platform "manylinux_2_28_$platform" --platform "manylinux_2_17_$platform" \
  --require-hashes --requirement "$source/locks/service.txt"
"$python" -m pip install --quiet --target "$root/opt/slomo" --no-deps "$work"/wheel/slomo-*.whl
chroot "$root" useradd --uid 10001 --create-home slomo
chroot "$root" install -d -o 10001 /models /state

umoci repack --image "$target:latest" "$work/bundle"
umoci config --image "$target:latest" --config.user 10001 --config.exposedports 8080 \
  --config.env PYTHONPATH=/opt/slomo --config.env NUMBA_CACHE_DIR=/tmp/numba --config.env PATH=/usr/bin:/bin \
  --config.entrypoint python3 --config.entrypoint -m --config.entrypoint slomo --config.entrypoint serve \
  --config.entrypoint --models --config.entrypoint /models
umoci gc --layout "$target"

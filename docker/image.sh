#!/usr/bin/env bash
# Makes a Docker image of a built tidegate binary from nothing: the binary, the libraries that it is linked with, and
# nothing else. It holds the gateway and, with the argument "engine", the stand-in engine.
#
#   docker/image.sh target/release/tidegate tidegate
#
# It imports a tree instead of building from a Dockerfile: that needs no builder, no base image and no registry.
# DOCKER_HOST says which daemon gets it.
set -euo pipefail
binary=${1:?"usage: docker/image.sh BINARY IMAGE"}
image=${2:?"usage: docker/image.sh BINARY IMAGE"}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/tmp"
cp "$binary" "$root/tidegate"
# A debug build is mostly symbols.
if command -v strip >/dev/null; then strip "$root/tidegate"; fi
# Each library where the loader looks for it; a static binary has none.
for library in $(ldd "$binary" 2>/dev/null | grep -o '/[^ )]*' || true); do
  cp -L --parents "$library" "$root"
done
tar -C "$root" -c . | docker import --change 'ENTRYPOINT ["/tidegate"]' --change 'CMD ["--help"]' - "$image" >/dev/null
echo "$image"

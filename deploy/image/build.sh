#!/usr/bin/env bash
# Builds an OCI image with Belay in it, without a container daemon: deploy/image/build.sh BINARY DIRECTORY
#
# Needs root, Debian or Ubuntu, and the packages mmdebstrap and umoci. DIRECTORY gets an OCI layout with the tag `belay`:
#   skopeo copy oci:DIRECTORY:belay docker://REGISTRY/belay:TAG        podman pull oci:DIRECTORY:belay
# The base comes from this machine's own suite, so that its C library fits BINARY. It is kept beside DIRECTORY
# (base-SUITE.tar, which `--base` as BINARY makes alone); remove it to get the newest packages. Equal inputs and SOURCE_DATE_EPOCH give equal layers.
set -euo pipefail
(($# == 2)) || { echo "usage: $0 BINARY DIRECTORY" >&2; exit 2; }
binary=$1 image=$2
[[ $binary == --base || -x $binary ]] || { echo "$0: $binary is no program; run \`make release\` first, or name one by BINARY=" >&2; exit 1; }
for program in mmdebstrap umoci; do
    command -v "$program" >/dev/null || { echo "$0: $program is missing: apt-get install mmdebstrap umoci" >&2; exit 1; }
done
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
base=$(dirname "$image")/base-$suite.tar
user=65532
mkdir -p "$(dirname "$image")"

if [[ ! -e $base ]]; then
    left_out=()
    for glob in doc man locale info; do left_out+=("--dpkgopt=path-exclude=/usr/share/$glob/*"); done
    # Certificates for providers, bubblewrap for commands, time zones for routines.
    mmdebstrap --quiet --variant=essential --include=ca-certificates,bubblewrap,tzdata "${left_out[@]}" "$suite" "$base.half.tar"
    mv "$base.half.tar" "$base"
fi
[[ $binary != --base ]] || exit 0

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
install -Dm755 "$binary" "$tree/files/usr/local/bin/belay"
install -d -m 755 "$tree/files/etc/belay" "$tree/files/var" "$tree/files/var/lib"
install -d -m 700 "$tree/files/var/lib/belay"
# The whole layer belongs to root but for the data.
reproducible=(--sort=name --mtime="@$SOURCE_DATE_EPOCH" --format=gnu --numeric-owner)
tar -C "$tree/files" "${reproducible[@]}" --owner=0 --group=0 --exclude=./var/lib/belay -cf "$tree/layer.tar" ./usr ./etc ./var
tar -C "$tree/files" "${reproducible[@]}" --owner="$user" --group="$user" -rf "$tree/layer.tar" ./var/lib/belay

if [[ -e $image && ! -e $image/oci-layout && -n $(ls -A "$image") ]]; then
    echo "$0: $image is no OCI layout, and it is not empty; name another directory" >&2
    exit 1
fi
rm -rf "$image"
umoci init --layout "$image"
umoci new --image "$image:belay"
umoci raw add-layer --image "$image:belay" "$base"
umoci raw add-layer --image "$image:belay" "$tree/layer.tar"
# HOME is the data directory, because a user by a number has no other. The address is refused without a token.
umoci config --image "$image:belay" \
    --created "$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)" \
    --os linux --architecture "$(dpkg --print-architecture)" \
    --config.user "$user:$user" --config.workingdir /var/lib/belay \
    --config.entrypoint /usr/local/bin/belay --config.cmd run \
    --config.env HOME=/var/lib/belay --config.env STATE_DIRECTORY=/var/lib/belay \
    --config.env BELAY__GATEWAY__LISTEN=0.0.0.0:8787 --config.env BELAY__CHANNELS__STDIN__ENABLED=false \
    --config.env BELAY__TELEMETRY__FORMAT=json \
    --config.volume /var/lib/belay --config.exposedports 8787/tcp --config.stopsignal SIGTERM \
    --config.label org.opencontainers.image.title=belay \
    --config.label "org.opencontainers.image.version=$("$binary" --version | cut -d' ' -f2)" \
    --config.label "org.opencontainers.image.licenses=MIT OR Apache-2.0"
umoci gc --layout "$image"
echo "$image:belay"

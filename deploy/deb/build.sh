#!/bin/bash
# Builds belay_VERSION_ARCH.deb into a directory: deploy/deb/build.sh BINARY OUT_DIR, or `make deb`.
#
# The binary must be for this machine's architecture, because it prints its own manual pages and completions.
# The same source and binary give the same bytes. COMPRESSION=xz|zstd|gzip|none chooses how the package is packed.
# REVISION=N is the package's revision (1). MAINTAINER="NAME <ADDRESS>" is for a package that you publish.
set -euo pipefail

die() { echo "deploy/deb/build.sh: $*" >&2; exit 1; }
[ $# -eq 2 ] || die "usage: deploy/deb/build.sh BINARY OUT_DIR"
[ -x "$1" ] || die "there is no program $1; run \`make dist\` first, or name one with BINARY="
for tool in dpkg-deb dpkg gzip strip; do
    command -v "$tool" >/dev/null || die "needs $tool (packages dpkg, gzip, binutils)"
done
binary=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/../.."
umask 022

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version *= *"\(.*\)"/\1/p' Cargo.toml)
[ -n "$version" ] || die "Cargo.toml names no version of the workspace"
version="${version/-/\~}-${REVISION:-1}"
architecture=$(dpkg --print-architecture)
maintainer=${MAINTAINER:-Belay developers <belay@localhost>}
[[ "$maintainer" =~ ^[^\<\>@[:cntrl:]]+\ \<[^\<\>[:space:]]+@[^\<\>[:space:]]+\>$ ]] || die "MAINTAINER is not \"NAME <ADDRESS>\""
# The time of the newest commit; outside a repository, a constant.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1700000000)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree="$work/tree"
mkdir -p "$tree/DEBIAN"
make --no-print-directory --silent install PREFIX=/usr DESTDIR="$tree" BINARY="$binary"

share="$tree/usr/share"
strip --strip-unneeded "$tree/usr/bin/belay"
mkdir -p "$share/zsh/vendor-completions"
mv "$share/zsh/site-functions/_belay" "$share/zsh/vendor-completions/_belay"
rmdir "$share/zsh/site-functions"
gzip -9n "$share"/man/man1/*.1

install -Dm644 deploy/deb/belay.toml "$tree/etc/belay/belay.toml"
install -Dm644 deploy/deb/belay.sysusers "$tree/usr/lib/sysusers.d/belay.conf"
documents="$share/doc/belay"
mkdir -p "$documents"
install -m644 deploy/deb/copyright "$documents/copyright"
install -Dm644 deploy/deb/lintian-overrides "$share/lintian/overrides/belay"
install -Dm644 deploy/belay.service.d/no-commands.conf "$documents/examples/no-commands.conf"
install -m644 config/examples/*.toml "$documents/examples/"
gzip -9nc CHANGELOG.md >"$documents/changelog.gz"
{
    echo "belay ($version) stable; urgency=medium"
    echo
    echo "  * See changelog.gz for what changed in Belay."
    echo
    echo " -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$documents/changelog.Debian.gz"

# The newest version of a symbol that the binary asks the C library for.
libc=$(grep -ao 'GLIBC_2\.[0-9.]*[0-9]' "$tree/usr/bin/belay" | sort -uV | tail -1)
[ -n "$libc" ] || die "$binary is not linked with the GNU C library"
size=$(du -ks --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
control=$(sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" -e "s/@LIBC@/${libc#GLIBC_}/" \
    deploy/deb/control)
printf '%s\n' "${control/@MAINTAINER@/"$maintainer"}" >"$tree/DEBIAN/control"
echo /etc/belay/belay.toml >"$tree/DEBIAN/conffiles"
install -m755 deploy/deb/postinst deploy/deb/prerm deploy/deb/postrm "$tree/DEBIAN/"
(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"

package="$out/belay_${version}_$architecture.deb"
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$tree" "$package" >/dev/null
echo "$package"

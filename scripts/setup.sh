# Shared by ./run and ./check: packages, dropping root, building. Sourced, never run; the caller has
# cd'ed to the project's root.
# shellcheck shell=bash

say() { printf '%s\n' "hearth: $*" >&2; }
die() { say "$*"; exit 1; }

# What the programs need to build and run, and what only the tests need on top.
packages_build=(gcc libc6-dev meson ninja-build pkg-config python3 python3-pip ca-certificates
    libsqlite3-dev libcjson-dev libevent-dev libhttp-parser-dev libinih-dev libsystemd-dev
    libsodium-dev libutf8proc-dev libpcre2-dev libcurl4-openssl-dev libedit-dev libxxhash-dev
    libstemmer-dev libopenblas-serial-dev libcmocka-dev)
packages_check=(curl socat systemd man-db procps sqlite3)
packages_all=(clang-14 libclang-rt-14-dev)

# Whether somebody called sudo: only apt runs as root then, so that build and state stay theirs.
is_sudo() { [ "$(id -u)" = 0 ] && [ -n "${SUDO_UID:-}" ] && [ "$SUDO_UID" != 0 ]; }

as_user() {
    if is_sudo; then
        local home runtime=()
        home=$(getent passwd "$SUDO_UID" | cut -d: -f6)
        # sudo drops it, and the socket is there for whoever comes without sudo.
        [ ! -d "/run/user/$SUDO_UID" ] || runtime=("XDG_RUNTIME_DIR=/run/user/$SUDO_UID")
        setpriv --reuid "$SUDO_UID" --regid "$SUDO_GID" --init-groups \
            env HOME="$home" USER="${SUDO_USER:-}" LOGNAME="${SUDO_USER:-}" "${runtime[@]}" "$@"
    else
        "$@"
    fi
}

# need_packages NAME…: installs what is missing; says so in one line where that can't be done. No
# network when all is there.
need_packages() {
    local missing=() p root=() installed log why
    # One call for all: about 20 ms. Its status is 1 when one of them is missing.
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null |
        awk '$1 == "ii" { print $2 }') || true
    for p in "$@"; do
        grep -qxF "$p" <<<"$installed" || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local by_hand="apt-get install --no-install-recommends ${missing[*]}"
    command -v apt-get >/dev/null || die "this needs Debian's packages: ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "missing packages, and neither root nor sudo to install them: $by_hand"
        root=(sudo)
    fi
    say "installing ${#missing[@]} packages: ${missing[*]}"
    log=$(mktemp)
    apt_get() {
        "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1
    }
    # Fresh images have no lists; old lists name versions that are gone.
    if ! apt_get install -y --no-install-recommends "${missing[@]}" &&
        ! { apt_get update && apt_get install -y --no-install-recommends "${missing[@]}"; }; then
        why=$(grep -m1 '^E:' "$log" || true)
        rm -f "$log"
        die "packages can't be installed: ${why:-apt-get failed}"
    fi
    rm -f "$log"
}

# What build compiles; empty: everything, also the tests.
build_targets=()

# build DIR [MESON OPTIONS…]: configures once, compiles what changed. Quiet unless it fails.
build() {
    local dir=$1; shift
    if [ ! -f "$dir/build.ninja" ]; then
        say "configuring $dir"
        as_user meson setup "$dir" . "$@" >/dev/null 2>&1 ||
            as_user meson setup --wipe "$dir" . "$@" >&2 ||
            die "meson setup $dir failed (above)"
    fi
    # A dry run first: with nothing to do there is nothing to say.
    if ! as_user ninja -C "$dir" -n "${build_targets[@]}" | grep -q 'no work to do'; then
        say "building $dir"
        as_user ninja -C "$dir" -j "$(nproc)" --quiet "${build_targets[@]}" >&2 ||
            die "the build in $dir failed (above)"
    fi
}

#!/bin/sh
# Build the Python that the node packages carry into build/python/ARCH/tree: one program with OpenSSL, libffi and zlib in
# it, that needs nothing but a C library of version 2.28 (RHEL 8 and 9, Debian 10 and later, Ubuntu 18.10 and later), and
# that runs from any folder. About four minutes, once: what was built from the same sources is kept.
#
#   build.sh ARCH        amd64 or arm64
#   exit status 3        this machine can't: one line says why
#
# Sources are Debian's packages (deploy/packages/python/sources), so that fixes come with their updates.
set -eu
cd "$(dirname "$0")/../../.."
here=deploy/packages/python
arch=$1
root=$PWD/build/python
work=$root/$arch
glibc=2.28
case $arch in
    amd64) machine=x86_64 openssl=linux-x86_64 ;;
    arm64) machine=aarch64 openssl=linux-aarch64 ;;
    *) echo "heeler: no Python for $arch" >&2; exit 2 ;;
esac
here_machine=$(uname -m)

cannot() { echo "heeler: no Python for the packages: $*" >&2; exit 3; }
want=$(cat $here/sources $here/build.sh | sha256sum | cut -c1-64)
if [ "$(cat "$work/stamp" 2>/dev/null)" = "$want" ]; then exit 0; fi
for program in apt-get autoreconf automake libtoolize make perl patch readelf xz; do
    command -v $program >/dev/null 2>&1 || cannot "no $program (Debian: apt install autoconf automake libtool libltdl-dev perl patch binutils xz-utils)"
done
of() { sed -n "s/^$1 //p" $here/sources; }

fetch() {               # Debian's source packages, signed by Debian and with the sums that we expect
    mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" "$root/sources"
    archive=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/$' | head -n 1)
    [ -n "$archive" ] || cannot "apt knows no archive of Debian"
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $(of suite) main" >"$root/apt/list"
    printf 'Dir::Etc::SourceList "%s";\nDir::Etc::SourceParts "/dev/null";\nDir::State::Lists "%s";\nDir::Cache "%s";\n' \
        "$root/apt/list" "$root/apt/lists" "$root/apt/cache" >"$root/apt/conf"
    names=$(of package | sed 's/ /=/')
    (cd "$root/sources" && export APT_CONFIG="$root/apt/conf" && apt-get update -qq &&
        apt-get source -qq --download-only $names) >"$root/fetch.log" 2>&1 || {
        tail -n 5 "$root/fetch.log" >&2; cannot "the sources can't be had"; }
    of sha256 | (cd "$root/sources" && sha256sum --quiet -c -) || cannot "a source is not what $here/sources says"
    [ -x "$root/zig/ziglang/zig" ] || {
        of zig >"$root/zig.txt"
        .venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: --no-deps \
            --target "$root/zig" -r "$root/zig.txt" || cannot "no zig"; }
}

unpack() { rm -rf "$work/$1"; mkdir -p "$work/$1"; tar xf "$(ls "$root/sources/$2"_*.orig.tar.*z)" -C "$work/$1" --strip-components 1; }

compilers() {           # by name and with folders mapped: where this is built must not stand in what is built
    mkdir -p "$work/tools"
    map="-ffile-prefix-map=$root=/build"
    for tool in cc:cc\ -target\ $machine-linux-gnu.$glibc\ $map ar:ar ranlib:ranlib; do
        printf '#!/bin/sh\nexec %s/zig/ziglang/zig %s "$@"\n' "$root" "${tool#*:}" >"$work/tools/heeler-${tool%%:*}"
        chmod 755 "$work/tools/heeler-${tool%%:*}"
    done
    export PATH="$work/tools:$PATH" CC=heeler-cc AR=heeler-ar RANLIB=heeler-ranlib READELF=readelf
    export ZIG_GLOBAL_CACHE_DIR="$root/zig-cache" ZIG_LOCAL_CACHE_DIR="$root/zig-cache" SOURCE_DATE_EPOCH=1700000000
}

libraries() {
    out=$work/lib
    mkdir -p "$out/lib" "$out/include"
    (cd "$work/zlib" && CFLAGS="-O2 -fPIC" ./configure --static && make -j"$(nproc)" libz.a &&
        cp libz.a "$out/lib/" && cp zlib.h zconf.h "$out/include/")
    (cd "$work/libffi" && autoreconf -fi && CFLAGS="-O2 -fPIC" ./configure --host=$machine-linux-gnu --disable-shared \
        --disable-docs --disable-multi-os-directory --prefix="$out" && make -j"$(nproc)" && make install)
    # TLS as it is today and nothing else. /etc/ssl is where most systems have their certificates.
    (cd "$work/openssl" && ./Configure $openssl --prefix=/usr/lib/heeler/openssl --openssldir=/etc/ssl --libdir=lib -fPIC no-shared no-tests \
        no-apps no-docs no-legacy no-engine no-dso no-module no-comp no-quic no-dtls no-cms no-ts no-cmp no-srp no-psk \
        no-idea no-md4 no-mdc2 no-rc2 no-rc4 no-seed no-camellia no-cast no-bf no-aria no-sm2 no-sm3 no-sm4 no-gost \
        no-whirlpool no-ml-dsa no-slh-dsa && make -j"$(nproc)" build_libs &&
        make install_dev DESTDIR="$work/installed" && cp -R "$work/installed/usr/lib/heeler/openssl/." "$out/")
}

python() {
    cd "$work/python"
    for fix in $(grep -E '^(CVE|ssl-|dict-use|traverse-)' debian/patches/series); do
        patch -s -p1 --no-backup-if-mismatch <"debian/patches/$fix"
    done
    cross="--build=$machine-linux-gnu"
    [ $machine = "$here_machine" ] || cross="--build=$here_machine-linux-gnu --host=$machine-linux-gnu
        --with-build-python=$root/$native/tree/bin/python3.13 ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no"
    lib=$work/lib
    export MODULE_BUILDTYPE=static LDFLAGS=-s CFLAGS="-fno-sanitize=undefined -Wno-date-time"
    export LIBFFI_CFLAGS="-I$lib/include" LIBFFI_LIBS="$lib/lib/libffi.a" ZLIB_CFLAGS="-I$lib/include" ZLIB_LIBS="$lib/lib/libz.a"
    without=$(printf 'py_cv_module_%s=n/a ' _tkinter _dbm _gdbm _sqlite3 readline _curses _curses_panel _uuid _bz2 _lzma)
    # shellcheck disable=SC2086 # words
    ./configure $cross --prefix=/usr/lib/heeler/python --with-openssl="$lib" --disable-shared --disable-test-modules \
        --without-ensurepip --without-doc-strings ac_cv_libatomic_needed=no $without
    make -j"$(nproc)" python
    make install DESTDIR="$work/installed"
}

tree() {                # what runs, without what builds, tests or draws
    rm -rf "$work/tree"
    mv "$work/installed/usr/lib/heeler/python" "$work/tree"
    cd "$work/tree"
    rm -rf include share lib/pkgconfig lib/*.a
    find bin -mindepth 1 ! -name python3.13 -delete
    cd lib/python3.13
    rm -rf config-3.13* ensurepip idlelib lib2to3 tkinter turtledemo pydoc_data test unittest/test site-packages/* \
        __phello__ sqlite3 curses dbm venv turtle.py antigravity.py this.py doctest.py pydoc.py
    find . -name __pycache__ -prune -exec rm -rf {} +
    # How it was built, which names folders of the builder.
    sed -i "s|$root|/build|g" _sysconfigdata_*.py
    mkdir -p lib-dynload site-packages
    touch lib-dynload/none  # the folder tells Python where it lives
}

native=$(case $here_machine in x86_64) echo amd64 ;; *) echo arm64 ;; esac)
[ "$arch" = "$native" ] || "$here/build.sh" "$native"
echo "heeler: building Python for $arch (some minutes, once)"
mkdir -p "$work"
rm -rf "$work/installed" "$work/lib"
fetch
for pair in python:python3.13 openssl:openssl libffi:libffi zlib:zlib; do unpack "${pair%%:*}" "${pair#*:}"; done
tar xf "$(ls "$root"/sources/python3.13_*.debian.tar.xz)" -C "$work/python"
compilers
(libraries; python; tree) >"$work/build.log" 2>&1 &  # not before "||", where the shell ignores set -e
wait $! || { tail -n 20 "$work/build.log" >&2; exit 1; }
newest=$(readelf -V "$work/tree/bin/python3.13" | grep -o 'GLIBC_2[0-9.]*' | sort -Vu | tail -n 1)
[ "$(printf '%s\n' "$newest" "GLIBC_$glibc" | sort -V | tail -n 1)" = "GLIBC_$glibc" ] || {
    echo "heeler: the Python for $arch asks for $newest" >&2; exit 1; }
rm -rf "$work/python" "$work/openssl" "$work/libffi" "$work/zlib" "$work/installed"
if grep -rq "$root" "$work/tree"; then
    echo "heeler: the Python for $arch names $root" >&2; exit 1
fi
echo "$want" >"$work/stamp"

#!/usr/bin/env bash
# Builds NetHack's library from NLE's own sources for this processor, with a profile of a player that has learnt, and with
# two functions of ours in place of slow ones and a loop over a group of games (launch/engine/faster). Games are the same
# bit for bit and take about half of the CPU time. It takes about four minutes on two cores.
#
#   bash launch/engine.sh                   downloads the sources of the installed version of NLE
#   bash launch/engine.sh --sources=FILE    takes the downloaded sources: nle-VERSION.tar.gz, or the directory in it
#   bash launch/engine.sh --hint            builds nothing: one line says when it would pay, unless there is a library
#
# It needs a C and C++ compiler (GCC), CMake 3.28, Ninja, flex, bison, and the headers of bzip2 and Boost.Context; pip
# installs CMake and Ninja. The library is kept beside compiled programs, if it plays recorded games like NLE's wheel.
# BUILD=elsewhere names the directory of the build (default: a temporary one), CC and CXX the compilers.
sources=
for argument in "$@"; do
  case $argument in
    --hint)
      built=("${XDG_CACHE_HOME:-$HOME/.cache}"/motif_jax/engine-*/build.json)
      if [ ! -e "${built[0]}" ] && command -v "${CC:-gcc}" >/dev/null; then
        echo "NetHack's games take half of the time with an engine built for this machine, in four minutes: bash" \
          "launch/engine.sh, or --engine of the quickstart. In its 400 seconds on two cores, an agent then played 5.2" \
          "million steps instead of 2.2, and scored 149 instead of 105 (one seed; docs/speed.md)"
      fi
      exit
      ;;
    --sources=?*) sources=$(realpath -m -- "${argument#--sources=}") ;;
    *) printf "motif_jax: unexpected argument '%s': --sources=FILE\n" "$argument" >&2; exit 2 ;;
  esac
done
case ${BUILD:-} in "" | /*) ;; *) BUILD=$PWD/$BUILD ;; esac
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
install dev
stubs=$PWD/launch/engine
export CC=${CC:-gcc} CXX=${CXX:-g++}

# ---- what it needs
has_header() { "$CXX" -E -x c++ - <<<"#include <$1>" >/dev/null 2>&1; }
missing=()
for tool in "$CC:gcc" "$CXX:g++" flex:flex bison:bison; do
  command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
done
if [ ${#missing[@]} = 0 ] || command -v "$CXX" >/dev/null; then
  has_header bzlib.h || missing+=(libbz2-dev)
  has_header boost/context/detail/fcontext.hpp || missing+=(libboost-context-dev)
fi
if [ ${#missing[@]} -gt 0 ]; then
  fail "this machine lacks what the engine is built with; run: sudo apt-get install ${missing[*]}"
fi
build=${BUILD:-$(mktemp -d)}
if [ -z "${BUILD:-}" ]; then trap 'rm -rf "$build"' EXIT; fi
mkdir -p "$build"
python -c "import cmake, ninja" 2>/dev/null || pip_install cmake ninja || pip_failed "cmake and ninja"

# ---- the sources
version=$(python -m motif_jax.envs.nethack.recorded version)
if [ -z "$sources" ]; then
  say "downloading the sources of NLE $version"
  python -m pip download -q --no-deps --no-binary nle "nle==$version" --dest "$build" ||
    fail "the sources of NLE $version could not be downloaded: name them, --sources=nle-$version.tar.gz"
  sources=$build/nle-$version.tar.gz
fi
if [ -f "$sources" ]; then
  tar -xzf "$sources" -C "$build" || fail "'$sources' is not an archive of sources (--sources)"
  sources=$build/nle-$version
fi
[ -f "$sources/src/nle.c" ] || fail "there is no NLE $version in '$sources' (--sources)"

# ---- two builds: the first counts, the second uses the counts
common="-O3 -march=native -fno-semantic-interposition -fno-plt"
build_with() { # FLAGS LINKER_FLAGS
  {
    cmake -S "$sources" -B "$build/objects" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSKBUILD_PROJECT_VERSION="$version" \
      -DCMAKE_C_FLAGS_RELEASE="$common $1" -DCMAKE_CXX_FLAGS_RELEASE="$common $1" \
      -DCMAKE_SHARED_LINKER_FLAGS_RELEASE="$common $1 $2" \
      -DCMAKE_C_STANDARD_LIBRARIES=-lbz2 -DCMAKE_CXX_STANDARD_LIBRARIES=-lbz2 \
      -DCMAKE_PROJECT_INCLUDE="$stubs/faster/faster.cmake" \
      -DFETCHCONTENT_FULLY_DISCONNECTED=ON -DFETCHCONTENT_SOURCE_DIR_PYBIND11="$stubs/pybind11" \
      -DFETCHCONTENT_SOURCE_DIR_DEBOOST_CONTEXT="$stubs/context" -DFETCHCONTENT_SOURCE_DIR_BZIP2="$build/bzip2" &&
      ninja -C "$build/objects" nethack
  } >>"$build/log" 2>&1 || { tail -n 20 "$build/log" >&2; fail "the engine could not be built (see above)"; }
}
rm -rf "$build/bzip2" "$build/profile"
cp -r "$stubs/bzip2" "$build/bzip2"
say "building NetHack $version to count what a player that has learnt calls"
build_with "-fprofile-generate -fprofile-update=atomic -fprofile-dir='$build/profile'" ""
python -m motif_jax.envs.nethack.recorded play "$build/objects/libnethack.so" >>"$build/log"
say "building it with these counts"
build_with "-fprofile-use='$build/profile' -fprofile-partial-training -Wno-missing-profile -flto=auto" "-Wl,-Bsymbolic -s"

# ---- kept if it plays like the wheel
say "playing recorded games with it and with NLE's wheel"
python -m motif_jax.envs.nethack.recorded install "$build/objects/libnethack.so" "$("$CC" --version | head -n 1)"

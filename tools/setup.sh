# What tools/quickstart, tools/check and tools/check-all share: install, configure, build.
# Sourced, not run. Sets `root` (the repository) and `build` (HEDDLE_BUILD, else build/).

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${HEDDLE_BUILD:-$root/build}

# Everything the build, the tests and emitted programs need, as Debian 12 names it. llvm-22 comes from
# its security archive. The two OpenCL packages: oneDNN's CMake file looks for OpenCL.
packages=(
  g++ clang-22 lld-22 libomp-22-dev clang-format-22      # compilers; emitted programs are built by c++
  libclang-rt-22-dev                                     # sanitizers and libFuzzer (test/fuzz)
  llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools # MLIR, TableGen, lit, FileCheck
  cmake ninja-build ccache python3
  libfmt-dev libyaml-cpp-dev nlohmann-json3-dev
  libopenmpi-dev openmpi-bin libdnnl-dev ocl-icd-opencl-dev opencl-c-headers
  libgtest-dev libgmock-dev libbenchmark-dev libboost-context-dev
  node-d3 chromium-headless-shell # heddle report, and what its test looks at the page with
)

# One line before each thing that is done, with the seconds since the start.
say() { printf '== %4d s  %s\n' "$SECONDS" "$*"; }

stop() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_missing() {
  command -v dpkg-query >/dev/null ||
    stop "this is no Debian: install what corresponds to these packages of Debian 12, then build by hand" \
      "(README.md, Build and test): ${packages[*]}"
  local missing=() package sudo=()
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "install: nothing is missing"
    return
  fi
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  say "install: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$build/install.log" ||
    stop "apt-get failed ($build/install.log); llvm-22 is in 'deb http://security.debian.org/debian-security" \
      "bookworm-security main'"
}

# ccache hits in another clone too: paths are relative, and precompiled headers hold no times.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root} CCACHE_NOHASHDIR=1

# Once: afterwards ninja configures again by itself where that is needed.
configure() {
  if [ -f "$build/build.ninja" ]; then
    say "configure: done before"
    return
  fi
  say "configure $build (log: $build/configure.log)"
  cmake -G Ninja -S "$root" -B "$build" \
    -DCMAKE_PREFIX_PATH="$(llvm-config-22 --prefix)" \
    -DCMAKE_C_COMPILER=/usr/bin/clang-22 -DCMAKE_CXX_COMPILER=/usr/bin/clang++-22 \
    -DCMAKE_CXX_FLAGS="-Xclang -fno-pch-timestamp" \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld-22 \
    >"$build/configure.log" 2>&1 || {
    tail -n 30 "$build/configure.log"
    rm -f "$build/build.ninja"
    stop "cmake failed"
  }
}

# build_targets [TARGET...]: all where none is named.
build_targets() {
  say "build ${*:-everything}, $(nproc) jobs"
  ninja -C "$build" --quiet "$@"
}

prepare() {
  mkdir -p "$build"
  install_missing
  configure
}

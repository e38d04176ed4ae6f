# shellcheck shell=bash
# `./dev test`: every test of the workspace, with the foreign client's Python, and what they say about the cases of the
# specification. Sourced by ./dev.

run_tests() {
  own_tmp
  python_for_tests
  if cargo fmt --version >/dev/null 2>&1; then
    say "format"
    cargo fmt --all -- --check || strict "the format differs; cargo fmt --all repairs it"
  fi
  if cargo clippy --version >/dev/null 2>&1; then
    say "lints"
    cargo clippy --workspace --all-targets --quiet -- -D warnings || strict "the lint wall has findings"
  fi
  say "building"
  cargo build --workspace --all-targets --quiet
  say "tests"
  cargo test --workspace --doc --quiet
  # One test binary at a time; within one, as many threads as the machine has.
  local failed=0 about=() targets=(--all-targets)
  # The benchmarks of single steps run once, as tests; they know no other arguments.
  [ $# -eq 0 ] || targets=(--lib --bins --tests)
  cargo test --workspace "${targets[@]}" "$@" 2>&1 | tee "$root/target/tests.log" || failed=1
  # Arguments choose tests; what follows is chosen by nobody.
  [ $# -gt 0 ] || simulate 2>&1 | tee -a "$root/target/tests.log" || failed=1
  awk '/^test result: / { passed += $4; failed += $6 } END { printf "all tests: %d passed; %d failed\n", passed, failed }' \
    "$root/target/tests.log"
  # Arguments, or a failure, leave tests out; then a case that did not run is no finding.
  [ $# -gt 0 ] || [ $failed -ne 0 ] || about+=(--whole)
  # Only root can call a socket as several users.
  [ "$(id -u)" -eq 0 ] || about+=(--without unix)
  cargo run --quiet -p placet-conformance -- totals "${about[@]}" "$root/target/tests.log" || failed=1
  # Some minutes of real faults; PLACET_CHAOS=no leaves them out.
  [ $# -gt 0 ] || [ "${PLACET_CHAOS:-}" = no ] || chaos_short || failed=1
  [ $failed -eq 0 ] || die "a test failed"
}

# Clusters that a test binary shares end with its process, so nobody is left to remove their folders. Other users must
# reach the sockets in it.
own_tmp() {
  tests_tmp=$(mktemp -d "${TMPDIR:-/tmp}/placet-test.XXXXXX")
  chmod 755 "$tests_tmp"
  export TMPDIR=$tests_tmp
  trap 'for _ in 1 2 3 4 5; do rm -rf "$tests_tmp" 2>/dev/null && break; sleep 1; done' EXIT
}

# A finding of another toolchain's linter must not keep a newcomer from the tests; CI takes none.
strict() {
  [ -z "${CI:-}" ] || die "$1"
  say "$1 (an error in CI)"
}

# A virtual environment with grpcio for the foreign client and blake3 for the second verifier, kept in the cache;
# nothing of it enters the checkout.
python_for_tests() {
  local grpc=1.85 blake3=1.0 folder
  folder=$cache/python-grpc-$grpc-blake3-$blake3
  mkdir -p "$cache"
  exec 8>"$cache/python.lock"
  flock 8
  if [ ! -e "$folder/complete" ]; then
    say "preparing Python for the foreign client and the second verifier"
    rm -rf "$folder"
    if ! python3 -m venv "$folder" >/dev/null 2>&1; then
      rm -rf "$folder"
      local sudo=()
      [ "$(id -u)" -eq 0 ] || sudo=(sudo)
      "${sudo[@]}" apt-get update -qq
      "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
      python3 -m venv "$folder"
    fi
    "$folder/bin/pip" install --quiet --disable-pip-version-check \
      "grpcio~=$grpc" "grpcio-tools~=$grpc" "blake3~=$blake3"
    "$folder/bin/python" -c 'import blake3, grpc, grpc_tools'
    touch "$folder/complete"
  fi
  exec 8>&-
  export PLACET_TEST_PYTHON=$folder/bin/python
}

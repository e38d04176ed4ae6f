# shellcheck shell=bash
# `./dev chaos`: long runs of real faults against real clusters, of the simulation and of the model; and the short ones
# that belong to `./dev test`.
# Sourced by ./dev, which provides say, die, prepare, tell_commit and $root.

# What the faults are made with. A machine without one of them skips the faults that need it, and the run says so.
chaos_tools() {
  local missing=()
  command -v ip >/dev/null || missing+=(iproute2)
  command -v nft >/dev/null || missing+=(nftables)
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  command -v faketime >/dev/null || missing+=(faketime)
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || { say "without ${missing[*]} some faults are left out"; return; }
  say "installing ${missing[*]}"
  { apt-get update -qq && env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null; } ||
    say "without ${missing[*]} some faults are left out"
}

# The node that dies on command is a build of its own, as fast as the one that ships, with every check that the code
# makes of itself.
build_crashing() {
  say "building a node with crash points, and the harness"
  tell_commit
  cargo build --quiet --profile sim -p placet-server --features crash-points &&
    cargo build --quiet -p placet-nemesis
}

# One of each fault and each crash point once, in a few minutes.
chaos_short() {
  if [ "$(id -u)" -ne 0 ]; then
    say "skipped: real faults need root, for network namespaces"
    return 0
  fi
  # Whoever asks whether this fails takes `set -e` away from all of it.
  chaos_tools
  build_crashing || return
  say "real faults: one of each, and each crash point"
  "$root/target/debug/placet-nemesis" short
}

# Two hundred seeds of the simulation, those that once failed, and every planted bug; optimised, or they take an hour.
simulate() {
  say "simulation: 200 seeds, and those that once failed"
  cargo test --profile sim -p placet-sim --features runs --test sim || return
  say "simulation: every planted bug"
  cargo test --profile sim -p placet-sim --features runs,planted --test sim
}

chaos() {
  case ${1:-} in
    sim)
      shift
      cargo run --quiet --profile sim -p placet-sim -- "$@"
      return
      ;;
    planted)
      shift
      cargo run --quiet --profile sim -p placet-sim --features planted -- "$@"
      return
      ;;
    model)
      shift
      cargo run --quiet --release -p placet-model -- "$@"
      return
      ;;
  esac
  [ "$(id -u)" -eq 0 ] || die "real faults need root, for network namespaces"
  prepare
  chaos_tools
  build_crashing
  say "building placet as it ships (about eight minutes on two cores the first time)"
  cargo build --release --quiet -p placet-server
  case ${1:-} in
    --minutes) "$root/target/debug/placet-nemesis" mixed --minutes "${2:?--minutes needs a number}" ;;
    '') "$root/target/debug/placet-nemesis" mixed --minutes 10 ;;
    *) "$root/target/debug/placet-nemesis" "$@" ;;
  esac
}

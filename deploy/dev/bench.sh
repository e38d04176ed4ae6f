# shellcheck shell=bash
# `./dev bench`: Placet and its peers, measured in turn on this machine; writes benches/BASELINE.md.
# Sourced by ./dev, which provides say, die, prepare, tell_commit, $root and $cache.

bench() {
  case ${1:-} in
    micro)
      shift
      prepare
      cargo bench -p placet-benches --bench steps -- "$@"
      return
      ;;
  esac
  prepare
  bench_peers
  say "building placet and the benchmarks (about eight minutes on two cores the first time)"
  tell_commit
  cargo build --release --quiet -p placet-server -p placet-benches
  local python=()
  onedoor_python && python=(--python "$onedoor")
  say "measuring; what runs beside it is measured, too"
  "$root/target/release/placet-benches" "${python[@]}" "$@"
}

# etcd and Redis, from the distribution's packages. Their own services are not used.
bench_peers() {
  local missing=()
  command -v etcd >/dev/null || missing+=(etcd-server)
  command -v redis-server >/dev/null || missing+=(redis-server)
  command -v redis-benchmark >/dev/null || missing+=(redis-tools)
  [ ${#missing[@]} -eq 0 ] && return
  command -v apt-get >/dev/null || die "please install: ${missing[*]}"
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
}

# onedoor needs Python 3.12; without one its rows are left out, and the report says so.
onedoor_python() {
  local version=0.8.1 python folder
  folder=$cache/python-onedoor-$version
  onedoor=$folder/bin/python
  [ -e "$folder/complete" ] && return
  python=$(newer_python) || { say "no Python 3.12 here: onedoor is left out"; return 1; }
  say "installing onedoor $version"
  rm -rf "$folder"
  # Whoever asks whether this fails takes `set -e` away from it.
  "$python" -m venv "$folder" &&
    "$folder/bin/pip" install --quiet --disable-pip-version-check "onedoor==$version" fastapi uvicorn &&
    touch "$folder/complete"
}

# The first Python that is new enough; version managers keep theirs where PATH does not look.
newer_python() {
  local python
  for python in python3.14 python3.13 python3.12 python3 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
      command -v "$python"
      return
    fi
  done
  return 1
}

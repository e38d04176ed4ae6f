# shellcheck shell=bash
# `./dev up` and `./dev down`: node processes on loopback, their data and tokens under one folder.
# Sourced by ./dev, which provides say, die, prepare and $root.

options() {
  policy=$root/examples/payments.yaml nodes=3 data=$root/.data scenario=yes
  while [ $# -gt 0 ]; do
    case $1 in
      --policy) policy=$(cd "$caller" && realpath "${2:?--policy needs a file}"); shift 2 ;;
      --nodes) nodes=${2:?--nodes needs a number}; shift 2 ;;
      --data) data=$(cd "$caller" && realpath -m "${2:?--data needs a folder}"); shift 2 ;;
      --no-scenario) scenario=no; shift ;;
      *) die "unknown option '$1'; see ./dev help" ;;
    esac
  done
  [[ $nodes =~ ^[1-9]$ ]] || die "--nodes is a number from 1 to 9"
  [ -r "$policy" ] || die "cannot read policy $policy"
  port_base=${PLACET_PORT_BASE:-7100}
  placet=$root/target/release/placet
}

up() {
  options "$@"
  prepare
  say "building placet (about eight minutes on two cores the first time)"
  cargo build --release --workspace --bins
  # Log and state hold permits, so they are nobody else's.
  umask 077
  local fresh=no
  [ -e "$data/tokens.json" ] || fresh=yes
  mkdir -p "$data"
  if running; then
    say "a cluster already runs on $data; ./dev down stops it"
  else
    start_all
  fi
  wait_ready
  write_env
  # shellcheck disable=SC1091
  . "$data/dev.env"
  say "publishing $policy"
  "$placet" policy publish "$policy"
  if [ "$scenario" = yes ] && [ $fresh = no ]; then
    say "this data has a past; ./dev up --data NEW_FOLDER tells the story"
  elif [ "$scenario" = yes ] && [ "$nodes" -ge 3 ] && [ "$policy" = "$root/examples/payments.yaml" ]; then
    # shellcheck source=deploy/dev/scenario.sh
    . "$root/deploy/dev/scenario.sh"
    run_scenario
    write_env
  fi
  say "the cluster runs:"
  "$placet" cluster status
  cat <<EOF

  HTTP        $PLACET_HTTP
  gRPC        $PLACET_GRPC
  tokens      . ${data/#"$root/"/}/dev.env
  the CLI     alias placet=${placet/#"$root/"/}
  stop it     ./dev down
EOF
}

down() {
  options "$@"
  stop_all
  say "stopped; the data stays in $data"
}

http_of() { echo "http://127.0.0.1:$((port_base + $1))"; }
grpc_of() { echo "http://127.0.0.1:$((port_base + 100 + $1))"; }
peer_of() { echo "127.0.0.1:$((port_base + 200 + $1))"; }
joined() { local IFS=,; echo "$*"; }

each_node() { seq 1 "$nodes"; }

start_all() {
  make_tokens
  make_redaction_key
  for id in $(each_node); do
    write_config "$id"
    pid_of "$id" >/dev/null || start_node "$id"
  done
}

# One random token per role; the file is readable by its owner only.
make_tokens() {
  [ -s "$data/tokens.json" ] && return
  local separator='['
  (
    umask 077
    for role in decide approve operate policy audit; do
      printf '%s\n { "principal": "token:%s", "roles": ["%s"], "token": "%s" }' \
        "$separator" "$role" "$role" "$(head -c 32 /dev/urandom | sha256sum | cut -c1-48)"
      separator=,
    done >"$data/tokens.json.new"
    printf '\n]\n' >>"$data/tokens.json.new"
    mv "$data/tokens.json.new" "$data/tokens.json"
  )
}

# One for the whole cluster: what a policy redacts is kept as digests under it.
make_redaction_key() {
  [ -s "$data/redaction.key" ] && return
  (
    umask 077
    head -c 32 /dev/urandom | sha256sum | cut -c1-64 >"$data/redaction.key.new"
    mv "$data/redaction.key.new" "$data/redaction.key"
  )
}

token_of() { sed -n "s/.*\"token:$1\".*\"token\": \"\([^\"]*\)\".*/\1/p" "$data/tokens.json"; }

write_config() {
  local id=$1 other
  {
    printf 'node_id = %d\ndata = "%s/node-%d"\ntokens = "%s/tokens.json"\n' "$id" "$data" "$id" "$data"
    printf 'redaction_key = "%s/redaction.key"\n\n' "$data"
    printf '[http]\nlisten = "127.0.0.1:%d"\n\n' $((port_base + id))
    printf '[grpc]\nlisten = "127.0.0.1:%d"\n\n' $((port_base + 100 + id))
    printf '[peer]\nlisten = "127.0.0.1:%d"\n\n' $((port_base + 200 + id))
    for other in $(each_node); do
      printf '[[initial_cluster]]\nid = %d\npeer = "%s"\nhttp = "%s"\ngrpc = "%s"\n\n' \
        "$other" "$(peer_of "$other")" "$(http_of "$other")" "$(grpc_of "$other")"
    done
  } >"$data/node-$id.toml"
}

start_node() {
  local id=$1
  setsid nohup "$placet" serve --config "$data/node-$id.toml" >>"$data/node-$id.log" 2>&1 </dev/null &
  echo $! >"$data/node-$id.pid"
  disown
}

# The process of a node, if it is still the one that we started.
pid_of() {
  local pid
  pid=$(cat "$data/node-$1.pid" 2>/dev/null) || return 1
  [ "$(readlink "/proc/$pid/exe" 2>/dev/null | sed 's/ (deleted)$//')" = "$placet" ] && echo "$pid"
}

running() {
  local id
  for id in $(each_node); do pid_of "$id" >/dev/null || return 1; done
}

wait_ready() {
  say "waiting for every node to serve"
  local deadline=$((SECONDS + 60)) id
  until all_serve; do
    for id in $(each_node); do
      pid_of "$id" >/dev/null || { tail -n 20 "$data/node-$id.log" >&2; die "node $id stopped; its log is $data/node-$id.log"; }
    done
    [ $SECONDS -lt $deadline ] || die "not every node serves after 60 s; the logs are in $data"
    sleep 0.2
  done
}

all_serve() {
  local id
  for id in $(each_node); do
    curl -fsS "$(http_of "$id")/v1/health" 2>/dev/null | grep -q '"serving"' || return 1
  done
}

write_env() {
  local id http=() grpc=() pids=()
  for id in $(each_node); do
    http+=("$(http_of "$id")")
    grpc+=("127.0.0.1:$((port_base + 100 + id))")
    pids+=("$(pid_of "$id" || echo 0)")
  done
  (
    umask 077
    {
      echo "export PLACET_HTTP=$(joined "${http[@]}")"
      echo "export PLACET_GRPC=$(joined "${grpc[@]}")"
      for role in decide approve operate policy audit; do
        echo "export PLACET_${role^^}_TOKEN=$(token_of $role)"
      done
      echo "export PLACET_PIDS=$(joined "${pids[@]}")"
    } >"$data/dev.env"
  )
}

stop_all() {
  local file pid
  for file in "$data"/node-*.pid; do
    [ -e "$file" ] || continue
    pid=$(pid_of "$(basename "$file" .pid | cut -d- -f2)") || { rm -f "$file"; continue; }
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null || true
    rm -f "$file"
  done
}

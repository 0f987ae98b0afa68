#!/bin/sh
# Runs every fuzz target of a build folder for some seconds each, or the one that is named.
#   tests/fuzz.sh BUILD SECONDS [TARGET]
# FUZZ_SEED (1) decides what is tried first; another seed tries other things.
# A finding stops the run; libFuzzer leaves the input beside the target.
set -eu
build=$1 seconds=$2 n=0
for target in "$build"/fuzz/${3:-fuzz_*}; do
  case $target in *.*|*-*seed*) continue ;; esac
  [ -x "$target" ] || continue
  name=$(basename "$target")
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  seeds=tests/seeds/$name
  printf '%-18s ' "$name"
  "$target" -seed="${FUZZ_SEED:-1}" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
      -artifact_prefix="$build/fuzz/" "$corpus" $( [ -d "$seeds" ] && echo "$seeds" ) >"$build/fuzz/$name.log" 2>&1 || {
    echo "FAILED; log in $build/fuzz/$name.log"
    tail -n 40 "$build/fuzz/$name.log"
    exit 1
  }
  grep -o 'number_of_executed_units: *[0-9]*' "$build/fuzz/$name.log" | sed 's/number_of_executed_units: */runs /'
  n=$((n + 1))
done
[ $n != 0 ] || { echo "no fuzz target ${3:-} in $build/fuzz"; exit 1; }
echo "$n fuzz targets, no findings"

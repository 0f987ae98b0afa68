#!/bin/sh
# Runs what tools/device-check packed, beside it: C tests, text cases, end-to-end tests.  Prints what the processor can
# do, a line a program, and the count; the exit status is 1 when something failed.
#   ./run [PART]     only the programs with PART in their names; `python` is one
set -u
cd "$(dirname "$0")" || exit 2
here=$PWD
loader=$(echo lib/ld-linux-*)
export LATHE_LIBRARY_PATH="$here/build" PYTHONPATH="$here/python" PYTHONHOME="$here/usr" PYTHONDONTWRITEBYTECODE=1
export CMOCKA_MESSAGE_OUTPUT=TAP PATH="$here/bin:$PATH"
start() { "$here/$loader" --library-path "$here/build:$here/lib" "$@"; }

mkdir -p bin          # the linker, where this machine has none
if ! command -v ld >/dev/null; then
  printf '#!/bin/sh\nexec "%s" --library-path "%s/lib" "%s/usr/bin/ld.real" "$@"\n' "$here/$loader" "$here" "$here" >bin/ld
  chmod +x bin/ld
fi

echo "lathe $(cat version) on $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
start build/lathe targets | sed -n 's/^ *\(mtriple\|mcpu\|features\|vector_width\|num_cores\) /  \1 /p'
grep -m 1 -E '^(flags|Features)' /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx512|avx_vnni|amx|sve|i8mm|bf16|asimddp)' |
  sort -u | tr '\n' ' '
echo

passed=0 failed=0 skipped=0
log=$(mktemp)
# count NAME PASSED FAILED SKIPPED
count() {
  passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
  printf '%-30s %5d passed  %d failed  %d skipped\n' "$@"
  [ "$3" = 0 ] || grep -vE '^ok [0-9]' "$log" | head -n 60
}
for program in build/tests/*_test_*; do
  name=$(basename "$program")
  case $name in *"${1:-}"*) ;; *) continue ;; esac
  start "$program" >"$log" 2>&1
  status=$?
  bad=$(grep -E '^not ok [0-9]' "$log" | grep -vc '# SKIP')
  skips=$(grep -cE '^(not )?ok [0-9].*# SKIP' "$log")
  good=$(grep -E '^ok [0-9]' "$log" | grep -vc '# SKIP')
  [ $status = 0 ] || [ "$bad" != 0 ] || bad=1                  # it died
  [ $((good + bad + skips)) != 0 ] || bad=1                    # it ran no test
  count "$name" "$good" "$bad" "$skips"
done
case cases in *"${1:-}"*)
  start build/cases src >"$log" 2>&1
  status=$?
  said=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
  good=${said% *} bad=${said#* }
  [ -n "$said" ] && { [ $status = 0 ] || [ "$bad" != 0 ]; } || { good=0 bad=1; }
  count cases "$good" "$bad" 0 ;;
esac
case python in *"${1:-}"*)
  start usr/bin/python3 -m pytest -q -rfs -p no:cacheprovider -m "not slow" tests/python/test_end_to_end.py \
      tests/python/test_packed_matmul.py tests/python/test_memory_operators.py >"$log" 2>&1
  status=$?
  number() { tail -n 1 "$log" | grep -oE "[0-9]+ $1" | cut -d' ' -f1; }
  good=$(number passed) bad=$(number failed) errors=$(number error) skips=$(number skipped)
  bad=$((${bad:-0} + ${errors:-0}))
  [ $status = 0 ] || [ "$bad" != 0 ] || bad=1
  count python "${good:-0}" "$bad" "${skips:-0}" ;;
esac
rm -f "$log"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]

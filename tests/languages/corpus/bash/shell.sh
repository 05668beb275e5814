set -u
trap 'echo "trap EXIT $?"' EXIT
trap 'echo caught USR1' USR1
kill -USR1 $$
cat <<HERE | sort -r | head -n 2
one
two
three $((1 + 2))
HERE
declare -A map=([a]=1 [b]=2)
for key in $(printf '%s\n' "${!map[@]}" | sort); do echo "$key=${map[$key]}"; done
diff <(echo a) <(echo b) || echo "diff $?"
coproc cat
echo through >&"${COPROC[1]}"
read -r line <&"${COPROC[0]}"
echo "$line"
mkdir -p d/e && touch d/e/{x,y,z}.txt && find d -name '*.txt' | sort
printf 'k1 3\nk2 4\n' | awk '{s += $2} END {print s}'
echo 'hello world' | sed -E 's/(\w+) (\w+)/\2 \1/' | tr a-z A-Z
(sleep 0.05; echo background) &
wait $!
tar cf - d | tar tf - | wc -l
seq 1 5 | xargs -n2 echo
[[ "abc123" =~ ([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
date -u -d @0 +%F
timeout 0.05 sleep 5; echo "timeout $?"
false | true; echo "${PIPESTATUS[@]}"
exit 12

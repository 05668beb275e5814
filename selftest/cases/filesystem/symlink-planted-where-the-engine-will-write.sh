# id: O-05
# name: Symlink planted where the engine will write
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: each run has its own /box; there is no barrier to leave out
# collect: *
# expect-file: stdout.txt not_regular, a.out not_regular
# runs: 2
# What was planted by the run before must be gone, what is planted now must not be followed.
for name in main.py main.sh main.c run.sh compile.sh stdin stdout stdout.txt stderr a.out main job; do
    if [ -L "$name" ]; then
        echo "BREACH: $name was planted by another run"
    fi
    rm -f "$name"
    ln -s "${CANARY_FILE:-/var/lib/hermes/canary-w}" "$name" || exit 1
done
if (echo x >> stdout.txt) 2>/dev/null; then
    echo "BREACH: wrote through the link"
fi
echo done

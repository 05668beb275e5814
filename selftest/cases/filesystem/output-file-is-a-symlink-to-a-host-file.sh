# id: O-04
# name: Output file is a symlink to a host file
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: the collector opens by openat2 without links; that is code, not a barrier of the box
# collect: out.txt, dir/out.txt
# expect-file: out.txt not_regular
ln -s "${CANARY_FILE:-/etc/hermes-canary}" out.txt
# The directory on the way is a link, too.
ln -s /etc dir
ls -l out.txt dir >&2
echo done

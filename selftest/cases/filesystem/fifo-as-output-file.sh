# id: O-06
# name: FIFO as output file
# group: filesystem
# priority: 1
# expect: ok
# control: none
# control-why: the collector opens nothing but plain files; that is code, not a barrier of the box
# collect: out.txt, second
# expect-file: out.txt not_regular, second not_regular
mkfifo out.txt second || exit 1
# Somebody holds the other end of one of them.
sleep 30 <>second &
echo done

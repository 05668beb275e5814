# id: X-60
# name: Shell start-up files and names as options
# group: compile
# priority: 2
# expect: ok
# control: none
# control-why: about what the engine's helpers read, not about a barrier
# collect: out.txt
# Nothing that works for the engine later may read these.
for file in .bashrc .bash_profile .profile .bash_logout .inputrc .gitconfig .netrc; do
    echo 'echo "BREACH: start-up file was read"; echo "BREACH" > /box/out.txt' > "/box/$file"
done
echo fine > out.txt
: > "-rf"
: > "--checkpoint-action=exec=id"
mkdir -p .config bin
printf '#!/bin/sh\necho BREACH > /box/out.txt\n' > bin/ls
cp bin/ls bin/gcc
chmod +x bin/ls bin/gcc
export PATH=/box/bin:$PATH BASH_ENV=/box/.bashrc ENV=/box/.bashrc LD_PRELOAD=/box/none.so
echo done

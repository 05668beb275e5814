# SPDX-License-Identifier: Apache-2.0
"""Ways to write a command that a reader of text misses. `mark` is a harmless program that leaves a file, and plain bash
really runs it (test_spellings.py). ORDINARY are commands of every day."""

LINES = r'''
mark
\mark
m\ark
'mark'
"mark"
m'a'rk
m""ark
'm'"a"r\k
""mark
mark""
\m\a\r\k
$'mark'
$'\x6dark'
$'\155ark'
$'\u006dark'
$'\U0000006dark'
$'mark\0junk'
$(echo mark)
`echo mark`
"$(echo mark)"
$(printf '%s' mark)
$(printf '\155ark')
$(echo bWFyaw== | base64 -d)
x=mark; $x
x=mark; "$x"
x=ma; y=rk; $x$y
x=mark; ${x}
x=mark; ${x:-y}
${nothing:-mark}
${nothing:=mark}
x=xmark; ${x#x}
x=markx; ${x%x}
x=MARK; ${x,,}
x=xxark; ${x/xx/m}
x=xmark; ${x:1}
x=mark; y=x; ${!y}
a=(mark); ${a[0]}
a=(mark); "${a[@]}"
set -- mark; "$@"
set -- mark; $1
{mark,}
./bin/mark
bin/mark
./bin/../bin/mark
bin/m?rk
bin/m*k
bin/[m]ark
command mark
command -p env mark
builtin command mark
exec mark
(exec mark)
exec -a x mark
env mark
env -i bin/mark
env X=1 mark
env -u X mark
env -S mark
env -S 'mark'
nohup mark >/dev/null 2>&1
setsid -w mark
timeout 5 mark
timeout -s KILL 5 mark
timeout --kill-after=1 5 mark
nice mark
nice -n 1 mark
nice -1 mark
ionice -c 3 mark
stdbuf -o0 mark
time mark
time -p mark
! mark
X=1 mark
X=1 Y=2 mark
2>/dev/null mark
>/dev/null mark
</dev/null mark
{ mark; }
(mark)
( ( mark ) )
if mark; then :; fi
if :; then mark; fi
if false; then :; else mark; fi
if false; then :; elif mark; then :; fi
while mark; false; do :; done
until mark; do :; done
for i in 1; do mark; done
for i in mark; do $i; done
for ((i=0;i<1;i++)); do mark; done
case x in x) mark;; esac
case x in *) mark;; esac
case $(mark) in *) :;; esac
select i in a; do mark; break; done <<<1 2>/dev/null
true && mark
false || mark
true; mark
true | mark
mark | true
true |& mark
mark & wait
coproc mark; wait
 mark
mark;
echo $(mark)
echo "$(mark)"
echo `mark`
echo "`mark`"
echo $(echo $(mark))
echo ${x:-$(mark)}
echo "${x:-$(mark)}"
echo ${x:-`mark`}
x=$(mark)
x=`mark`
y=$(mark) true
declare x=$(mark)
export x=$(mark)
readonly rx=$(mark)
a=($(mark))
a[$(mark)0]=1
a=([$(mark)0]=1)
declare -A h=([$(mark)x]=1)
echo $(( $(mark) + 1 ))
echo $((a[$(mark)0]))
(( a[$(mark)0] ))
let "x=$(mark)1"
let 'a[$(mark)0]=1'
x='a[$(mark)]'; echo $((x))
x='a[$(mark)]'; echo $[x]
x='a[$(mark)]'; ((x))
x='a[$(mark)]'; let x
x='a[$(mark)]'; [[ $x -eq 0 ]]
x='a[$(mark)]'; [[ x -gt 0 ]]
x='a[$(mark)]'; [[ -v $x ]]
x='a[$(mark)]'; test -v "$x"
x='a[$(mark)]'; [ -v "$x" ]
x='a[$(mark)]'; echo ${a[x]}
x='a[$(mark)]'; y=abc; echo ${y:x}
x='a[$(mark)]'; y=abc; echo ${y:0:x}
x='a[$(mark)]'; declare -i z=x
x='a[$(mark)]'; declare -i z; z=$x
x='a[$(mark)]'; a[x]=1
x='a[$(mark)]'; printf -v "$x" y
x='a[$(mark)]'; read "$x" <<<y
x='a[$(mark)]'; unset "$x"
x='a[$(mark)]'; echo ${!x}
x='$(mark)'; echo "${x@P}"
x='-v a[$(mark)]'; [ $x ]
x='-v a[$(mark)]'; test $x
x='-v a[$(mark)] y'; printf $x
x='a[$(mark)]'; for ((i=x;i<1;i++)); do :; done
x='a[$(mark)]'; while ((x)); do break; done
x='a[$(mark)]'; if ((x > 1)); then :; fi
PS4='$(mark)'; set -x; true
cat <(mark)
cat <(echo <(mark)); sleep 0.1
true > >(mark); sleep 0.3
tee >(mark) </dev/null; sleep 0.3
cat <<<$(mark)
cat <<<"$(mark)"
f() { mark; }; f
function f { mark; }; f
f() ( mark ); f
f() if :; then mark; fi; f
ls() { mark; }; ls
cd() { mark; }; cd
echo() { mark; }; echo
shopt -s expand_aliases; alias x=mark; eval x
shopt -s expand_aliases; BASH_ALIASES[ls]=mark; eval ls
trap mark EXIT; exit
trap 'mark' EXIT
trap "mark" 0
trap -- mark EXIT
trap mark DEBUG; true
trap mark ERR; false
eval mark
eval "mark"
eval 'm''ark'
eval "ma""rk"
eval "$(echo mark)"
eval "eval mark"
eval "eval 'eval mark'"
eval 'x=mark; $x'
x='mark'; eval $x
eval -- mark
builtin eval mark
command eval mark
bash -c mark
bash -c 'mark'
bash -c "m'ark'"
bash -c 'bash -c mark'
bash -c 'bash -c "bash -c mark"'
bash -c '"$0"' mark
bash -c '$1' x mark
bash -c 'eval "$1"' x mark
bash -ec mark
bash -e -c mark
bash -o pipefail -c mark
bash --norc -c mark
bash -- bin/mark
bash bin/mark
bash -c "$(echo mark)"
bash -c "${x:-mark}"
sh -c mark
dash -c mark
sh -c 'sh -c mark'
env bash -c mark
env -i bash -c bin/mark
nice bash -c mark
timeout 5 bash -c mark
xargs -I{} bash -c mark <<<x
echo mark | bash
echo mark | sh
echo mark | bash -s
echo mark | bash /dev/stdin
echo bWFyaw== | base64 -d | bash
echo kram | rev | bash
printf '\155ark' | bash
bash <<<mark
bash < <(echo mark)
bash <(echo mark)
source <(echo mark)
. <(echo mark)
source bin/mark
. bin/mark
. /dev/stdin <<<mark
echo mark >script; bash script
echo mark >script; . ./script
echo mark >script; chmod +x script; ./script
xargs -n1 env <<<mark
echo mark | xargs env
echo x | xargs mark
echo x | xargs -I{} mark {}
echo x | xargs -n1 mark
find bin -name mark -exec {} \;
find bin -name mark -exec mark \;
find bin -name mark -exec mark {} +
find bin -name mark -exec bash -c mark \;
find bin -name mark -exec sh -c '"$0"' {} \;
awk 'BEGIN { system("mark") }'
awk 'BEGIN { "mark" | getline }'
sed '1e mark' bin/mark
sed -n '1emark' bin/mark
python3 -c 'import os; os.system("mark")'
python3 - <<<'import os; os.system("mark")'
python3 <<<'import os; os.system("mark")'
echo 'import os; os.system("mark")' | python3
perl -e 'system "mark"'
perl -e 'exec "mark"'
perl <<<'system "mark"'
git -c alias.x='!mark' x
tar cf /dev/null --checkpoint=1 --checkpoint-action=exec=mark bin
make -f- <<<'x:;mark'
PATH=./bin; mark
PATH=bin:$PATH mark
hash -p bin/mark ls; ls
BASH_ENV=bin/mark bash -c :
mapfile -C mark -c 1 x <<<y
printf 'mark\n' | while read -r x; do $x; done
while read -r x; do $x; done <<<mark
read -r x <<<mark; $x
IFS=, ; x=mark,; $x
x="ma rk"; ${x/ /}
mark${IFS}
m${x}ark
m$@ark
m$()ark
m``ark
m"$x"ark
$(rev <<<kram)
$(<bin/name)
`cat bin/name`
"$(cat bin/name)"
[[ $(mark) ]]
[ "$(mark)" ]
[[ -n "$(mark)" ]]
[[ x =~ $(mark) ]]
: "$(mark)"
: ${x:=$(mark)}
: $((x=$(mark)1))
true $(mark)
printf "$(mark)x"
cd "$(mark)"
exit $(mark)
echo ${x/$(mark)/}
x=y; echo ${x//y/$(mark)}
echo "${x[$(mark)0]}"
echo {1,$(mark)}
echo *$(mark)
echo $"$(mark)"
>"x$(mark)" true
2>x$(mark) true
true 2>&1 >x$(mark)
{ true; } >x$(mark)
for i in $(mark); do :; done
case x in $(mark)) :;; esac
time { mark; }
! { mark; }
bash -c 'mark' </dev/null >/dev/null 2>&1 &
wait $(mark)
shift $(mark) 2>/dev/null
x[$(mark)]=1 true
mark >&2
exec 3>&1; mark >&3
RANDOM='a[$(mark)]'
OPTIND='a[$(mark)]'
SRANDOM='a[$(mark)]'
HISTCMD='a[$(mark)]'
x='a[$(mark)]'; RANDOM=x
for RANDOM in 'a[$(mark)]'; do :; done
select RANDOM in 'a[$(mark)]'; do break; done <<<1 2>/dev/null
: ${RANDOM:=a[\$(mark)]}
declare RANDOM='a[$(mark)]'
declare -a x='($(mark))'; echo "${x[@]}"
declare -A x='([$(mark)]=1)'
declare -ar x='($(mark))'
readonly -a x='($(mark))'
export -a x='($(mark))'
typeset -at x='($(mark))'
x=(1); declare x='($(mark))'
x=(1); typeset x='($(mark))'
y='($(mark))'; declare -a x="$y"
x=(1); y='($(mark))'; declare x="$y"
x=(1); y=$(echo '($(mark))' ); declare x="$y"
f() { local -a x='($(mark))'; }; f
declare -i n; n='a[$(mark)]'
y=$(echo 'a[$(mark)]'); declare -i n; n=$y
declare -ia n; n=('a[$(mark)]')
declare -i n; n+='a[$(mark)]'
declare -n n; n='a[$(mark)]'; echo $n
builtin declare -i n='a[$(mark)]'
command declare -i n='a[$(mark)]'
\declare -i n='a[$(mark)]'
\let 'a[$(mark)0]=1'
declare -i n; read n <<<'a[$(mark)]'
declare -i n; printf -v n %s 'a[$(mark)]'
declare -i n; : ${n:=a[\$(mark)]}
printf -v 'a[$(mark)0]' x
read 'a[$(mark)0]' <<<x
a=(1); unset 'a[$(mark)0]'
test -v 'a[$(mark)0]'
[ -v 'a[$(mark)0]' ]
sleep 0 & wait -n -p 'a[$(mark)0]'
command bash -vc mark
command eval mark -v
command mark -v
command -- mark --version
env a.b=c mark
env -S mark -v
flock bin -c mark
linux64 mark
setpriv --nnp mark
prlimit --nofile=99 mark
/lib64/ld-linux-x86-64.so.2 /bin/sh -c mark
'''

TEXTS = [
    "ma\\\nrk",
    "true\nmark",
    "# a comment\nmark",
    "mark # a comment",
    "true \\\n  && mark",
    "cat <<E\n$(mark)\nE\n",
    "cat <<E\n`mark`\nE\n",
    "cat <<-E\n\t$(mark)\n\tE\n",
    "cat <<A <<B\nx\nA\n$(mark)\nB\n",
    "cat <<'E' | bash\nmark\nE\n",
    "bash <<E\nmark\nE\n",
    "bash <<'E'\nmark\nE\n",
    "bash <<E\n\\$(echo mark)\nE\n",
    "sh -s <<'E'\nmark\nE\n",
    "bash <<'A' 3<<'B'\nmark\nA\necho x\nB\n",
    "bash 3<<'A' <<'B'\necho x\nA\nmark\nB\n",
    "bash <<'A' <bin/name\necho x\nA\n",
    "exec 4<bin/name; bash <<'A' <&4\necho x\nA\n",
    "bash <<'A' <<<mark\necho x\nA\n",
    "bash <<-'E'\n\tcat <<X\n\tX\n\tmark\nX\nE\n",
    "echo mark | xargs -I{} bash -c '{}'",
    "echo mark | xargs -I{} sh -c {}",
    "cat <<E 2>&1 | mark\nx\nE\n",
    "x <<'E' 2>&1 | mark\ny\nE\n",
    "eval '\nmark\n'",
    "bash -c 'true\nmark'",
    "bash -c 'bash <<E\nmark\nE\n'",
    "if true\nthen\n mark\nfi",
    "f()\n{\n mark\n}\nf",
    "case x in\n x)\n mark\n ;;\nesac",
    "echo \"$(\nmark\n)\"",
    "#!/bin/mksh\nmark",
    "\n\n\tmark",
    # bash and shfmt read these in different ways
    "echo \"${x:-'$(mark)'}\"",
    "echo \"${x:='`mark`'}\"",
    "x=1; echo \"a${x:+b'$(mark)'}\"",
    "echo \"${x:-${y:-'$(mark)'}}\"",
    "cat <<E\n${x:-'$(mark)'}\nE\n",
    "echo x # \\\nmark",
    "echo x # a \\\n mark",
    "# a \\\nmark",
    "echo x <<E\nE\\\n\nmark\nE\n",
    "cat <<E\nx\\\nE\necho hi <<F\nE\nmark\nF\n",
    "cat <<-E\n\tE\\\n\nmark\nE\n",
    "cat <<EF\nE\\\nF\nmark\nEF\n",
    "echo ${x:-<(mark)}",
    "echo ${x:-a<(mark)b}",
    "x=1; echo ${x:+>(mark)}; sleep 0.1",
    "[[ a == @($(mark)) ]]",
    "[[ a != +(b|`mark`) ]]",
    "[[ a == @(<(mark)) ]]; sleep 0.1",
    "echo ${x:-$\\\n(mark)}",
    "echo ${x:-$\\\n\\\n(mark)}",
    "coproc mark <bin/name; wait",
    "coproc mark <<E\nE\nwait\n",
    "echo $x# ; mark",
    "echo ${x}# | mark",
    "echo \"$x\"#; mark",
    "echo $(true)# ; mark",
    "echo $((1))#; mark",
    "echo `true`#; mark",
    "echo \\ #; mark",
    "echo a\\\n#b; mark",
    "echo `cat <<E\nE\\\\\n\nmark\nE\n`",
]

# Another program reads these texts, or has the name of one that Hermes knows.
FOREIGN = [
    "sh -c 'echo a &>/dev/null mark'",
    "sh -c '[[ a || mark ]]'",
    "sh -c \"echo \\$'a\\\\' ; mark #'\"",
    "dash -c 'echo a &>/dev/null mark'",
    "sh <<'E'\necho a &>/dev/null mark\nE\n",
    "zsh -c 'echo *(e:mark:)'",
    "fish -c \"echo 'a\\\\' '; mark; echo b #'\"",
    "env sh -c '[[ a || mark ]]'",
    "timeout 5 sh -c '[[ a || mark ]]'",
    "bash -c \"sh -c '[[ a || mark ]]'\"",
    "evil/bash -c ':'",
    "./bash -c ':'",
    "exec ./bash -c :",
    "./nohup true",
    "./timeout 5 true",
    "./busybox echo hi",
    "./trap - x",
    "./eval true",
    "./command true",
    "./sudo bash -c ''",
    "./cd /tmp",
    "$PWD/bin/../bash -c :",
    "BASH_ENV=./nohup bash -c ''",
    "BASH_ENV=./nohup bash -c 'x=1'",
    "PATH=.:evil bash -c 'x=1'",
    "env BASH_ENV=./nohup bash -c ''",
    "export BASH_ENV=./nohup; bash -c ''",
    "bash --rcfile ./nohup -i -c 'x=1'",
    "bash --rcfile ./nohup -i <<'E'\nx=1\nE\n",
    "bash --init-file ./nohup -i <<'E'\nx=1\nE\n",
    "bash -O extglob -c 'echo `mark`'",
    "/usr/bin/env -S './bash -c :'",
]

# `act` leaves a file when it sees `evil`: in its words, its input, its directory or x. What brings it there is free, or not
# in the words of `act`: in other words, what an approval of `act` must not cover.
CHANGED = [
    "coproc { echo evil; }; act <&63; wait",
    "for i in <(echo evil); do act <&63; done",
    "case <(echo evil) in *) act </dev/fd/63;; esac",
    "for i in <(echo evil); do act $(cat <&63); done",
    "for i in <(echo evil); do act $(cat /dev/fd/63); done",
    "for i in <(echo evil); do act $(</dev/fd/63); done",
    "bash -c act <<<evil",
    "bash -c 'act' <<E\nevil\nE\n",
    "eval act <<<evil",
    "eval 'true; act' <<<evil",
    "bash <<'E'\nact\n: evil\nE\n",
    "{ echo evil; timeout 9 true; } | act",
    "(timeout 9 true; printf evil) | act",
    "{ x=evil; declare -p x; timeout 9 true; } | act",
    "trap 'x=evil' DEBUG; for x in a; do act $x; done",
    "trap 'cd evil' DEBUG; act",
    "trap act EXIT; cd evil",
    "trap 'true; act' EXIT; cd evil",
    "x=(a evil); for x in a; do act ${x[1]}; done",
    "for foo in a; do eval 'fo''o=evil'; act $foo; done",
    "for foo in a; do eval eval 'fo\"\"o=evil'; act $foo; done",
    "for foo in a; do trap 'fo''o=evil' DEBUG; act $foo; done",
    "declare -u x; for x in e''vil; do act $x; done",
    "typeset -l x; for x in EV''IL; do act $x; done",
    "cd evil; cd ..; cd ~-; act",
    "cd evil; cd ..; act ~-",
    "cd evil; cd ..; act a=~-",
    "cd evil; cd ..; x=~- act",
    "pushd evil; pushd ..; pushd; act",
    "pushd evil; pushd ..; act ~1",
    "pushd evil; pushd ..; act ~+1/x",
    "pushd evil; pushd ..; act $(dirs +1)",
    "x=evil; act $(declare -p x)",
    "x=evil; export x; act",
    "pushd evil; pushd ..; act $(\\dirs +1)",
    "pushd evil; pushd ..; act $(builtin dirs +1)",
    "pushd evil; pushd ..; act $(command -p dirs)",
    "pushd evil; pushd ..; act $(eval dirs)",
    "cd evil; cd ..; act $(cd -)",
    "cd evil; cd ..; act $(echo ~-)",
    "cd evil; cd ..; act $(echo a=~-)",
    "{ sleep 1; : evil; } & act $(jobs)",
    "pushd evil; pushd ..; { pushd .; timeout 9 true; } | act",
    "cd evil; cd ..; { cd -; timeout 9 true; } | act",
    "{ timeout 9 true; : ${y?evil}; } |& act",
    "{ timeout 9 true; cd ' evil'; } |& act",
]

# Ways to a secret, in a directory: an approval of `cat a` there must not cover them.
SECRET = [
    ("/home/me/x", "cat ../../../etc/shadow"),
    ("/x", "cat ../etc/shadow"),
    ("", "cat ../../../../../etc/shadow"),
    ("/x", "cat /var/run/../etc/shadow"),
    ("/x", "cat ~/../../etc/shadow"),
    ("/x", "cat /{usr/../etc/shadow,x}"),
    ("/x", "cat a{b,/../../etc/shadow}"),
    ("/x", "cat /et[c]/shado[w]"),
    ("/x", "cat ~/.s[s]h/id_[x]"),
    ("/x", "cat /et[x\"]\"c]/shado[w]"),
    ("/x", "cat ~-/shadow"),
    ("/x", "cat ~1/x"),
    ("/x", "cat ~/{.netrc,b}"),
    ("/x", "cat /home/me/.config/gh/hosts.yml"),
    ("/x", "cat ~me/.config/gh/hosts.yml"),
    ("/x", "cat /root/.kube/config"),
    ("/x", "cat link/etc/shadow"),
    ("/etc", "cat shadow"),
    ("/etc", "cat ./sudoers"),
    ("/", "cat etc/shadow"),
    ("/home/me", "cat .config/gh/hosts.yml"),
    ("/home/me/.ssh", "cat config"),
    ("/root/.aws", "cat config"),
    ("/home/me/.config", "cat gh/hosts.yml"),
    ("/proc/self/root/etc", "cat shadow"),
    ("/x", "cat credential?"),
    ("/x", "cat id_ecdsa"),
    ("/home/me/x", "cat .."),
    ("/home/me/x/y", "cat ../.."),
    ("/", "cat etc"),
    ("/x", "cat /dev/sda1"),
    ("/x", "cat /dev/nvme0n1"),
    ("/dev", "cat sda"),
    ("/x", "cat /d[e]v/sd[a]"),
    ("/x", "cat /proc/kcore"),
    ("/x", "cat /proc/7/fd/3"),
    ("/x", "cat /var/backups/shadow.bak"),
    ("/x", "cat /run/secrets/kubernetes.io/serviceaccount/token"),
    ("/home/me", "cat .cargo/credentials.toml"),
    ("/home/me/x", "cat ../.azure/accessTokens.json"),
    ("/x", "cat ~/.mozilla/firefox/x/logins.json"),
    ("/x", "cat vault.kdbx"),
]
# These stay ordinary.
NO_SECRET = [("/home/me/x", "cat ../a"), ("/home/me/x/y", "cat .."), ("/home/me/x", "cat src/../b"), ("/root/x", "cat b ../y/b"), ("/home/me", "cat b"),
             ("/usr/src/app", "cat src/b[0-9].c"), ("/home/me/x", "cat ../../me/x/b"), ("/home/me/x", "cat HEAD:b"), ("/home/me", "cat .")]

# What nothing permits, in a directory.
NEVER_THERE = [
    ("/", "rm -rf *"),
    ("/", "rm -rf ./*"),
    ("/", "rm -rf etc"),
    ("/x", "rm -rf ../etc"),
    ("/home/me", "rm -rf *"),
    ("/home/me/x", "rm -rf ../*"),
    ("/x", "cd / && rm -rf *"),
    ("/x", "cd; rm -rf *"),
    ("/x", "cd ~ && cd .. && rm -rf ./home" "/../../etc"),
    ("/x", "rm -rf /home/me"),
    ("/x", "rm -rf ~me/"),
    ("/x", "rm -rf /{etc,usr}"),
    ("/x", "rm -rf /{tmp,home}"),
    ("/x", "rm -rf /e*"),
    ("/x", "rm -rf /[a-z]*"),
    ("/x", "rm -rf /?sr"),
    ("/x", "find ~ -delete"),
    ("/x", "find /* -delete"),
    ("/x", "find / -type f -delete"),
    ("/x", "find / -mindepth 1 -maxdepth 1 -exec rm -rf {} +"),
    ("/x", "find /etc -execdir /bin/rm -r {} \\;"),
    ("/", "find . -delete"),
    ("/", "find -delete"),
    ("/home/me", "find . -depth -delete"),
    ("/dev", "dd if=x of=sda"),
    ("/dev", "echo x >sda"),
    ("/x", "echo x >/dev/[s]da"),
    ("/x", "tee /dev/s?a"),
    ("/x", "kill -9 -01"),
    ("/x", "kill -9 ' -1'"),
    ("/x", "kill -s TERM -- -001"),
    ("/x", "killall5 -9"),
    ("/x", "loginctl reboot"),
    ("/x", "systemctl isolate poweroff.target"),
    ("/x", "firejail rm -rf /"),
    ("/x", "uv run -- rm -r /etc"),
    ("/x", "chpst -u x dd of=/dev/sda"),
]
NOT_NEVER = [("/home/me/x", "rm -rf *"), ("/home/me/x", "rm -rf build ../y"), ("/x", "rm -rf *~"), ("/x", "rm -rf ~/*.log"), ("/x", "rm -rf /tmp/*"), ("/x", "rm -rf /{tmp,foo}"),
             ("/x", "rm -rf /{home/me/x,tmp}"), ("/home/me", "rm -rf build"), ("/root", "rm -rf x/*"), ("/root", "find . -name '*.pyc' -delete"), ("/x", "find . -delete"),
             ("/home/me/x", "find . -name x -exec rm -rf {} +"), ("/x", "kill -9 1"), ("/x", "kill -1 15"), ("/x", "grep rm -r /"), ("/x", "docker run x rm -rf /etc"), ("/dev", "ls sda")]

RUNS = [line for line in LINES.split("\n") if line] + TEXTS

# None of these is asked a second time when it was approved for the session.
ORDINARY = [line for line in r'''
ls
ls -la
ls src
ls -l src tests
ls -R | head -50
pwd
cat README.md
cat a.txt b.txt
head -n 20 main.c
tail -n 5 main.c
tail -20 log.txt
wc -l main.c
wc -c *.c
grep -rn main src
grep -n "int main" main.c
grep -E 'a|b' x | sort | uniq -c
find . -name '*.c'
find src -type f -name "*.h" | wc -l
git status
git status --short
git log --oneline -n 5
git log -p main.c
git diff
git diff HEAD~1
git diff --stat
git show HEAD
git add .
git add -A
git commit -m 'a message'
git commit -am "fix: it's done"
git branch
git fetch
git pull
git push
git blame main.c
git rev-parse HEAD
git remote -v
pytest
pytest -q
pytest tests/test_x.py -k name
python3 -m pytest -q
python3 main.py
python3 setup.py build
python3 -m venv venv
pip install -r requirements.txt
make
make -j4
make -j$(nproc)
make test
make clean
make -C build
cmake ..
cmake -S . -B build
ninja -C build
meson setup build
meson test -C build
cargo build
cargo test
cargo build --release
cargo fmt
cargo clippy
go build ./...
go test ./...
go vet ./...
npm test
npm install
npm ci
npm run build
npm run lint -- --fix
yarn build
node index.js
tsc --noEmit
gcc -O2 -o main main.c
g++ main.cpp -o main
./main
./build/hello
javac Main.java
java Main
mvn -q test
gradle build
ruby main.rb
php index.php
mkdir -p build
mkdir out
touch file.txt
cp a.txt b.txt
mv b.txt c.txt
rm c.txt
ln -s a.txt l
chmod +x run.sh
chmod 644 a.txt
echo hello
echo hello >out.txt
echo hello >>out.txt
printf '%s\n' a b c
printf 'a\n' > letters.txt
cd src && ls
cd src && make
cd .. && pytest -q
test -f a.txt && cat a.txt
[ -d build ] || mkdir build
if [ -f Makefile ]; then make; fi
for f in *.c; do echo "$f"; done
for f in a b c; do cat "$f.txt"; done
diff a.txt b.txt
sort a.txt
sort -u a.txt | head
cut -d: -f1 a.txt
tr a-z A-Z < a.txt
sed -n 1,20p main.c
du -sh .
df -h
ps aux
uname -a
whoami
id
date
which python3
command -v gcc
file main
stat main
sha256sum main
tar czf out.tar.gz src
tar xzf out.tar.gz
unzip -o a.zip
curl -s http://127.0.0.1:1/
tree -L 2
jq . a.json
time make
timeout 60 make test
export NAME=value
NAME=value make
true && echo ok
sleep 1
set -e; make; make test
ruff check .
black --check .
mypy src
docker ps
'''.split("\n") if line]

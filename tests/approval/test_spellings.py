# SPDX-License-Identifier: Apache-2.0
"""The reader of shell texts, without a server: what plain bash runs is asked however it is written, what destroys a
place is denied, and an ordinary command is asked once."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from spellings import CHANGED, FOREIGN, NEVER_THERE, NO_SECRET, NOT_NEVER, ORDINARY, RUNS, SECRET

FORMS = pathlib.Path(os.environ["HERMES_BUILD_DIR"]) / "tests/shell-forms"
pytestmark = pytest.mark.skipif(not shutil.which("shfmt"), reason="shfmt is missing")


def forms(texts, directory=""):
    done = subprocess.run([str(FORMS), directory], input=b"".join(t.encode() + b"\0" for t in texts), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    base = tmp_path_factory.mktemp("world")
    (base / "bin").mkdir()
    (base / "bin/mark").write_text("#!/bin/sh\n: >>\"$MARK\"\n")
    (base / "bin/mark").chmod(0o755)
    (base / "bin/act").write_text("#!/bin/sh\ncase \"$* $PWD $x $(cat)\" in *evil*|*EVIL*) : >>\"$MARK\";; esac\n")
    (base / "bin/act").chmod(0o755)
    (base / "bin/name").write_text("mark\n")
    (base / "evil").mkdir()
    for name in ("bash", "nohup", "timeout", "busybox", "trap", "eval", "command", "sudo", "cd", "evil/bash"):
        shutil.copy(base / "bin/mark", base / name)
    return base


def runs_mark(world, text, number):
    """The control: plain bash runs the program."""
    mark = world / ("made-%s" % number)
    subprocess.run(["bash", "-c", text], cwd=world, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   timeout=60, env={"PATH": "%s:/usr/bin:/bin" % (world / "bin"), "MARK": str(mark), "HOME": str(world)})
    return mark.exists()


def test_a_command_is_asked_however_it_is_written(world):
    found = forms(RUNS)
    assert [text for text, one in zip(RUNS, found) if one["parsed"] and not one["commands"]] == []
    idle = [text for number, text in enumerate(RUNS) if not runs_mark(world, text, number)]
    assert len(RUNS) - len(idle) >= 250, idle
    # Each is seen by its name, or as something that is asked each time.
    unseen = [(text, one["commands"]) for text, one in zip(RUNS, found) if one["parsed"] and text not in idle
              and not any(c["once"] or any("mark" in str(word) for word in c["argv"]) for c in one["commands"])]
    assert unseen == []
    named = [one for one in found if one["parsed"] and any("mark" in c["argv"] for c in one["commands"])]
    assert len(named) >= 120  # most of them are seen by their name, not only as something unclear


@pytest.mark.parametrize("text", FOREIGN)
def test_a_text_for_another_program_does_not_hide_a_command(world, text):
    """bash alone reads a text as Hermes does, and a name says nothing about a program outside of the system's directories."""
    assert runs_mark(world, text, "foreign%d" % FOREIGN.index(text))
    one, = forms([text])
    assert one["commands"], one
    # Nothing is approved beyond these words: one of the commands has them, and no part of it varies.
    assert any(c["once"] or c["danger"] or c["grant"] == c["argv"] for c in one["commands"]), one


@pytest.mark.parametrize("text", CHANGED)
def test_an_approval_does_not_cover_what_no_question_shows(world, text):
    assert runs_mark(world, text, "changed%d" % CHANGED.index(text))
    assert not runs_mark(world, "act", "act%d" % CHANGED.index(text))
    one, = forms([text])
    assert not one["parsed"] or any(c["once"] for c in one["commands"]), one


NOT_FREE = ["sudo bash -c 'x=5'", "LD_PRELOAD=./x.so bash -c 'x=1'", "ssh host ''", "ssh host '[[ a || mark ]]'", "su root -c '[[ a || mark ]]'",
            "chroot /x sh -c '[[ a || mark ]]'", "chroot /x true", "strace -o '|id' true", "strace -o /etc/x true", "/usr/bin/time -o f true",
            "/lib64/ld-linux-x86-64.so.2 --preload ./x.so true", "proxychains -f ./evil.conf true", "flock /etc/passwd echo hi", "zsh -ic 'echo hi #; mark'",
            "busybox ash -c '[[ a || mark ]]'", "watch 'x=1'", "tmux new -d 'x=1'", "flock /x -c 'x=1'", "runuser root -c 'x=1'", "script -c 'x=1' f",
            "bash -lic 'x=1'", "bash --posix -c 'x=1'", "bash +B -c 'x=1'", "nice -n 5 echo hi",
            "echo hi >&1-2", "echo hi >&12-34", "echo hi >&3", "echo hi 2>&1 >&60", "trap 'x=1' DEBUG", "trap 'x=1' EXIT", "declare -l x", "typeset -ru x", "LC_ALL=zh_CN.GBK", "LANG=ja_JP.SJIS",
            "for LANG in x; do :; done", "LC_CTYPE=$x", ": ${LC_ALL:=zh_CN.GBK}", "declare LANG=zh_TW.BIG5", "GREP=./x", "HGRCPATH=x", "DBUS_SESSION_BUS_ADDRESS=unixexec:path=./x", "PYENV_ROOT=x",
            "GNUPGHOME=x", "NVM_DIR=x"]


@pytest.mark.parametrize("text", NOT_FREE)
def test_a_program_around_a_free_command_is_asked(text):
    one, = forms([text])
    assert one["parsed"] and one["commands"], one


def test_an_input_that_words_decide_lets_an_approval_last():
    texts = ["make | tee log", "make 2>&1 | tail -5", "cat a | grep b", "cat <<E\nx\nE\n", "pytest | tee log | tail", "git log | head", "git apply <a"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and one["commands"] and not any(c["once"] for c in one["commands"]), (text, one)


def test_what_no_command_is_named_for_asks_nobody():
    free = ["echo hi", "x=5", "cd /tmp", "pwd; true", ": $x", "[ -f a ] && echo b", "[ \"$x\" = y ] || echo \"$x\"", "printf '%s\\n' \"$x\"",
            "for i in 1 2; do echo $i; done", "set -euo pipefail", "x=(1 2); echo ${x[@]} ${x[0]} ${#x}", "echo $((1 + 2))", "bash -c 'echo hi'",
            "if [ -d a ]; then echo b; fi", "echo hi >/dev/null 2>&1", "local x=1", "cat_x=1; echo ${cat_x:-2}", "LC_ALL=C", "LANG=en_US.UTF-8", "LC_ALL="]
    for text, one in zip(free, forms(free)):
        assert one["parsed"] and one["commands"] == [], (text, one)


WRAPS = ["{}", "sudo {}", "sudo -u root {}", "env {}", "env -i X=1 {}", "nohup {}", "timeout 5 {}", "nice -n 5 {}", "time {}", "command {}",
         "exec {}", "true && {}", "true; {} &", "( {} )", "{{ {}; }}", "echo $({})", "if true; then {}; fi", "bash -c '{}'", "sh -c \"{}\"", "eval '{}'",
         "bash -c 'bash -c \"{}\"'", "trap '{}' EXIT", "ssh host '{}'", "bash <<'E'\n{}\nE\n", "cat <({})", "f() {{ {}; }}", "busybox {}", "setsid {}",
         "stdbuf -o0 {}", "chroot /x {}", "su -c '{}'", "watch {}", "sudo nice timeout -k 1 5 env A=b {}", "x=$({})", "cat <<E\n$({})\nE\n",
         "case x in *) {};; esac", "while {}; do :; done", "! {}", "A=b {}", "2>&1 {}", "true | {}", "flock /x {}", "doas {}", "strace -f {}",
         "command {} -v", "command -p -- {} --version", "pkexec {}", "setpriv --reuid=0 {}", "gosu root {}", "su-exec root {}", "prlimit --nofile=9 {}", "tini -- {}",
         "dumb-init -c {}", "numactl -N 0 {}", "linux32 {}", "linux64 -R {}", "/lib64/ld-linux-x86-64.so.2 {}", "csh -c '{}'", "tcsh -c '{}'", "yash -c '{}'", "ksh -c '{}'",
         "capsh --keep=1 -- -c '{}'", "tmux new -d '{}'", "tmux new-session {}", "watch -n 1 '{}'", "screen -dm {}", "screen -dmS x {}", "unbuffer {}",
         "systemd-run --uid=0 {}", "start-stop-daemon --start --exec {}", "env -S '{}'", "sudo -nE {}", "sudo --unknown x {}", "runuser root -c '{}'", "flock /x -c '{}'"]
NEVER = ["rm -rf /", "rm -r -f /etc", "rm --recursive ~", "mkfs.ext4 /dev/sda1", "dd if=/dev/zero of=/dev/sda", "wipefs -a /dev/sda", "reboot",
         "shutdown -h now", "init 0", "systemctl reboot", "kill -9 -1", "shred /dev/nvme0n1", "find / -delete", "tee /dev/sda", "rm -fr /*", "rm -Rf /home/../usr//"]


def is_written(wrap, command):
    """Whether the wrapping runs the command: some take no `~`, no words in front of `--`."""
    return not ("~" in command and wrap.startswith(("su", "env -S", "runuser", "flock /x -c"))) and not (
        (wrap.startswith("start-stop") and " " in command) or (wrap.startswith("env -S") and "*" in command)) and not (wrap.endswith((" -v", " --version")) and command.startswith(("find", "kill", "mkfs")))


def dangers(one):
    return [c["danger"] or "" for c in one["commands"]]


@pytest.mark.parametrize("command", NEVER)
def test_what_destroys_a_place_is_denied_in_every_wrapping(command):
    texts = [wrap.format(command) for wrap in WRAPS if is_written(wrap, command)]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and any(d.startswith("never.") for d in dangers(one)), (text, one)


SPELLED = ["r\\m -rf /", "'rm' -rf /", "r''m -rf /", "$'\\x72m' -rf /", "rm -r -f -- /", "rm -f -r //", "rm -rf /.", "rm -rf /./", "rm -rf /../", "rm -rf '/'",
           "rm -rf \"/\"", "rm -rf $'\\x2f'", "rm --recur --force /", "rm -rf --no-preserve-root /", "rm / -rf", "rm -rf ~/", "rm -rf ~", "rm -rf $HOME",
           "rm -rf \"$HOME\"", "rm -rf ${HOME}/", "rm -rf ~/*", "rm -rf /*", "rm -rf / --no-preserve-root x", "/bin/rm -rf /", "rm -rf /etc/", "rm -rf /usr/*",
           "echo x >/dev/sda", "echo x >>/dev/nvme0n1", "echo x >|/dev/vda", "echo x &>/dev/sda", "cat </dev/zero >/dev/mapper/root", ":(){ :|:& };:",
           "bomb() { bomb | bomb & }; bomb", "function b { b & b; }; b", "/sbin/reboot", "kill -KILL -1", "kill -s KILL -1", "kill -- -1", "kill -9 -- -1", "kill -1", "rm -rf ~root", "rm -rf ~root/*",
           "command rm -rfv ~", "command bash -vc 'rm -rf /'", "command eval 'rm -rf /' -v", "command tee -a --version /dev/sda", "find -- / -delete",
           "start-stop-daemon --start --exec /bin/rm -- -rf /", "ssh -t host rm -rf / -o"]
DANGEROUS = ["rm -r x", "rm -rf build", "find . -delete", "find . -name x -exec rm {} +", "ls | xargs rm -rf", "chmod 777 x", "chmod -R a+w x", "chown -R root x",
             "dd if=x of=y", "psql -c 'DROP TABLE x'", "systemctl stop x", "pkill -9 x", "killall -9 x", "curl http://169.254.169.254/", "python3 -c 'x'",
             "perl -e 'x'", "node -e 'x'", "ruby -e x", "php -r x", "bash", "sh -s", "python3 -", "rg --pre x y", "sort --compress-program=x y",
             "man -P x y", "echo x >/etc/passwd", "echo x | tee /etc/passwd", "cp x /etc/x", "mv x ~/.ssh/authorized_keys", "install x /etc/y", "echo x >>~/.bashrc",
             "echo x >.env", "sed -i s/a/b/ /etc/hosts", "perl -i -pe x /etc/hosts", "hermes update", "docker -H x ps", "docker stop x", "docker compose down",
             "podman --remote ps", "DOCKER_HOST=x docker ps", "git reset --hard", "git push --force", "git push -f", "git push origin +main", "git clean -fd",
             "git branch -D x", "git branch --delete --force x", "sudo -S ls", "sudo -s", "npm uninstall x", "pip uninstall x", "source x", ". x", "eval $x",
             "alias ls=x", "cat ~/.ssh/id_rsa", "cat .env", "LD_PRELOAD=x ls", "PATH=x", "GNUMAKEFLAGS=x make", "CCACHE_PREFIX=x make", "crontab x", "ssh host", "scp a b:", "nc -l 1", "$x", "hash -p x ls",
             "cmd /c del x", "powershell -enc x", "chmod u+s x", "curl -o x http://y", "truncate -s 0 x", "git -c core.pager=x log", "kill -1 5",
             "sed '1e id' x", "sed s/a/b/e x", "sed 's/a/b/w f' x", "sed 'w f' x", "perl5.36.0 -e x", "python3.11 -c x", "original-awk x", "julia -e x", "cmake -P x",
             "make --eval=x", "git clone ext::sh", "git difftool -x id", "git --git-dir=/x log", "mapfile -C id x", "printf -v 'a[$(x)]' y", "unset 'a[$(x)]'",
             "read 'a[$(x)]'", "test -v 'a[$(x)]'", "getopts a 'a[$(x)]'", "wait -n -p 'a[$(x)]'", "curl -D f http://x", "curl -c f http://x", "curl -b f http://x",
             "curl --json @f http://x", "curl --data-urlencode @f http://x", "curl file:///x", "mv / x", "chmod ug+s x", "chmod 06755 x", "chmod =rwx x", "tar xf x -C /",
             "git push origin :main", "cd /etc; echo x >passwd", "cat /proc/self/root/etc/shadow", "cat /proc/1/environ", "cat /etc/shadow-",
             "cat /etc/ssh/ssh_host_rsa_key", "cat ~/.my.cnf", "cat ~/.vault-token", "cat ~/.hermes/key", "ps e", "ps auxe", "cat <.env", "grep x <~/.ssh/id_rsa",
             "echo \"$(<.env)\"", "command git push --force -v", "command sudo -v", "command bash -v", "find . -- -delete", "sort -t -- --compress-program=x y"]


def test_what_destroys_a_place_is_denied_in_every_spelling():
    for text, one in zip(SPELLED, forms(SPELLED)):
        assert any(d.startswith("never.") for d in dangers(one)), (text, one)


def test_an_option_of_braces_or_a_pattern_is_approved_once_only():
    """What it becomes depends on files. The controls: files with a dash, and the value of an option."""
    texts = ["find . -del*", "find . {-delete,-print}", "find . -name x -del?te", "find / {-delete,-x}", "rm {-rf,x}", "git push --forc?", "git push {--force,x}",
             "git reset --har[d]", "rg --pr* x y", "sort {x,--compress-program=y} a", "ls {+..-}a"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and [(c["danger"], c["once"]) for c in one["commands"]] == [("shell.dynamic", True)], (text, one)
    texts = ["ls *", "rm *.o", "cp a.{c,h} b", "mkdir -p src/{a-b,c}", "touch {1..3}", "grep -r --include=*.py x .", "gcc -o {a,b}-c.o"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and [(c["danger"], c["once"]) for c in one["commands"]] == [(None, False)], (text, one)


def test_what_is_dangerous_is_named():
    for text, one in zip(DANGEROUS, forms(DANGEROUS)):
        assert one["parsed"] and any(dangers(one)) and not any(d.startswith("never.") for d in dangers(one)), (text, one)
    wrapped = [wrap.format(text) for text in DANGEROUS for wrap in ("sudo {}", "true; {}", "( {} )", "echo $({})")
               if not text.startswith(("DOCKER_HOST", "LD_PRELOAD", "PATH", "GNUMAKEFLAGS", "CCACHE", "eval", ".", "source", "alias", "hash"))]
    for text, one in zip(wrapped, forms(wrapped)):
        assert one["parsed"] and any(dangers(one)), (text, one)


def test_an_ordinary_command_is_asked_once():
    """Its grant is the same the second time, lasts, and is not dangerous."""
    assert len(ORDINARY) >= 100
    for text, one in zip(ORDINARY, forms(ORDINARY)):
        assert one["parsed"] and not any(c["once"] for c in one["commands"]), (text, one)
        assert [d for d in dangers(one) if d] == [], (text, one)


@pytest.mark.parametrize("granted,other", [
    ("cat a", "cat -A a"), ("cat a", "cat ~/.ssh/id_rsa"), ("cat a", "cat a >b"), ("cat a", "cat $x"), ("cat a", "cat /etc/shadow"), ("cat a", "cat"),
    ("cat a", "sudo cat a"), ("cat a", "X=1 cat a"), ("cat a", "./cat a"), ("cat a", "cat \"$(id)\""), ("cat a", "cd /; cat a"), ("ls", "ls a"),
    ("find . -name x", "find . -name x -delete"), ("find . -name x", "find . -exec x"), ("sort a", "sort -o b a"), ("git log a", "git log --output=a"),
    ("git log a", "git log -p a"), ("git status", "git -C /x status"), ("touch a", "touch b"), ("make", "make x"), ("make x", "make x y"),
    ("./run a", "./run b"), ("rm a", "rm b"), ("rm a", "rm -f a"), ("echo a >b", "echo a >c"), ("echo a >b", "echo a >>b"), ("cat <a", "cat <b"),
    ("python3 x.py", "python3 y.py"), ("cp a b", "cp a c"), ("make -j$(nproc)", "make -j$(id)"), ("nice make", "make"), ("grep a b", "grep -f a b"),
    ("cat a", "cat /etc/shado?"), ("cat a", "cat ~/.ss?/id_x"), ("cat a", "cat ~/.ssh*/x"), ("cat a", "cat /etc/shadow*"),
    ("cat a", "cat x/{.env,b}"), ("cat a", "cat id_rs?"), ("cat a", "cat ./a/*.pe[m]"), ("grep -r a b", "grep -r a ~/.ssh"), ("grep -r a b", "grep -r a ~"), ("grep -r a b", "grep -r a /"),
    ("for x in a b; do make $x; done", "for x in a c; do make $x; done"),
    ("for x in a; do make $x; done", "for x in a; do x=$y; make $x; done"), ("for x in a; do make $x; done", "for x in a; do read x; make $x; done"),
    ("for x in a; do make $x; done", "make $x"), ("for x in a; do make $x; done", "for x in $y; do make $x; done"),
    ("for x in a; do make $x; done", "for x in a; do eval 'x=b'; make $x; done"),
    ("make", "for i in 1 2; do make; cd evil; done"), ("cd /safe && make", "false && cd /safe; make"), ("cd /safe; make", "false && cd /safe; make"),
    ("cd /safe; make", "if false; then cd /safe; fi; make"), ("cd /safe; make", "(cd /safe); make"), ("cd /safe; make", "cd /safe | true; make"),
    ("cd /safe; make", "cd /safe & make"), ("cd /safe; make", "x=$(cd /safe); make"), 
    ("make", "while make; do cd evil; done"), ("make", "f() { cd evil; }; f; make"),
    ("{ echo a; } >f", "{ echo b; } >f"), (": >f", "{ echo b; } >f"), ("(echo a) >f", "(echo b) >f"), ("for i in a; do echo $i; done >f", "for i in b; do echo $i; done >f"),
    ("if true; then echo a; fi >f", "if true; then echo b; fi >f"), ("f() { echo a; } >f", "f() { echo b; } >f"), ("{ echo a; date; } >f", "{ date; echo a; } >f"),
    ("cat a >f", "cat b >f"), ("grep a b >f", "grep c b >f"), ("sort a >>f", "sort b >>f"), ("cat a 2>f", "cat b 2>f"), ("find a >f", "find b >f"), ("arch -x a", "arch -x b")])
def test_a_grant_does_not_cover(granted, other):
    def keys(one):
        return [json.dumps([c["grant"], c["redirections"], c["files"], c["cwd"]]) for c in one["commands"] if not c["once"]]
    first, second = forms([granted, other])
    have, want = keys(first), keys(second)
    assert have and not (set(want) <= set(have) and len(want) == len(second["commands"])), (have, want)
    assert keys(forms([granted])[0]) == have  # the control: the same again is covered


@pytest.mark.parametrize("directory,text", SECRET)
def test_a_grant_does_not_cover_a_secret_on_another_way(directory, text):
    one, = forms([text], directory)
    assert one["parsed"] and (one["commands"][0]["once"] or one["commands"][0]["grant"] != ["cat", "*"]), one


@pytest.mark.parametrize("directory,text", NO_SECRET)
def test_a_grant_covers_what_is_no_secret(directory, text):
    one, = forms([text], directory)
    assert one["commands"][0]["grant"] == ["cat", "*"] and not one["commands"][0]["once"], one


@pytest.mark.parametrize("directory,text", NEVER_THERE)
def test_what_destroys_a_place_is_denied_in_every_directory(directory, text):
    one, = forms([text], directory)
    assert any(d.startswith("never.") for d in dangers(one)), one


@pytest.mark.parametrize("directory,text", NOT_NEVER)
def test_what_destroys_no_place_is_not_denied(directory, text):
    one, = forms([text], directory)
    assert one["parsed"] and not any(d.startswith("never.") for d in dangers(one)), one


def test_git_without_a_pager_is_ordinary():
    one, two, other = forms(["git --no-pager log -5 a", "git --no-pager log -5 b c", "git --no-pager config a b"])
    assert one["commands"][0]["grant"] == two["commands"][0]["grant"] == ["git", "--no-pager", "log", "-5", "*"]
    assert other["commands"][0]["danger"] == "git.config"


def test_a_pattern_that_names_no_secret_is_covered():
    one, two = forms(["cat a.c", "cat src/main.[ch] x/a*.c"])
    assert one["commands"][0]["grant"] == two["commands"][0]["grant"] == ["cat", "*"]


@pytest.mark.parametrize("text", [
    "make $x", "make \"$x\"", "make $(echo $x)", "cat <$x", "X=$x make", "export X=$x", "test -v \"$x\"", "python3 \"./$x\"", "cd \"$x\"; make", "cd -; make",
    "popd; make", "cd /sa*; make", "cd -P x; make", "pushd +1; make", "[ -n \"$x\" ] && cd a; make", "for i in 1 2; do make; cd evil; done"])
def test_what_an_earlier_text_decides_is_approved_once_only(text):
    """A shell keeps variables and directories, so the same words may do something else later."""
    one = forms([text])[0]
    assert one["parsed"] and one["commands"] and all(c["once"] for c in one["commands"] if c["argv"][0] != "echo"), one


def test_a_directory_that_the_text_names_lets_an_approval_last():
    texts = ["cd a && make", "cd a; make", "cd ~/a && make", "(cd a && make)", "mkdir b && cd b; make", "cd a || exit 1; make", "cd a && cd b && make test | tail"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and not any(c["once"] for c in one["commands"]), (text, one)
        assert "cd" in one["commands"][-1]["cwd"], (text, one)


def test_what_runs_later_or_assigns_is_asked():
    texts = ["trap 'cd /evil' DEBUG", "trap 'x=1; cd \"$x\"' DEBUG", "printf 'x%n' PATH", "printf '%-5ln' PATH", "printf '%%%n' PATH"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and one["commands"], (text, one)
    assert subprocess.run(["bash", "-c", "printf 'x%n' PATH; echo \"$PATH\""], capture_output=True).stdout == b"x1\n"  # the control
    assert forms(["printf '%s %%n %d' a 5"])[0]["commands"] == []


def test_words_are_what_bash_makes_of_them(world):
    """The values of literal words are those that bash passes on."""
    spelled = [r"a\ b", r"'a b'", r'"a b"', r'"a\"b\\c\$d\`e\f"', r"$'a\tb\n\x41\101\u00e9\e\'\\'", r"a'b'\"c\"", "''", r"'a'\''b'", r"$'\xc3\xa9'", r"a\*b", r"'*'",
               r"\~", r"a=b", r"a{b", r"{}", r"$'\cA'x", r"$'x\0y'z", r"$'\q'", r'"\q"', r"\q", r"$'\u20ac'"]
    for text, one in zip(spelled, forms(["prog " + text for text in spelled])):
        real = subprocess.run(["bash", "-c", "printf '%%s\\0' %s" % text], capture_output=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin"}).stdout
        word = one["commands"][0]["argv"][1]
        assert isinstance(word, dict) or word.encode() + b"\0" == real, (text, word, real)
    dynamic = ["*", "a?", "[ab]", "{a,b}", "~", "~/x", "a=~", "$x", "\"$x\"", "`x`", "$(x)", "<(x)", "$((1))", "$\"x\"", "a{1..3}", "\"a\"*", "$'\\xff'", "$'\\x01'"]
    for text, one in zip(dynamic, forms(["prog " + text for text in dynamic])):
        assert isinstance(one["commands"][0]["argv"][1], dict), (text, one)


def test_what_an_input_decides_is_approved_once_only():
    texts = ["exec >f; echo x", "exec 2>f; echo x >&2", "command exec >>f; pwd", "{ git apply; } <a", "while read -r x; do act; done <a", "{ cat b; act; } <a", "echo x | iconv -of",
             "echo x | iconv --output=f", "{ echo $x; } >f", "git apply <<'E'\nx\nE\n", "echo x | git apply", "cat a | git apply", "cat a | tee b", "cat >a <<'E'\nx\nE\n", "read x <<<a", "{ git apply; } <<<a",
             "echo x | { true; git apply; }", "printf x | cat >a", "echo x | tee a | wc", "make -f /dev/fd/3 3<<E\nx\nE\n", "xargs rm", "ls | xargs -I{} bash -c '{}'", "xargs wc -l", "python3 -", "make -f-", "make -f /dev/stdin", "bash", "sqlite3 x.db", "at now", "awk -f - x",
             "docker build -", "ssh host", "bash <<'A' <&3\nx\nA\n", "bash <<-'A'\n\tx\n\tA\n"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and any(c["once"] for c in one["commands"]), (text, one)


def test_a_command_with_a_file_of_its_own_is_asked_once():
    """The same text again is covered."""
    texts = ["{ echo a; date; } >f", "for i in 1 2; do echo $i; done >f", "(cd a && make) | tee log", "(set -e; make) | tee log", "if [ -f a ]; then make; fi | tee log",
             "while read -r x; do echo \"$x\"; done <a", "while read -r x; do echo; done <a | wc -l", "cat a >f", "grep a b >f", "act $(git show HEAD~1)", "act $(command -v gcc)", "act $(cd src && pwd)"]
    for text, one in zip(texts, forms(texts)):
        assert one["parsed"] and one["commands"] and not any(c["once"] for c in one["commands"]), (text, one)
    block, = forms(["{ echo a; } >f"])[0]["commands"]
    assert block["argv"] == [{"dynamic": "{ echo a; }"}] and block["redirections"] == [">f"] and block["files"] == ["f"]


@pytest.mark.parametrize("text", [
    "cd a;" * 4000, "cd aaaaaaaaaa;" * 4500, "cd a/../b/c;" * 3000, "find ." + " -exec a" * 1500 + " ;", "find ." + " -ok a" * 3000, "for i in " + "A" * 20000 + "; do act" + " $i" * 4000 + "; done",
    "for i in " + "A" * 1000 + "; do act" + " $i" * 4000 + "; done"], ids=range(7))
def test_a_long_text_is_read_in_seconds(text):
    done = subprocess.run(["sh", "-c", "ulimit -t 8; exec \"$0\" /home/me", str(FORMS)], input=text.encode() + b"\0", capture_output=True, timeout=300)
    assert done.returncode == 0 and len(done.stdout) < 16 << 20, (done.returncode, len(done.stdout))


def test_each_name_of_bash_that_evaluates_is_asked(world):
    """bash itself says which names evaluate what is assigned to them."""
    names = set(subprocess.run(["bash", "-c", "compgen -v"], capture_output=True, text=True).stdout.split())
    names |= {"OPTARG", "REPLY", "TMOUT", "HISTSIZE", "HISTFILESIZE", "FUNCNEST", "COMP_CWORD", "BASH_ARGV0", "MAPFILE", "EPOCHREALTIME", "SRANDOM", "HISTCMD", "LINENO"}
    loud = [name for number, name in enumerate(sorted(names)) if runs_mark(world, "%s='a[$(mark)]'; :" % name, 20000 + number)]
    assert {"RANDOM", "OPTIND"} <= set(loud)
    for name, one in zip(loud, forms(["%s=x" % name for name in loud])):
        assert one["commands"], name


def test_a_text_that_may_make_integers_marks_the_shell():
    marks = ["declare -i n", "declare -n n", "typeset -ri n=1", "local -i n", "builtin declare -i n", "f() { declare -gi n; }", "eval \"$x\"", "$x -i n", "declare \"$x\""]
    for text, one in zip(marks, forms(marks)):
        assert one["parsed"] and one["marks"] and one["commands"], (text, one)
    quiet = ["n=$x", "n=x", "n=(a b)", "for n in *; do :; done", ": ${n:=x}", "declare n=x", "n+=x"]
    for text, one in zip(quiet, forms(quiet)):
        assert not one["commands"] and not one["marks"] and one["silent"], (text, one)  # host.c asks these in a marked shell

/* SPDX-License-Identifier: Apache-2.0 */

/* The tables of commands. A row of shell_dangers matches when the program and each of its other
 * columns do; the first row counts, and rows that nothing permits come first. A word whose
 * value is not known may be any option or operand, except for rows that nothing permits: these
 * need to be sure. The unit test tries the examples of each row. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SYSTEM_DIRS                                                                            \
    "/home /root /etc /usr /var /bin /sbin /boot /lib /lib64 /home/\\* /root/\\* /etc/\\* "    \
    "/usr/\\* /var/\\* /bin/\\* /sbin/\\* /boot/\\* /lib/\\* /lib64/\\* ~root ~root/\\*"
#define RECURSIVE "-r -R --recursive"

const struct shell_danger_row shell_dangers[] = {
    /* never: denied in every mode */
    {"never.delete_root", "rm", NULL, RECURSIVE, "/ /\\* /.\\*", "rm -rf /", "rm -rf /tmp/x"},
    {"never.delete_root", "find", NULL, "-delete", "/", "find / -delete",
        "find /tmp/x -delete"},
    {"never.delete_system", "rm", NULL, RECURSIVE, SYSTEM_DIRS, "rm -r -f /etc/",
        "rm -r /etc/x/y"},
    {"never.delete_system", "find", NULL, "-delete", SYSTEM_DIRS, "find /usr -delete",
        "find usr -delete"},
    {"never.delete_home", "rm", NULL, RECURSIVE, "~ ~/\\* ~/.\\*", "rm --recursive ~/",
        "rm -r ~/x"},
    {"never.format", "mkfs mkfs.* mke2fs mkntfs mkdosfs", NULL, NULL, "/dev/** **",
        "mkfs.ext4 /dev/sda1", "mkfs.ext4 -V"},
    {"never.format", "mkswap newfs newfs_*", NULL, NULL, SHELL_DEVICES, "mkswap /dev/sdb2",
        "mkswap swap.img"},
    {"never.format", "diskutil", "erase* zero* partition* secureErase", NULL, NULL,
        "diskutil eraseDisk JHFS+ x disk2", "diskutil list"},
    {"never.wipe_device", "wipefs", NULL, "-a --all", NULL, "wipefs -a /dev/sda",
        "wipefs /dev/sda"},
    {"never.wipe_device", "sgdisk", NULL, "-z -Z -o --zap --zap-all --clear", NULL,
        "sgdisk --zap-all /dev/sda", "sgdisk -p /dev/sda"},
    {"never.wipe_device", "blkdiscard", NULL, NULL, SHELL_DEVICES, "blkdiscard /dev/nvme0n1",
        "blkdiscard --help"},
    {"never.wipe_device", "shred", NULL, NULL, SHELL_DEVICES, "shred -n 1 /dev/sda",
        "shred secret.txt"},
    {"never.write_device", "tee cp mv install dd", NULL, NULL, SHELL_DEVICES, "tee /dev/sda",
        "tee x"},
    {"never.power", "shutdown reboot halt poweroff", NULL, NULL, NULL, "shutdown now",
        "shutdownx now"},
    {"never.power", "init telinit", "0 6", NULL, NULL, "init 6", "init 3"},
    {"never.power", "systemctl loginctl",
        "poweroff reboot halt kexec soft-reboot reboot.target poweroff.target halt.target "
        "kexec.target",
        NULL, NULL, "systemctl isolate reboot.target", "systemctl status x"},
    {"never.kill_all", "killall5", NULL, NULL, NULL, "killall5 -9", "killall -9 x"},

    /* dangerous: asked each time, or granted for exactly these words */
    {"delete.recursive", "rm", NULL, RECURSIVE, NULL, "rm -fr build", "rm x"},
    {"delete.find", "find", NULL,
        "-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls", NULL,
        "find . -name x -delete", "find . -name x"},
    {"delete.recursive", "rsync", NULL,
        "--delete --delete-after --delete-before --remove-source-files", NULL,
        "rsync -a --delete a b", "rsync -a a b"},
    {"delete.move", "mv", NULL, NULL, "/ ~ " SYSTEM_DIRS, "mv / x", "mv a x"},
    {"delete.truncate", "truncate shred srm wipe", NULL, NULL, NULL, "truncate -s 0 x",
        "cat x"},
    {"permissions", "chmod",
        "777 0777 666 0666 *[ao+]+*w* +*w* [+=]*w* ugo+* *[ao]=*w* *,=*w* *,+*w*", NULL, NULL,
        "chmod =rwx x", "chmod 644 x"},
    {"permissions", "chown chgrp", NULL, "-R --recursive", NULL, "chown -R root .",
        "chown me x"},
    {"permissions", "chmod", NULL, "-R --recursive", NULL, "chmod -R o-r x", "chmod 600 x"},
    {"permissions", "chmod", "*+*s* *=*s* [2-7]??? 0[2-7]???", NULL, NULL, "chmod 06755 x",
        "chmod u+x x"},
    {"permissions", "setcap setfacl chattr", NULL, NULL, NULL, "setcap cap_sys_admin+ep x",
        "getcap x"},
    {"disk", "dd", NULL, NULL, NULL, "dd if=/dev/zero of=x", "ddx"},
    {"disk",
        "wipefs sgdisk sfdisk fdisk parted blkdiscard mount umount swapoff losetup "
        "cryptsetup lvremove "
        "vgremove pvremove mkswap",
        NULL, NULL, NULL, "fdisk /dev/sda", "lsblk"},
    {"sql", "mysql mariadb psql sqlite3 sqlcmd duckdb clickhouse-client", NULL, NULL, NULL,
        "psql -c x", "pg_isready"},
    {"service", "systemctl service rc-service launchctl initctl sv", NULL, NULL, NULL,
        "systemctl stop sshd", "journalctl"},
    {"process", "kill pkill killall skill xkill fuser", NULL, NULL, NULL, "pkill -9 x",
        "pgrep x"},
    {"accounts",
        "useradd userdel usermod groupadd groupdel passwd chpasswd visudo vipw adduser "
        "deluser chsh gpasswd",
        NULL, NULL, NULL, "userdel x", "id x"},
    {"schedule", "crontab at batch atrm systemd-run", NULL, NULL, NULL, "crontab x", "date"},
    {"network", "iptables ip6tables nft ufw ip ifconfig route nc ncat netcat socat telnet",
        NULL, NULL, NULL, "nc -l 1", "ping x"},
    {"remote", "ssh scp sftp rsync ftp tftp", NULL, NULL, NULL, "scp a b:", "ls a"},
    {"metadata", "*",
        "**169.254.169.254** **100.100.100.200** **metadata.google.internal** "
        "**fd00:ec2::254**",
        NULL, NULL, "curl http://169.254.169.254/latest", "curl http://example.com"},
    {"runs_program", "rg", NULL, "--pre --hostname-bin", NULL, "rg --pre x y", "rg x"},
    {"runs_program", "sort", NULL, "--compress-program", NULL, "sort --compress-program=x y",
        "sort y"},
    {"runs_program", "ag", NULL, "--pager", NULL, "ag --pager x y", "ag y"},
    {"runs_program", "man", NULL, "-P -H --pager --html", NULL, "man -P x y", "man y"},
    {"runs_program", "tar", NULL,
        "--checkpoint-action --to-command --use-compress-program -I --info-script "
        "--new-volume-script -F --rsh-command",
        NULL, "tar xf a --to-command=x", "tar xf a"},
    {"write.sensitive", "tar bsdtar", NULL, "-P --absolute-names", NULL, "tar -xPf a",
        "tar xf a"},
    {"write.sensitive", "tar bsdtar unzip cpio 7z", "-C/ -d/ -C/[a-z]* --directory=/*", NULL,
        NULL, "tar xf a --directory=/", "tar xf a"},
    {"write.sensitive", "tar bsdtar unzip cpio 7z", NULL, NULL, "/ ~ " SYSTEM_DIRS,
        "tar xf a -C /", "tar xf a -C x"},
    {"runs_program", "cmake", NULL, "-P -E", NULL, "cmake -P x", "cmake -S x"},
    {"runs_program", "make gmake remake", NULL, "-E --eval", NULL, "make --eval=x", "make x"},
    {"runs_program", "git", "difftool mergetool", NULL, NULL, "git difftool -x a",
        "git diff a"},
    {"runs_program",
        "awk original-awk busybox-awk gawk mawk nawk ed ex vi vim nvim emacs nano less more",
        NULL, NULL, NULL, "awk x y", "cat y"},
    {"runs_program", "sed", NULL, "-i -e -f --in-place --expression --file -s", NULL,
        "sed -i p y", "sed p y"},
    {"runs_program", "zip", NULL, "-T -TT --unzip-command", NULL, "zip -TT x a b", "zip a b"},
    {"runs_program", "git", "bisect filter-branch submodule rebase", NULL, NULL,
        "git bisect run x", "git status"},
    {"git.config", "git", "config alias.* core.* *.sshCommand*", NULL, NULL, "git config a b",
        "git log"},
    {"git.config", "git", "ext::** fd::**", NULL, NULL, "git clone ext::x", "git clone x"},
    {"git.config", "git", NULL,
        "-c --git-dir --work-tree --exec-path --config-env --upload-pack --receive-pack "
        "--ext-diff "
        "--open-files-in-pager -O --output --textconv",
        NULL, "git -c core.pager=x log", "git log"},
    {"git.force", "git", "reset", "--hard --merge --keep", NULL, "git reset --hard",
        "git reset x"},
    {"git.force", "git", "push",
        "-f -d --force --force-with-lease --force-if-includes --delete --mirror", NULL,
        "git push -f", "git push"},
    {"git.force", "git", "push", NULL, "+** :**", "git push o :a", "git push o a"},
    {"git.force", "git", "clean", NULL, NULL, "git clean -fd", "git log"},
    {"git.force", "git", "branch", "-D -d -f -M --delete --force", NULL, "git branch -D x",
        "git branch x"},
    {"git.force", "git", "checkout restore stash switch", NULL, NULL, "git checkout -- .",
        "git log"},
    {"containers", "docker podman nerdctl", NULL,
        "-H --host --context --url --connection --identity -r --remote --privileged -v "
        "--volume --mount --pid --net",
        NULL, "docker -H x ps", "docker ps"},
    {"containers", "docker podman nerdctl docker-compose",
        "stop kill restart rm rmi down prune context run exec", NULL, NULL,
        "docker compose down", "docker ps"},
    {"packages",
        "npm pnpm yarn pip pip3 brew apt apt-get dnf yum pacman apk gem cargo dpkg rpm snap",
        "uninstall remove un rm purge autoremove erase", NULL, NULL, "npm uninstall x",
        "npm test"},
    {"packages", "apt apt-get dnf yum pacman apk dpkg rpm snap brew", NULL, NULL, NULL,
        "apt install x", "npm test"},
    {"sudo", "sudo doas su pkexec runuser gosu su-exec setpriv start-stop-daemon", NULL, NULL,
        NULL, "sudo -S ls", "ls"},
    {"hermes", "hermes hermes-*", NULL, NULL, NULL, "hermes update", "ls hermes"},
    {"windows",
        "cmd cmd.exe powershell powershell.exe pwsh reg reg.exe sc sc.exe icacls vssadmin "
        "wbadmin bcdedit "
        "diskpart format cipher taskkill del erase rd iex Remove-Item Format-Volume Clear-Disk",
        NULL, NULL, NULL, "cmd /c x", "ls"},
    {"fetch", "curl wget", NULL,
        "-o -O -T -d -D -c -b -F -X -K -J --output --output-dir --output-document "
        "--upload-file "
        "--data --data-ascii --data-binary --data-raw --data-urlencode --json --url-query "
        "--dump-header --cookie --cookie-jar --form --form-string --request --netrc-file "
        "--cert "
        "--key --hsts --alt-svc --libcurl --trace --trace-ascii --stderr --etag-save "
        "--remote-name --remote-name-all --remote-header-name --unix-socket --variable "
        "--config --post-file --post-data --body-file --use-askpass --execute -e",
        NULL, "curl -d @x http://example.com", "curl http://example.com"},
    {"fetch", "curl wget", "file:** FILE:** scp:** sftp:** dict:** gopher:** telnet:**", NULL,
        NULL, "curl file:///x", "curl http://example.com"},
    {"read.secret", "ps",
        "e ae axe aex aux[ew]* auwxe axuwe ax[ew]* ew eww ewww we wwe aew aeww xe xew xeww ge "
        "eu ef "
        "fe uxe uxew ue",
        NULL, NULL, "ps auxe", "ps aux"},
};
const size_t shell_danger_count = sizeof(shell_dangers) / sizeof(shell_dangers[0]);

/* Variables that decide what programs do. */
static const char variables[] =
    "PATH LD_* DYLD_* BASH_* BASH BASHPID BASHOPTS SHELLOPTS ENV IFS PS0 PS1 PS2 PS3 PS4 "
    "PROMPT_COMMAND "
    "CDPATH "
    /* those that bash gives a meaning: an assignment to some of them evaluates the value */
    "RANDOM SRANDOM SECONDS OPTIND OPTERR OPTARG HIST* LINENO EPOCH* COMP_* COMPREPLY TMOUT "
    "FUNCNEST FUNCNAME GROUPS DIRSTACK PIPESTATUS MAPFILE COPROC* READLINE_* CHILD_MAX "
    "MAILCHECK IGNOREEOF ignoreeof FIGNORE HOSTFILE PROMPT_DIRTRIM TIMEFORMAT INSIDE_EMACS "
    "EMACS GLOBSORT TEXTDOMAIN* auto_resume histchars "
    "HOME SHELL GLOBIGNORE EXECIGNORE ZDOTDIR INPUTRC FCEDIT HISTFILE POSIXLY_CORRECT "
    "GIT_* PYTHON* PERL* RUBY* NODE_OPTIONS NODE_PATH LUA_* PHPRC PHP_INI_SCAN_DIR JAVA_HOME "
    "JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH GEM_HOME GEM_PATH BUNDLE_* "
    "CARGO_HOME CARGO_BUILD_* CARGO_TARGET_* RUSTC* RUSTFLAGS RUSTUP_* GOFLAGS GOPATH GOROOT "
    "GOBIN "
    "GOENV* GOPROXY GOTOOLCHAIN GOAUTH GOVCS CGO_*FLAGS* CC CXX LD AR AS CFLAGS CXXFLAGS "
    "LDFLAGS CPPFLAGS MAKEFLAGS GNUMAKEFLAGS MAKEFILES CCACHE_* SCCACHE_* DISTCC_* RUSTDOC* "
    "CARGO_ALIAS_* CARGO_REGISTR* TS_NODE_* COREPACK_* COMPOSER_* ERL_* ELIXIR_ERL_OPTIONS "
    "DOTNET_STARTUP_HOOKS COR_* "
    "CORECLR_* JULIA_* GHC* OCAML* TCLLIBPATH GUILE_LOAD_* EMACSLOADPATH AWKPATH AWKLIBPATH "
    "M2_HOME MAVEN_HOME GRADLE_USER_HOME COVERAGE_PROCESS_START ANSIBLE_* TF_CLI_ARGS* "
    "AWS_CONFIG_FILE HGRCPATH SVN_* FZF_* GREP ZIPOPT UNZIP GTK_MODULES QT_PLUGIN_PATH *EDITOR "
    "MFLAGS CMAKE_* PKG_CONFIG* PIP_* UV_* NPM_CONFIG_* npm_config_* YARN_* EDITOR VISUAL "
    "BROWSER "
    "*PAGER LESSOPEN LESSCLOSE *_COMMAND *_ASKPASS SUDO_* XDG_* DISPLAY XAUTHORITY *_PROXY "
    "*_proxy "
    "DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG CONTAINER_HOST CONTAINER_CONNECTION KUBECONFIG "
    "RIPGREP_CONFIG_PATH TAR_OPTIONS GREP_OPTIONS TERMINFO* TERMCAP NLSPATH LOCPATH GCONV_PATH "
    "RES_OPTIONS HOSTALIASES OPENSSL_* CURL_HOME CURL_CA_BUNDLE WGETRC "
    "MAIL MAILPATH LESS LESSKEY* MORE MANOPT EXINIT VIMINIT *_RSH RSH PSQLRC PYTEST_* "
    "MAVEN_OPTS MAVEN_ARGS GRADLE_OPTS ANT_OPTS SBT_OPTS JAVA_OPTS "
    "R_PROFILE* R_ENVIRON* R_LIBS* SSH_* "
    "GCC_EXEC_PREFIX COMPILER_PATH GOCACHEPROG DENO_* BUN_* MYPYPATH DJANGO_SETTINGS_MODULE "
    /* addresses of sockets that may be programs, and what chooses versions of programs */
    "DBUS_* TMUX* SCREENRC GNUPGHOME PYENV_* RBENV_* NODENV_* NODE_VERSION ASDF_* MISE_* NVM_* "
    "SDKMAN_* VOLTA_* FNM_* HOMEBREW_* NIX_* ANT_HOME ANDROID_* DOTNET_ROOT* POETRY_* "
    "IPYTHONDIR JUPYTER_* "
    "FLASK_APP VIRTUAL_ENV CONDA_* GLIBC_TUNABLES OLDPWD PWD";

/* --- matching */

const char *shell_program(const struct shell_word *word)
{
    const char *slash = strrchr(word->shape, '/');
    return slash ? slash + 1 : word->shape;
}

static bool list_has(const char *list, const char *text)
{
    while (*list) {
        size_t len = strcspn(list, " ");
        cleanup_free char *pattern = xstrndup(list, len);
        if (len && str_glob_match(pattern, text))
            return true;
        list += len + (list[len] == ' ');
    }
    return false;
}

bool shell_name_is(const char *name, const char *list)
{
    return *name && list_has(list, name);
}

/* In some character sets a backslash or a quote is the second byte of a character. bash then
 * reads a text in another way than it is read here. */
static const char locales[] = "C POSIX *.UTF-8 *.utf8 *.UTF8 *.utf-8";

bool shell_variable_is_special(const char *name, size_t len, const char *value)
{
    cleanup_free char *copy = xstrndup(name, len);
    bool is_plain = value && (!*value || shell_name_is(value, locales));
    return shell_name_is(copy, variables) ||
           (shell_name_is(copy, "LANG LC_ALL LC_CTYPE") && !is_plain);
}

bool shell_word_sets_special(const char *word)
{
    const char *value = strchr(word, '=');
    return shell_variable_is_special(word, strcspn(word, "+="), value ? value + 1 : "");
}

bool shell_is_unknown(const struct shell_word *word)
{
    return !word->is_literal && strchr(word->shape, SHELL_UNKNOWN);
}

/* Compares a word with an option of the list: "-r" is found in "-fr", and "--recursive" also as
 * "--rec"; "-delete" must be the whole word. */
static bool option_is(const char *word, const char *option, size_t len)
{
    if (option[1] != '-' && len == 2)
        return word[1] != '-' && strchr(word + 1, option[1]) != NULL;
    size_t name = strcspn(word, "=");
    if (option[1] != '-')
        return name == len && strncmp(word, option, len) == 0;
    return name > 2 && name <= len && strncmp(word, option, name) == 0;
}

static bool is_option(const char *word, const char *options)
{
    while (*options) {
        size_t len = strcspn(options, " ");
        if (len > 1 && option_is(word, options, len))
            return true;
        options += len + (options[len] == ' ');
    }
    return false;
}

/* Looks behind `--`, too: it may be the value of an option (`sort -t -- -o x`), and find goes
 * on behind it. What looks like an option there counts as one. */
bool shell_has_option(const struct shell_word *words, size_t count, const char *options)
{
    for (size_t i = 1; i < count; i++) {
        if (words[i].shape[0] == '-' && words[i].shape[1] && is_option(words[i].shape, options))
            return true;
    }
    return false;
}

static bool some_operand(const struct shell_word *words, size_t count, const char *list,
    bool is_path, unsigned reach)
{
    bool is_open = true;
    for (size_t i = 1; i < count; i++) {
        const char *shape = words[i].shape;
        if (is_open && str_eq(shape, "--")) {
            is_open = false;
            continue;
        }
        if (is_open && is_path && shape[0] == '-')
            continue;
        unsigned here =
            shell_is_unknown(&words[i]) ? reach & ~(unsigned)SHELL_SURE_PATTERN : reach;
        if (is_path ? shell_path_is(list, &words[i], here) : list_has(list, shape))
            return true;
    }
    return false;
}

static bool some_unknown(const struct shell_word *words, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (shell_is_unknown(&words[i]))
            return true;
    }
    return false;
}

static bool row_matches(
    const struct shell_danger_row *row, const struct shell_word *words, size_t count)
{
    /* Builds compute their words: make -j$(nproc). */
    bool is_sure = str_has_prefix(row->category, "never.") ||
                   shell_name_is(shell_program(&words[0]), "make gmake remake cmake");
    /* What rm deletes is there in the directory, too, and what a pattern names. */
    unsigned reach =
        str_eq(shell_program(&words[0]), "rm") ? SHELL_PLACED | SHELL_SURE_PATTERN : 0;
    bool may_be = !is_sure && !str_eq(row->programs, "*") && some_unknown(words, count);
    if (!shell_name_is(shell_program(&words[0]), row->programs))
        return false;
    if (row->operands && !may_be && !some_operand(words, count, row->operands, false, 0))
        return false;
    if (row->options && !may_be && !shell_has_option(words, count, row->options))
        return false;
    return !row->paths || may_be || some_operand(words, count, row->paths, true, reach);
}

static const char *row_danger(const struct shell_word *words, size_t count)
{
    for (size_t i = 0; i < shell_danger_count; i++) {
        if (row_matches(&shell_dangers[i], words, count))
            return shell_dangers[i].category;
    }
    return NULL;
}

/* -1, -01: bash reads a number. */
static bool is_minus_one(const char *text)
{
    char *end = NULL;
    long value = strtol(text, &end, 10);
    return value == -1 && end[strspn(end, " \t\n")] == '\0';
}

/* kill with -1 as a process, not as a signal: every process there is. Alone it means nothing
 * else. */
static bool kills_all(const struct shell_word *words, size_t count)
{
    bool has_signal = count == 2;
    for (size_t i = 1; i < count; i++) {
        const char *shape = words[i].shape;
        if (is_minus_one(shape) && has_signal)
            return true;
        has_signal = has_signal || shape[0] == '-';
        i += str_eq(shape, "-s") || str_eq(shape, "-n");
    }
    return false;
}

/* find that deletes all of a directory which nothing may delete: it tests no names. */
static const char *find_deletes_all(const struct shell_word *words, size_t count)
{
    static const char no_tests[] = "-L -P -H -- -d -depth -xdev -mount -mindepth -maxdepth "
                                   "-type -print -print0 -true -noleaf -ignore_readdir_race";
    const unsigned reach = SHELL_PLACED | SHELL_SURE_PATTERN;
    bool deletes = false;
    size_t end = 1;
    for (; end < count && !deletes; end++) {
        const char *shape = words[end].shape;
        bool is_exec = shell_name_is(shape, "-exec -execdir") && end + 2 < count;
        deletes = str_eq(shape, "-delete") ||
                  (is_exec && str_eq(shell_program(&words[end + 1]), "rm") &&
                      shell_has_option(&words[end + 1], count - end - 1, RECURSIVE));
        if (!deletes && (is_exec || strchr("!(", shape[0]) ||
                            (shape[0] == '-' && !shell_name_is(shape, no_tests))))
            return NULL;
    }
    struct shell_word here = words[0];
    here.shape = (char *)".";
    const struct shell_word none[] = {here, here};
    bool has_path = count > 1 && words[1].shape[0] != '-';
    words = has_path ? words : none;
    end = has_path ? end : 2;
    if (!deletes)
        return NULL;
    if (some_operand(words, end, "/ /\\*", true, reach))
        return "never.delete_root";
    if (some_operand(words, end, SYSTEM_DIRS, true, reach))
        return "never.delete_system";
    return some_operand(words, end, "~ ~/\\*", true, reach) ? "never.delete_home" : NULL;
}

/* Behind a program that the tables do not know, which may run the rest of its words. */
static const char *danger_behind(const struct shell_word *words, size_t count)
{
    if (shell_name_is(shell_program(&words[0]),
            "grep egrep fgrep rg ag git man echo docker podman nerdctl kubectl"))
        return NULL;
    for (size_t i = 1; i + 1 < count; i++) {
        if (!shell_name_is(shell_program(&words[i]), "rm dd"))
            continue;
        const char *found = row_danger(&words[i], count - i); /* it has all words behind it */
        return found && str_has_prefix(found, "never.") ? found : NULL;
    }
    return NULL;
}

/* sed SCRIPT FILES: rows have those with the script in an option. */
static bool edits_only(const struct shell_word *words, size_t count)
{
    size_t script = 1;
    while (script < count && words[script].shape[0] == '-')
        script++;
    return script == count ||
           (words[script].is_literal && shell_script_is_plain(words[script].shape));
}

const char *shell_danger(const struct shell_word *words, size_t count)
{
    const char *name = shell_program(&words[0]);
    if (str_eq(name, "kill") && kills_all(words, count))
        return "never.kill_all";
    const char *found = str_eq(name, "find") ? find_deletes_all(words, count) : NULL;
    found = found ? found : danger_behind(words, count);
    found = found ? found : row_danger(words, count);
    for (size_t i = 1; i < count && !found; i++)
        found = shell_is_secret(&words[i]) ? "read.secret" : NULL;
    bool is_sed = shell_name_is(name, "sed gsed ssed");
    return found ? found : is_sed && !edits_only(words, count) ? "runs_program" : NULL;
}

/* --- files */

/* Which words of a command are files that it writes. */
static const struct {
    const char *programs;
    const char *options; /* only with one of these */
    enum { WRITES_ALL, WRITES_LAST, WRITES_VALUE } which;
} writers[] = {
    {"tee touch mkdir rmdir rm unlink chmod chown", NULL, WRITES_ALL},
    {"cp mv install ln rsync scp", NULL, WRITES_LAST},
    {"dd", NULL, WRITES_VALUE},
    {"sed perl ruby", "-i --in-place", WRITES_ALL},
};

static void add_file(const struct shell_word *word, json_t *files, const char **danger)
{
    const char *found = shell_danger_of_write(word);
    if (found && (!*danger || str_has_prefix(found, "never.")))
        *danger = found;
    (void)json_array_append_new(files, shell_word_json(word));
}

void shell_written(
    const struct shell_word *words, size_t count, json_t *files, const char **danger)
{
    for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++) {
        if (!shell_name_is(shell_program(&words[0]), writers[i].programs) ||
            (writers[i].options && !shell_has_option(words, count, writers[i].options)))
            continue;
        for (size_t k = 1; k < count; k++) {
            const char *shape = words[k].shape;
            bool is_value = str_has_prefix(shape, "of=");
            bool is_file = writers[i].which == WRITES_VALUE  ? is_value
                           : writers[i].which == WRITES_LAST ? k + 1 == count && count > 2
                                                             : shape[0] != '-';
            if (is_file)
                add_file(&words[k], files, danger);
        }
    }
}

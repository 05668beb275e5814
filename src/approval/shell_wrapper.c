/* SPDX-License-Identifier: Apache-2.0 */

/* Wrappers: programs that run the command behind their own words (sudo, env, timeout, xargs).
 * Only option words in front of that command are options of the wrapper. A word that the table
 * does not have makes the wrapper unclear. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <string.h>

static const struct shell_wrapper wrappers[] = {
    {"sudo", "-u -g -h -p -C -r -t -T -U -D -R --user --group --chdir --host --prompt",
        "-n -E -H -b -k -P -S -A -N --non-interactive --preserve-env* --set-home --background "
        "--stdin --askpass",
        0, true, false, NULL, false},
    {"doas", "-u -C", "-n", 0, false, false, NULL, false},
    {"env", "-u -C --unset --chdir",
        "-i - -0 -v --ignore-environment --debug --null --default-signal* --ignore-signal* "
        "--block-signal*",
        0, true, false, NULL, false},
    {"nohup", "", "", 0, false, true, NULL, false},
    {"setsid", "", "-c -f -w --fork --wait --ctty", 0, false, true, NULL, false},
    {"timeout", "-k -s --kill-after --signal", "-v --foreground --preserve-status --verbose", 1,
        false, true, NULL, false},
    {"nice", "-n --adjustment", "-0* -1* -2* -3* -4* -5* -6* -7* -8* -9*", 0, false, true, NULL,
        false},
    {"ionice", "-c -n --class --classdata", "-t --ignore", 0, false, true, NULL, false},
    {"chrt", "", "-f -r -o -b -i -d -R", 1, false, true, NULL, false},
    {"taskset", "", "-a -c", 1, false, true, NULL, false},
    {"stdbuf", "-i -o -e --input --output --error", "", 0, false, true, NULL, false},
    {"time", "-f -o --format --output", "-p -v -a --portability --verbose", 0, false, true,
        NULL, false},
    {"command", "", "-p", 0, false, true, "vV", false},
    {"builtin", "", "", 0, false, true, NULL, false},
    {"exec", "-a", "-c -l", 0, false, true, NULL, false},
    {"busybox", "", "", 0, false, true, NULL, false},
    {"toybox", "", "", 0, false, true, NULL, false},
    {"chroot", "", "--userspec=* --groups=* --skip-chdir", 1, false, false, NULL, false},
    {"unshare", "", "-m -u -i -n -p -U -C -f -r --fork --mount --net --pid --user", 0, false,
        false, NULL, false},
    {"nsenter", "-t --target -S -G --setuid --setgid",
        "-a -F -e -m* -u* -i* -n* -p* -U* -C* -r* -w* --mount* --net* --pid* --uts* --ipc* "
        "--user* --cgroup* --root* --wd* --all --no-fork",
        0, false, false, NULL, false},
    {"strace", "-e -o -p -s", "-f -ff -c -v -q -y -tt", 0, false, true, NULL, false},
    {"ltrace", "-e -o", "-f -c", 0, false, true, NULL, false},
    {"setarch", "", "-R -3 -v -F -I -L -S -T -X -Z --addr-no-randomize --32bit", 1, false, true,
        NULL, false},
    {"linux32 linux64 i386 i486 i586 i686 x86_64 uname26", "",
        "-R -3 -v -F -I -L -S -T -X -Z --addr-no-randomize --32bit --uname-2.6", 0, false, true,
        NULL, false},
    {"fakeroot", "", "--", 0, false, true, NULL, false},
    {"xargs", "-I -n -P -L -d -a -s -E --max-args --max-procs --delimiter --arg-file --replace",
        "-0 -r -t -p -x --null --no-run-if-empty --verbose -i --max-args=* --max-procs=*", 0,
        false, false, NULL, false},
    {"parallel", "-j --jobs", "-0 -k --keep-order", 0, false, false, NULL, false},
    {"watch", "-n -d --interval --equexit -q",
        "-t -e -g -x -c -b -p -w --exec --no-title --errexit --chgexit --color --beep "
        "--precise --no-wrap --differences*",
        0, false, false, NULL, true},
    {"flock", "-w -E --timeout --conflict-exit-code",
        "-n -x -s -e -u -o -F --nonblock --exclusive --shared --unlock --close --no-fork "
        "--verbose",
        1, false, true, NULL, false},
    {"runuser", "-u -g -G -w --user --group --supp-group", "-m -p --preserve-environment", 0,
        false, false, NULL, false},
    {"systemd-run",
        "-p -u -t -E -M -H --property --unit --setenv --slice --uid --gid --nice --description "
        "--working-directory --machine --host --on-active --on-boot --on-calendar "
        "--service-type",
        "-r -G -d -P -S -q --user --scope --pty --pipe --wait --quiet --collect "
        "--remain-after-exit --same-dir --no-block --no-ask-password --shell --send-sighup "
        "--slice-inherit",
        0, false, false, NULL, false},
    {"proxychains", "-f", "-q", 0, false, true, NULL, false},
    {"unbuffer", "", "-p", 0, false, true, NULL, false},
    {"pkexec", "--user", "--disable-internal-agent --keep-cwd", 0, false, false, NULL, false},
    {"setpriv",
        "--ruid --euid --reuid --rgid --egid --regid --groups --inh-caps --ambient-caps "
        "--bounding-set --securebits --pdeathsig --selinux-label --apparmor-profile",
        "-d --dump --clear-groups --keep-groups --init-groups --no-new-privs --nnp --reset-env",
        0, false, false, NULL, false},
    {"gosu su-exec", "", "", 1, false, false, NULL, false},
    {"prlimit", "-p -o --pid --output",
        "-c* -d* -e* -f* -i* -l* -m* -n* -q* -r* -s* -t* -u* -v* -x* -y* --core* --data* "
        "--nice* --fsize* --sigpending* --memlock* --rss* --nofile* --msgqueue* --rtprio* "
        "--stack* --cpu* --nproc* --as* --locks* --rttime* --verbose --raw --noheadings",
        0, false, true, NULL, false},
    {"tini tini-static catatonit", "-p -e", "-s -v -w -g -P", 0, false, true, NULL, false},
    {"dumb-init", "-r --rewrite", "-c -v --single-child --verbose", 0, false, true, NULL,
        false},
    {"numactl",
        "-i -p -P -N -m -C -w -I --interleave --preferred --preferred-many "
        "--weighted-interleave "
        "--cpunodebind --membind --physcpubind",
        "-a -b -l --all --balancing --localalloc", 0, false, true, NULL, false},
    {"ld-linux*.so* ld.so ld-musl*.so*", "--library-path --preload --audit --argv0",
        "--inhibit-cache --inhibit-rpath*", 0, false, true, NULL, false},
    {"screen", "-S -c -e -h -p -s -t -T",
        "-d -m -D -R -r -x -A -a -q -U -i -l -L -O -n -f -fn -fa -w", 0, false, false, NULL,
        false},
    {"tmux", "-L -S -f -c -s -n -t -x -y -F -e -l", "-d -A -D -P -E -2 -u -h -v -b -a -k -Z", 1,
        false, false, NULL, true},
    {"catchsegv eatmydata torsocks torify tsocks", "", "", 0, false, true, NULL, false},
    {"coproc", "", "", 0, false, true, NULL, false},
};

const struct shell_wrapper *shell_find_wrapper(const char *name)
{
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (shell_name_is(name, wrappers[i].names))
            return &wrappers[i];
    }
    return NULL;
}

/* Several letters behind one `-`. The value of a letter is the rest of the word, or the next
 * word. */
static enum shell_peel take_letters(
    const struct shell_wrapper *row, const char *word, bool *ret_has_value)
{
    enum shell_peel result = SHELL_PEEL_RUNS;
    for (size_t i = 1; word[i]; i++) {
        const char letter[] = {'-', word[i], '\0'};
        if (shell_name_is(letter, row->valued)) {
            *ret_has_value = word[i + 1] == '\0';
            return result;
        }
        if (row->shows && strchr(row->shows, word[i]))
            result = SHELL_PEEL_SHOWS;
        else if (!shell_name_is(letter, row->flags))
            return SHELL_PEEL_UNCLEAR;
    }
    return result;
}

/* Reads an option word of the wrapper. *ret_has_value: the next word is its value. */
static enum shell_peel take_option(
    const struct shell_wrapper *row, const char *word, bool *ret_has_value)
{
    cleanup_free char *name = xstrndup(word, strcspn(word, "="));
    *ret_has_value = shell_name_is(word, row->valued);
    if (*ret_has_value || shell_name_is(word, row->flags))
        return SHELL_PEEL_RUNS;
    if (word[1] != '-')
        return word[1] ? take_letters(row, word, ret_has_value) : SHELL_PEEL_UNCLEAR;
    return word[strlen(name)] && shell_name_is(name, row->valued) ? SHELL_PEEL_RUNS
                                                                  : SHELL_PEEL_UNCLEAR;
}

enum shell_peel shell_peel(const struct shell_wrapper *row, const struct shell_words *words,
    size_t *at, bool *ret_sets_special)
{
    size_t i = *at + 1;
    unsigned operands = row->operands;
    bool is_open = true;
    for (; i < words->count; i++) {
        const struct shell_word *word = &words->items[i];
        bool has_value = false;
        if (!word->is_literal && !(operands && word->is_single))
            return SHELL_PEEL_UNCLEAR;
        if (is_open && str_eq(word->shape, "--")) {
            is_open = false;
        } else if (is_open && word->shape[0] == '-') {
            enum shell_peel one = take_option(row, word->shape, &has_value);
            if (one != SHELL_PEEL_RUNS)
                return one;
            i += has_value;
        } else if (row->has_assignments && strchr(word->shape, '=')) {
            *ret_sets_special = *ret_sets_special || shell_word_sets_special(word->shape);
        } else if (operands) {
            operands--;
        } else {
            break;
        }
    }
    *at = i < words->count ? i : words->count;
    return SHELL_PEEL_RUNS;
}

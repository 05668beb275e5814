/* SPDX-License-Identifier: Apache-2.0 */

/* One simple command. Wrappers (sudo, env, timeout, xargs) are peeled by a table, texts for
 * shells (`bash -c`, `eval`, `trap`, `ssh host`) are read in their turn. A command that cannot
 * be followed is shown as it is and asked each time. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMMANDS_MAX = 256, PEELS_MAX = 16 };

#define SHELLS "sh bash dash zsh ksh ksh93 mksh ash fish rbash busybox-sh"
#define INTERPRETERS                                                                           \
    "python python2 python3 python3.* pypy pypy3 node nodejs perl ruby php lua lua5.* bun "    \
    "deno Rscript R tclsh osascript pwsh powershell ipython irb gdb expect"
#define INLINE_OPTIONS "-c -e -E -p -r -x -ex --eval --print --command --run -pe -ne -Command"

/* Programs that run the command behind their own words. */
static const struct wrapper {
    const char *name;
    const char *valued;   /* options that take the next word */
    const char *flags;    /* options without one; anything else is not understood */
    unsigned operands;    /* words of its own between options and command */
    bool has_assignments; /* NAME=value may stand before the command */
    bool is_plain;        /* the command runs with the same rights, in the same place */
} wrappers[] = {
    {"sudo", "-u -g -h -p -C -r -t -T -U -D -R --user --group", "-n -E -H -b -k -P", 0, true,
        false},
    {"doas", "-u -C", "-n", 0, false, false},
    {"env", "-u -C --unset --chdir", "-i - -0 --ignore-environment", 0, true, false},
    {"nohup", "", "", 0, false, true},
    {"setsid", "", "-c -f -w --fork --wait --ctty", 0, false, true},
    {"timeout", "-k -s --kill-after --signal", "-v --foreground --preserve-status --verbose", 1,
        false, true},
    {"nice", "-n --adjustment", "-0* -1* -2* -3* -4* -5* -6* -7* -8* -9*", 0, false, true},
    {"ionice", "-c -n --class --classdata", "-t --ignore", 0, false, true},
    {"chrt", "", "-f -r -o -b -i -d -R", 1, false, true},
    {"taskset", "", "-a -c", 1, false, true},
    {"stdbuf", "-i -o -e --input --output --error", "", 0, false, true},
    {"time", "-f -o --format --output", "-p -v -a --portability --verbose", 0, false, true},
    {"command", "", "-p", 0, false, true},
    {"builtin", "", "", 0, false, true},
    {"exec", "-a", "-c -l", 0, false, true},
    {"busybox", "", "", 0, false, true},
    {"toybox", "", "", 0, false, true},
    {"chroot", "", "--userspec=* --groups=* --skip-chdir", 1, false, false},
    {"unshare", "", "-m -u -i -n -p -U -C -f -r --fork --mount --net --pid --user", 0, false,
        false},
    {"nsenter", "-t --target", "-a -m -u -i -n -p -U -C --mount --net --pid --all", 0, false,
        false},
    {"strace", "-e -o -p -s", "-f -ff -c -v -q -y -tt", 0, false, true},
    {"ltrace", "-e -o", "-f -c", 0, false, true},
    {"setarch", "", "-R -3", 1, false, true},
    {"fakeroot", "", "--", 0, false, true},
    {"xargs", "-I -n -P -L -d -a -s -E --max-args --max-procs --delimiter --arg-file --replace",
        "-0 -r -t -p -x --null --no-run-if-empty --verbose -i --max-args=* --max-procs=*", 0,
        false, false},
    {"parallel", "-j --jobs", "-0 -k --keep-order", 0, false, false},
    {"watch", "-n -d --interval", "-t -e -g -x -c", 0, false, false},
    {"flock", "-w --timeout", "-n -x -s -e -u", 1, false, true},
    {"runuser", "-u", "--", 0, false, false},
    {"systemd-run", "-p --property --unit", "--user --scope --pty --wait -t -q", 0, false,
        false},
    {"proxychains", "-f", "-q", 0, false, true},
    {"unbuffer", "", "-p", 0, false, true},
    {"coproc", "", "", 0, false, true},
};

struct taking {
    struct shell_walk *w;
    const struct shell_redirs *redirs;
    struct shell_words all; /* prefix, variables, words */
    size_t own;             /* where the words after the prefix begin */
    size_t at;              /* the program that is looked at */
    bool is_wrapped;
    bool is_done; /* texts in it have been read instead */
    bool is_once;
    bool is_fed; /* words of the command come from an input */
    const char *danger;
};

static const struct wrapper *find_wrapper(const char *name)
{
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        if (str_eq(wrappers[i].name, name))
            return &wrappers[i];
    }
    return NULL;
}

/* A command that is not followed: it is asked each time. */
static void give_up(struct taking *t, const char *danger)
{
    t->danger = t->danger ? t->danger : danger;
    t->is_once = true;
    t->is_done = false;
}

static bool is_assignment(const char *word)
{
    size_t len = strcspn(word, "=");
    return len && word[len] == '=' &&
           word[strspn(
               word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '=';
}

static void check_variable(struct taking *t, const char *word)
{
    if (shell_variable_is_special(word, strcspn(word, "+=")))
        t->danger = t->danger ? t->danger : "environment";
}

/* Goes to the command of a wrapper. False when it is not clear which one that is; t->at is the
 * end when there is none. */
static bool peel(struct taking *t, const struct wrapper *row)
{
    size_t at = t->at + 1;
    unsigned operands = row->operands;
    bool is_open = true;
    for (; at < t->all.count; at++) {
        const struct shell_word *word = &t->all.items[at];
        if (!word->is_literal && !(operands && word->is_single))
            return false;
        if (is_open && str_eq(word->shape, "--")) {
            is_open = false;
        } else if (is_open && word->shape[0] == '-') {
            size_t name = strcspn(word->shape, "=");
            bool is_valued = shell_name_is(word->shape, row->valued);
            cleanup_free char *head = xstrndup(word->shape, name);
            bool has_value = word->shape[1] != '-' ? word->shape[2] != '\0' : word->shape[name];
            cleanup_free char *letter = xstrndup(word->shape, 2);
            if (is_valued)
                at++;
            else if (!shell_name_is(word->shape, row->flags) &&
                     !(has_value &&
                         shell_name_is(word->shape[1] == '-' ? head : letter, row->valued)))
                return false;
        } else if (row->has_assignments && is_assignment(word->shape)) {
            check_variable(t, word->shape);
        } else if (operands) {
            operands--;
        } else {
            break;
        }
    }
    if (shell_name_is(row->name, "xargs parallel"))
        t->is_once = t->is_fed = true; /* its input adds words that are not known */
    t->at = at < t->all.count ? at : t->all.count;
    t->is_wrapped = t->is_wrapped || !row->is_plain;
    return true;
}

/* --- texts */

static int read_text(
    struct taking *t, const char *text, size_t prefix, enum shell_inside inside)
{
    if (t->is_wrapped && inside != SHELL_SAME && inside != SHELL_LATER)
        inside = SHELL_WRAPPED;
    const char *outer = t->w->danger;
    t->w->danger = t->danger ? t->danger : outer;
    int r = shell_walk_text(t->w, text, t->all.items, prefix, inside);
    t->w->danger = outer;
    if (r == -EBADMSG) {
        give_up(t, "shell.unclear");
        return 0;
    }
    t->is_done = r == 0;
    return r;
}

/* The words from `from` on, joined as eval and ssh do; NULL when one is not known. */
static char *join(const struct taking *t, size_t from)
{
    char *text = xstrdup("");
    for (size_t i = from; i < t->all.count; i++) {
        const struct shell_word *word = &t->all.items[i];
        char *longer = xasprintf("%s%s%s", text, i == from ? "" : " ", word->shape);
        free(text);
        text = longer;
        if (!word->is_literal) {
            free(text);
            return NULL;
        }
    }
    return text;
}

static int take_joined(struct taking *t, size_t from, enum shell_inside inside)
{
    cleanup_free char *text = join(t, from);
    if (text)
        return read_text(t, text, from, inside);
    give_up(t, "shell.evaluate");
    return 0;
}

/* A program from the standard input. Its text is known only for a literal here-document. */
static int take_input(struct taking *t, bool is_shell)
{
    t->w->forms->reads_code = true;
    if (is_shell && t->redirs->input)
        return read_text(t, t->redirs->input, t->all.count, SHELL_OTHER);
    give_up(t, is_shell ? "shell.input" : "interpreter.input");
    return 0;
}

static bool is_stdin(const struct shell_word *word)
{
    return str_eq(word->shape, "-") || str_has_prefix(word->shape, "/dev/stdin") ||
           str_has_prefix(word->shape, "/dev/fd/") || str_has_prefix(word->shape, "/proc/") ||
           word->shape[0] == SHELL_UNKNOWN;
}

/* sh, bash and so on: -c TEXT, a script, or commands from the standard input. */
static int take_shell(struct taking *t)
{
    bool has_text = false;
    bool is_open = true;
    size_t at = t->at + 1;
    for (; is_open && at < t->all.count; at++) {
        const struct shell_word *word = &t->all.items[at];
        if (!word->is_literal && word->shape[0] != '/' && word->shape[0] != '~' &&
            !word->is_single) {
            give_up(t, "shell.evaluate");
            return 0;
        }
        if (str_eq(word->shape, "--") || str_eq(word->shape, "-")) {
            is_open = false;
            continue;
        }
        if (word->shape[0] != '-' && word->shape[0] != '+')
            break;
        if (word->shape[1] != '-' && strchr(word->shape, 'c'))
            has_text = true;
        if (shell_name_is(word->shape, "--rcfile --init-file") ||
            (word->shape[1] != '-' && strchr(word->shape, 's') && !has_text))
            return take_input(t, true);
        if (word->shape[1] != '-' && strpbrk(word->shape, "oO"))
            at++;
    }
    if (at >= t->all.count)
        return has_text ? 0 : take_input(t, true);
    const struct shell_word *word = &t->all.items[at];
    if (has_text && word->is_literal)
        return read_text(t, word->shape, at, SHELL_OTHER);
    if (has_text)
        give_up(t, "shell.evaluate");
    else if (is_stdin(word))
        return take_input(t, true);
    return 0;
}

static int take_interpreter(struct taking *t)
{
    const struct shell_word *words = &t->all.items[t->at];
    size_t count = t->all.count - t->at;
    size_t first = 1;
    if (shell_has_option(words, count, INLINE_OPTIONS) ||
        (count > 1 && shell_name_is(words[1].shape, "eval repl"))) {
        t->danger = t->danger ? t->danger : "interpreter.inline";
        return 0;
    }
    while (first < count && words[first].shape[0] == '-' && words[first].shape[1])
        first++;
    if (first >= count || is_stdin(&words[first]))
        return shell_has_option(words, count, "--version -V --help -v -h")
                   ? 0
                   : take_input(t, false);
    return 0;
}

/* Text in a trap runs later, in this shell. */
static int take_trap(struct taking *t)
{
    size_t at = t->at + 1;
    if (at < t->all.count && str_eq(t->all.items[at].shape, "--"))
        at++;
    if (at >= t->all.count || shell_name_is(t->all.items[at].shape, "-p -l -")) {
        t->is_done = true;
        return 0;
    }
    if (!t->all.items[at].is_literal) {
        give_up(t, "shell.evaluate");
        return 0;
    }
    return read_text(t, t->all.items[at].shape, at, SHELL_LATER);
}

/* ssh [options] host [words]: the far shell gets the words as one text. */
static int take_ssh(struct taking *t)
{
    static const struct wrapper row = {"ssh",
        "-p -i -l -F -J -L -R -D -b -c -e -m -o -w -B -E -I -Q -S -W",
        "-t -tt -T -n -N -q -v -4 -6 -A -a -C -f -g -K -k -M -s -X -x -Y -y", 1, false, false};
    size_t program = t->at;
    bool is_clear = peel(t, &row);
    size_t from = t->at;
    t->at = program;
    if (!is_clear ||
        shell_has_option(&t->all.items[program], t->all.count - program, "-o -F -R -L -D -W"))
        give_up(t, "remote.unclear");
    else if (from < t->all.count)
        return take_joined(t, from, SHELL_WRAPPED);
    else
        return take_input(t, true);
    return 0;
}

/* A text behind an option: su -c TEXT, script -c TEXT. */
static int take_option_text(struct taking *t)
{
    for (size_t i = t->at + 1; i + 1 < t->all.count; i++) {
        if (!shell_name_is(t->all.items[i].shape, "-c --command -lc"))
            continue;
        t->is_wrapped = true;
        if (t->all.items[i + 1].is_literal)
            return read_text(t, t->all.items[i + 1].shape, i + 1, SHELL_WRAPPED);
    }
    give_up(t, "shell.unclear");
    return 0;
}

static int take_eval(struct taking *t)
{
    size_t from = t->at + 1;
    if (from < t->all.count && str_eq(t->all.items[from].shape, "--"))
        from++;
    return take_joined(t, from, SHELL_SAME);
}

/* Commands that change the meaning of later words. */
static int take_define(struct taking *t)
{
    give_up(t, "shell.define");
    return 0;
}

static int take_source(struct taking *t)
{
    give_up(t, "shell.source");
    return 0;
}

static const struct {
    const char *names;
    int (*take)(struct taking *t);
} specials[] = {
    {SHELLS, take_shell},
    {INTERPRETERS, take_interpreter},
    {"eval", take_eval},
    {"trap", take_trap},
    {"ssh", take_ssh},
    {"su script", take_option_text},
    {"source .", take_source},
    {"alias hash enable shopt bind complete compgen compopt unalias fc history", take_define},
};

/* find: each -exec has a command of its own, up to ; or +. */
static void take_find(struct taking *t)
{
    for (size_t i = t->at + 1; i < t->all.count; i++) {
        if (!shell_name_is(t->all.items[i].shape, "-exec -execdir -ok -okdir"))
            continue;
        size_t end = i + 1;
        while (end < t->all.count && !shell_name_is(t->all.items[end].shape, "; +"))
            end++;
        size_t from = i + 1;
        const char *danger = from < end ? shell_danger(&t->all.items[from], end - from) : NULL;
        const char *name = from < end ? shell_program(&t->all.items[from]) : "";
        if (from < end && (!t->all.items[from].is_literal || find_wrapper(name) ||
                              shell_name_is(name, SHELLS " " INTERPRETERS)))
            give_up(t, "shell.unclear");
        t->danger = danger ? danger : t->danger;
    }
}

static int look(struct taking *t)
{
    for (unsigned peels = 0; t->at < t->all.count; peels++) {
        const struct shell_word *word = &t->all.items[t->at];
        const char *name = shell_program(word);
        const struct wrapper *row = find_wrapper(name);
        if (!word->is_literal || peels > PEELS_MAX) {
            give_up(t, "shell.dynamic");
            return 0;
        }
        if (row && shell_has_option(word, t->all.count - t->at, "-v -V --version --help -S") &&
            (str_eq(name, "command") || str_eq(name, "env")))
            return str_eq(name, "env") ? (give_up(t, "shell.unclear"), 0) : 0;
        if (!row) {
            for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
                if (!shell_name_is(name, specials[i].names))
                    continue;
                if (t->is_fed)
                    give_up(t, "shell.input");
                return t->is_fed ? 0 : specials[i].take(t);
            }
            if (str_eq(name, "find"))
                take_find(t);
            return 0;
        }
        const char *own = shell_danger(word, t->all.count - t->at);
        t->danger = t->danger ? t->danger : own;
        if (!peel(t, row)) {
            give_up(t, "shell.unclear");
            return 0;
        }
    }
    return 0;
}

static void note_directory(struct shell_walk *w, const struct taking *t)
{
    const struct shell_word *words = &t->all.items[t->at];
    size_t count = t->all.count - t->at;
    if (!count || !shell_name_is(shell_program(&words[0]), "cd pushd popd"))
        return;
    bool is_stack = !shell_name_is(words[0].shape, "cd pushd");
    bool is_clear = count <= 2 && (count < 2 || shell_is_steady_path(&words[1]));
    w->is_lost = w->is_lost || is_stack || !is_clear;
    char *longer = xasprintf("%s%s%s %s", w->cwd, w->cwd[0] ? "; " : "", words[0].shape,
        count > 1 ? words[1].source : "");
    free(w->cwd);
    w->cwd = longer;
}

/* Whether the command may take its program from its input, which the effect does not show. */
static bool reads_program(const struct shell_word *words, size_t count)
{
    static const char feeds[] =
        "at batch bc dc ed ex gnuplot sqlite3 psql mysql mariadb duckdb gdb "
        "lldb octave ftp sftp telnet nc ncat socat patch";
    bool is_fed = shell_name_is(shell_program(&words[0]), feeds);
    bool only_reads = shell_name_is(words[0].shape, "cat head tail wc sort grep diff cut");
    for (size_t i = 1; i < count && !only_reads; i++) {
        is_fed = is_fed || shell_name_is(words[i].shape, "- -f- --file=- /dev/stdin /dev/fd/* "
                                                         "*=/dev/stdin -f/dev/stdin");
    }
    return is_fed;
}

/* A category that nothing permits is worth more than another. */
static const char *stronger(const char *a, const char *b)
{
    return b && (!a || str_has_prefix(b, "never.")) ? b : a;
}

int shell_take(struct shell_walk *w, const struct shell_words *assigns,
    const struct shell_words *words, const struct shell_redirs *redirs)
{
    struct taking t = {
        .w = w, .redirs = redirs, .own = w->prefix.count, .is_wrapped = w->is_wrapped};
    for (size_t i = 0; i < w->prefix.count; i++)
        shell_words_add(&t.all, &w->prefix.items[i]);
    for (size_t i = 0; i < assigns->count; i++) {
        shell_words_add(&t.all, &assigns->items[i]);
        check_variable(&t, assigns->items[i].shape);
    }
    t.at = t.all.count;
    t.is_wrapped = t.is_wrapped || assigns->count > 0;
    for (size_t i = 0; i < words->count; i++)
        shell_words_add(&t.all, &words->items[i]);
    int r = look(&t);
    if (r == 0 && !t.is_done && t.at < t.all.count)
        t.danger = stronger(t.danger, shell_danger(&t.all.items[t.at], t.all.count - t.at));
    t.danger = stronger(t.danger, w->danger);
    bool is_free = !t.danger && !w->is_deferred && !t.is_once && !t.is_wrapped &&
                   !json_array_size(redirs->list) && t.at < t.all.count &&
                   shell_is_free(&t.all.items[t.at], t.all.count - t.at);
    bool is_read = t.is_done && !json_array_size(redirs->list);
    note_directory(w, &t);
    t.is_once = t.is_once ||
                (t.at < t.all.count && reads_program(&t.all.items[t.at], t.all.count - t.at));
    if (r == 0 && !is_free && !is_read)
        r = shell_emit(
            w, &t.all, t.is_wrapped ? t.all.count + t.at : t.at, redirs, t.danger, t.is_once);
    shell_words_done(&t.all);
    return r;
}

/* --- emitting */

static json_t *words_json(const struct shell_words *words)
{
    json_t *list = json_array();
    for (size_t i = 0; i < words->count; i++)
        (void)json_array_append_new(list, shell_word_json(&words->items[i]));
    return list;
}

static json_t *grant_of(
    const struct shell_words *words, size_t program, json_t *argv, bool *ret_is_ordinary)
{
    json_t *form = program < words->count
                       ? shell_ordinary(&words->items[program], words->count - program)
                       : NULL;
    *ret_is_ordinary =
        form || (program < words->count &&
                    shell_is_filter(&words->items[program], words->count - program));
    if (!form)
        return json_incref(argv);
    for (size_t i = program; i-- > 0;)
        (void)json_array_insert(form, 0, json_array_get(argv, i));
    return form;
}

static bool has_open(const struct shell_words *words, const struct shell_redirs *redirs)
{
    bool is_open = redirs && redirs->is_open;
    for (size_t i = 0; i < words->count; i++)
        is_open = is_open || words->items[i].is_open;
    return is_open;
}

static bool has_dynamic(const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_is_object(json_array_get(list, i)))
            return true;
    }
    return false;
}

/* `program` is where an ordinary command begins; behind the words when it is none. Without
 * words only files are opened, as `: >file` does. */
int shell_emit(struct shell_walk *w, const struct shell_words *words, size_t program,
    const struct shell_redirs *redirs, const char *danger, bool is_once)
{
    struct shell_forms *forms = w->forms;
    if (forms->count == COMMANDS_MAX)
        return -E2BIG;
    json_t *files = redirs ? json_copy(redirs->files) : json_array();
    const char *written = NULL;
    for (size_t i = 0; redirs && i < redirs->targets.count; i++)
        written = stronger(written, shell_danger_of_write(&redirs->targets.items[i]));
    is_once = is_once || w->is_lost || has_open(words, redirs);
    size_t from = program > words->count ? program - words->count : program;
    if (from < words->count)
        shell_written(&words->items[from], words->count - from, files, &written);
    danger = stronger(danger, written);
    struct shell_command c = {.argv = words->count ? words_json(words) : json_pack("[s]", ":"),
        .redirections = redirs ? json_incref(redirs->list) : json_array(),
        .files = files,
        .cwd = xstrdup(w->cwd),
        .danger = danger,
        .is_once = is_once};
    for (size_t i = 0; !words->count && i < w->prefix.count; i++)
        (void)json_array_insert_new(c.argv, i, shell_word_json(&w->prefix.items[i]));
    c.is_once = is_once || (danger && (has_dynamic(c.argv) || has_dynamic(c.redirections)));
    c.grant = danger || is_once ? json_incref(c.argv)
                                : grant_of(words, program, c.argv, &c.is_ordinary);
    /* The words of such a command do not say what it does with input from the text. */
    bool has_text = w->is_fed || (redirs && redirs->has_text);
    c.is_ordinary = c.is_ordinary && !(redirs && redirs->targets.count);
    c.is_once = c.is_once || (has_text && !c.is_ordinary);
    forms->items = xreallocarray(forms->items, forms->count + 1, sizeof(c));
    forms->items[forms->count++] = c;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* One simple command. Wrappers (sudo, env, timeout, xargs) are peeled (shell_wrapper.c), texts
 * for shells (`bash -c`, `eval`, `trap`, `ssh host`) are read in their turn. A command that
 * cannot be followed is shown as it is and needs approval each time.
 *
 * Only bash reads a text as it is read here. Its text stands in place of the command if nothing
 * is before `bash -c` and its options change nothing. The text of any other shell is read for
 * dangers only, and the command itself needs approval in exactly its words. The same holds for
 * a program outside of the directories of the system, whatever its name is. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PEELS_MAX = 16 };

#define SHELLS                                                                                 \
    "sh bash bash[0-9]* dash zsh zsh-[0-9]* ksh ksh[0-9]* mksh lksh oksh pdksh ash fish "      \
    "rbash rksh csh tcsh yash busybox-sh"
#define INTERPRETERS                                                                           \
    "python python[0-9]* pypy pypy[0-9]* node nodejs node[0-9]* perl perl[0-9]* ruby "         \
    "ruby[0-9]* jruby php php[0-9]* lua lua[0-9]* luajit* bun deno Rscript R julia julia-* "   \
    "tclsh tclsh[0-9]* guile guile-* ghci raku elixir osascript pwsh powershell ipython "      \
    "ipython3 irb gdb expect"
#define INLINE_OPTIONS                                                                         \
    "-c -e -E -p -r -R -x -ex --eval --print --command --run -pe -ne -Command"

struct taking {
    struct shell_walk *w;
    const struct shell_redirs *redirs;
    struct shell_words all; /* prefix, variables, words */
    size_t own;             /* where the words after the prefix begin */
    size_t at;              /* the program that is looked at */
    bool is_wrapped;
    bool is_peeled;  /* wrappers stand before it */
    bool is_foreign; /* what it does may differ from what is read: it is shown in exactly its
                        words */
    bool is_done;    /* texts in it have been read instead */
    bool is_once;
    bool is_fed;  /* words of the command come from an input */
    bool assigns; /* variables of this shell */
    const char *danger;
};

/* Stops following the command: it needs approval each time. */
static void give_up(struct taking *t, const char *danger)
{
    t->danger = t->danger ? t->danger : danger;
    t->is_once = true;
    t->is_done = false;
}

static void check_variable(struct taking *t, const char *word)
{
    if (shell_variable_is_special(word, strcspn(word, "+=")))
        t->danger = t->danger ? t->danger : "environment";
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
    t->w->forms->marks = t->w->forms->marks || inside == SHELL_SAME;
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

/* The program that its name says: it has no directory, or one of the system. */
static bool is_of_system(const struct shell_word *word)
{
    static const char *const directories[] = {"", "/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"};
    const char *name = shell_program(word);
    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
        size_t len = strlen(directories[i]);
        if (len == (size_t)(name - word->shape) && str_has_prefix(word->shape, directories[i]))
            return true;
    }
    return false;
}

static const char *shape_of(const struct taking *t, size_t at)
{
    return t->all.items[at].shape;
}

/* bash with options that change nothing in the meaning of its text. */
static bool is_plain_bash(const struct taking *t, size_t end)
{
    if (!str_eq(shell_program(&t->all.items[t->at]), "bash"))
        return false;
    for (size_t i = t->at + 1; i < end; i++) {
        const char *shape = t->all.items[i].shape;
        bool is_named = str_eq(shape, "-o") && i + 1 < end &&
                        shell_name_is(shape_of(t, i + 1), "pipefail errexit nounset xtrace");
        bool is_letters =
            shape[0] == '-' && shape[1] && shape[1 + strspn(shape + 1, "celux")] == '\0';
        if (!is_named && !is_letters)
            return false;
        i += is_named;
    }
    return true;
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
            (word->shape[1] != '-' && strchr(word->shape, 's') && !has_text)) {
            t->is_foreign = true;
            return take_input(t, true);
        }
        if (word->shape[1] != '-' && strpbrk(word->shape, "oO"))
            at++;
    }
    t->is_foreign = t->is_foreign || !is_plain_bash(t, at);
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
    if (shell_has_option(words, count, "-i --interactive"))
        t->w->forms->reads_code = true;
    if (shell_has_option(words, count, INLINE_OPTIONS) ||
        (count > 1 && shell_name_is(words[1].shape, "eval repl"))) {
        t->danger = t->danger ? t->danger : "interpreter.inline";
        return 0;
    }
    while (first < count && words[first].shape[0] == '-' && words[first].shape[1])
        first++;
    bool is_shown =
        count == 2 &&
        (shell_name_is(words[1].shape, "--version --help -h -V") ||
            (str_eq(words[1].shape, "-v") && !shell_name_is(shell_program(words), "py*")));
    if (!is_shown && (first >= count || is_stdin(&words[first])))
        return take_input(t, false);
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
        t->w->forms->marks = true;
        give_up(t, "shell.evaluate");
        return 0;
    }
    return read_text(t, t->all.items[at].shape, at, SHELL_LATER);
}

/* ssh [options] host [words]: the far shell gets the words as one text. */
static int take_ssh(struct taking *t)
{
    static const struct shell_wrapper row = {"ssh",
        "-p -i -l -F -J -L -R -D -b -c -e -m -o -w -B -E -I -Q -S -W",
        "-t -tt -T -n -N -q -v -4 -6 -A -a -C -f -g -K -k -M -s -X -x -Y -y", 1, false, false,
        NULL, false};
    size_t from = t->at;
    bool unused = false;
    t->is_foreign = true; /* nobody knows the far shell */
    bool is_clear = shell_peel(&row, &t->all, &from, &unused) == SHELL_PEEL_RUNS;
    if (!is_clear || shell_has_option(&t->all.items[t->at], from - t->at, "-o -F -R -L -D -W"))
        give_up(t, "remote.unclear");
    else if (from < t->all.count)
        return take_joined(t, from, SHELL_WRAPPED);
    else
        return take_input(t, true);
    return 0;
}

/* A text behind an option: su -c TEXT, script -c TEXT, --command=TEXT. */
static int take_option_text(struct taking *t)
{
    t->is_foreign = true; /* the account says which shell */
    for (size_t i = t->at + 1; i < t->all.count; i++) {
        const struct shell_word *word = &t->all.items[i];
        const char *text = shell_name_is(word->shape, "--command=* --session-command=*")
                               ? strchr(word->shape, '=') + 1
                               : NULL;
        bool is_next = shell_name_is(word->shape, "-c -[!-]*c --command --session-command");
        if (is_next && i + 1 < t->all.count)
            word = &t->all.items[++i];
        text = is_next ? word->shape : text;
        t->is_wrapped = t->is_wrapped || text;
        if (text && word->is_literal)
            return read_text(t, text, i, SHELL_WRAPPED);
    }
    give_up(t, "shell.unclear");
    return 0;
}

/* env -S TEXT splits the text as a shell does, as long as it has plain characters only. */
static int take_split(struct taking *t)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                " /._-+:,@%=";
    for (size_t i = t->at + 1; i < t->all.count; i++) {
        const char *text = t->all.items[i].shape;
        bool is_next = shell_name_is(text, "-S --split-string") && i + 1 < t->all.count;
        text = is_next                                   ? t->all.items[i + 1].shape
               : str_has_prefix(text, "--split-string=") ? strchr(text, '=') + 1
               : str_has_prefix(text, "-S")              ? text + 2
                                                         : NULL;
        if (text && text[strspn(text, plain)] == '\0' && i + is_next + 1 == t->all.count) {
            t->is_wrapped = true;
            return read_text(t, text, i + is_next, SHELL_WRAPPED);
        }
    }
    give_up(t, "shell.unclear");
    return 0;
}

/* capsh ... -- WORDS: the words are those of a shell. */
static int take_capsh(struct taking *t)
{
    size_t own = t->at;
    while (own < t->all.count && !shell_name_is(t->all.items[own].shape, "-- =="))
        own++;
    if (own == t->all.count)
        return 0;
    size_t program = t->at;
    t->is_wrapped = true;
    t->at = own;
    int r = take_shell(t);
    t->at = program;
    return r;
}

/* start-stop-daemon --exec PROGRAM -- WORDS. */
static int take_daemon(struct taking *t)
{
    CLEANUP(shell_words_done) struct shell_words words = {0};
    bool is_behind = false;
    for (size_t i = t->at + 1; i < t->all.count; i++) {
        const struct shell_word *word = &t->all.items[i];
        const char *value = strchr(word->shape, '=');
        struct shell_word program = *word;
        bool is_name = shell_name_is(word->shape, "-x -a --exec --startas");
        if (is_behind)
            shell_words_add(&words, word);
        else if (is_name && i + 1 < t->all.count)
            shell_words_add(&words, &t->all.items[i + 1]);
        else if (value && shell_name_is(word->shape, "--exec=* --startas=*")) {
            program.shape = (char *)value + 1;
            shell_words_add(&words, &program);
        }
        is_behind = is_behind || str_eq(word->shape, "--");
    }
    const char *danger = words.count ? shell_danger(words.items, words.count) : NULL;
    give_up(t, "shell.unclear");
    t->danger = shell_stronger(t->danger, danger);
    return 0;
}

/* Builtins that take names of variables. A name may be an element of an array, whose subscript
 * is evaluated, and `mapfile -C` runs a text. */
static int take_names(struct taking *t)
{
    const struct shell_word *words = &t->all.items[t->at];
    size_t count = t->all.count - t->at;
    const char *name = shell_program(&words[0]);
    bool is_test = shell_name_is(name, "test \\[");
    bool only_v = str_eq(name, "printf") || is_test;
    bool is_run =
        shell_name_is(name, "mapfile readarray") && shell_has_option(words, count, "-C");
    bool has_v = false;
    bool is_suspect = false;
    for (size_t i = 1; i < count; i++) {
        bool is_unknown =
            !words[i].is_literal &&
            (is_test ? !words[i].is_single
                     : shell_name_is(name, "read mapfile readarray unset printf"));
        has_v = has_v || str_has_prefix(words[i].shape, "-v") ||
                (is_test && (str_eq(words[i].shape, "-R") || is_unknown)) ||
                (i == 1 && words[i].shape[0] == SHELL_UNKNOWN && !words[i].is_single);
        is_suspect = is_suspect || is_unknown || shell_is_element(&words[i]) ||
                     (is_test && !words[i].is_literal);
    }
    t->assigns = !is_test && !str_eq(name, "unset") && (!only_v || has_v);
    if (is_run || (is_suspect && (!only_v || has_v)))
        give_up(t, "shell.evaluate");
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

/* `builtin declare -i x`, `\\let x`: shfmt takes these for commands like others. */
static int take_declare(struct taking *t)
{
    t->w->forms->marks = true;
    t->assigns = true;
    give_up(t, "shell.evaluate");
    return 0;
}

static int take_source(struct taking *t)
{
    for (size_t i = t->at + 1; i < t->all.count; i++)
        t->w->forms->reads_code = t->w->forms->reads_code || is_stdin(&t->all.items[i]);
    give_up(t, "shell.source");
    return 0;
}

static const struct {
    const char *names;
    int (*take)(struct taking *t);
    bool is_builtin; /* has no directory */
} specials[] = {
    {SHELLS, take_shell, false},
    {INTERPRETERS, take_interpreter, false},
    {"eval", take_eval, true},
    {"trap", take_trap, true},
    {"ssh", take_ssh, false},
    {"su script runuser flock", take_option_text, false},
    {"env", take_split, false},
    {"capsh", take_capsh, false},
    {"start-stop-daemon", take_daemon, false},
    {"declare typeset local readonly export let", take_declare, true},
    {"read mapfile readarray unset getopts wait printf test \\[", take_names, true},
    {"source .", take_source, true},
    {"alias hash enable shopt bind complete compgen compopt unalias fc history", take_define,
        true},
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
        if (from < end && (!t->all.items[from].is_literal || shell_find_wrapper(name) ||
                              shell_name_is(name, SHELLS " " INTERPRETERS)))
            give_up(t, "shell.unclear");
        t->danger = danger ? danger : t->danger;
    }
}

static int take_special(struct taking *t, const char *name)
{
    for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
        const char *wanted = specials[i].is_builtin ? shape_of(t, t->at) : name;
        if (!shell_name_is(wanted, specials[i].names))
            continue;
        if (t->is_fed)
            give_up(t, "shell.input");
        return t->is_fed ? 0 : specials[i].take(t);
    }
    if (str_eq(name, "find"))
        take_find(t);
    return 0;
}

/* A wrapper with options that the table does not have. What nothing permits is still seen when
 * it is one of the first words that are no options. */
static int take_unclear(struct taking *t, const char *name)
{
    unsigned seen = 0;
    if (shell_name_is(name, "flock runuser"))
        return take_special(t, name);
    if (str_eq(name, "env") && shell_has_option(&t->all.items[t->at], 2, "-S --split-string"))
        return take_special(t, name);
    give_up(t, "shell.unclear");
    for (size_t i = t->at + 1; i < t->all.count && seen < 3; i++) {
        const struct shell_word *word = &t->all.items[i];
        const char *found = shell_danger(word, t->all.count - i);
        seen += word->shape[0] != '-';
        if (found && str_has_prefix(found, "never."))
            t->danger = found;
    }
    return 0;
}

/* Goes to the command of a wrapper. *ret_is_over: there is nothing more to look at. */
static int unwrap(
    struct taking *t, const struct shell_wrapper *row, const char *name, bool *ret_is_over)
{
    size_t at = t->at;
    bool sets_special = false;
    enum shell_peel result = shell_peel(row, &t->all, &at, &sets_special);
    *ret_is_over = result != SHELL_PEEL_RUNS;
    if (result == SHELL_PEEL_UNCLEAR)
        return take_unclear(t, name);
    if (result == SHELL_PEEL_SHOWS)
        return 0;
    if (sets_special)
        t->danger = t->danger ? t->danger : "environment";
    if (shell_name_is(name, "xargs parallel"))
        t->is_once = t->is_fed = true; /* its input adds words that are not known */
    t->is_wrapped = t->is_wrapped || !row->is_plain;
    t->is_peeled = true;
    bool is_joined = row->joins && at < t->all.count &&
                     !shell_has_option(&t->all.items[t->at], at - t->at, "-x --exec");
    t->at = at;
    t->is_foreign = t->is_foreign || is_joined;
    *ret_is_over = is_joined;
    return is_joined ? take_joined(t, at, SHELL_WRAPPED) : 0;
}

/* runuser without -u is as su: its words are a user and a text. */
static bool is_login(const struct taking *t, const char *name)
{
    const char *next = t->at + 1 < t->all.count ? t->all.items[t->at + 1].shape : "";
    return str_eq(name, "runuser") && !shell_name_is(next, "-u* --user*");
}

static int look(struct taking *t)
{
    int r = 0;
    bool is_over = false;
    for (unsigned peels = 0; r == 0 && !is_over && t->at < t->all.count; peels++) {
        const struct shell_word *word = &t->all.items[t->at];
        const char *name = shell_program(word);
        const struct shell_wrapper *row = shell_find_wrapper(name);
        if (!word->is_literal || peels > PEELS_MAX) {
            t->w->forms->marks = true; /* it may be `declare` */
            give_up(t, "shell.dynamic");
            return 0;
        }
        t->is_foreign = t->is_foreign || !is_of_system(word);
        if (!row || is_login(t, name))
            return take_special(t, name);
        t->danger = shell_stronger(t->danger, shell_danger(word, t->all.count - t->at));
        r = unwrap(t, row, name, &is_over);
    }
    return r;
}

static void note_directory(struct shell_walk *w, const struct taking *t)
{
    const struct shell_word *words = &t->all.items[t->at];
    size_t count = t->all.count - t->at;
    if (!count || !shell_name_is(words[0].shape, "cd pushd popd"))
        return;
    bool is_stack = !shell_name_is(words[0].shape, "cd pushd");
    bool is_clear = count <= 2 && (count < 2 || shell_is_steady_path(&words[1]));
    w->is_lost = w->is_lost || is_stack || !is_clear;
    if (count > 1 && !is_stack) {
        cleanup_free char *inside = xasprintf("%s/x", words[1].shape);
        const struct shell_word file = {inside, inside, true, true, false};
        bool is_far = strchr("/~", words[1].shape[0]) != NULL;
        w->is_sensitive = (w->is_sensitive && !is_far) || shell_danger_of_write(&file);
    }
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

static int emit_taken(struct taking *t)
{
    struct shell_forms *forms = t->w->forms;
    bool is_exact = t->is_wrapped || t->is_foreign;
    int r = shell_emit(t->w, &t->all, is_exact ? t->all.count + t->at : t->at, t->redirs,
        t->danger, t->is_once);
    if (r == 0 && t->assigns)
        forms->items[forms->count - 1].assigning = SHELL_ASSIGNS;
    return r;
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
    t.assigns = assigns->count > 0;
    for (size_t i = 0; i < words->count; i++)
        shell_words_add(&t.all, &words->items[i]);
    int r = look(&t);
    if (r == 0 && !t.is_done && t.at < t.all.count)
        t.danger =
            shell_stronger(t.danger, shell_danger(&t.all.items[t.at], t.all.count - t.at));
    t.danger = shell_stronger(t.danger, w->danger);
    bool is_bare = !t.danger && !t.is_wrapped && !t.is_peeled && !t.is_foreign &&
                   !json_array_size(redirs->list);
    bool is_free = is_bare && !w->is_deferred && !t.is_once && t.at < t.all.count &&
                   shell_is_free(&t.all.items[t.at], t.all.count - t.at);
    bool is_read = is_bare && t.is_done;
    note_directory(w, &t);
    t.is_once = t.is_once ||
                (t.at < t.all.count && reads_program(&t.all.items[t.at], t.all.count - t.at));
    if (r == 0 && !is_free && !is_read)
        r = emit_taken(&t);
    shell_words_done(&t.all);
    return r;
}

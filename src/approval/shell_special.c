/* SPDX-License-Identifier: Apache-2.0 */

/* Commands that are more than a program with its words: shells and interpreters, programs and
 * builtins with a text for a shell in their words, builtins that take names of variables.
 *
 * Only bash reads a text as it is read here. Its text stands in place of the command if nothing
 * is before `bash -c` and its options change nothing. The text of any other shell is read for
 * dangers only, and the command itself is asked in exactly its words. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIND_WORDS_MAX = 8192 };

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

/* For a command whose effect cannot be analysed: each use of it needs an approval. */
void shell_give_up(struct shell_taking *t, const char *danger)
{
    t->danger = t->danger ? t->danger : danger;
    t->is_once = true;
    t->is_done = false;
}

/* --- texts */

static int read_text(
    struct shell_taking *t, const char *text, size_t prefix, enum shell_inside inside)
{
    if (t->is_wrapped && inside != SHELL_SAME && inside != SHELL_LATER)
        inside = SHELL_WRAPPED;
    const char *outer = t->w->danger;
    const bool was_fed = t->w->is_fed;
    t->w->danger = t->danger ? t->danger : outer;
    t->w->is_fed = was_fed || t->redirs->has_text; /* a shell shares its input with commands */
    int r = shell_walk_text(t->w, text, t->all.items, prefix, inside);
    t->w->danger = outer;
    t->w->is_fed = was_fed;
    if (r == -EBADMSG) {
        shell_give_up(t, "shell.unclear");
        return 0;
    }
    t->is_done = r == 0;
    return r;
}

/* The words from `from` on, joined as eval and ssh do; NULL when one is not known. */
static char *join(const struct shell_taking *t, size_t from)
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

int shell_take_joined(struct shell_taking *t, size_t from, enum shell_inside inside)
{
    cleanup_free char *text = join(t, from);
    if (text)
        return read_text(t, text, from, inside);
    t->w->forms->marks = t->w->forms->marks || inside == SHELL_SAME;
    shell_give_up(t, "shell.evaluate");
    return 0;
}

/* A program from the standard input. Its text is known only for a literal here-document. */
static int take_input(struct shell_taking *t, bool is_shell)
{
    t->w->forms->reads_code = true;
    if (is_shell && t->redirs->input)
        return read_text(t, t->redirs->input, t->all.count, SHELL_OTHER);
    shell_give_up(t, is_shell ? "shell.input" : "interpreter.input");
    return 0;
}
static const char *shape_of(const struct shell_taking *t, size_t at)
{
    return t->all.items[at].shape;
}

/* bash with options that change nothing in the meaning of its text. */
static bool is_plain_bash(const struct shell_taking *t, size_t end)
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
static int take_shell(struct shell_taking *t)
{
    bool has_text = false;
    bool is_open = true;
    size_t at = t->at + 1;
    for (; is_open && at < t->all.count; at++) {
        const struct shell_word *word = &t->all.items[at];
        if (!word->is_literal && word->shape[0] != '/' && word->shape[0] != '~' &&
            !word->is_single) {
            shell_give_up(t, "shell.evaluate");
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
        shell_give_up(t, "shell.evaluate");
    else if (is_stdin(word))
        return take_input(t, true);
    return 0;
}

static int take_interpreter(struct shell_taking *t)
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
static int take_trap(struct shell_taking *t)
{
    size_t at = t->at + 1;
    if (at < t->all.count && str_eq(t->all.items[at].shape, "--"))
        at++;
    if (at >= t->all.count || shell_name_is(t->all.items[at].shape, "-p -l -")) {
        t->is_done = true;
        t->w->outputs++;
        return 0;
    }
    if (!t->all.items[at].is_literal) {
        t->w->forms->marks = true;
        shell_give_up(t, "shell.evaluate");
        return 0;
    }
    return read_text(t, t->all.items[at].shape, at, SHELL_LATER);
}

/* ssh [options] host [words]: the far shell gets the words as one text. */
static int take_ssh(struct shell_taking *t)
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
        shell_give_up(t, "remote.unclear");
    else if (from < t->all.count)
        return shell_take_joined(t, from, SHELL_WRAPPED);
    else
        return take_input(t, true);
    return 0;
}

/* A text behind an option: su -c TEXT, script -c TEXT, --command=TEXT. */
static int take_option_text(struct shell_taking *t)
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
    shell_give_up(t, "shell.unclear");
    return 0;
}

/* env -S TEXT splits the text as a shell does, as long as it has plain characters only. */
static int take_split(struct shell_taking *t)
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
    shell_give_up(t, "shell.unclear");
    return 0;
}

/* capsh ... -- WORDS: the words are those of a shell. */
static int take_capsh(struct shell_taking *t)
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
static int take_daemon(struct shell_taking *t)
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
    shell_give_up(t, "shell.unclear");
    t->danger = shell_stronger(t->danger, danger);
    return 0;
}

/* Builtins that take names of variables. A name may be an element of an array, whose subscript
 * is evaluated, and `mapfile -C` runs a text. */
static int take_names(struct shell_taking *t)
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
        shell_give_up(t, "shell.evaluate");
    return 0;
}

static int take_eval(struct shell_taking *t)
{
    size_t from = t->at + 1;
    if (from < t->all.count && str_eq(t->all.items[from].shape, "--"))
        from++;
    return shell_take_joined(t, from, SHELL_SAME);
}

/* Commands that change the meaning of later words. */
static int take_define(struct shell_taking *t)
{
    shell_give_up(t, "shell.define");
    return 0;
}

/* `builtin declare -i x`, `\\let x`: shfmt takes these for commands like others. */
static int take_declare(struct shell_taking *t)
{
    t->w->forms->marks = true;
    t->assigns = true;
    shell_give_up(t, "shell.evaluate");
    return 0;
}

static int take_source(struct shell_taking *t)
{
    for (size_t i = t->at + 1; i < t->all.count; i++)
        t->w->forms->reads_code = t->w->forms->reads_code || is_stdin(&t->all.items[i]);
    shell_give_up(t, "shell.source");
    return 0;
}

static const struct {
    const char *names;
    int (*take)(struct shell_taking *t);
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

/* find: each -exec has a command of its own, up to ; or +. Without an end it has all words
 * behind it, so many of them take too long to look at. */
static void take_find(struct shell_taking *t)
{
    size_t looked = 0;
    for (size_t i = t->at + 1; i < t->all.count; i++) {
        if (!shell_name_is(t->all.items[i].shape, "-exec -execdir -ok -okdir"))
            continue;
        size_t end = i + 1;
        while (end < t->all.count && !shell_name_is(t->all.items[end].shape, "; +"))
            end++;
        size_t from = i + 1;
        looked += end - i;
        if (looked > FIND_WORDS_MAX) {
            shell_give_up(t, "shell.unclear");
            return;
        }
        const char *danger = from < end ? shell_danger(&t->all.items[from], end - from) : NULL;
        const char *name = from < end ? shell_program(&t->all.items[from]) : "";
        if (from < end && (!t->all.items[from].is_literal || shell_find_wrapper(name) ||
                              shell_name_is(name, SHELLS " " INTERPRETERS)))
            shell_give_up(t, "shell.unclear");
        t->danger = danger ? danger : t->danger;
    }
}

int shell_take_special(struct shell_taking *t, const char *name)
{
    for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++) {
        const char *wanted = specials[i].is_builtin ? shape_of(t, t->at) : name;
        if (!shell_name_is(wanted, specials[i].names))
            continue;
        if (t->is_fed)
            shell_give_up(t, "shell.input");
        return t->is_fed ? 0 : specials[i].take(t);
    }
    if (str_eq(name, "find"))
        take_find(t);
    return 0;
}

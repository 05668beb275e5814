/* SPDX-License-Identifier: Apache-2.0 */

/* One simple command. Wrappers (sudo, env, timeout, xargs) are peeled (shell_wrapper.c), texts
 * for shells (`bash -c`, `eval`, `trap`, `ssh host`) are read in their turn (shell_special.c).
 * A command that cannot be followed is shown as it is and asked each time. A program outside of
 * the directories of the system is asked in exactly its words, whatever its name is. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { PEELS_MAX = 16 };

static void check_variable(struct shell_taking *t, const char *word)
{
    if (shell_word_sets_special(word))
        t->danger = t->danger ? t->danger : "environment";
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
/* A wrapper with options that the table does not have. What nothing permits is still seen when
 * it is one of the first words that are no options. */
static int take_unclear(struct shell_taking *t, const char *name)
{
    unsigned seen = 0;
    if (shell_name_is(name, "flock runuser"))
        return shell_take_special(t, name);
    if (str_eq(name, "env") && shell_has_option(&t->all.items[t->at], 2, "-S --split-string"))
        return shell_take_special(t, name);
    shell_give_up(t, "shell.unclear");
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
static int unwrap(struct shell_taking *t, const struct shell_wrapper *row, const char *name,
    bool *ret_is_over)
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
    /* After `exec >file` the rest of the text writes there. */
    if (str_eq(name, "exec") && at == t->all.count && json_array_size(t->redirs->list))
        t->is_once = true;
    t->at = at;
    t->is_foreign = t->is_foreign || is_joined;
    *ret_is_over = is_joined;
    return is_joined ? shell_take_joined(t, at, SHELL_WRAPPED) : 0;
}

/* runuser without -u is as su: its words are a user and a text. */
static bool is_login(const struct shell_taking *t, const char *name)
{
    const char *next = t->at + 1 < t->all.count ? t->all.items[t->at + 1].shape : "";
    return str_eq(name, "runuser") && !shell_name_is(next, "-u* --user*");
}

static int look(struct shell_taking *t)
{
    int r = 0;
    bool is_over = false;
    for (unsigned peels = 0; r == 0 && !is_over && t->at < t->all.count; peels++) {
        const struct shell_word *word = &t->all.items[t->at];
        const char *name = shell_program(word);
        const struct shell_wrapper *row = shell_find_wrapper(name);
        if (!word->is_literal || peels > PEELS_MAX) {
            t->w->forms->marks = true; /* it may be `declare` */
            shell_give_up(t, "shell.dynamic");
            return 0;
        }
        t->is_foreign = t->is_foreign || !is_of_system(word);
        if (!row || is_login(t, name))
            return shell_take_special(t, name);
        t->danger = shell_stronger(t->danger, shell_danger(word, t->all.count - t->at));
        r = unwrap(t, row, name, &is_over);
    }
    return r;
}

static void note_directory(struct shell_walk *w, const struct shell_taking *t)
{
    const struct shell_word *words = &t->all.items[t->at];
    size_t count = t->all.count - t->at;
    if (!count || !shell_name_is(words[0].shape, "cd pushd popd"))
        return;
    bool is_stack = !shell_name_is(words[0].shape, "cd pushd");
    bool is_clear = count == 1 ? str_eq(words[0].shape, "cd")
                               : count == 2 && shell_is_steady_path(&words[1]);
    w->is_lost = w->is_lost || is_stack || !is_clear;
    if (count > 1 && !is_stack) {
        cleanup_free char *inside = xasprintf("%s/x", words[1].shape);
        const struct shell_word file = {inside, inside, true, true, false, NULL};
        bool is_far = strchr("/~", words[1].shape[0]) != NULL;
        w->is_sensitive = (w->is_sensitive && !is_far) || shell_danger_of_write(&file);
    }
    w->directory = is_clear ? shell_directory_after(w, count > 1 ? &words[1] : NULL) : NULL;
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

static int emit_taken(struct shell_taking *t)
{
    struct shell_forms *forms = t->w->forms;
    bool is_exact = t->is_wrapped || t->is_foreign;
    int r = shell_emit(t->w, &t->all, is_exact ? t->all.count + t->at : t->at, t->redirs,
        t->danger, t->is_once);
    if (r == 0 && t->assigns)
        forms->items[forms->count - 1].assigning = SHELL_ASSIGNS;
    return r;
}

/* After `set -a` each assignment is an export. */
static bool exports_all(const struct shell_taking *t)
{
    bool is_set = t->at < t->all.count && str_eq(t->all.items[t->at].shape, "set");
    for (size_t i = t->at + 1; is_set && i < t->all.count; i++) {
        const struct shell_word *word = &t->all.items[i];
        if (str_eq(word->shape, "--"))
            return false;
        if (!word->is_literal || shell_name_is(word->shape, "-*[ak]* allexport keyword"))
            return true;
    }
    return false;
}

/* A free command that prints nothing, and no text of its own when it fails. */
static bool is_silent(const struct shell_word *words, size_t count)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._~+-=!]";
    bool is_cd = str_eq(words[0].shape, "cd");
    bool found =
        shell_name_is(words[0].shape, ": true false cd test \\[ set exit return break continue "
                                      "shift wait");
    for (size_t i = 1; i < count; i++) {
        const char *shape = words[i].shape;
        found = found && !words[i].is_open && shape[strspn(shape, plain)] == '\0' &&
                !(is_cd && shape[0] == '-');
    }
    return found;
}

int shell_take(struct shell_walk *w, const struct shell_words *assigns,
    const struct shell_words *words, const struct shell_redirs *redirs)
{
    struct shell_taking t = {
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
    w->forms->marks = w->forms->marks || (!is_free && exports_all(&t));
    w->outputs += is_free && !is_silent(&t.all.items[t.at], t.all.count - t.at);
    t.is_once = t.is_once ||
                (t.at < t.all.count && reads_program(&t.all.items[t.at], t.all.count - t.at));
    if (r == 0 && !is_free && !is_read)
        r = emit_taken(&t);
    shell_words_done(&t.all);
    return r;
}

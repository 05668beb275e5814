/* SPDX-License-Identifier: Apache-2.0 */

/* What is emitted for a command: its words, what a grant of it covers, the files that it
 * writes, and whether an approval of it can last. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMMANDS_MAX = 256 };

const char *shell_stronger(const char *a, const char *b)
{
    return b && (!a || str_has_prefix(b, "never.")) ? b : a;
}

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

/* Whether braces or a pattern may make an option of the word: `-del*`, `{-delete,x}`. Names of
 * files with a dash are none, nor is the value of an option, as in `--include=*.c`. */
static bool may_be_option(const struct shell_word *word)
{
    const char *shape = word->shape;
    if (word->is_literal)
        return false;
    if (shape[0] == '-')
        return strpbrk(shape, "*?[{=") && *strpbrk(shape, "*?[{=") != '=';
    return shape[0] == '{' &&
           (strstr(shape, "{-") || strstr(shape, ",-") || strstr(shape, "..-"));
}

static const char *danger_of_patterns(const struct shell_words *words)
{
    for (size_t i = 1; i < words->count; i++)
        if (may_be_option(&words->items[i]))
            return "shell.dynamic";
    return NULL;
}

/* `program` is where an ordinary command begins; behind the words when the command is not
 * ordinary. Without words only files are opened, as `: >file` does. */
int shell_emit(struct shell_walk *w, const struct shell_words *words, size_t program,
    const struct shell_redirs *redirs, const char *danger, bool is_once)
{
    struct shell_forms *forms = w->forms;
    if (forms->count == COMMANDS_MAX)
        return -E2BIG;
    json_t *files = redirs ? json_copy(redirs->files) : json_array();
    const char *written = NULL;
    for (size_t i = 0; redirs && i < redirs->targets.count; i++)
        written = shell_stronger(written, shell_danger_of_write(&redirs->targets.items[i]));
    if (redirs && redirs->reads_secret)
        danger = danger ? danger : "read.secret";
    /* What runs later runs in a directory and with an input that are not known here. */
    is_once = is_once || w->is_lost || w->is_deferred || has_open(words, redirs);
    size_t from = program > words->count ? program - words->count : program;
    if (from < words->count)
        shell_written(&words->items[from], words->count - from, files, &written);
    if (w->is_sensitive && json_array_size(files))
        written = shell_stronger("write.sensitive", written);
    danger = shell_stronger(danger, written);
    danger = danger ? danger : danger_of_patterns(words);
    struct shell_command c = {.argv = words->count ? words_json(words) : json_pack("[s]", ":"),
        .redirections = redirs ? json_incref(redirs->list) : json_array(),
        .files = files,
        .cwd = xstrdup(w->cwd),
        .danger = danger,
        .is_once = is_once};
    for (size_t i = 0; !words->count && i < w->prefix.count; i++)
        (void)json_array_insert_new(c.argv, i, shell_word_json(&w->prefix.items[i]));
    c.is_once = is_once || (danger && (has_dynamic(c.argv) || has_dynamic(c.redirections)));
    bool writes = redirs && redirs->targets.count; /* what it reads is then in a file */
    c.grant = danger || is_once || writes ? json_incref(c.argv)
                                          : grant_of(words, program, c.argv, &c.is_ordinary);
    /* The words of such a command do not say what it does with input from the text. */
    bool has_text = w->is_fed || (redirs && redirs->has_text);
    c.is_once = c.is_once || (has_text && !c.is_ordinary);
    w->outputs += c.is_ordinary;
    forms->items = xreallocarray(forms->items, forms->count + 1, sizeof(c));
    forms->items[forms->count++] = c;
    return 0;
}

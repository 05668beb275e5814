/* SPDX-License-Identifier: Apache-2.0 */

/* Redirections of a statement: files, here-documents, here-strings. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The operator of a redirection, which begins with the longest. */
static const char *redirection(const struct shell_walk *w, const json_t *node)
{
    static const char *const operators[] = {
        "&>>", "<<<", "<<-", "&>", "<<", "<>", "<&", ">>", ">&", ">|", ">", "<"};
    long at = shell_offset(w, node, "OpPos");
    for (size_t i = 0; at >= 0 && i < sizeof(operators) / sizeof(operators[0]); i++) {
        size_t len = strlen(operators[i]);
        if ((size_t)at + len <= w->len && strncmp(w->text + at, operators[i], len) == 0)
            return operators[i];
    }
    return NULL;
}

void shell_redirs_done(struct shell_redirs *r)
{
    json_decref(r->list);
    json_decref(r->files);
    shell_words_done(&r->targets);
    free(r->input);
}

/* The text of a here-document or here-string that has no expansions and no escapes. */
static int take_input(
    struct shell_walk *w, const json_t *word, const json_t *body, struct shell_redirs *to)
{
    const json_t *parts = json_object_get(body, "Parts");
    free(to->input);
    to->input = NULL;
    if (body && json_array_size(parts) == 1 &&
        str_eq(json_string_value(json_object_get(json_array_get(parts, 0), "Type")), "Lit")) {
        const char *text =
            json_string_value(json_object_get(json_array_get(parts, 0), "Value"));
        to->input = text && !strchr(text, '\\') ? xstrdup(text) : NULL;
    } else if (!body) {
        struct shell_word one = {0};
        if (shell_word_read(w, word, &one) < 0)
            return -EBADMSG;
        if (one.is_literal)
            to->input = xstrdup(one.shape);
        free(one.shape);
        free(one.source);
    }
    return 0;
}

/* Whether a here-document ends where bash ends it. In one without quotes bash joins a line that
 * ends in a backslash with the next one before it looks for the delimiter; shfmt does not. */
static bool ends_as_in_bash(
    const struct shell_walk *w, const json_t *word, const char *op, const json_t *body)
{
    CLEANUP(shell_words_done) struct shell_words delimiter = {0};
    struct shell_word one = {0};
    long at = shell_offset(w, body, "Pos");
    long end = shell_offset(w, body, "End");
    if (shell_word_read(w, word, &one) < 0)
        return false;
    shell_words_add(&delimiter, &one);
    free(one.shape);
    free(one.source);
    bool is_quoted = strpbrk(delimiter.items[0].source, "\\'\"") != NULL;
    if (!delimiter.items[0].is_literal || at < 0 || end < at)
        return false;
    if (is_quoted)
        return true;
    cleanup_free char *line = xcalloc(1, w->len - (size_t)at + 1);
    for (size_t i = (size_t)at, len = 0; i <= w->len; i++) {
        bool is_end = i == w->len || w->text[i] == '\n';
        bool is_escape = !is_end && w->text[i] == '\\' && i + 1 < w->len;
        if (is_escape && w->text[i + 1] == '\n') {
            i++;
            continue;
        }
        if (!is_end) {
            line[len++] = w->text[i];
            if (is_escape)
                line[len++] = w->text[++i];
            continue;
        }
        line[len] = '\0';
        size_t tabs = str_eq(op, "<<-") ? strspn(line, "\t") : 0;
        if (str_eq(line + tabs, delimiter.items[0].shape))
            return (size_t)end == i;
        len = 0;
    }
    return false;
}

/* N and N- copy or move a descriptor, and - closes one. For bash 1-2 is a file. */
static bool is_descriptor(const struct shell_word *word)
{
    const char *end = word->shape + strspn(word->shape, "0123456789");
    return word->is_literal && word->shape[0] && (!*end || str_eq(end, "-"));
}

/* A descriptor or a file that gives what the shell has open already: a pipe of `coproc`, a
 * substitution, text of an earlier `exec`. The words do not say what comes from it. */
static bool is_open_already(const struct shell_word *word, bool is_copy)
{
    return is_copy ? !shell_name_is(word->shape, "0 0- -")
                   : shell_path_is("/dev/stdin /dev/fd/** /proc/*/fd/**", word, 0);
}

static int take_target(struct shell_walk *w, const json_t *node, const char *op,
    const json_t *target, struct shell_redirs *to)
{
    CLEANUP(shell_words_done) struct shell_words one = {0};
    struct shell_word word = {0};
    const char *number = shell_text_of(node, "N");
    if (shell_word_read(w, target, &word) < 0)
        return -EBADMSG;
    shell_words_add(&one, &word);
    free(word.shape);
    free(word.source);
    const struct shell_word *file = &one.items[0];
    bool is_copy = strchr(op, '&') && !strchr(op + 1, '>') && op[0] != '&';
    bool is_input = op[0] == '<' && op[1] != '>';
    is_copy = is_copy && is_descriptor(file);
    to->has_text = to->has_text || (is_input && is_open_already(file, is_copy));
    /* 0 to 2 are where the exec reads and writes; what has another number was opened before. */
    if ((is_copy && shell_name_is(file->shape, "- 0 1 2 0- 1- 2-")) ||
        (file->is_literal && str_eq(file->shape, "/dev/null")))
        return 0;
    cleanup_free char *shown = xasprintf(
        "%s%s%s", number ? number : "", op, file->is_literal ? file->shape : file->source);
    (void)json_array_append_new(
        to->list, file->is_literal ? json_string(shown) : json_pack("{s:s}", "dynamic", shown));
    to->is_open = to->is_open || file->is_open;
    to->reads_secret = to->reads_secret || (op[0] == '<' && shell_is_secret(file));
    if (!is_input && !is_copy) {
        shell_words_add(&to->targets, file);
        (void)json_array_append_new(to->files, shell_word_json(file));
    }
    return 0;
}

/* The input of a shell is known when its stdin is one here-document and nothing else. With <<-
 * the shell removes tabs, which would change the text. */
int shell_redirs_read(struct shell_walk *w, const json_t *list, struct shell_redirs *to)
{
    unsigned inputs = 0;
    bool is_exact = true;
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        const json_t *node = json_array_get(list, i);
        const json_t *word = json_object_get(node, "Word");
        const char *op = redirection(w, node);
        const char *number = shell_text_of(node, "N");
        if (!op || !word)
            return -EBADMSG;
        const json_t *body = json_object_get(node, "Hdoc");
        if (body && !ends_as_in_bash(w, word, op, body))
            return -EBADMSG;
        if (number && number[0] == '{') /* {name}>file assigns a variable */
            r = shell_emit_source(w, "assign", node, "environment");
        bool is_stdin = op[0] == '<' && (!number || str_eq(number, "0"));
        inputs += is_stdin;
        to->has_text = to->has_text || strncmp(op, "<<", 2) == 0;
        is_exact = is_exact && !str_eq(op, "<<-");
        if (r == 0 && is_stdin && strncmp(op, "<<", 2) == 0)
            r = take_input(w, word, body, to);
        else if (r == 0 && strncmp(op, "<<", 2) != 0)
            r = take_target(w, node, op, word, to);
    }
    if (inputs != 1 || !is_exact) {
        free(to->input);
        to->input = NULL;
    }
    return r;
}

/* A loop, a block and so on with redirections. What it writes to a file is a part of what is
 * asked: a free `echo` in it shows nowhere else. */
int shell_emit_redirected(
    struct shell_walk *w, const json_t *command, const struct shell_redirs *redirs)
{
    CLEANUP(shell_words_done) struct shell_words words = {0};
    struct shell_loop loop = {.outer = w->loop};
    size_t len = 0;
    const char *source = shell_source(w, command, &len);
    bool is_for = str_eq(json_string_value(json_object_get(command, "Type")), "ForClause");
    if (!command || !redirs->targets.count)
        return shell_emit(w, &words, 0, redirs, NULL, false);
    if (!source || (is_for && shell_loop_begin(w, command, &loop) < 0))
        return -EBADMSG;
    bool is_open = shell_is_open(w, command);
    if (is_for)
        shell_loop_end(w, &loop);
    char *shown = shell_source_with_loops(w, command, xstrndup(source, len));
    const struct shell_word word = {(char *)"\x01", shown, false, false, is_open, NULL};
    shell_words_add(&words, &word);
    free(shown);
    return shell_emit(w, &words, words.count, redirs, NULL, false);
}

bool shell_only_reads(const struct shell_forms *forms, size_t first)
{
    bool is_all = true;
    for (size_t i = first; i < forms->count; i++) {
        const struct shell_command *c = &forms->items[i];
        const char *name = json_string_value(json_array_get(c->argv, 0));
        is_all = is_all && (c->is_ordinary || c->assigning == SHELL_ASSIGNS_ONLY ||
                               (name && shell_name_is(name, "read mapfile readarray")));
    }
    return is_all;
}

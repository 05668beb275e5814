/* SPDX-License-Identifier: Apache-2.0 */

/* Which words are decided by the text alone. A variable may have been set by an earlier text of
 * the same shell, so an approval of a command with one must not last: the same words do
 * something else with another value. The variable of a `for` loop over words of the text is
 * known, and these words are shown with it. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVELS_MAX = SHELL_LEVELS_MAX,
    LOOP_MAX =
        1024, /* bytes of a loop's words: each word with its variable is shown with them */
};

typedef bool tester(const struct shell_walk *w, const json_t *node, const char *name);

/* Whether a node below, or this one, passes the test. */
static bool some_node(const struct shell_walk *w, const json_t *node, tester *test,
    const char *name, unsigned level)
{
    const char *member;
    json_t *value;
    size_t i;
    bool found = level > LEVELS_MAX || (json_is_object(node) && test(w, node, name));
    json_array_foreach(node, i, value) found =
        found || some_node(w, value, test, name, level + 1);
    json_object_foreach((json_t *)node, member, value) found =
        found || some_node(w, value, test, name, level + 1);
    return found;
}

static bool is_parameter(const json_t *node)
{
    return str_eq(json_string_value(json_object_get(node, "Type")), "ParamExp");
}

static const struct shell_loop *find_loop(const struct shell_walk *w, const char *name)
{
    const struct shell_loop *loop = w->loop;
    while (loop && !str_eq(loop->name, name))
        loop = loop->outer;
    return loop;
}

/* HOME counts as known: a change of it is asked. A loop sets no other element of an array. */
static bool is_open_parameter(const struct shell_walk *w, const json_t *node)
{
    const char *name = shell_text_of(node, "Param");
    return is_parameter(node) && (json_object_get(node, "Index") ||
                                     (!str_eq(name, "HOME") && !(name && find_loop(w, name))));
}

/* A builtin that prints what the shell keeps: directories, options, jobs. `cd -` does, too. The
 * text of an eval may do anything. */
static bool prints_state(const struct shell_walk *w, const json_t *args)
{
    bool is_cd = false;
    bool found = false;
    bool is_over = false;
    for (size_t i = 0; i < json_array_size(args) && !found && !is_over; i++) {
        cleanup_free char *shape = shell_word_shape(w, json_array_get(args, i));
        if (!shape)
            return true;
        bool is_option = shape[0] == '-';
        found = is_cd ? is_option
                      : shell_name_is(shape, "dirs pushd popd set trap jobs umask ulimit "
                                             "shopt times eval declare typeset local "
                                             "export readonly");
        is_over = !is_cd && !is_option && !shell_name_is(shape, "builtin command cd");
        is_cd = is_cd || str_eq(shape, "cd");
    }
    return found;
}

/* ~+, ~- and ~1 where a directory may begin. */
static bool has_own_directory(const char *text)
{
    for (const char *at = text; (at = strchr(at, '~')); at++) {
        if (at[1] && strchr("+-0123456789", at[1]) && (at == text || strchr("=:{,", at[-1])))
            return true;
    }
    return false;
}

/* What substitutions show of the shell: its variables, directories and open files. */
static bool shows_state(const struct shell_walk *w, const json_t *node)
{
    const char *type = json_string_value(json_object_get(node, "Type"));
    const char *text = json_string_value(json_object_get(node, "Value"));
    long at = json_object_get(node, "Op") ? shell_offset(w, node, "OpPos") : -1;
    return str_eq(type, "DeclClause") ||
           (at >= 0 && (size_t)at + 2 < w->len && strncmp(w->text + at, "<&", 2) == 0) ||
           (text && (strstr(text, "/dev/fd") || strstr(text, "/dev/stdin") ||
                        has_own_directory(text))) ||
           prints_state(w, json_object_get(node, "Args"));
}

static bool is_open_node(const struct shell_walk *w, const json_t *node, const char *unused)
{
    (void)unused;
    return is_open_parameter(w, node) || shows_state(w, node);
}

bool shell_is_open(const struct shell_walk *w, const json_t *node)
{
    return some_node(w, node, is_open_node, NULL, 0);
}

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether a text has the name in it as a word. */
static bool has_name(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at++) {
        if (!(at > text && is_letter(at[-1])) && !is_letter(at[len]))
            return true;
    }
    return false;
}

/* ${x=y} and ${x:=y}. What has no word behind its operator counts, too. */
static bool assigns(const struct shell_walk *w, const json_t *node)
{
    const json_t *exp = json_object_get(node, "Exp");
    long at = shell_offset(w, json_object_get(exp, "Word"), "Pos");
    return exp && (at < 1 || w->text[at - 1] == '=');
}

static bool uses_name(const struct shell_walk *w, const json_t *node, const char *name)
{
    const char *text = json_string_value(json_object_get(node, "Value"));
    return (text && has_name(text, name)) || (is_parameter(node) && assigns(w, node) &&
                                                 str_eq(shell_text_of(node, "Param"), name));
}

/* Whether a word is, or has, the name once its quotes are gone: `read f"oo"`. */
static bool word_has_name(const struct shell_walk *w, const json_t *node, const char *name)
{
    struct shell_word word = {0};
    if (json_object_get(node, "Type") || !json_object_get(node, "Parts"))
        return false;
    if (shell_word_read(w, node, &word) < 0)
        return true;
    bool found = has_name(word.shape, name);
    free(word.shape);
    free(word.source);
    return found;
}

/* Whether the body does more with the name than to read it: `read x`, `x=5`, eval 'x=5'. */
static bool may_change(const struct shell_walk *w, const json_t *node, const char *name)
{
    const char *member;
    json_t *value;
    size_t i;
    if (json_is_object(node) && (uses_name(w, node, name) || word_has_name(w, node, name)))
        return true;
    bool found = false;
    json_array_foreach(node, i, value) found = found || may_change(w, value, name);
    json_object_foreach((json_t *)node, member, value)
    {
        bool is_name = is_parameter(node) && str_eq(member, "Param");
        found = found || (!is_name && may_change(w, value, name));
    }
    return found;
}

int shell_loop_begin(struct shell_walk *w, const json_t *node, struct shell_loop *loop)
{
    const json_t *iter = json_object_get(node, "Loop");
    const json_t *items = json_object_get(iter, "Items");
    size_t len = 0;
    const char *source = iter ? shell_source(w, iter, &len) : NULL;
    const char *name = shell_text_of(iter, "Name");
    *loop = (struct shell_loop){.outer = w->loop};
    if (!source)
        return -EBADMSG;
    if (!name || len > LOOP_MAX || !json_array_size(items) || shell_is_open(w, items) ||
        may_change(w, json_object_get(node, "Do"), name))
        return 0;
    loop->name = xstrdup(name);
    loop->source = xstrndup(source, len);
    w->loop = loop;
    return 0;
}

void shell_loops_are_open(struct shell_walk *w)
{
    for (struct shell_loop *loop = w->loop; loop; loop = loop->outer)
        loop->is_open = true;
}

void shell_loop_end(struct shell_walk *w, struct shell_loop *loop)
{
    w->loop = loop->outer;
    free(loop->name);
    free(loop->source);
}

static bool is_of_loop(const struct shell_walk *w, const json_t *node, const char *name)
{
    (void)w;
    return is_parameter(node) && str_eq(shell_text_of(node, "Param"), name);
}

char *shell_source_with_loops(const struct shell_walk *w, const json_t *node, char *source)
{
    for (const struct shell_loop *loop = w->loop; loop; loop = loop->outer) {
        if (!some_node(w, node, is_of_loop, loop->name, 0))
            continue;
        char *longer = xasprintf("%s with %s", source, loop->source);
        free(source);
        source = longer;
    }
    return source;
}

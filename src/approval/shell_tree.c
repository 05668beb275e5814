/* SPDX-License-Identifier: Apache-2.0 */

/* The walk over the tree of shfmt. Every member of every node is visited, so no statement is
 * missed wherever it stands. A node of an unknown type ends the walk: a text that is not
 * understood needs approval as a whole. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MAX = 1 << 20,
    LEVELS_MAX = SHELL_LEVELS_MAX,
    WORDS_MAX = 4096, /* of a command */
    TEXT_DEPTH_MAX = 8,
    TEXTS_MAX = 24, /* in one text, at all depths */
};

typedef int visitor(struct shell_walk *w, const json_t *node, unsigned level);

static int visit(struct shell_walk *w, const json_t *node, unsigned level);

int shell_visit_members(struct shell_walk *w, const json_t *node, unsigned level)
{
    const char *name;
    json_t *value;
    int r = 0;
    json_object_foreach((json_t *)node, name, value)
    {
        if (r == 0 && (json_is_object(value) || json_is_array(value)))
            r = visit(w, value, level + 1);
    }
    return r;
}

const char *shell_text_of(const json_t *node, const char *member)
{
    return json_string_value(json_object_get(json_object_get(node, member), "Value"));
}

int shell_emit_source(
    struct shell_walk *w, const char *what, const json_t *node, const char *danger)
{
    size_t len = 0;
    const char *source = shell_source(w, node, &len);
    if (!source)
        return -EBADMSG;
    CLEANUP(shell_words_done) struct shell_words words = {0};
    cleanup_free char *copy = xstrndup(source, len);
    const struct shell_word name = {(char *)what, (char *)what, true, true, false, NULL};
    const struct shell_word rest = {(char *)"\x01", copy, false, false, true, NULL};
    shell_words_add(&words, &name);
    shell_words_add(&words, &rest);
    return shell_emit(w, &words, 0, NULL, danger, true);
}

/* --- where commands run */

struct place {
    char *cwd;
    bool is_lost;
    bool is_sensitive;
    const char *directory;
};

static struct place keep_place(const struct shell_walk *w)
{
    return (struct place){xstrdup(w->cwd), w->is_lost, w->is_sensitive, w->directory};
}

static void return_to(struct shell_walk *w, struct place *place)
{
    free(w->cwd);
    w->cwd = place->cwd;
    w->is_lost = place->is_lost;
    w->is_sensitive = place->is_sensitive;
    w->directory = place->directory;
}

/* Visits a part that runs in a shell of its own: a `cd` in it has no effect after it. */
static int visit_aside(struct shell_walk *w, const json_t *node, unsigned level)
{
    struct place before = keep_place(w);
    bool was_export = w->is_export;
    w->is_export = false;
    int r = shell_visit_members(w, node, level);
    w->is_export = was_export;
    return_to(w, &before);
    return r;
}

/* In backquotes a backslash has another meaning, and so has a here-document: a substitution in
 * backquotes with either is refused. */
static int visit_substitution(struct shell_walk *w, const json_t *node, unsigned level)
{
    size_t len = 0;
    const char *source = shell_source(w, node, &len);
    if (!source || (len && source[0] == '`' &&
                       (memchr(source, '\\', len) || memmem(source, len, "<<", 2))))
        return -EBADMSG;
    return visit_aside(w, node, level);
}

/* Loops, conditions and functions: whether and how often a `cd` in it runs is not known, also
 * for commands that stand before it. */
static int visit_branch(struct shell_walk *w, const json_t *node, unsigned level)
{
    size_t first = w->forms->count;
    cleanup_free char *before = xstrdup(w->cwd);
    int r = shell_visit_members(w, node, level);
    if (str_eq(before, w->cwd))
        return r;
    w->is_lost = true;
    w->directory = NULL;
    for (size_t i = first; i < w->forms->count; i++)
        w->forms->items[i].is_once = true;
    return r;
}

static int visit_for(struct shell_walk *w, const json_t *node, unsigned level)
{
    struct shell_loop loop;
    size_t first = w->forms->count;
    int r = shell_loop_begin(w, node, &loop);
    if (r == 0)
        r = visit_branch(w, node, level);
    for (size_t i = first; loop.is_open && i < w->forms->count; i++)
        w->forms->items[i].is_once = true;
    shell_loop_end(w, &loop);
    return r;
}

static bool all_ordinary(const struct shell_forms *forms, size_t first)
{
    bool is_all = true;
    for (size_t i = first; i < forms->count; i++)
        is_all = is_all && (forms->items[i].is_ordinary ||
                               forms->items[i].assigning == SHELL_ASSIGNS_ONLY);
    return is_all;
}

/* a && b, a || b, a | b. After `a && cd b` the whole of it says where a command runs. */
static int visit_binary(struct shell_walk *w, const json_t *node, unsigned level)
{
    size_t len = 0;
    const char *source = shell_source(w, node, &len);
    long at = shell_offset(w, node, "OpPos");
    if (!source || at < 0 || (size_t)at + 2 > w->len)
        return -EBADMSG;
    bool is_pipe = strncmp(w->text + at, "&&", 2) != 0 && strncmp(w->text + at, "||", 2) != 0;
    struct place before = keep_place(w);
    size_t first = w->forms->count;
    size_t outputs = w->outputs;
    bool was_fed = w->is_fed;
    int r = visit(w, json_object_get(node, "X"), level + 1);
    cleanup_free char *between = xstrdup(w->cwd);
    if (is_pipe) {
        return_to(w, &before);
        before = keep_place(w);
        w->is_fed = w->outputs > outputs || all_ordinary(w->forms, first);
    }
    if (r == 0)
        r = visit(w, json_object_get(node, "Y"), level + 1);
    w->is_fed = was_fed;
    if (is_pipe) {
        return_to(w, &before);
        return r;
    }
    if (!str_eq(between, w->cwd)) {
        free(w->cwd);
        w->cwd = xasprintf("%s%s%.*s", before.cwd, before.cwd[0] ? "; " : "", (int)len, source);
        w->is_lost = w->is_lost || memchr(source, '$', len) || memchr(source, '`', len);
    }
    free(before.cwd);
    return r;
}

/* `coproc x <y` runs x, and shfmt takes x for a name. */
static int visit_coproc(struct shell_walk *w, const json_t *node, unsigned level)
{
    return json_object_get(node, "Name") ? -EBADMSG : visit_aside(w, node, level);
}

/* shfmt takes the inside of @(..) for text, and bash expands it. */
static int visit_pattern(struct shell_walk *w, const json_t *node, unsigned level)
{
    size_t len = 0;
    const char *source = shell_source(w, node, &len);
    for (size_t i = 0; i < len; i++) {
        if (strchr("$`<>;&'\"\\\n", source[i]))
            return -EBADMSG;
    }
    return source ? shell_visit_members(w, node, level) : -EBADMSG;
}

/* --- functions */

static unsigned count_calls(
    const json_t *node, const char *name, bool *ret_background, unsigned level)
{
    const char *key;
    json_t *value;
    size_t i;
    unsigned count = 0;
    if (level > LEVELS_MAX)
        return 0;
    if (json_is_array(node)) {
        json_array_foreach(node, i, value) count +=
            count_calls(value, name, ret_background, level + 1);
        return count;
    }
    if (!json_is_object(node))
        return 0;
    *ret_background = *ret_background || json_is_true(json_object_get(node, "Background"));
    const json_t *args = json_object_get(node, "Args");
    const json_t *parts = json_object_get(json_array_get(args, 0), "Parts");
    const char *first = json_string_value(json_object_get(json_array_get(parts, 0), "Value"));
    count = json_array_size(parts) == 1 && str_eq(first, name);
    json_object_foreach((json_t *)node, key, value) count +=
        count_calls(value, name, ret_background, level + 1);
    return count;
}

static int visit_function(struct shell_walk *w, const json_t *node, unsigned level)
{
    const char *name = shell_text_of(node, "Name");
    bool has_background = false;
    if (!name)
        return -EBADMSG;
    unsigned calls = count_calls(json_object_get(node, "Body"), name, &has_background, 0);
    bool is_bomb = calls >= 2 && has_background;
    int r =
        shell_emit_source(w, "function", node, is_bomb ? "never.fork_bomb" : "shell.define");
    return r < 0 ? r : shell_visit_members(w, node, level);
}

/* --- statements */

static int read_words(struct shell_walk *w, const json_t *list, struct shell_words *ret)
{
    if (json_array_size(list) > WORDS_MAX)
        return -E2BIG;
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct shell_word word = {0};
        int r = shell_word_read(w, json_array_get(list, i), &word);
        if (r < 0)
            return r;
        shell_words_add(ret, &word);
        free(word.shape);
        free(word.source);
    }
    return 0;
}

/* A variable before a command, as one word. */
static int read_assigns(struct shell_walk *w, const json_t *list, struct shell_words *ret)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *node = json_array_get(list, i);
        const json_t *value = json_object_get(node, "Value");
        struct shell_word word = {0};
        size_t len = 0;
        const char *source = shell_source(w, node, &len);
        const char *name = shell_text_of(node, "Name");
        if (!source || !name || (value && shell_word_read(w, value, &word) < 0))
            return -EBADMSG;
        cleanup_free char *shape = xasprintf("%s=%s", name, word.shape ? word.shape : "");
        cleanup_free char *shown = xstrndup(source, len);
        const struct shell_word made = {shape, shown,
            (!value || word.is_literal) && !json_object_get(node, "Array"), true,
            word.is_open || shell_is_open(w, node), w->directory};
        shell_words_add(ret, &made);
        free(word.shape);
        free(word.source);
    }
    return 0;
}

static int take_call(
    struct shell_walk *w, const json_t *node, const struct shell_redirs *redirs)
{
    CLEANUP(shell_words_done) struct shell_words words = {0};
    CLEANUP(shell_words_done) struct shell_words assigns = {0};
    int r = read_words(w, json_object_get(node, "Args"), &words);
    if (r == 0)
        r = read_assigns(w, json_object_get(node, "Assigns"), &assigns);
    if (r == 0 && !words.count && json_array_size(redirs->list))
        r = shell_emit(w, &words, 0, redirs, NULL, false);
    if (r == 0 && words.count)
        r = shell_take(w, &assigns, &words, redirs);
    return r;
}

/* A variable before a command is a part of the command: take_call() has looked at its name. */
static int visit_call_members(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *assigns = json_object_get(node, "Assigns");
    const json_t *args = json_object_get(node, "Args");
    int r = args ? visit(w, args, level + 1) : 0;
    if (!json_array_size(args))
        return r == 0 && assigns ? visit(w, assigns, level + 1) : r;
    for (size_t i = 0; r == 0 && i < json_array_size(assigns); i++) {
        const json_t *one = json_array_get(assigns, i);
        if (json_object_get(one, "Index"))
            r = shell_emit_evaluation(w, one);
        if (r == 0)
            r = shell_visit_members(w, one, level + 2);
    }
    return r;
}

static int visit_call(struct shell_walk *w, const json_t *node, unsigned level)
{
    struct shell_redirs none = {.list = json_array(), .files = json_array()};
    int r = take_call(w, node, &none);
    shell_redirs_done(&none);
    return r < 0 ? r : visit_call_members(w, node, level);
}

static int visit_foreground(struct shell_walk *w, const json_t *node, unsigned level)
{
    struct shell_redirs redirs = {.list = json_array(), .files = json_array()};
    const json_t *command = json_object_get(node, "Cmd");
    const json_t *list = json_object_get(node, "Redirs");
    const json_t *comments = json_object_get(node, "Comments");
    bool is_call = str_eq(json_string_value(json_object_get(command, "Type")), "CallExpr");
    int r = comments ? visit(w, comments, level + 1) : 0;
    if (r == 0)
        r = shell_redirs_read(w, list, &redirs);
    if (r == 0 && is_call)
        r = take_call(w, command, &redirs);
    else if (r == 0 && json_array_size(redirs.list))
        r = shell_emit_redirected(w, command, &redirs);
    bool was_fed = w->is_fed;
    bool gives_file =
        command && !is_call && json_array_size(redirs.list) && !redirs.targets.count;
    size_t first = w->forms->count;
    w->is_fed = was_fed || (!is_call && redirs.has_text);
    shell_redirs_done(&redirs);
    if (r == 0 && command)
        r = is_call ? visit_call_members(w, command, level + 1) : visit(w, command, level + 1);
    /* `: <file` says nothing about the commands that get the file. */
    if (r == 0 && gives_file && !shell_only_reads(w->forms, first))
        w->forms->items[first - 1].is_once = true;
    w->is_fed = was_fed;
    return r == 0 && list ? visit(w, list, level + 1) : r;
}

static int visit_statement(struct shell_walk *w, const json_t *node, unsigned level)
{
    struct place before = keep_place(w);
    int r = visit_foreground(w, node, level);
    if (json_is_true(json_object_get(node, "Background")))
        return_to(w, &before);
    else
        free(before.cwd);
    return r;
}

/* --- the table of nodes */

static const struct {
    const char *type;
    visitor *visit;
} kinds[] = {
    {"ArithmCmd", shell_visit_arithmetic},
    {"ArithmExp", shell_visit_arithmetic},
    {"BinaryArithm", shell_visit_members},
    {"BinaryCmd", visit_binary},
    {"BinaryTest", shell_visit_binary_test},
    {"Block", shell_visit_members},
    {"BraceExp", shell_visit_members},
    {"CStyleLoop", shell_visit_let},
    {"CallExpr", visit_call},
    {"CaseClause", visit_branch},
    {"CmdSubst", visit_substitution},
    {"CoprocClause", visit_coproc},
    {"DblQuoted", shell_visit_members},
    {"DeclClause", shell_visit_declaration},
    {"ExtGlob", visit_pattern},
    {"File", shell_visit_members},
    {"ForClause", visit_for},
    {"FuncDecl", visit_function},
    {"IfClause", visit_branch},
    {"LetClause", shell_visit_let},
    {"Lit", shell_visit_members},
    {"ParamExp", shell_visit_parameter},
    {"ParenArithm", shell_visit_members},
    {"ParenTest", shell_visit_members},
    {"ProcSubst", visit_aside},
    {"SglQuoted", shell_visit_members},
    {"Subshell", visit_aside},
    {"TestClause", shell_visit_members},
    {"TimeClause", shell_visit_members},
    {"UnaryArithm", shell_visit_members},
    {"UnaryTest", shell_visit_unary_test},
    {"WhileClause", visit_branch},
    {"Word", shell_visit_members},
    {"WordIter", shell_visit_word_loop},
};

static visitor *find_visitor(const char *type)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (str_eq(kinds[i].type, type))
            return kinds[i].visit;
    }
    return NULL;
}

/* --- comments */

static bool is_comment(const json_t *node)
{
    return json_object_get(node, "Hash") && json_object_get(node, "Text");
}

/* Whether bash takes it for the same comment: it begins a word, and ends with its line, also
 * after a backslash. For shfmt the # of $x# begins one. */
static bool is_comment_in_bash(const struct shell_walk *w, const json_t *node)
{
    const char *text = json_string_value(json_object_get(node, "Text"));
    long at = shell_offset(w, node, "Hash");
    if (!text || at < 0 || strchr(text, '\n') || str_has_suffix(text, "\\"))
        return false;
    return at == 0 ||
           (strchr(" \t\n;&|", w->text[at - 1]) && (at == 1 || w->text[at - 2] != '\\'));
}

static int visit_object(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *type = json_object_get(node, "Type");
    visitor *known = find_visitor(json_string_value(type));
    if (type && !known)
        return -EBADMSG;
    if (known)
        return known(w, node, level);
    if (is_comment(node) && !is_comment_in_bash(w, node))
        return -EBADMSG;
    if (json_object_get(node, "Cmd") || json_object_get(node, "Redirs"))
        return visit_statement(w, node, level);
    bool is_assignment = json_object_get(node, "Name") || json_object_get(node, "Index");
    int r = is_assignment ? shell_check_assignment(w, node, level) : 0;
    return r < 0 ? r : shell_visit_members(w, node, level);
}

static int visit(struct shell_walk *w, const json_t *node, unsigned level)
{
    if (level > LEVELS_MAX || ++w->nodes > NODES_MAX)
        return -EBADMSG;
    if (json_is_object(node)) /* positions are the most common objects */
        return json_is_integer(json_object_get(node, "Offset")) ? 0
                                                                : visit_object(w, node, level);
    int r = 0;
    for (size_t i = 0; r == 0 && i < json_array_size(node); i++)
        r = visit(w, json_array_get(node, i), level + 1);
    return r;
}

/* --- texts */

/* Bytes that shfmt and bash may take for different things: a carriage return, or two characters
 * of an operator that a backslash and a newline part, as in `$\` and `(x)`. */
static bool is_plain_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t')
            return false;
        if (i + 2 < len && strchr("$<>`#@*+?!({[&|;", text[i]) && text[i + 1] == '\\' &&
            text[i + 2] == '\n')
            return false;
    }
    return !memchr(text, 0x7f, len) && utf8_valid(text, len);
}

/* The tree must speak about all of the text. */
static bool covers(const struct shell_walk *w, const json_t *tree)
{
    const json_t *stmts = json_object_get(tree, "Stmts");
    const json_t *last = json_object_get(tree, "Last");
    long end = shell_offset(w, tree, "End");
    size_t blank = strspn(w->text, " \t\n");
    if (blank == w->len)
        return true;
    if (!str_eq(json_string_value(json_object_get(tree, "Type")), "File") || end < 0)
        return false;
    if (!json_array_size(stmts))
        return json_array_size(last) > 0 && w->text[blank] == '#';
    return true;
}

static int walk(struct shell_walk *w)
{
    json_t *tree = NULL;
    if (w->len > SHELL_TEXT_MAX || !is_plain_text(w->text, w->len) || ++w->texts > TEXTS_MAX ||
        w->depth > TEXT_DEPTH_MAX)
        return -EBADMSG;
    int r = w->parse(w->context, w->text, w->len, &tree);
    if (r == 0)
        r = json_is_object(tree) && covers(w, tree) ? visit(w, tree, 0) : -EBADMSG;
    json_decref(tree);
    return r == 0 || r == -E2BIG ? r : -EBADMSG;
}

int shell_walk_text(struct shell_walk *w, const char *text, const struct shell_word *prefix,
    size_t prefix_count, enum shell_inside inside)
{
    struct shell_walk inner = *w;
    inner.text = text;
    inner.len = strlen(text);
    inner.prefix = (struct shell_words){0};
    for (size_t i = 0; i < prefix_count; i++)
        shell_words_add(&inner.prefix, &prefix[i]);
    inner.is_wrapped = w->is_wrapped || inside == SHELL_WRAPPED;
    inner.is_deferred = w->is_deferred || inside == SHELL_LATER;
    inner.loop = inside == SHELL_SAME ? w->loop : NULL;
    inner.depth++;
    inner.cwd = xstrdup(w->cwd);
    if (inside == SHELL_SAME || inside == SHELL_LATER)
        shell_loops_are_open(w);
    int r = walk(&inner);
    w->nodes = inner.nodes;
    w->texts = inner.texts;
    w->outputs = inner.outputs;
    if (inside == SHELL_SAME) {
        free(w->cwd);
        w->cwd = take_ptr(inner.cwd);
        w->is_lost = inner.is_lost;
        w->is_sensitive = inner.is_sensitive;
        w->directory = inner.directory;
    }
    free(inner.cwd);
    shell_words_done(&inner.prefix);
    return r;
}

int shell_read(const char *text, size_t len, const char *directory, shell_parse *parse,
    void *context, struct shell_forms *ret)
{
    struct shell_walk w = {.text = text,
        .len = len,
        .parse = parse,
        .context = context,
        .forms = ret,
        .cwd = xstrdup(""),
        .directory = strlen(directory) <= SHELL_PLACE_MAX ? directory : "",
        .kept = json_array()};
    *ret = (struct shell_forms){0};
    int r = walk(&w);
    free(w.cwd);
    json_decref(w.kept);
    shell_words_done(&w.prefix);
    if (r < 0)
        shell_forms_done(ret);
    return r;
}

void shell_forms_done(struct shell_forms *forms)
{
    for (size_t i = 0; i < forms->count; i++) {
        struct shell_command *c = &forms->items[i];
        json_decref(c->argv);
        json_decref(c->grant);
        json_decref(c->redirections);
        json_decref(c->files);
        free(c->cwd);
        free(c->name);
    }
    free(forms->items);
    json_decref(forms->exports);
    *forms = (struct shell_forms){0};
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Values. Bash also runs commands in data: an arithmetic expression evaluates the values of its
 * names, and a value may be a[$(command)]. Such places count as unknown commands. */

#include "approval/shell_internal.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS_MAX = SHELL_LEVELS_MAX };

int shell_emit_evaluation(struct shell_walk *w, const json_t *node)
{
    return shell_emit_source(w, "evaluate", node, "shell.evaluate");
}

/* --- arithmetic */

/* Whether the expression has numbers and operators only. */
static bool is_constant(const json_t *node, unsigned level)
{
    const char *type = json_string_value(json_object_get(node, "Type"));
    const json_t *parts = json_object_get(node, "Parts");
    const json_t *x = json_object_get(node, "X");
    const json_t *y = json_object_get(node, "Y");
    if (level > LEVELS_MAX)
        return false;
    if (str_eq(type, "Word") || (!type && parts)) {
        const char *text =
            json_string_value(json_object_get(json_array_get(parts, 0), "Value"));
        return json_array_size(parts) == 1 && text && *text &&
               text[strspn(text, "0123456789")] == '\0';
    }
    return type && x && is_constant(x, level + 1) && (!y || is_constant(y, level + 1));
}

static bool is_whole_index(const json_t *index)
{
    const json_t *parts = json_object_get(index, "Parts");
    const char *text = json_string_value(json_object_get(json_array_get(parts, 0), "Value"));
    return json_array_size(parts) == 1 && (str_eq(text, "@") || str_eq(text, "*"));
}

int shell_visit_arithmetic(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *x = json_object_get(node, "X");
    int r = x && is_constant(x, level) ? 0 : shell_emit_evaluation(w, node);
    return r < 0 ? r : shell_visit_members(w, node, level);
}

int shell_visit_let(struct shell_walk *w, const json_t *node, unsigned level)
{
    int r = shell_emit_evaluation(w, node);
    return r < 0 ? r : shell_visit_members(w, node, level);
}

/* --- parameters and assignments */

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

bool shell_is_element(const struct shell_word *word)
{
    size_t name = 0;
    while (is_letter(word->shape[name]))
        name++;
    const char *index = word->shape + name + (word->shape[name] == '[');
    size_t digits = strspn(index, "0123456789");
    return name && word->shape[name] == '[' && !(digits && str_eq(index + digits, "]"));
}

/* Whether a value runs a command when an integer or a reference gets it: a[$(command)]. */
static bool is_hot(const struct shell_walk *w, const json_t *value)
{
    struct shell_word word = {0};
    bool found = false;
    if (!value)
        return false;
    if (shell_word_read(w, value, &word) < 0)
        return true;
    for (const char *at = word.shape; (at = strchr(at, '[')); at++) {
        bool is_index = at > word.shape && (is_letter(at[-1]) || at[-1] == SHELL_UNKNOWN);
        found =
            found || (is_index && (strstr(at, "$(") || strstr(at, "${") || strchr(at, '`')));
    }
    free(word.shape);
    free(word.source);
    return found;
}

static bool some_hot(const struct shell_walk *w, const json_t *values, const char *member)
{
    bool found = false;
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *one = json_array_get(values, i);
        found = found || is_hot(w, member ? json_object_get(one, member) : one);
    }
    return found;
}

/* An assignment to a name. It is asked when the name is special for bash or for programs, when
 * the value is hot, and in a text that runs later: `trap 'x=y' DEBUG` changes x before each
 * command. Other ones are asked in a marked shell only (shell.h). */
static int emit_assignment(
    struct shell_walk *w, const json_t *node, const char *name, bool has_hot)
{
    struct shell_word value = {0};
    bool is_known = json_object_get(node, "Value") &&
                    shell_word_read(w, json_object_get(node, "Value"), &value) == 0;
    bool is_special = name && shell_variable_is_special(name, strlen(name), value.shape);
    if (is_known) {
        free(value.shape);
        free(value.source);
    }
    const char *danger = is_special && !has_hot ? "environment" : "shell.evaluate";
    int r = shell_emit_source(w, "assign", node, danger);
    if (r < 0)
        return r;
    struct shell_command *made = &w->forms->items[w->forms->count - 1];
    made->name = name && !w->is_export ? xstrdup(name) : NULL;
    made->assigning =
        is_special || has_hot || w->is_deferred ? SHELL_ASSIGNS : SHELL_ASSIGNS_ONLY;
    return 0;
}

/* Whether something in a parameter hides a command. shfmt takes <(y) in ${x:-<(y)} for text. In
 * "${x:-'$(y)'}" bash takes the single quotes for text and runs y, and shfmt takes them for
 * quotes. A substitution has its own quotes. */
static bool hides_code(const json_t *node, unsigned level)
{
    const char *type = json_string_value(json_object_get(node, "Type"));
    const char *text = json_string_value(json_object_get(node, "Value"));
    const char *name;
    json_t *value;
    size_t i;
    bool is_hidden = level > LEVELS_MAX;
    if (str_eq(type, "Lit") && text && (strstr(text, "<(") || strstr(text, ">(")))
        return true;
    if (str_eq(type, "SglQuoted"))
        return text && strpbrk(text, "$`\"\\}");
    if (is_hidden || str_eq(type, "CmdSubst") || str_eq(type, "ProcSubst"))
        return is_hidden;
    json_array_foreach(node, i, value) is_hidden = is_hidden || hides_code(value, level + 1);
    json_object_foreach((json_t *)node, name, value) is_hidden =
        is_hidden || hides_code(value, level + 1);
    return is_hidden;
}

/* ${!x} reads a name from a value, ${x@P} runs a value, ${x:=y} assigns. */
int shell_visit_parameter(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *exp = json_object_get(node, "Exp");
    const json_t *word = json_object_get(exp, "Word");
    const json_t *index = json_object_get(node, "Index");
    const json_t *slice = json_object_get(node, "Slice");
    bool is_indirect = json_is_true(json_object_get(node, "Excl")) &&
                       !json_object_get(node, "Names") && !(index && is_whole_index(index));
    bool is_run =
        is_indirect || (index && !is_whole_index(index) && !is_constant(index, level));
    long at = exp ? shell_offset(w, word ? word : node, word ? "Pos" : "End") : 0;
    int r = 0;
    if ((exp && at < 2) || hides_code(node, level))
        return -EBADMSG;
    char before = exp ? w->text[at - (word ? 1 : 2)] : 0;
    if (slice) {
        const json_t *offset = json_object_get(slice, "Offset");
        const json_t *length = json_object_get(slice, "Length");
        is_run =
            is_run || !is_constant(offset, level) || (length && !is_constant(length, level));
    }
    if (is_run || before == '@')
        r = shell_emit_evaluation(w, node);
    w->outputs += before == '?'; /* the word is an error message */
    if (r == 0 && before == '=')
        r = emit_assignment(w, node, shell_text_of(node, "Param"), is_hot(w, word));
    return r < 0 ? r : shell_visit_members(w, node, level);
}

/* An assignment, also of an array or its elements. */
int shell_check_assignment(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *index = json_object_get(node, "Index");
    const json_t *value = json_object_get(node, "Value");
    const json_t *array = json_object_get(node, "Array");
    const char *name = shell_text_of(node, "Name");
    if (index && !is_constant(index, level))
        return shell_emit_evaluation(w, node);
    if (!name || (!value && !array && !shell_variable_is_special(name, strlen(name), "")))
        return 0;
    return emit_assignment(w, node, name,
        is_hot(w, value) || some_hot(w, json_object_get(array, "Elems"), "Value"));
}

int shell_visit_word_loop(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *items = json_object_get(node, "Items");
    int r = emit_assignment(w, node, shell_text_of(node, "Name"), some_hot(w, items, NULL));
    return r < 0 ? r : shell_visit_members(w, node, level);
}

/* --- declarations */

struct declaration {
    const char *variant; /* declare, export ... */
    struct shell_words words;
    bool is_plain;     /* its options are known, and none changes what later values become */
    bool is_exported;  /* reaches every program, so it counts as a command */
    bool is_array;     /* has -a or -A */
    bool is_shown;     /* has -p */
    bool has_compound; /* a value may be '(...)', of which bash makes an array: it runs $(..) */
    bool has_dynamic;  /* likewise, but only the run shows it */
    bool has_special;
};

static void take_option(struct declaration *d, const struct shell_word *word)
{
    d->is_plain = d->is_plain && word->is_literal && word->shape[0] &&
                  strchr("-+", word->shape[0]) &&
                  word->shape[1 + strspn(word->shape + 1, "aAgrxpt")] == '\0';
    d->is_exported = d->is_exported || strchr(word->shape, 'x');
    d->is_array = d->is_array || strpbrk(word->shape, "aA");
    d->is_shown = d->is_shown || strchr(word->shape, 'p');
}

static int take_declared(struct shell_walk *w, struct declaration *d, const json_t *one)
{
    const json_t *value = json_object_get(one, "Value");
    const char *name = shell_text_of(one, "Name");
    struct shell_word word = {0};
    if (value && shell_word_read(w, value, &word) < 0)
        return -EBADMSG;
    bool is_special =
        name && shell_variable_is_special(name, strlen(name), value ? word.shape : "");
    if (name && d->is_exported && !w->forms->exports)
        w->forms->exports = json_object();
    if (name && d->is_exported)
        (void)json_object_set_new(w->forms->exports, name, json_true());
    if (!name && value)
        take_option(d, &word);
    else if (value && !is_special) {
        d->has_compound = d->has_compound || word.shape[0] == '(';
        d->has_dynamic =
            d->has_dynamic ||
            (!word.is_literal && (!word.shape[0] || word.shape[0] == SHELL_UNKNOWN));
    }
    d->has_special = d->has_special || is_special;
    cleanup_free char *shape = xasprintf(
        "%s%s%s", name ? name : "", name && value ? "=" : "", value ? word.shape : "");
    cleanup_free char *source = xasprintf(
        "%s%s%s", name ? name : "", name && value ? "=" : "", value ? word.source : "");
    const struct shell_word made = {shape, source,
        (!value || word.is_literal) && !json_object_get(one, "Array"), true,
        word.is_open || (name && !value && d->is_exported) || shell_is_open(w, one),
        w->directory};
    shell_words_add(&d->words, &made);
    free(word.shape);
    free(word.source);
    return 0;
}

/* Whether bash may evaluate a value. export and readonly take '(..)' for an array with -a only.
 * The approval of a function covers its body, so a local variable of its argument needs no
 * other one. */
static bool is_evaluated(const struct declaration *d)
{
    bool by_name = shell_name_is(d->variant, "declare typeset");
    bool is_local = str_eq(d->variant, "local");
    return !d->is_plain || (d->has_compound && (by_name || is_local || d->is_array)) ||
           (d->has_dynamic && (by_name || d->is_array));
}

/* `declare` and similar commands. -i evaluates the assigned value, -n makes a name of it. */
int shell_visit_declaration(struct shell_walk *w, const json_t *node, unsigned level)
{
    const json_t *args = json_object_get(node, "Args");
    const char *variant = shell_text_of(node, "Variant");
    struct declaration d = {.variant = variant ? variant : "",
        .is_plain = variant != NULL,
        .is_exported = str_eq(variant, "export")};
    const struct shell_word first = {
        (char *)d.variant, (char *)d.variant, true, true, false, NULL};
    int r = 0;
    shell_words_add(&d.words, &first);
    for (size_t i = 0; r == 0 && i < json_array_size(args); i++)
        r = take_declared(w, &d, json_array_get(args, i));
    w->forms->marks = w->forms->marks || !d.is_plain;
    if (r == 0 && is_evaluated(&d))
        r = shell_emit_evaluation(w, node);
    else if (r == 0 && d.is_exported && !d.has_special)
        r = shell_emit(w, &d.words, d.words.count, NULL, NULL, false);
    w->outputs += d.is_shown || d.words.count == 1;
    shell_words_done(&d.words);
    bool was_export = w->is_export;
    w->is_export = d.is_exported; /* it is asked as a whole */
    r = r < 0 ? r : shell_visit_members(w, node, level);
    w->is_export = was_export;
    return r;
}

/* --- tests */

/* The operator as it is written. */
static bool operator_is(const struct shell_walk *w, const json_t *node, const char *list)
{
    long at = shell_offset(w, node, "OpPos");
    char word[5] = "";
    for (size_t n = 0; at >= 0 && n < 4 && (size_t)at + n < w->len; n++) {
        char c = w->text[(size_t)at + n];
        if (c != '-' && !isalpha((unsigned char)c))
            break;
        word[n] = c;
    }
    return word[0] && shell_name_is(word, list);
}

int shell_visit_binary_test(struct shell_walk *w, const json_t *node, unsigned level)
{
    if (shell_offset(w, node, "OpPos") < 0)
        return -EBADMSG;
    bool is_number = operator_is(w, node, "-eq -ne -lt -le -gt -ge");
    bool is_fixed = is_constant(json_object_get(node, "X"), level) &&
                    is_constant(json_object_get(node, "Y"), level);
    int r = is_number && !is_fixed ? shell_emit_evaluation(w, node) : 0;
    return r < 0 ? r : shell_visit_members(w, node, level);
}

int shell_visit_unary_test(struct shell_walk *w, const json_t *node, unsigned level)
{
    if (shell_offset(w, node, "OpPos") < 0)
        return -EBADMSG;
    int r = operator_is(w, node, "-v -R") ? shell_emit_evaluation(w, node) : 0;
    return r < 0 ? r : shell_visit_members(w, node, level);
}

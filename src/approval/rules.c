/* SPDX-License-Identifier: Apache-2.0 */

/* See rules.h. Patterns are JSON values, so there is no language to parse: a string is a glob,
 * a number is itself, a list of patterns for a single value means "one of these". A value of
 * another type does not match. A pattern that could never match is refused when it is
 * loaded. */

#include "approval/rules.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 16, PATTERN_LEN_MAX = 512, FIELD_ROOM = 96 };

static const char *const decision_names[RULE_DECISION_COUNT] = {
    [RULE_ALLOW] = "allow", [RULE_ASK] = "ask", [RULE_DENY] = "deny"};

/* --- matching */

static bool matches(
    const json_t *pattern, const json_t *value, enum effect_match match, bool is_wary);

/* Matches both texts with `/` for `.`, so that `*` stops at `/` and at `.`. */
static bool glob_matches(const char *pattern, const char *text)
{
    cleanup_free char *p = xstrdup(pattern);
    cleanup_free char *t = xstrdup(text);
    for (char *c = p; *c; c++)
        *c = *c == '.' ? '/' : *c;
    for (char *c = t; *c; c++)
        *c = *c == '.' ? '/' : *c;
    return str_eq(pattern, "**") || str_glob_match(p, t);
}

/* Compares both hosts in their one spelling. */
static bool host_matches(const char *pattern_text, const char *host_text)
{
    char pattern[EFFECT_HOST];
    char host[EFFECT_HOST];
    if (effect_host(pattern_text, pattern) < 0 || effect_host(host_text, host) < 0)
        return false;
    size_t host_len = strlen(host);
    size_t below = strlen(pattern) - (pattern[0] == '*');
    if (str_eq(pattern, "*"))
        return true;
    if (!str_has_prefix(pattern, "*."))
        return str_eq(pattern, host);
    return host_len > below && str_eq(host + host_len - below, pattern + 1);
}

static bool address_matches(const char *pattern, const char *text)
{
    struct address_range range;
    struct address address;
    if (str_eq(pattern, "*"))
        return true;
    return address_range_parse(&range, pattern) == 0 && address_parse(&address, text) == 0 &&
           address_in_range(&address, &range);
}

static int parse_range(const char *text, int64_t *ret_first, int64_t *ret_last)
{
    const char *dash = strchr(text + (*text == '-'), '-');
    if (!dash)
        return str_parse_i64(text, ret_first) < 0 ? -EINVAL : (*ret_last = *ret_first, 0);
    cleanup_free char *first = xstrndup(text, (size_t)(dash - text));
    return str_parse_i64(first, ret_first) < 0 || str_parse_i64(dash + 1, ret_last) < 0
               ? -EINVAL
               : 0;
}

/* 5.0 is 5: a program chooses how it writes a number. */
static bool real_matches(const json_t *pattern, double number)
{
    const char *text = json_string_value(pattern);
    int64_t first, last;
    if (!text)
        return json_is_number(pattern) && json_number_value(pattern) == number;
    return str_eq(text, "*") || (parse_range(text, &first, &last) == 0 &&
                                    (double)first <= number && number <= (double)last);
}

static bool number_matches(const json_t *pattern, const json_t *value)
{
    const char *text = json_string_value(pattern);
    json_int_t number = json_integer_value(value);
    int64_t first, last;
    if (!json_is_integer(value) || json_is_real(pattern))
        return real_matches(pattern, json_number_value(value));
    if (json_is_integer(pattern))
        return json_integer_value(pattern) == number;
    if (!text)
        return false;
    return str_eq(text, "*") ||
           (parse_range(text, &first, &last) == 0 && first <= number && number <= last);
}

/* A word whose value is not known matches `**` only. It may also be several words, so a rule
 * that asks or denies (`is_wary`) matches if any of its possible values would match. */
static bool words_match(const json_t *pattern, const json_t *words, bool is_wary)
{
    size_t count = json_array_size(pattern);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(pattern, i);
        const json_t *word = json_array_get(words, i);
        if (i + 1 == count && str_eq(json_string_value(one), "**"))
            return true;
        if (json_is_object(word) && is_wary)
            return true;
        bool is_any = json_is_object(word) && str_eq(json_string_value(one), "**");
        if (!word || (!is_any && !matches(one, word, MATCH_GLOB, is_wary)))
            return false;
    }
    return count == json_array_size(words);
}

/* How a value inside an object is compared: its type says it. */
static enum effect_match match_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        return MATCH_GLOB;
    case JSON_INTEGER:
    case JSON_REAL:
        return MATCH_NUMBER;
    case JSON_ARRAY:
        return MATCH_WORDS;
    case JSON_OBJECT:
        return MATCH_OBJECT;
    case JSON_TRUE:
    case JSON_FALSE:
    case JSON_NULL:
        break;
    }
    return MATCH_FLAG;
}

static bool object_matches(const json_t *pattern, const json_t *object, bool is_wary)
{
    const char *name;
    json_t *one;
    json_object_foreach((json_t *)pattern, name, one)
    {
        const json_t *value = json_object_get(object, name);
        if (!value || !matches(one, value, match_of(value), is_wary))
            return false;
    }
    return true;
}

static bool matches(
    const json_t *pattern, const json_t *value, enum effect_match match, bool is_wary)
{
    const char *text = json_string_value(pattern);
    const char *have = json_string_value(value);
    if (match != MATCH_WORDS && json_is_array(pattern)) {
        for (size_t i = 0; i < json_array_size(pattern); i++) {
            if (matches(json_array_get(pattern, i), value, match, is_wary))
                return true;
        }
        return false;
    }
    switch (match) {
    case MATCH_GLOB:
        return text && have && glob_matches(text, have);
    case MATCH_HOST:
        return text && have && host_matches(text, have);
    case MATCH_ADDRESS:
        return text && have && address_matches(text, have);
    case MATCH_NUMBER:
        return json_is_number(value) && number_matches(pattern, value);
    case MATCH_FLAG:
        return json_equal(pattern, value);
    case MATCH_WORDS:
        return json_is_array(pattern) && json_is_array(value) &&
               words_match(pattern, value, is_wary);
    case MATCH_OBJECT:
        return json_is_object(pattern) && json_is_object(value) &&
               object_matches(pattern, value, is_wary);
    }
    return false;
}

bool pattern_matches(const json_t *pattern, const json_t *value, enum effect_match match)
{
    return matches(pattern, value, match, false);
}

/* A rule that allows words of a command does not allow files that the shell opens for it. */
static bool leaves_out_files(const struct rule *rule, const struct effect *effect)
{
    return rule->decision == RULE_ALLOW && json_object_get(rule->match, "argv") &&
           !json_object_get(rule->match, "redirections") &&
           json_array_size(json_object_get(effect->json, "redirections")) > 0;
}

bool rule_matches(const struct rule *rule, const struct effect *effect)
{
    const char *name;
    json_t *pattern;
    if (rule->kind != effect->kind || leaves_out_files(rule, effect))
        return false;
    json_object_foreach((json_t *)rule->match, name, pattern)
    {
        const struct effect_field *field = effect_field_find(rule->kind, name);
        if (!matches(pattern, json_object_get(effect->json, name), field->match,
                rule->decision != RULE_ALLOW))
            return false;
    }
    return true;
}

const struct rule *rules_find(const struct rules *rules, const struct effect *effect)
{
    const struct rule *found = NULL;
    for (size_t i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->items[i];
        if ((!found || rule->decision > found->decision) && rule_matches(rule, effect))
            found = rule;
    }
    return found;
}

/* --- reading */

/* A pattern that can match nothing is a mistake of the operator. NULL when it is right. */
static const char *pattern_problem(const json_t *pattern, enum effect_match match, int depth)
{
    const char *text = json_string_value(pattern);
    struct address_range range;
    char host[EFFECT_HOST];
    int64_t first, last;
    if (depth > DEPTH_MAX)
        return "is nested too deep";
    if (text && (json_string_length(pattern) > PATTERN_LEN_MAX ||
                    strlen(text) != json_string_length(pattern)))
        return "is too long or contains a NUL character";
    if (json_is_array(pattern)) {
        const char *why = json_array_size(pattern) || match == MATCH_WORDS ? NULL : "is empty";
        enum effect_match inner = match == MATCH_WORDS ? MATCH_GLOB : match;
        for (size_t i = 0; !why && i < json_array_size(pattern); i++)
            why = pattern_problem(json_array_get(pattern, i), inner, depth + 1);
        return why;
    }
    switch (match) {
    case MATCH_GLOB:
        return text ? NULL : "must be a string with * for any text, or a list of them";
    case MATCH_HOST:
        return text && *text && effect_host(text, host) == 0 &&
                       !strchr(text + (text[0] == '*'), '*') &&
                       (text[0] != '*' || !text[1] || (text[1] == '.' && text[2]))
                   ? NULL
                   : "must be a name (an international one in its xn-- form), *.name, * or a "
                     "list of them";
    case MATCH_ADDRESS:
        return text && (str_eq(text, "*") || address_range_parse(&range, text) == 0)
                   ? NULL
                   : "must be an address, a range like 203.0.113.0/24, * or a list of them";
    case MATCH_NUMBER:
        return json_is_integer(pattern) ||
                       (text && (str_eq(text, "*") ||
                                    (parse_range(text, &first, &last) == 0 && first <= last)))
                   ? NULL
                   : "must be a number, a range like \"80-90\", \"*\" or a list of them";
    case MATCH_FLAG:
        return json_is_boolean(pattern) ? NULL : "must be true or false";
    case MATCH_WORDS:
        return "must be a list of strings";
    case MATCH_OBJECT:
        return json_is_object(pattern) ? NULL : "must be an object of patterns";
    }
    return NULL;
}

static int read_match(
    const json_t *match, enum effect_kind kind, const char *at, struct err *err)
{
    const char *name;
    json_t *pattern;
    char field[FIELD_ROOM];
    (void)snprintf(field, sizeof(field), "%s.match", at);
    if (!json_is_object(match))
        return err_field(err, field, "%s must be an object of patterns", field);
    json_object_foreach((json_t *)match, name, pattern)
    {
        const struct effect_field *known = effect_field_find(kind, name);
        (void)snprintf(field, sizeof(field), "%s.match.%.32s", at, name);
        if (!known)
            return err_field(err, field, "an effect of kind `%s` has no field `%.64s`",
                effect_table[kind].name, name);
        const char *why = pattern_problem(pattern, known->match, 0);
        if (why)
            return err_field(err, field, "%s %s", field, why);
    }
    return 0;
}

/* Tries the examples that the rule must match, or must not. */
static int try_examples(const struct rule *rule, const json_t *list, bool must_match,
    const char *at, struct err *err)
{
    char field[FIELD_ROOM];
    if (list && !json_is_array(list))
        return err_field(err, at, "%s must be a list of effects", at);
    if (json_array_size(list) > RULE_EXAMPLES_MAX)
        return err_field(err, at, "%s has more than %d examples", at, RULE_EXAMPLES_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct effect effect = {0};
        struct err why = {0};
        (void)snprintf(field, sizeof(field), "%s[%zu]", at, i);
        if (!json_is_object(json_array_get(list, i)) ||
            effect_make(rule->kind, json_array_get(list, i), &effect, &why) < 0)
            return err_field(err, field, "%s is not an effect of kind `%s`: %s", field,
                effect_table[rule->kind].name, why.message);
        bool matches = rule_matches(rule, &effect);
        effect_done(&effect);
        if (matches != must_match)
            return err_field(err, field, "the rule %s this example",
                must_match ? "does not match" : "matches");
    }
    return 0;
}

static int read_examples(
    const struct rule *rule, const json_t *examples, const char *at, struct err *err)
{
    const json_t *yes = NULL;
    const json_t *no = NULL;
    char field[FIELD_ROOM];
    (void)snprintf(field, sizeof(field), "%s.examples", at);
    if (json_unpack((json_t *)examples, "{s:o, s?o !}", "match", &yes, "no_match", &no) < 0 ||
        json_array_size(yes) == 0)
        return err_field(err, field,
            "%s must be {\"match\": [EFFECT...], \"no_match\": [EFFECT...]} with at least one "
            "effect that the rule matches",
            field);
    (void)snprintf(field, sizeof(field), "%s.examples.match", at);
    int r = try_examples(rule, yes, true, field, err);
    (void)snprintf(field, sizeof(field), "%s.examples.no_match", at);
    return r < 0 ? r : try_examples(rule, no, false, field, err);
}

static int find_decision(const char *name)
{
    for (int i = 0; i < RULE_DECISION_COUNT; i++) {
        if (str_eq(decision_names[i], name))
            return i;
    }
    return -EINVAL;
}

static int read_rule(const json_t *item, const char *at, struct rule *ret, struct err *err)
{
    static const char *const known[] = {
        "effect", "match", "decision", "require_human", "reason", "examples"};
    const char *name;
    json_t *value;
    char field[FIELD_ROOM];
    if (!json_is_object(item))
        return err_field(err, at, "%s must be an object", at);
    json_object_foreach((json_t *)item, name, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            is_known = is_known || str_eq(name, known[i]);
        (void)snprintf(field, sizeof(field), "%s.%.32s", at, name);
        if (!is_known)
            return err_field(err, field, "unknown field");
    }
    const char *kind_name = json_string_value(json_object_get(item, "effect"));
    const json_t *human = json_object_get(item, "require_human");
    const json_t *reason = json_object_get(item, "reason");
    int kind = effect_kind_find(kind_name ? kind_name : "");
    int decision = find_decision(json_string_value(json_object_get(item, "decision")));
    (void)snprintf(field, sizeof(field), "%s.effect", at);
    if (kind < 0)
        return err_field(err, field, "%s must be a kind of effect, such as net_connect", field);
    (void)snprintf(field, sizeof(field), "%s.decision", at);
    if (decision < 0)
        return err_field(err, field, "%s must be allow, ask or deny", field);
    (void)snprintf(field, sizeof(field), "%s.require_human", at);
    if (human && (!json_is_boolean(human) || (json_is_true(human) && decision != RULE_ASK)))
        return err_field(err, field,
            "%s must be true or false, and true only with the decision `ask`", field);
    (void)snprintf(field, sizeof(field), "%s.reason", at);
    if (reason && !json_is_string(reason))
        return err_field(err, field, "%s must be a string", field);
    *ret = (struct rule){.kind = (enum effect_kind)kind,
        .decision = (enum rule_decision)decision,
        .require_human = json_is_true(human),
        .match = json_object_get(item, "match"),
        .reason = reason ? json_string_value(reason) : ""};
    int r = read_match(ret->match, ret->kind, at, err);
    return r < 0 ? r : read_examples(ret, json_object_get(item, "examples"), at, err);
}

int rules_read(const json_t *object, struct rules *ret, struct err *err)
{
    const json_t *list = json_object_get(object, "rules");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        if (!str_eq(name, "rules"))
            return err_field(err, name, "unknown field");
    }
    if (!json_is_array(list))
        return err_field(err, "rules", "rules must be {\"rules\": [RULE...]}");
    if (json_array_size(list) > RULES_MAX)
        return err_field(err, "rules", "there are more than %d rules", RULES_MAX);
    struct rules rules = {.json = json_deep_copy(object)};
    list = json_object_get(rules.json, "rules");
    rules.count = json_array_size(list);
    rules.items = xcalloc(rules.count + 1, sizeof(*rules.items));
    for (size_t i = 0; i < rules.count; i++) {
        char at[32];
        (void)snprintf(at, sizeof(at), "rules[%zu]", i);
        int r = read_rule(json_array_get(list, i), at, &rules.items[i], err);
        if (r < 0) {
            rules_done(&rules);
            return r;
        }
    }
    *ret = rules;
    return 0;
}

void rules_done(struct rules *rules)
{
    json_decref(rules->json);
    free(rules->items);
    *rules = (struct rules){0};
}

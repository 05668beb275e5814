/* SPDX-License-Identifier: Apache-2.0 */

/* See ruling.h. */

#include "approval/ruling.h"

#include "base/str.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Effects that nothing permits. hermes-egress closes these addresses by itself; this table also
 * holds for callers that reach out by other ways. */
static const struct {
    enum effect_kind kind;
    const char *field;
    const char *pattern;
    const char *reason;
} hardline[] = {
    {EFFECT_NET_CONNECT, "address", "169.254.0.0/16", "link-local addresses are closed"},
    {EFFECT_NET_CONNECT, "address", "127.0.0.0/8", "loopback addresses are closed"},
    {EFFECT_NET_CONNECT, "address", "::1", "loopback addresses are closed"},
    {EFFECT_NET_CONNECT, "address", "fe80::/10", "link-local addresses are closed"},
    {EFFECT_NET_CONNECT, "address", "100.100.100.200", "a metadata service is closed"},
    {EFFECT_NET_CONNECT, "address", "fd00:ec2::254", "a metadata service is closed"},
    {EFFECT_NET_CONNECT, "host", "metadata.google.internal", "a metadata service is closed"},
    {EFFECT_HOST_EXEC, "danger", "never.**", "this command destroys the place that it runs in"},
    {EFFECT_SECRET_USE, "host", "*", "a secret belongs to one host, not to every host"},
};

const char *ruling_source_name(enum ruling_source source)
{
    static const char *const names[] = {[SOURCE_HARDLINE] = "hardline",
        [SOURCE_RULE] = "rule",
        [SOURCE_GRANT] = "grant",
        [SOURCE_DEFAULT] = "default",
        [SOURCE_MODE] = "mode"};
    return names[source];
}

static void set(struct ruling *ret, enum ruling_kind kind, enum ruling_source source,
    const char *what, const char *reason)
{
    ret->kind = kind;
    ret->source = source;
    (void)snprintf(
        ret->reason, sizeof(ret->reason), "%s%s%s", what, reason[0] ? ": " : "", reason);
    ret->reason[utf8_floor(ret->reason, strlen(ret->reason))] = '\0'; /* JSON carries it */
}

/* A host of "*" in the table stands for that text alone, not for every host. */
static bool is_hardline(const struct effect *effect, struct ruling *ret)
{
    for (size_t i = 0; i < sizeof(hardline) / sizeof(hardline[0]); i++) {
        const struct effect_field *field =
            effect_field_find(hardline[i].kind, hardline[i].field);
        const json_t *value = json_object_get(effect->json, hardline[i].field);
        if (hardline[i].kind != effect->kind)
            continue;
        json_t *pattern = json_string(hardline[i].pattern);
        bool matches = str_eq(hardline[i].pattern, "*")
                           ? json_equal(pattern, value)
                           : pattern_matches(pattern, value, field->match);
        json_decref(pattern);
        if (!matches)
            continue;
        set(ret, RULING_DENIED, SOURCE_HARDLINE, "never permitted", hardline[i].reason);
        return true;
    }
    return false;
}

/* Chooses a person or the reviewer. A rule that asks, and a kind that asks without a mode, ask
 * a person even when the mode is off. */
static enum ruling_kind whom(enum approval_mode mode, bool require_human)
{
    bool has_reviewer = mode == APPROVAL_SMART || mode == APPROVAL_GATED;
    return has_reviewer && !require_human ? RULING_REVIEWER : RULING_PERSON;
}

static void rule_by_default(
    const struct effect *effect, const struct ruling_facts *facts, struct ruling *ret)
{
    const struct effect_row *row = &effect_table[effect->kind];
    if (json_is_true(json_object_get(effect->json, "read_only")))
        set(ret, RULING_ALLOWED, SOURCE_DEFAULT, "the tool only reads", "");
    else if (facts->mode == APPROVAL_OFF && !row->asks_without_mode)
        set(ret, RULING_ALLOWED, SOURCE_MODE, "approval_mode is off", "");
    else
        set(ret, whom(facts->mode, false), SOURCE_DEFAULT, "asked by default", row->text);
}

void ruling_make(
    const struct effect *effect, const struct ruling_facts *facts, struct ruling *ret)
{
    const struct rule *rule = facts->rules ? rules_find(facts->rules, effect) : NULL;
    *ret = (struct ruling){0};
    if (is_hardline(effect, ret))
        return;
    if (rule && rule->decision == RULE_DENY) {
        set(ret, RULING_DENIED, SOURCE_RULE, "a rule of the operator denies it", rule->reason);
        return;
    }
    ret->require_human = rule && rule->require_human;
    if (facts->has_grant && (facts->grant_is_human || !ret->require_human))
        set(ret, RULING_ALLOWED, SOURCE_GRANT, "it was granted before", "");
    else if (rule && rule->decision == RULE_ASK)
        set(ret, whom(facts->mode, rule->require_human), SOURCE_RULE,
            "a rule of the operator asks", rule->reason);
    else if (rule)
        set(ret, RULING_ALLOWED, SOURCE_RULE, "a rule of the operator allows it", rule->reason);
    else
        rule_by_default(effect, facts, ret);
}

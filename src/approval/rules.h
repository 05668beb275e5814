/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The operator's rules about effects, as JSON:
 *
 *   {"rules": [{"effect": "net_connect", "match": {"host": "*.example.com", "port": 443},
 *               "decision": "allow", "require_human": false, "reason": "our mirror",
 *               "examples": {"match": [{"host": "a.example.com", "port": 443,
 *                                       "protocol": "tcp"}],
 *                            "no_match": [...]}}]}
 *
 * A rule needs at least one example that it matches; all examples are tried when the rules are
 * loaded, and a rule that treats one otherwise than it says is refused. Of all rules that match
 * an effect the strictest wins: deny, then ask, then allow. */

#include "approval/effect.h"

enum rule_decision { RULE_ALLOW, RULE_ASK, RULE_DENY, RULE_DECISION_COUNT };

enum { RULES_MAX = 256, RULE_EXAMPLES_MAX = 32, RULES_TEXT_MAX = 256 << 10 };

struct rule {
    enum effect_kind kind;
    enum rule_decision decision;
    bool require_human;  /* neither a reviewer nor a model may answer */
    const json_t *match; /* an object of patterns; borrowed from rules.json */
    const char *reason;  /* or "" */
};

struct rules {
    json_t *json; /* as they were written */
    struct rule *items;
    size_t count;
};

/* Reads {"rules": [...]}; err->field names the part at fault: "rules[2].match.port". */
int rules_read(const json_t *object, struct rules *ret, struct err *err);
void rules_done(struct rules *rules);

/* Whether a rule matches an effect. */
bool rule_matches(const struct rule *rule, const struct effect *effect);

/* The strictest rule that matches, the first of equals; NULL when none does. */
const struct rule *rules_find(const struct rules *rules, const struct effect *effect);

/* Whether a pattern matches a value that is compared in this way. */
bool pattern_matches(const json_t *pattern, const json_t *value, enum effect_match match);

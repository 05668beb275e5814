/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one pipeline that decides about an effect, without state: hardline table, the operator's
 * deny rules, grants, rules that ask or allow, the kind's default, the mode. */

#include "approval/mode.h"
#include "approval/rules.h"

enum ruling_kind {
    RULING_ALLOWED,
    RULING_DENIED,
    RULING_PERSON,   /* a person is asked */
    RULING_REVIEWER, /* the reviewer is asked, then perhaps a person */
};

enum ruling_source {
    SOURCE_HARDLINE,
    SOURCE_RULE,
    SOURCE_GRANT,
    SOURCE_DEFAULT, /* the default of the effect's kind */
    SOURCE_MODE,
};
const char *ruling_source_name(enum ruling_source source);

struct ruling {
    enum ruling_kind kind;
    enum ruling_source source;
    bool require_human;
    char reason[256]; /* why, for the person, the reviewer and the log */
};

/* Facts of the pipeline beside the effect. A grant that a model relayed does not answer for a
 * rule with require_human. */
struct ruling_facts {
    const struct rules *rules;
    enum approval_mode mode;
    bool has_grant;
    bool grant_is_human;
};

void ruling_make(
    const struct effect *effect, const struct ruling_facts *facts, struct ruling *ret);

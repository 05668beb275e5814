/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The words that go to the reviewer and come back: redaction, size, the two forms of
 * OpenAI-compatible requests, and the strict reading of the answer. No state, no network. */

#include "approval/approval.h"

enum gate_api { GATE_CHAT, GATE_RESPONSES };

enum {
    GATE_CONTEXT_MIN = 1000, /* characters; settings outside the range become the nearer end */
    GATE_CONTEXT_MAX = 50000,
    GATE_TOKENS_MAX = 220,
};

struct gate_settings {
    enum gate_api api;
    const char *model;
    uint64_t max_context_chars;
    double min_confidence; /* at least 0.75; a lower setting has no effect */
    const char *max_risk;  /* "low" or "medium"; a higher setting counts as "medium" */
};

/* The body of the call. `request` is what review_request() made. *ret is NULL when the
 * effect and the reason for the question are too long even without the rest: then the
 * reviewer is not called, and *verdict says so. The caller frees it. */
void gate_body(const struct gate_settings *settings, const json_t *request, char **ret,
    struct approval_verdict *verdict);

/* Reads the body of an HTTP answer (status 200). */
void gate_read(const struct gate_settings *settings, const char *body, size_t len,
    struct approval_verdict *ret);

/* Checks the text that the reviewer wrote: the decision order of the gate. */
void gate_judge(const struct gate_settings *settings, const char *text, size_t len,
    struct approval_verdict *ret);

/* An escalation with this reason. */
void gate_escalate(struct approval_verdict *ret, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A copy of a value in which nothing looks like a secret any more. With `is_cut`, long texts,
 * lists, objects and deep nesting are shortened too. The caller owns it. */
json_t *gate_redact(const json_t *value, bool is_cut);

/* Whether a part of the effect is hidden from the reviewer. Then it must not approve: code
 * can make any part of an effect look like a token. */
bool gate_hides(const json_t *request);

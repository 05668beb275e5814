/* SPDX-License-Identifier: Apache-2.0 */

/* See approvals.h. The reviewer and the webhook are called by hermes-reach: this process has
 * neither their addresses nor the reviewer's key. */

#include "service/approvals.h"

#include "approval/gate.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "service/reach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LATE_MS = 1000 }; /* beyond the reviewer's time: hermes-reach itself is late */

static struct gate_settings gate_of(const struct config *c)
{
    return (struct gate_settings){
        .api = str_eq(c->reviewer_api, "responses") ? GATE_RESPONSES : GATE_CHAT,
        .model = c->reviewer_model,
        .max_context_chars = c->reviewer_max_context_chars,
        .min_confidence = (double)c->reviewer_min_confidence / 1000,
        .max_risk = c->reviewer_max_risk};
}

static const char *reason_of(int r)
{
    return r == -ETIMEDOUT  ? "timeout: the reviewer did not answer in time"
           : r == -EMSGSIZE ? "the reviewer's answer is too long"
                            : "the reviewer cannot be reached";
}

static void review(void *context, const json_t *request, struct approval_verdict *ret)
{
    const struct state *s = context;
    const struct gate_settings gate = gate_of(&s->config);
    cleanup_free char *body = NULL;
    cleanup_buf struct buf answer;
    uint32_t status = 0;
    buf_init(&answer, REACH_ANSWER_MAX);
    gate_body(&gate, request, &body, ret);
    if (!body)
        return;
    int r = reach_call(s->reach_fd, REACH_REVIEWER, body,
        (uint32_t)s->config.reviewer_timeout_s * 1000 + LATE_MS, &status, &answer);
    if (r < 0)
        gate_escalate(ret, "%s", reason_of(r));
    else if (status != 200)
        gate_escalate(ret, "the reviewer's endpoint answered with status %u", status);
    else
        gate_read(&gate, answer.data ? answer.data : "", answer.len, ret);
    if (ret->decision == VERDICT_APPROVE && gate_hides(request))
        gate_escalate(ret, "the reviewer approves, but a part of the effect looks like a "
                           "secret and was hidden from it");
}

static void announce(void *context, const json_t *approval)
{
    const struct state *s = context;
    json_t *message = json_pack("{s:s, s:O}", "event", "approval", "approval", approval);
    cleanup_free char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    int r = text ? reach_tell(s->reach_fd, REACH_WEBHOOK, text) : -ENOMEM;
    if (r < 0)
        log_event(LOG_WARN, "the webhook of approvals could not be called", "reason",
            strerror(-r), (char *)NULL);
}

/* Each name is one of the keys: hermes-prepare has checked it. */
static void split_names(const char *list, struct strv *ret)
{
    while (*list) {
        size_t skip = strspn(list, " ,");
        size_t len = strcspn(list + skip, " ,");
        if (len)
            strv_add_owned(ret, xstrndup(list + skip, len));
        list += skip + len;
    }
}

int service_open_approvals(struct state *s, struct err *err)
{
    const struct config *c = &s->config;
    cleanup_free char *path =
        c->state_dir[0] ? xasprintf("%s/approvals.db", c->state_dir) : NULL; /* hermes mcp */
    CLEANUP(strv_done) struct strv approvers = {0};
    split_names(c->approvers, &approvers);
    const struct approvals_options options = {.path = path,
        .mode = (enum approval_mode)c->approval_mode,
        .timeout_ms = c->approval_timeout_s * 1000,
        .approvers = &approvers,
        .review = c->reviewer_url[0] ? review : NULL,
        .announce = c->approval_webhook_url[0] ? announce : NULL,
        .context = s};
    return approvals_open(&options, &s->approvals, err);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/approvals: questions about effects, decisions, rules, grants and the log. An approval of
 * another key is answered exactly like one that does not exist. approval_events.c has the
 * stream. */

#include "approval/approval.h"

#include "base/str.h"
#include "http/routes.h"
#include "http/v1/sessions.h"
#include "json/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_DEFAULT = 100, PAGE_MAX = 1000, COMMENT_MAX = 2000 };

static struct approval_viewer viewer_of(const struct http_request *req)
{
    return state_viewer(req->state, req->owner);
}

static int read_limit(const struct http_request *req, size_t *ret, struct err *err)
{
    uint64_t limit = PAGE_DEFAULT;
    const char *text = http_query(req, "limit");
    if (text && str_parse_u64(text, &limit) < 0)
        limit = 0;
    if (limit < 1 || limit > PAGE_MAX)
        return err_field(err, "limit", "limit must be a whole number from 1 to %d", PAGE_MAX);
    *ret = (size_t)limit;
    return 0;
}

int handle_approval_list(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    const char *name = http_query(req, "state");
    int state = name ? approval_state_find(name) : -1;
    size_t limit = 0;
    if (name && state < 0)
        return err_field(
            err, "state", "state must be pending, approved, denied, expired or lost");
    int r = read_limit(req, &limit, err);
    json_t *list = NULL;
    if (r == 0 &&
        approvals_list(req->state->approvals, &viewer, state, limit, &req->purse, &list) < 0)
        r = state_full(err);
    if (r == 0)
        reply_value(reply, 200, json_pack("{s:o}", "approvals", list));
    return r;
}

static int reply_approval(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    json_t *json = NULL;
    int r = approvals_get(req->state->approvals, req->params[0], &viewer, &json, err);
    if (r == 0)
        reply_value(reply, 200, json);
    return r;
}

int handle_approval_get(struct http_request *req, struct http_reply *reply, struct err *err)
{
    return reply_approval(req, reply, err);
}

/* {"decision": "approve" or "deny", "scope"?, "comment"?} */
static int decode(const json_t *body, struct approval_decision *ret, struct err *err)
{
    const char *name;
    json_t *value;
    bool has_decision = false;
    *ret = (struct approval_decision){.scope = SCOPE_ONCE};
    json_object_foreach((json_t *)body, name, value)
    {
        const char *text = json_string_value(value);
        if (!str_eq(name, "decision") && !str_eq(name, "scope") && !str_eq(name, "comment"))
            return err_field(err, name, "unknown field");
        if (!text || strlen(text) != json_string_length(value))
            return err_field(err, name, "%s must be a string without NUL", name);
        int scope = approval_scope_find(text);
        if (str_eq(name, "comment")) {
            if (strlen(text) > COMMENT_MAX)
                return err_field(err, name, "comment has at most %d bytes", COMMENT_MAX);
            ret->comment = text;
        } else if (str_eq(name, "scope")) {
            if (scope < 0)
                return err_field(err, name, "scope must be once, session or always");
            ret->scope = (enum approval_scope)scope;
        } else {
            has_decision = str_eq(text, "approve") || str_eq(text, "deny");
            ret->is_approved = str_eq(text, "approve");
        }
    }
    return has_decision ? 0 : err_field(err, "decision", "decision must be approve or deny");
}

int handle_approval_decide(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    struct approval_decision decision;
    json_t *body = NULL;
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r < 0)
        return r;
    r = decode(body, &decision, err);
    if (r == 0)
        r = approvals_decide(req->state->approvals, req->params[0], &viewer, &decision, err);
    json_decref(body);
    return r < 0 ? r : reply_approval(req, reply, err);
}

int handle_approval_rules(struct http_request *req, struct http_reply *reply, struct err *err)
{
    reply_value(reply, 200, approvals_rules(req->state->approvals));
    return 0;
}

int handle_approval_set_rules(
    struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    json_t *body = NULL;
    if (req->body.len > RULES_TEXT_MAX)
        return err_set(
            err, ERR_TOO_LARGE, E2BIG, "rules have at most %d bytes in all", RULES_TEXT_MAX);
    int r = json_run_parse(req->body.data ? req->body.data : "", req->body.len, &body, err);
    if (r == 0)
        r = approvals_set_rules(req->state->approvals, body, &viewer, err);
    json_decref(body);
    return r < 0 ? r : handle_approval_rules(req, reply, err);
}

int handle_approval_grants(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    json_t *list = NULL;
    if (approvals_grants(req->state->approvals, &viewer, &req->purse, &list) < 0)
        return state_full(err);
    reply_value(reply, 200, json_pack("{s:o}", "grants", list));
    return 0;
}

int handle_approval_revoke(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    uint64_t grant = 0;
    if (str_parse_u64(req->params[0], &grant) < 0 || grant > INT64_MAX)
        return err_set(err, ERR_NOT_FOUND, ENOENT, "there is no grant `%.64s`", req->params[0]);
    int r = approvals_revoke(req->state->approvals, (int64_t)grant, &viewer, err);
    if (r == 0)
        reply->status = 204;
    return r;
}

int handle_approval_log(struct http_request *req, struct http_reply *reply, struct err *err)
{
    const struct approval_viewer viewer = viewer_of(req);
    const char *text = http_query(req, "after");
    uint64_t after = 0;
    size_t limit = 0;
    if (text && (str_parse_u64(text, &after) < 0 || after > INT64_MAX))
        return err_field(err, "after", "after must be the `seq` of a row of the log");
    struct approvals *all = req->state->approvals;
    json_t *list = NULL;
    int r = read_limit(req, &limit, err);
    if (r == 0 && approvals_log(all, &viewer, (int64_t)after, limit, &req->purse, &list) < 0)
        r = state_full(err);
    if (r == 0)
        reply_value(reply, 200,
            json_pack("{s:o, s:b}", "log", list, "is_whole", approvals_sees_all(all, &viewer)));
    return r;
}

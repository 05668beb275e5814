/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/runs: what the history knows of runs without reading their answers. The cursor of a
 * page is the position of its last run: CREATED_MS-ID. It stays valid when that run is gone. */

#include "base/str.h"
#include "http/routes.h"
#include "http/v1/sessions.h"
#include "store/run_store.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CURSOR_MAX = ID_MAX + 24 };

/* A page asked for, and the texts that its query refers to. */
struct page {
    struct run_query query;
    char before_id[ID_MAX];
};

/* A value without NUL, or NULL. Sets *ok to false when the value has a NUL. */
static const char *text_of(const struct http_request *req, const char *name, bool *ok)
{
    size_t len = 0;
    const char *value = http_query_bytes(req, name, &len);
    *ok = !value || strlen(value) == len;
    return value;
}

static int read_limit(const struct http_request *req, struct page *page, struct err *err)
{
    bool ok;
    uint64_t limit = RUN_PAGE_DEFAULT;
    const char *text = text_of(req, "limit", &ok);
    if (text && (!ok || str_parse_u64(text, &limit) < 0))
        limit = 0;
    if (limit < 1 || limit > RUN_PAGE_MAX)
        return err_field(
            err, "limit", "limit must be a whole number from 1 to %d", RUN_PAGE_MAX);
    page->query.limit = limit + 1; /* the extra row shows whether there is a next page */
    return 0;
}

static bool is_id(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return len > 0 && len < ID_MAX && text[len] == '\0';
}

static int read_before(const struct http_request *req, struct page *page, struct err *err)
{
    bool ok;
    char number[24] = "";
    uint64_t ms = INT64_MAX;
    const char *text = text_of(req, "before", &ok);
    page->query.before_id = page->before_id;
    page->query.before_ms = INT64_MAX;
    if (!text)
        return 0;
    const char *dash = strchr(text, '-');
    size_t len = dash ? (size_t)(dash - text) : 0;
    if (len > 0 && len < sizeof(number))
        memcpy(number, text, len);
    if (!ok || !dash || str_parse_u64(number, &ms) < 0 || ms > INT64_MAX || !is_id(dash + 1))
        return err_field(err, "before", "before must be the value `next` of another page");
    page->query.before_ms = (int64_t)ms;
    (void)snprintf(page->before_id, sizeof(page->before_id), "%s", dash + 1);
    return 0;
}

static int read_filters(const struct http_request *req, struct page *page, struct err *err)
{
    bool status_ok, language_ok, is_known = false;
    const char *status = text_of(req, "status", &status_ok);
    const char *language = text_of(req, "language", &language_ok);
    for (unsigned i = 0; status && i < RUN_STATUS_COUNT; i++)
        is_known = is_known || str_eq(status, run_status_name(i));
    if (status && (!status_ok || !is_known))
        return err_field(
            err, "status", "status must be the status of a run, such as ok or running");
    if (!language_ok)
        return err_field(err, "language", "language contains a NUL");
    const struct runtime *runtime =
        language ? runtime_find(&req->state->runtimes, language) : NULL;
    page->query.status = status;
    page->query.language = runtime ? runtime->name : language; /* the store may know more */
    return 0;
}

static int read_page(const struct http_request *req, struct page *page, struct err *err)
{
    bool sees_all = state_is_operator(req->state, req->owner);
    page->query =
        (struct run_query){.owner = sees_all ? NULL : state_owner_name(req->state, req->owner)};
    int r = read_limit(req, page, err);
    if (r == 0)
        r = read_before(req, page, err);
    if (r == 0)
        r = read_filters(req, page, err);
    return r;
}

static const char *kind_of(const char *id)
{
    static const struct {
        const char *prefix, *kind;
    } kinds[] = {{"run_", "run"}, {"jdg_", "judge"}, {"exe_", "exec"}};
    size_t i = 0;
    while (i + 1 < sizeof(kinds) / sizeof(kinds[0]) && !str_has_prefix(id, kinds[i].prefix))
        i++;
    return kinds[i].kind;
}

static json_t *time_json(int64_t ms)
{
    char text[32];
    struct tm tm;
    time_t when = (time_t)(ms / 1000);
    if (!ms)
        return json_null();
    (void)gmtime_r(&when, &tm);
    size_t len = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + len, sizeof(text) - len, ".%03dZ", (int)(ms % 1000));
    return json_string(text);
}

static json_t *number_json(bool is_known, int64_t number)
{
    return is_known ? json_integer(number) : json_null();
}

static json_t *row_json(const struct run_row *row)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:s?, s:o, s:o, s:o, s:o}", "id", row->id, "kind",
        kind_of(row->id), "status", row->status, "language",
        row->language[0] ? row->language : NULL, "key", row->owner[0] ? row->owner : NULL,
        "created_at", time_json(row->created_ms), "ended_at", time_json(row->finished_ms),
        "wall_ms", number_json(row->finished_ms && row->wall_ms >= 0, row->wall_ms),
        "exit_code", number_json(row->exited, row->exit_code));
}

static json_t *page_json(const struct run_list *list, size_t shown)
{
    char next[CURSOR_MAX];
    json_t *runs = json_array();
    for (size_t i = 0; i < shown; i++)
        (void)json_array_append_new(runs, row_json(&list->rows[i]));
    if (shown < list->count)
        (void)snprintf(next, sizeof(next), "%lld-%s",
            (long long)list->rows[shown - 1].created_ms, list->rows[shown - 1].id);
    return json_pack("{s:o, s:s?}", "runs", runs, "next", shown < list->count ? next : NULL);
}

int handle_run_list(struct http_request *req, struct http_reply *reply, struct err *err)
{
    struct page page = {0};
    struct run_list list = {0};
    int r = read_page(req, &page, err);
    if (r == 0)
        r = history_list(req->state->history, &page.query, &list, err);
    if (r == 0) {
        size_t most = page.query.limit - 1;
        reply_value(reply, 200, page_json(&list, list.count < most ? list.count : most));
    }
    run_list_done(&list);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* See approvals.h. Each command is a row of a table and calls one route. `verify` computes
 * every hash again and believes nothing of the server. */

#include "cli/session/approvals.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/str.h"
#include "cli/approvals_options.h"
#include "cli/cli.h"
#include "cli/input.h"
#include "cli/output.h"
#include "cli/session/show.h"
#include "proto/approval_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define APPROVALS "/v1/approvals"
enum { RULES_MAX = 1 << 20, WIDTH = 200, EXIT_BROKEN = 1 };

struct request {
    struct client client;
    bool json;
    const char *state, *scope, *comment, *head;
    const char *words[3];
    int count;
};

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static void take(void *to, int key, char *value)
{
    struct request *r = to;
    switch (key) {
    case APPROVALS_URL:
        r->client.url = value;
        r->client.unix_path = NULL;
        r->client.is_default = false;
        break;
    case APPROVALS_UNIX:
        r->client.unix_path = value;
        r->client.is_default = false;
        break;
    case APPROVALS_JSON:
        r->json = true;
        break;
    case APPROVALS_STATE:
        r->state = value;
        break;
    case APPROVALS_SCOPE:
        r->scope = value;
        break;
    case APPROVALS_COMMENT:
        r->comment = value;
        break;
    case APPROVALS_HEAD:
        r->head = value;
        break;
    default:
        if (r->count == (int)(sizeof(r->words) / sizeof(r->words[0])))
            options_misuse(APPROVALS_COMMAND, "unexpected argument `%.64s`", value);
        r->words[r->count++] = value;
    }
}

/* --- showing */

/* Texts of an effect come from a stranger: no control character reaches the terminal. */
static void show_line(const json_t *one)
{
    (void)printf("%s  %-8s  ", text_of(one, "id"), text_of(one, "state"));
    output_clean(text_of(one, "summary"), WIDTH);
    (void)printf("\n");
}

static void show_list(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "approvals");
    for (size_t i = 0; i < json_array_size(list); i++)
        show_line(json_array_get(list, i));
}

static void show_field(const json_t *one, const char *name)
{
    const json_t *value = json_object_get(one, name);
    if (!value || json_is_null(value))
        return;
    cleanup_free char *text = json_is_string(value)
                                  ? xstrdup(json_string_value(value))
                                  : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    (void)printf("%-12s ", name);
    output_clean(text ? text : "", 4000);
    (void)printf("\n");
}

static void show_one(const json_t *one)
{
    static const char *const names[] = {"id", "state", "summary", "effect", "reason",
        "reviewer", "owner", "run", "session", "execution", "created_at", "expires_at",
        "decided_at", "scope", "decided_by", "via", "comment"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        show_field(one, names[i]);
}

static void show_grants(const json_t *answer)
{
    const json_t *list = json_object_get(answer, "grants");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        cleanup_free char *effect = json_dumps(json_object_get(one, "effect"), JSON_COMPACT);
        const char *session = text_of(one, "session");
        (void)printf("%lld  %s  ", (long long)json_integer_value(json_object_get(one, "id")),
            session[0] ? session : "always");
        output_clean(effect ? effect : "", WIDTH);
        (void)printf("\n");
    }
}

static void show_row(const json_t *row)
{
    (void)printf("%lld  %s  %s  ", (long long)json_integer_value(json_object_get(row, "seq")),
        text_of(row, "event"), text_of(row, "approval"));
    output_clean(text_of(row, "data"), WIDTH);
    (void)printf("\n");
}

/* Calls a route and prints the answer. Takes body. */
static int call(const struct request *request, const char *method, const char *path,
    json_t *body, void (*show)(const json_t *answer), struct err *err)
{
    json_t *answer = NULL;
    int r = client_call(&request->client, method, path, body, &answer, err);
    if (r == 0 && request->json && answer)
        show_json(answer);
    else if (r == 0 && show)
        show(answer);
    json_decref(answer);
    json_decref(body);
    return r;
}

/* --- commands */

static int command_ls(const struct request *request, struct err *err)
{
    const char *state = request->state ? request->state : "pending";
    cleanup_free char *escaped = client_escape(state);
    cleanup_free char *path = xasprintf(APPROVALS "?limit=1000%s%s",
        str_eq(state, "all") ? "" : "&state=", str_eq(state, "all") ? "" : escaped);
    return call(request, "GET", path, NULL, show_list, err);
}

static char *path_of(const struct request *request)
{
    cleanup_free char *escaped = client_escape(request->words[1]);
    return xasprintf(APPROVALS "/%s", escaped);
}

static int command_show(const struct request *request, struct err *err)
{
    cleanup_free char *path = path_of(request);
    return call(request, "GET", path, NULL, show_one, err);
}

static int decide(const struct request *request, const char *decision, struct err *err)
{
    cleanup_free char *path = path_of(request);
    json_t *body = json_pack("{s:s}", "decision", decision);
    if (request->scope)
        (void)json_object_set_new(body, "scope", json_string(request->scope));
    if (request->comment)
        (void)json_object_set_new(body, "comment", json_string(request->comment));
    return call(request, "POST", path, body, show_line, err);
}

static int command_approve(const struct request *request, struct err *err)
{
    return decide(request, "approve", err);
}

static int command_deny(const struct request *request, struct err *err)
{
    return decide(request, "deny", err);
}

static void on_event(void *context, const char *name, const json_t *data)
{
    const struct request *request = context;
    cleanup_free char *text = name && request->json ? json_dumps(data, JSON_COMPACT) : NULL;
    if (!name)
        return;
    if (text)
        (void)printf("%s\n", text);
    else
        show_line(data);
    (void)fflush(stdout);
}

static int command_watch(const struct request *request, struct err *err)
{
    return client_follow(&request->client, APPROVALS "/events", on_event, (void *)request, err);
}

static void show_rules(const json_t *answer)
{
    show_json(answer);
}

int approvals_set_rules(
    const struct client *client, const char *path, bool json, struct err *err)
{
    cleanup_buf struct buf text = {0};
    json_error_t why;
    const struct request request = {.client = *client, .json = json};
    int r = input_read(path, RULES_MAX, &text, err);
    if (r < 0)
        return r;
    json_t *rules =
        json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, &why);
    if (!rules)
        return err_set(err, ERR_INVALID, EINVAL, "%s: line %d: %s", path, why.line, why.text);
    return call(&request, "PUT", APPROVALS "/rules", rules, NULL, err);
}

static int command_rules(const struct request *request, struct err *err)
{
    if (request->count < 2)
        return call(request, "GET", APPROVALS "/rules", NULL, show_rules, err);
    return approvals_set_rules(&request->client, request->words[1], request->json, err);
}

static int command_grants(const struct request *request, struct err *err)
{
    return call(request, "GET", APPROVALS "/grants", NULL, show_grants, err);
}

static int command_revoke(const struct request *request, struct err *err)
{
    cleanup_free char *escaped = client_escape(request->words[1]);
    cleanup_free char *path = xasprintf(APPROVALS "/grants/%s", escaped);
    return call(request, "DELETE", path, NULL, NULL, err);
}

/* --- the log */

/* is_whole: the log has the rows of all keys. */
typedef void each_row(void *context, const json_t *row, bool is_whole);

static int read_log(
    const struct request *request, each_row *each, void *context, struct err *err)
{
    json_int_t after = 0;
    for (;;) {
        json_t *answer = NULL;
        cleanup_free char *path =
            xasprintf(APPROVALS "/log?limit=1000&after=%lld", (long long)after);
        int r = client_call(&request->client, "GET", path, NULL, &answer, err);
        const json_t *list = json_object_get(answer, "log");
        size_t count = json_array_size(list);
        for (size_t i = 0; r == 0 && i < count; i++) {
            after = json_integer_value(json_object_get(json_array_get(list, i), "seq"));
            each(context, json_array_get(list, i),
                json_is_true(json_object_get(answer, "is_whole")));
        }
        json_decref(answer);
        if (r < 0 || count == 0)
            return r;
    }
}

static void print_row(void *context, const json_t *row, bool is_whole)
{
    const struct request *request = context;
    cleanup_free char *text = request->json ? json_dumps(row, JSON_COMPACT) : NULL;
    if (text)
        (void)printf("%s\n", text);
    else
        show_row(row);
}

static int command_log(const struct request *request, struct err *err)
{
    return read_log(request, print_row, (void *)request, err);
}

struct check {
    const char *head;
    size_t count, missing, wrong;
    int64_t last_seq;
    char last_hash[LOG_HASH];
    bool has_head;
};

/* A key without the role operator does not see the rows of other keys; then only the row's
 * own hash can be checked. In a whole log each row follows the one before. */
static void check_row(void *context, const json_t *json, bool is_whole)
{
    struct check *check = context;
    char hash[LOG_HASH];
    struct log_row row = {.seq = (int64_t)json_integer_value(json_object_get(json, "seq")),
        .time_ms = (int64_t)json_integer_value(json_object_get(json, "time_ms")),
        .owner = text_of(json, "owner"),
        .place = text_of(json, "place"),
        .approval = text_of(json, "approval"),
        .event = text_of(json, "event"),
        .data = text_of(json, "data")};
    bool follows = is_whole || row.seq == check->last_seq + 1;
    (void)snprintf(row.prev_hash, sizeof(row.prev_hash), "%s", text_of(json, "prev_hash"));
    log_row_hash(&row, hash);
    bool is_right = row.seq > check->last_seq && str_eq(hash, text_of(json, "hash")) &&
                    (!follows || str_eq(row.prev_hash, check->last_hash));
    if (is_whole && row.seq > check->last_seq + 1)
        (void)printf("rows %lld to %lld are missing\n", (long long)check->last_seq + 1,
            (long long)row.seq - 1);
    else if (!is_right)
        (void)printf("row %lld was changed after it was written\n", (long long)row.seq);
    check->missing += row.seq > check->last_seq ? (size_t)(row.seq - check->last_seq - 1) : 0;
    check->count++;
    check->wrong += !is_right;
    check->last_seq = row.seq;
    check->has_head = check->has_head || str_eq(check->head, hash);
    memcpy(check->last_hash, hash, sizeof(hash));
}

static int command_verify(const struct request *request, struct err *err)
{
    struct check check = {.head = request->head, .last_hash = LOG_FIRST};
    int r = read_log(request, check_row, &check, err);
    if (r < 0)
        return r;
    bool is_lost = check.head && !check.has_head;
    if (is_lost)
        (void)printf("the hash of --head is not in the log\n");
    (void)printf("%zu rows, %zu wrong, %zu of other keys or missing; head %s\n", check.count,
        check.wrong, check.missing, check.last_hash);
    return check.wrong || is_lost ? EXIT_BROKEN : 0;
}

static const struct {
    const char *name;
    int least, most; /* words after the name */
    int (*run)(const struct request *request, struct err *err);
} commands[] = {
    {"ls", 0, 0, command_ls},
    {"show", 1, 1, command_show},
    {"approve", 1, 1, command_approve},
    {"deny", 1, 1, command_deny},
    {"watch", 0, 0, command_watch},
    {"rules", 0, 1, command_rules},
    {"grants", 0, 0, command_grants},
    {"revoke", 1, 1, command_revoke},
    {"log", 0, 0, command_log},
    {"verify", 0, 0, command_verify},
};

int approvals_run(const struct client *client, int argc, char **argv, struct err *err)
{
    struct request request = {.client = *client};
    options_parse(&approvals_options, argc, argv, take, &request);
    const char *name = request.count ? request.words[0] : "";
    struct nearest near = {.word = name};
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        nearest_try(&near, commands[i].name);
        if (!str_eq(commands[i].name, name))
            continue;
        int words = request.count - 1;
        if (words < commands[i].least || words > commands[i].most)
            options_misuse(APPROVALS_COMMAND, "%s argument of `%s`",
                words < commands[i].least ? "missing" : "unexpected", name);
        return commands[i].run(&request, err);
    }
    if (!name[0])
        return err_set(
            err, ERR_INVALID, EINVAL, "missing command; `hermes approvals --help` lists them");
    if (near.name)
        return err_set(err, ERR_INVALID, EINVAL, "unknown command `%.64s`; did you mean `%s`?",
            name, near.name);
    return err_set(err, ERR_INVALID, EINVAL,
        "unknown command `%.64s`; `hermes approvals --help` lists them", name);
}

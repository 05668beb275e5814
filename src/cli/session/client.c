/* SPDX-License-Identifier: Apache-2.0 */

/* See client.h. libcurl does HTTP. Events are parsed from its stream. */

#include "cli/session/client.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ANSWER_MAX is in bytes. */
enum { ANSWER_MAX = 256 << 20, CONNECT_S = 10 };

struct transfer {
    CURL *curl;
    struct curl_slist *headers;
    char *url;
    char *body;
    struct buf answer; /* the answer; for a stream, an incomplete event */
    client_event *on_event;
    void *context;
    bool has_ended; /* the event `end` has come */
    bool tells_comments;
    int fd; /* local file of an upload or download; else -1 */
    int local_error;
};

static void transfer_done(struct transfer *t)
{
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
    free(t->url);
    free(t->body);
    buf_done(&t->answer);
}

/* Parses one block with lines "event: NAME" and "data: JSON". */
static void take_event(struct transfer *t, char *block)
{
    const char *name = NULL;
    const char *data = NULL;
    char *save = NULL;
    for (char *line = strtok_r(block, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (str_has_prefix(line, "event: "))
            name = line + strlen("event: ");
        else if (str_has_prefix(line, "data: "))
            data = line + strlen("data: ");
    }
    json_t *value = name && data ? json_loads(data, JSON_ALLOW_NUL, NULL) : NULL;
    if (value) {
        t->has_ended = t->has_ended || str_eq(name, "end");
        t->on_event(t->context, name, value);
    } else if (t->tells_comments && block[0] == ':') {
        t->on_event(t->context, NULL, NULL);
    }
    json_decref(value);
}

static void take_events(struct transfer *t)
{
    char *at = t->answer.data;
    char *end;
    while (at && (end = strstr(at, "\n\n"))) {
        *end = '\0';
        take_event(t, at);
        at = end + 2;
    }
    if (at && at != t->answer.data) {
        size_t left = t->answer.len - (size_t)(at - t->answer.data);
        memmove(t->answer.data, at, left + 1);
        t->answer.len = left;
    }
}

static size_t on_bytes(char *data, size_t size, size_t count, void *context)
{
    struct transfer *t = context;
    long status = 0;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (t->fd >= 0 && status == 200) {
        t->local_error = fs_write_all(t->fd, data, size * count);
        return t->local_error < 0 ? 0 : size * count;
    }
    if (buf_append(&t->answer, data, size * count) < 0)
        return 0;
    if (t->on_event && status == 200)
        take_events(t);
    return size * count;
}

static void add_header(struct transfer *t, const char *name, const char *value)
{
    cleanup_free char *line = xasprintf("%s: %s", name, value);
    t->headers = curl_slist_append(t->headers, line);
}

static int prepare(struct transfer *t, const struct client *client, const char *method,
    const char *path, const json_t *body, struct err *err)
{
    *t = (struct transfer){.curl = curl_easy_init(), .fd = -1};
    buf_init(&t->answer, ANSWER_MAX);
    t->body = body ? json_dumps(body, JSON_COMPACT) : xstrdup("");
    t->url = xasprintf("%s%s", client->url, path);
    if (!t->curl || !t->body)
        return err_set(err, ERR_INTERNAL, ENOMEM, "out of memory");
    if (client->key)
        add_header(t, "X-API-Key", client->key);
    if (body)
        add_header(t, "Content-Type", "application/json");
    add_header(t, "Expect", ""); /* do not wait for 100 Continue */
    (void)curl_easy_setopt(t->curl, CURLOPT_URL, t->url);
    (void)curl_easy_setopt(t->curl, CURLOPT_CUSTOMREQUEST, method);
    (void)curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    (void)curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    (void)curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    if (!str_eq(method, "GET") && (body || !str_eq(method, "PUT"))) { /* a PUT may be a file */
        (void)curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, t->body);
        (void)curl_easy_setopt(
            t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->body));
    }
    if (client->unix_path) {
        (void)curl_easy_setopt(t->curl, CURLOPT_UNIX_SOCKET_PATH, client->unix_path);
        (void)curl_easy_setopt(t->curl, CURLOPT_NOPROXY, "*");
    }
    return 0;
}

/* Takes the error code of the answer, or else one with the same HTTP status. */
int client_refused(const char *answer, size_t len, long status, struct err *err)
{
    json_t *json = json_loadb(answer ? answer : "", len, 0, NULL);
    const json_t *error = json_object_get(json, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *name = json_string_value(json_object_get(error, "code"));
    enum err_code code = ERR_INTERNAL;
    for (unsigned i = ERR_CODE_COUNT - 1; i > 0; i--) {
        bool is_same =
            name ? str_eq(err_table[i].name, name) : err_table[i].http_status == status;
        code = is_same ? (enum err_code)i : code;
    }
    int r = err_set(err, code, EIO, "%s%s", message ? message : "the server gave no reason",
        status == 401 ? "; set HERMES_API_KEY" : "");
    json_decref(json);
    return r;
}

static int perform(
    struct transfer *t, const struct client *client, long *ret_status, struct err *err)
{
    (void)curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
    CURLcode code = curl_easy_perform(t->curl);
    *ret_status = 0;
    (void)curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, ret_status);
    if (t->local_error < 0)
        return err_set(
            err, ERR_INTERNAL, -t->local_error, "cannot write: %s", strerror(-t->local_error));
    if (code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR)
        return err_set(
            err, ERR_UNAVAILABLE, EIO, "the connection broke before the answer was complete");
    if (code == CURLE_COULDNT_CONNECT && client->is_default)
        return err_set(err, ERR_UNAVAILABLE, EIO,
            "%s: no server is there; start one with `hermes serve`, or with your places: "
            "`hermes serve --backends ~/.hermes/config.yaml`. `hermes session repl` and "
            "`hermes exec` need none",
            client->url);
    if (code != CURLE_OK && !t->has_ended)
        return err_set(err, ERR_UNAVAILABLE, EIO, "%s: %s; is `hermes serve` running there?",
            client->unix_path ? client->unix_path : client->url, curl_easy_strerror(code));
    return *ret_status / 100 == 2
               ? 0
               : client_refused(t->answer.data, t->answer.len, *ret_status, err);
}

int client_call(const struct client *client, const char *method, const char *path,
    const json_t *body, json_t **ret, struct err *err)
{
    CLEANUP(transfer_done) struct transfer t;
    long status;
    int r = prepare(&t, client, method, path, body, err);
    if (r == 0)
        r = perform(&t, client, &status, err);
    if (r < 0)
        return r;
    *ret = t.answer.len ? json_loadb(t.answer.data, t.answer.len, JSON_ALLOW_NUL, NULL) : NULL;
    return 0;
}

int client_stream(const struct client *client, const char *path, const json_t *body,
    client_event *on_event, void *context, struct err *err)
{
    CLEANUP(transfer_done) struct transfer t;
    long status;
    int r = prepare(&t, client, "POST", path, body, err);
    if (r < 0)
        return r;
    t.on_event = on_event;
    t.context = context;
    add_header(&t, "Accept", "text/event-stream");
    r = perform(&t, client, &status, err);
    if (r == 0 && !t.has_ended)
        r = err_set(err, ERR_UNAVAILABLE, EPIPE,
            "the server closed the connection before the code had ended");
    return r;
}

int client_follow(const struct client *client, const char *path, client_event *on_event,
    void *context, struct err *err)
{
    CLEANUP(transfer_done) struct transfer t;
    long status;
    int r = prepare(&t, client, "GET", path, NULL, err);
    if (r < 0)
        return r;
    t.on_event = on_event;
    t.context = context;
    t.tells_comments = true;
    add_header(&t, "Accept", "text/event-stream");
    return perform(&t, client, &status, err);
}

static size_t on_read(char *to, size_t size, size_t count, void *context)
{
    struct transfer *t = context;
    ssize_t n;
    while ((n = read(t->fd, to, size * count)) < 0 && errno == EINTR)
        ;
    return n < 0 ? CURL_READFUNC_ABORT : (size_t)n;
}

int client_upload(
    const struct client *client, const char *path, int fd, int64_t size, struct err *err)
{
    CLEANUP(transfer_done) struct transfer t;
    long status;
    int r = prepare(&t, client, "PUT", path, NULL, err);
    if (r < 0)
        return r;
    t.fd = fd;
    (void)curl_easy_setopt(t.curl, CURLOPT_UPLOAD, 1L);
    (void)curl_easy_setopt(t.curl, CURLOPT_READFUNCTION, on_read);
    (void)curl_easy_setopt(t.curl, CURLOPT_READDATA, &t);
    (void)curl_easy_setopt(t.curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)size);
    return perform(&t, client, &status, err);
}

int client_download(
    const struct client *client, const char *path, int fd, unsigned *ret_mode, struct err *err)
{
    CLEANUP(transfer_done) struct transfer t;
    struct curl_header *mode;
    long status;
    int r = prepare(&t, client, "GET", path, NULL, err);
    if (r < 0)
        return r;
    t.fd = fd;
    r = perform(&t, client, &status, err);
    *ret_mode = 0;
    if (r == 0 &&
        curl_easy_header(t.curl, "X-Hermes-Mode", 0, CURLH_HEADER, -1, &mode) == CURLHE_OK)
        *ret_mode = (unsigned)strtoul(mode->value, NULL, 8);
    return r;
}

char *client_escape(const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    char *out = xmalloc(strlen(text) * 3 + 1);
    char *to = out;
    for (; *text; text++) {
        if (strchr(plain, *text))
            *to++ = *text;
        else
            to += snprintf(to, 4, "%%%02X", (unsigned char)*text);
    }
    *to = '\0';
    return out;
}

char *client_path(const char *id, const char *below, struct err *err)
{
    size_t len = strlen(id);
    if (len == 0 || len > 64 ||
        strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != len) {
        (void)err_field(err, "ID",
            "`%.64s` is not a session id; `hermes session ls` lists your sessions", id);
        return NULL;
    }
    return xasprintf("/v1/sessions/%s%s", id, below);
}
